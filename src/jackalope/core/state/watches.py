"""Watches: the sessions to notify when a task ends, and of its progress until then.

Owns the waiting sessions and the last reports of progress. Volatile: a session that comes back
watches again, and is notified at once of what has ended meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from jackalope.core.ids import TaskId
from jackalope.core.limits import WATCHES_PER_TASK_MAX


class Progress(msgspec.Struct, frozen=True):
    """The progress of an attempt, as reported by its worker. Not durable."""

    fence: int
    at_us: int
    percent: float | None
    note: str


class Watches:
    """The sessions that watch each task, and whether they asked for its progress too."""

    def __init__(self) -> None:
        self.by_task: dict[TaskId, dict[int, bool]] = {}
        self._by_session: dict[int, dict[TaskId, None]] = {}

    def add(self, task_id: TaskId, session: int, *, progress: bool) -> None:
        """Add a watch. The session's latest choice about progress counts."""
        self.by_task.setdefault(task_id, {})[session] = progress
        self._by_session.setdefault(session, {})[task_id] = None

    def has_room(self, task_id: TaskId, session: int) -> bool:
        """Return whether a session may watch a task; true if it already does."""
        sessions = self.by_task.get(task_id, {})
        return len(sessions) < WATCHES_PER_TASK_MAX or session in sessions

    def take(self, task_id: TaskId) -> Iterable[int]:
        """Remove and return the sessions that watch a task."""
        sessions = self.by_task.pop(task_id, {})
        for session in sessions:
            watched = self._by_session[session]
            del watched[task_id]
            if not watched:
                del self._by_session[session]
        return sessions

    def forget_session(self, session: int) -> None:
        for task_id in self._by_session.pop(session, {}):
            sessions = self.by_task[task_id]
            del sessions[session]
            if not sessions:
                del self.by_task[task_id]
