"""The core: a deterministic state machine that decides everything the broker does.

It owns the rules. It has no socket, file, clock, thread or random number: time and fresh ids come
in with each command, facts go out as records, and what the world must hear goes out as effects.
The same records, applied in the same order, give the same state on any machine.
"""

from jackalope.core.broker import Core

__all__ = ["Core"]
