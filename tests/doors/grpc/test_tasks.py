"""Tasks over gRPC: submitted one by one, by the hundred and as a stream; shown and acted on."""

import asyncio
from datetime import timedelta
from typing import Any

import grpc
import pytest
from google.protobuf.struct_pb2 import Struct

from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from jackalope.task_ids import new_task_id
from tests.doors.grpc.harness import PATIENCE_S, House, open_grpc, refused, rest_of
from tests.doors.harness import run


def spec(queue: str = "q", **fields: Any) -> pb.TaskSpec:
    return pb.TaskSpec(queue=queue, **fields)


@pytest.mark.feature("D29")
def test_a_task_is_submitted_and_shown_as_it_was() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            headers = Struct()
            headers.update({"a": 1, "b": [True, None, {"c": 1.5}], "d": "text"})
            task_id = await house.client.submit(
                name="resize",
                key="k",
                priority=0,
                payload=b"\x00\xff",
                alias="mine",
                headers=headers,
                tags=["x", "y"],
                held=True,
                retry=pb.Retry(retries=7),
                timeout=timedelta(seconds=90),
            )
            task = await house.client.get(task_id, include_payload=True)
            assert (task.id, task.namespace, task.queue) == (task_id, "default", "q")
            assert (task.name, task.key, task.alias, task.priority) == ("resize", "k", "mine", 0)
            assert task.state == pb.TASK_STATE_HELD
            assert (task.payload, task.payload_size) == (b"\x00\xff", 2)
            assert task.headers == headers
            assert list(task.tags) == ["x", "y"]
            assert (task.retries, task.timeout.ToTimedelta()) == (7, timedelta(seconds=90))
            assert task.created_at.seconds
            assert not task.HasField("ended_at")
            by_alias = await house.client.tasks.GetTask(pb.GetTaskRequest(alias="mine"))
            assert by_alias.task.id == task_id
            assert not by_alias.task.HasField("payload")

    run(check())


def test_a_repeated_submit_is_one_task() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            name = new_task_id().hex()
            first = await house.client.submit(id=name)
            assert await house.client.submit(id=name) == first
            conflict = await refused(
                house.client.tasks.SubmitTask(
                    pb.SubmitTaskRequest(task=spec(id=name, payload=b"another"))
                )
            )
            assert conflict.code is grpc.StatusCode.ALREADY_EXISTS
            assert (conflict.reason, conflict.domain) == ("ID_CONFLICT", "jackalope")

    run(check())


def test_each_of_many_has_its_outcome() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            await house.client.declare("narrow", depth_limit=1)
            tasks = [spec("narrow"), spec("narrow"), spec("wide")]
            answer = await house.client.tasks.SubmitTasks(pb.SubmitTasksRequest(tasks=tasks))
            assert answer.accepted == 2
            codes = [each.refusal.code for each in answer.outcomes]
            assert codes == [0, pb.REFUSAL_CODE_QUEUE_FULL, 0]
            for each in answer.outcomes[::2]:
                assert (await house.client.get(each.id)).state == pb.TASK_STATE_READY

    run(check())


def test_a_stream_of_submits_is_acknowledged() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            call = house.client.tasks.StreamTasks()
            named = new_task_id().hex()
            for ref in range(1, 51):
                await call.write(pb.StreamTasksRequest(ref=ref, tasks=[spec()] * 20))
            await call.write(pb.StreamTasksRequest(ref=51, tasks=[spec(id=named)]))
            await call.write(pb.StreamTasksRequest(ref=52, tasks=[spec(id="wrong")]))
            await call.write(pb.StreamTasksRequest(ref=53))
            await call.done_writing()
            acks = {ack.ref: ack for response in await rest_of(call) for ack in response.acks}
            assert acks.keys() == set(range(1, 54))
            assert sum(ack.accepted for ack in acks.values()) == 1_001
            assert len({name for ack in acks.values() for name in ack.ids}) == 1_000
            assert acks[51].ids == []
            assert acks[52].refusal.code == pb.REFUSAL_CODE_INVALID
            assert "tasks[0].id" in acks[52].refusal.message
            total = await house.client.tasks.ListTasks(pb.ListTasksRequest(include_total=True))
            assert total.total == 1_001

    run(check())


def test_pages_follow_each_other() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            names = [f"n{number}" for number in range(25)]
            for name in names:
                await house.client.submit(name=name)
            request = pb.ListTasksRequest(order=pb.TASK_ORDER_CREATED, page_size=10)
            seen: list[str] = []
            sizes = []
            while True:
                page = await house.client.tasks.ListTasks(request)
                seen += [task.name for task in page.tasks]
                sizes.append(len(page.tasks))
                request.page_token = page.next_page_token
                if not page.next_page_token:
                    break
            assert seen == names
            assert sizes == [10, 10, 5]
            only = pb.ListTasksRequest(filter=pb.TaskFilter(name="n3"), include_total=True)
            assert (await house.client.tasks.ListTasks(only)).total == 1
            bad = pb.ListTasksRequest(page_token="nothing")  # noqa: S106  not one
            assert (await refused(house.client.tasks.ListTasks(bad))).reason == "INVALID"

    run(check())


def test_a_wait_ends_with_its_task_or_its_time() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            task_id = await house.client.submit()
            brief = pb.WaitTaskRequest(id=task_id, timeout=timedelta(milliseconds=50))
            answer = await house.client.tasks.WaitTask(brief)
            assert not answer.ended
            assert answer.task.state == pb.TASK_STATE_READY
            waiting = asyncio.create_task(_wait(house, task_id))
            worker = house.client.worker()
            await worker.join()
            await worker.finish(*await worker.take(), result=b"42")
            answer = await asyncio.wait_for(waiting, PATIENCE_S)
            assert answer.ended
            assert (answer.task.state, answer.task.result) == (pb.TASK_STATE_SUCCEEDED, b"42")

    run(check())


async def _wait(house: House, task_id: str) -> Any:
    return await house.client.tasks.WaitTask(pb.WaitTaskRequest(id=task_id))


def test_a_wait_ends_with_its_deadline() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            task_id = await house.client.submit()
            call = house.client.tasks.WaitTask(pb.WaitTaskRequest(id=task_id), timeout=0.2)
            assert (await refused(call)).code is grpc.StatusCode.DEADLINE_EXCEEDED
            async with asyncio.timeout(PATIENCE_S):
                while house.door.client_session._waiting:  # noqa: ASYNC110  it tells nobody
                    await asyncio.sleep(0.01)

    run(check())


def test_watched_tasks_report_progress_and_their_end() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            ids = [await house.client.submit(), await house.client.submit()]
            unknown = new_task_id().hex()
            call = house.client.tasks.WatchTasks(
                pb.WatchTasksRequest(ids=[*ids, unknown], progress=True)
            )
            first = await call.read()
            assert first.refused.index == 2
            assert first.refused.refusal.code == pb.REFUSAL_CODE_UNKNOWN_TASK
            worker = house.client.worker()
            await worker.join(slots=2)
            given = await worker.take(2)
            await worker.start(*given)
            told = pb.ReportProgress(
                task_id=given[0].task_id, fence=given[0].fence, percent=50, note="half"
            )
            await worker.ask(progress=told)
            await worker.finish(*given, result=b"done")
            rest = await rest_of(call)
            progress = [each.progress for each in rest if each.HasField("progress")]
            assert [(each.progress.percent, each.progress.note) for each in progress] == [
                (50, "half")
            ]
            ended = {each.ended.id: each.ended for each in rest if each.HasField("ended")}
            assert ended.keys() == set(ids)
            assert {each.result for each in ended.values()} == {b"done"}
            assert await call.code() is grpc.StatusCode.OK

    run(check())


def test_events_are_reported_from_the_first_answer_on() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            call = house.client.tasks.WatchEvents(pb.WatchEventsRequest(queue="q"))
            first = await call.read()
            assert (list(first.events), first.missed) == ([], 0)
            await house.client.submit("other")
            task_id = await house.client.submit("q")
            async with asyncio.timeout(PATIENCE_S):
                second = await call.read()
            assert [(each.task_id, each.what) for each in second.events] == [(task_id, "submit")]
            assert second.events[0].state == pb.TASK_STATE_READY
            call.cancel()

    run(check())


def test_actions_change_tasks_or_say_why_not() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            act = house.client.tasks.ActOnTasks
            ids = [await house.client.submit() for _ in range(3)]
            held = await act(pb.ActOnTasksRequest(action=pb.TASK_ACTION_HOLD, ids=ids[:1]))
            assert held.changed == 1
            assert (await house.client.get(ids[0])).state == pb.TASK_STATE_HELD
            wanted = pb.TaskFilter(states=[pb.TASK_STATE_READY])
            request = pb.ActOnTasksRequest(action=pb.TASK_ACTION_KILL, filter=wanted, dry_run=True)
            assert (await act(request)).changed == 2
            request.dry_run = False
            assert (await act(request)).changed == 2
            again = await act(pb.ActOnTasksRequest(action=pb.TASK_ACTION_PAUSE, ids=ids[1:2]))
            assert again.refused[0].id == ids[1]
            assert again.refused[0].refusal.code == pb.REFUSAL_CODE_WRONG_STATE
            terms = pb.RetryTerms(retries=9, priority=200)
            request = pb.ActOnTasksRequest(action=pb.TASK_ACTION_RETRY, ids=ids[1:2], terms=terms)
            assert (await act(request)).changed == 1
            task = await house.client.get(ids[1])
            assert (task.state, task.retries, task.priority) == (pb.TASK_STATE_READY, 9, 200)

    run(check())


def test_a_task_is_explained_and_has_a_history() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            task_id = await house.client.submit()
            told = await house.client.tasks.ExplainTask(pb.ExplainTaskRequest(id=task_id))
            assert told.state == pb.TASK_STATE_READY
            assert [cause.why for cause in told.causes] == ["no_worker"]
            assert told.causes[0].text
            request = pb.GetTaskHistoryRequest(id=task_id)
            entries = (await house.client.tasks.GetTaskHistory(request)).entries
            assert [each.what for each in entries] == ["submit"]
            assert entries[0].by == "grpc"

    run(check())


def test_equal_requests_are_served_by_one_task() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            request = pb.SubmitTaskRequest(task=spec(payload=b"2+2", same=pb.SAME_REQUEST_CACHED))
            first = await house.client.tasks.SubmitTask(request)
            second = await house.client.tasks.SubmitTask(request)
            assert first.served.how == pb.HOW_SERVED_MISS
            assert (second.served.how, second.id) == (pb.HOW_SERVED_JOINED, first.id)

    run(check())


def test_paces_replace_and_throttle() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            submit = house.client.tasks.SubmitTask
            span, at_most = timedelta(seconds=5), timedelta(seconds=60)
            pace = pb.Pace(how=pb.PACING_DEBOUNCE, key="k", span=span, at_most=at_most)
            first = await submit(pb.SubmitTaskRequest(task=spec(pace=pace)))
            second = await submit(pb.SubmitTaskRequest(task=spec(pace=pace)))
            assert (second.served.how, second.id) == (pb.HOW_SERVED_REPLACED, first.id)
            pace = pb.Pace(how=pb.PACING_THROTTLE, span=span)
            first = await submit(pb.SubmitTaskRequest(task=spec(pace=pace)))
            refusal = await refused(submit(pb.SubmitTaskRequest(task=spec(pace=pace))))
            assert refusal.code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert refusal.reason == "THROTTLED"
            pace.drop = True
            dropped = await submit(pb.SubmitTaskRequest(task=spec(pace=pace)))
            assert (dropped.served.how, dropped.id) == (pb.HOW_SERVED_DROPPED, first.id)

    run(check())


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"pace": pb.Pace(key="k")}, "task.pace.how"),
        ({"queue": ""}, "task.queue"),
        ({"id": "no id"}, "task.id"),
        ({"parent": "no id"}, "task.parent"),
        ({"depends_on": ["no id"]}, "task.depends_on[0]"),
        ({"on_dependency": 77}, "task.on_dependency"),
        ({"same": 77}, "task.same"),
        ({"retry": pb.Retry(base=timedelta(seconds=-1))}, "task.retry.base"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], path: str) -> None:
    async def check() -> None:
        async with open_grpc() as house:
            request = pb.SubmitTaskRequest(task=pb.TaskSpec(**({"queue": "q"} | fields)))
            refusal = await refused(house.client.tasks.SubmitTask(request))
            assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
            assert refusal.fields == [path]
            assert refusal.reason == "INVALID"

    run(check())


def test_the_trace_of_a_call_is_that_of_its_tasks() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
            house.client.metadata += [("traceparent", parent), ("tracestate", "a=b")]
            task = await house.client.get(await house.client.submit())
            assert task.headers["traceparent"] == parent
            assert task.headers["tracestate"] == "a=b"

    run(check())


def test_namespaces_see_nothing_of_each_other() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            other = house.connect(namespace="other")
            task_id = await other.submit()
            assert (await other.get(task_id)).namespace == "other"
            refusal = await refused(house.client.tasks.GetTask(pb.GetTaskRequest(id=task_id)))
            assert refusal.code is grpc.StatusCode.NOT_FOUND
            assert refusal.reason == "UNKNOWN_TASK"
            bad = [("jackalope-namespace", "a b")]
            call = house.client.tasks.ListTasks(pb.ListTasksRequest(), metadata=bad)
            assert (await refused(call)).fields == ["jackalope-namespace"]

    run(check())
