"""What the worker holds and what it tells, without a broker and without user code."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from jackalope.core.commands import (
    Answer,
    AnswerSignal,
    Fail,
    Finish,
    Held,
    ReportProgress,
    StartAttempts,
    Verdict,
)
from jackalope.core.effects import SignalAsked
from jackalope.core.refusals import Code
from jackalope.core.task import Error, Signal
from jackalope.errors import ConnectionLost, JackalopeError, Rejected
from jackalope.wire.messages import Result
from jackalope.worker.attempt import Attempt, Cause, Failed, Finished, Outcome, Stopped
from jackalope.worker.workload import Workload
from tests.worker.application import app
from tests.worker.executors.stage import assignment

Answered = Callable[[Any, JackalopeError | None], None]
YES = {"count": 1, "refused": []}


class Line:
    """A connection whose other end is the test."""

    is_congested = False

    def __init__(self) -> None:
        self.asked: list[tuple[Any, Answered]] = []
        self.sent: list[ReportProgress] = []
        self.is_taken = True  # the system takes what is written
        self.written: list[int] = []

    def ask(self, message: Any, answered: Answered) -> None:
        self.asked.append((message, answered))

    def send(self, message: ReportProgress) -> None:
        self.sent.append(message)

    def flush(self) -> bool:
        self.written.append(len(self.asked))
        return self.is_taken

    def take(self) -> list[Any]:
        """Return what was asked since the last time, answered with yes."""
        asked, self.asked = self.asked, []
        for _, answered in asked:
            answered(YES, None)
        return [message for message, _ in asked]

    def refuse(self, code: str) -> list[Any]:
        asked, self.asked = self.asked, []
        for _, answered in asked:
            answered(None, Rejected(code, "no"))
        return [message for message, _ in asked]


class Puppet:
    """An executor that does what the test says."""

    begins_at_once = True

    def __init__(self) -> None:
        self.runs: list[Attempt] = []
        self.stops: list[tuple[Attempt, int]] = []
        self.refusal = ""
        self.on_run: Callable[[], None] = lambda: None

    def run(self, attempts: list[Attempt]) -> None:
        self.on_run()
        self.runs += attempts

    def stop(self, attempt: Attempt, level: int) -> str:
        self.stops.append((attempt, level))
        return self.refusal if level == 2 else ""

    def time_out_softly(self, attempt: Attempt) -> None:
        self.stops.append((attempt, -1))

    def end(self, outcome: Outcome, count: int = 1) -> None:
        for _ in range(count):
            attempt = self.runs.pop(0)
            attempt.listener.ended(attempt, outcome)


class Stage:
    def __init__(self, **settings: Any) -> None:
        self.puppet = Puppet()
        executors = {"async": self.puppet, "thread": self.puppet, "process": self.puppet}
        self.workload = Workload(app, executors, **{"concurrency": 100, **settings})
        self.line = Line()
        self.workload.reports.resume(self.line, [])

    async def assign(self, count: int = 1, name: str = "add", **extra: Any) -> list[Held]:
        """Assign tasks, and let them begin."""
        given = [assignment(name, *((1, 2) if name == "add" else ()), **extra)]
        given += [assignment(name, *((1, 2) if name == "add" else ())) for _ in range(count - 1)]
        self.workload.assign(given)
        await self.settle()
        return [Held(one.task, one.fence) for one in given]

    async def settle(self) -> None:
        for _ in range(4):
            await asyncio.sleep(0)

    async def end(self, outcome: Outcome, count: int = 1) -> None:
        self.puppet.end(outcome, count)
        await self.settle()


def on_stage(story: Callable[[Stage], Awaitable[None]], **settings: Any) -> None:
    async def play() -> None:
        await story(Stage(**settings))

    asyncio.run(play())


FAILED = Failed(Error("Oops", "sorry"))


def test_many_make_one_frame_of_starts_and_one_of_results() -> None:
    async def story(stage: Stage) -> None:
        held = await stage.assign(50)
        [start] = stage.line.take()
        assert start == StartAttempts(0, held)
        stage.puppet.end(Finished(b"1"), 20)
        stage.puppet.end(FAILED, 20)
        await stage.settle()
        [result] = stage.line.take()
        assert isinstance(result, Result)
        assert result.finished == [Finish(*name_of(one), b"1") for one in held[:20]]
        assert result.failed == [Fail(*name_of(one), FAILED.error) for one in held[20:40]]
        assert stage.workload.holding == held[40:]
        assert not stage.workload.emptied.is_set()

    on_stage(story)


def name_of(held: Held) -> tuple[Any, int]:
    return held.task, held.fence


def test_start_is_told_before_user_code_can_run() -> None:
    async def story(stage: Stage) -> None:
        written: list[int] = []
        stage.puppet.on_run = lambda: written.extend(stage.line.written)
        stage.line.written.clear()
        stage.workload.assign([assignment("add", 1, 2), assignment("add", 1, 2)])
        assert written == [1]
        stage.line.take()
        stage.line.is_taken = False  # The broker does not read.
        stage.workload.assign([assignment("add", 1, 2)])
        assert len(stage.line.asked) == 1
        assert len(stage.puppet.runs) == 2
        await stage.settle()
        assert len(stage.puppet.runs) == 3

    on_stage(story)


def test_start_leaves_with_the_ends_that_made_room() -> None:
    async def story(stage: Stage) -> None:
        await stage.assign(2)
        stage.line.take()
        stage.line.written.clear()
        await stage.end(Finished(b"1"))
        assert stage.line.written[0] == 2
        assert [type(asked) for asked in stage.line.take()] == [StartAttempts, Result]

    on_stage(story, concurrency=1, prefetch=1)


def test_assignment_that_is_repeated_runs_once() -> None:
    async def story(stage: Stage) -> None:
        given = assignment("add", 1, 2)
        stage.workload.assign([given])
        stage.workload.assign([given])
        await stage.settle()
        assert len(stage.puppet.runs) == 1

    on_stage(story)


def test_runs_no_more_at_once_than_told() -> None:
    async def story(stage: Stage) -> None:
        await stage.assign(5)
        assert (stage.workload.running, stage.workload.waiting) == (2, 3)
        assert len(stage.puppet.runs) == 2
        assert stage.workload.slots == 5
        await stage.end(Finished(b""))
        assert (stage.workload.running, stage.workload.waiting) == (2, 2)

    on_stage(story, concurrency=2, prefetch=3)


def test_results_too_large_for_one_frame_go_in_several() -> None:
    async def story(stage: Stage) -> None:
        await stage.assign(5)
        stage.line.take()
        await stage.end(Finished(bytes(600_000)), 5)
        assert [len(result.finished) for result in stage.line.take()] == [2, 2, 1]

    on_stage(story)


def test_result_larger_than_any_frame_is_a_failure() -> None:
    async def story(stage: Stage) -> None:
        stage.workload.limit_results(10_000)
        await stage.assign()
        stage.line.take()
        await stage.end(Finished(bytes(10_000)))
        [result] = stage.line.take()
        [failed] = result.failed
        assert (failed.error.type, failed.verdict) == ("TooLarge", Verdict.DEAD)

    on_stage(story)


# Connections that come and go.


def test_everything_open_is_told_again_after_a_new_join() -> None:
    async def story(stage: Stage) -> None:
        held = await stage.assign(3)
        await stage.end(Finished(b"1"))
        for _, answered in stage.line.asked:
            answered(None, ConnectionLost("gone"))
        stage.workload.reports.suspend()
        await stage.end(FAILED)
        assert stage.workload.holding == held
        line = Line()
        stage.workload.reports.resume(line, stage.workload.attempts)
        start, result = line.take()
        assert start.attempts == held[2:]
        assert [one.fence for one in result.finished] == [held[0].fence]
        assert [one.fence for one in result.failed] == [held[1].fence]
        assert stage.workload.holding == held[2:]

    on_stage(story)


def test_what_is_not_ours_any_more_is_stopped_and_never_reported() -> None:
    async def story(stage: Stage) -> None:
        told: list[int] = []
        stage.workload.on_slots_changed = lambda: told.append(stage.workload.slots)
        held = await stage.assign(3)
        stage.line.take()
        stage.workload.drop(held)
        assert stage.workload.emptied.is_set()
        assert [attempt.cause for attempt, _ in stage.puppet.stops] == [Cause.DROP, Cause.DROP]
        assert told == [0]
        await stage.end(Stopped(), 2)
        assert stage.line.take() == []
        assert told[-1] == 3

    on_stage(story, concurrency=2, prefetch=1)


def test_start_refused_as_stale_stops_the_attempt() -> None:
    async def story(stage: Stage) -> None:
        await stage.assign(2)
        [(_, answered)] = stage.line.asked
        stale = {"code": Code.STALE_FENCE, "message": "not yours"}
        again = {"code": Code.WRONG_STATE, "message": "runs already"}
        answered({"count": 0, "refused": [[0, stale], [1, again]]}, None)
        assert [attempt.cause for attempt, _ in stage.puppet.stops] == [Cause.DROP]
        assert len(stage.workload.holding) == 1

    on_stage(story)


def test_result_refused_as_stale_is_dropped() -> None:
    async def story(stage: Stage) -> None:
        await stage.assign()
        stage.line.take()
        await stage.end(Finished(b""))
        [(_, answered)] = stage.line.asked
        stale = {"code": Code.STALE_FENCE, "message": "not yours"}
        answered({"count": 0, "refused": [[0, stale]]}, None)
        assert stage.workload.holding == []

    on_stage(story)


def test_broker_that_forgot_the_worker_is_joined_again() -> None:
    async def story(stage: Stage) -> None:
        forgotten: list[bool] = []
        stage.workload.on_forgotten = lambda: forgotten.append(True)
        held = await stage.assign()
        stage.line.take()
        await stage.end(Finished(b""))
        stage.line.refuse(Code.UNKNOWN_SESSION)
        assert forgotten == [True]
        assert stage.workload.holding == held

    on_stage(story)


def test_report_that_the_broker_cannot_take_is_not_sent_for_ever() -> None:
    async def story(stage: Stage) -> None:
        await stage.assign(2)
        stage.line.take()
        await stage.end(Finished(b""), 2)
        [both] = stage.line.refuse(Code.INVALID)
        assert len(both.finished) == 2
        (_, first), (_, second) = stage.line.asked
        stage.line.asked = []
        first(YES, None)
        second(None, Rejected(Code.INVALID, "still no"))
        [last] = stage.line.take()
        assert [one.error.type for one in last.failed] == ["Unreportable"]
        assert stage.workload.holding == []

    on_stage(story)


# Signals.


def ask(held: Held, signal: Signal) -> SignalAsked:
    return SignalAsked(held.task, held.fence, signal)


def answers(line: Line) -> list[Answer]:
    return [message.answer for message in line.take() if isinstance(message, AnswerSignal)]


def test_kill_is_delivered_acknowledged_and_stopped() -> None:
    async def story(stage: Stage) -> None:
        [held] = await stage.assign()
        stage.line.take()
        stage.workload.signal(ask(held, Signal.KILL))
        stage.puppet.runs[0].acknowledge()
        await stage.settle()
        assert answers(stage.line) == [Answer.DELIVERED, Answer.ACKNOWLEDGED]
        await stage.end(Stopped())
        assert answers(stage.line) == [Answer.STOPPED]
        assert stage.workload.holding == []

    on_stage(story)


def test_kill_of_what_has_not_begun_stops_it_at_once() -> None:
    async def story(stage: Stage) -> None:
        _, held = await stage.assign(2)
        stage.line.take()
        stage.workload.signal(ask(held, Signal.KILL))
        assert answers(stage.line) == [Answer.DELIVERED, Answer.STOPPED]
        assert stage.workload.waiting == 0

    on_stage(story, concurrency=1, prefetch=1)


def test_kill_is_pressed_harder_and_then_refused_with_the_reason() -> None:
    async def story(stage: Stage) -> None:
        stage.puppet.refusal = "cannot"
        [held] = await stage.assign()
        stage.line.take()
        stage.workload.signal(ask(held, Signal.KILL))
        async with asyncio.timeout(5):
            while len(stage.puppet.stops) < 3:  # noqa: ASYNC110  timers of the workload
                await asyncio.sleep(0.001)
        assert [level for _, level in stage.puppet.stops] == [0, 1, 2]
        asked = [message for message in stage.line.take() if isinstance(message, AnswerSignal)]
        assert [message.answer for message in asked] == [Answer.DELIVERED, Answer.REFUSED]
        assert asked[-1].detail == "cannot"
        await stage.end(Finished(b"1"))
        [result] = stage.line.take()
        assert len(result.finished) == 1

    on_stage(story, stop_s=0.001)


def test_stop_that_nobody_wants_any_more_hands_the_task_back() -> None:
    async def story(stage: Stage) -> None:
        [held] = await stage.assign()
        stage.workload.signal(ask(held, Signal.PAUSE))
        stage.line.take()
        await stage.end(Stopped())
        stage.line.refuse(Code.WRONG_STATE)
        [result] = stage.line.take()
        assert result.released == [held]

    on_stage(story)


def test_timeout_of_its_own_is_a_failure() -> None:
    async def story(stage: Stage) -> None:
        await stage.assign(timeout_s=0.001)
        stage.line.take()
        async with asyncio.timeout(5):
            while not stage.puppet.stops:  # noqa: ASYNC110  a timer of the workload
                await asyncio.sleep(0.001)
        await stage.end(Stopped("gone", "where it was"))
        [result] = stage.line.take()
        [failed] = result.failed
        assert failed.error == Error(
            "Timeout", "it exceeded its time limit of 0.001 s: gone", "where it was"
        )

    on_stage(story)


def test_kill_outweighs_a_pause() -> None:
    async def story(stage: Stage) -> None:
        [held] = await stage.assign()
        stage.workload.signal(ask(held, Signal.PAUSE))
        stage.workload.signal(ask(held, Signal.KILL))
        stage.workload.signal(ask(held, Signal.PAUSE))
        [(attempt, level)] = stage.puppet.stops
        assert (attempt.cause, level) == (Cause.KILL, 0)

    on_stage(story)


def test_stop_from_nowhere_is_an_interruption() -> None:
    """As when a signal to all processes of a service reaches a task's process too."""

    async def story(stage: Stage) -> None:
        [held] = await stage.assign()
        stage.line.take()
        await stage.end(Stopped())
        [result] = stage.line.take()
        assert result.released == [held]

    on_stage(story)


# Progress, and the end.


def test_only_the_latest_progress_is_sent() -> None:
    async def story(stage: Stage) -> None:
        [held] = await stage.assign()
        attempt = stage.puppet.runs[0]
        for percent in range(100):
            attempt.listener.progressed(attempt, percent, "")
        async with asyncio.timeout(5):
            while not stage.line.sent:  # noqa: ASYNC110  a timer of the mailbox
                await asyncio.sleep(0.001)
        assert stage.line.sent == [ReportProgress(0, held.task, held.fence, 99, "")]

    on_stage(story)


def test_closed_it_begins_nothing_and_hands_back_what_waits() -> None:
    async def story(stage: Stage) -> None:
        first, second = await stage.assign(2)
        stage.line.take()
        stage.workload.close()
        assert stage.workload.slots == 0
        stage.workload.hand_back_waiting()
        [result] = stage.line.take()
        assert result.released == [second]
        [late] = await stage.assign()
        [result] = stage.line.take()
        assert result.released == [late]
        stage.workload.hand_back_running(5)
        await stage.end(Stopped())
        [result] = stage.line.take()
        assert result.released == [first]
        assert stage.workload.emptied.is_set()

    on_stage(story, concurrency=1, prefetch=1)


def test_given_up_it_hands_back_even_what_runs() -> None:
    async def story(stage: Stage) -> None:
        [held] = await stage.assign()
        stage.line.take()
        stage.workload.close()
        stage.workload.give_up()
        [result] = stage.line.take()
        assert result.released == [held]
        assert stage.workload.emptied.is_set()
        await stage.end(Finished(b"late"))
        assert stage.line.take() == []

    on_stage(story)


def test_last_progress_is_reported_before_the_end() -> None:
    async def story(stage: Stage) -> None:
        await stage.assign(2)
        stage.line.take()
        first, second = stage.puppet.runs
        for attempt in (first, second):
            attempt.listener.progressed(attempt, 10.0, "begun")
            attempt.listener.progressed(attempt, 100.0, "done")
        order: list[str] = []  # Of what is sent.
        stage.line.send = lambda message: order.append(message.note)  # type: ignore[method-assign]
        stage.line.ask = lambda message, answered: order.append(type(message).__name__)  # type: ignore[method-assign]
        await stage.end(Finished(b"1"))
        assert order == ["done", "Result"]
        await stage.end(Finished(b"1"))
        assert order == ["done", "Result", "done", "Result"]

    on_stage(story)
