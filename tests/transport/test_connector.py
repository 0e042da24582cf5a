"""Getting from one connection to the next: which address, and when."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest

from jackalope.core.refusals import Code
from jackalope.errors import ConnectionLost, JackalopeError, ProtocolError, Rejected
from jackalope.transport import connector as connector_module
from jackalope.transport.address import Address, parse_address
from jackalope.transport.connector import Connector
from jackalope.wire.messages import AnyMessage, Hello, Nack, Notice, Welcome
from tests.client.peer import ScriptedBroker, run, until
from tests.ports import refusing_port


class Peer:
    """A connector, and what it reports."""

    def __init__(self, *ports: int) -> None:
        self.troubles: list[JackalopeError] = []
        self.is_patient = True
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.connector = Connector(
            parse_address(f"jackalope://{hosts}"), Hello(), heard=print, troubled=self._troubled
        )

    def _troubled(self, error: JackalopeError) -> None:
        self.troubles.append(error)
        if not self.is_patient:
            raise error

    async def keep(self) -> None:
        while True:
            await (await self.connector.connect()).ended()


def refuse_hello(code: Code) -> ScriptedBroker:
    def script(message: AnyMessage) -> list[AnyMessage] | None:
        return [Nack(0, code, "said no")] if isinstance(message, Hello) else None

    return ScriptedBroker(script)


@pytest.fixture
def dead() -> Iterator[int]:
    with refusing_port() as port:
        yield port


def test_members_are_tried_in_their_order_and_the_next_at_once(dead: int) -> None:
    async def test() -> None:
        async with ScriptedBroker() as one, ScriptedBroker() as two:
            peer = Peer(dead, one.port, two.port)
            first = await peer.connector.connect()
            assert first.address == Address("127.0.0.1", one.port)
            assert peer.connector.address_of(first).others == (
                ("127.0.0.1", dead),
                ("127.0.0.1", two.port),
            )
            await one.stop()
            await first.ended()
            second = await peer.connector.connect()
            assert second.address.port == two.port
            assert peer.troubles == []
            await second.close()

    run(test())


def naming(*places: str) -> ScriptedBroker:
    """Return a broker that names the members of its cluster."""
    welcome = Welcome(1, 1, "pulse", 10_000_000, 2**24, "scripted", 0, places, 7)
    return ScriptedBroker(lambda message: [welcome] if isinstance(message, Hello) else None)


def test_members_are_learned_and_tried_after_those_that_were_given(dead: int) -> None:
    async def test() -> None:
        async with ScriptedBroker() as two, naming(f"[::1]:{dead}", f"127.0.0.1:{two.port}") as one:
            peer = Peer(one.port, dead)
            first = await peer.connector.connect()
            assert peer.connector.address_of(first).others == (
                ("127.0.0.1", dead),
                ("::1", dead),
                ("127.0.0.1", two.port),
            )
            await one.stop()
            await first.ended()
            second = await peer.connector.connect()
            assert second.address.port == two.port
            # One that names none, as an older one would, does not make the others forgotten.
            assert ("127.0.0.1", one.port) in peer.connector.address_of(second).others
            await second.close()

    run(test())


def test_learned_members_keep_all_but_the_place() -> None:
    async def test() -> None:
        async with naming("127.0.0.1:1", "member.example:2") as broker:
            given = f"jackalope://a%20key@127.0.0.1:{broker.port}/lab"
            connector = Connector(parse_address(given), Hello(), heard=print, troubled=print)
            connection = await connector.connect()
            assert connector._members == [
                parse_address(given),
                parse_address("jackalope://a%20key@127.0.0.1:1/lab"),
                parse_address("jackalope://a%20key@member.example:2/lab"),
            ]
            await connection.close()

    run(test())


def test_all_are_named_when_none_can_be_reached(dead: int) -> None:
    async def test() -> None:
        async with refuse_hello(Code.OVERLOADED) as busy:
            peer = Peer(dead, busy.port)
            peer.is_patient = False
            with pytest.raises(ConnectionLost) as raised:
                await peer.connector.connect()
        for port, why in ((dead, "refused"), (busy.port, "said no")):
            assert f"127.0.0.1:{port}: " in str(raised.value)
            assert why in str(raised.value)

    run(test())


def test_refusal_that_does_not_pass_ends_the_tries() -> None:
    async def test() -> None:
        async with refuse_hello(Code.FORBIDDEN) as broker, ScriptedBroker() as other:
            with pytest.raises(Rejected, match="said no"):
                await Peer(broker.port, other.port).connector.connect()
            assert other.hellos == 0

    run(test())


def test_what_is_no_broker_is_passed_over_and_reported_if_none_is() -> None:
    async def test() -> None:
        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        web = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = web.sockets[0].getsockname()[1]
        async with ScriptedBroker() as broker:
            connection = await Peer(port, broker.port).connector.connect()
            assert connection.address.port == broker.port
            await connection.close()
        peer = Peer(port)
        peer.is_patient = False
        with pytest.raises(ProtocolError):
            await peer.connector.connect()
        web.close()

    run(test())


def test_members_that_hang_up_are_not_tried_without_waits() -> None:
    async def test() -> None:
        async with ScriptedBroker() as one, ScriptedBroker() as two:
            peer = Peer(one.port, two.port)
            with suppress(TimeoutError):
                async with asyncio.timeout(0.7):
                    while True:
                        connection = await peer.connector.connect()
                        one.drop()
                        two.drop()
                        await connection.ended()
            # Waits of 25 ms at least, then 50, 100, and 125 from there on: two tries for each.
            assert 2 <= one.hellos + two.hellos <= 16
            assert abs(one.hellos - two.hellos) <= 1

    run(test())


def test_waits_are_short_where_there_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    async def waits_of(*ports: int) -> list[float]:
        waits: list[float] = []

        async def note(wait_s: float) -> None:
            waits.append(wait_s)
            if len(waits) == 12:
                raise ConnectionLost("enough")

        with monkeypatch.context() as patch:
            patch.setattr("jackalope.transport.connector.asyncio.sleep", note)
            with pytest.raises(ConnectionLost, match="enough"):
                await Peer(*ports).connector.connect()
        return waits

    async def test() -> None:
        with refusing_port() as one, refusing_port() as two:
            monkeypatch.setattr(connector_module, "_TAKEOVER_S", 3600.0)  # on a slow machine too
            alone, several = await waits_of(one), await waits_of(one, two)
            monkeypatch.setattr(connector_module, "_TAKEOVER_S", 0.0)
            later = await waits_of(one, two)
        assert 2.5 <= alone[-1] <= 5
        assert 0.125 <= several[-1] <= 0.25, "another member leads soon"
        assert 0.5 <= later[-1] <= 1, "none does"
        assert max(alone[0], several[0], later[0]) <= 0.05

    run(test())


def test_the_member_that_a_connection_names_when_it_ends_is_tried_at_once(dead: int) -> None:
    async def test() -> None:
        async with ScriptedBroker() as two, ScriptedBroker() as one:
            welcome = Welcome(1, 1, "pulse", 10_000_000, 2**24, "scripted", 0)
            moved = Notice("moved", f"127.0.0.1:{two.port}")
            one.script = lambda message: [welcome, moved] if isinstance(message, Hello) else None
            peer = Peer(one.port, dead)
            first = await peer.connector.connect()
            await until(lambda: first.moved_to)
            one.drop()
            assert str(moved.detail) in str(await first.ended())
            second = await peer.connector.connect()
            assert second.address.port == two.port
            assert (one.hellos, two.hellos, peer.troubles) == (1, 1, [])
            two.drop()
            await second.ended()
            await (await peer.connector.connect()).close()  # It is no reason to go there again.
            assert (one.hellos, two.hellos) == (2, 1)

    run(test())


@pytest.mark.parametrize("place", ["nowhere", "127.0.0.1:0", "", ":"])
def test_what_is_no_address_is_not_gone_to(place: str) -> None:
    async def test() -> None:
        async with ScriptedBroker() as one:
            welcome = Welcome(1, 1, "pulse", 10_000_000, 2**24, "scripted", 0)
            answers: list[AnyMessage] = [welcome, Notice("moved", place)]
            one.script = lambda message: answers if isinstance(message, Hello) else None
            peer = Peer(one.port)
            first = await peer.connector.connect()
            one.drop()
            await first.ended()
            await (await peer.connector.connect()).close()
            assert one.hellos == 2

    run(test())


def test_good_connection_is_followed_by_a_short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr(connector_module, "STEADY_S", 0.0)
        async with ScriptedBroker() as broker:
            peer = Peer(broker.port)
            keeping = asyncio.create_task(peer.keep())
            for count in range(1, 12):  # Would take half a minute with waits that grow.
                await until(lambda count=count: broker.hellos == count)  # type: ignore[misc]
                await asyncio.sleep(0.002)
                broker.drop()
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping

    run(test())
