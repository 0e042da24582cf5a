"""Lending: the worker's side of helping the tasks of other workers.

Owns the one helper session that the worker may have. Belongs to the loop of the connection; the
session itself is run by the executor that its function needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from jackalope.core.effects import HelpAsked
from jackalope.tasks.definition import TaskSource
from jackalope.worker.attempt import Attempt, Cause, Failed, Listener, Outcome
from jackalope.worker.fanout.helper_session import HelpDefinition, help_assignment
from jackalope.worker.workload import Executor, Workload

log = structlog.get_logger(component="worker")


class Helping:
    """What this worker does for others."""

    def __init__(
        self,
        source: TaskSource,
        executors: Mapping[str, Executor],
        workload: Workload,
        *,
        worker: str,
        stop_s: float,
    ) -> None:
        self._source = source
        self._executors = executors
        self._workload = workload
        self._worker = worker
        self._stop_s = stop_s
        self._loop = asyncio.get_running_loop()
        self._attempt: Attempt | None = None
        self._is_closed = False
        self.fence = 0  # the attempt that it helps; 0 for none
        self.ended = asyncio.Event()
        self.ended.set()
        # called with the fence and, if it could not help, the reason
        self.on_free: Callable[[int, str], None] = _nothing

    def asked(self, ask: HelpAsked) -> None:
        """Take the broker's word to help, or to help no more."""
        if not ask.where:
            if ask.fence == self.fence:
                self.stop(Cause.DRAIN)
            return
        definition = self._source.functions.get(ask.function)
        if self._attempt is not None:
            if ask.fence != self.fence:
                self.on_free(ask.fence, f"helps another task, with fence {self.fence}")
        elif definition is None:
            self.on_free(ask.fence, f"this worker has no task {ask.function!r}")
        elif self._is_closed:
            self.on_free(ask.fence, "this worker stops")
        else:
            helping = HelpDefinition(definition, self._source.functions)
            assignment = help_assignment(ask, self._worker)
            attempt = self._attempt = Attempt(
                assignment, helping, _EndListener(self._loop, self._end)
            )
            self.fence = ask.fence
            self.ended.clear()
            self._workload.lent = 1
            log.info("helps", task_id=attempt.shown, name=ask.function, at=ask.where)
            self._executors[helping.isolation].run([attempt])

    def close(self) -> None:
        """End the helper session, and accept no other."""
        self._is_closed = True
        self.stop(Cause.DRAIN)

    def stop(self, cause: Cause) -> None:
        """End the helper session. Items in hand are computed by other peers."""
        attempt = self._attempt
        if attempt is not None and attempt.cause is None:
            attempt.cause = cause
            self._press(attempt, 0)

    def _press(self, attempt: Attempt, level: int) -> None:
        if attempt is not self._attempt:
            return
        executor = self._executors[attempt.definition.isolation]
        refusal = executor.stop(attempt, level)
        if refusal:
            log.warning("cannot stop helping yet", task_id=attempt.shown, why=refusal)
        else:
            self._loop.call_later(self._stop_s, self._press, attempt, level + 1)

    def _end(self, attempt: Attempt, outcome: Outcome) -> None:
        if attempt is not self._attempt:
            return
        why = outcome.error.message if isinstance(outcome, Failed) else ""
        log.info("helps no more", task_id=attempt.shown, why=why)
        fence, self.fence, self._attempt = self.fence, 0, None
        self._workload.lent = 0
        self._workload.begin()
        self.ended.set()
        self.on_free(fence, why)


class _EndListener(Listener):
    """Receives the end of a helper session, on whichever thread, and passes it to the loop.

    Nothing waits for the rest: the owner reports the progress, and a helper keeps its slot.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, ended: Callable[[Attempt, Outcome], None]
    ) -> None:
        self._loop = loop
        self._ended = ended

    def ended(self, attempt: Attempt, outcome: Outcome) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ended, attempt, outcome)


def _nothing(_: int, __: str) -> None:
    pass
