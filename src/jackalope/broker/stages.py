"""The stages of an attempt: when its task was ready, assigned, started and ended.

Owns how that is told from the history of a task. A turn may have brought the task further already,
so the history is read up to the event that is asked about.
"""

from __future__ import annotations

from typing import NamedTuple

from jackalope.core.identity import JOINED
from jackalope.core.lifecycle import Event
from jackalope.core.task import Task


class Stages(NamedTuple):
    """When an attempt came to each stage; `started_us` is 0 if it never began."""

    ready_us: int
    assigned_us: int
    started_us: int
    ended_us: int


def stages_of(task: Task, event: Event, ended_us: int) -> Stages:
    """Return the stages of the attempt that ended with an event at this time."""
    assigned_us, started_us, has_ended = 0, 0, False
    for happened in reversed(task.history or ()):
        if not has_ended:
            has_ended = happened.what == event and happened.at_us == ended_us
        elif happened.what == Event.START:
            started_us = happened.at_us
        elif happened.what == Event.ASSIGN:
            assigned_us = happened.at_us
            break
    return Stages(ready_since(task, assigned_us), assigned_us, started_us, ended_us)


def ready_since(task: Task, assigned_us: int) -> int:
    """Return when the task became ready that was assigned at this time."""
    since_us = task.rank
    for happened in task.history or ():
        if happened.what == Event.ASSIGN and happened.at_us >= assigned_us:
            break
        if happened.what != JOINED:  # Being asked for changes nothing.
            since_us = max(since_us, happened.at_us)
    return min(since_us, assigned_us)
