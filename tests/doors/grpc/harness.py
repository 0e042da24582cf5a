"""A broker with an open gRPC door, and real clients; and a worker's end of its stream."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status.rpc_status import aio as rpc_status

from jackalope.broker.access import Access
from jackalope.broker.config.listening import GrpcConfig
from jackalope.broker.service import Broker
from jackalope.doors.grpc.server import GrpcDoor
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from jackalope.doors.grpc.stubs import jackalope_pb2_grpc as stubs
from jackalope.storage import Level, Storage

#: What is still missing after this long does not come any more.
PATIENCE_S = 20.0


class Client:
    """The stubs of all services, over one channel.

    Attributes:
        metadata: what is sent with each call: pass it on.
    """

    def __init__(self, channel: Any, token: str = "", namespace: str = "") -> None:
        self.channel = channel
        self.tasks: Any = stubs.TaskServiceStub(channel)
        self.workers: Any = stubs.WorkerServiceStub(channel)
        self.queues: Any = stubs.QueueServiceStub(channel)
        self.schedules: Any = stubs.ScheduleServiceStub(channel)
        self.contracts: Any = stubs.ContractServiceStub(channel)
        self.flows: Any = stubs.FlowServiceStub(channel)
        self.limits: Any = stubs.LimitServiceStub(channel)
        self.batches: Any = stubs.BatchServiceStub(channel)
        self.blobs: Any = stubs.BlobServiceStub(channel)
        self.messages: Any = stubs.MessageServiceStub(channel)
        self.admin: Any = stubs.AdminServiceStub(channel)
        self.metadata: list[tuple[str, str]] = []
        if token:
            self.metadata.append(("authorization", f"Bearer {token}"))
        if namespace:
            self.metadata.append(("jackalope-namespace", namespace))

    async def submit(self, queue: str = "q", **fields: Any) -> str:
        """Submit a task that must be accepted, and return its id."""
        request = pb.SubmitTaskRequest(task=pb.TaskSpec(queue=queue, **fields))
        answer = await self.tasks.SubmitTask(request, metadata=self.metadata, timeout=PATIENCE_S)
        return str(answer.id)

    async def get(self, task_id: str, **more: Any) -> Any:
        request = pb.GetTaskRequest(id=task_id, **more)
        answer = await self.tasks.GetTask(request, metadata=self.metadata, timeout=PATIENCE_S)
        return answer.task

    async def declare(self, queue: str = "q", **policy: Any) -> Any:
        request = pb.DeclareQueueRequest(queue=queue, policy=pb.QueuePolicy(**policy))
        answer = await self.queues.DeclareQueue(request, metadata=self.metadata)
        return answer.policy

    def worker(self) -> "WorkerEnd":
        return WorkerEnd(self.workers.Work(metadata=self.metadata))


class WorkerEnd:
    """A worker's end of its stream. What comes and was not asked for is kept."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.session = ""
        self.is_draining = self.has_lost = False
        self._answers: list[Any] = []
        self._assignments: list[Any] = []
        self._signals: list[Any] = []
        self._last_ref = 0

    async def say(self, **what: Any) -> int:
        """Send a message with a ref, and return that."""
        self._last_ref += 1
        await self.call.write(pb.WorkRequest(ref=self._last_ref, **what))
        return self._last_ref

    async def ask(self, **what: Any) -> Any:
        """Send a message, and return its answer."""
        return await self.answer(await self.say(**what))

    async def answer(self, ref: int) -> Any:
        def found() -> list[Any]:
            return [each for each in self._answers if each.ref == ref]

        await self._until(lambda: bool(found()))
        answer = found()[0]
        self._answers.remove(answer)
        return answer

    async def join(self, worker: str = "w1", queues: Sequence[str] = ("q",), **more: Any) -> Any:
        answer = await self.ask(join=pb.Join(worker=worker, queues=queues, **more))
        assert answer.WhichOneof("what") == "joined", answer
        self.session = answer.joined.session
        return answer.joined

    async def take(self, count: int = 1) -> list[Any]:
        """Wait for so many assignments."""
        await self._until(lambda: len(self._assignments) >= count)
        taken, self._assignments = self._assignments[:count], self._assignments[count:]
        return taken

    def has_nothing(self) -> bool:
        """Return whether no assignment waits to be taken."""
        return not self._assignments

    async def signal(self) -> Any:
        await self._until(lambda: bool(self._signals))
        return self._signals.pop(0)

    async def start(self, *given: Any) -> Any:
        attempts = [pb.Attempt(task_id=each.task_id, fence=each.fence) for each in given]
        return await self.ask(start=pb.StartAttempts(attempts=attempts))

    async def finish(self, *given: Any, result: bytes = b"", **more: Any) -> Any:
        finished = [
            pb.Finish(task_id=each.task_id, fence=each.fence, result=result, **more)
            for each in given
        ]
        return await self.ask(results=pb.ReportResults(finished=finished))

    async def until_draining(self) -> None:
        await self._until(lambda: self.is_draining)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                response = await self.call.read()
                if response is grpc.aio.EOF:
                    raise await error_of(self.call)
                self._answers += response.answers
                self._assignments += response.assignments
                self._signals += response.signals
                self.is_draining = self.is_draining or response.drain
                self.has_lost = self.has_lost or response.lease_lost

    async def over(self) -> Any:
        """Wait until the broker ends the stream, and return its status code."""
        return await end_of(self.call)


async def end_of(call: Any) -> Any:
    """Wait until the broker ends a stream, and return its status code."""
    async with asyncio.timeout(PATIENCE_S):
        try:
            while await call.read() is not grpc.aio.EOF:
                pass
        except grpc.aio.AioRpcError:
            pass
        return await call.code()


async def rest_of(call: Any) -> list[Any]:
    """Return everything that is left of a stream."""
    rest: list[Any] = []
    async with asyncio.timeout(PATIENCE_S):
        while (each := await call.read()) is not grpc.aio.EOF:
            rest.append(each)
    return rest


async def error_of(call: Any) -> Exception:
    return AssertionError(f"the stream ended: {await call.code()}, {await call.details()}")


class Refusal:
    """An error, taken apart."""

    def __init__(self, error: Any, status: Any) -> None:
        self.code = error.code()
        self.message = error.details()
        self.trailers = dict(error.trailing_metadata() or ())
        self.reason = self.domain = ""
        self.retry_s: float | None = None
        self.fields: list[str] = []
        for each in status.details if status else ():
            self._read(each)

    def _read(self, detail: Any) -> None:
        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        bad = error_details_pb2.BadRequest()
        if detail.Unpack(info):
            self.reason, self.domain = info.reason, info.domain
        elif detail.Unpack(retry):
            self.retry_s = retry.retry_delay.ToTimedelta().total_seconds()
        elif detail.Unpack(bad):
            self.fields = [each.field for each in bad.field_violations]


async def refused(call: Any) -> Refusal:
    """Return why a call was refused: it must be."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asyncio.wait_for(_end_of(call), PATIENCE_S)
    return Refusal(caught.value, await rpc_status.from_call(call))


async def _end_of(call: Any) -> None:
    if hasattr(call, "__aiter__"):
        async for _ in call:
            pass
    else:
        await call


class House:
    """A broker and its gRPC door.

    Attributes:
        client: talks to the door over real sockets.
        faults: what the loop had to report because nobody else did; empty at the end.
    """

    client: Client

    def __init__(
        self, storage: Storage, settings: GrpcConfig, access: Access | None, credentials: Any
    ) -> None:
        self.broker = Broker(storage, access=access)
        self.door = GrpcDoor(self.broker, settings, credentials)
        self.faults: list[dict[str, Any]] = []
        self._channels: list[Any] = []

    def connect(
        self, token: str = "", namespace: str = "", options: Mapping[str, int] | None = None
    ) -> Client:
        """Make another client, with a connection of its own."""
        given = list((options or {}).items())
        given.append(("grpc.use_local_subchannel_pool", 1))
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{self.door.port}", options=given)
        self._channels.append(channel)
        return Client(channel, token, namespace)

    async def close_clients(self) -> None:
        for channel in self._channels:
            await channel.close()


@asynccontextmanager
async def open_grpc(
    folder: Path | None = None,
    *,
    access: Access | None = None,
    credentials: Any = None,
    token: str = "",
    **settings: Any,
) -> AsyncIterator[House]:
    """Start a broker with a gRPC door, and see at the end that both are still sound."""
    level = Level.FSYNC if folder else Level.MEMORY
    config = GrpcConfig(**({"port": 0} | settings))
    house = House(Storage.open(folder, level), config, access, credentials)
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: house.faults.append(context)
    )
    await house.broker.start()
    await house.door.start()
    try:
        house.client = house.connect(token)
        yield house
    finally:
        await house.close_clients()
        await house.door.stop()
        await house.broker.stop()
    assert house.faults == []
