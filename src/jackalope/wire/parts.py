"""Parts: how a piece of an answer travels to the caller who reads it as a stream.

Owns which broadcast carries it and what is in it, for both ends: the number of the part among those
of its attempt, from 0, and its value.
"""

from __future__ import annotations

from jackalope.core.ids import TaskId


def subject_of(task: TaskId) -> str:
    """Return the subject of the broadcasts that carry the parts of the answer to a task."""
    return f"jackalope.answer.{task.hex()}"
