"""Values: how times, ids, words and free values stand in messages, and back.

Owns the rules that all messages share. A value that cannot be meant raises `BadField` with the path
of its field; a value that is not set is the core's own word for that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, Generic, TypeVar

import msgspec
from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

from jackalope.core.commands import Held
from jackalope.core.durations import NEVER, SECOND
from jackalope.core.ids import NO_TASK, TaskId, as_task_id, id_text
from jackalope.core.limits import TIME_US_MAX
from jackalope.core.refusals import Code, QuotaRefusal, Refusal
from jackalope.core.settings import as_data, keys_of
from jackalope.core.values import shape_problem
from jackalope.doors.grpc.errors import BadField
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb

E = TypeVar("E", bound=StrEnum)
M = TypeVar("M")

_NANOS = 1_000_000_000
#: The last second that a Timestamp has, and the longest Duration: 10,000 years.
_SECONDS_LAST = 253_402_300_799
_SECONDS_LONGEST = 315_576_000_000

_NOT_AN_ID = "must be a UUID, such as the one that a submit returned"


# Words.


class Words(Generic[E]):
    """The words of the core, and the numbers of an enum that stand for them.

    A word that the contract does not have yet is shown as unspecified.
    """

    def __init__(self, enum: Any, words: type[E]) -> None:
        prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.DESCRIPTOR.name).upper()
        known = enum.DESCRIPTOR.values_by_name
        names = {word: f"{prefix}_{word.name}" for word in words}
        self._numbers = {word: known[name].number for word, name in names.items() if name in known}
        self._words = {number: word for word, number in self._numbers.items()}
        self._names = ", ".join(names[word] for word in self._numbers)

    def number(self, word: E | str | None) -> Any:
        return self._numbers.get(word, 0) if word else 0  # type: ignore[call-overload]

    def word(self, number: int, field: str) -> E | None:
        """Return the word of a number; None if it is not set."""
        if not number:
            return None
        found = self._words.get(number)
        if found is None:
            raise BadField(field, f"unknown value {number}; use {self._names}")
        return found

    def required(self, number: int, field: str) -> E:
        found = self.word(number, field)
        if found is None:
            raise BadField(field, f"must be set; use {self._names}")
        return found

    def reader(self, field: str) -> Callable[[Any], E]:
        """Return what reads the word of a field of a message, which must be set."""
        return lambda message: self.required(getattr(message, field), field)

    def each(self, numbers: Iterable[int], field: str) -> tuple[E, ...]:
        return tuple(
            self.required(number, f"{field}[{place}]") for place, number in enumerate(numbers)
        )


# Ids.


def id_of(text: str, field: str) -> TaskId:
    found = as_task_id(text)
    if found is None:
        raise BadField(field, f"{_NOT_AN_ID}, got {text[:64]!r}" if text else _NOT_AN_ID)
    return found


def maybe_id(text: str, field: str) -> TaskId:
    return id_of(text, field) if text else NO_TASK


def ids_of(texts: Iterable[str], field: str) -> tuple[TaskId, ...]:
    return tuple(id_of(text, f"{field}[{number}]") for number, text in enumerate(texts))


def held_of(attempts: Iterable[pb.Attempt], field: str) -> list[Held]:
    return [
        Held(id_of(each.task_id, f"{field}[{number}].task_id"), fence_of(each.fence, field))
        for number, each in enumerate(attempts)
    ]


def fence_of(fence: int, field: str) -> int:
    if fence > TIME_US_MAX:
        raise BadField(f"{field}.fence", f"must be at most {TIME_US_MAX}")
    return fence


def attempts_shown(held: Iterable[Held]) -> list[pb.Attempt]:
    return [pb.Attempt(task_id=id_text(each.task), fence=each.fence) for each in held]


# Times.


def to_time(at_us: int) -> Timestamp | None:
    """Show a time; None for what has not happened, or never will."""
    seconds, rest = divmod(at_us, SECOND)
    if at_us <= 0 or seconds > _SECONDS_LAST:
        return None
    return Timestamp(seconds=seconds, nanos=rest * 1_000)


def from_time(message: Any, field: str) -> int:
    """Return the time of a field in microseconds; 0 if it is not set."""
    return time_of(getattr(message, field), field) if message.HasField(field) else 0


def time_of(at: Timestamp, field: str) -> int:
    if not 0 <= at.nanos < _NANOS or at.seconds > _SECONDS_LAST:
        raise BadField(field, "is not a time: nanos are 0 to 999,999,999, years end at 9999")
    at_us: int = at.seconds * SECOND + at.nanos // 1_000
    return max(1, at_us)


def to_duration(duration_us: int) -> Duration:
    seconds, rest = divmod(duration_us, SECOND)
    if seconds >= _SECONDS_LONGEST:
        return Duration(seconds=_SECONDS_LONGEST)
    return Duration(seconds=seconds, nanos=rest * 1_000)


def from_duration(message: Any, field: str, default_us: int = 0) -> int:
    """Return the duration of a field in microseconds; the default if it is not set."""
    if not message.HasField(field):
        return default_us
    given = getattr(message, field)
    if given.seconds < 0 or not 0 <= given.nanos < _NANOS:
        raise BadField(field, "must not be negative, with nanos from 0 to 999,999,999")
    if given.seconds >= _SECONDS_LONGEST:
        return NEVER
    duration_us: int = given.seconds * SECOND + given.nanos // 1_000
    return duration_us


# Settings: a message with the fields of a struct, of which those that are set are to change.


def changes_in(
    given: Any, shape: type[msgspec.Struct], readers: Mapping[str, Callable[[Any], object]]
) -> dict[str, object]:
    """Return the settings that are set, as the core takes them, which checks them.

    `readers` are for fields that are neither as in the core nor durations, by key.
    """
    changes: dict[str, object] = {}
    for key, field in keys_of(shape).items():
        if not given.HasField(key):
            continue
        if field.name.endswith("_us"):
            changes[field.name] = from_duration(given, key)
        else:
            changes[key] = as_data(readers[key](given) if key in readers else getattr(given, key))
    return changes


def shown_as(
    message: type[M], settings: msgspec.Struct, writers: Mapping[str, Callable[[Any], Any]]
) -> M:
    """Return settings as a message. `writers` are by key, as the readers of `changes_in`."""
    values: dict[str, Any] = {}
    for key, field in keys_of(type(settings)).items():
        value = getattr(settings, field.name)
        if field.name.endswith("_us"):
            values[key] = to_duration(value)
        else:
            values[key] = writers[key](value) if key in writers else value
    return message(**values)


# Free values.


def to_struct(values: dict[str, Any]) -> Struct | None:
    """Show free values as JSON would: bytes in base64, times as text."""
    if not values:
        return None
    struct = Struct()
    struct.update(msgspec.json.decode(msgspec.json.encode(values)))
    return struct


def from_struct(struct: Struct, field: str) -> dict[str, Any]:
    values = {name: _plain(value) for name, value in struct.fields.items()}
    if problem := shape_problem(values):
        raise BadField(field, problem)
    return values


def from_value(value: Value, field: str) -> Any:
    plain = _plain(value)
    if problem := shape_problem({"value": plain}):
        raise BadField(field, problem)
    return plain


def _plain(value: Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() and abs(number) < 2**53 else number
    if kind == "struct_value":
        return {name: _plain(each) for name, each in value.struct_value.fields.items()}
    if kind == "list_value":
        return [_plain(each) for each in value.list_value.values]
    return None if kind in (None, "null_value") else getattr(value, kind)


# Refusals.

_CODES = Words(pb.RefusalCode, Code)


def refusal_shown(refusal: Refusal) -> pb.Refusal:
    wait_us = refusal.retry_after_us
    return pb.Refusal(
        code=_CODES.number(refusal.code),
        message=refusal.message,
        retry_after=to_duration(wait_us) if wait_us else None,
        quota=refusal.quota if isinstance(refusal, QuotaRefusal) else "",
        limit=refusal.limit if isinstance(refusal, QuotaRefusal) else 0,
        used=refusal.used if isinstance(refusal, QuotaRefusal) else 0,
    )


def refused_shown(refused: Iterable[tuple[int, Refusal]]) -> list[pb.RefusedItem]:
    return [pb.RefusedItem(index=index, refusal=refusal_shown(why)) for index, why in refused]
