"""The series: the meter's readings over time.

Owns which intervals are kept and for how long: every ten seconds for two hours, every five minutes
for eight days. An interval is closed by the caller, written behind, and added up to a longer one
when that is complete. Knows nothing of records; the readings come from the meter.

What is in an interval that was not yet written is lost in a crash. That costs a chart ten seconds,
and no task anything.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import structlog

from jackalope.broker.telemetry.meter import TIMES, Histogram, Meter, QueueName, Reading
from jackalope.core.durations import SECOND
from jackalope.core.lifecycle import LEASED
from jackalope.storage import Point, StorageFault

if TYPE_CHECKING:
    from jackalope.broker.service import Broker
    from jackalope.core import Core
    from jackalope.storage import SeriesStore

log = structlog.get_logger(component="broker")

FINE_S = 10
COARSE_S = 300

#: How long the points of each step are kept.
KEPT_S = {FINE_S: 2 * 3_600, COARSE_S: 8 * 86_400}

HOUR_S = 3_600
MINUTE_S = 60

_LOOK_EVERY_S = 0.5

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Reading)


class Recent(msgspec.Struct):
    """A queue's summary of one interval of the last hour."""

    at_s: int
    namespace: str
    queue: str
    succeeded: int
    dead: int
    attempts: int
    ran_us: int


class LastHour(msgspec.Struct, frozen=True):
    """The outcomes of tasks in the last hour."""

    succeeded: int  # how many ended well
    dead: int  # how many died
    mean_run_s: float  # how long their attempts ran on average; 0 if there was none


class Series:
    """Stores readings over time."""

    def __init__(self, store: SeriesStore, meter: Meter, now_us: int) -> None:
        self.store = store  # where they are kept
        self._meter = meter
        self._at_s = _begin(now_us, FINE_S)
        self._recent: deque[Recent] = deque()
        self._is_failing = False
        # What was written of the present interval before a restart.
        self._begun: dict[QueueName, Reading] = {}
        try:
            self._load()
        except StorageFault as fault:
            log.warning("time series cannot be read", fault=str(fault))

    def _load(self) -> None:
        """Load the last hour, and what was written of the current interval."""
        for point in self.store.read(FINE_S, self._at_s - HOUR_S, self._at_s + FINE_S):
            name, reading = (point.namespace, point.queue), _reading(point)
            self._remember(point.at_s, name, reading)
            if point.at_s == self._at_s:
                self._begun[name] = Reading()  # With room for what the stored one has no need of.
                self._begun[name].follow(reading)

    async def run(self, broker: Broker) -> None:
        """Close intervals as they end and measure the loop lag, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LOOK_EVERY_S
            await asyncio.sleep(_LOOK_EVERY_S)
            self._meter.machine.lag.count(round((loop.time() - due) * SECOND))
            if _begin(broker.now_us(), FINE_S) > self._at_s:
                points = self.close(broker.now_us(), broker.engine.core)
                await broker.off_loop(lambda points=points: self.write(points))  # type: ignore[misc]

    def close(self, now_us: int, core: Core) -> list[Point]:
        """End the current interval and begin the next; return the points to write."""
        at_s, self._at_s = self._at_s, _begin(now_us, FINE_S)
        readings = self._meter.close()
        self._look(readings, core)
        for name, reading in readings.items():
            self._remember(at_s, name, reading)
        while self._recent and self._recent[0].at_s < self._at_s - HOUR_S:
            self._recent.popleft()
        begun, self._begun = self._begun, {}
        for name, reading in begun.items():
            reading.follow(readings.get(name, Reading()))
        readings |= begun
        return [_point(FINE_S, at_s, name, reading) for name, reading in readings.items()]

    def write(self, points: list[Point]) -> None:
        """Store points, aggregate complete intervals, and drop old ones. In a storage thread.

        A failure does not stop the broker: it is logged once, and the points are lost.
        """
        now_s = self._at_s
        keep = {step_s: now_s - kept_s for step_s, kept_s in KEPT_S.items()}
        try:
            self.store.write(points, keep)
            if coarse := self._add_up(now_s):
                self.store.write(coarse, {})
        except StorageFault as fault:
            if not self._is_failing:
                log.warning("time series cannot be stored", fault=str(fault))
            self._is_failing = True
        else:
            self._is_failing = False

    def last_hour(self, namespace: str, sees: Callable[[str], bool]) -> LastHour:
        """Return the outcomes of tasks in the last hour up to now, in the visible queues."""
        succeeded = dead = attempts = ran_us = 0
        for past in self._recent:
            is_recent = past.at_s >= self._at_s - HOUR_S
            if is_recent and past.namespace == namespace and sees(past.queue):
                succeeded += past.succeeded
                dead += past.dead
                attempts += past.attempts
                ran_us += past.ran_us
        for (ns, queue), reading in self._meter.open.items():
            if ns == namespace and sees(queue):
                succeeded += reading.succeeded
                dead += reading.dead
                attempts += reading.started.number()
                ran_us += reading.started.total
        return LastHour(succeeded, dead, ran_us / max(1, attempts) / SECOND)

    def rates(
        self, namespace: str, now_us: int, since_us: int, sees: Callable[[str], bool]
    ) -> dict[str, float]:
        """Return the tasks a second that succeeded in each queue, over the last minute or so.

        `since_us` is when the broker started: before that there was nothing to count.
        """
        first_s = self._at_s - MINUTE_S
        done: Counter[str] = Counter()
        for past in reversed(self._recent):
            if past.at_s < first_s:
                break
            if past.namespace == namespace:
                done[past.queue] += past.succeeded
        for (ns, queue), reading in self._meter.open.items():
            if ns == namespace:
                done[queue] += reading.succeeded
        span_s = max(1.0, min(now_us / SECOND - first_s, (now_us - since_us) / SECOND))
        return {
            queue: round(number / span_s, 2)
            for queue, number in sorted(done.items())
            if number and sees(queue)
        }

    def between(
        self,
        namespace: str,
        queue: str,
        first_s: int,
        before_s: int,
        *,
        step_s: int,
        sees: Callable[[str], bool],
    ) -> list[tuple[int, Reading]]:
        """Return readings of a namespace or of one queue, each of `step_s` seconds, oldest first.

        In a storage thread. `step_s` is a multiple of one of the stored steps.
        """
        kept_s = COARSE_S if step_s % COARSE_S == 0 else FINE_S
        found: dict[int, dict[int, Reading]] = {}
        for point in self.store.read(kept_s, first_s, before_s, namespace):
            if queue in ("", point.queue) and (not point.queue or sees(point.queue)):
                interval = found.setdefault(point.at_s // step_s * step_s, {})
                interval.setdefault(point.at_s, Reading()).join(_reading(point))
        return [(at_s, _in_order(interval)) for at_s, interval in sorted(found.items())]

    def _look(self, readings: dict[QueueName, Reading], core: Core) -> None:
        """Add the depths of queues and the workers of namespaces to readings."""
        for ns in core.book.namespaces.values():
            for queue in ns.queues.values():
                leased = sum(queue.counts[state] for state in LEASED)
                name = self._meter.name_of(queue)
                if queue.depth or leased or name in readings:
                    reading = readings.setdefault(name, Reading())
                    reading.depth += queue.depth
                    reading.leased += leased
            # There is a point for every interval in which the broker ran, whatever happened.
            readings.setdefault((ns.name, ""), Reading())
        for namespace, _ in core.roster.workers:
            readings.setdefault((namespace, ""), Reading()).workers += 1

    def _remember(self, at_s: int, name: QueueName, reading: Reading) -> None:
        attempts, ran_us = reading.started.number(), reading.started.total
        if reading.succeeded or reading.dead or attempts:
            self._recent.append(
                Recent(at_s, *name, reading.succeeded, reading.dead, attempts, ran_us)
            )

    def _add_up(self, now_s: int) -> list[Point]:
        """Aggregate short intervals into long ones, as far as they are complete."""
        last_s, end_s = self.store.last(COARSE_S), now_s // COARSE_S * COARSE_S
        first_s = end_s - KEPT_S[FINE_S] if last_s is None else last_s + COARSE_S
        first_s = max(first_s, end_s - KEPT_S[FINE_S])
        found: dict[tuple[int, QueueName], Reading] = {}
        for point in self.store.read(FINE_S, first_s, end_s):
            key = (point.at_s // COARSE_S * COARSE_S, (point.namespace, point.queue))
            found.setdefault(key, Reading()).follow(_reading(point))
        return [_point(COARSE_S, at_s, name, reading) for (at_s, name), reading in found.items()]


def _begin(now_us: int, step_s: int) -> int:
    return now_us // SECOND // step_s * step_s


def _in_order(interval: dict[int, Reading]) -> Reading:
    whole = Reading()
    for _, reading in sorted(interval.items()):
        whole.follow(reading)
    return whole


def _reading(point: Point) -> Reading:
    """Decode a point; empty if it cannot be decoded."""
    try:
        return _decoder.decode(point.body)
    except msgspec.DecodeError:
        return Reading()


def _point(step_s: int, at_s: int, name: QueueName, reading: Reading) -> Point:
    return Point(step_s, at_s, *name, _encoder.encode(_trimmed(reading)))


def _trimmed(reading: Reading) -> Reading:
    """Drop the empty buckets at the end of each histogram."""
    times = {name: _without_tail(getattr(reading, name)) for name in TIMES}
    return msgspec.structs.replace(reading, **times)


def _without_tail(spread: Histogram) -> Histogram:
    used = max((n for n, number in enumerate(spread.buckets, 1) if number), default=0)
    return Histogram(spread.total, spread.buckets[:used])
