"""Workers over gRPC: one stream joins, is assigned tasks, reports, and comes back with fences."""

import asyncio
from datetime import timedelta
from typing import Any

import grpc
import pytest

from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from tests.doors.grpc.harness import PATIENCE_S, open_grpc
from tests.doors.harness import run


def attempt(given: Any) -> pb.Attempt:
    return pb.Attempt(task_id=given.task_id, fence=given.fence)


def test_a_worker_is_assigned_what_it_has_room_for() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            ids = [await house.client.submit(name="n", payload=b"p", tags=["t"]) for _ in range(3)]
            worker = house.client.worker()
            joined = await worker.join(slots=2, labels={"host": "here"})
            assert joined.lease.ToTimedelta() == timedelta(seconds=30)
            given = await worker.take(2)
            assert [each.task_id for each in given] == ids[:2]
            assert (given[0].name, given[0].payload, list(given[0].tags)) == ("n", b"p", ["t"])
            assert (given[0].payload_size, given[0].is_large, given[0].attempt) == (1, False, 1)
            assert (await worker.start(*given)).accepted.count == 2
            assert (await house.client.get(ids[0])).state == pb.TASK_STATE_RUNNING
            assert (await worker.finish(*given, result=b"r")).accepted.count == 2
            task = await house.client.get(ids[0], include_result=True)
            assert (task.state, task.result) == (pb.TASK_STATE_SUCCEEDED, b"r")
            assert [each.task_id for each in await worker.take()] == ids[2:]

    run(check())


def test_one_message_reports_all_kinds_of_results() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            await house.client.declare(retries=0)
            ids = [await house.client.submit() for _ in range(4)]
            worker = house.client.worker()
            await worker.join(slots=4)
            given = await worker.take(4)
            await worker.start(*given)
            error = pb.TaskError(type="ValueError", message="no", trace="line 1")
            results = pb.ReportResults(
                finished=[pb.Finish(task_id=given[0].task_id, fence=given[0].fence)],
                failed=[
                    pb.Fail(task_id=given[1].task_id, fence=given[1].fence, error=error),
                    pb.Fail(task_id=given[2].task_id, fence=given[2].fence + 99, error=error),
                ],
                released=[attempt(given[3])],
            )
            answer = await worker.ask(results=results)
            assert answer.accepted.count == 3
            assert [(each.index, each.refusal.code) for each in answer.accepted.refused] == [
                (2, pb.REFUSAL_CODE_STALE_FENCE)
            ]
            dead = await house.client.get(ids[1])
            assert (dead.state, dead.reason) == (pb.TASK_STATE_DEAD, pb.DEATH_REASON_FAILED)
            assert (dead.error.type, dead.error.trace) == ("ValueError", "line 1")
            assert [each.task_id for each in await worker.take()] == [ids[3]]

    run(check())


def test_to_be_throttled_is_no_failure() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            await house.client.declare(retries=0)
            submitted = await house.client.submit()
            worker = house.client.worker()
            await worker.join(slots=1)
            [given] = await worker.take(1)
            await worker.start(given)
            fail = pb.Fail(
                task_id=given.task_id,
                fence=given.fence,
                verdict=pb.VERDICT_THROTTLED,
                retry_after=timedelta(hours=1),
                key="tenant",
            )
            await worker.ask(results=pb.ReportResults(failed=[fail]))
            task = await house.client.get(submitted)
            assert (task.failures, task.ended_at.seconds) == (0, 0)

    run(check())


def test_a_worker_that_comes_back_keeps_what_it_runs() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            ids = [await house.client.submit() for _ in range(2)]
            worker = house.client.worker()
            await worker.join(slots=2, generation=1)
            given = await worker.take(2)
            await worker.start(*given)
            worker.call.cancel()
            again = house.client.worker()
            foreign = pb.Attempt(task_id=ids[1], fence=given[1].fence + 7)
            joined = await again.join(slots=2, generation=2, holding=[attempt(given[0]), foreign])
            assert list(joined.resumed) == [attempt(given[0])]
            assert list(joined.drop) == [foreign]
            assert (await again.finish(given[0], result=b"kept")).accepted.count == 1
            # What it did not name was lost with the first stream, and is tried again.
            late = await again.finish(given[1])
            assert late.accepted.refused[0].refusal.code == pb.REFUSAL_CODE_STALE_FENCE
            task = await house.client.get(ids[1])
            assert (task.crashes, task.state) == (1, pb.TASK_STATE_ASSIGNED)
            assert (await again.take())[0].fence > given[1].fence

    run(check())


def test_a_second_stream_of_a_worker_ends_the_first() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            first, second = house.client.worker(), house.client.worker()
            await first.join(generation=1)
            await second.join(generation=2)
            assert await first.over() is grpc.StatusCode.ABORTED
            late = house.client.worker()
            await late.say(join=pb.Join(worker="w1", queues=["q"], generation=1))
            assert await late.over() is grpc.StatusCode.ABORTED
            assert "generation" in await late.call.details() or await late.call.details()

    run(check())


def test_signals_reach_the_worker_and_its_answer_the_task() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            task_id = await house.client.submit()
            worker = house.client.worker()
            await worker.join()
            (given,) = await worker.take()
            await worker.start(given)
            kill = pb.ActOnTasksRequest(action=pb.TASK_ACTION_KILL, ids=[task_id])
            assert (await house.client.tasks.ActOnTasks(kill)).requested == 1
            asked = await worker.signal()
            assert (asked.task_id, asked.fence) == (task_id, given.fence)
            assert asked.signal == pb.SIGNAL_KILL
            stopped = pb.AnswerSignal(
                task_id=task_id, fence=given.fence, answer=pb.SIGNAL_ANSWER_STOPPED
            )
            assert (await worker.ask(signal=stopped)).WhichOneof("what") == "accepted"
            assert (await house.client.get(task_id)).state == pb.TASK_STATE_KILLED

    run(check())


def test_claims_are_answered_with_tasks_or_with_nothing() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            worker = house.client.worker()
            await worker.join(slots=0)
            brief = pb.ClaimTasks(count=1, wait=timedelta(milliseconds=20))
            assert (await worker.ask(claim=brief)).WhichOneof("what") == "claim_over"
            long = pb.ClaimTasks(count=2, wait=timedelta(seconds=60))
            ref = await worker.say(claim=long)
            await worker.ask(heartbeat=pb.Heartbeat())
            task_id = await house.client.submit()
            (given,) = await worker.take()
            assert (given.task_id, given.claim) == (task_id, ref)
            answer = await worker.ask(cancel_claim=pb.CancelClaim(claim=ref))
            assert answer.WhichOneof("what") == "accepted"
            await house.client.submit()
            await worker.ask(heartbeat=pb.Heartbeat())
            assert worker.has_nothing()

    run(check())


def test_a_worker_that_leaves_hands_back_what_it_holds() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            task_id = await house.client.submit()
            worker = house.client.worker()
            await worker.join()
            await worker.take()
            assert (await worker.ask(leave=pb.Leave())).WhichOneof("what") == "accepted"
            assert await worker.over() is grpc.StatusCode.OK
            assert (await house.client.get(task_id)).state == pb.TASK_STATE_READY

    run(check())


def test_a_drained_worker_is_told() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            worker = house.client.worker()
            await worker.join("w")
            await house.client.workers.DrainWorker(pb.DrainWorkerRequest(worker="w"))
            await worker.until_draining()
            listed = await house.client.workers.ListWorkers(pb.ListWorkersRequest())
            assert [(each.worker, each.state) for each in listed.workers] == [
                ("w", pb.WORKER_STATE_DRAINING)
            ]

    run(check())


def test_another_process_can_keep_a_worker_alive() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            await house.client.submit()
            worker = house.client.worker()
            await worker.join(lease=timedelta(seconds=1))
            await worker.take()
            beat = house.client.workers.Beat
            for _ in range(8):
                assert (await beat(pb.BeatRequest(session=worker.session))).alive
                await asyncio.sleep(0.25)
            assert not worker.has_lost
            listed = await house.client.workers.ListWorkers(pb.ListWorkersRequest())
            assert listed.workers[0].load == 1
            assert not (await beat(pb.BeatRequest(session="unknown"))).alive
            async with asyncio.timeout(PATIENCE_S):
                while not worker.has_lost:  # It falls silent, and loses its lease.
                    response = await worker.call.read()
                    worker.has_lost = response.lease_lost

    run(check())


def test_the_first_message_must_be_a_join() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            worker = house.client.worker()
            await worker.say(heartbeat=pb.Heartbeat())
            assert await worker.over() is grpc.StatusCode.INVALID_ARGUMENT
            assert "join" in await worker.call.details()

    run(check())


@pytest.mark.parametrize(
    "what",
    [
        {"start": pb.StartAttempts(attempts=[pb.Attempt(task_id="x", fence=1)])},
        {"signal": pb.AnswerSignal(task_id="00" * 16, fence=1)},
        {"signal": pb.AnswerSignal(task_id="00" * 16, fence=1, answer=9)},  # type: ignore[arg-type]
        {"results": pb.ReportResults(failed=[pb.Fail(task_id="00" * 16, fence=1, verdict=9)])},  # type: ignore[arg-type]
        {"heartbeat": pb.Heartbeat(stats={str(number): 1.0 for number in range(65)})},
        {},
    ],
)
def test_a_wrong_message_is_answered_and_the_stream_goes_on(what: dict[str, Any]) -> None:
    async def check() -> None:
        async with open_grpc() as house:
            worker = house.client.worker()
            await worker.join()
            answer = await worker.ask(**what)
            assert answer.refusal.code == pb.REFUSAL_CODE_INVALID
            beat = await worker.ask(heartbeat=pb.Heartbeat(stats={"cpu_percent": 1.0}))
            assert beat.WhichOneof("what") == "accepted"

    run(check())


def test_steps_are_recorded_and_come_with_the_next_assignment() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            task_id = await house.client.submit()
            worker = house.client.worker()
            await worker.join()
            (given,) = await worker.take()
            await worker.start(given)
            held = {"task_id": given.task_id, "fence": given.fence}
            step = pb.RecordStep(
                **held, name="charge", result=b"paid", took=timedelta(milliseconds=5)
            )
            assert (await worker.ask(step=step)).WhichOneof("what") == "accepted"
            (shown,) = (await house.client.get(task_id)).steps
            assert (shown.name, shown.result_size) == ("charge", 4)
            assert shown.took.ToTimedelta() == timedelta(milliseconds=5)
            again = pb.Suspend(**held, name="charge", event="paid")
            done = await worker.ask(suspend=again)
            assert (done.WhichOneof("what"), done.step_done.result) == ("step_done", b"paid")
            wait = pb.Suspend(**held, index=1, name="wait", event="ok", after=timedelta(hours=1))
            assert (await worker.ask(suspend=wait)).WhichOneof("what") == "suspended"
            assert (await house.client.get(task_id)).waits_for == "ok"
            event = pb.SendEventRequest(id=task_id, event="ok", data=b"raw")
            await house.client.tasks.SendEvent(event)
            (again_given,) = await worker.take()
            assert [(each.index, each.name, each.result) for each in again_given.steps] == [
                *((0, "charge", b"paid"), (1, "wait", b"raw"))
            ]

    run(check())


def test_a_step_that_cannot_be_is_refused_and_the_stream_goes_on() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            await house.client.submit()
            worker = house.client.worker()
            await worker.join()
            (given,) = await worker.take()
            await worker.start(given)
            held = {"task_id": given.task_id, "fence": given.fence}
            wrong: list[tuple[dict[str, Any], str]] = [
                ({"step": pb.RecordStep(task_id="none", name="a")}, "step.task_id"),
                ({"step": pb.RecordStep(**held, name="a", took=timedelta(-1))}, "step.took"),
                ({"suspend": pb.Suspend(**held, name="a", after=timedelta(-1))}, "suspend.after"),
                ({"suspend": pb.Suspend(**held, name="a")}, "after_us"),
                ({"step": pb.RecordStep(**held, name="")}, "name"),
            ]
            for message, field in wrong:
                answer = await worker.ask(**message)
                assert answer.refusal.code == pb.REFUSAL_CODE_INVALID
                assert answer.refusal.message.startswith(f"{field}:")
            assert (await worker.finish(given)).accepted.count == 1

    run(check())
