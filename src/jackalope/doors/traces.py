"""Traces: a request that is part of one lets the tasks that it submits belong to it.

Owns what of a request is carried. Headers that cannot be a context are left out, as the W3C asks;
those that the task brings itself count first. Knows no protocol.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from jackalope.core.task import NO_OPTIONS, TRACE_PARENT, TRACE_STATE, TaskSpec

_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)

#: The minimum that the W3C requires everyone to accept.
_STATE_CHARS_MAX = 512


def carry_trace(specs: Iterable[TaskSpec], parent: str, state: str) -> None:
    """Let tasks belong to the trace of the request that submits them."""
    if not _PARENT.fullmatch(parent):
        return
    carried = {TRACE_PARENT: parent}
    if 0 < len(state) <= _STATE_CHARS_MAX:
        carried[TRACE_STATE] = state
    for spec in specs:
        options = spec.options or NO_OPTIONS
        if TRACE_PARENT not in options.headers:
            headers = {**options.headers, **carried}
            spec.options = msgspec.structs.replace(options, headers=headers)
