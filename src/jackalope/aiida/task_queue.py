"""A task queue by its name, as kiwipy hands it out. May be used from any thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import kiwipy

from jackalope.aiida.incoming import PENDING, IncomingTask
from jackalope.aiida.tasks import Queue
from jackalope.aiida.thread import LoopThread

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
