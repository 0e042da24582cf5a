"""Units of the core's time: whole microseconds, as durations or since the Unix epoch.

Names end in `_us`. The core never reads a clock; these are only the numbers it counts in.
"""

MILLISECOND = 1_000
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

#: A date that no timer reaches; `forever` for retention.
NEVER = 2**62
