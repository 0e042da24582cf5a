"""Bad input at the gRPC door: clear statuses, bounded memory, nothing lost."""

import asyncio
import gc
import socket
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import hypothesis.strategies as st
import pytest
import uvloop
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings

from jackalope.doors.grpc.server import GrpcDoor
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from tests.doors.grpc.harness import PATIENCE_S, end_of, open_grpc, refused
from tests.doors.harness import run

#: What a caller may have done wrong, or what may be in the way; never a bug of ours.
DECENT = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
}


#: A client whose library takes little that the program does not read.
DEAF = {"grpc.http2.bdp_probe": 0, "grpc.http2.lookahead_bytes": 64 * 1024}


async def settled(is_so: Callable[[], object]) -> None:
    """Wait for something that tells nobody when it happens."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


# Any message.


def values_of(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    """Return values of a field: those that may be meant, and all others that fit."""
    if field.message_type is not None:
        if depth <= 0:
            return st.just(GetMessageClass(field.message_type)())
        return messages_of(field.message_type, depth - 1)
    if field.enum_type is not None:
        return st.sampled_from([0, 1, 2, 3, 99])
    kinds: dict[int, st.SearchStrategy[Any]] = {
        FieldDescriptor.TYPE_BOOL: st.booleans(),
        FieldDescriptor.TYPE_BYTES: st.binary(max_size=20),
        FieldDescriptor.TYPE_DOUBLE: st.floats(),
        FieldDescriptor.TYPE_UINT32: st.sampled_from([0, 1, 2, 255, 256, 10_001, 2**32 - 1]),
        FieldDescriptor.TYPE_INT32: st.sampled_from([0, 1, -1, 999_999_999, 2**31 - 1]),
        FieldDescriptor.TYPE_INT64: st.sampled_from([0, 1, -1, 2**40, 2**63 - 1, -(2**63)]),
        FieldDescriptor.TYPE_UINT64: st.sampled_from([0, 1, 2**40, 2**61, 2**62, 2**64 - 1]),
        FieldDescriptor.TYPE_STRING: st.one_of(
            st.sampled_from(["", "q", "0" * 32, "x" * 300, "\x00", "*", "-created"]),
            st.text(max_size=8),
        ),
    }
    return kinds[field.type]


def messages_of(shape: Descriptor, depth: int = 3) -> st.SearchStrategy[Any]:
    """Return messages of a shape, with any fields."""

    @st.composite
    def build(draw: st.DrawFn) -> Any:
        message = GetMessageClass(shape)()
        for field in shape.fields:
            if not draw(st.booleans()):
                continue
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                continue
            if field.is_repeated:
                some = draw(st.lists(values_of(field, depth), max_size=3))
                getattr(message, field.name).extend(some)
            elif field.message_type is not None:
                getattr(message, field.name).CopyFrom(draw(values_of(field, depth)))
            else:
                setattr(message, field.name, draw(values_of(field, depth)))
        return message

    return build()


def calls() -> Iterator[Any]:
    for service in pb.DESCRIPTOR.services_by_name.values():
        for method in service.methods:
            if method.name != "CreateApiKey":  # From then on all others would need one.
                yield pytest.param(service.full_name, method, id=method.name)


@pytest.mark.parametrize(("service", "method"), list(calls()))
def test_no_message_is_a_bug(service: str, method: Any) -> None:
    path = f"/{service}/{method.name}"

    @settings(
        max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(st.lists(messages_of(method.input_type), min_size=1, max_size=3))
    def check(messages: list[Any]) -> None:
        code, details = runner.run(send(messages))
        assert code in DECENT, (code, details)

    async def send(messages: list[Any]) -> tuple[Any, str]:
        channel = house.client.channel
        if method.client_streaming:
            join = pb.Join(worker="w", queues=["other"])
            first = [pb.WorkRequest(ref=1, join=join)] * (method.name == "Work")
            requests = iter([each.SerializeToString() for each in [*first, *messages]])
            kind = channel.stream_stream if method.server_streaming else channel.stream_unary
            call = kind(path)(requests, timeout=0.3)
        else:
            kind = channel.unary_stream if method.server_streaming else channel.unary_unary
            call = kind(path)(messages[0].SerializeToString(), timeout=0.1)
        return await call.code(), await call.details()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        opened = open_grpc()
        house = runner.run(opened.__aenter__())
        try:
            task_id = runner.run(house.client.submit("kept"))
            check()
            if method.name != "ActOnTasks":
                assert runner.run(house.client.get(task_id)).state == pb.TASK_STATE_READY
        finally:
            runner.run(opened.__aexit__(None, None, None))


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\xff\xff\xff\xff\x7f"])
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    async def check() -> None:
        async with open_grpc() as house:
            for method in ("TaskService/SubmitTask", "TaskService/WatchEvents"):
                call = house.client.channel.unary_unary(f"/jackalope.v1.{method}")(data)
                if method.endswith("Events"):
                    call = house.client.channel.unary_stream(f"/jackalope.v1.{method}")(data)
                assert (await refused(call)).code is grpc.StatusCode.INVALID_ARGUMENT
            for method in ("TaskService/StreamTasks", "WorkerService/Work"):
                stream = house.client.channel.stream_stream(f"/jackalope.v1.{method}")()
                await stream.write(data)
                assert await end_of(stream) is grpc.StatusCode.INVALID_ARGUMENT
            no_text = house.client.channel.unary_stream("/jackalope.v1.TaskService/WatchEvents")
            assert (await refused(no_text(b"\x0a\x02\xc3\x28"))).reason == "INVALID"
            missing = house.client.channel.unary_unary("/jackalope.v1.TaskService/Nothing")(b"")
            assert (await refused(missing)).code is grpc.StatusCode.UNIMPLEMENTED

    run(check())


def test_bytes_that_are_no_http_are_dropped() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            for data in (b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 40, b"PRI * HTTP/2.0\r\n"):
                with socket.create_connection(("127.0.0.1", house.door.port)) as peer:
                    peer.sendall(data)
            assert await house.client.submit()

    run(check())


# Too much.


def test_a_message_that_is_too_large_is_refused_and_does_no_harm() -> None:
    async def check() -> None:
        async with open_grpc(message_bytes_max=1024 * 1024) as house:
            spec = pb.TaskSpec(queue="q", payload=bytes(100 * 1024 * 1024))
            call = house.client.tasks.SubmitTask(pb.SubmitTaskRequest(task=spec))
            assert (await refused(call)).code is grpc.StatusCode.RESOURCE_EXHAUSTED
            packed = house.client.tasks.SubmitTask(
                pb.SubmitTaskRequest(task=spec), compression=grpc.Compression.Gzip
            )
            assert (await refused(packed)).code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert await house.client.submit(payload=bytes(900_000))

    run(check())


def test_more_calls_than_the_limit_are_refused() -> None:
    async def check() -> None:
        async with open_grpc(max_calls=20) as house:
            watches = [house.client.tasks.WatchEvents(pb.WatchEventsRequest()) for _ in range(20)]
            for watch in watches:
                await watch.read()
            other = house.connect()
            call = other.tasks.ListTasks(pb.ListTasksRequest())
            assert (await refused(call)).code is grpc.StatusCode.RESOURCE_EXHAUSTED
            watches[0].cancel()
            async with asyncio.timeout(PATIENCE_S):
                while len(house.door.feeds) == 20:  # noqa: ASYNC110  it tells nobody
                    await asyncio.sleep(0.01)
                await other.submit()

    run(check())


def test_idle_streams_cost_little() -> None:
    count = 1_000

    async def check() -> None:
        async with open_grpc() as house:
            clients = [house.connect() for _ in range(5)]
            watches = [
                clients[number % 5].tasks.WatchEvents(pb.WatchEventsRequest(queue="other"))
                for number in range(count)
            ]
            for watch in watches:
                await watch.read()
            assert len(house.door.feeds) == count
            assert await house.client.submit("q")
            for watch in watches:
                watch.cancel()
            async with asyncio.timeout(PATIENCE_S):
                while house.door.feeds:  # noqa: ASYNC110  it tells nobody
                    await asyncio.sleep(0.01)
            gc.collect()

    run(check())


# Clients that do not read.


def test_a_worker_that_does_not_read_is_cut_off_and_its_tasks_go_on() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            house.door.unsent_bytes_max = 2 * 1024 * 1024
            worker = house.connect(options=DEAF).worker()
            join = pb.Join(worker="deaf", queues=["q"], slots=1_000, grace={"seconds": 1})
            await worker.say(join=join)
            payload = bytes(60_000)
            ids = [await house.client.submit(payload=payload) for _ in range(120)]
            await settled(lambda: not house.door.workers)
            assert await worker.over() is grpc.StatusCode.UNAVAILABLE
            house.door.unsent_bytes_max = 64 * 1024 * 1024
            other = house.client.worker()
            await other.join("other", slots=200)
            given = await other.take(len(ids))
            assert {each.task_id for each in given} == set(ids)
            assert house.broker.backlog.unread_bytes == 0

    run(check())


def test_a_message_that_is_not_taken_in_time_ends_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(GrpcDoor, "stuck_s", 0.2)

    async def check() -> None:
        async with open_grpc() as house:
            ids = [await house.client.submit(payload=bytes(60_000)) for _ in range(60)]
            worker = house.connect(options=DEAF).worker()
            await worker.say(join=pb.Join(worker="deaf", queues=["q"], slots=1_000))
            await settled(lambda: house.door.workers)
            await settled(lambda: not house.door.workers)
            assert len(ids) == 60
            assert await worker.over() is grpc.StatusCode.UNAVAILABLE

    run(check())


def test_a_reader_that_is_too_slow_for_events_is_told_how_many_it_missed() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            watch = house.client.tasks.WatchEvents(pb.WatchEventsRequest(queue="q"))
            await watch.read()
            total = 0
            stream = house.client.tasks.StreamTasks()
            tasks = [pb.TaskSpec(queue="q", name="n" * 200)] * 1_000
            for ref in range(1, 21):
                await stream.write(pb.StreamTasksRequest(ref=ref, tasks=tasks))
            await stream.done_writing()
            assert await end_of(stream) is grpc.StatusCode.OK
            async with asyncio.timeout(PATIENCE_S):
                while total < 20_000:
                    response = await watch.read()
                    total += len(response.events) + response.missed
            assert total == 20_000

    run(check())


def test_a_client_that_goes_leaves_nothing_behind() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            sessions = house.broker.session_count()
            client = house.connect()
            task_id = await client.submit()
            calls = [
                client.tasks.WatchTasks(pb.WatchTasksRequest(ids=[task_id])),
                client.tasks.WatchEvents(pb.WatchEventsRequest()),
                client.tasks.StreamTasks(),
                client.messages.Listen(),
                client.tasks.WaitTask(pb.WaitTaskRequest(id=task_id)),
            ]
            worker = client.worker()
            await worker.join(queues=["other"])
            await settled(lambda: len(house.door.outboxes) == 4)
            assert len(calls) == 5
            await client.channel.close()
            await settled(lambda: not (house.door.outboxes or house.door.feeds))
            await settled(lambda: house.broker.session_count() <= sessions + 1)

    run(check())
