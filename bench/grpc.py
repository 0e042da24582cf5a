"""The gRPC door beside the native one and REST: unary submits, streamed submits, a worker's stream.

One broker in a process of its own, with all doors; one client here, which speaks each protocol as
plainly as it can: stubs over one channel, frames over one socket, requests over kept connections.
The doors take turns within each round, so that all see the same machine. A figure is tasks a
second, from the first byte to the last acknowledgement; of the worker, from the submit to the last
end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import aiohttp
import grpc
import uvloop

from bench.peers import processes
from bench.peers.processes import Started
from jackalope.core.commands import Finish, JoinWorker, SubmitTasks
from jackalope.core.task import TaskSpec
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from jackalope.doors.grpc.stubs import jackalope_pb2_grpc as stubs
from jackalope.task_ids import new_task_id
from jackalope.wire.frames import FrameReader
from jackalope.wire.messages import Ack, Assign, Hello, Manage, Result, Welcome, peer_codec

PAYLOAD = b"jackalope!" * 10

#: How many submits are under way at once, and how many tasks a message of a stream has.
_UNARY_AT_ONCE = 32
_BATCH = 100
#: How many messages of a stream may wait for their acknowledgement.
_WINDOW = 50
_SLOTS = 1_000

Figures = dict[str, float]
codec = peer_codec()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what can be chosen."""
    parser.add_argument("--json", action="store_true", help="print one JSON object and no more")
    parser.add_argument("--rounds", type=int, default=5, help="how often to measure")
    parser.add_argument("--unary", type=int, default=3_000, help="submits one by one")
    parser.add_argument("--streamed", type=int, default=50_000, help="submits in a stream")
    parser.add_argument("--worked", type=int, default=20_000, help="tasks for a worker")


def run(args: argparse.Namespace) -> int:
    """Measure, and print."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as house:
        rounds = uvloop.run(_measure(house, args))
    medians = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    if args.json:
        print(json.dumps({"median": medians, "rounds": rounds}))
        return 0
    print(f"{'tasks a second':24}{'median':>10}{'least':>10}{'greatest':>10}{'of native':>11}")
    for name, median in medians.items():
        every = [each[name] for each in rounds]
        part = median / medians[f"{name.partition(' ')[0]} native"]
        print(f"{name:24}{median:>10.0f}{min(every):>10.0f}{max(every):>10.0f}{part:>10.2f}x")
    return 0


class House(NamedTuple):
    """A broker, and where its doors are."""

    native: int
    http: int
    grpc: int


@contextmanager
def serving(place: Path) -> Iterator[House]:
    """Start a broker in a folder; it is gone when this ends."""
    house = House(*(processes.free_port() for _ in range(3)))
    flags = ["--port", str(house.native), "--http-port", str(house.http)]
    flags += ["--grpc-port", str(house.grpc), "--log-level", "warn"]
    program = processes.python_program("jackalope")
    broker = Started(
        [program, "serve", "--data", str(place / "data"), *flags], place / "broker.log"
    )
    try:
        broker.wait_until(lambda: all(map(processes.is_listening, house)))
        yield house
    finally:
        broker.stop()


async def _measure(house: House, args: argparse.Namespace) -> list[Figures]:
    rounds = []
    async with (
        grpc.aio.insecure_channel(f"127.0.0.1:{house.grpc}") as channel,
        aiohttp.ClientSession(f"http://127.0.0.1:{house.http}") as web,
    ):
        doors: list[Any] = [Grpc(channel), Rest(web), Native(house.native)]
        for door in doors:
            await door.declare("bench-warm")
            await _unary(door, 200)
        for number in range(args.rounds):
            turn = doors[number % 3 :] + doors[: number % 3]
            found: Figures = {}
            for door in turn:
                found[f"unary {door.name}"] = await _rate(args.unary, _unary, door)
            for door in turn:
                queue = f"s{number}-{door.name}"
                await door.declare(queue)
                found[f"streamed {door.name}"] = await _rate(args.streamed, door.stream, queue)
            for door in turn:
                queue = f"w{number}-{door.name}"
                await door.declare(queue)
                found[f"worker {door.name}"] = await _rate(args.worked, door.work, queue)
            rounds.append(dict(sorted(found.items())))
        doors[-1].close()
    return rounds


async def _rate(count: int, work: Callable[..., Awaitable[None]], what: Any) -> float:
    begin = perf_counter()
    await work(what, count)
    return count / (perf_counter() - begin)


async def _unary(door: Any, count: int) -> None:
    left = iter(range(count))

    async def submit_on() -> None:
        for _ in left:
            await door.submit()

    await asyncio.gather(*(submit_on() for _ in range(_UNARY_AT_ONCE)))


class Grpc:
    """Stubs over one channel."""

    name = "grpc"

    def __init__(self, channel: Any) -> None:
        self._tasks: Any = stubs.TaskServiceStub(channel)
        self._queues: Any = stubs.QueueServiceStub(channel)
        self._workers: Any = stubs.WorkerServiceStub(channel)

    async def declare(self, queue: str) -> None:
        policy = pb.QueuePolicy(depth_limit=0)
        await self._queues.DeclareQueue(pb.DeclareQueueRequest(queue=queue, policy=policy))

    async def submit(self) -> None:
        task = pb.TaskSpec(queue="unary-grpc", payload=PAYLOAD)
        await self._tasks.SubmitTask(pb.SubmitTaskRequest(task=task))

    async def stream(self, queue: str, count: int) -> None:
        call, room, acked = self._tasks.StreamTasks(), asyncio.Semaphore(_WINDOW), 0

        async def write() -> None:
            for ref in range(1, count // _BATCH + 1):
                await room.acquire()
                tasks = [pb.TaskSpec(queue=queue, payload=PAYLOAD) for _ in range(_BATCH)]
                await call.write(pb.StreamTasksRequest(ref=ref, tasks=tasks))
            await call.done_writing()

        writing = asyncio.create_task(write())
        while (response := await call.read()) is not grpc.aio.EOF:
            acked += sum(ack.accepted for ack in response.acks)
            for _ in response.acks:
                room.release()
        await writing
        assert acked == count

    async def work(self, queue: str, count: int) -> None:
        call, done = self._workers.Work(), 0
        join = pb.Join(worker=f"w-{queue}", queues=[queue], slots=_SLOTS)
        await call.write(pb.WorkRequest(ref=1, join=join))
        submitting = asyncio.create_task(self.stream(queue, count))
        while done < count:
            response = await call.read()
            if response.assignments:
                finished = [
                    pb.Finish(task_id=given.task_id, fence=given.fence, result=given.payload)
                    for given in response.assignments
                ]
                results = pb.ReportResults(finished=finished)
                await call.write(pb.WorkRequest(ref=2, results=results))
            done += sum(each.accepted.count for each in response.answers if each.ref == 2)
        await submitting
        await call.write(pb.WorkRequest(ref=3, leave=pb.Leave()))
        call.cancel()


class Rest:
    """Requests over kept connections."""

    name = "rest"
    _payload = b64encode(PAYLOAD).decode()

    def __init__(self, web: aiohttp.ClientSession) -> None:
        self._web = web

    async def declare(self, queue: str) -> None:
        async with self._web.put(
            f"/api/v1/queues/{queue}", json={"policy": {"depth_limit": 0}}
        ) as answer:
            answer.raise_for_status()

    async def _post(self, path: str, body: Any) -> Any:
        async with self._web.post(f"/api/v1/{path}", json=body) as answer:
            answer.raise_for_status()
            return await answer.json()

    def _task(self, queue: str) -> dict[str, str]:
        return {"name": "noop", "queue": queue, "payload": self._payload}

    async def submit(self) -> None:
        await self._post("tasks", self._task("unary-rest"))

    async def stream(self, queue: str, count: int) -> None:
        left = iter(range(count // _BATCH))

        async def submit_on() -> None:
            for _ in left:
                await self._post("tasks/batch", {"tasks": [self._task(queue)] * _BATCH})

        await asyncio.gather(*(submit_on() for _ in range(4)))

    async def work(self, queue: str, count: int) -> None:
        # One request a result: a tenth shows how fast that is.
        submitting = asyncio.create_task(self.stream(queue, count))
        await submitting
        done, begin = 0, perf_counter()
        while done < count // 10:
            claim = {"queues": [queue], "count": 100, "wait": 1, "start": False}
            tasks = (await self._post("workers/rest/claim", claim))["tasks"]
            await asyncio.gather(*(self._finish(task) for task in tasks))
            done += len(tasks)
        await asyncio.sleep((perf_counter() - begin) * 9)

    async def _finish(self, task: dict[str, Any]) -> None:
        path = f"/api/v1/attempts/{task['task']}/finish?worker=rest&fence={task['fence']}"
        async with self._web.post(path, data=PAYLOAD) as answer:
            answer.raise_for_status()


class Native:
    """Frames over one socket."""

    name = "native"

    def __init__(self, port: int) -> None:
        self._port = port
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last_ref = 0
        self._unary: Wire | None = None
        self._reading: asyncio.Task[None] | None = None

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    async def declare(self, queue: str) -> None:
        wire = await Wire.connect(self._port)
        about = {"queue": queue, "changes": {"depth_limit": 0}}
        wire.send(Manage(1, "declare_queue", about))
        await wire.until(lambda message: isinstance(message, Ack))
        wire.close()

    async def submit(self) -> None:
        if self._unary is None:
            wire = await Wire.connect(self._port)
            if self._unary is None:  # Of those that connected at once, the first.
                self._unary = wire
                self._reading = asyncio.create_task(self._read(wire))
        self._last_ref += 1
        answer = self._waiting[self._last_ref] = asyncio.get_running_loop().create_future()
        self._unary.send(SubmitTasks(self._last_ref, [_spec("unary-native")]))
        await answer

    async def _read(self, wire: Wire) -> None:
        while True:
            for message in await wire.read():
                if isinstance(message, Ack):
                    self._waiting.pop(message.ref).set_result(None)

    async def stream(self, queue: str, count: int) -> None:
        wire, room = await Wire.connect(self._port), asyncio.Semaphore(_WINDOW)

        async def write() -> None:
            for ref in range(1, count // _BATCH + 1):
                await room.acquire()
                wire.send(SubmitTasks(ref, [_spec(queue) for _ in range(_BATCH)]))
                await wire.drain()

        writing, acked = asyncio.create_task(write()), 0
        while acked < count:
            for message in await wire.read():
                assert isinstance(message, Ack)
                acked += message.body["count"]
                room.release()
        await writing
        wire.close()

    async def work(self, queue: str, count: int) -> None:
        wire, done = await Wire.connect(self._port), 0
        wire.send(JoinWorker(1, f"w-{queue}", (queue,), slots=_SLOTS))
        submitting = asyncio.create_task(self.stream(queue, count))
        while done < count:
            for message in await wire.read():
                if isinstance(message, Assign):
                    finished = [Finish(g.task, g.fence, g.payload) for g in message.assignments]
                    wire.send(Result(2, finished))
                elif isinstance(message, Ack) and message.ref == 2:
                    done += message.body["count"]
            await wire.drain()
        await submitting
        wire.close()


class Wire:
    """One connection of the native protocol."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._frames = FrameReader()

    @classmethod
    async def connect(cls, port: int) -> Wire:
        wire = cls(*await asyncio.open_connection("127.0.0.1", port))
        wire.send(Hello(name="bench"))
        await wire.until(lambda message: isinstance(message, Welcome))
        return wire

    def send(self, message: Any) -> None:
        self._writer.write(codec.encode(message))

    async def drain(self) -> None:
        await self._writer.drain()

    async def read(self) -> list[Any]:
        data = await self._reader.read(256 * 1024)
        assert data, "the broker has closed the connection"
        return [codec.decode(kind, body) for kind, body in self._frames.feed(data)]

    async def until(self, is_it: Callable[[Any], bool]) -> None:
        while not any(map(is_it, await self.read())):
            pass

    def close(self) -> None:
        self._writer.close()


def _spec(queue: str) -> TaskSpec:
    return TaskSpec(new_task_id(), queue, payload=PAYLOAD)
