"""Waiting for history, which is written late: what is put off is a part of the price."""

from __future__ import annotations

import contextlib

from jackalope import Jackalope
from jackalope.errors import Timeout

_PATIENCE = 6


async def written(client: Jackalope, queue: str) -> None:
    """Return when history has what has happened, which the list of batches waits for.

    On a busy machine that takes longer than one question may.

    Raises:
        RuntimeError: it is still not there.
    """
    for _ in range(_PATIENCE):
        with contextlib.suppress(Timeout):
            await client.batches(queue, limit=1)
            return
    raise RuntimeError("history is still not written")
