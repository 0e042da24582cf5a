"""The broker around the core: one batch of commands at a time, durable before it is told.

Owns the order of deciding, storing and telling. Knows nothing of bytes on a wire.
"""

from jackalope.broker.engine import Engine, Flush, Turn
from jackalope.broker.recovery import recover

__all__ = ["Engine", "Flush", "Turn", "recover"]
