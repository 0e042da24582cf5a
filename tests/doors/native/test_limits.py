"""Limits that hold: nobody takes more than its share, and nobody else pays for it."""

import asyncio
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from jackalope.broker import inbox
from jackalope.broker.access import Principal
from jackalope.broker.backlog import Backlog
from jackalope.core.commands import AnyCommand, StartAttempts, SubmitTasks
from jackalope.core.durations import MILLISECOND, SECOND
from jackalope.core.task import Options
from jackalope.doors.native.connection import QUERIES_AT_ONCE_MAX, Connection
from jackalope.wire.frames import Kind, frame
from jackalope.wire.messages import Ack, Events, Hello, Nack, Notice, Query, Subscribe
from tests.doors.harness import House, Peer, codec, open_house, run, spec

MIB = 1024 * 1024


def _connection_of(house: House, peer: Peer) -> Connection:
    """Find the broker's end of a peer's connection."""
    return next(c for c in house.door.connections if c.session == peer.welcome.session)


def _unsent(connection: Connection) -> int:
    return connection._transport.get_write_buffer_size() if connection._transport else 0


async def _deaf(house: House, hello: Hello | None = None) -> Peer:
    """Let a peer in that will not read, with small buffers in between."""
    peer = await house.connect(receive_bytes=4096)
    await peer.greet(hello)
    transport = _connection_of(house, peer)._transport
    assert transport is not None
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return peer


class Latency:
    """How long the slowest answer to a bystander took."""

    slowest_s = 0.0


@asynccontextmanager
async def _bystander(house: House) -> AsyncIterator[Latency]:
    """Ask and submit all the time, and measure how long the answers take."""
    peer, latency, loop = await house.peer("bystander"), Latency(), asyncio.get_running_loop()

    async def ask() -> None:
        while True:
            begin = loop.time()
            await peer.ask_ok(Query(0, "stats"))
            await peer.submit(spec("bystander"))
            latency.slowest_s = max(latency.slowest_s, loop.time() - begin)
            await asyncio.sleep(0.005)

    asking = asyncio.create_task(ask())
    try:
        yield latency
    finally:
        asking.cancel()
        await asyncio.wait([asking])


# Frames.


def test_frame_size_at_the_limit_and_one_past() -> None:
    async def test() -> None:
        async with open_house(None, frame_bytes_max=1_000) as house:
            peer = await house.peer()
            assert peer.welcome.frame_bytes_max == 1_000
            bare = codec.encode(Query(1, "stats", {"text": ""}))
            # Text of more than 255 bytes has a length of two bytes more.
            text = "x" * (1_000 - (len(bare) - 4) - 2)
            encoded = codec.encode(Query(1, "stats", {"text": text}))
            assert len(encoded) - 4 == 1_000
            await peer.send_bytes(encoded)
            assert isinstance(await peer.answer(1), Ack)
            await peer.send(Query(2, "stats", {"text": text + "x"}))
            assert await peer.wait_closed() == [
                Notice("error", "protocol error: a frame of 1001 bytes; a frame has 1 to 1000")
            ]

    run(test())


def test_too_large_a_frame_is_not_waited_for() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            for header in (
                b"\xff\xff\xff\xff\x01",
                b"\x01\x00\x00\x01\x01",
                b"\x00\x00\x00\x00\x01",
                b"\x00\x00\x00\x00",
                b"\xff\xff\xff\xff",
            ):
                peer = await house.peer()
                await peer.send_bytes(header)
                (notice,) = await peer.wait_closed()
                assert isinstance(notice, Notice)
                assert notice.what == "error"

    run(test())


def test_questions_at_once() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            peer = await house.peer()
            await peer.send(*(Query(ref, "stats") for ref in range(1, QUERIES_AT_ONCE_MAX + 2)))
            answers = [await peer.answer(ref) for ref in range(1, QUERIES_AT_ONCE_MAX + 2)]
            assert all(isinstance(answer, Ack) for answer in answers[:-1])
            assert isinstance(answers[-1], Nack)
            assert answers[-1].code == "too_many"
            await peer.ask_ok(Query(999, "stats"))

    run(test())


# Overload.


def test_overloaded_inbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            monkeypatch.setattr(inbox, "INBOX_ITEMS_MAX", 10)
            refusal = await peer.ask_no(SubmitTasks(0, [spec() for _ in range(11)]))
            assert refusal.code == "overloaded"
            assert refusal.retry_after_us > 0
            assert await peer.ask_ok(Query(0, "queues")) == []
            assert (await peer.ask_ok(SubmitTasks(0, [spec() for _ in range(10)])))["count"] == 10
            # In one write, so that the second finds the first still in the inbox.
            first, second = [[spec() for _ in range(6)] for _ in range(2)]
            await peer.send(SubmitTasks(101, first), SubmitTasks(102, second))
            assert isinstance(await peer.answer(101), Ack)
            assert isinstance(await peer.answer(102), Nack)

    run(test())


def test_history_that_lags_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            monkeypatch.setattr(inbox, "UNWRITTEN_TASKS_MAX", -1)
            assert (await peer.ask_no(SubmitTasks(0, [spec()]))).code == "overloaded"
            monkeypatch.undo()
            await peer.submit(spec())

    run(test())


# Peers that do not read.


async def _fill(house: House) -> None:
    """Make a list of tasks large: about a mebibyte."""
    peer = await house.peer()
    options = Options(headers={"text": "x" * 10_000})
    await peer.submit(*(spec(options=options) for _ in range(100)))
    await peer.ask_ok(Query(0, "tasks", {"limit": 100}))


def test_peer_that_asks_and_never_reads(tmp_path: Path) -> None:
    """It is not read from any more, then cut off; what waits for it is bounded meanwhile."""

    async def test() -> None:
        # Its lists are answered before it is given up, however long history may rest.
        terms: dict[str, Any] = {"heartbeat_us": SECOND, "stuck_us": 2 * SECOND}
        async with open_house(tmp_path, **terms) as house:
            await _fill(house)
            deaf = await _deaf(house)
            connection, most = _connection_of(house, deaf), 0
            async with _bystander(house) as latency:
                query = codec.encode(Query(1, "tasks", {"limit": 100}))
                sending = asyncio.create_task(deaf.send_bytes(query * (20 * MIB // len(query))))
                while connection in house.door.connections:
                    most = max(most, _unsent(connection))
                    await asyncio.sleep(0.005)
                with pytest.raises(OSError, match=r"reset|Broken"):
                    await sending
            # Those that were open at once, and no more.
            assert 4 * MIB < most < (QUERIES_AT_ONCE_MAX + 10) * 1.1 * MIB
            assert latency.slowest_s < 2.0

    run(test())


def test_peer_that_neither_reads_nor_speaks_is_cut_off() -> None:
    async def test() -> None:
        terms: dict[str, Any] = {"heartbeat_us": 50 * MILLISECOND, "stuck_us": 300 * MILLISECOND}
        async with open_house(None, **terms) as house:
            await _fill(house)
            deaf = await _deaf(house)
            connection = _connection_of(house, deaf)
            await deaf.send(*(Query(n, "tasks", {"limit": 100}) for n in range(1, 11)))
            await house.until(lambda: _unsent(connection) > 4 * MIB)
            await house.until(lambda: connection not in house.door.connections, patience_s=1.5)

    run(test())


def test_too_much_unsent() -> None:
    """More than may wait for one peer: it is cut off before its time is over."""

    async def test() -> None:
        terms: dict[str, Any] = {"heartbeat_us": 400 * MILLISECOND, "unsent_bytes_max": 5 * MIB}
        async with open_house(None, **terms) as house:
            await _fill(house)
            deaf = await _deaf(house)
            connection = _connection_of(house, deaf)
            await deaf.send(*(Query(n, "tasks", {"limit": 100}) for n in range(1, 11)))
            await house.until(lambda: connection not in house.door.connections)

    run(test())


def test_too_much_unread_in_sum() -> None:
    """Each peer has its bound, and all together have one as well: the slowest have to go."""

    async def test() -> None:
        async with open_house(None, heartbeat_us=10 * SECOND) as house:
            backlog = house.broker.backlog = Backlog(12 * MIB)
            await _fill(house)
            deaf = [await _deaf(house) for _ in range(8)]
            connections, most = [_connection_of(house, peer) for peer in deaf], 0
            for peer in deaf:
                await peer.send(*(Query(n, "tasks", {"limit": 100}) for n in range(1, 11)))
                await house.until(lambda: backlog.unread_bytes > 4 * MIB)
            client = await house.peer()
            left = set(connections)
            while len(left) == len(connections):
                await client.ask_ok(Query(0, "stats"))
                left &= set(house.door.connections)
                most = max(most, sum(map(_unsent, left)))
            assert most < 12 * MIB + 8 * MIB  # The sum, and what one answer adds before it counts.
            await house.until(lambda: sum(map(_unsent, house.door.connections)) <= 12 * MIB)
            for peer in deaf:
                peer.sock.close()
            await house.until(lambda: not backlog.unread_bytes)

    run(test())


def test_large_answers_that_nobody_reads(tmp_path: Path) -> None:
    async def test() -> None:
        terms: dict[str, Any] = {"heartbeat_us": 4 * SECOND, "unsent_bytes_max": 16 * MIB}
        async with open_house(tmp_path, **terms) as house:
            client, deaf = await house.peer(), await _deaf(house)
            (task,) = await client.submit(spec(payload=b"x" * 2 * MIB))
            connection, most = _connection_of(house, deaf), 0
            await deaf.send(*(Query(n, "task", {"id": task, "bodies": True}) for n in range(1, 81)))
            while connection in house.door.connections:
                most = max(most, _unsent(connection))
                await asyncio.sleep(0.001)
            assert most < 2 * 16 * MIB

    run(test())


def test_goodbye_does_not_wait_for_a_deaf_peer() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            await _fill(house)
            deaf = await _deaf(house)
            connection = _connection_of(house, deaf)
            await deaf.send(*(Query(n, "tasks", {"limit": 100}) for n in range(1, 11)))
            await house.until(lambda: _unsent(connection) > 4 * MIB)
            async with asyncio.timeout(5):
                await house.door.stop()
            await house.until(lambda: not house.door.connections)
            await house.door.start()

    run(test())


def test_slow_reader_is_told_what_it_missed(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            queue, submitted = "q" * 250, 0
            client = await house.peer("c" * 250)
            slow = await _deaf(house)
            await slow.ask_ok(Subscribe(0))
            connection = _connection_of(house, slow)
            while not connection._listening._missed:
                await client.submit(*(spec(queue) for _ in range(1_000)))
                submitted += 1_000
            assert _unsent(connection) < 5 * MIB
            received, missed = 0, 0
            while received + missed < submitted:
                if not _unsent(connection) and not missed:
                    await client.submit(spec(queue))  # The next event says how much was left out.
                    submitted += 1
                events = await slow.expect(Events)
                received += len(events.events)
                missed += events.missed
            assert received + missed == submitted
            assert missed > 0

    run(test())


# Peers that say too much.


def test_flood_of_tiny_frames_slows_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer, most, post = await house.peer(), 0, house.broker.post

            def watched(command: AnyCommand, who: Principal, items: int = 1) -> None:
                nonlocal most
                post(command, who, items)
                most = max(most, len(house.broker._inbox._commands))

            monkeypatch.setattr(house.broker, "post", watched)
            async with _bystander(house) as latency:
                await peer.send_bytes(codec.encode(StartAttempts(0, [])) * 100_000)
                await peer.ask_ok(Query(1, "stats"))
            assert most < 20_000
            assert latency.slowest_s < 3.0

    run(test())


# Many.


@pytest.mark.feature("D5")
def test_a_thousand_connections(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            before_mb = _rss_mb()
            peers: list[Peer] = []
            for _ in range(10):
                peers += await asyncio.gather(*(house.peer() for _ in range(100)))
            assert len(house.door.connections) == 1_000
            for number, peer in enumerate(peers):
                await peer.send(SubmitTasks(7, [spec(key=f"k{number}")]))
            for peer in peers:
                assert await peer.answer(7) == Ack(7, {"count": 1, "refused": []})
            workers = [peer.join(f"w{n}", keys=(f"k{n}",)) for n, peer in enumerate(peers)]
            await asyncio.gather(*workers)
            taken = await asyncio.gather(*(peer.take() for peer in peers))
            assert [one.key for (one,) in taken] == [f"k{number}" for number in range(1_000)]
            finishes = (peer.finish(one) for peer, (one,) in zip(peers, taken, strict=True))
            await asyncio.gather(*finishes)
            stats = await peers[0].ask_ok(Query(0, "stats"))
            assert (stats["sessions"], stats["workers"]) == (1_000, 1_000)
            assert stats["ended"] == {"succeeded": 1_000}
            # Both ends of each are in this process.
            assert _rss_mb() - before_mb < 100
            for peer in peers:
                peer.close()
            await house.until(lambda: not house.door.connections)

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4_096:
        pytest.skip(f"a process here may open {hard} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4_096), hard))
    try:
        run(test())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / MIB


def test_frames_that_come_slowly_hold_up_nobody() -> None:
    """Many peers each in the middle of a large frame: others are served all the same."""

    async def test() -> None:
        async with open_house(None) as house:
            encoded = frame(Kind.SUBMIT, b"\x92\x01" + b"x" * 100_000)
            for _ in range(50):
                slow = await house.peer()
                await slow.send_bytes(encoded[:50_000])
            async with _bystander(house) as latency:
                await asyncio.sleep(0.1)
            assert 0 < latency.slowest_s < 2.0

    run(test())
