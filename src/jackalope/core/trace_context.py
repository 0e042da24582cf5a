"""The trace context of a task: the headers that name the trace it belongs to.

Owns the names, which are those of the W3C's Trace Context. The broker hands them on untouched. They
identify the caller, not the request: a submit that is repeated within another span is the same.
"""

import msgspec

from jackalope.core.task import Options

#: The trace, and the span within it that submitted the task.
TRACE_PARENT = "traceparent"

#: What the makers of traces add to it.
TRACE_STATE = "tracestate"

TRACE_HEADERS = (TRACE_PARENT, TRACE_STATE)


def is_same_but_for_trace(one: Options, other: Options) -> bool:
    """Return whether two tasks ask for the same, whatever traces they belong to."""
    return one == other or _without_trace(one) == _without_trace(other)


def _without_trace(options: Options) -> Options:
    headers = {name: value for name, value in options.headers.items() if name not in TRACE_HEADERS}
    return msgspec.structs.replace(options, headers=headers)
