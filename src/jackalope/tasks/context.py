"""The running task: what user code can learn and say about the attempt that it is part of.

Owns the place where the worker puts it, and what it must offer. How that works is the worker's.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Protocol

from jackalope.core.ids import TaskId
from jackalope.link.errors import JackalopeError


class Running(Protocol):
    """An attempt that is under way.

    Attributes:
        id: the task's id, 16 bytes.
        fence: grows with every attempt at any task: hand it to external stores, so that they can
            refuse the writes of an attempt that was given up.
    """

    id: TaskId
    fence: int

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""

    @property
    def name(self) -> str:
        """The name of the task's function."""

    @property
    def queue(self) -> str:
        """The queue that the task came from."""

    @property
    def key(self) -> str:
        """The key that the task was submitted with."""

    @property
    def headers(self) -> dict[str, Any]:
        """The submitter's own data."""

    @property
    def log(self) -> Any:
        """A logger that names the task in every line."""

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody wants the task to stop."""

    def raise_if_cancelled(self) -> None:
        """End the task here if somebody wants it to stop."""

    def progress(self, percent: float | None = None, note: str = "") -> None:
        """Say how far the task has come."""


running: ContextVar[Running | None] = ContextVar("jackalope_running", default=None)


def current() -> Running:
    """Return the task that this code is part of.

    Raises:
        JackalopeError: it is part of none.
    """
    context = running.get()
    if context is None:
        raise JackalopeError("no task runs here; current() is for code that a worker runs")
    return context
