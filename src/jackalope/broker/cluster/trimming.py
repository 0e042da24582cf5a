"""Trimming: how much of the shared log no node needs any more.

The leader cuts the log through what every member has for good: in its history and in its
mirror, both safe from a power failure. A member that is gone is waited for as long as the log stays
small; when it comes back later, it is restored from the state of another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from time import monotonic_ns
from typing import TYPE_CHECKING, NamedTuple

import structlog

from jackalope.core.durations import DAY
from jackalope.storage import StorageFault

if TYPE_CHECKING:
    from jackalope.broker.service import Broker
    from jackalope.storage.shared.journal import SharedJournal

log = structlog.get_logger(component="cluster")

#: How often the leader trims the log, and how often a node syncs its history for that.
_TRIM_S = 5.0
_SYNC_S = 30.0


class Keep(NamedTuple):
    """How much of the log is kept for members that are behind or gone."""

    bytes_max: int = 1024**3
    gone_us: int = DAY  # after how long a member that does not answer is not waited for


class Need(NamedTuple):
    """What a member has, as far as the leader knows."""

    through: int  # the last batch that it has for good; 0 if that is not known
    silent_us: int = 0  # for how long it has not answered; 0 if it does
    is_restoring: bool = False  # the copy that it takes over needs what follows it in the log


def cut_through(own: int, others: Iterable[Need], size: int, keep: Keep) -> int:
    """Return the batch through which the log may be cut.

    Args:
        own: what the leader has for good: never more than that is cut.
        others: every other member.
        size: of the log, in bytes.
        keep: how much to keep.
    """
    if size > 2 * keep.bytes_max:
        return own
    waited_for = [
        each
        for each in others
        if not each.silent_us or (size <= keep.bytes_max and each.silent_us <= keep.gone_us)
    ]
    if any(each.is_restoring and not each.silent_us for each in waited_for):
        return 0
    return min([own, *(each.through for each in waited_for)])


class Trimmer:
    """Trims the log while its node leads, and makes that possible on every node."""

    def __init__(self, broker: Broker, journal: SharedJournal) -> None:
        self.keep = Keep()
        self.times = 0  # how often it has looked at the log
        self._broker = broker
        self._journal = journal
        self._trimmed = 0  # the batch through which it has cut the log

    async def keep_trimming(self) -> None:
        """Cut off the log what no member needs."""
        began_us = monotonic_ns() // 1_000
        while True:
            await asyncio.sleep(_TRIM_S)
            try:
                await self._trim(began_us)
            except StorageFault as fault:
                log.warning("the log is not trimmed", fault=str(fault))

    async def _trim(self, began_us: int) -> None:
        broker, journal, peers = self._broker, self._journal, self._broker.peers
        if peers is None:
            return  # What the other members have is not known.
        own = min(broker.engine.durable(), journal.mirror.durable)
        size = (await broker.off_loop(journal.log.state)).size
        through = cut_through(own, peers.needs(began_us), size, self.keep)
        # The batch itself stays: entries that are no batches may stand between it and the next.
        if through - 1 > self._trimmed:
            await broker.off_loop(lambda: journal.cut(through - 1))
            self._trimmed = through - 1
        self.times += 1

    async def keep_synced(self, is_replaced: Callable[[], bool]) -> None:
        """Make history safe from a power failure now and then, unless its file is replaced."""
        while True:
            await asyncio.sleep(_SYNC_S)
            if is_replaced():
                continue
            try:
                await self._broker.off_loop(self._broker.engine.sync_history)
            except StorageFault as fault:
                log.warning("history is not synced", fault=str(fault))
