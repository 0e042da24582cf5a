"""Units of the core's time: whole microseconds, as durations or since the Unix epoch.

Names end in `_us`. The core never reads a clock; these are only the numbers it counts in, and how
people write them.
"""

import re

MILLISECOND = 1_000
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

#: A date that no timer reaches; `forever` for retention.
NEVER = 2**62

FOREVER = "forever"

_UNITS = {"us": 1, "ms": MILLISECOND, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d)?\s*")


def parse_duration(value: object) -> int:
    """Parse a duration into microseconds: "30s", "5m", "1h30m", "100ms", "forever" or seconds."""
    text = str(value).strip().lower()
    if text == FOREVER:
        return NEVER
    parts = _DURATION.findall(text)
    is_whole = bool(parts) and not _DURATION.sub("", text) and not isinstance(value, bool)
    if not is_whole or (len(parts) > 1 and not all(unit for _, unit in parts)):
        raise ValueError(f"{value!r} is not a duration; write 100ms, 30s, 5m, 2h, 7d or seconds")
    return sum(round(float(number) * _UNITS[unit or "s"]) for number, unit in parts)


def format_duration(duration_us: int) -> str:
    """Format a duration so that `parse_duration` returns it exactly."""
    if duration_us >= NEVER:
        return FOREVER
    for unit, size in reversed(_UNITS.items()):
        if duration_us and duration_us % size == 0:
            return f"{duration_us // size}{unit}"
    return "0s"
