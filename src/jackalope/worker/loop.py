"""The event loop: uvloop where it is installed, asyncio's own elsewhere."""

from __future__ import annotations

import asyncio

try:
    import uvloop
except ImportError:  # Not on this platform.
    new_event_loop = asyncio.new_event_loop
else:
    new_event_loop = uvloop.new_event_loop
