"""Watches: who waits for the end of which task, and who follows its progress.

Owns the waiters and the followers. The broker pushes the end of a watched task once; a waiter that
is left when a connection is lost is registered again over the next one, and notified at once if
the end came meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Any

from jackalope.client.session.outbox import copy_of
from jackalope.core.commands import WatchTasks
from jackalope.core.effects import TaskEnded, TaskProgressed
from jackalope.core.ids import TaskId
from jackalope.errors import ConnectionLost, JackalopeError, refusals
from jackalope.transport.connection import Connection
from jackalope.wire.messages import Ended
from jackalope.wire.views import ProgressView

#: Small enough for the smallest frame that a broker can be told to take.
TASKS_PER_FRAME = 2_000

_NONE: frozenset[TaskId] = frozenset()

#: Hears how far a task has come.
Follower = Callable[[ProgressView], None]


class Ends:
    """The ends of many tasks, waited for together.

    Stands where a future for each of them would, at a fraction of the cost: the waiter is woken
    once for all that came meanwhile.
    """

    __slots__ = ("_error", "_news", "came")

    def __init__(self) -> None:
        self.came: deque[TaskEnded] = deque()  # those that were not taken yet
        self._error: BaseException | None = None
        self._news: asyncio.Future[None] | None = None

    def done(self) -> bool:
        """Tell that more can come."""
        return False

    def set_result(self, end: TaskEnded) -> None:
        """Take the end of one of the tasks."""
        self.came.append(end)
        self._wake()

    def set_exception(self, error: BaseException) -> None:
        """Take the reason why the end of one of the tasks will not come."""
        self._error = error
        self._wake()

    async def wait(self) -> None:
        """Return when there is an end to take."""
        while not self.came:
            if self._error is not None:
                raise self._error
            self._news = asyncio.get_running_loop().create_future()
            await self._news

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


#: Who hears of the end of a task.
Waiter = asyncio.Future[TaskEnded] | Ends


class Watches:
    """Those who wait for the ends of tasks, and followers on the way there."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._waiting: dict[TaskId, list[Waiter]] = {}
        self._followers: dict[TaskId, list[Follower]] = {}
        self._new: list[TaskId] = []

    def add(self, task_id: TaskId, *, is_asked: bool = False) -> asyncio.Future[TaskEnded]:
        """Wait for the end of a task.

        Args:
            task_id: the task.
            is_asked: the broker is asked with the submit of the task, not from here.
        """
        future: asyncio.Future[TaskEnded] = self._loop.create_future()
        waiting = self._waiting.get(task_id)
        if waiting is not None:
            waiting.append(future)
            return future
        self._waiting[task_id] = [future]
        if not is_asked:
            self._ask_soon(task_id)
        return future

    def add_many(self, task_ids: Iterable[TaskId], ends: Ends) -> None:
        """Wait for the ends of tasks, each named once."""
        for task_id in task_ids:
            waiting = self._waiting.get(task_id)
            if waiting is not None:
                waiting.append(ends)
            else:
                self._waiting[task_id] = [ends]
                self._ask_soon(task_id)

    def discard(self, task_id: TaskId, waiter: Waiter) -> None:
        """Stop waiting. If the broker still reports the end, it is ignored."""
        waiting = self._waiting.get(task_id)
        if waiting is not None and waiter in waiting:
            waiting.remove(waiter)
            if not waiting:
                del self._waiting[task_id]
        if isinstance(waiter, Ends):
            return
        if not waiter.cancel() and not waiter.cancelled():
            waiter.exception()  # Retrieved on purpose: no caller waits for it.

    def follow(self, task_id: TaskId, follower: Follower) -> None:
        """Hear how far a task comes, beginning with what is known, as long as its end is awaited.

        A follower may hear the same twice, when another one joins or the connection was lost.
        """
        self._followers.setdefault(task_id, []).append(follower)
        if task_id in self._waiting:
            self._ask_soon(task_id)  # It was asked for before, without its progress.

    def unfollow(self, task_id: TaskId, follower: Follower) -> None:
        """Stop receiving, and unsubscribe at the broker if this was the last one."""
        followers = self._followers.get(task_id)
        if followers is not None:
            followers.remove(follower)
            if not followers:
                del self._followers[task_id]
                self._ask_soon(task_id)

    @property
    def is_empty(self) -> bool:
        """Return whether there is no waiter."""
        return not self._waiting

    def connected(self, connection: Connection, but: AbstractSet[TaskId] = _NONE) -> None:
        """Register everybody who waits, but for tasks that the outbox asks for."""
        self._connection = connection
        self._new = []
        self.ask(connection, [task_id for task_id in self._waiting if task_id not in but])

    def lost(self) -> None:
        """Ask for nothing until there is another connection."""
        self._connection = None
        self._new = []

    def fail(self, error: JackalopeError) -> None:
        """Give up everything: there will be no connection."""
        for task_id in list(self._waiting):
            self._refuse(task_id, error)

    def ask(self, connection: Connection, task_ids: list[TaskId]) -> None:
        """Ask the broker for the ends of these tasks, and for the progress of some."""
        followed = [task_id for task_id in task_ids if task_id in self._followers]
        if followed:
            task_ids = [task_id for task_id in task_ids if task_id not in self._followers]
        for wanted in (task_ids, followed):
            for begin in range(0, len(wanted), TASKS_PER_FRAME):
                part = tuple(wanted[begin : begin + TASKS_PER_FRAME])
                self._ask(connection, part, progress=wanted is followed)

    def progressed(self, message: TaskProgressed) -> None:
        """Notify the followers."""
        step = ProgressView(message.at_us, message.percent, message.note)
        for follower in list(self._followers.get(message.task, ())):
            follower(step)

    def ended(self, message: Ended) -> None:
        """Notify the waiters."""
        for end in message.tasks:
            if self._followers:
                self._followers.pop(end.task, None)
            for waiter in self._waiting.pop(end.task, ()):
                if not waiter.done():
                    waiter.set_result(end)

    def _ask_soon(self, task_id: TaskId) -> None:
        """Ask together with whatever else comes up in this iteration of the loop."""
        if self._connection is not None:
            if not self._new:
                self._loop.call_soon(self._ask_new)
            self._new.append(task_id)

    def _ask_new(self) -> None:
        new, self._new = self._new, []
        if self._connection is not None:
            self.ask(self._connection, new)

    def _ask(self, connection: Connection, task_ids: tuple[TaskId, ...], *, progress: bool) -> None:
        def answered(body: Any, error: JackalopeError | None) -> None:
            if isinstance(error, ConnectionLost):
                return  # Asked again over the next connection.
            if error is not None:
                self._refuse_all(task_ids, error)
                return
            for index, refusal in refusals(body).items():
                self._refuse(task_ids[index], refusal)

        connection.ask(WatchTasks(0, task_ids, progress), answered)

    def _refuse_all(self, task_ids: Iterable[TaskId], error: JackalopeError) -> None:
        for task_id in task_ids:
            self._refuse(task_id, error)

    def _refuse(self, task_id: TaskId, error: JackalopeError) -> None:
        self._followers.pop(task_id, None)
        for waiter in self._waiting.pop(task_id, ()):
            if not waiter.done():
                waiter.set_exception(copy_of(error))
