"""The core: a deterministic state machine that decides everything the broker does.

It owns the rules. It has no socket, file, clock, thread or random number: time and fresh ids come
in with each command, facts go out as records, and what must be sent goes out as effects.
The same records, applied in the same order, give the same state on any machine.

`Core` is loaded when it is first used: clients and workers need the words of the core alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jackalope.core.core import Core

__all__ = ["Core"]


def __getattr__(name: str) -> Any:
    if name != "Core":
        raise AttributeError(f"module 'jackalope.core' has no attribute {name!r}")
    from jackalope.core.core import Core  # noqa: PLC0415  only the broker pays for it

    globals()["Core"] = Core
    return Core
