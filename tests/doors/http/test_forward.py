"""Requests to a node that does not lead: answered here, forwarded to the leader, or refused."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from jackalope.broker.access import Access, hash_of, id_of, new_token
from jackalope.broker.config.schema import Forward
from jackalope.core.api_key import ApiKey, Permission
from jackalope.doors.forwarding import Forwarding
from jackalope.doors.http import forward
from jackalope.doors.http.forward import MARK, is_stale_allowed
from tests.doors.elsewhere import SECRET, Elsewhere
from tests.doors.harness import run
from tests.doors.http.harness import PATIENCE_S, HttpHouse, open_http, until

TASK = {"queue": "q", "name": "t", "payload": "AQ=="}


@asynccontextmanager
async def pair(
    mode: Forward = Forward.AUTO, access: Callable[[], Access] = Access, **settings: Any
) -> AsyncIterator[tuple[HttpHouse, HttpHouse, Elsewhere]]:
    """Give a node that leads, one that knows it, and what that one believes."""
    first = Forwarding(Elsewhere(None), mode, SECRET)
    async with open_http(forwarding=first, access=access(), **settings) as leading:
        cluster = Elsewhere(f"127.0.0.1:{leading.door.port}")
        second = Forwarding(cluster, mode, SECRET)
        async with open_http(forwarding=second, access=access(), **settings) as following:
            yield leading, following, cluster


Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@asynccontextmanager
async def behind(answer: Answer) -> AsyncIterator[tuple[HttpHouse, Elsewhere]]:
    """Give a node whose leader does what a test says."""
    open_writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_writers.append(writer)
        await answer(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    cluster = Elsewhere(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    forwarding = Forwarding(cluster, Forward.AUTO, SECRET)
    try:
        async with open_http(forwarding=forwarding) as house:
            yield house, cluster
    finally:
        for writer in open_writers:
            writer.close()
        server.close()


async def read_head(reader: asyncio.StreamReader) -> list[bytes]:
    return (await reader.readuntil(b"\r\n\r\n")).strip().split(b"\r\n")


@pytest.mark.parametrize(
    ("method", "path", "query", "is_allowed"),
    [
        ("GET", "/api/v1/tasks", b"stale=allow", True),
        ("GET", "/api/v1/tasks/", b"state=dead&stale=allow", True),
        ("GET", "/api/v1/tasks/0192-some-id", b"stale=allow", True),
        ("GET", "/api/v1/queues", b"stale=allow", True),
        ("GET", "/api/v1/tasks", b"", False),
        ("GET", "/api/v1/tasks", b"stale=no", False),
        ("GET", "/api/v1/tasks", b"stale=allow&stale=no", False),
        ("GET", "/api/v1/tasks/id/payload", b"stale=allow", False),
        ("GET", "/api/v1/workers", b"stale=allow", False),
        ("GET", "/api/v1/events", b"stale=allow", False),
        ("POST", "/api/v1/tasks", b"stale=allow", False),
    ],
)
def test_what_may_be_answered_from_a_copy(
    method: str, path: str, query: bytes, is_allowed: bool
) -> None:
    assert is_stale_allowed(method, path, query) is is_allowed


def test_a_follower_has_the_leader_answer() -> None:
    async def play() -> None:
        async with pair() as (leading, following, _):
            made = await following.client.post("/api/v1/tasks", json=TASK)
            assert made.status_code == 201, made.text
            found = await following.client.get(f"/api/v1/tasks/{made.json()['id']}")
            assert found.json()["state"] == "ready"
            assert (await leading.client.get("/api/v1/tasks")).json()["tasks"]
            assert not following.broker.engine.core.book.tasks
            assert len(found.headers.get_list("date")) == 1
            assert (await following.client.head("/")).status_code in (200, 404)
            assert (await following.client.get("/api/docs")).status_code == 200

    run(play())


def test_a_node_answers_for_itself_what_is_asked_of_it() -> None:
    async def play() -> None:
        async with pair() as (leading, following, _):
            await leading.client.post("/api/v1/tasks", json=TASK)
            for path in ("/health", "/health/live", "/metrics", "/version"):
                await following.client.get(path)
            stale = await following.client.get("/api/v1/tasks?stale=allow")
            assert (stale.status_code, stale.json()["tasks"]) == (200, [])
            assert stale.headers["x-jackalope-sequence"] == "0"
            assert following.door.forwarding is not None
            assert following.door.forwarding.forwarded == 0
            fresh = await leading.client.get("/api/v1/tasks?stale=allow")
            assert len(fresh.json()["tasks"]) == 1
            assert "x-jackalope-sequence" not in fresh.headers

    run(play())


def test_keys_are_checked_by_the_leader() -> None:
    token = new_token()

    def access() -> Access:
        key = ApiKey(
            id=id_of(token), hash=hash_of(token), name="ada", permissions=(Permission.SUBMIT_TASKS,)
        )
        return Access((key,))

    async def play() -> None:
        async with pair(access=access) as (_, following, _):
            refused = await following.client.post("/api/v1/tasks", json=TASK)
            assert refused.status_code == 401
            headers = {"Authorization": f"Bearer {token}"}
            # The node behind which it stands does not know the queue's maker; the leader decides.
            told = await following.client.post("/api/v1/tasks", json=TASK, headers=headers)
            assert told.status_code in (201, 403), told.text
            assert "Bearer" not in told.headers.get("www-authenticate", "")

    run(play())


def test_a_request_waits_for_the_next_leader() -> None:
    async def play() -> None:
        async with pair() as (leading, following, cluster):
            address, cluster.address = cluster.address, "127.0.0.1:1"  # Nothing listens there.
            asked = asyncio.create_task(following.client.post("/api/v1/tasks", json=TASK))
            await asyncio.sleep(0.2)
            cluster.move("")
            await asyncio.sleep(0.2)
            assert not asked.done()
            cluster.move(address)
            task = (await asked).json()["id"]
            assert (await leading.client.get(f"/api/v1/tasks/{task}")).status_code == 200
            cluster.move("")
            asked = asyncio.create_task(following.client.post("/api/v1/tasks", json=TASK))
            await asyncio.sleep(0.2)
            cluster.move(None)  # This node leads by now.
            task = (await asked).json()["id"]
            assert (await following.client.get(f"/api/v1/tasks/{task}")).status_code == 200
            assert (await leading.client.get(f"/api/v1/tasks/{task}")).status_code == 404

    run(play())


def test_no_leader_no_loop_and_no_forwarding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "FIND_S", 0.2)

    async def play() -> None:
        async with pair() as (_, following, cluster):
            looped = await following.client.get("/api/v1/tasks", headers={MARK.decode(): "x y"})
            assert (looped.status_code, looped.json()["reason"]) == (503, "no_leader")
            cluster.address = ""
            told = await following.client.post("/api/v1/tasks", json=TASK)
            assert (told.status_code, told.json()["reason"]) == (503, "no_leader")
            assert told.headers["retry-after"] == "1"
            cluster.address = "127.0.0.1:1"  # Nothing listens there.
            told = await following.client.post("/api/v1/tasks", json=TASK)
            assert (told.status_code, told.headers["retry-after"]) == (503, "1")
        async with pair(Forward.NEVER) as (_, following, cluster):
            sent_on = await following.client.get("/api/v1/tasks?limit=1")
            assert sent_on.status_code == 307
            assert sent_on.headers["location"] == f"http://{cluster.address}/api/v1/tasks?limit=1"
            named = await following.client.post("/api/v1/tasks", json=TASK)
            assert (named.status_code, named.json()["reason"]) == (421, "not_leader")
            assert named.headers["x-jackalope-leader"] == cluster.address

    run(play())


def test_headers_of_one_connection_stay_there_and_the_client_is_named() -> None:
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await read_head(reader))
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nkeep-alive: timeout=9\r\n"
            b"connection: x-secret\r\nx-secret: 1\r\nx-told: 1\r\n\r\nok"
        )

    async def play() -> None:
        async with behind(answer) as (house, _):
            headers = {
                "Connection": "keep-alive, x-hop",
                "X-Hop": "1",
                "X-End": "2",
                "X-Forwarded-For": "10.9.9.9",
                "Authorization": "Bearer t",
            }
            told = await house.client.get("/api/v1/tasks?a=%2F&b", headers=headers)
            assert told.text == "ok"
            assert told.headers["x-told"] == "1"
            assert not {"x-secret", "keep-alive"} & set(told.headers)
        assert heard[0] == b"GET /api/v1/tasks?a=%2F&b HTTP/1.1"
        lines = dict(line.split(b": ", 1) for line in heard[1:])
        assert not {b"x-hop", b"connection"} & set(lines)
        assert lines[b"x-end"] == b"2"
        assert lines[b"authorization"] == b"Bearer t"
        assert lines[b"host"].startswith(b"127.0.0.1:")
        assert lines[b"x-forwarded-for"] == b"10.9.9.9, 127.0.0.1"
        host, mac = lines[MARK].split()
        assert Forwarding(Elsewhere(None), secret=SECRET).is_signed(
            host, bytes.fromhex(mac.decode())
        )

    run(play())


def test_bodies_of_unknown_length_go_both_ways_as_they_come() -> None:
    """The leader answers each chunk before the next one is sent."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while size := int(await reader.readline(), 16):
            chunk = (await reader.readexactly(size + 2))[:-2]
            writer.write(b"%x\r\n%s\r\n" % (size, chunk.upper()))
        await reader.readline()
        writer.write(b"0\r\n\r\n")

    async def play() -> None:
        async with behind(answer) as (house, _), asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", house.door.port)
            writer.write(
                b"POST /api/v1/tasks HTTP/1.1\r\nhost: localhost\r\n"
                b"transfer-encoding: chunked\r\n\r\n"
            )
            assert (await read_head(reader))[0] == b"HTTP/1.1 200 OK"
            for word in (b"one", b"two", b"three"):
                writer.write(b"%x\r\n%s\r\n" % (len(word), word))
                assert await reader.readline() == b"%x\r\n" % len(word)
                assert await reader.readline() == word.upper() + b"\r\n"
            writer.write(b"0\r\n\r\n")
            assert await reader.readline() == b"0\r\n"
            writer.close()

    run(play())


def test_much_is_held_by_nobody_and_a_client_that_goes_is_noticed() -> None:
    ended = asyncio.Event()
    sent = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n")
        try:
            while True:
                writer.write(bytes(100_000))
                await writer.drain()
                sent += 100_000
        except ConnectionError:
            ended.set()

    async def play() -> None:
        async with behind(answer) as (house, _), asyncio.timeout(PATIENCE_S * 3):
            async with house.client.stream("GET", "/api/v1/tasks"):
                before = -1
                while sent != before:
                    before = sent
                    await asyncio.sleep(1)
                assert sent < 50_000_000  # What sockets hold, and little more.
            await ended.wait()
            assert house.door.forwarding is not None
            await until(lambda: not house.door.forwarding.requests)  # type: ignore[union-attr]

    run(play())


def test_a_leader_that_is_lost_is_told_of_or_cuts_the_answer_off() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.close()

    async def halfway(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        await writer.drain()
        writer.close()

    async def play() -> None:
        async with behind(silent) as (house, _):
            told = await house.client.post("/api/v1/tasks", json=TASK)
            assert (told.status_code, told.json()["reason"]) == (502, "leader_lost")
            assert told.headers["retry-after"] == "1"
        async with behind(halfway) as (house, _):
            with pytest.raises(httpx.RemoteProtocolError):
                await house.client.get("/api/v1/tasks")

    run(play())


def test_a_leader_that_hangs_is_given_up_when_another_leads() -> None:
    asked = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        asked.set()
        await reader.read()

    async def play() -> None:
        async with behind(answer) as (house, cluster), asyncio.timeout(PATIENCE_S):
            asking = asyncio.create_task(house.client.post("/api/v1/tasks", json=TASK))
            await asked.wait()
            cluster.move("127.0.0.1:1")
            assert (await asking).status_code == 502

    run(play())


def test_an_answer_may_come_before_the_body_was_read() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\nconnection: close\r\n\r\nbig")

    async def play() -> None:
        async with behind(answer) as (house, _):
            told = await house.client.post("/api/v1/tasks", content=bytes(8_000_000))
            assert (told.status_code, told.text) == (413, "big")

    run(play())


def test_connections_to_the_leader_are_used_again() -> None:
    connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while not reader.at_eof():
            try:
                await read_head(reader)
            except asyncio.IncompleteReadError:
                return
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    async def play() -> None:
        async with behind(answer) as (house, _):
            for _ in range(20):
                assert (await house.client.get("/api/v1/tasks")).text == "ok"
        assert connections < 10  # A busy machine may take its time between two.

    run(play())


async def drain(socket: ClientConnection) -> None:
    while True:
        await socket.recv()


def test_websockets_are_spliced_and_end_with_the_leader() -> None:
    async def play() -> None:
        async with pair() as (leading, following, cluster), asyncio.timeout(PATIENCE_S * 3):
            async with connect(f"{following.socket_url}/api/v1/pulse") as socket:
                assert json.loads(await socket.recv())["type"] == "pulse"
                await leading.client.post("/api/v1/tasks", json=TASK)
                while json.loads(await socket.recv()).get("stats", {}).get("depth") == 0:
                    pass
                assert following.door.forwarding is not None
                assert following.door.forwarding.count("http") == 1
                cluster.move("")
                with pytest.raises(ConnectionClosed):
                    await drain(socket)
            cluster.move("127.0.0.1:1")
            with pytest.raises(InvalidStatus) as refused:
                await connect(f"{following.socket_url}/api/v1/pulse", open_timeout=PATIENCE_S * 2)
            assert refused.value.response.status_code == 503

    run(play())


def test_the_leader_knows_where_a_client_is_if_a_node_has_signed_it() -> None:
    async def play() -> None:
        async with pair(rate_per_s=0.001, rate_burst=3, access=_needs_key) as (leading, _, _):
            signing = Forwarding(Elsewhere(None), secret=SECRET)

            async def ask(host: bytes, mac: bytes) -> int:
                mark = f"{host.decode()} {mac.hex()}"
                answer = await leading.client.get("/version", headers={MARK.decode(): mark})
                return answer.status_code

            # Strangers are counted by their addresses.
            for number in range(5):
                host = b"10.0.0.%d" % number
                assert await ask(host, signing.sign(host)) == 200
            told = [await ask(b"10.1.0.%d" % number, b"no" * 16) for number in range(5)]
            assert told == [200, 200, 200, 429, 429]

    run(play())


def _needs_key() -> Access:
    token = new_token()
    return Access((ApiKey(id=id_of(token), hash=hash_of(token), name="a", permissions=()),))


def test_a_follower_is_ready_and_leads_not() -> None:
    async def play() -> None:
        async with pair() as (leading, following, cluster):
            for house, codes in ((leading, (200, 200, 200)), (following, (200, 503, 200))):
                house.broker.health.down = "" if house is leading else "this node is following"
                paths = ("/health/ready", "/health/leader", "/health/live")
                assert (
                    tuple([(await house.client.get(path)).status_code for path in paths]) == codes
                )
            body = (await following.client.get("/health/ready")).json()
            assert (body["role"], body["state"], body["leader"]) == ("follower", "following", "b")
            assert (body["epoch"], body["quorum"], body["lag_s"]) == (7, True, 0.0)
            cluster.address = ""
            told = await following.client.get("/health/ready")
            assert (told.status_code, told.json()["status"]) == (503, "degraded")

    run(play())


def test_a_cluster_is_counted() -> None:
    async def play() -> None:
        async with pair() as (leading, following, _):
            await following.client.get("/api/v1/tasks")
            numbers = (await following.client.get("/metrics")).text.splitlines()
            assert "jackalope_epoch 7.0" in numbers
            assert "jackalope_leading 0.0" in numbers
            assert 'jackalope_cluster_role{role="following"} 1.0' in numbers
            assert "jackalope_cluster_forwarded_total 1.0" in numbers
            assert "jackalope_cluster_members 3.0" in numbers
            assert 'jackalope_cluster_wrong_copies_total{copy="c"} 2.0' in numbers
            assert "jackalope_cluster_divergences_total 1.0" in numbers
            led = (await leading.client.get("/metrics")).text.splitlines()
            assert "jackalope_leading 1.0" in led
            known = (await following.client.get("/metrics?names=task_queue")).text.splitlines()
            assert {"tq_raft_term 7.0", "tq_raft_leader 0.0"} <= set(known)

    run(play())
