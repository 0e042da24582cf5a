"""The task that runs under faults: it notes when an attempt of it begins and ends."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from jackalope import Jackalope, current
from tests.chaos.history import Notes, Op, now

QUEUE = "chaos"
NAME = "note"

app = Jackalope(os.environ.get("JACKALOPE_URL", "jackalope://localhost:7420"))

_worker = os.environ.get("CHAOS_WORKER", "")
_notes = Notes(Path(os.environ["CHAOS_NOTES"])) if _worker else None


@app.task(queue=QUEUE, name=NAME, content="bytes")
async def note(body: bytes) -> bytes:
    """Take as long as the body says; return the fence and the worker, as the checker expects."""
    assert _notes is not None
    task, fence = current().id.hex(), str(current().fence)
    # When the lease was given is not known here: at some time before.
    _notes.add(Op(_worker, "start", task, 0, now(), "ok", fence))
    await asyncio.sleep(json.loads(body)["ms"] / 1_000)
    _notes.add(Op(_worker, "finish", task, now(), value=fence))
    return f"{fence}:{_worker}".encode()
