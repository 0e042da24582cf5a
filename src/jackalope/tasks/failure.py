"""Failures: an exception as the broker keeps it."""

from __future__ import annotations

import traceback

from jackalope.core.limits import ERROR_CHARS_MAX
from jackalope.core.task import Error

_CUT = "\n[...]\n"


def error_of(exception: BaseException) -> Error:
    """Describe an exception: its type, its message and its traceback as text.

    A long traceback keeps its beginning and its end, which say where it began and what was raised.
    """
    return Error(
        type=_type_name(type(exception)),
        message=_shorten(_message(exception)),
        trace=_shorten(_trace(exception)),
    )


def _type_name(kind: type[BaseException]) -> str:
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _message(exception: BaseException) -> str:
    try:
        return str(exception)
    except Exception as error:  # noqa: BLE001  whatever a foreign __str__ may raise
        return f"(its message cannot be shown: {type(error).__name__})"


def _trace(exception: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(exception))
    except Exception as error:  # noqa: BLE001  the same
        return f"(its traceback cannot be shown: {type(error).__name__})"


def _shorten(text: str) -> str:
    # Lone surrogates cannot be encoded, and a file name may well have put some into the message.
    text = text.encode("utf-8", "backslashreplace").decode()
    if len(text) <= ERROR_CHARS_MAX:
        return text
    half = (ERROR_CHARS_MAX - len(_CUT)) // 2
    return text[:half] + _CUT + text[-half:]
