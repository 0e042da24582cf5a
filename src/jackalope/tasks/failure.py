"""Failures: an exception as the broker keeps it."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType

from jackalope.core.limits import ERROR_CHARS_MAX
from jackalope.core.task import Error

#: The longest name of a type; others are shortened.
TYPE_CHARS_MAX = 1_024
_CUT = "\n[...]\n"
#: Where the code of Jackalope itself is.
_HOUSE = f"{Path(__file__).parent.parent}/"


def error_of(exception: BaseException) -> Error:
    """Describe an exception: its type, its message and its traceback as text.

    The traceback begins where the task's own code does: how the worker came there helps nobody. A
    long one keeps its beginning and its end, which say where it began and what was raised.
    """
    return Error(
        type=_shorten(_type_name(type(exception)), TYPE_CHARS_MAX),
        message=_shorten(_message(exception)),
        trace=_shorten(_trace(exception)),
    )


def _type_name(kind: type[BaseException]) -> str:
    try:
        home, name = kind.__module__, kind.__qualname__
    except BaseException:  # noqa: BLE001  a foreign metaclass may raise anything
        return "Exception"
    return name if home == "builtins" else f"{home}.{name}"


def _message(exception: BaseException) -> str:
    try:
        return str(exception)
    except BaseException as error:  # noqa: BLE001  a foreign __str__ may raise anything
        return f"(its message cannot be shown: {type(error).__name__})"


def _trace(exception: BaseException) -> str:
    try:
        own = _own_part(exception.__traceback__) or exception.__traceback__
        return "".join(traceback.format_exception(type(exception), exception, own))
    except BaseException as error:  # noqa: BLE001  the same
        return f"(its traceback cannot be shown: {type(error).__name__})"


def _own_part(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames before the task's own; None if there is no such one."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_HOUSE):
        trace = trace.tb_next
    return trace


def _shorten(text: str, chars_max: int = ERROR_CHARS_MAX) -> str:
    text = encodable(text)
    if len(text) <= chars_max:
        return text
    half = (chars_max - len(_CUT)) // 2
    return text[:half] + _CUT + text[-half:]


def encodable(text: str) -> str:
    """Return a text that can be sent; lone surrogates, as of file names, are written as escapes."""
    return str.encode(text, "utf-8", "backslashreplace").decode()
