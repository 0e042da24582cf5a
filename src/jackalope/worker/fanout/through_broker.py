"""Through the broker: items as child tasks, where helpers cannot reach the owner.

Owns the children: each item is a task of its own, durable and slower. Takes batches from the ledger
as a helper does. Belongs to the loop of the hub.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from jackalope.core.task import Error
from jackalope.link.errors import JackalopeError, TaskFailed
from jackalope.tasks.context import Running, running
from jackalope.tasks.failure import error_of
from jackalope.wire.fanout import ItemFailed
from jackalope.worker.fanout.ledger import Batch
from jackalope.worker.fanout.run import Run

#: How many batches are under way at once, and how many items of one are submitted together.
BATCHES_MAX = 4
CHILDREN_MAX = 250


class ThroughBroker:
    """Hands out batches as tasks."""

    def __init__(self) -> None:
        self._run: Run | None = None
        self._parent: Running | None = running.get()
        self._works: set[asyncio.Task[None]] = set()
        self._apps: list[Any] = []

    def begin(self, run: Run) -> None:
        """Begin with a run."""
        self._run = run
        self.feed()

    def rest(self) -> None:
        """Hand out nothing more of the run, which is over."""
        self._run = None
        for work in self._works:
            work.cancel()

    def feed(self) -> None:
        """Take batches while fewer than enough are under way."""
        while self._run is not None and len(self._works) < BATCHES_MAX:
            batch = self._run.ledger.take(self)
            if batch is None:
                return
            work = asyncio.get_running_loop().create_task(self._compute(self._run, batch))
            self._works.add(work)
            work.add_done_callback(self._done)

    async def close(self) -> None:
        """Wait for nothing more."""
        self.rest()
        await asyncio.gather(*self._works, return_exceptions=True)
        for app in self._apps:
            await app.close()

    def _done(self, work: asyncio.Task[None]) -> None:
        self._works.discard(work)
        self.feed()

    async def _compute(self, run: Run, batch: Batch) -> None:
        if run.task.app not in self._apps:
            self._apps.append(run.task.app)
        items: list[Any] = msgspec.msgpack.decode(batch.data)
        for begin in range(0, len(items), CHILDREN_MAX):
            part = items[begin : begin + CHILDREN_MAX]
            try:
                values, failed = await self._as_children(run, part, begin)
            except JackalopeError as error:
                run.ledger.fail(error)
                return
            run.ledger.answer(self, batch.number, begin, values, failed)

    async def _as_children(
        self, run: Run, items: list[Any], begin: int
    ) -> tuple[list[Any], list[ItemFailed]]:
        task = run.task.options(parent=self._parent)
        handles = await task.submit_many(task.call(item, **run.fixed) for item in items)
        values, failed = [], []
        for at, handle in enumerate(handles, begin):
            try:
                values.append(await handle.result())
            except TaskFailed as error:
                values.append(None)
                known = error.error or Error("TaskFailed", str(error))
                failed.append(ItemFailed(at, known, can_retry=False))
            except Exception as error:  # noqa: BLE001  a result that cannot be read is the item's
                values.append(None)
                failed.append(ItemFailed(at, error_of(error), can_retry=False))
        return values, failed
