"""Listed tasks: every unfinished task of a queue, looked at without taking it.

Owns what may be done with one from outside: read it, or end it. May be used from any thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import kiwipy

from jackalope.aiida.tasks import Queue
from jackalope.aiida.thread import LoopThread
from jackalope.client.app import Jackalope
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import ENDED, State
from jackalope.core.refusals import Code
from jackalope.link.errors import Rejected
from jackalope.wire.views import TaskView

_UNFINISHED = [state for state in State if state not in ENDED]


class ListedTask:
    """A task that is waiting, or that a worker holds.

    Attributes:
        id: its id.
        body: what it is about.
        no_reply: nobody waits for its result.
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
