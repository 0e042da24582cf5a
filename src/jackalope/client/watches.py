"""Watches: who waits for the end of which task.

Owns the futures. The broker pushes the end of a watched task once; whoever still waits when a
connection is lost is registered again over the next one, and told at once if the end came
meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any

from jackalope.client.outbox import copy_of
from jackalope.core.effects import TaskEnded
from jackalope.core.ids import TaskId
from jackalope.link.answers import refusals
from jackalope.link.connection import Connection
from jackalope.link.errors import ConnectionLost, JackalopeError
from jackalope.wire.messages import Ended, Watch

#: Small enough for the smallest frame that a broker can be told to take.
TASKS_PER_FRAME = 2_000

_NONE: frozenset[TaskId] = frozenset()


class Watches:
    """Futures of the ends of tasks."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._futures: dict[TaskId, list[asyncio.Future[TaskEnded]]] = {}
        self._new: list[TaskId] = []

    def add(self, task_id: TaskId, *, is_asked: bool = False) -> asyncio.Future[TaskEnded]:
        """Wait for the end of a task.

        Args:
            task_id: the task.
            is_asked: the broker is asked with the submit of the task, not from here.
        """
        future: asyncio.Future[TaskEnded] = self._loop.create_future()
        waiting = self._futures.get(task_id)
        if waiting is not None:
            waiting.append(future)
            return future
        self._futures[task_id] = [future]
        if not is_asked and self._connection is not None:
            if not self._new:
                self._loop.call_soon(self._ask_new)
            self._new.append(task_id)
        return future

    def discard(self, task_id: TaskId, future: asyncio.Future[TaskEnded]) -> None:
        """Stop waiting. The broker may still tell the end; then nobody listens."""
        waiting = self._futures.get(task_id)
        if waiting is not None and future in waiting:
            waiting.remove(future)
            if not waiting:
                del self._futures[task_id]
        if not future.cancel() and not future.cancelled():
            future.exception()  # Nobody will ask for it; that is no oversight.

    @property
    def is_empty(self) -> bool:
        """Tell whether nobody waits."""
        return not self._futures

    def connected(self, connection: Connection, but: AbstractSet[TaskId] = _NONE) -> None:
        """Register everybody who waits, but for tasks that the outbox asks for."""
        self._connection = connection
        self._new = []
        self.ask(connection, [task_id for task_id in self._futures if task_id not in but])

    def lost(self) -> None:
        """Ask for nothing until there is another connection."""
        self._connection = None
        self._new = []

    def fail(self, error: JackalopeError) -> None:
        """Give up everything: there will be no connection."""
        for task_id in list(self._futures):
            self._refuse(task_id, error)

    def ask(self, connection: Connection, task_ids: list[TaskId]) -> None:
        """Ask the broker for the ends of these tasks."""
        for begin in range(0, len(task_ids), TASKS_PER_FRAME):
            self._ask(connection, tuple(task_ids[begin : begin + TASKS_PER_FRAME]))

    def ended(self, message: Ended) -> None:
        """Tell whoever waits."""
        for end in message.tasks:
            for future in self._futures.pop(end.task, ()):
                if not future.done():
                    future.set_result(end)

    def _ask_new(self) -> None:
        new, self._new = self._new, []
        if self._connection is not None:
            self.ask(self._connection, new)

    def _ask(self, connection: Connection, task_ids: tuple[TaskId, ...]) -> None:
        def answered(body: Any, error: JackalopeError | None) -> None:
            if isinstance(error, ConnectionLost):
                return  # Asked again over the next connection.
            if error is not None:
                self._refuse_all(task_ids, error)
                return
            for index, refusal in refusals(body).items():
                self._refuse(task_ids[index], refusal)

        connection.ask(Watch(0, task_ids), answered)

    def _refuse_all(self, task_ids: Iterable[TaskId], error: JackalopeError) -> None:
        for task_id in task_ids:
            self._refuse(task_id, error)

    def _refuse(self, task_id: TaskId, error: JackalopeError) -> None:
        for future in self._futures.pop(task_id, ()):
            if not future.done():
                future.set_exception(copy_of(error))
