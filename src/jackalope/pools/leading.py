"""Pools in a cluster: kept by the node that leads.

Owns when a node keeps pools, and the end of what it alone can see once another node leads. It knows
neither how a leader is found nor how workers are started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

import structlog

from jackalope.broker.service import Broker
from jackalope.core.commands import Seen
from jackalope.core.durations import SECOND
from jackalope.core.shapes.pool import DEFAULT_POOL
from jackalope.pools.launcher import Launcher, Reach
from jackalope.pools.reconciler import PoolService

log = structlog.get_logger(component="pools")

#: How often to look at what is to end, and how often when nothing is: a worker that was being
#: started when the node ceased to lead may come late.
_ENDING_EVERY_S = 0.5
_LOOK_EVERY_S = 10.0


class LeaderPools:
    """The pools of a cluster, on one of its nodes.

    Args:
        broker: the node's.
        launchers: by their names. They serve each time that the node leads.
        local: the names of those whose workers no other node sees.
        reach: how workers reach the cluster.
        every_s: how often pools are reconciled.
    """

    def __init__(
        self,
        broker: Broker,
        launchers: Mapping[str, Launcher],
        local: Collection[str],
        reach: Reach,
        every_s: float,
    ) -> None:
        self._broker = broker
        self._launchers = launchers
        self._local = local
        self._reach = reach
        self._every_s = every_s
        self._service: PoolService | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._is_over = False

    async def lead(self) -> None:
        """Register the launchers: pools that name one can be declared then."""
        await self._leave_off()
        if not self._is_over:
            self._service = PoolService(self._broker, self._launchers, self._every_s)
            await self._service.start()

    def begin(self) -> None:
        """Let workers be started."""
        if self._service is not None:
            self._service.begin(self._reach)

    def follow(self, *, another_leads: bool) -> None:
        """Keep no pools; if another node does, end what it cannot see."""
        if not self._is_over:
            if self._leaving is not None:
                self._leaving.cancel()
            leaving = self._leave(another_leads=another_leads)
            self._leaving = asyncio.create_task(leaving, name="jackalope-leave-pools")

    async def stop(self) -> None:
        """Ask what no other node sees to end. It is not waited for: it may have tasks to finish."""
        self._is_over = True
        await self._leave_off()
        await self._end_local()
        for launcher in self._launchers.values():
            await launcher.close()

    async def _leave_off(self) -> None:
        leaving, self._leaving = self._leaving, None
        if leaving is not None:
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
        await self._rest()

    async def _rest(self) -> None:
        if self._service is not None:
            await self._service.rest()
            self._service = None

    async def _leave(self, *, another_leads: bool) -> None:
        await self._rest()
        while another_leads and self._local:
            is_left = await self._end_local()
            await asyncio.sleep(_ENDING_EVERY_S if is_left else _LOOK_EVERY_S)

    async def _end_local(self) -> bool:
        """Ask all workers of this node to end; return whether some may be left."""
        is_left = False
        for name in self._local:
            launcher = self._launchers[name]
            try:
                seen = await launcher.list()
                for each in seen:
                    await launcher.stop(each.launch, self._grace_s(each))
            except Exception as error:  # noqa: BLE001  whatever goes wrong, it is tried again
                log.warning("cannot end workers yet", launcher=name, error=str(error))
                is_left = True
            else:
                is_left = is_left or bool(seen)
        return is_left

    def _grace_s(self, seen: Seen) -> float:
        queue = self._broker.engine.core.book.queue(seen.namespace, seen.queue)
        pool = None if queue is None else queue.pool
        return (pool or DEFAULT_POOL).stop_grace_us / SECOND
