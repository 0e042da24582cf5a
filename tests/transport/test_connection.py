"""One connection: frames, answers, pushes, heartbeats and ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from jackalope.core.commands import ClaimTasks, Heartbeat, SubmitTasks, WatchTasks
from jackalope.core.effects import Assignment, TaskEnded
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import State
from jackalope.core.task import NO_OPTIONS
from jackalope.errors import ConnectionLost, ProtocolError, Rejected
from jackalope.task_ids import new_task_id
from jackalope.transport import connection as link
from jackalope.transport.address import Address
from jackalope.transport.connection import Connection
from jackalope.wire.frames import FRAME_BYTES_MAX, VERSION, FrameReader
from jackalope.wire.messages import (
    Ack,
    AnyMessage,
    Assign,
    Ended,
    Hello,
    Nack,
    Notice,
    Query,
    Welcome,
    broker_codec,
)
from tests.client.peer import ScriptedBroker, run, until
from tests.ports import refusing_port


class Owner:
    """Whoever opened a connection, and what it was told."""

    def __init__(self) -> None:
        self.heard: list[AnyMessage] = []
        self.lost: list[ConnectionLost] = []

    async def open(self, broker: ScriptedBroker, **settings: Any) -> Connection:
        return await Connection.open(
            Address("127.0.0.1", broker.port),
            Hello(name="tester"),
            heard=self.heard.append,
            lost=self.lost.append,
            **settings,
        )


def with_broker(test: Callable[[ScriptedBroker, Owner], Any], **settings: Any) -> None:
    async def whole() -> None:
        async with ScriptedBroker(**settings) as broker:
            await test(broker, Owner())

    run(whole())


async def open_raw(owner: Owner) -> tuple[Connection, socket.socket]:
    """Open a connection whose other end is a socket, past HELLO."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        address = Address("127.0.0.1", listener.getsockname()[1])
        opening = asyncio.create_task(
            Connection.open(address, Hello(), heard=owner.heard.append, lost=owner.lost.append)
        )
        end, _ = await loop.sock_accept(listener)
    end.setblocking(False)
    await loop.sock_recv(end, 4096)
    welcome = Welcome(VERSION, 1, "", 0, FRAME_BYTES_MAX, "raw")
    await loop.sock_sendall(end, broker_codec().encode(welcome))
    return await opening, end


def kinds(data: bytes) -> list[str]:
    codec = broker_codec()
    return [type(codec.decode(kind, body)).__name__ for kind, body in FrameReader().feed(data)]


# Opening.


def test_hello_is_answered() -> None:
    async def test(broker: ScriptedBroker, owner: Owner) -> None:
        connection = await owner.open(broker)
        assert connection.welcome.server == "scripted"
        assert broker.of(Hello) == [Hello(name="tester")]
        await connection.close()
        assert owner.lost == []

    with_broker(test)


def test_nobody_listens() -> None:
    async def test() -> None:
        with refusing_port() as port:
            address = Address("127.0.0.1", port)
            with pytest.raises(ConnectionLost, match=f"cannot reach {address}: .*refused"):
                await Connection.open(address, Hello(), heard=print, lost=print)

    run(test())


def test_hello_is_refused() -> None:
    async def test(broker: ScriptedBroker, owner: Owner) -> None:
        broker.script = lambda _: [Nack(0, "forbidden", "wrong token")]
        with pytest.raises(Rejected, match="wrong token") as raised:
            await owner.open(broker)
        assert raised.value.code == "forbidden"
        await until(lambda: not broker.connections)

    with_broker(test)


def test_hello_ends_in_an_error() -> None:
    async def test(broker: ScriptedBroker, owner: Owner) -> None:
        def script(_: AnyMessage) -> list[AnyMessage]:
            asyncio.get_running_loop().call_soon(broker.drop)
            return [Notice("error", "protocol version 9")]

        broker.script = script
        with pytest.raises((ProtocolError, ConnectionLost)):
            await owner.open(broker)

    with_broker(test)


def test_something_else_listens() -> None:
    async def test() -> None:
        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
        with pytest.raises(ProtocolError, match="a frame of"):
            await Connection.open(address, Hello(), heard=print, lost=print)
        server.close()

    run(test())


def test_hello_is_never_answered() -> None:
    async def test(broker: ScriptedBroker, owner: Owner) -> None:
        broker.is_mute = True
        with pytest.raises(ConnectionLost, match=r"did not answer within 0\.05 s"):
            await owner.open(broker, timeout_s=0.05)
        await until(lambda: not broker.connections)

    with_broker(test)


def test_opening_is_cancelled() -> None:
    async def test(broker: ScriptedBroker, owner: Owner) -> None:
        broker.is_mute = True
        opening = asyncio.create_task(owner.open(broker))
        await until(lambda: broker.hellos)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await until(lambda: not broker.connections)
        assert owner.lost == []

    with_broker(test)


# Requests.


def test_answers_find_their_requests_in_any_order() -> None:
    async def test(broker: ScriptedBroker, owner: Owner) -> None:
        broker.script = lambda m: [] if isinstance(m, Query) else None
        connection = await owner.open(broker)
        first = connection.request(Query(0, "a"))
        second = connection.request(Query(0, "b"))
        third = connection.request(Query(0, "c"))
        await until(lambda: len(broker.of(Query)) == 3)
        refs = [query.ref for query in broker.of(Query)]
        assert refs == sorted(set(refs))
        broker.push(Ack(refs[2], {"third": True}))
        broker.push(Nack(refs[1], "invalid", "no such thing", 7))
        broker.push(Ack(refs[0], [1]))
        broker.push(Ack(999, "for nobody"))
        broker.push(Nack(998, "invalid", "for nobody"))
        assert await first == [1]
        assert await third == {"third": True}
        with pytest.raises(Rejected, match="no such thing") as raised:
            await second
        assert (raised.value.code, raised.value.retry_after_us) == ("invalid", 7)
        await connection.close()

    with_broker(test)


def test_requests_of_one_turn_leave_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(broker: ScriptedBroker, owner: Owner) -> None:
        connection = await owner.open(broker)
        writes = 0
        write = connection._transport.write  # type: ignore[union-attr]

        def counting(data: bytes) -> None:
            nonlocal writes
            writes += 1
            write(data)

        monkeypatch.setattr(connection._transport, "write", counting)
        await asyncio.gather(*[connection.request(Query(0, "stats")) for _ in range(100)])
        assert writes == 1
        await connection.close()

    with_broker(test)


def test_answer_can_be_brought_without_a_future() -> None:
    async def test(broker: ScriptedBroker, owner: Owner) -> None:
        connection = await owner.open(broker)
        answers: list[Any] = []
        connection.ask(Query(0, "stats"), lambda body, error: answers.append((body, error)))
        await until(lambda: answers)
        assert answers == [({"count": 1, "refused": []}, None)]
        await connection.close()
        connection.ask(Query(0, "stats"), lambda body, error: answers.append((body, error)))
        assert isinstance(answers[1][1], ConnectionLost)

    with_broker(test)


def test_claim_is_answered_by_its_assignments() -> None:
    async def test(broker: ScriptedBroker, owner: Owner) -> None:
        broker.script = lambda m: [] if isinstance(m, ClaimTasks) else None
        connection = await owner.open(broker)
        claimed = connection.request(ClaimTasks(0, 2, 1_000_000))
        hopeless = connection.request(ClaimTasks(0))
        await until(lambda: len(broker.of(ClaimTasks)) == 2)
        refs = [claim.ref for claim in broker.of(ClaimTasks)]
        mine, pushed = (assignment(claim) for claim in (refs[0], 0))
        broker.push(Assign([mine, pushed]))
        broker.push(Nack(refs[1], "nothing_to_claim", "time is over"))
        assert await claimed == [mine]
        assert owner.heard == [Assign([pushed])]
        with pytest.raises(Rejected, match="time is over"):
            await hopeless
        await connection.close()

    with_broker(test)


def assignment(claim: int) -> Assignment:
    return Assignment(new_task_id(), 1, "q", "f", "", b"", NO_OPTIONS, 1, 0, claim)


def test_pushed_messages_reach_the_owner() -> None:
    async def test(broker: ScriptedBroker, owner: Owner) -> None:
        connection = await owner.open(broker)
        pushed = [
            Ended([TaskEnded(new_task_id(), State.SUCCEEDED, b"r")]),
            Notice("drain"),
            Assign([assignment(0)]),
        ]
        for message in pushed:
            broker.push(message)
        broker.push(Heartbeat())
        await until(lambda: len(owner.heard) == 3)
        assert owner.heard == pushed
        await connection.close()

    with_broker(test)


def test_frame_beyond_what_the_broker_takes_is_not_sent() -> None:
    async def test(broker: ScriptedBroker, owner: Owner) -> None:
        broker.frame_bytes_max = 1_000
        connection = await owner.open(broker)
        # 1,000 bytes are what follows the length: kind, array, ref, string, bytes.
        assert await connection.request(Query(0, "x", {"a": b"x" * 983}))
        with pytest.raises(Rejected, match="accepts frames of 1000") as raised:
            await connection.request(Query(0, "x", {"a": b"x" * 1_000}))
        assert raised.value.code == "too_large"
        with pytest.raises(Rejected, match="accepts frames of 1000"):
            connection.send(Query(0, "x", {"a": b"x" * 1_000}))
        assert len(broker.of(Query)) == 1
        await connection.close()

    with_broker(test)


# Ends.


def test_loss_fails_what_is_not_answered() -> None:
    async def test(broker: ScriptedBroker, owner: Owner) -> None:
        broker.script = lambda m: [] if isinstance(m, Query) else None
        connection = await owner.open(broker)
        waiting = [connection.request(Query(0, "stats")) for _ in range(3)]
        await until(lambda: broker.of(Query))
        broker.drop()
        for future in waiting:
            with pytest.raises(ConnectionLost, match="was lost"):
                await future
        assert len(owner.lost) == 1
        assert not connection.is_open
        with pytest.raises(ConnectionLost):
            await connection.request(Query(0, "stats"))
        connection.send(Heartbeat())
        with pytest.raises(ConnectionLost):
            await connection.room()
        await connection.close()

    with_broker(test)


def test_goodbye_is_the_reason_of_the_loss() -> None:
    async def test(broker: ScriptedBroker, owner: Owner) -> None:
        connection = await owner.open(broker)
        broker.push(Notice("goodbye", "the broker is shutting down"))
        await until(lambda: owner.heard)
        broker.drop()
        await until(lambda: owner.lost)
        assert "said goodbye: the broker is shutting down" in str(owner.lost[0])
        assert not connection.is_open

    with_broker(test)


def test_garbage_ends_the_connection() -> None:
    async def test(broker: ScriptedBroker, owner: Owner) -> None:
        connection = await owner.open(broker)
        waiting = connection.request(Query(0, "stats"))
        broker.push_bytes(b"\xff\xff\xff\xff garbage")
        with pytest.raises(ConnectionLost, match="a frame of"):
            await waiting
        await until(lambda: owner.lost)

    with_broker(test, script=lambda m: [] if isinstance(m, Query) else None)


def test_close_sends_what_is_waiting_and_tells_nobody() -> None:
    async def test(broker: ScriptedBroker, owner: Owner) -> None:
        connection = await owner.open(broker)
        answer = connection.request(SubmitTasks(0, []))
        await connection.close()
        await connection.close()
        await until(lambda: broker.of(SubmitTasks))
        with pytest.raises(ConnectionLost, match="closed here"):
            await answer
        assert owner.lost == []

    with_broker(test)


# Bounds.


async def deaf_server(heard: list[asyncio.Transport]) -> asyncio.Server:
    """Say WELCOME, and never read again."""
    broker = ScriptedBroker()

    class Deaf(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            heard.append(transport)

        def data_received(self, data: bytes) -> None:
            heard[0].write(broker._codec.encode(broker._usual(Hello())[0]))
            heard[0].pause_reading()

    loop = asyncio.get_running_loop()
    return await loop.create_server(Deaf, "127.0.0.1", 0)


def test_deaf_broker_congests_and_is_then_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr(link, "UNSENT_BYTES_MAX", 8 * 1024 * 1024)
        ends: list[asyncio.Transport] = []
        server = await deaf_server(ends)
        lost: list[ConnectionLost] = []
        connection = await Connection.open(
            Address("127.0.0.1", server.sockets[0].getsockname()[1]),
            Hello(),
            heard=print,
            lost=lost.append,
        )
        block = Query(0, "x", {"data": bytes(512 * 1024)})
        sent = 0
        while not connection.is_congested:
            connection.send(block)
            sent += 1
            await asyncio.sleep(0)
            assert sent < 100
        room = asyncio.create_task(connection.room())
        await asyncio.sleep(0)
        assert not room.done()
        while connection.is_open:
            connection.send(block)
            await asyncio.sleep(0)
        with pytest.raises(ConnectionLost, match="bytes of unread data"):
            await room
        await until(lambda: lost)
        for end in ends:
            end.abort()
        server.close()

    run(test())


def test_room_comes_back_when_the_broker_reads() -> None:
    async def test(broker: ScriptedBroker, owner: Owner) -> None:
        connection = await owner.open(broker)
        for _ in range(8):
            connection.send(Query(0, "x", {"data": bytes(4 * 1024 * 1024)}))
        was_congested = connection.is_congested
        await connection.room()
        assert (was_congested, connection.is_congested) == (True, False)
        await connection.close()

    with_broker(test)


# Heartbeats.


def test_heartbeats_are_sent_into_silence_only() -> None:
    async def test(broker: ScriptedBroker, owner: Owner) -> None:
        connection = await owner.open(broker)
        await until(lambda: len(broker.of(Heartbeat)) >= 2)
        await connection.close()

    with_broker(test, heartbeat_us=20_000)


def test_silent_broker_is_given_up() -> None:
    async def test(broker: ScriptedBroker, owner: Owner) -> None:
        connection = await owner.open(broker)
        await until(lambda: owner.lost)
        assert "without data" in str(owner.lost[0])
        assert not connection.is_open

    with_broker(test, heartbeat_us=10_000)


def test_busy_loop_is_not_taken_for_a_silent_broker() -> None:
    async def test(broker: ScriptedBroker, owner: Owner) -> None:
        connection = await owner.open(broker)
        now = asyncio.get_running_loop().time()
        # The check was due long ago, and runs only now: this loop was busy, the broker was not.
        connection._heard_at = now - 1_000
        connection._check(due=now - 999)
        is_open_after_late_check = connection.is_open
        connection._check(due=now)
        assert (is_open_after_late_check, connection.is_open) == (True, False)

    with_broker(test)


def test_watching_many_tasks_is_one_frame_each() -> None:
    async def test(broker: ScriptedBroker, owner: Owner) -> None:
        connection = await owner.open(broker)
        ids = tuple(TaskId(bytes([n]) * 16) for n in range(10))
        assert await connection.request(WatchTasks(0, ids)) == {"count": 10, "refused": []}
        await connection.close()

    with_broker(test)


# Flushing.


def test_flush_writes_at_once_what_was_gathered() -> None:
    async def test() -> None:
        connection, end = await open_raw(Owner())
        connection.ask(ClaimTasks(0), print)
        connection.ask(WatchTasks(0, ()), print)
        with pytest.raises(BlockingIOError):
            end.recv(4096)
        assert connection.flush()
        assert kinds(end.recv(4096)) == ["ClaimTasks", "WatchTasks"]
        await connection.close()
        end.close()

    run(test())


def test_flush_tells_whether_the_system_has_taken_everything() -> None:
    async def test() -> None:
        connection, end = await open_raw(Owner())
        while connection.flush():  # The other end reads nothing.
            connection.ask(Query(0, "x" * 100_000), print)
        connection.ask(ClaimTasks(0), print)
        assert not connection.flush()
        reader, last = FrameReader(), ""
        while last != "ClaimTasks":
            data = await asyncio.get_running_loop().sock_recv(end, 1 << 20)
            for kind, body in reader.feed(data):
                last = type(broker_codec().decode(kind, body)).__name__
        assert connection.flush()
        await connection.close()
        end.close()

    run(test())
