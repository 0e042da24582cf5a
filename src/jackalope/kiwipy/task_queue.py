"""A task queue by its name, as kiwipy hands it out. May be used from any thread."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import kiwipy

from jackalope.client.app import Jackalope
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import ENDED, State
from jackalope.core.refusals import Code
from jackalope.errors import Rejected
from jackalope.kiwipy.queue import Queue
from jackalope.kiwipy.threads import LoopThread
from jackalope.wire.views import TaskView
from jackalope.worker.attempt import Attempt

#: As kiwipy has it.
TASK_FETCH_TIMEOUT_S = 5.0


class TaskQueue:
    """A queue of tasks by its name: send, subscribe, or take them one by one."""

    def __init__(self, queue: Queue, thread: LoopThread) -> None:
        self._queue = queue
        self._thread = thread

    def __iter__(self) -> Iterator[IncomingTask]:
        """Take every task that is there now. Those that are left alone go back at the end."""
        taken: list[IncomingTask] = []
        try:
            while True:
                taken.append(self._take(self._thread.timeout_s))
                yield taken[-1]
        except kiwipy.QueueEmpty:
            return
        finally:
            for task in taken:
                if task.state == PENDING:
                    task.requeue()

    def task_send(self, task: Any, no_reply: bool = False) -> kiwipy.Future | None:
        """Send a task; see the communicator's."""
        return self._thread.wait_for(self._queue.send(task, no_reply=no_reply))

    def add_task_subscriber(self, subscriber: Callable[..., Any], identifier: Any = None) -> Any:
        """Have tasks given to a function; see the communicator's."""
        return self._thread.wait_for(self._queue.add_subscriber(subscriber, identifier))

    def remove_task_subscriber(self, identifier: Any) -> None:
        """Give no more tasks to a subscriber; see the communicator's."""
        self._thread.wait_for(self._queue.remove_subscriber(identifier))

    @contextmanager
    def next_task(
        self, timeout: float = TASK_FETCH_TIMEOUT_S, fail: bool = True
    ) -> Iterator[IncomingTask | None]:
        """Take the next task that is there now. If it is left alone, it goes back.

        Args:
            timeout: how many seconds the broker may take to answer.
            fail: raise if there is none; else there is None in its place.

        Raises:
            QueueEmpty: there is none.
        """
        try:
            task = self._take(timeout)
        except kiwipy.QueueEmpty:
            if fail:
                raise
            yield None
            return
        try:
            yield task
        finally:
            if task.state == PENDING:
                task.requeue()

    def _take(self, timeout_s: float) -> IncomingTask:
        attempt = self._thread.wait_for(self._queue.next_attempt(), timeout_s)
        return IncomingTask(self._queue, attempt, self._thread)


# Incoming tasks: what a client takes out of a task queue by hand.

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
        no_reply: its result is not awaited.
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
            self.state = PENDING  # The client that took it decided not to process it.
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


# Listed tasks: every unfinished task of a queue, looked at without taking it.

_UNFINISHED = [state for state in State if state not in ENDED]


class ListedTask:
    """A task that is waiting, or that a worker holds.

    Attributes:
        id: its id.
        body: what it is about.
        no_reply: its result is not awaited.
    """

    def __init__(self, app: Jackalope, thread: LoopThread, task: TaskId, envelope: Any) -> None:
        self._app = app
        self._thread = thread
        self.id = task
        self.body, self.no_reply = envelope

    @contextmanager
    def processing(self) -> Iterator[kiwipy.Future]:
        """Decide about it in place of a worker: if the outcome is set, the task is ended.

        One that a worker holds is ended when that worker agrees, or is lost.
        """
        outcome = kiwipy.Future()
        yield outcome
        if outcome.done() and not outcome.cancelled():
            self._thread.wait_for(self._app.act("kill", [self.id]))


def listed_tasks(app: Jackalope, queue: Queue, thread: LoopThread) -> Iterator[ListedTask]:
    """Yield the unfinished tasks of a queue, the oldest first."""
    for task in thread.wait_for(_ids(app, queue.name)):
        view = thread.wait_for(_find(app, task))
        if view is not None and view.state not in ENDED and view.payload is not None:
            yield ListedTask(app, thread, task, queue.open(view.payload))


async def _ids(app: Jackalope, queue: str) -> list[TaskId]:
    views = app.tasks(sort="created", queue=queue, states=_UNFINISHED)
    return [view.id async for view in views]


async def _find(app: Jackalope, task: TaskId) -> TaskView | None:
    try:
        return await app.find(task, with_bodies=True)
    except Rejected as error:
        if error.code != Code.UNKNOWN_TASK:
            raise
        return None  # It ended, and is forgotten.
