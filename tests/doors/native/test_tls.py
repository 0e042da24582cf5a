"""TLS at the native door, as clients, workers and the command line meet it."""

import asyncio
import ssl
from contextlib import suppress
from dataclasses import replace

import pytest

from jackalope import Jackalope
from jackalope.broker.config.exposure import server_context
from jackalope.client.session.session import Session
from jackalope.errors import ConfigError, ConnectionLost, ProtocolError
from jackalope.transport.address import Address, parse_address
from jackalope.transport.connection import Connection
from jackalope.wire.messages import Hello, Query
from tests.certificates import certificates
from tests.doors.harness import House, open_house, run


def address_of(house: House) -> Address:
    made = certificates()
    return Address("127.0.0.1", house.door.port, tls=True, ca_file=made.ca)


async def ask_stats(address: Address) -> None:
    connection = await Connection.open(
        address, Hello(), heard=lambda _: None, lost=lambda _: None, timeout_s=5
    )
    try:
        assert "counts" in await connection.request(Query(0, "stats"))
    finally:
        await connection.close()


@pytest.mark.feature("D30", "D34")
def test_a_client_verifies_the_broker_and_is_served() -> None:
    async def test() -> None:
        async with open_house(None, tls=server_context(certificates().config)) as house:
            await ask_stats(address_of(house))
            await ask_stats(replace(address_of(house), host="localhost"))

    run(test())


def test_large_frames_pass_both_ways() -> None:
    async def test() -> None:
        async with open_house(None, tls=server_context(certificates().config)) as house:
            app = Jackalope(address_of(house))

            @app.task
            def echo(body: bytes) -> bytes:
                return body

            async with app:
                handle = await echo.submit(bytes(3_000_000))
                view = await app.find(handle, with_bodies=True)
                assert view.payload is not None
                assert len(view.payload) > 3_000_000

    run(test())


@pytest.mark.parametrize("names", [(), ("broker.example.org",)], ids=["authority", "name"])
def test_a_broker_that_cannot_prove_who_it_is_is_not_talked_to(names: tuple[str, ...]) -> None:
    """Of an authority that is not trusted; or of one that is, for another name."""

    async def test() -> None:
        made = certificates(*names)
        async with open_house(None, tls=server_context(made.config)) as house:
            address = replace(address_of(house), ca_file=made.ca if names else "")
            with pytest.raises(ProtocolError, match="not trusted"):
                await ask_stats(address)
            # Who says so goes without.
            await ask_stats(replace(address, verify=False))

    run(test())


def test_a_session_gives_up_on_a_broker_that_is_not_trusted() -> None:
    async def test() -> None:
        async with open_house(None, tls=server_context(certificates().config)) as house:
            session = Session(replace(address_of(house), ca_file=""), Hello())
            with pytest.raises(ProtocolError, match="not trusted"):
                await session.request(Query(0, "stats"), timeout_s=5)
            await session.close()

    run(test())


@pytest.mark.feature("D34")
def test_plain_text_is_refused_where_tls_is_spoken() -> None:
    async def test() -> None:
        async with open_house(None, tls=server_context(certificates().config)) as house:
            with pytest.raises((ProtocolError, ConnectionLost)):
                await ask_stats(Address("127.0.0.1", house.door.port))
            assert not house.door.connections

    run(test())


def test_tls_is_refused_where_plain_text_is_spoken() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            with pytest.raises(ProtocolError, match="TLS handshake failed"):
                await ask_stats(address_of(house))

    run(test())


def test_old_versions_are_refused() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certificates().ca)
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")

    async def test() -> None:
        async with open_house(None, tls=server_context(certificates().config)) as house:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.open_connection("127.0.0.1", house.door.port, ssl=context)

    run(test())


def test_who_does_not_begin_to_speak_tls_is_let_go() -> None:
    async def test() -> None:
        tls = server_context(certificates().config)
        async with open_house(None, tls=tls, hello_us=200_000) as house:
            reader, writer = await asyncio.open_connection("127.0.0.1", house.door.port)
            with suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()

    run(test())


def test_a_file_of_authorities_that_cannot_be_used_is_named(tmp_path: object) -> None:
    async def test() -> None:
        for file in (f"{tmp_path}/none.pem", __file__):
            with pytest.raises(ConfigError, match="CA file"):
                await ask_stats(Address("127.0.0.1", 1, tls=True, ca_file=file))

    run(test())


def test_addresses_say_whether_they_are_encrypted() -> None:
    address = parse_address("jackalopes://secret@broker.example.org:7000/team")
    assert address.tls
    assert str(address) == "jackalopes://broker.example.org:7000/team"
    assert "secret" not in repr(address)
    assert not parse_address("jackalope://broker.example.org").tls
