"""The native door: Jackalope's own protocol over TCP."""

from jackalope.doors.native.server import NativeDoor

__all__ = ["NativeDoor"]
