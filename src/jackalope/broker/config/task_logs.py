"""Settings of task logs: how much of what tasks print and log is kept, and for how long."""

from __future__ import annotations

from typing import Annotated

import msgspec

from jackalope.broker.config.listening import MEBIBYTE, about
from jackalope.core.durations import DAY, MINUTE
from jackalope.core.limits import LOG_LINE_BYTES_MAX


class TaskLogsConfig(msgspec.Struct, frozen=True):
    """What tasks print and log."""

    enabled: Annotated[bool, about("Keep what tasks print and log.")] = True
    retention_us: Annotated[
        int,
        about(
            "How long the lines of an attempt are kept after its last one. They are removed with "
            "their task in any case.",
            ge=MINUTE,
            le=3_650 * DAY,
        ),
    ] = 7 * DAY
    bytes_max: Annotated[
        int,
        about(
            "The maximum size of all lines. Beyond that, the attempts that wrote longest ago are "
            "removed.",
            ge=MEBIBYTE,
        ),
    ] = 1024 * MEBIBYTE
    attempt_bytes_max: Annotated[
        int,
        about(
            "The maximum size of the lines of an attempt. Beyond that, its oldest lines are "
            "dropped, and counted.",
            ge=64 * 1024,
            le=1024 * MEBIBYTE,
        ),
    ] = 4 * MEBIBYTE
    line_bytes_max: Annotated[
        int,
        about(
            "The maximum size of a line; the rest of it is cut off.", ge=256, le=LOG_LINE_BYTES_MAX
        ),
    ] = 16 * 1024
    lines_per_s: Annotated[
        int,
        about(
            "How many lines a second an attempt may send on average; more are dropped, and "
            "counted.",
            ge=1,
            le=1_000_000,
        ),
    ] = 2_000
    bytes_per_s: Annotated[
        int, about("How many bytes of lines a second an attempt may send on average.", ge=1024)
    ] = MEBIBYTE
