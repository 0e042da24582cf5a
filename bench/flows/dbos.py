"""DBOS on SQLite: a workflow of steps, and a workflow that enqueues others and counts them.

It has no broker: workflows run in the process that submits them.
"""

from __future__ import annotations

import asyncio
from typing import Any

from dbos import DBOS

from bench.flows.base import FlowSystem
from bench.peers.base import TEXT
from bench.peers.place import Place

_QUEUE = "bench"


@DBOS.step()  # type: ignore[untyped-decorator]
def _noop(text: str) -> str:
    return text


@DBOS.workflow()  # type: ignore[untyped-decorator]
def _one(text: str) -> str:
    return text


@DBOS.workflow()  # type: ignore[untyped-decorator]
def _chain(steps: int) -> str:
    text = TEXT
    for _ in range(steps):
        text = _noop(text)
    return text


@DBOS.workflow()  # type: ignore[untyped-decorator]
def _join(members: int) -> int:
    handles = [DBOS.enqueue_workflow(_QUEUE, _one, TEXT) for _ in range(members)]
    return len([handle.get_result() for handle in handles])


class DbosFlows(FlowSystem):
    """One process."""

    def __init__(self, place: Place) -> None:
        self._place = place

    async def begin(self) -> None:
        """Open the database."""
        config: Any = {
            "name": "bench",
            "system_database_url": f"sqlite:///{self._place.path / 'dbos.sqlite'}",
            "log_level": "ERROR",
            "run_admin_server": False,
        }
        DBOS(config=config)
        await asyncio.to_thread(DBOS.launch)
        await asyncio.to_thread(DBOS.register_queue, _QUEUE, polling_interval_sec=0.05)

    async def run_chain(self, steps: int) -> None:
        """Run a workflow."""
        await asyncio.to_thread(_chain, steps)

    async def run_join(self, members: int) -> int:
        """Run a workflow of workflows."""
        return int(await asyncio.to_thread(_join, members))

    async def end(self) -> None:
        """Close the database."""
        await asyncio.to_thread(DBOS.destroy)
