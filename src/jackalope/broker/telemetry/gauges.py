"""Gauges: how full the broker is at this moment.

Owns the counting of what is there, as the meter counts what happens. It reads memory and nothing
else, and waits for nothing, so that it also reports the state of a broker that cannot go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from jackalope.broker.telemetry.meter import Histogram, Reading
from jackalope.broker.telemetry.time_series import COARSE_S, FINE_S, KEPT_S
from jackalope.broker.views.workers import worker_state
from jackalope.core.durations import SECOND
from jackalope.core.lifecycle import LEASED, State
from jackalope.core.state.queue import Queue
from jackalope.wire.views import PointView, SeriesView, SpreadView, view_as

if TYPE_CHECKING:
    from jackalope.broker.service import Broker
    from jackalope.broker.telemetry.meter import QueueName
    from jackalope.core import Core

#: The lowest priority of each tier, the highest tier first.
TIERS = {"high": 200, "normal": 100, "low": 0}


class QueueCensus(msgspec.Struct):
    """The contents of a queue, or of several that are counted as one."""

    counts: Counter[State]  # unfinished tasks by state
    depth: int = 0  # those that wait, and so count against the limit
    depth_limit: int = 0  # how many may; 0 for any number
    oldest_ready_us: int = 0  # since when the oldest ready task is ready; 0 if there is none
    answers: int = 0  # answers that are kept
    answer_bytes: int = 0  # their size


class Census(msgspec.Struct):
    """The current gauges of the broker."""

    queues: dict[QueueName, QueueCensus]  # by the name under which the meter counts them
    pending: int  # tasks that wait
    connected: int  # workers that are there
    tiers: dict[str, int]  # ready tasks by tier of priority
    workers: Counter[str]  # workers by state
    sessions: int  # open connections
    inbox: int  # items that wait for a turn
    unwritten: int  # tasks that history lacks in their present state
    epoch: int  # how often a broker has become the writer of the journal
    sequence: int  # the last batch that is durable
    lag: int  # how many batches history is behind
    trouble: str  # why nothing can be written; empty if all is well
    shortage: str  # why no new task is taken in; empty if all is well

    def in_progress(self) -> int:
        """Return how many tasks are assigned or running."""
        return sum(queue.counts[state] for queue in self.queues.values() for state in LEASED)


def take_census(broker: Broker) -> Census:
    core, meter = broker.engine.core, broker.meter
    queues: dict[QueueName, QueueCensus] = {}
    there = [
        queue for namespace in core.book.namespaces.values() for queue in namespace.queues.values()
    ]
    for queue in there:
        counted = queues.setdefault(meter.name_of(queue), QueueCensus(Counter()))
        _count_queue(counted, queue, core)
    unwritten = len(core.book.dirty)
    return Census(
        queues=queues,
        pending=count_pending(broker),
        connected=count_connected(broker),
        tiers=count_tiers(there),
        workers=Counter(worker_state(worker) for worker in core.roster.workers.values()),
        sessions=broker.session_count(),
        inbox=broker.inbox_items(),
        unwritten=unwritten,
        epoch=broker.engine.epoch,
        sequence=broker.engine.sequence,
        lag=broker.engine.sequence - meter.machine.flushed if unwritten else 0,
        trouble=broker.health.trouble(),
        shortage=broker.health.shortage(),
    )


def count_pending(broker: Broker) -> int:
    return sum(
        queue.depth
        for namespace in broker.engine.core.book.namespaces.values()
        for queue in namespace.queues.values()
    )


def count_connected(broker: Broker) -> int:
    return sum(1 for worker in broker.engine.core.roster.workers.values() if worker.session)


def count_tiers(queues: Iterable[Queue]) -> dict[str, int]:
    """Count ready tasks by priority tier."""
    tiers = dict.fromkeys(TIERS, 0)
    for queue in queues:
        for lane in queue.line.lanes.values():
            for priority, number in lane.sizes():
                tiers[next(tier for tier, low in TIERS.items() if priority >= low)] += number
    return tiers


def oldest_ready_us(queue: Queue, core: Core) -> int:
    """Return since when the oldest ready task of a queue is ready; 0 if there is none."""
    heads = (lane.head(core.book.tasks) for lane in queue.line.lanes.values())
    return min((head.rank for head in heads if head), default=0)


def _count_queue(counted: QueueCensus, queue: Queue, core: Core) -> None:
    counted.counts.update(queue.counts)
    counted.depth += queue.depth
    counted.depth_limit += queue.policy.depth_limit
    counted.answers += len(queue.cache.answers)
    counted.answer_bytes += queue.cache.bytes
    oldest_us = oldest_ready_us(queue, core)
    if oldest_us and (not counted.oldest_ready_us or oldest_us < counted.oldest_ready_us):
        counted.oldest_ready_us = oldest_us


# Charts: the series as points to display.

SPAN_S_DEFAULT = 3_600


class BadSpan(ValueError):
    """The requested time range or step is invalid."""


async def chart(
    broker: Broker,
    namespace: str,
    queue: str,
    *,
    since_us: int,
    until_us: int,
    step_s: int,
    sees: Callable[[str], bool],
) -> SeriesView:
    """Show the series of a namespace, or of one of its queues.

    Without a beginning it is the last hour, without an end it ends now, without a step it takes the
    shortest that reaches back so far. The number of points is limited by what is kept.
    """
    now_s = broker.now_us() // SECOND
    until_s = min(-(-until_us // SECOND), now_s + FINE_S) if until_us else now_s + FINE_S
    since_s = since_us // SECOND if since_us else until_s - SPAN_S_DEFAULT
    if not step_s:
        step_s = FINE_S if since_s >= now_s - KEPT_S[FINE_S] else COARSE_S
    if step_s % FINE_S or step_s <= 0:
        raise BadSpan(f"a step of {step_s} s; it must be a multiple of {FINE_S} s")
    if since_s < now_s - KEPT_S[FINE_S] and step_s % COARSE_S:
        raise BadSpan(
            f"a step of {step_s} s; what is older than {KEPT_S[FINE_S]} s is kept in steps of "
            f"{COARSE_S} s, so ask for a multiple of that"
        )
    first_s = max(since_s, now_s - KEPT_S[COARSE_S]) // step_s * step_s
    found = await broker.off_loop(
        lambda: broker.series.between(namespace, queue, first_s, until_s, step_s=step_s, sees=sees)
    )
    return SeriesView(step_s, [_point(at_s, step_s, reading) for at_s, reading in found])


def _point(at_s: int, step_s: int, reading: Reading) -> PointView:
    return view_as(
        PointView,
        reading,
        at_us=at_s * SECOND,
        per_second=reading.succeeded / step_s,
        queued=_spread(reading.queued),
        assigned=_spread(reading.assigned),
        started=_spread(reading.started),
        finished=_spread(reading.finished),
    )


def _spread(spread: Histogram) -> SpreadView | None:
    number = spread.number()
    if not number:
        return None
    return SpreadView(
        number,
        spread.mean() / SECOND,
        spread.quantile(0.5) / SECOND,
        spread.quantile(0.95) / SECOND,
        spread.quantile(0.99) / SECOND,
    )
