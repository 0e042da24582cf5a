"""Option checks: which values a user may pass, by kind.

Owns the rules for single values. Each function returns the value as the wire takes it, of exactly
the built-in type that the protocol names, or raises `ConfigError` with what it must be. So nothing
of a wrong type gets as far as a frame, and a value that changes later does not change what is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import PurePath
from typing import Any, TypeVar

import msgspec

from jackalope.core.durations import SECOND
from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.limits import HEADERS_BYTES_MAX, NAME_CHARS_MAX, TIME_US_MAX
from jackalope.errors import ConfigError, kind_of, shown
from jackalope.task_ids import to_task_id
from jackalope.tasks.serialization import CONTENTS

T = TypeVar("T")

Seconds = float | timedelta

_SECONDS_MAX = TIME_US_MAX // SECOND
_TOKEN_CHARS_MAX = 10_000
_PATH_CHARS_MAX = 10_000

_encode_headers = msgspec.msgpack.Encoder().encode
_decode_headers = msgspec.msgpack.Decoder(dict[str, Any]).decode


def one_of(what: str, check: Callable[[Any], T], value: object) -> T:
    """Check a value that has a name, which the error then says."""
    try:
        return check(value)
    except ConfigError as error:
        raise ConfigError(f"{what}: {error}") from None


def text(value: object, chars_max: int = NAME_CHARS_MAX, *, chars_min: int = 0) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise ConfigError(f"must be text, not {kind_of(value)}")
    plain = str.__str__(value)  # Of a subclass, which has no encoding.
    if not chars_min <= len(plain) <= chars_max:
        raise ConfigError(f"must have {chars_min} to {chars_max} characters, not {len(plain)}")
    try:
        plain.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{shown(plain)} is no text: it has half a surrogate pair") from None
    return plain


def token(value: object) -> str:
    """Return a token, which is empty for none. Raises as `text` does."""
    return text(value, _TOKEN_CHARS_MAX)


def file(value: object) -> str:
    """Return the path of a file."""
    return text(str(value) if isinstance(value, PurePath) else value, _PATH_CHARS_MAX)


def content(value: object) -> str:
    """Return the name of an encoding. Raises as `word` does."""
    return word(value, CONTENTS)


def name(value: object) -> str:
    """Return a text that must not be empty. Raises as `text` does."""
    return text(value, chars_min=1)


def whole(value: object, least: int, most: int) -> int:
    """Return a whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"must be a whole number, not {kind_of(value)}")
    if not least <= value <= most:
        raise ConfigError(f"{least} to {most}, got {shown(value)}")
    return int(value)


def number(value: object, least: float, most: float) -> float:
    """Return a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"must be a number, not {kind_of(value)}")
    if not least <= value <= most:
        raise ConfigError(f"{least:g} to {most:g}, got {shown(value)}")
    return float(value)


def flag(value: object) -> bool:
    """Return a truth value."""
    if not isinstance(value, bool):
        raise ConfigError(f"must be True or False, not {kind_of(value)}")
    return value


def word(value: object, words: tuple[str, ...]) -> str:
    """Return one of a few words."""
    if not isinstance(value, str) or value not in words:
        known = " or ".join(words) if len(words) == 2 else f"one of {', '.join(words)}"
        raise ConfigError(f"{known}, not {shown(value)}")
    return str.__str__(value)


def duration_us(value: object) -> int:
    """Return a duration, given in seconds or as a `timedelta`, in microseconds."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"must be seconds or a timedelta, not {kind_of(value)}")
    if value < 0:
        raise ConfigError(f"must not be negative, got {shown(value)}")
    if not value <= _SECONDS_MAX:  # Not a number is not less either.
        raise ConfigError(f"must be at most {_SECONDS_MAX} seconds, got {shown(value)}")
    return round(value * SECOND)


def wait_s(value: object) -> float | None:
    """Return how many seconds to wait; None, or without end, is as long as it takes."""
    if value is None:
        return None
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # noqa: PLR0124  not a number
        raise ConfigError(f"timeout: must be seconds, a timedelta or None, not {shown(value)}")
    if value > _SECONDS_MAX:
        return None
    return float(value) if value > 0 else 0.0


def moment_us(value: object) -> int:
    """Return a moment in microseconds."""
    if not isinstance(value, datetime):
        raise ConfigError(f"must be a datetime, not {kind_of(value)}")
    if value.utcoffset() is None:
        raise ConfigError(f"{value} does not say its time zone; use datetime.now(UTC)")
    moment = round(value.timestamp() * SECOND)
    if not 0 <= moment <= TIME_US_MAX:
        raise ConfigError(f"{value} is before 1970")
    return moment


def task(value: object) -> TaskId:
    """Return the id of a task that may be left out: a handle, an id, or nothing."""
    is_left_out = value is None or (isinstance(value, str | bytes) and not value)
    return NO_TASK if is_left_out else to_task_id(value)


def exceptions(value: object) -> tuple[type[Exception], ...]:
    """Return types of exceptions: one, several, or none."""
    several = (value,) if isinstance(value, type) else value
    if not isinstance(several, tuple | list) or not all(
        isinstance(each, type) and issubclass(each, Exception) for each in several
    ):
        raise ConfigError("a type of exception, or a tuple of them")
    return tuple(several)


def several(value: object, check: Callable[[Any], T], what: str, most: int) -> tuple[T, ...]:
    """Return a list whose items are checked one by one; nothing is an empty one."""
    if value is None:
        return ()
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ConfigError(f"several {what}, not one: a list, not {kind_of(value)}")
    items = tuple(map(check, value))
    if len(items) > most:
        raise ConfigError(f"at most {most}, got {len(items)}")
    return items


def headers(value: object) -> dict[str, Any]:
    """Return headers as a worker will get them; nothing is none."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"must be a mapping, not {kind_of(value)}")
    try:
        encoded = _encode_headers(dict(value))
        plain = _decode_headers(encoded)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ConfigError(f"must map text to plain values: {error}") from None
    if len(encoded) > HEADERS_BYTES_MAX:
        raise ConfigError(f"{len(encoded)} bytes encoded; at most {HEADERS_BYTES_MAX}")
    return plain
