"""Incoming tasks: what somebody takes out of a task queue by hand.

Owns what may be done with one: process it, put it back, or leave it alone, which puts it back too.
May be used from any thread.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import kiwipy

from jackalope.aiida.tasks import Queue
from jackalope.worker.attempt import Attempt

PENDING = "pending"
PROCESSING = "processing"
FINISHED = "finished"
REQUEUED = "requeued"


class WrongState(kiwipy.InvalidStateError, asyncio.InvalidStateError):  # type: ignore[misc]
    """This cannot be done with the task any more."""


class Thread(Protocol):
    """The thread of the communicator."""

    def wait_for(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine there, and return what it returns."""

    def post(self, function: Callable[..., Any], *args: Any) -> None:
        """Have a function called there, soon."""


class IncomingTask:
    """A task that was taken out of a queue.

    Attributes:
        body: what it is about.
        no_reply: nobody waits for its result.
        state: `pending`, `processing`, `finished` or `requeued`.
    """

    def __init__(self, queue: Queue, attempt: Attempt, thread: Thread) -> None:
        self._queue = queue
        self._attempt = attempt
        self._thread = thread
        self.body, self.no_reply = queue.body_of(attempt)
        self.state = PENDING

    def process(self) -> kiwipy.Future:
        """Begin to process it, and return the future to set the outcome on.

        If the future is thrown away without an outcome, the task goes back into the queue.
        """
        outcome = self._begin()
        outcome.add_done_callback(self._on_done)
        weakref.finalize(outcome, self._on_forgotten).atexit = False
        return outcome

    @contextmanager
    def processing(self) -> Iterator[kiwipy.Future]:
        """Process it: at the end the task is done, or goes back into the queue.

        An exception is the outcome, and is raised here too.
        """
        outcome = self._begin()
        try:
            yield outcome
        except Exception as error:
            if not outcome.done():
                outcome.set_exception(error)
            raise
        finally:
            if not outcome.done():
                self.requeue()
            elif outcome.cancelled():
                self.state = PENDING
            else:
                self.state = FINISHED
                self._wait_for(*self._end_of(outcome))

    def requeue(self) -> None:
        """Put it back into the queue; it is there when this returns."""
        if self.state not in (PENDING, PROCESSING):
            raise WrongState(f"The task is {self.state}")
        self.state = REQUEUED
        self._wait_for(self._queue.hand_back)

    def _wait_for(self, act: Callable[..., None], *args: Any) -> None:
        self._thread.wait_for(self._queue.settle(self._attempt, act, *args))

    def _begin(self) -> kiwipy.Future:
        if self.state != PENDING:
            raise WrongState(f"The task is {self.state}")
        self.state = PROCESSING
        return kiwipy.Future()

    def _on_done(self, outcome: kiwipy.Future) -> None:
        if self.state != PROCESSING:
            return
        if outcome.cancelled():
            self.state = PENDING  # Whoever took it decided not to process it.
            return
        self.state = FINISHED
        act, value = self._end_of(outcome)
        self._thread.post(act, self._attempt, value)

    def _on_forgotten(self) -> None:
        if self.state == PROCESSING:
            self.state = REQUEUED
            self._thread.post(self._queue.hand_back, self._attempt)

    def _end_of(self, outcome: kiwipy.Future) -> tuple[Callable[..., None], Any]:
        error = outcome.exception()
        if error is not None:
            return self._queue.fail, error
        return self._queue.finish, outcome.result()
