"""What a worker says and hears: join, assign, start, result, signals, claims, coming back."""

import asyncio
from pathlib import Path

import pytest

from jackalope.core.commands import (
    Action,
    ActOnTasks,
    Answer,
    AnswerSignal,
    ClaimTasks,
    Fail,
    Finish,
    Heartbeat,
    Held,
    JoinWorker,
    LeaveWorker,
    ReportProgress,
    StartAttempts,
    SubmitTasks,
    Verdict,
)
from jackalope.core.durations import DAY, SECOND
from jackalope.core.effects import Assignment, SignalAsked
from jackalope.core.task import Error, Options
from jackalope.wire.messages import Ack, Assign, Manage, Nack, Notice, Query, Result
from tests.doors.harness import House, Peer, held, open_house, run, spec

YES = {"count": 1, "refused": []}


async def _running(house: House, count: int = 1) -> tuple[Peer, Peer, list[Assignment]]:
    """Bring a client, a worker and tasks that it runs."""
    client, worker = await house.peer("lena"), await house.peer()
    await client.submit(*(spec(payload=b"%d" % number) for number in range(count)))
    await worker.join(slots=count)
    assignments = await worker.take(count)
    await worker.ask_ok(StartAttempts(0, [held(each) for each in assignments]))
    return client, worker, assignments


# A life.


def test_assignment_carries_all_that_the_worker_needs(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker = await house.peer(), await house.peer()
            options = Options(headers={"content": "json"}, timeout_us=5 * SECOND)
            task = spec(name="resize", key="k", payload=b"cat", options=options)
            assert await worker.join(keys=("k",)) == {"resumed": [], "drop": []}
            await client.submit(task)
            (assignment,) = await worker.take()
            assert assignment == Assignment(
                task.id,
                assignment.fence,
                "q",
                "resize",
                "k",
                b"cat",
                options,
                attempt=1,
                timeout_us=5 * SECOND,
                claim=0,
                retries_left=assignment.retries_left,
            )
            assert assignment.retries_left >= 0
            assert await client.state_of(task.id) == "assigned"
            assert await worker.ask_ok(StartAttempts(0, [held(assignment)])) == YES
            assert await client.state_of(task.id) == "running"
            assert (
                await worker.ask_ok(ReportProgress(0, task.id, assignment.fence, 50.0, "half"))
                == YES
            )
            await worker.finish(assignment, result=b"done")
            assert await client.state_of(task.id) == "succeeded"

    run(test())


def test_slots_bound_what_is_sent(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker = await house.peer(), await house.peer()
            await client.submit(*(spec() for _ in range(5)))
            await worker.join(slots=2)
            first, second = await worker.take(2)
            await worker.ask_ok(Query(0, "stats"))
            assert worker.heard == []
            await worker.finish(first, second)
            assert len(await worker.take(2)) == 2

    run(test())


@pytest.mark.feature("D17")
def test_result_of_all_three_kinds_counts_through(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker, a = await _running(house, 5)
            stale = 10**6
            message = Result(
                0,
                finished=[Finish(a[0].task, a[0].fence, b"r"), Finish(a[1].task, stale)],
                failed=[
                    Fail(a[1].task, a[1].fence, Error("E"), Verdict.DEAD),
                    Fail(a[2].task, a[2].fence, Error("E"), Verdict.REJECT),
                    Fail(a[3].task, stale, Error("E")),
                ],
                released=[Held(a[3].task, a[3].fence), Held(a[4].task, stale)],
            )
            body = await worker.ask_ok(message)
            assert body["count"] == 4
            assert [(index, refusal["code"]) for index, refusal in body["refused"]] == [
                (1, "stale_fence"),
                (4, "stale_fence"),
                (6, "stale_fence"),
            ]
            states = [await client.state_of(each.task) for each in a]
            assert states[:3] == ["succeeded", "dead", "dead"]
            # Handed back, and given out again.
            assert [each.task for each in await worker.take()] == [a[3].task]
            assert states[4] == "running"

    run(test())


@pytest.mark.parametrize("parts", [("finished",), ("failed",), ("released",), ()])
def test_result_of_one_kind(parts: tuple[str, ...]) -> None:
    async def test() -> None:
        async with open_house(None) as house:
            _, worker, (a, b) = await _running(house, 2)
            whole = {
                "finished": [Finish(a.task, a.fence), Finish(b.task, 0)],
                "failed": [Fail(a.task, a.fence, Error("E")), Fail(b.task, 0, Error("E"))],
                "released": [held(a), Held(b.task, 0)],
            }
            body = await worker.ask_ok(Result(0, **{part: whole[part] for part in parts}))  # type: ignore[arg-type]
            assert body["count"] == len(parts)
            assert [index for index, _ in body["refused"]] == [1] * len(parts)

    run(test())


def test_result_whose_first_part_is_too_much(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker, (a, b) = await _running(house, 2)
            finished = [Finish(a.task, a.fence)] + [Finish(a.task, 0)] * 10_000
            answer = await worker.ask(Result(0, finished, [Fail(b.task, b.fence, Error("E"))]))
            # Whatever the answer is, it must not pass for one to all parts.
            assert await client.state_of(a.task) == "running"
            assert isinstance(answer, Nack) or answer.body["refused"]

    run(test())


def test_failure_is_tried_again_when_the_worker_says(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            _, worker, (first,) = await _running(house)
            failed = Fail(first.task, first.fence, Error("E"), retry_after_us=1)
            assert await worker.ask_ok(Result(0, failed=[failed])) == YES
            (second,) = await worker.take()
            assert (second.task, second.attempt) == (first.task, 2)
            assert second.fence > first.fence

    run(test())


# Refusals.


@pytest.mark.feature("T2")
def test_not_a_worker(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            _, _, (a,) = await _running(house)
            stranger = await house.peer()
            for message in (
                StartAttempts(0, [held(a)]),
                Result(0, [Finish(a.task, a.fence)]),
                Result(0, [Finish(a.task, a.fence)], [Fail(a.task, a.fence, Error("E"))]),
                ReportProgress(0, a.task, a.fence),
                AnswerSignal(0, a.task, a.fence, Answer.STOPPED),
                ClaimTasks(0),
                LeaveWorker(0),
            ):
                assert (await stranger.ask_no(message)).code == "unknown_session"

    run(test())


@pytest.mark.feature("D16")
def test_worker_of_another_fence(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            _, _, (a,) = await _running(house)
            thief = await house.peer()
            await thief.join("thief")
            body = await thief.ask_ok(Result(0, [Finish(a.task, a.fence)]))
            assert [refusal["code"] for _, refusal in body["refused"]] == ["stale_fence"]
            assert (await thief.ask_no(ReportProgress(0, a.task, a.fence))).code == "stale_fence"
            answer = AnswerSignal(0, a.task, a.fence, Answer.STOPPED)
            assert (await thief.ask_no(answer)).code == "stale_fence"

    run(test())


@pytest.mark.parametrize(
    ("join", "text"),
    [
        (JoinWorker(0, "", ("q",)), "the worker's name"),
        (JoinWorker(0, "w" * 257, ("q",)), "the worker's name"),
        (JoinWorker(0, "w", ()), "number of queues"),
        (JoinWorker(0, "w", ("q",), slots=-1), "slots"),
        (JoinWorker(0, "w", ("q",), lease_us=999_999), "lease_us"),
        (JoinWorker(0, "w", ("q",), grace_us=-1), "grace_us"),
        (JoinWorker(0, "w", ("",)), "queue: must have 1 to 256"),
    ],
)
def test_worker_not_let_in(join: JoinWorker, text: str) -> None:
    async def test() -> None:
        async with open_house(None) as house:
            refusal = await (await house.peer()).ask_no(join)
            assert refusal.code == "invalid"
            assert text in refusal.message

    run(test())


# Claims.


@pytest.mark.feature("D11")
def test_claim_is_answered_by_assignments(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker = await house.peer(), await house.peer()
            await worker.join(slots=0)
            await worker.send(ClaimTasks(7, 2, 60 * SECOND))
            ids = await client.submit(spec(), spec(), spec())
            taken = await worker.take(2)
            assert [each.task for each in taken] == ids[:2]
            assert [each.claim for each in taken] == [7, 7]
            await worker.ask_ok(Query(0, "stats"))
            assert worker.heard == []
            await worker.send(ClaimTasks(8))
            (third,) = await worker.take()
            assert (third.task, third.claim) == (ids[2], 8)

    run(test())


@pytest.mark.feature("D11")
def test_nothing_to_claim(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            worker = await house.peer()
            await worker.join(slots=0)
            assert (await worker.ask_no(ClaimTasks(0))).code == "nothing_to_claim"
            begin_us = house.broker.now_us()
            assert (await worker.ask_no(ClaimTasks(0, 1, 50_000))).code == "nothing_to_claim"
            assert house.broker.now_us() - begin_us >= 50_000
            assert (await worker.ask_no(ClaimTasks(0, 0))).code == "invalid"

    run(test())


# Signals.


def test_kill_and_its_answers(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker, (a,) = await _running(house)
            body = await client.ask_ok(ActOnTasks(0, Action.KILL, (a.task,)))
            assert (body["changed"], body["requested"]) == (0, 1)
            assert await worker.expect(SignalAsked) == SignalAsked(a.task, a.fence, "kill")  # type: ignore[arg-type]
            for answer in (Answer.DELIVERED, Answer.ACKNOWLEDGED):
                assert await worker.ask_ok(AnswerSignal(0, a.task, a.fence, answer)) == YES
                view = await client.ask_ok(Query(0, "task", {"id": a.task}))
                assert (view["state"], view["request"]["stage"]) == ("running", answer.value)
            assert await worker.ask_ok(AnswerSignal(0, a.task, a.fence, Answer.STOPPED)) == YES
            assert await client.state_of(a.task) == "killed"

    run(test())


def test_pause_refused_and_obeyed(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker, (a,) = await _running(house)
            await client.ask_ok(ActOnTasks(0, Action.PAUSE, (a.task,)))
            assert (await worker.expect(SignalAsked)).signal == "pause"
            refused = AnswerSignal(0, a.task, a.fence, Answer.REFUSED, "cannot stop here")
            assert await worker.ask_ok(refused) == YES
            assert await client.state_of(a.task) == "running"
            await client.ask_ok(ActOnTasks(0, Action.PAUSE, (a.task,)))
            await worker.expect(SignalAsked)
            await worker.ask_ok(AnswerSignal(0, a.task, a.fence, Answer.STOPPED))
            assert await client.state_of(a.task) == "paused"

    run(test())


def test_timeout_asks_the_worker_to_stop(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker = await house.peer(), await house.peer()
            await worker.join()
            await client.submit(spec(options=Options(timeout_us=1)))
            (a,) = await worker.take()
            assert a.timeout_us == 1
            await worker.ask_ok(StartAttempts(0, [held(a)]))
            assert (await worker.expect(SignalAsked)).signal == "timeout"
            await worker.ask_ok(AnswerSignal(0, a.task, a.fence, Answer.STOPPED))
            view = await client.ask_ok(Query(0, "task", {"id": a.task}))
            assert (view["state"], view["error"]["type"]) == ("scheduled", "Timeout")

    run(test())


def test_answer_that_nobody_asked_for(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            _, worker, (a,) = await _running(house)
            answer = AnswerSignal(0, a.task, a.fence, Answer.STOPPED)
            assert (await worker.ask_no(answer)).code == "wrong_state"

    run(test())


def test_signal_comes_after_its_assignment(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker = await house.peer(), await house.peer()
            await worker.join()
            task = spec()
            await client.send(SubmitTasks(1, [task]), ActOnTasks(2, Action.KILL, (task.id,)))
            heard = [
                await worker.wait_for(lambda m: isinstance(m, Assign | SignalAsked)) for _ in "12"
            ]
            assert [type(message) for message in heard] == [Assign, SignalAsked]

    run(test())


# Leaving and draining.


def test_leave_hands_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker, (a,) = await _running(house)
            assert await worker.ask_ok(LeaveWorker(0)) == YES
            assert await client.state_of(a.task) == "ready"
            view = await client.ask_ok(Query(0, "task", {"id": a.task}))
            assert (view["interruptions"], view.get("crashes", 0)) == (1, 0)
            # The session goes on; it may join again.
            await worker.join()
            assert (await worker.take())[0].task == a.task

    run(test())


def test_drain(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker, (a,) = await _running(house)
            assert await client.ask_ok(Manage(0, "drain_worker", {"worker": "w1"})) == YES
            assert await worker.expect(Notice) == Notice("drain")
            await client.submit(spec())
            await worker.finish(a)
            await worker.ask_ok(Query(0, "stats"))
            assert worker.heard == []

    run(test())


# Coming back.


def test_resume_after_a_dropped_connection(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker, (a, b) = await _running(house, 2)
            worker.close()
            await house.until(lambda: len(house.door.connections) == 1)
            assert await client.state_of(a.task) == "running"
            back = await house.peer()
            never = Held(a.task, a.fence + 100)
            body = await back.join(slots=2, holding=[held(a), held(b), never], generation=2)
            assert body["resumed"] == [[a.task, a.fence], [b.task, b.fence]]
            assert body["drop"] == [[never.task, never.fence]]
            await back.finish(a, b)
            assert await client.state_of(a.task) == "succeeded"

    run(test())


def test_what_is_no_longer_held_is_lost(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker, (a, b) = await _running(house, 2)
            worker.close()
            await house.until(lambda: len(house.door.connections) == 1)
            back = await house.peer()
            await back.join(slots=2, holding=[held(a)])
            (again,) = await back.take()
            assert (again.task, again.attempt) == (b.task, 2)
            view = await client.ask_ok(Query(0, "task", {"id": b.task}))
            assert view["crashes"] == 1

    run(test())


def test_grace_is_over(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker = await house.peer(), await house.peer()
            await client.submit(spec())
            await worker.join(grace_us=1_000)
            (a,) = await worker.take()
            worker.close()
            async with asyncio.timeout(5):
                while await client.state_of(a.task) != "ready":
                    pass
            back = await house.peer()
            body = await back.join(holding=[held(a)])
            assert body["drop"] == [[a.task, a.fence]]

    run(test())


def test_broker_restarts_and_the_worker_goes_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            _, _, (a,) = await _running(house)
        async with open_house(tmp_path) as house:
            back = await house.peer()
            body = await back.join(holding=[held(a)])
            assert body == {"resumed": [[a.task, a.fence]], "drop": []}
            await back.finish(a, result=b"late but good")
            view = await back.ask_ok(Query(0, "task", {"id": a.task, "bodies": True}))
            assert (view["state"], view["attempts"]) == ("succeeded", 1)
            assert view["result"] == b"late but good"

    run(test())


def test_replaced_session(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            _, old, (a,) = await _running(house)
            new = await house.peer()
            body = await new.join(holding=[held(a)], generation=5)
            assert body["resumed"] == [[a.task, a.fence]]
            assert await old.expect(Notice) == Notice("replaced")
            refusal = await old.ask_no(Result(0, [Finish(a.task, a.fence)]))
            assert refusal.code == "unknown_session"
            late = await old.ask_no(JoinWorker(0, "w1", ("q",), generation=4))
            assert late.code == "stale_session"
            await new.finish(a)

    run(test())


def test_silent_worker_loses_its_lease(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker = await house.peer(), await house.peer()
            await client.submit(spec())
            await worker.join(lease_us=SECOND)
            (a,) = await worker.take()
            assert await worker.expect(Notice) == Notice("lease_lost")
            assert await client.state_of(a.task) == "ready"
            assert (await worker.ask_no(StartAttempts(0, [held(a)]))).code == "unknown_session"
            await worker.send(Heartbeat())
            assert await worker.expect(Notice) == Notice("lease_lost")
            body = await worker.join(holding=[held(a)])
            assert body["drop"] == [[a.task, a.fence]]

    run(test())


@pytest.mark.feature("T4")
def test_heartbeat_keeps_the_lease(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            worker = await house.peer()
            await worker.join(lease_us=SECOND)
            for number in range(1, 14):
                await asyncio.sleep(0.1)
                assert await worker.ask(Heartbeat(number, {"cpu": 1})) == Ack(number, YES)
            assert worker.heard == []

    run(test())


def test_a_clock_that_jumps_ahead_closes_nothing(tmp_path: Path) -> None:
    """Whether a peer is silent is a matter of how long it took, not of what the wall says."""

    async def test() -> None:
        async with open_house(tmp_path, heartbeat_us=SECOND) as house:
            worker, idle = await house.peer("w1"), await house.peer("idle")
            await worker.join()
            await idle.submit(spec())
            await worker.take()
            house.broker._clock._ahead_us += DAY
            before = set(house.door.connections)
            await house.door.look()
            assert set(house.door.connections) == before
            await idle.ask_ok(Query(1, "stats"))
            workers = await idle.ask_ok(Query(2, "workers"))
            assert len(workers) == 1

    run(test())
