"""Bad input on purpose, over raw sockets: each gets a clear no, and costs nobody else."""

import asyncio
import json
import socket
import statistics
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jackalope.core.limits import DEPTH_MAX
from jackalope.doors.http.listener import PatientProtocol
from tests.doors.harness import run
from tests.doors.http.harness import HttpHouse, open_http
from tests.profiles import examples
from tests.wire.shapes import DEPTHS, nested_json

STATS = "/api/v1/stats"
TASKS = "/api/v1/tasks"

#: Short, so that tests need not wait.
IMPATIENT: dict[str, Any] = {"header_timeout_us": 300_000, "body_timeout_us": 300_000}

HEAD = b"GET /api/v1/stats HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


class Raw:
    """A connection made of bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, house: HttpHouse) -> "Raw":
        return cls(*await asyncio.open_connection("127.0.0.1", house.door.port))

    async def send(self, *data: bytes) -> None:
        for piece in data:
            self.writer.write(piece)
            await self.writer.drain()

    async def rest(self) -> bytes:
        """Return all that comes until the door closes the connection."""
        async with asyncio.timeout(10):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""
            finally:
                self.writer.close()

    async def refused(self) -> tuple[int, dict[str, Any]]:
        """Return the status and the error that end the connection."""
        answered = await self.rest()
        head, _, body = answered.rpartition(b"\r\n\r\n")
        assert b"connection: close" in head.lower(), answered
        told = json.loads(body)
        status = int(head.split()[1])
        assert told["code"] == status
        assert told["error"]
        return status, told


async def refused(house: HttpHouse, *data: bytes) -> tuple[int, dict[str, Any]]:
    """Send something bad, and return what is said to it."""
    raw = await Raw.connect(house)
    await raw.send(*data)
    return await raw.refused()


async def check_served(house: HttpHouse) -> None:
    assert (await house.client.get(STATS)).status_code == 200


# Slow ones.


@pytest.mark.parametrize("begin", [b"", b"G", HEAD, HEAD + b"X-Half: o", b"\r\n\r\n"])
def test_a_head_that_does_not_come_is_not_waited_for(begin: bytes) -> None:
    async def test() -> None:
        async with open_http(**IMPATIENT) as house:
            status, told = await refused(house, begin)
            assert (status, told["reason"]) == (408, "too_slow")
            await check_served(house)

    run(test())


def test_a_head_that_drips_is_not_waited_for() -> None:
    async def test() -> None:
        async with open_http(**IMPATIENT) as house:
            raw = await Raw.connect(house)
            begin = time.monotonic()

            async def drip() -> None:
                while True:
                    await raw.send(b"X-Drip: 1\r\n")
                    await asyncio.sleep(0.02)

            await raw.send(HEAD)
            dripping = asyncio.create_task(drip())
            try:
                answered = await raw.rest()
            finally:
                dripping.cancel()
                await asyncio.gather(dripping, return_exceptions=True)
            assert answered.startswith(b"HTTP/1.1 408") or not answered
            assert time.monotonic() - begin < 3

    run(test())


def test_a_second_request_may_be_as_slow_as_a_first_one_and_no_slower() -> None:
    async def test() -> None:
        async with open_http(**IMPATIENT) as house:
            raw = await Raw.connect(house)
            await raw.send(HEAD + b"\r\n")
            await raw.reader.readuntil(b"\r\n\r\n")
            await raw.send(HEAD)
            assert b"408 Request Timeout" in await raw.rest()

    run(test())


@pytest.mark.parametrize(
    ("path", "kind"), [(TASKS, b"application/json"), ("/api/jobs/submit", b"multipart/form-data")]
)
def test_a_body_that_stands_still_is_not_waited_for(path: str, kind: bytes) -> None:
    async def test() -> None:
        async with open_http(**IMPATIENT) as house:
            head = (
                b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s; boundary=x\r\n"
                b"Content-Length: 1000\r\n\r\n" % (path.encode(), kind)
            )
            status, told = await refused(house, head, b"--x\r\n")
            assert (status, told["reason"]) == (408, "too_slow")
            await check_served(house)

    run(test())


def test_a_body_that_drips_is_not_waited_for() -> None:
    async def test() -> None:
        async with open_http(**IMPATIENT) as house:
            raw = await Raw.connect(house)
            begin = time.monotonic()
            await raw.send(
                b"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n"
            )
            answered = b""
            while not answered and time.monotonic() - begin < 5:
                try:
                    await raw.send(b" ")
                    async with asyncio.timeout(0.05):
                        answered = await raw.reader.read(100)
                except TimeoutError:
                    continue
                except ConnectionError:
                    break
            raw.writer.close()
            assert answered.startswith(b"HTTP/1.1 408")

    run(test())


def test_a_body_that_takes_long_but_moves_is_waited_for() -> None:
    async def test() -> None:
        async with open_http(**IMPATIENT) as house:
            body = json.dumps({"name": "x", "headers": {"pad": "x" * 15_000}}).encode()

            async def pieces() -> Any:
                for begin in range(0, len(body), 1_500):
                    yield body[begin : begin + 1_500]
                    await asyncio.sleep(0.1)

            headers = {"Content-Type": "application/json"}
            answered = await house.client.post(TASKS, content=pieces(), headers=headers)
            assert answered.status_code == 201

    run(test())


def test_a_waiting_request_is_not_slow() -> None:
    """The peer has said all: how long the answer takes is our own affair."""

    async def test() -> None:
        async with open_http(**IMPATIENT) as house:
            made = await house.client.post(TASKS, json={"name": "x"})
            path = f"{TASKS}/{made.json()['id']}/result?wait=1"
            answered = await house.client.get(path)
            assert answered.status_code != 408
            await check_served(house)

    run(test())


def test_a_peer_that_does_not_read_is_cut_off() -> None:
    async def test() -> None:
        async with open_http(**IMPATIENT) as house:
            payload = bytes(40_000_000)
            headers = {"Content-Type": "application/octet-stream"}
            path = f"{TASKS}/raw?name=x"
            made = await house.client.post(path, content=payload, headers=headers)
            assert made.status_code == 201, made.text
            task = made.json()["id"]
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(sock, ("127.0.0.1", house.door.port))
            request = f"GET {TASKS}/{task}/payload HTTP/1.1\r\nHost: localhost\r\n\r\n"
            await loop.sock_sendall(sock, request.encode())
            server = house.door._listener._server
            assert server is not None
            own = {sock.getsockname()[1]}

            def is_there() -> bool:
                return any(
                    isinstance(each, PatientProtocol) and each.client and each.client[1] in own
                    for each in server.server_state.connections
                )

            async with asyncio.timeout(10):
                while not is_there():  # noqa: ASYNC110  it has no event
                    await asyncio.sleep(0.01)
                while is_there():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            sock.close()
            await check_served(house)

    run(test())


@pytest.mark.timeout(60)
def test_a_thousand_slow_ones_cost_nobody_else() -> None:
    slow = 1_000

    async def latencies(client: httpx.AsyncClient, count: int) -> list[float]:
        taken = []
        for _ in range(count):
            begin = time.perf_counter()
            answered = await client.get(STATS)
            assert answered.status_code == 200
            taken.append(time.perf_counter() - begin)
        return taken

    async def test() -> None:
        async with open_http(header_timeout_us=2_000_000) as house:
            alone = statistics.median(await latencies(house.client, 50))
            raws = await asyncio.gather(*(Raw.connect(house) for _ in range(slow)))
            for raw in raws:
                await raw.send(HEAD)
            among = statistics.median(await latencies(house.client, 50))
            assert among < alone * 5 + 0.02
            answers = await asyncio.gather(*(raw.rest() for raw in raws))
            assert all(answer.startswith(b"HTTP/1.1 408") for answer in answers)
            await check_served(house)

    run(test())


def test_there_is_room_for_so_many() -> None:
    async def test() -> None:
        async with open_http(max_connections=5) as house:
            raws = [await Raw.connect(house) for _ in range(5)]
            for raw in raws:
                await raw.send(HEAD + b"\r\n")
                await raw.reader.readuntil(b"\r\n\r\n")
            status, told = await refused(house, HEAD + b"\r\n")
            assert (status, told["reason"]) == (503, "unavailable")
            raws[0].writer.close()
            await raws[0].writer.wait_closed()
            async with asyncio.timeout(5):
                while (await house.client.get(STATS)).status_code != 200:
                    pass
            for raw in raws:
                raw.writer.close()

    run(test())


# Large ones.


LARGE_HEADS = [
    HEAD + b"X-Large: " + b"x" * 40_000 + b"\r\n\r\n",
    HEAD + b"X-Endless: " + b"x" * 40_000,
    HEAD + b"".join(b"X-Header-%d: y\r\n" % number for number in range(3_000)) + b"\r\n",
    b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /" + b"x" * 40_000,
]


def test_a_head_that_is_too_large_is_refused() -> None:
    async def test() -> None:
        async with open_http() as house:
            for head in LARGE_HEADS:
                status, told = await refused(house, head)
                assert (status, told["reason"]) == (431, "too_large")
                await check_served(house)

    run(test())


@pytest.mark.parametrize("is_said", [True, False])
def test_a_body_that_is_too_large_is_refused(is_said: bool) -> None:
    async def pieces() -> Any:
        for _ in range(40):
            yield b" " * 10_000

    async def test() -> None:
        async with open_http(body_bytes_max=100_000) as house:
            headers = {"Content-Type": "application/json"}
            content: Any = b" " * 400_000 if is_said else pieces()
            answered = await house.client.post(TASKS, content=content, headers=headers)
            assert answered.status_code == 413
            assert answered.json()["reason"] == "too_large"
            await check_served(house)

    run(test())


# Strange ones.


NO_HTTP = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"\x00" * 100,
    b"HELLO\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    HEAD + b"No colon\r\n\r\n",
    HEAD + b"Na me: x\r\n\r\n",
    HEAD + b"X: a\x00b\r\n\r\n",
    POST + b"Content-Length: -1\r\n\r\n",
    POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
    POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
    POST + b"Transfer-Encoding: chunked\r\n\r\nnot a size\r\n",
    b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n",
]


def test_what_is_no_http_is_refused() -> None:
    async def test() -> None:
        async with open_http(**IMPATIENT) as house:
            for data in NO_HTTP:
                raw = await Raw.connect(house)
                await raw.send(data)
                answered = await raw.rest()
                assert answered.startswith(b"HTTP/1.1 4"), answered
                await check_served(house)

    run(test())


TRICKS = [
    "/../../etc/passwd",
    "/api/v1/tasks/../../../etc/passwd",
    "/api/v1/tasks/..%2f..%2f..%2fetc%2fpasswd",
    "/api/v1/tasks/%2e%2e/%2e%2e/keys",
    "/api/v1/tasks/%00",
    "/api/v1/tasks/%ff%fe",
    "/api/v1/queues/%2e%2e%2f%2e%2e",
    "/api/jobs/..%5c..%5cwindows",
    "//evil.example/api/v1/stats/x",
    "/api/v1/tasks/" + "a" * 5_000,
    "/api/v1/tasks/' OR 1=1 --".replace(" ", "%20"),
    "/api/v1/tasks?cursor=%27;DROP%20TABLE%20tasks",
    "/api/v1/tasks?limit=99999999999999999999999",
    "/api/v1/tasks?sort=__class__",
    "/api/v1/tasks?" + "&".join(["tag=x"] * 2_000),
    "/api/v1/%c0%ae%c0%ae/keys",
]


def test_tricks_with_paths_lead_nowhere() -> None:
    async def test() -> None:
        async with open_http() as house:
            for path in TRICKS:
                raw = await Raw.connect(house)
                request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                await raw.send(request.encode("latin-1"))
                answered = await raw.rest()
                assert answered.startswith(b"HTTP/1.1 4"), answered[:300]
                assert b"root:" not in answered

    run(test())


def test_requests_behind_each_other_are_answered_in_order() -> None:
    async def test() -> None:
        async with open_http() as house:
            raw = await Raw.connect(house)
            last = HEAD + b"Connection: close\r\n\r\n"
            await raw.send((HEAD + b"\r\n") * 20 + last)
            answered = await raw.rest()
            assert answered.count(b"HTTP/1.1 200") == 21

    run(test())


def test_a_request_that_is_cut_off_leaves_nothing_behind() -> None:
    async def test() -> None:
        async with open_http() as house:
            body = json.dumps({"name": "x"}).encode()
            head = (
                b"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
            )
            whole = head + body
            for end in range(0, len(whole), 7):
                raw = await Raw.connect(house)
                await raw.send(whole[:end])
                raw.writer.close()
                await raw.writer.wait_closed()
            await check_served(house)
            listed = await house.client.get(TASKS)
            assert listed.json()["tasks"] == []

    run(test())


# Chance.

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["name", "\x00", "\ud800", "a" * 300, "1e999", "NaN"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=10,
)

FIELDS = ["name", "payload", "priority", "queue", "tags", "headers", "depends_on", "alias"]
PATHS = [
    ("POST", TASKS),
    ("POST", f"{TASKS}/batch"),
    ("POST", f"{TASKS}/actions"),
    ("PUT", "/api/v1/queues/q"),
    ("PUT", "/api/v1/limits/gpu"),
]

bodies = st.one_of(
    anything,
    st.dictionaries(st.sampled_from(FIELDS), anything, max_size=6),
    st.fixed_dictionaries({"name": anything}, optional=dict.fromkeys(FIELDS[1:], anything)),
)

ALL_AT_ONCE = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck)
)


def test_wrong_bodies_are_refused() -> None:
    async def test() -> None:
        async with open_http() as house:
            sent: list[tuple[str, str, bytes]] = []

            @ALL_AT_ONCE
            @given(st.sampled_from(PATHS), bodies | st.binary(max_size=50))
            def gather(path: tuple[str, str], body: Any) -> None:
                if isinstance(body, bytes):
                    sent.append((*path, body))
                else:
                    text = json.dumps(body)
                    sent.append((*path, text.encode(errors="surrogatepass")))

            await asyncio.to_thread(gather)
            for method, path, body in sent:
                answered = await house.client.request(
                    method, path, content=body, headers={"Content-Type": "application/json"}
                )
                assert answered.status_code < 500, (method, path, body, answered.text)
                if answered.status_code >= 400:
                    assert answered.json()["error"]
            await check_served(house)

    run(test())


def test_garbage_is_refused() -> None:
    """Requests with bytes changed, left out or put in."""
    whole = (
        b"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b'Connection: close\r\nContent-Length: 17\r\n\r\n{"name":"x"}'
    )

    async def test() -> None:
        async with open_http(**IMPATIENT) as house:
            sent: list[bytes] = []

            @ALL_AT_ONCE
            @given(
                st.integers(0, len(whole)), st.integers(0, 5), st.binary(max_size=8), st.booleans()
            )
            def gather(place: int, less: int, more: bytes, is_noise: bool) -> None:
                changed = whole[:place] + more + whole[place + less :]
                sent.append(more * 20 if is_noise else changed)

            await asyncio.to_thread(gather)

            async def send(data: bytes) -> bytes:
                raw = await Raw.connect(house)
                await raw.send(data)
                return await raw.rest()

            for answered in await asyncio.gather(*map(send, sent)):
                # Nothing at all where the peer has not even begun, or was told while it still sent.
                assert not answered.startswith(b"HTTP/1.1 5"), answered
                assert answered.startswith((b"HTTP/1.1 4", b"HTTP/1.1 2")) or not answered
            await check_served(house)

    run(test())


# Values that nest.


@pytest.mark.parametrize("bracket", ["list", "map"])
def test_nested_headers(tmp_path: Path, bracket: str) -> None:
    """At every depth a task is accepted and can be read, or refused; nothing else happens."""

    async def test() -> None:
        async with open_http(tmp_path) as house:
            for depth in DEPTHS:
                value = nested_json(depth, bracket)
                made = await house.client.post(
                    TASKS,
                    content=b'{"name":"t","queue":"q","headers":{"h":%b}}' % value,
                    headers={"Content-Type": "application/json"},
                )
                assert made.status_code == (201 if depth < DEPTH_MAX else 400), (depth, made.text)
                if made.status_code == 201:
                    shown = await house.client.get(f"{TASKS}/{made.json()['id']}")
                    assert shown.json()["headers"]["h"] == json.loads(value)
                ignored = await house.client.post(
                    TASKS,
                    content=b'{"name":"t","queue":"q","nonsense":%b}' % value,
                    headers={"Content-Type": "application/json"},
                )
                assert ignored.status_code == 400
            await check_served(house)

    run(test())


@pytest.mark.parametrize(
    "value", [b"1e999", b"9" * 400, b'"\\ud800"', b"-9223372036854775809", b"18446744073709551616"]
)
def test_strange_numbers_and_texts(value: bytes) -> None:
    async def test() -> None:
        async with open_http() as house:
            made = await house.client.post(
                TASKS,
                content=b'{"name":"t","queue":"q","headers":{"h":%b}}' % value,
                headers={"Content-Type": "application/json"},
            )
            assert made.status_code in (201, 400)
            if made.status_code == 201:
                shown = await house.client.get(f"{TASKS}/{made.json()['id']}")
                assert shown.status_code == 200
            await check_served(house)

    run(test())
