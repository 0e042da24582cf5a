"""Attempts: what workers report about the tasks they hold.

Owns the fence. Every report carries the fence of its lease; one that is not the task's current
lease, because the task was given to another worker or has ended, changes nothing and is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from math import log

import msgspec

from jackalope.core.commands import (
    Answer,
    AnswerSignal,
    Fail,
    FailAttempts,
    Finish,
    FinishAttempts,
    Held,
    ReleaseAttempts,
    ReportProgress,
    StartAttempts,
    Verdict,
)
from jackalope.core.context import Context, Missing
from jackalope.core.durations import SECOND, format_duration
from jackalope.core.effects import Accepted
from jackalope.core.ids import NO_TASK, TaskId, successor_id
from jackalope.core.lifecycle import ENDED, Event, Reason, State
from jackalope.core.limits import (
    CLOSED_US_MAX,
    ERROR_CHARS_MAX,
    INLINE_BYTES_MAX,
    NAME_CHARS_MAX,
    NOTE_CHARS_MAX,
    RETRIES_ASKED_MAX,
    TIME_US_MAX,
)
from jackalope.core.policy import Done, OnLost
from jackalope.core.records import (
    SINCE,
    AttemptEnded,
    AttemptFinished,
    AttemptStarted,
    SignalAdvanced,
)
from jackalope.core.records.limits import GatesClosed
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.exchange import Overflow
from jackalope.core.state.flows import WITH_FLOW, is_held_back
from jackalope.core.state.gates import gate_text
from jackalope.core.state.roster import Progress, Worker
from jackalope.core.task import BlobRef, Body, Error, Signal, Stage, Task, is_blob, lease_of
from jackalope.core.tasks.submit import become, trim
from jackalope.core.tasks.watches import tell_progress

Refused = list[tuple[int, Refusal]]

_ASSIGNED, _RECEIVED = State.ASSIGNED, Done.RECEIVED

#: A signal only goes forward: a late word of an earlier stage changes nothing.
_STAGES = list(Stage)


def missing(ctx: Context, command: FinishAttempts) -> Missing:
    """Return the tasks that results become, and that came to be and ended before.

    A task that was forgotten and submitted again has the same successor.
    """
    missing, tasks = Missing(""), ctx.book.tasks
    for finish in command.attempts:
        task = tasks.get(finish.task)
        target = task.queue.policy.result_becomes if task is not None else ""
        successor = successor_id(finish.task, target) if target else NO_TASK
        if successor and successor not in tasks and ctx.book.may_have_ended(successor):
            missing.ids.append(successor)
    return missing


def start_attempts(ctx: Context, command: StartAttempts, worker: Worker) -> Accepted:
    refused: Refused = []
    started: list[AttemptStarted] = []
    has_repeats = len(command.attempts) > 1 and _has_repeats(command.attempts)
    for index, held in enumerate(command.attempts):
        if has_repeats:  # Of one that comes twice the first time counts.
            _start(ctx, started)
        task = lease(worker, held.task, held.fence)
        if not isinstance(task, Task):
            refused.append((index, task))
        elif task.state is not _ASSIGNED:
            refused.append((index, wrong_state(task, Event.START)))
        else:
            started.append(AttemptStarted(ctx.now_us, held.task))
            if task.queue.policy.done is _RECEIVED:
                _start(ctx, started)
                _finish(ctx, [AttemptFinished(ctx.now_us, task.id)])
                ctx.agenda.feed(worker)
    _start(ctx, started)
    if worker.group is not None:
        ctx.agenda.feed(worker)  # No room for more, but the group of a pool looks at it.
    return Accepted(len(command.attempts) - len(refused), tuple(refused))


def finish_attempts(ctx: Context, command: FinishAttempts, worker: Worker) -> Accepted:
    refused: Refused = []
    finished: list[AttemptFinished] = []
    has_repeats = len(command.attempts) > 1 and _has_repeats(command.attempts)
    for index, finish in enumerate(command.attempts):
        if has_repeats:
            _finish(ctx, finished)
        task, result = lease(worker, finish.task, finish.fence), finish.result
        if not isinstance(task, Task):
            ctx.book.drop_blob(result)
            refused.append((index, task))
        elif (type(result) is not bytes or len(result) > INLINE_BYTES_MAX) and (
            refusal := _unfit(result)
        ):
            refused.append((index, refusal))
        else:
            finished.append(AttemptFinished(ctx.now_us, finish.task, result))
            if task.options.identity or task.queue.policy.result_becomes:
                _finish(ctx, finished)  # More follows from this one, before the next ends.
    _finish(ctx, finished)
    return _settled(ctx, worker, len(command.attempts), refused)


def _has_repeats(attempts: Sequence[Held | Finish]) -> bool:
    return len({each.task for each in attempts}) < len(attempts)


def _unfit(result: Body) -> Refusal | None:
    """Refuse a result that cannot be one."""
    if isinstance(result, BlobRef):
        return None if is_blob(result) else Refusal(Code.INVALID, "result: names no blob")
    if len(result) <= INLINE_BYTES_MAX:
        return None
    message = (
        f"result: {len(result)} bytes, at most {INLINE_BYTES_MAX} are allowed inline; "
        "upload it as a blob"
    )
    return Refusal(Code.TOO_LARGE, message)


def fail_attempts(ctx: Context, command: FailAttempts, worker: Worker) -> Accepted:
    """Record failures, and retry or give up."""
    refused: Refused = []
    for index, fail in enumerate(command.attempts):
        task = lease(worker, fail.task, fail.fence)
        if isinstance(task, Refusal):
            refused.append((index, task))
        else:
            _fail(ctx, task, fail)
    return _settled(ctx, worker, len(command.attempts), refused)


def release_attempts(ctx: Context, command: ReleaseAttempts, worker: Worker) -> Accepted:
    refused: Refused = []
    for index, held in enumerate(command.attempts):
        task = lease(worker, held.task, held.fence)
        if isinstance(task, Refusal):
            refused.append((index, task))
        else:
            release(ctx, task, after_us=command.after_us)
    return _settled(ctx, worker, len(command.attempts), refused)


def report_progress(ctx: Context, command: ReportProgress, worker: Worker) -> Accepted | Refusal:
    task = lease(worker, command.task, command.fence)
    if isinstance(task, Refusal):
        return task
    percent = command.percent
    if percent is not None and not 0 <= percent <= 100:
        return Refusal(Code.INVALID, f"percent: must be 0 to 100, got {percent}")
    note = command.note[:NOTE_CHARS_MAX]
    ctx.progress[task.id] = Progress(command.fence, ctx.now_us, percent, note)
    tell_progress(ctx, task.id)
    return Accepted()


def answer_signal(ctx: Context, command: AnswerSignal, worker: Worker) -> Accepted | Refusal:
    task = lease(worker, command.task, command.fence)
    if isinstance(task, Refusal):
        return task
    request = lease_of(task).request
    if request is None:
        message = f"no signal is pending for task {task.id.hex()}"
        return Refusal(Code.WRONG_STATE, message)
    if command.answer is not Answer.STOPPED:
        stage = Stage(command.answer.value)
        if _STAGES.index(stage) > _STAGES.index(request.stage):
            detail = command.detail[:NOTE_CHARS_MAX]
            ctx.record(SignalAdvanced(ctx.now_us, task.id, stage, detail))
        return Accepted()
    if request.signal is Signal.TIMEOUT:
        message = command.detail or "stopped by its timeout"
        _fail(ctx, task, Fail(task.id, command.fence, Error("Timeout", message)))
    else:
        to = State.KILLED if request.signal is Signal.KILL else State.PAUSED
        cause = command.detail[:NOTE_CHARS_MAX]
        end_attempt(ctx, task, Event.STOP, Decision(to), by=request.by, cause=cause)
    return _settled(ctx, worker, 1, [])


def lose(ctx: Context, task: Task, cause: str) -> None:
    """Settle an attempt whose worker is lost."""
    end_attempt(ctx, task, Event.LOSE, after_loss(task, ctx.now_us), cause=cause)


def release(ctx: Context, task: Task, by: str = "", after_us: int = 0) -> None:
    """Settle an attempt that was interrupted without a failure of task or worker."""
    decision = after_interruption(task, ctx.now_us, after_us)
    end_attempt(ctx, task, Event.RELEASE, decision, by=by)


def end_attempt(
    ctx: Context,
    task: Task,
    event: Event,
    decision: Decision,
    *,
    error: Error | None = None,
    by: str = "",
    cause: str = "",
) -> None:
    """Record the end of an attempt, and release everything it held except the worker's slot."""
    if task.flow is not None and decision.to in (State.READY, State.SCHEDULED):
        held_back = is_held_back(ctx.book, task)
        if held_back is not None:
            decision = Decision(held_back, None, decision.due_us)
            cause = cause or WITH_FLOW
    record = AttemptEnded(
        ctx.now_us,
        task.id,
        event,
        decision.to,
        reason=decision.reason,
        error=error,
        due_us=decision.due_us,
        by=by,
        cause=cause,
    )
    ctx.progress.pop(task.id, None)
    ctx.roster.orphans.cancel(task.id)
    if decision.to in ENDED:
        ctx.end_tasks((record,))
    else:
        ctx.record(record)
        ctx.agenda.offer(task)
        traits = task.queue.traits
        if traits is not None and traits.overflow is Overflow.DROP_HEAD:
            ctx.agenda.add(trim, task.queue)  # It may be too long now that the task is back.


def lease(worker: Worker, task_id: TaskId, fence: int) -> Task | Refusal:
    """Return the task that a worker reports on, if it holds the lease that it names."""
    task = worker.held.get(task_id)
    if task is not None and task.attempt is not None and task.attempt.fence == fence:
        return task
    return Refusal(
        Code.STALE_FENCE,
        f"fence {fence} is not the current lease of task {task_id.hex()}; stop working on it",
    )


def wrong_state(task: Task, event: Event) -> Refusal:
    return Refusal(Code.WRONG_STATE, f"cannot {event} task {task.id.hex()}: it is {task.state}")


def _settled(ctx: Context, worker: Worker, count: int, refused: Refused) -> Accepted:
    """Reply to a worker, which may now have room for more."""
    ctx.agenda.feed(worker)
    return Accepted(count - len(refused), tuple(refused))


def _start(ctx: Context, started: list[AttemptStarted]) -> None:
    """Record that attempts began, and let the list be empty."""
    ctx.record_all(started)
    started.clear()


def _finish(ctx: Context, finished: list[AttemptFinished]) -> None:
    """Record that attempts came to their good end, and let the list be empty."""
    endings = ctx.end_tasks(finished) if finished else ()
    finished.clear()
    for task, record, _ in endings:
        if ctx.progress:
            ctx.progress.pop(task.id, None)
        if task.queue.policy.result_becomes and isinstance(record, AttemptFinished):
            become(ctx, task, record.result)


def _fail(ctx: Context, task: Task, fail: Fail) -> None:
    error = Error(
        fail.error.type[:ERROR_CHARS_MAX],
        fail.error.message[:ERROR_CHARS_MAX],
        fail.error.trace[-ERROR_CHARS_MAX:],
    )
    if fail.crashed:
        if task.state is State.ASSIGNED:
            ctx.record(AttemptStarted(ctx.now_us, task.id))  # It must count as begun: it crashed.
        end_attempt(ctx, task, Event.LOSE, after_crash(task, ctx.now_us), error=error)
        return
    if fail.verdict is Verdict.THROTTLED:
        _throttle(ctx, task, fail)
        return
    retry_after_us = min(fail.retry_after_us, TIME_US_MAX)
    decision = after_failure(task, ctx.now_us, Verdict(fail.verdict), retry_after_us)
    end_attempt(ctx, task, Event.FAIL, decision, error=error)


def _throttle(ctx: Context, task: Task, fail: Fail) -> None:
    """Let no task with the key start for a while. That counts as no failure."""
    wait_us = min(fail.retry_after_us, CLOSED_US_MAX) if fail.retry_after_us > 0 else SECOND
    if ctx.level < SINCE[GatesClosed]:
        release(ctx, task, after_us=wait_us)
        return
    namespace, until_us, key = task.queue.namespace, ctx.now_us + wait_us, fail.key
    gates = tuple(
        gate_text(name)
        for name, _ in namespace.gates.names(task)
        if name[0] and key and (key in (name[0], *namespace.gates.limits[name[0]].settings.keys))
    )
    if gates:
        by = lease_of(task).worker
        ctx.record(GatesClosed(ctx.now_us, namespace.name, gates, until_us, by))
    again = _AGAIN if gates else Decision(State.SCHEDULED, None, until_us)
    of = f" {key[:NAME_CHARS_MAX]}" if key else ""
    cause = f"throttled{of} for {format_duration(wait_us)}"
    end_attempt(ctx, task, Event.THROTTLE, as_asked(task) or again, cause=cause)


# Retries: the next state of a task whose attempt did not succeed.


class Decision(msgspec.Struct, frozen=True, gc=False):
    """The next state of the task, the reason if it ends, and the due time if it must wait."""

    to: State
    reason: Reason | None = None
    due_us: int = 0


_AGAIN = Decision(State.READY)


def after_failure(task: Task, now_us: int, verdict: Verdict, retry_after_us: int) -> Decision:
    """Decide about a task that a worker reports as failed."""
    if verdict is Verdict.REJECT:
        return Decision(State.DEAD, Reason.REJECTED)
    asked = as_asked(task)
    if verdict is Verdict.DEAD or task.failures >= _retries(task, is_asked=retry_after_us > 0):
        is_killed = asked is not None and asked.to is State.KILLED
        return asked if asked and is_killed else Decision(State.DEAD, Reason.FAILED)
    delay_us = retry_after_us if retry_after_us > 0 else _backoff_us(task, task.failures)
    again = Decision(State.SCHEDULED, None, now_us + delay_us) if delay_us else _AGAIN
    return asked or again


def after_loss(task: Task, now_us: int) -> Decision:
    if task.state is not State.RUNNING:
        return after_interruption(task, now_us)
    policy = task.queue.policy
    if asked := as_asked(task):
        return asked
    is_poison = policy.crash_limit and task.crashes + 1 >= policy.crash_limit
    if is_poison or policy.on_lost is OnLost.DEAD:
        return Decision(State.DEAD, Reason.CRASHED)
    if policy.on_lost is OnLost.PAUSE:
        return Decision(State.PAUSED)
    return _AGAIN


def after_crash(task: Task, now_us: int) -> Decision:
    """Decide about a task whose own process died, as its worker reports.

    The worker is still there, so the task waits as after a failure.
    """
    decision = after_loss(task, now_us)
    if decision is _AGAIN and (delay_us := _backoff_us(task, task.crashes)):
        return Decision(State.SCHEDULED, None, now_us + delay_us)
    return decision


def after_interruption(task: Task, now_us: int, after_us: int = 0) -> Decision:
    """Decide about a task that was released, or whose worker was lost before it started.

    `after_us` is the delay before the next attempt.
    """
    limit = task.queue.policy.interruption_limit
    if asked := as_asked(task):
        return asked
    if limit and task.interruptions + 1 >= limit:
        return Decision(State.DEAD, Reason.INTERRUPTED)
    if task.expires_us and now_us >= task.expires_us:
        return Decision(State.DEAD, Reason.EXPIRED)
    return Decision(State.SCHEDULED, None, now_us + after_us) if after_us else _AGAIN


def as_asked(task: Task) -> Decision | None:
    """Apply a pending kill or pause, now that the task is not running."""
    request = None if task.attempt is None else task.attempt.request
    if request is None or request.signal is Signal.TIMEOUT or request.stage is Stage.REFUSED:
        return None
    return Decision(State.KILLED if request.signal is Signal.KILL else State.PAUSED)


def _retries(task: Task, *, is_asked: bool) -> int:
    """Return how many failures are retried.

    Under a policy without retries an error is an answer. A worker that requests a retry has given
    no answer, so the retry is granted, within a limit. A task's own settings always count.
    """
    own = task.options.retry
    if own is not None:
        return own.retries
    return task.queue.policy.retries or (RETRIES_ASKED_MAX if is_asked else 0)


def _backoff_us(task: Task, before: int) -> int:
    """Return the delay before the next attempt: base, then `factor` longer each, up to the cap.

    `before` is how many such delays there were. The jitter makes it shorter, by a chance that
    follows from the task.
    """
    own, policy = task.options.retry, task.queue.policy
    if own is None:
        base_us, factor, cap_us = policy.retry_base_us, policy.retry_factor, policy.retry_cap_us
    else:
        base_us, factor, cap_us = own.base_us, own.factor, own.cap_us
    delay_us, jitter = cap_us, policy.retry_jitter
    # By logarithms, because the power itself may be too large a number.
    if not base_us or log(base_us) + before * log(factor) < log(max(cap_us, 1)):
        delay_us = int(base_us * factor**before) if base_us else 0
    return delay_us - int(delay_us * jitter * chance(task.id, before)) if jitter else delay_us


def chance(task_id: TaskId, before: int) -> float:
    """Return a number from 0 to 1 that tasks do not share, the same whenever it is asked for."""
    digest = blake2b(task_id, digest_size=4, salt=before.to_bytes(8, "big")).digest()
    return int.from_bytes(digest, "big") / 2**32
