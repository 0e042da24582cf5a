"""Paces: how submits of the same kind are spread over time.

Owns the shape of a pace, its words and what is wrong with one by itself. What a submit with a pace
comes to is the matter of `core.pacing`. Two tasks are of the same kind if they have the same queue,
the same name and the same key of their pace.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from jackalope.core.durations import format_duration
from jackalope.core.ids import TaskId
from jackalope.core.limits import NAME_CHARS_MAX, TIME_US_MAX

#: The event in the history of a task when later submits took its place.
REPLACED = "replaced"


class Pacing(StrEnum):
    """What to do with a submit of the same kind as an earlier one."""

    DEBOUNCE = "debounce"  # wait until no more come; the latest arguments are run
    THROTTLE = "throttle"  # accept one in a span of time
    REPLACE = "replace"  # take the place of what is queued


class Pace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How a task is spread over time."""

    how: Pacing
    key: str = ""  # what tells tasks of one queue and name apart
    span_us: int = 0  # how long no more may come, or how long one is accepted for
    at_most_us: int = 0  # of a debounce, how long after the first it runs at most; 0 for any time
    drops: bool = False  # of a throttle: what is too much is dropped, and not refused

    def kind(self, name: str) -> Kind:
        """Return the kind of a task of this name."""
        return (self.how, name, self.key)

    def due_us(self, first_us: int, now_us: int) -> int:
        """Return when a debounced task is due, whose first submit came then and whose last now."""
        due_us = now_us + self.span_us
        return min(due_us, first_us + self.at_most_us) if self.at_most_us else due_us


#: What tells kinds of tasks apart in a queue: the pacing, the name of the task, and the key.
Kind = tuple[Pacing, str, str]


class Throttled(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A task that was accepted, and until when no other of its kind is."""

    namespace: str
    queue: str
    name: str
    key: str
    task: TaskId
    until_us: int


def throttle_name(queue: str, name: str, key: str) -> str:
    """Return what a throttled kind is known by in its namespace."""
    return msgspec.json.encode((queue, name, key)).decode()


def pace_problems(pace: Pace) -> list[str]:
    """List what is wrong with a pace."""
    how, span_us, at_most_us = pace.how, pace.span_us, pace.at_most_us
    problems = []
    if len(pace.key) > NAME_CHARS_MAX:
        problems.append(f"{how}: key: longer than {NAME_CHARS_MAX} characters")
    if how is Pacing.REPLACE and span_us:
        problems.append(f"{how}: has no span of time")
    elif how is not Pacing.REPLACE and not 0 < span_us <= TIME_US_MAX:
        problems.append(f"{how}: span: must be more than 0 and at most {TIME_US_MAX} us")
    if at_most_us and how is not Pacing.DEBOUNCE:
        problems.append(f"{how}: at_most: is for debounce")
    elif not 0 <= at_most_us <= TIME_US_MAX:
        problems.append(f"{how}: at_most: must be 0 to {TIME_US_MAX} us")
    elif 0 < at_most_us < span_us <= TIME_US_MAX:
        least = format_duration(span_us)
        problems.append(f"{how}: at_most: must be at least as long as the span, {least}")
    if pace.drops and how is not Pacing.THROTTLE:
        problems.append(f"{how}: drop: is for throttle")
    return problems
