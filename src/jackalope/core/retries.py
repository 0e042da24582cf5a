"""Retries: what becomes of a task whose attempt did not succeed.

Owns the decision, as a pure function of the task and its queue's policy. A failure is the task's
own doing, a crash is the loss of the worker that ran it, an interruption is nobody's fault: three
counters with three limits.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

import msgspec

from jackalope.core.commands import Verdict
from jackalope.core.lifecycle import Reason, State
from jackalope.core.limits import RETRIES_ASKED_MAX
from jackalope.core.policy import OnLost
from jackalope.core.task import Signal, Stage

if TYPE_CHECKING:
    from jackalope.core.task import Task


class Decision(msgspec.Struct, frozen=True, gc=False):
    """Where the task goes, why if that is its end, and when it is due if it must wait."""

    to: State
    reason: Reason | None = None
    due_us: int = 0


_AGAIN = Decision(State.READY)


def after_failure(task: Task, now_us: int, verdict: Verdict, retry_after_us: int) -> Decision:
    """Decide about a task that a worker reports as failed."""
    if verdict is Verdict.REJECT:
        return Decision(State.DEAD, Reason.REJECTED)
    asked = _as_asked(task)
    if verdict is Verdict.DEAD or task.failures >= _retries(task, is_asked=retry_after_us > 0):
        is_killed = asked is not None and asked.to is State.KILLED
        return asked if asked and is_killed else Decision(State.DEAD, Reason.FAILED)
    delay_us = retry_after_us if retry_after_us > 0 else _backoff_us(task, task.failures)
    again = Decision(State.SCHEDULED, None, now_us + delay_us) if delay_us else _AGAIN
    return asked or again


def after_loss(task: Task, now_us: int) -> Decision:
    """Decide about a task whose worker is lost."""
    if task.state is not State.RUNNING:
        return after_interruption(task, now_us)
    policy = task.queue.policy
    if asked := _as_asked(task):
        return asked
    is_poison = policy.crash_limit and task.crashes + 1 >= policy.crash_limit
    if is_poison or policy.on_lost is OnLost.DEAD:
        return Decision(State.DEAD, Reason.CRASHED)
    if policy.on_lost is OnLost.PAUSE:
        return Decision(State.PAUSED)
    return _AGAIN


def after_crash(task: Task, now_us: int) -> Decision:
    """Decide about a task whose own process died, as its worker reports.

    That is the loss of what ran it, but the worker is there, so it waits as after a failure.
    """
    decision = after_loss(task, now_us)
    if decision is _AGAIN and (delay_us := _backoff_us(task, task.crashes)):
        return Decision(State.SCHEDULED, None, now_us + delay_us)
    return decision


def after_interruption(task: Task, now_us: int, after_us: int = 0) -> Decision:
    """Decide about a task that was handed back, or whose worker was lost before it began.

    `after_us` is how long it is not to be tried again.
    """
    limit = task.queue.policy.interruption_limit
    if asked := _as_asked(task):
        return asked
    if limit and task.interruptions + 1 >= limit:
        return Decision(State.DEAD, Reason.INTERRUPTED)
    if task.expires_us and now_us >= task.expires_us:
        return Decision(State.DEAD, Reason.EXPIRED)
    return Decision(State.SCHEDULED, None, now_us + after_us) if after_us else _AGAIN


def _as_asked(task: Task) -> Decision | None:
    """Give a pending kill or pause its way, now that the task runs no longer."""
    request = None if task.attempt is None else task.attempt.request
    if request is None or request.signal is Signal.TIMEOUT or request.stage is Stage.REFUSED:
        return None
    return Decision(State.KILLED if request.signal is Signal.KILL else State.PAUSED)


def _retries(task: Task, *, is_asked: bool) -> int:
    """Return how many failures are tried again.

    A policy without retries says that an error is an answer. A worker that asks for another try has
    given none, so it is obeyed all the same, but not for ever. A task's own settings always count.
    """
    own = task.options.retry
    if own is not None:
        return own.retries
    return task.queue.policy.retries or (RETRIES_ASKED_MAX if is_asked else 0)


def _backoff_us(task: Task, before: int) -> int:
    """Return the wait before the next try: base, then each time `factor` longer, up to the cap.

    `before` is how many such waits there were.
    """
    own, policy = task.options.retry, task.queue.policy
    if own is None:
        base_us, factor, cap_us = policy.retry_base_us, policy.retry_factor, policy.retry_cap_us
    else:
        base_us, factor, cap_us = own.base_us, own.factor, own.cap_us
    # By logarithms, because the power itself may be too large a number.
    if not base_us or log(base_us) + before * log(factor) < log(max(cap_us, 1)):
        return int(base_us * factor**before) if base_us else 0
    return cap_us
