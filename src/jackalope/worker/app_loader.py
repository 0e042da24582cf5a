"""The application: the object named `module:name` that has the tasks which a worker runs.

Owns finding it, and reporting in one line why it cannot be found.
"""

from __future__ import annotations

import importlib
import os
import sys

from jackalope.core.task import Error
from jackalope.tasks.definition import TaskSource
from jackalope.transport.address import Address
from jackalope.worker.attempt import Failed

_NAMES_SHOWN_MAX = 20


class CannotLoad(Exception):
    """The application cannot be loaded; the message has the reason, in one line."""


def load_application(text: str) -> TaskSource:
    """Import `module:name` and return the object."""
    module_name, _, name = text.partition(":")
    if not module_name:
        raise CannotLoad(
            "isolated tasks run in another process, which must be able to import their "
            "application: put it into a module of its own"
        )
    if not name:
        raise CannotLoad(f"{text!r} is no application; write module:name, as in shop.tasks:app")
    here = os.getcwd()  # noqa: PTH109  as it stands, links and all
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        found = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise CannotLoad(f"cannot load {text}: {_in_one_line(error)}") from error
    if not isinstance(getattr(found, "address", None), Address) or not hasattr(found, "functions"):
        raise CannotLoad(f"{text} is a {type(found).__name__}, not a Jackalope application")
    source: TaskSource = found
    return source


def unknown_task(source: TaskSource, name: str) -> Failed:
    """Describe a task whose function this worker does not have."""
    known = sorted(source.functions)
    shown = ", ".join(known[:_NAMES_SHOWN_MAX]) or "none"
    if len(known) > _NAMES_SHOWN_MAX:
        shown += f" and {len(known) - _NAMES_SHOWN_MAX} more"
    what = f"this worker has no task {name!r}" if name else "the task does not say which it is"
    return Failed(Error("UnknownTask", f"{what}; it has {shown}"))


def _in_one_line(error: Exception) -> str:
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
