"""Queues, limits, batches, blobs, messages and keys over gRPC."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.struct_pb2 import Struct

from jackalope.core.durations import NEVER
from jackalope.core.limits import INLINE_BYTES_MAX
from jackalope.core.policy import DEFAULT_POLICY, PRESETS, Policy, change_policy
from jackalope.core.shapes.callback import Callback, CallbackOn, End, Trigger, TriggerPayload
from jackalope.doors.grpc import blobs
from jackalope.doors.grpc.queues import changes_of, policy_shown
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from jackalope.doors.http.rest.queues import PolicyGiven
from tests.doors.grpc.harness import PATIENCE_S, Client, open_grpc, refused, rest_of
from tests.doors.harness import run

LARGE = bytes(range(256)) * 3_000

FOREVER = timedelta(seconds=315_576_000_000)


WITH_ENDS = Policy(
    callbacks=(
        Callback("https://hooks.example/"),
        Callback("https://hooks.example/2", tuple(CallbackOn)),
    ),
    triggers=(
        Trigger("b"),
        Trigger("c", tuple(End), "n", "k", 0, TriggerPayload.PAYLOAD),
        Trigger("d", (End.DEAD,), priority=7, payload=TriggerPayload.EVENT),
    ),
)

WITH_NEEDS = Policy(needs={"gpus": 1, "cpus": 0.5, "memory": "8GiB", "zone": ("a", "b")})


@pytest.mark.parametrize("policy", [DEFAULT_POLICY, *PRESETS.values(), WITH_ENDS, WITH_NEEDS])
def test_a_policy_comes_back_as_it_was(policy: Policy) -> None:
    shown = policy_shown(policy)
    assert len(shown.ListFields()) == len(PolicyGiven.__struct_fields__)
    changes: dict[str, Any] = changes_of(pb.QueuePolicy.FromString(shown.SerializeToString()))
    assert change_policy(DEFAULT_POLICY, changes) == policy
    assert (policy.retention_us == NEVER) == (shown.retention.ToTimedelta() == FOREVER)


def test_queues_are_declared_paused_and_deleted() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            queues = house.client.queues
            policy = await house.client.declare("q", retries=0, retry_base=timedelta(seconds=9))
            assert (policy.retries, policy.retry_base.seconds) == (0, 9)
            assert policy.depth_limit == DEFAULT_POLICY.depth_limit
            policy = await house.client.declare("q", depth_limit=7)
            assert (policy.retries, policy.depth_limit) == (0, 7)
            await house.client.submit("q")
            await queues.PauseQueue(pb.PauseQueueRequest(queue="q"))
            queue = (await queues.GetQueue(pb.GetQueueRequest(queue="q"))).queue
            assert (queue.paused_by, queue.depth) == ("grpc", 1)
            assert [(each.state, each.count) for each in queue.counts] == [(pb.TASK_STATE_READY, 1)]
            await queues.ResumeQueue(pb.ResumeQueueRequest(queue="q"))
            full = await refused(queues.DeleteQueue(pb.DeleteQueueRequest(queue="q")))
            assert (full.code, full.reason) == (
                grpc.StatusCode.FAILED_PRECONDITION,
                "QUEUE_NOT_EMPTY",
            )
            await house.client.declare("empty")
            await queues.DeleteQueue(pb.DeleteQueueRequest(queue="empty"))
            listed = await queues.ListQueues(pb.ListQueuesRequest())
            assert [each.queue for each in listed.queues] == ["q"]
            missing = await refused(queues.GetQueue(pb.GetQueueRequest(queue="empty")))
            assert missing.reason == "UNKNOWN_QUEUE"
            wrong = pb.DeclareQueueRequest(queue="q", preset="none of ours")
            assert (await refused(queues.DeclareQueue(wrong))).reason == "INVALID"

    run(check())


def test_a_limit_holds_tasks_back() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            limits = house.client.limits
            await limits.SetLimit(pb.SetLimitRequest(tag="gpu", limit=1))
            for _ in range(2):
                await house.client.submit(tags=["gpu"])
            worker = house.client.worker()
            await worker.join(slots=2)
            (given,) = await worker.take()
            await worker.ask(heartbeat=pb.Heartbeat())
            assert worker.has_nothing()
            listed = (await limits.ListLimits(pb.ListLimitsRequest())).limits
            assert [(e.tag, e.limit, e.in_flight, e.waiting) for e in listed] == [("gpu", 1, 1, 1)]
            await limits.DeleteLimit(pb.DeleteLimitRequest(tag="gpu"))
            assert len(await worker.take()) == 1
            assert not (await limits.ListLimits(pb.ListLimitsRequest())).limits
            assert given.fence

    run(check())


def test_contracts_are_declared_held_and_deleted() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            client = house.client
            await client.queues.DeclareQueue(pb.DeclareQueueRequest(queue="images"))
            parameter: Any = {"name": "path", "schema": {"type": "string"}, "required": True}
            contracts = Struct()
            contracts.update({"resize": {"content": "json", "parameters": [parameter]}})
            await client.contracts.DeclareContracts(
                pb.DeclareContractsRequest(queues=["images"], contracts=contracts)
            )
            [shown] = (await client.contracts.ListContracts(pb.ListContractsRequest())).contracts
            assert (shown.queue, shown.signature) == ("images", "resize(path: string)")
            assert shown.arguments["required"][0] == "path"
            wrong = pb.TaskSpec(queue="images", name="resize", payload=b"[[7], {}]")
            with pytest.raises(grpc.aio.AioRpcError) as misfit:
                await client.tasks.SubmitTask(pb.SubmitTaskRequest(task=wrong))
            assert misfit.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "argument 'path': expected string, got 7" in str(misfit.value.details())
            gone = pb.DeleteContractRequest(queue="images", name="resize")
            await client.contracts.DeleteContract(gone)
            await client.tasks.SubmitTask(pb.SubmitTaskRequest(task=wrong))

    run(check())


def test_batches_are_listed_in_pages() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            await house.client.declare(batch_size=2)
            for _ in range(5):
                await house.client.submit()
            batches = house.client.batches
            request = pb.ListBatchesRequest(queue="q", page_size=2)
            page = await batches.ListBatches(request)
            assert [(each.number, each.is_full) for each in page.batches] == [(3, False), (2, True)]
            request.page_token = page.next_page_token
            page = await batches.ListBatches(request)
            assert [each.number for each in page.batches] == [1]
            assert page.next_page_token == ""
            one = (await batches.GetBatch(pb.GetBatchRequest(queue="q", number=2))).batch
            assert [(each.state, each.count) for each in one.counts] == [(pb.TASK_STATE_READY, 2)]
            missing = await refused(batches.GetBatch(pb.GetBatchRequest(queue="q", number=9)))
            assert missing.code is grpc.StatusCode.NOT_FOUND
            listed = pb.ListTasksRequest(filter=pb.TaskFilter(queue="q", batch=2))
            assert len((await house.client.tasks.ListTasks(listed)).tasks) == 2

    run(check())


# Blobs.


async def upload(client: Client, body: bytes, chunk: int = 100_000) -> str:
    async def chunks() -> AsyncIterator[pb.UploadBlobRequest]:
        for begin in range(0, len(body), chunk):
            yield pb.UploadBlobRequest(data=body[begin : begin + chunk])

    answer = await client.blobs.UploadBlob(chunks(), metadata=client.metadata)
    assert answer.size == len(body)
    return str(answer.upload)


async def download(client: Client, **request: Any) -> bytes:
    call = client.blobs.DownloadBlob(pb.DownloadBlobRequest(**request), metadata=client.metadata)
    return b"".join([each.data for each in await rest_of(call)])


@pytest.mark.parametrize("size", [0, 1, INLINE_BYTES_MAX, INLINE_BYTES_MAX + 1, len(LARGE)])
def test_a_body_of_any_size_goes_in_and_out(tmp_path: Path, size: int) -> None:
    async def check() -> None:
        async with open_grpc(tmp_path) as house:
            client, body = house.client, LARGE[:size]
            task_id = await client.submit(payload_upload=await upload(client, body))
            payload = {"task_id": task_id, "kind": pb.BODY_KIND_PAYLOAD}
            assert await download(client, **payload) == body
            assert (
                await download(client, **payload, offset=size // 2, length=7)
                == (body[size // 2 :][:7])
            )
            worker = client.worker()
            await worker.join()
            (given,) = await worker.take()
            is_large = size > INLINE_BYTES_MAX
            assert (given.payload_size, given.is_large) == (size, is_large)
            assert given.payload == (b"" if is_large else body)
            lease = {"fence": given.fence, "session": worker.session}
            assert await download(client, task_id=task_id, **lease) == body
            lease["fence"] += 1
            stale = pb.DownloadBlobRequest(task_id=task_id, **lease)
            assert (await refused(client.blobs.DownloadBlob(stale))).reason == "STALE_FENCE"
            await worker.finish(given, result_upload=await upload(client, body[::-1]))
            assert await download(client, task_id=task_id) == body[::-1]
            shown = await client.get(task_id, include_result=True, include_payload=True)
            assert (shown.result_size, shown.HasField("result")) == (size, not is_large)

    run(check())


def test_large_bodies_may_also_stand_in_messages(tmp_path: Path) -> None:
    async def check() -> None:
        async with open_grpc(tmp_path) as house:
            client = house.client
            task_id = await client.submit(payload=LARGE)
            worker = client.worker()
            await worker.join()
            (given,) = await worker.take()
            assert given.is_large
            await worker.finish(given, result=LARGE[::-1])
            assert await download(client, task_id=task_id, kind=pb.BODY_KIND_PAYLOAD) == LARGE
            assert await download(client, task_id=task_id) == LARGE[::-1]
            ended = await client.tasks.WaitTask(pb.WaitTaskRequest(id=task_id))
            assert (ended.task.result_size, ended.task.HasField("result")) == (len(LARGE), False)

    run(check())


def test_an_upload_is_used_once_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check() -> None:
        async with open_grpc(tmp_path, upload_bytes_max=len(LARGE)) as house:
            client = house.client
            name = await upload(client, LARGE)
            await client.submit(payload_upload=name)
            again = pb.SubmitTaskRequest(task=pb.TaskSpec(queue="q", payload_upload=name))
            refusal = await refused(client.tasks.SubmitTask(again))
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "UNKNOWN_BLOB")
            monkeypatch.setattr(blobs, "UPLOAD_LIFE_S", 0.01)
            await upload(client, b"short-lived")
            async with asyncio.timeout(PATIENCE_S):
                while house.door.uploads._waiting:  # noqa: ASYNC110  it tells nobody
                    await asyncio.sleep(0.01)
            monkeypatch.setattr(blobs, "UPLOADS_WAITING_MAX", 0)
            call = client.blobs.UploadBlob(iter([pb.UploadBlobRequest(data=b"x")]))
            refusal = await refused(call)
            assert (refusal.reason, refusal.retry_s) == ("OVERLOADED", 1)
            monkeypatch.undo()
            call = client.blobs.UploadBlob(
                iter([pb.UploadBlobRequest(data=LARGE), pb.UploadBlobRequest(data=b"x")])
            )
            assert (await refused(call)).reason == "TOO_LARGE"

    run(check())


# Messages.


def test_a_call_is_taken_and_answered() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            client = house.client
            listener = client.messages.Listen()
            subscribe = pb.Subscribe(recipients=["proc-1"])
            await listener.write(pb.ListenRequest(ref=1, subscribe=subscribe))
            assert (await listener.read()).answer.ref == 1
            call = client.messages.Call(pb.CallRequest(recipient="proc-1", body=b"pause"))
            called = (await listener.read()).called
            assert (called.recipient, called.body) == ("proc-1", b"pause")
            for stage, body in ((pb.CALL_STAGE_PENDING, b"1"), (pb.CALL_STAGE_RESULT, b"2")):
                reply = pb.CallReply(call=called.call, stage=stage, body=body)
                await listener.write(pb.ListenRequest(reply=reply))
            answers = [(each.stage, each.body) for each in await rest_of(call)]
            assert answers == [(pb.CALL_STAGE_PENDING, b"1"), (pb.CALL_STAGE_RESULT, b"2")]
            lost = client.messages.Call(pb.CallRequest(recipient="proc-1"))
            assert (await listener.read()).called.recipient == "proc-1"
            listener.cancel()
            assert [each.stage for each in await rest_of(lost)] == [pb.CALL_STAGE_LOST]
            unknown = client.messages.Call(pb.CallRequest(recipient="nobody"))
            refusal = await refused(unknown)
            assert (refusal.code, refusal.reason) == (
                grpc.StatusCode.NOT_FOUND,
                "UNKNOWN_RECIPIENT",
            )

    run(check())


def test_broadcasts_reach_their_subscribers() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            client = house.client
            listener = client.messages.Listen()
            interest = pb.Interest(subject="state.*")
            subscribe = pb.Subscribe(broadcasts=[interest])
            await listener.write(pb.ListenRequest(ref=1, subscribe=subscribe))
            await listener.read()
            send = client.messages.Broadcast
            other = await send(pb.BroadcastRequest(subject="other", body=b"x"))
            assert other.subscribers == 0
            sent = await send(pb.BroadcastRequest(subject="state.1", sender="s", body=b"y"))
            assert sent.subscribers == 1
            heard = (await listener.read()).heard
            assert (heard.subject, heard.sender, heard.body) == ("state.1", "s", b"y")
            no_more = pb.Unsubscribe(broadcasts=[interest])
            await listener.write(pb.ListenRequest(ref=2, unsubscribe=no_more))
            assert (await listener.read()).answer.ref == 2
            assert (await send(pb.BroadcastRequest(subject="state.1"))).subscribers == 0
            await listener.write(pb.ListenRequest(ref=3))
            wrong = (await listener.read()).answer
            assert (wrong.ref, wrong.refusal.code) == (3, pb.REFUSAL_CODE_INVALID)

    run(check())


# Keys.


def test_keys_are_made_used_and_revoked() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            made = await house.client.admin.CreateApiKey(
                pb.CreateApiKeyRequest(name="root", permissions=[pb.PERMISSION_ADMIN])
            )
            assert (await refused(_list(house.client))).code is grpc.StatusCode.UNAUTHENTICATED
            root = house.connect(made.token)
            reader = await root.admin.CreateApiKey(
                pb.CreateApiKeyRequest(
                    name="reader", permissions=[pb.PERMISSION_READ_TASKS], queues=["q"]
                ),
                metadata=root.metadata,
            )
            listed = await root.admin.ListApiKeys(pb.ListApiKeysRequest(), metadata=root.metadata)
            assert [each.name for each in listed.keys] == ["root", "reader"]
            assert listed.keys[1].permissions == [pb.PERMISSION_READ_TASKS]
            client = house.connect(reader.token)
            await _list(client)
            forbidden = await refused(
                client.tasks.SubmitTask(
                    pb.SubmitTaskRequest(task=pb.TaskSpec(queue="q")), metadata=client.metadata
                )
            )
            assert forbidden.code is grpc.StatusCode.PERMISSION_DENIED
            assert forbidden.reason == "FORBIDDEN"
            watching = client.tasks.WatchEvents(
                pb.WatchEventsRequest(queue="q"), metadata=client.metadata
            )
            await watching.read()
            await root.admin.RevokeApiKey(
                pb.RevokeApiKeyRequest(id=reader.id), metadata=root.metadata
            )
            with pytest.raises(grpc.aio.AioRpcError) as over:
                await asyncio.wait_for(watching.read(), PATIENCE_S)
            assert over.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert (await refused(_list(client))).code is grpc.StatusCode.UNAUTHENTICATED

    run(check())


def _list(client: Client) -> Any:
    return client.tasks.ListTasks(pb.ListTasksRequest(), metadata=client.metadata)
