"""Posts to real servers: what counts as taken, what is tried again, and what is never called."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from ipaddress import ip_address, ip_network

import pytest

from jackalope.broker.config.exposure import server_context
from jackalope.callbacks.posting import HEAD_BYTES_MAX, Failed, Poster
from jackalope.core.durations import DAY, SECOND
from jackalope.core.shapes.callback import Address, AllowedTargets
from tests.callbacks.receiver import HANG, OK, Receiver, answer, receiving
from tests.certificates import certificates

LOCAL = AllowedTargets((ip_network("127.0.0.0/8"),))


def poster(allowed: AllowedTargets = LOCAL, timeout_s: float = 5.0) -> Poster:
    return Poster(allowed, timeout_s, ssl.create_default_context)


def failure(*answers: bytes, timeout_s: float = 5.0) -> tuple[Failed, Receiver]:
    """Post to a server that answers so, and return why that failed."""

    async def check() -> tuple[Failed, Receiver]:
        async with receiving(*answers) as receiver:
            with pytest.raises(Failed) as caught:
                await poster(timeout_s=timeout_s).post(receiver.url(), {}, b"{}")
            return caught.value, receiver

    return asyncio.run(check())


def test_what_is_sent() -> None:
    async def check() -> None:
        async with receiving(answer("200 OK")) as receiver:
            url = receiver.url("/a/b?c=d%20e")
            assert await poster().post(url, {"X-Own": "1"}, b"body") == 200
            (got,) = receiver.got
            assert got.line == "POST /a/b?c=d%20e HTTP/1.1"
            assert got.body == b"body"
            assert got.headers["host"] == f"127.0.0.1:{receiver.port}"
            assert got.headers["x-own"] == "1"
            assert got.headers["connection"] == "close"

    asyncio.run(check())


@pytest.mark.parametrize("status", ["200 OK", "201 Created", "202", "204 No Content", "299 So"])
def test_every_2xx_is_a_yes(status: str) -> None:
    async def check() -> None:
        async with receiving(answer(status)) as receiver:
            assert await poster().post(receiver.url(), {}, b"") == int(status[:3])

    asyncio.run(check())


def test_interim_answers_are_passed_over() -> None:
    async def check() -> None:
        hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
        async with receiving(hints + hints + OK) as receiver:
            assert await poster().post(receiver.url(), {}, b"") == 204

    asyncio.run(check())
    failed, _ = failure(6 * b"HTTP/1.1 100 Continue\r\n\r\n" + OK)
    assert "interim" in str(failed)


@pytest.mark.parametrize(
    "status", ["400 Bad", "401 No", "404 Gone", "410 Gone", "422 No", "301 Moved", "307 There"]
)
def test_what_trying_again_cannot_mend(status: str) -> None:
    failed, receiver = failure(answer(status, "Location: http://127.0.0.1/other"))
    assert failed.is_final
    assert status in str(failed)
    assert len(receiver.got) == 1  # A redirect is not followed.


@pytest.mark.parametrize("status", ["408 Slow", "425 Early", "429 Many", "500 Oh", "503 Later"])
def test_what_is_tried_again(status: str) -> None:
    failed, _ = failure(answer(status))
    assert not failed.is_final
    assert not failed.retry_after_us
    assert status in str(failed)


@pytest.mark.parametrize(
    ("text", "after_us"),
    [
        ("7", 7 * SECOND),
        ("999999999999999999", DAY),
        ("Wed, 21 Oct 2099 07:28:00 GMT", DAY),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("soon", 0),
        ("-5", 0),
        ("Wed, 99 Oct 2099", 0),
    ],
)
def test_a_receiver_says_when(text: str, after_us: int) -> None:
    failed, _ = failure(answer("503 Later", f"retry-after: {text}"))
    assert failed.retry_after_us == after_us


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"\xff\x00" * 100,
        b"HTTP/1.1 200 OK\r\nX: y",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * HEAD_BYTES_MAX + b"\r\n\r\n",
        b"\r\n\r\n",
    ],
)
def test_garbage_is_no_answer(said: bytes) -> None:
    failed, _ = failure(said)
    assert failed.kind == "BadAnswer"
    assert not failed.is_final


def test_a_body_without_end_is_not_read() -> None:
    async def check() -> None:
        async with receiving(answer("200 OK") + b"x" * 10_000_000) as receiver:
            assert await poster().post(receiver.url(), {}, b"") == 200

    asyncio.run(check())


def test_a_receiver_that_hangs() -> None:
    failed, _ = failure(HANG, timeout_s=0.2)
    assert failed.kind == "Timeout"
    assert not failed.is_final


def test_a_receiver_that_sends_a_byte_now_and_then() -> None:
    gone = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(b"H")
                await writer.drain()
                await asyncio.sleep(0.02)
        except ConnectionError:
            writer.close()
        finally:
            gone.set()

    async def check() -> None:
        server = await asyncio.start_server(drip, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Failed) as caught:
            await poster(timeout_s=0.3).post(f"http://127.0.0.1:{port}/", {}, b"")
        assert caught.value.kind == "Timeout"
        await gone.wait()
        server.close()

    asyncio.run(check())


def test_nobody_listens() -> None:
    async def check() -> None:
        async with receiving() as receiver:
            url = receiver.url()
        with pytest.raises(Failed) as caught:
            await poster().post(url, {}, b"")
        assert caught.value.kind == "ConnectionFailed"
        assert not caught.value.is_final

    asyncio.run(check())


# Where callbacks must not go.


class Resolver(Poster):
    """A poster for which a name has these addresses, in turn: each look-up takes the next."""

    def __init__(
        self,
        allowed: AllowedTargets,
        *turns: str,
        tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        super().__init__(allowed, 2.0, tls)
        self.turns = [[ip_address(each) for each in turn.split()] for turn in turns]
        self.looked_up = 0

    async def look_up(self, host: str, port: int) -> list[Address]:
        self.looked_up += 1
        return self.turns.pop(0)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "169.254.169.254",
        "::1",
        "::ffff:127.0.0.1",
        "100.64.0.1",
        "0.0.0.0",  # noqa: S104
    ],
)
def test_a_name_with_a_private_address_is_not_called(address: str) -> None:
    async def check() -> None:
        with pytest.raises(Failed) as caught:
            await Resolver(AllowedTargets(), address).post("http://a.example/", {}, b"")
        assert caught.value.kind == "Forbidden"
        assert caught.value.is_final
        assert "callbacks.allow" in str(caught.value)

    asyncio.run(check())


def test_a_name_is_resolved_once_and_the_address_that_was_checked_is_called() -> None:
    """A name that is public when it is checked, and private a moment later."""

    async def check() -> None:
        async with receiving() as receiver:
            allowed = AllowedTargets((ip_network("127.0.0.1/32"),))
            own = Resolver(allowed, "127.0.0.1", "127.0.0.2")
            url = receiver.url(host="rebinding.example")
            assert await own.post(url, {}, b"") == 204
            assert own.looked_up == 1
            assert receiver.got[0].headers["host"] == f"rebinding.example:{receiver.port}"
            with pytest.raises(Failed) as caught:
                await own.post(url, {}, b"")
            assert caught.value.kind == "Forbidden"
            assert len(receiver.got) == 1

    asyncio.run(check())


def test_of_several_addresses_only_those_that_are_allowed_are_called() -> None:
    async def check() -> None:
        async with receiving() as receiver:
            allowed = AllowedTargets((ip_network("127.0.0.1/32"),))
            own = Resolver(allowed, "127.0.0.9 10.0.0.1 127.0.0.1")
            assert await own.post(receiver.url(host="mixed.example"), {}, b"") == 204

    asyncio.run(check())


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "127.1", "2130706433", "0x7f.1", "0177.0.0.1"]
)
def test_loopback_is_not_called_however_it_is_written(host: str) -> None:
    async def check() -> None:
        async with receiving() as receiver:
            with pytest.raises(Failed) as caught:
                await poster(AllowedTargets()).post(receiver.url(host=host), {}, b"")
            assert caught.value.kind == "Forbidden"
            assert not receiver.got

    asyncio.run(check())


def test_a_host_that_is_allowed_by_its_name() -> None:
    async def check() -> None:
        async with receiving() as receiver:
            allowed = AllowedTargets(hosts=("localhost",))
            assert await poster(allowed).post(receiver.url(host="LocalHost."), {}, b"") == 204
            with pytest.raises(Failed):
                await poster(allowed).post(receiver.url(), {}, b"")

    asyncio.run(check())


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    test_every_2xx_is_a_yes("200 OK")


def test_tls_is_verified_against_the_name() -> None:
    files = certificates("hooks.example")
    server_side = server_context(files.config)
    receiver = Receiver()

    def trusting() -> ssl.SSLContext:
        return ssl.create_default_context(cafile=files.ca)

    async def check() -> None:
        server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=server_side)
        port = server.sockets[0].getsockname()[1]

        async def post(host: str, tls: ssl.SSLContext) -> int:
            own = Resolver(LOCAL, "127.0.0.1", tls=lambda: tls)
            return await own.post(f"https://{host}:{port}/", {}, b"{}")

        assert await post("hooks.example", trusting()) == 204
        for host, tls in (
            ("other.example", trusting()),
            ("hooks.example", ssl.create_default_context()),
        ):
            with pytest.raises(Failed) as caught:
                await post(host, tls)
            assert caught.value.kind == "ConnectionFailed"
            assert "certificate" in str(caught.value).lower()
        server.close()
        await receiver.close()

    asyncio.run(check())
    assert len(receiver.got) == 1
