"""Room: waiting until the broker takes what it has refused for the moment.

Owns which refusals say "not now", and how long to wait before asking again.
"""

from __future__ import annotations

import asyncio
import random

from jackalope.core.refusals import Code
from jackalope.link.errors import Rejected

#: Refusals that say "not now": the broker is worth asking again.
ROOM_CODES = frozenset({Code.QUEUE_FULL, Code.OVERLOADED, Code.STORAGE_FAILED})

_ROOM_WAIT_MIN_S = 0.05
_ROOM_WAIT_MAX_S = 30.0
_STORAGE_WAIT_S = 1.0


async def wait_for(error: Rejected, is_wanted: bool) -> None:
    """Wait as long as a refusal says; raise it again if waiting is not wanted or does not help."""
    if not is_wanted or error.code not in ROOM_CODES:
        raise error
    await asyncio.sleep(room_wait_s(error))


def room_wait_s(error: Rejected) -> float:
    """Return how long to wait for room; a little more by chance, so that not all come at once."""
    asked_s = error.retry_after_s
    if not asked_s and error.code == Code.STORAGE_FAILED:
        asked_s = _STORAGE_WAIT_S
    wait_s = min(max(asked_s, _ROOM_WAIT_MIN_S), _ROOM_WAIT_MAX_S)
    return wait_s * (1 + random.random() / 4)  # noqa: S311  spreads load, guards nothing
