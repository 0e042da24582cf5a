"""The words of the task API: five statuses for our states, times as text, and shared bounds.

Owns the translation both ways. Elsewhere in the door only our own words are used.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta

from jackalope.core.lifecycle import ENDED, LEASED, PENDING, State
from jackalope.core.limits import NAME_CHARS_MAX, TAG_CHARS_MAX, TIME_US_MAX

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_US = 253_402_300_799 * 1_000_000

BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
UUID = "^[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}$"

#: The longest that one request waits for something.
WAIT_S_MAX = 300

Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]
MaybeName = Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
Tag = Annotated[str, Meta(min_length=1, max_length=TAG_CHARS_MAX, pattern="^[^\\x00]+$")]
Id = Annotated[str, Meta(pattern=UUID)]
Identity = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Bytes = Annotated[bytes, Meta(extra_json_schema={"pattern": BASE64})]
Time = Annotated[datetime, Meta(tz=True)]
#: A duration as a person writes it: seconds, or a text.
DURATION = (
    Annotated[float, Meta(ge=0, le=10**12)]
    | Annotated[str, Meta(pattern="^([0-9]{1,6}(us|ms|s|m|h|d)){1,4}$")]
)
Priority = Annotated[int, Meta(ge=0, le=255)]
Count = Annotated[int, Meta(ge=0, le=10**9)]
Seconds = Annotated[float, Meta(ge=0, le=TIME_US_MAX / 1e6)]
Fence = Annotated[int, Meta(ge=1, le=TIME_US_MAX)]
Wait = Annotated[float, Meta(ge=0, le=WAIT_S_MAX, description="How many seconds to wait for it.")]


class Status(StrEnum):
    """Where a task stands, in the five words of the task API."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    DEAD_LETTER = "dead_letter"


#: The states that each status stands for. `failed` is a task that was killed: nothing else ends
#: without a success and without being dead.
STATES: dict[Status, tuple[State, ...]] = {
    Status.PENDING: tuple(sorted(PENDING)),
    Status.IN_PROGRESS: tuple(sorted(LEASED)),
    Status.COMPLETED: (State.SUCCEEDED,),
    Status.FAILED: (State.KILLED,),
    Status.DEAD_LETTER: (State.DEAD,),
}

STATUS: dict[State, Status] = {state: status for status in STATES for state in STATES[status]}

ENDED_STATES = ENDED


def to_time(at_us: int) -> datetime | None:
    """Show a time; None for what has not happened, or never will."""
    if not 0 < at_us <= _LAST_US:
        return None
    return _EPOCH + timedelta(microseconds=at_us)


def from_time(at: datetime | None) -> int:
    """Return a time in microseconds; 0 for none. What lies before 1970 is the beginning of time."""
    if at is None:
        return 0
    return max(1, (at - _EPOCH) // timedelta(microseconds=1))


def from_seconds(seconds: float | None) -> int:
    """Return a duration in microseconds."""
    return round((seconds or 0) * 1_000_000)


def about(text: str, **bounds: Any) -> Meta:
    """Say what a field means."""
    return Meta(description=text, **bounds)
