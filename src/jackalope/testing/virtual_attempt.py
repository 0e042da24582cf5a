"""An attempt in a virtual broker: its function is called, and its reports go to the broker.

Owns how that is done. When attempts run is the broker's.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, cast

from jackalope.core.assertions import must
from jackalope.errors import Rejected
from jackalope.tasks.context import running
from jackalope.worker.attempt import Attempt, Failed, Finished, Left, Listener, Stopped, Suspension
from jackalope.worker.context import TaskContext

if TYPE_CHECKING:
    from jackalope.core.commands import RecordStep, Suspend
    from jackalope.testing.virtual_broker import VirtualBroker
    from jackalope.worker.logs.lines import Sink


class AttemptListener(Listener):
    """Receives the outcome of an attempt, as the worker does."""

    def __init__(self, broker: VirtualBroker) -> None:
        self._broker = broker
        self._rests = 0
        self._is_over = False

    def end(self) -> None:
        """Take no more: the attempt is over. It counts as busy until then, rests or not."""
        if self._rests and not self._is_over:
            self._broker.rested(is_resting=False)
        self._is_over = True

    def rested(self, _: Attempt, *, is_resting: bool) -> None:
        """Let something else run while the attempt only waits."""
        if self._is_over:
            return
        was_resting = self._rests > 0
        self._rests += 1 if is_resting else -1
        if (self._rests > 0) is not was_resting:
            self._broker.rested(is_resting=is_resting)

    def sink_of(self, attempt: Attempt) -> Sink:
        """Return where the output of the attempt goes."""
        return self._broker.sink_of(attempt.assignment)

    def asked(self, attempt: Attempt, message: RecordStep | Suspend, answer: Future[Any]) -> None:
        """Ask the broker about a step."""
        del attempt  # The message names it.
        try:
            answer.set_result(self._broker.asked(message))
        except Rejected as error:
            answer.set_exception(error)

    def progressed(self, attempt: Attempt, percent: float | None, note: str) -> None:
        """Take how far the attempt has come."""
        self._broker.progressed(attempt.held, percent, note)


def outcome_of(attempt: Attempt) -> Finished | Failed | Left:
    """Run the function of an attempt as the worker would, and return what came of it."""
    running.set(TaskContext(attempt))
    try:
        value = attempt.call()
        if inspect.iscoroutine(value):
            value = _finished(value)
        outcome = attempt.succeeded(value)
    except (Exception, Suspension) as error:  # noqa: BLE001  a task may raise anything
        outcome = attempt.raised(error)
    must(not isinstance(outcome, Stopped), "a virtual attempt cannot be stopped")
    return cast("Finished | Failed | Left", outcome)


def _finished(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end, also where a test has a loop of its own that runs."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(copy_context().run, asyncio.run, work).result()
