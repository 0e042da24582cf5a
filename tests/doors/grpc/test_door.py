"""The gRPC door itself: who is let in, certificates, health, reflection, limits and its end."""

import asyncio
import errno
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from jackalope.broker.access import Access, hash_of, id_of, new_token
from jackalope.broker.config.listening import Compression, GrpcConfig
from jackalope.broker.config.schema import TlsConfig
from jackalope.core.api_key import ApiKey, Permission
from jackalope.core.refusals import Code
from jackalope.doors.grpc.errors import STATUS
from jackalope.doors.grpc.server import GrpcDoor, server_credentials
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from tests.certificates import certificates, issued_by
from tests.doors.elsewhere import Elsewhere
from tests.doors.grpc.harness import PATIENCE_S, Client, end_of, open_grpc, refused
from tests.doors.harness import run

SERVING = health_pb2.HealthCheckResponse.SERVING


def key(name: str, *permissions: Permission, **more: Any) -> tuple[str, ApiKey]:
    token = new_token()
    return token, ApiKey(id_of(token), hash_of(token), name, permissions, **more)


def test_every_refusal_has_a_status() -> None:
    assert STATUS.keys() == set(Code)
    assert grpc.StatusCode.UNKNOWN not in STATUS.values()


# Who is let in.


def test_a_call_needs_the_token_of_a_key() -> None:
    token, root = key("root", Permission.ADMIN)
    narrow_token, narrow = key("narrow", Permission.ADMIN, namespace="mine")

    async def check() -> None:
        async with open_grpc(access=Access([root, narrow])) as house:
            ask = house.client.tasks.ListTasks
            for metadata in (
                [],
                [("authorization", "Bearer nonsense")],
                [("authorization", f"Basic {token}")],
                [("authorization", "")],
            ):
                refusal = await refused(ask(pb.ListTasksRequest(), metadata=metadata))
                assert refusal.code is grpc.StatusCode.UNAUTHENTICATED
                assert refusal.reason == "UNAUTHORISED"
            await ask(pb.ListTasksRequest(), metadata=[("authorization", f"bearer {token}")])
            client = house.connect(token)
            task = await client.get(await client.submit())
            assert task.submitted_by == "root/grpc"
            other = house.connect(narrow_token)
            refusal = await refused(ask(pb.ListTasksRequest(), metadata=other.metadata))
            assert refusal.code is grpc.StatusCode.PERMISSION_DENIED
            mine = house.connect(narrow_token, "mine")
            await mine.submit()

    run(check())


def test_a_worker_needs_the_right_to_work_in_its_queues() -> None:
    token, worker = key("worker", Permission.WORK, queues=("q",))
    reader_token, reader = key("reader", Permission.READ_TASKS)

    async def check() -> None:
        async with open_grpc(access=Access([worker, reader])) as house:
            ours = house.connect(token).worker()
            await ours.join(queues=["q"])
            for client, queue in (
                (house.connect(token), "other"),
                (house.connect(reader_token), "q"),
            ):
                theirs = client.worker()
                await theirs.say(join=pb.Join(worker="w2", queues=[queue]))
                assert await theirs.over() is grpc.StatusCode.PERMISSION_DENIED

    run(check())


# Certificates.


def channel_credentials(ca: str, pair: Any = None) -> Any:
    mine = (
        (None, None)
        if pair is None
        else (Path(pair.key).read_bytes(), Path(pair.cert).read_bytes())
    )
    return grpc.ssl_channel_credentials(Path(ca).read_bytes(), *mine)


def test_calls_are_encrypted() -> None:
    ours = certificates()

    async def check() -> None:
        async with open_grpc(credentials=server_credentials(ours.config)) as house:
            where = f"localhost:{house.door.port}"
            async with grpc.aio.secure_channel(where, channel_credentials(ours.ca)) as channel:
                assert await Client(channel).submit()
            async with grpc.aio.insecure_channel(where) as channel:
                refusal = await refused(
                    Client(channel).tasks.ListTasks(pb.ListTasksRequest(), timeout=PATIENCE_S)
                )
                assert refusal.code is grpc.StatusCode.UNAVAILABLE

    run(check())


def test_a_client_certificate_stands_for_the_key_of_its_name() -> None:
    ours = certificates()
    known = issued_by(ours, common_name="robot")
    stranger = issued_by(ours, common_name="stranger")
    token, robot = key("robot", Permission.ADMIN)

    async def check() -> None:
        credentials = server_credentials(ours.config, ours.ca)
        access = Access([robot])
        async with open_grpc(
            credentials=credentials, access=access, client_ca=ours.ca, token=token
        ) as house:
            where = f"localhost:{house.door.port}"

            async def ask(pair: Any, **more: Any) -> Any:
                async with grpc.aio.secure_channel(
                    where, channel_credentials(ours.ca, pair)
                ) as channel:
                    client = Client(channel, **more)
                    return (await client.get(await client.submit())).submitted_by

            assert await ask(known) == "robot/grpc"
            assert await ask(stranger, token=token) == "robot/grpc"
            for pair, code in (
                (stranger, grpc.StatusCode.UNAUTHENTICATED),
                (None, grpc.StatusCode.UNAVAILABLE),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await ask(pair)
                assert caught.value.code() is code

    run(check())


def test_certificates_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"grpc\.client_ca needs TLS"):
        server_credentials(TlsConfig(), "ca.pem")
    with pytest.raises(ValueError, match=r"grpc\.client_ca .*missing\.pem"):
        server_credentials(certificates().config, str(tmp_path / "missing.pem"))


# Health and reflection.


def test_health_is_reported_without_a_key() -> None:
    _, root = key("root", Permission.ADMIN)

    async def check() -> None:
        async with open_grpc(access=Access([root])) as house:
            health = health_pb2_grpc.HealthStub(house.client.channel)
            for service in ("", "jackalope.v1.TaskService", "jackalope.v1.WorkerService"):
                request = health_pb2.HealthCheckRequest(service=service)
                assert (await health.Check(request)).status == SERVING
            unknown = health_pb2.HealthCheckRequest(service="none")
            assert (await refused(health.Check(unknown))).code is grpc.StatusCode.NOT_FOUND

    run(check())


@pytest.mark.parametrize("is_on", [True, False])
def test_the_services_describe_themselves_if_they_may(is_on: bool) -> None:
    async def check() -> None:
        async with open_grpc(reflection=is_on) as house:
            stub = reflection_pb2_grpc.ServerReflectionStub(house.client.channel)
            request = reflection_pb2.ServerReflectionRequest(list_services="")
            call = stub.ServerReflectionInfo(iter([request]))
            if not is_on:
                assert (await refused(call)).code is grpc.StatusCode.UNIMPLEMENTED
                return
            answers = [each async for each in call]
            names = {each.name for each in answers[0].list_services_response.service}
            assert {f"jackalope.v1.{name}" for name in pb.DESCRIPTOR.services_by_name} < names

    run(check())


# Settings.


def test_answers_are_compressed_if_asked_for() -> None:
    async def check() -> None:
        async with open_grpc(compression=Compression.GZIP) as house:
            task_id = await house.client.submit(payload=bytes(50_000))
            call = house.client.tasks.GetTask(
                pb.GetTaskRequest(id=task_id, include_payload=True),
                compression=grpc.Compression.Gzip,
            )
            assert (await call).task.payload == bytes(50_000)

    run(check())


def test_two_doors_do_not_share_a_port() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            other = GrpcDoor(house.broker, GrpcConfig(port=house.door.port))
            with pytest.raises(OSError) as caught:  # noqa: PT011  the number says which
                await other.start()
            assert caught.value.errno == errno.EADDRINUSE

    run(check())


def test_a_closing_door_ends_what_waits() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            client = house.client
            task_id = await client.submit("idle")
            worker = client.worker()
            await worker.join()
            watching = client.tasks.WatchTasks(pb.WatchTasksRequest(ids=[task_id]))
            events = client.tasks.WatchEvents(pb.WatchEventsRequest())
            await events.read()
            waiting = client.tasks.WaitTask(pb.WaitTaskRequest(id=task_id))
            stream = client.tasks.StreamTasks()
            await stream.write(pb.StreamTasksRequest(ref=1, tasks=[pb.TaskSpec(queue="q")]))
            await stream.read()
            async with asyncio.timeout(PATIENCE_S):
                while not house.door.client_session._waiting:  # noqa: ASYNC110  it tells nobody
                    await asyncio.sleep(0.01)
                await house.door.stop()
                streams = (worker.call, watching, events, stream)
                codes = [await waiting.code(), *[await end_of(each) for each in streams]]
            assert codes == [grpc.StatusCode.UNAVAILABLE] * 5
            assert (house.door.outboxes, house.door.feeds, house.door.workers) == (set(), set(), {})

    run(check())


# A node of a cluster.


def test_a_node_that_does_not_lead_names_the_leader() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            leader = Elsewhere("10.0.0.7:7422")
            house.broker.leader = leader
            refusal = await refused(house.client.tasks.ListTasks(pb.ListTasksRequest()))
            assert refusal.code is grpc.StatusCode.UNAVAILABLE
            assert refusal.trailers["jackalope-leader"] == "10.0.0.7:7422"
            assert refusal.retry_s == 1
            leader.address = ""
            refusal = await refused(house.client.tasks.ListTasks(pb.ListTasksRequest()))
            assert refusal.code is grpc.StatusCode.UNAVAILABLE
            assert "jackalope-leader" not in refusal.trailers
            house.broker.leader = None

    run(check())


def test_the_health_of_a_node_follows_the_leader() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            leader = Elsewhere(None)
            house.broker.leader = leader
            leader.changed.append(house.door._leader_changed)
            events = house.client.tasks.WatchEvents(pb.WatchEventsRequest())
            await events.read()
            health = health_pb2_grpc.HealthStub(house.client.channel)
            watch = health.Watch(health_pb2.HealthCheckRequest())
            statuses = [(await watch.read()).status]
            for address in ("10.0.0.7:7422", None):
                leader.move(address)
                statuses.append((await asyncio.wait_for(watch.read(), PATIENCE_S)).status)
            assert statuses == [SERVING, health_pb2.HealthCheckResponse.NOT_SERVING, SERVING]
            assert await end_of(events) is grpc.StatusCode.UNAVAILABLE
            watch.cancel()

    run(check())


def test_a_key_that_calls_too_often_is_refused_and_its_worker_is_not() -> None:
    token, root = key("root", Permission.ADMIN)

    async def check() -> None:
        async with open_grpc(access=Access([root]), rate_per_s=1, rate_burst=3) as house:
            client = house.connect(token)
            worker = client.worker()
            await worker.join()
            stream = client.tasks.StreamTasks(metadata=client.metadata)
            refs: list[tuple[int, int, int]] = []
            for ref in range(1, 4):
                task = pb.TaskSpec(queue="q")
                await stream.write(pb.StreamTasksRequest(ref=ref, tasks=[task]))
                while len(refs) < ref:
                    refs += [
                        (ack.ref, ack.accepted, ack.refusal.code)
                        for ack in (await stream.read()).acks
                    ]
            assert refs == [(1, 1, 0), (2, 1, 0), (3, 0, pb.REFUSAL_CODE_RATE_LIMITED)]
            call = client.tasks.ListTasks(pb.ListTasksRequest(), metadata=client.metadata)
            told = await refused(call)
            assert (told.code, told.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "RATE_LIMITED")
            assert told.retry_s is not None
            assert 0 < told.retry_s <= 1
            for _ in range(10):
                answer = await worker.ask(heartbeat=pb.Heartbeat())
                assert answer.WhichOneof("what") == "accepted"

    run(check())
