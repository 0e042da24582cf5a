"""Formatting: how ids, times, sizes and values are written for people and scripts, and read back.

Owns the texts and the plain data. Knows nothing of terminals or of the broker. Of plain data every
field is there, so that scripts need not test for it. Task ids become UUIDs; payloads and results
are decoded as their header `content` specifies. Without it, those of a named task are what the
Python library sends, MessagePack; anything else is shown as text or base64.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import Enum
from itertools import pairwise, takewhile
from typing import Any
from uuid import UUID

import msgspec

from jackalope.core.policy import Policy
from jackalope.core.settings import shown
from jackalope.core.shapes.limit import LimitSettings
from jackalope.core.shapes.needs import format_amount, parse_amount
from jackalope.core.shapes.pool import PoolSettings
from jackalope.core.shapes.schedule import ScheduleSettings
from jackalope.core.values import shape_problem
from jackalope.terminal import visible
from jackalope.wire.views import DURATIONS, json_name

SECOND_US = 1_000_000

#: How much of an id has the millisecond of its making.
SHORT_ID_CHARS = 13

_STEPS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_LONG_AGO_S = 10 * 365 * 86_400
_LAST_US = 253_402_300_799 * SECOND_US


def now_us() -> int:
    return time.time_ns() // 1_000


def id_text(task_id: bytes) -> str:
    """Write a task id as a UUID; nothing for no task."""
    return str(UUID(bytes=bytes(task_id))) if len(task_id) == 16 else bytes(task_id).hex()


def short_ids(ids: Iterable[bytes]) -> dict[bytes, str]:
    """Shorten task ids to what tells these apart, and from tasks of other milliseconds.

    An id begins with the millisecond of its making. What is shown is a prefix, which commands take
    for the whole id.
    """
    whole = sorted({bytes(each): id_text(each) for each in ids}.items(), key=lambda pair: pair[1])
    texts = ["", *(text for _, text in whole), ""]
    shortened = {}
    for at, (task_id, text) in enumerate(whole, 1):
        alike = max(_alike(text, texts[beside]) for beside in (at - 1, at + 1))
        chars = max(SHORT_ID_CHARS, alike + 1)
        shortened[task_id] = text[: chars + (text[chars - 1 : chars] == "-")]
    return shortened


def _alike(one: str, other: str) -> int:
    """Return how many characters two texts have alike from their beginning."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return sum(1 for _ in same)


def parse_id(text: str) -> bytes | None:
    """Read a whole task id, as a UUID or in hex; None if it is none."""
    digits = text.replace("-", "")
    try:
        return bytes.fromhex(digits) if len(digits) == 32 else None
    except ValueError:
        return None


def span(duration_us: float) -> str:
    """Write a duration so that it is read at a glance: `340 ms`, `5 s`, `2 m 05 s`, `3 d 04 h`."""
    seconds = duration_us / SECOND_US
    if seconds >= _LONG_AGO_S:
        return "for ever"
    if seconds < 1:
        return f"{duration_us / 1_000:.0f} ms" if duration_us >= 1_000 else f"{duration_us:.0f} µs"
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 and seconds != whole else f"{whole} s"
    for (unit, length), (next_unit, next_length) in pairwise(_STEPS):
        if whole >= length:
            return f"{whole // length} {unit} {whole % length // next_length:02d} {next_unit}"
    return f"{whole} s"


def ago(at_us: int, base_us: int | None = None) -> str:
    """Write when something was or will be, seen from now; nothing if it has not happened."""
    if not at_us:
        return ""
    base_us = now_us() if base_us is None else base_us
    away_us = base_us - at_us
    if abs(away_us) < SECOND_US:
        return "now"
    return f"{span(away_us)} ago" if away_us > 0 else f"in {span(-away_us)}"


def age(at_us: int, base_us: int | None = None) -> str:
    """Write how long ago something was, in one unit: `5s`, `3m`, `2h`, `9d`; nothing if never."""
    if not at_us:
        return ""
    base_us = now_us() if base_us is None else base_us
    whole = abs(base_us - at_us) // SECOND_US
    for unit, length in _STEPS:
        if whole >= length:
            return f"{whole // length:,}{unit}"
    return "0s"


def utc(at_us: int) -> str:
    """Write a time as the broker does within a sentence."""
    return f"{datetime.fromtimestamp(at_us / SECOND_US, tz=UTC):%Y-%m-%dT%H:%M:%SZ}"


def clock(at_us: int) -> str:
    """Write a time of day in the zone of this machine, with the date unless it is today."""
    if not at_us:
        return ""
    at = datetime.fromtimestamp(at_us / SECOND_US, tz=UTC).astimezone()
    is_today = at.date() == datetime.now(tz=UTC).astimezone().date()
    return at.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S")


def parse_time(text: str) -> int:
    """Read a time as microseconds: `2030-01-31T08:00`, `2030-01-31 08:00+02:00` or `08:00`.

    Without a zone it is meant in that of this machine; without a date, the next such time.
    """
    now = datetime.now(tz=UTC).astimezone()
    try:
        if len(text) <= 8 and ":" in text:
            wanted = datetime.fromisoformat(f"{now.date().isoformat()}T{text}").astimezone()
            if wanted <= now:
                wanted = wanted.fromtimestamp(wanted.timestamp() + 86_400, tz=now.tzinfo)
        else:
            wanted = datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time; write 2030-01-31T08:00, with +02:00 for a zone, or 08:00"
        ) from None
    return round(wanted.timestamp() * SECOND_US)


def size(count: int) -> str:
    """Write a number of bytes."""
    if count < 1024:
        return f"{count} B"
    value, units = count / 1024, ["TiB", "GiB", "MiB", "KiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop()
    return f"{value:.1f} {units[-1]}"


def number(value: float) -> str:
    """Write a count or a rate with separators."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:,.1f}"


def amount_text(amount: float) -> str:
    """Return an amount of a resource as a user writes it."""
    return format_amount(parse_amount(amount))


def needs_text(wanted: Mapping[str, Any]) -> str:
    """Return amounts of resources and values of labels by name, as a user writes them."""
    return ", ".join(f"{name}={_need_text(value)}" for name, value in wanted.items())


def _need_text(value: Any) -> str:
    if isinstance(value, int | float):
        return amount_text(value)
    return value if isinstance(value, str) else "|".join(value)


def tally(counts: Mapping[Any, int], *states: str) -> int:
    """Add up the counts of some states."""
    return sum(counts.get(state, 0) for state in states)


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def setting(value: Any) -> str:
    """Write a setting as a file would say it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def brief(value: Any, chars_max: int) -> str:
    """Write a value on one line of at most so many characters."""
    text = visible(" ".join(str(value).split()))
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


# Plain data: values that JSON and YAML can hold.


_SETTINGS = (Policy, PoolSettings, ScheduleSettings, LimitSettings)
#: The settings that are times.
_MOMENTS = frozenset({"times", "start", "end"})
_IDS = frozenset({"id", "parent", "task", "waiting_for", "depends_on", "after"})
_BODIES = frozenset({"payload", "result"})

CONTENT = "content"


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "msgpack": msgspec.msgpack.decode,
    "json": msgspec.json.decode,
}


def to_plain(value: Any, content: str = "", *, is_raw: bool = False) -> Any:
    """Turn a view, or a list of views, into plain data. Its words are those of REST.

    Args:
        value: the view.
        content: the encoding of its bodies, if it does not say so itself.
        is_raw: leave numbers of microseconds as they are, as records have them.
    """
    if isinstance(value, _SETTINGS) and not is_raw:
        return _settings(value)
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.asdict(value)
        content = content_of(fields.get("headers"), fields.get("name")) or content
        return {
            name if is_raw else json_name(name): _field(name, field, content, is_raw=is_raw)
            for name, field in fields.items()
            if name not in _BODIES or field is not None
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(to_plain(key)): to_plain(each, is_raw=is_raw) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(each, is_raw=is_raw) for each in value]
    return decode_body(value, "") if isinstance(value, bytes) else value


def _field(name: str, value: Any, content: str, *, is_raw: bool) -> Any:
    if not is_raw and (name.endswith("_us") or name == "upcoming"):
        return _measured(name, value)
    if name in _IDS and not isinstance(value, str):
        if isinstance(value, list | tuple):
            return [id_text(each) for each in value]
        return id_text(value)
    if name in _BODIES:
        return decode_body(value, content)
    return value.hex() if name == "identity" else to_plain(value, is_raw=is_raw)


def _measured(name: str, value: Any) -> Any:
    """Write what Python has in microseconds: times as text, durations in seconds."""
    if isinstance(value, list | tuple):
        return [moment(each) for each in value]
    return value / SECOND_US or None if name in DURATIONS else moment(value)


def moment(at_us: int) -> str | None:
    """Write a time as JSON has it; None for what has not happened, or never will."""
    if not 0 < at_us <= _LAST_US:
        return None
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)
    return str(msgspec.to_builtins(at))


def _settings(settings: msgspec.Struct) -> dict[str, Any]:
    """Write settings as a file has them, durations as text; and moments as times."""
    fields = shown(settings)
    return {
        name: _measured(name, fields[name]) if name in _MOMENTS else to_plain(fields[name])
        for name in fields
    }


def content_of(headers: Mapping[str, Any] | None, name: str | None) -> str:
    """Return how the payload and the result of a task are encoded; empty if unknown."""
    return str((headers or {}).get(CONTENT) or ("msgpack" if name else ""))


def decode_body(body: bytes, content: str) -> Any:
    """Read a payload or a result; what cannot be shown stays text, or base64 behind its name."""
    decode = _DECODERS.get(content)
    if decode is not None:
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            value = decode(body)
            if not shape_problem(value):
                return to_plain(value)
    try:
        return body.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(body).decode()}
