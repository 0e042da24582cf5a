"""Steps: what of a task is done for good, although the task itself is not.

Owns their shapes. A step that is done is not done again, whichever attempt comes to it; what a task
waits for between two attempts is stored here, and what was sent to it before it asked.
"""

from __future__ import annotations

import msgspec


class Step(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A step that is done."""

    index: int  # its place among the steps of the task, from 0
    name: str
    result: bytes = b""
    at_us: int = 0  # when it was done; of a sleep, when it is over
    took_us: int = 0
    is_late: bool = False  # it waited for an event, which did not come in time


class SentEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event that was sent to a task and is not waited for yet."""

    event: str
    data: bytes = b""
    at_us: int = 0
    by: str = ""


class Pending(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The step at which a task waits for an event, without a worker."""

    index: int
    name: str
    event: str
    until_us: int  # when it goes on without


class Steps(msgspec.Struct, array_like=True):
    """The steps of a task."""

    done: list[Step] = []
    pending: Pending | None = None
    events: list[SentEvent] = []
    size: int = 0  # bytes of all results and events

    def at(self, index: int) -> Step | None:
        """Return the step at a place, if it is done."""
        done = self.done
        if index < len(done) and done[index].index == index:
            return done[index]  # As it is unless several are done at once.
        return next((step for step in done if step.index == index), None)


def copy_of(steps: Steps) -> Steps:
    """Return steps that share nothing mutable with others."""
    return Steps(list(steps.done), steps.pending, list(steps.events), steps.size)
