"""The worker: the process that runs tasks.

Owns how user code is run, watched and stopped, and how it is reported to the broker. Knows nothing
of how the broker keeps tasks or decides about them.

Task code imports from here as well (its context, its verdicts), so nothing is loaded before it is
used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jackalope.worker.runtime import run_worker
    from jackalope.worker.settings import WorkerSettings

__all__ = ["WorkerSettings", "run_worker"]


def __getattr__(name: str) -> Any:
    if name == "run_worker":
        from jackalope.worker.runtime import run_worker  # noqa: PLC0415  loads all of the worker

        return run_worker
    if name == "WorkerSettings":
        from jackalope.worker.settings import WorkerSettings  # noqa: PLC0415  the same

        return WorkerSettings
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
