"""Attempts: what workers report about the tasks they hold.

Owns the fence. Every report names the fence of the lease it speaks for; one that is not the task's
present lease, because the task was given to another or has ended, changes nothing and is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from jackalope.core.assign import offer, offer_tags
from jackalope.core.commands import (
    Answer,
    AnswerSignal,
    Command,
    Fail,
    FailAttempts,
    FinishAttempts,
    ReleaseAttempts,
    ReportProgress,
    StartAttempts,
    Verdict,
)
from jackalope.core.effects import Accepted
from jackalope.core.lifecycle import ENDED, Event, State
from jackalope.core.limits import ERROR_CHARS_MAX, INLINE_BYTES_MAX, NOTE_CHARS_MAX, TIME_US_MAX
from jackalope.core.policy import Done
from jackalope.core.records import AttemptEnded, AttemptFinished, AttemptStarted, SignalAdvanced
from jackalope.core.refusals import Code, Refusal
from jackalope.core.retries import (
    Decision,
    after_crash,
    after_failure,
    after_interruption,
    after_loss,
)
from jackalope.core.submission import become
from jackalope.core.task import BlobRef, Body, Error, Signal, Stage, Task, is_blob, lease_of
from jackalope.core.topology import Overflow
from jackalope.core.watches import tell_progress

if TYPE_CHECKING:
    from jackalope.core.broker import Core
    from jackalope.core.ids import TaskId
    from jackalope.core.worker import Worker

Refused = list[tuple[int, Refusal]]

#: A signal only goes forward: a late word of an earlier stage changes nothing.
_STAGES = list(Stage)


class Progress(msgspec.Struct, frozen=True):
    """How far an attempt has come, in the words of its worker. Not durable."""

    fence: int
    at_us: int
    percent: float | None
    note: str


def start_attempts(core: Core, command: StartAttempts) -> None:
    """Take the word of a worker that it began."""
    worker = core.worker_of(command)
    if worker is None:
        return
    refused: Refused = []
    for index, held in enumerate(command.attempts):
        task = lease(worker, held.task, held.fence)
        if isinstance(task, Refusal):
            refused.append((index, task))
        elif task.state is not State.ASSIGNED:
            refused.append((index, wrong_state(task, Event.START)))
        else:
            core.record(AttemptStarted(core.now_us, held.task))
            if task.queue.policy.done is Done.RECEIVED:
                _finish(core, task, b"")
    _settled(core, command, worker, len(command.attempts), refused)


def finish_attempts(core: Core, command: FinishAttempts) -> None:
    """Take results, and bring their tasks to a good end."""
    worker = core.worker_of(command)
    if worker is None:
        return
    refused: Refused = []
    for index, finish in enumerate(command.attempts):
        task = lease(worker, finish.task, finish.fence)
        result = finish.result
        if isinstance(task, Refusal):
            core.book.drop_blob(result)
            refused.append((index, task))
        elif isinstance(result, BlobRef):
            if is_blob(result):
                _finish(core, task, result)
            else:
                refused.append((index, Refusal(Code.INVALID, "result: names no blob")))
        elif len(result) > INLINE_BYTES_MAX:
            message = f"result of {len(result)} bytes; above {INLINE_BYTES_MAX} put it in a blob"
            refused.append((index, Refusal(Code.TOO_LARGE, message)))
        else:
            _finish(core, task, result)
    _settled(core, command, worker, len(command.attempts), refused)


def fail_attempts(core: Core, command: FailAttempts) -> None:
    """Take failures, and retry or give up."""
    worker = core.worker_of(command)
    if worker is None:
        return
    refused: Refused = []
    for index, fail in enumerate(command.attempts):
        task = lease(worker, fail.task, fail.fence)
        if isinstance(task, Refusal):
            refused.append((index, task))
        else:
            _fail(core, task, fail)
    _settled(core, command, worker, len(command.attempts), refused)


def release_attempts(core: Core, command: ReleaseAttempts) -> None:
    """Take back what a worker cannot go on with."""
    worker = core.worker_of(command)
    if worker is None:
        return
    refused: Refused = []
    for index, held in enumerate(command.attempts):
        task = lease(worker, held.task, held.fence)
        if isinstance(task, Refusal):
            refused.append((index, task))
        else:
            release(core, task, after_us=command.after_us)
    _settled(core, command, worker, len(command.attempts), refused)


def report_progress(core: Core, command: ReportProgress) -> None:
    """Remember how far an attempt has come."""
    worker = core.worker_of(command)
    if worker is None:
        return
    task = lease(worker, command.task, command.fence)
    if isinstance(task, Refusal):
        core.reply(command, task)
        return
    percent = command.percent
    if percent is not None and not 0 <= percent <= 100:
        core.reply(command, Refusal(Code.INVALID, f"percent: must be 0 to 100, got {percent}"))
        return
    note = command.note[:NOTE_CHARS_MAX]
    core.progress[task.id] = Progress(command.fence, core.now_us, percent, note)
    tell_progress(core, task.id)
    core.reply(command, Accepted())


def answer_signal(core: Core, command: AnswerSignal) -> None:
    """Take a worker's word on a signal."""
    worker = core.worker_of(command)
    if worker is None:
        return
    task = lease(worker, command.task, command.fence)
    if isinstance(task, Refusal):
        core.reply(command, task)
        return
    request = lease_of(task).request
    if request is None:
        message = f"nobody asked anything of task {task.id.hex()}"
        core.reply(command, Refusal(Code.WRONG_STATE, message))
        return
    if command.answer is not Answer.STOPPED:
        stage = Stage(command.answer.value)
        if _STAGES.index(stage) > _STAGES.index(request.stage):
            detail = command.detail[:NOTE_CHARS_MAX]
            core.record(SignalAdvanced(core.now_us, task.id, stage, detail))
        core.reply(command, Accepted())
        return
    if request.signal is Signal.TIMEOUT:
        message = command.detail or "stopped because it ran for too long"
        _fail(core, task, Fail(task.id, command.fence, Error("Timeout", message)))
    else:
        to = State.KILLED if request.signal is Signal.KILL else State.PAUSED
        cause = command.detail[:NOTE_CHARS_MAX]
        end_attempt(core, task, Event.STOP, Decision(to), by=request.by, cause=cause)
    _settled(core, command, worker, 1, [])


def lose(core: Core, task: Task, cause: str) -> None:
    """Settle an attempt whose worker is gone."""
    end_attempt(core, task, Event.LOSE, after_loss(task, core.now_us), cause=cause)


def release(core: Core, task: Task, by: str = "", after_us: int = 0) -> None:
    """Settle an attempt that was interrupted through nobody's fault."""
    decision = after_interruption(task, core.now_us, after_us)
    end_attempt(core, task, Event.RELEASE, decision, by=by)


def end_attempt(
    core: Core,
    task: Task,
    event: Event,
    decision: Decision,
    *,
    error: Error | None = None,
    by: str = "",
    cause: str = "",
) -> None:
    """Write down how an attempt ended, and see to what that sets free but the worker."""
    record = AttemptEnded(
        core.now_us, task.id, event, decision.to, decision.reason, error, decision.due_us, by, cause
    )
    core.progress.pop(task.id, None)
    core.roster.orphans.cancel(task.id)
    if decision.to in ENDED:
        core.end_task(record)
    else:
        core.record(record)
        offer(core, task)
        traits = task.queue.traits
        if traits is not None and traits.overflow is Overflow.DROP_HEAD:
            core.crowded[task.queue] = None  # It may be too long now that the task is back.
    if task.options.tags:
        offer_tags(core, task)


def lease(worker: Worker, task_id: TaskId, fence: int) -> Task | Refusal:
    """Return the task that a worker speaks for, if it holds the lease that it names."""
    task = worker.held.get(task_id)
    if task is not None and task.attempt is not None and task.attempt.fence == fence:
        return task
    return Refusal(
        Code.STALE_FENCE,
        f"fence {fence} is not the present lease of task {task_id.hex()}; stop working on it",
    )


def wrong_state(task: Task, event: Event) -> Refusal:
    """Refuse an event that cannot happen to a task as it is."""
    return Refusal(Code.WRONG_STATE, f"cannot {event} task {task.id.hex()}: it is {task.state}")


def _settled(core: Core, command: Command, worker: Worker, count: int, refused: Refused) -> None:
    """Answer the worker, and see to it that it gets what it now has room for."""
    core.reply(command, Accepted(count - len(refused), tuple(refused)))
    core.make_hungry(worker)


def _finish(core: Core, task: Task, result: Body) -> None:
    record = AttemptFinished(core.now_us, task.id, result)
    if core.progress:
        core.progress.pop(task.id, None)
    core.end_task(record)
    if task.options.tags:
        offer_tags(core, task)
    if task.queue.policy.result_becomes:
        become(core, task, result)


def _fail(core: Core, task: Task, fail: Fail) -> None:
    error = Error(
        fail.error.type[:ERROR_CHARS_MAX],
        fail.error.message[:ERROR_CHARS_MAX],
        fail.error.trace[-ERROR_CHARS_MAX:],
    )
    if fail.crashed:
        if task.state is State.ASSIGNED:
            core.record(AttemptStarted(core.now_us, task.id))  # It must count as begun: it crashed.
        end_attempt(core, task, Event.LOSE, after_crash(task, core.now_us), error=error)
        return
    retry_after_us = min(fail.retry_after_us, TIME_US_MAX)
    decision = after_failure(task, core.now_us, Verdict(fail.verdict), retry_after_us)
    end_attempt(core, task, Event.FAIL, decision, error=error)
