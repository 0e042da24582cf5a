"""Metrics: the broker's numbers in the Prometheus text format.

Owns the names. The numbers are those of the meter, the census and the traffic, which know nothing
of Prometheus: nothing here is touched while tasks run, only at a scrape. A scrape reads the
numbers in one go on the loop, and writes its text in another thread.

`tq_…` are names that dashboards for other task queues know; their statuses are those of the REST
API. Ours begin with `jackalope_`. Counters begin at zero when the broker starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING

import msgspec
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from jackalope import __version__
from jackalope.broker.access import acting
from jackalope.broker.telemetry.gauges import Census, take_census
from jackalope.broker.telemetry.meter import TIMES, Histogram, Machine, QueueName, Reading
from jackalope.broker.views.pools import Fleet, take_fleet
from jackalope.core.durations import SECOND
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.errors import Rejected
from jackalope.doors.http.middleware.request_metrics import Traffic
from jackalope.doors.http.request import Request, door_of
from jackalope.doors.http.rest.schemas import Status
from jackalope.doors.http.router import Routes

if TYPE_CHECKING:
    from jackalope.doors.http.server import HttpDoor

routes = Routes()


#: The exponents of the upper bounds of buckets, in microseconds: 256 us to 67 s by twos, then to 19
#: hours by fours, for what tasks take.
_TASK_BOUNDS = (*range(8, 27), 28, 30, 32, 34, 36)

#: 64 us to 17 s by fours, for what the machine takes.
_MACHINE_BOUNDS = tuple(range(6, 26, 2))

#: 1 to 4,095 by twos, for how many there are of something.
_NUMBER_BOUNDS = tuple(range(1, 13))

_QUEUE = ["namespace", "queue"]


class Numbers(msgspec.Struct):
    """Everything that one scrape shows, looked at in one go."""

    now_us: int
    started_us: int
    durability: str
    machine: Machine
    totals: dict[QueueName, Reading]
    census: Census
    traffic: Traffic
    fleet: Fleet = msgspec.field(default_factory=Fleet)
    types: dict[str, Reading] = {}


@routes.get("/metrics", "read_tasks")
async def read_metrics(request: Request) -> Response:
    """Show the metrics, for Prometheus."""
    if acting.get().is_limited():
        raise Rejected(403, "metrics are of all queues; use an API key that is limited to none")
    numbers = look(door_of(request))
    encode, media_type = choose_encoder(request.header("accept"))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Exposition(numbers))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    body = await asyncio.to_thread(encode, registry)
    return Response(body, media_type=media_type)


def look(door: HttpDoor) -> Numbers:
    """Look at all numbers."""
    broker = door.broker
    return Numbers(
        broker.now_us(),
        broker.started_us,
        broker.durability,
        deepcopy(broker.meter.machine),
        broker.meter.totals(),
        take_census(broker),
        deepcopy(door.traffic),
        take_fleet(broker),
        broker.meter.types(),
    )


class Exposition(Collector):
    """The numbers of one look, as metrics."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        yield from self._of_task_queues()
        yield from self._of_tasks()
        yield from self._of_queues()
        yield from self._of_pools()
        yield from self._of_storage()
        yield from self._of_the_broker()
        yield from self._of_http()

    def _of_task_queues(self) -> Iterator[Metric]:
        census, types = self._numbers.census, self._numbers.types
        tasks = CounterMetricFamily(
            "tq_tasks", "Tasks that came to each status.", labels=["status", "task_type"]
        )
        took = _histogram(
            "tq_task_processing_duration_seconds", "How long attempts ran.", ["task_type"]
        )
        for task_type, total in sorted(types.items()):
            for status, number in _by_status(total).items():
                tasks.add_metric([status, task_type], number)
            _add(took, [task_type], total.started, _TASK_BOUNDS)
        yield tasks
        yield took
        yield _gauge("tq_tasks_pending", "Tasks that wait.", census.pending)
        yield _gauge("tq_tasks_in_progress", "Tasks that workers have.", census.in_progress())
        yield _gauge("tq_workers_connected", "Workers that are there.", census.connected)
        depth = GaugeMetricFamily(
            "tq_broker_queue_depth", "Ready tasks by tier of priority.", labels=["priority"]
        )
        for tier, number in census.tiers.items():
            depth.add_metric([tier], number)
        yield depth
        yield _gauge("tq_raft_term", "The term of the cluster; a broker alone has none.", 0)
        yield _gauge("tq_raft_leader", "1 if this broker decides; alone it does.", 1)

    def _of_tasks(self) -> Iterator[Metric]:
        totals = sorted(self._numbers.totals.items())
        for name, about, field in (
            ("tasks_submitted", "Tasks that were accepted.", "submitted"),
            ("retries", "Tasks that are tried once more.", "retries"),
            ("blobs", "Payloads and results that went to the blob store.", "blobs"),
            ("blob_bytes", "The size of those.", "blob_bytes"),
        ):
            counter = CounterMetricFamily(f"jackalope_{name}", about, labels=_QUEUE)
            for queue, total in totals:
                counter.add_metric([*queue], getattr(total, field))
            yield counter
        yield _labelled(
            "tasks_ended",
            "Tasks that ended, by how.",
            "state",
            ("succeeded", "dead", "killed"),
            totals,
        )
        yield _labelled(
            "attempts_ended",
            "Attempts that ended without success, by how.",
            "how",
            ("failures", "crashes", "interruptions"),
            totals,
        )
        dead = CounterMetricFamily(
            "jackalope_tasks_dead", "Tasks that died, by reason.", labels=[*_QUEUE, "reason"]
        )
        for queue, total in totals:
            for reason, number in sorted(total.reasons.items()):
                dead.add_metric([*queue, reason], number)
        yield dead
        served = CounterMetricFamily(
            "jackalope_requests", "Requests, by how they were served.", labels=[*_QUEUE, "how"]
        )
        for queue, total in totals:
            for how, number in sorted(total.served.items()):
                served.add_metric([*queue, how], number)
        yield served
        stages = _histogram(
            "jackalope_stage_seconds",
            "How long tasks took to be assigned, started, ended, and from submit to success.",
            [*_QUEUE, "stage"],
        )
        for queue, total in totals:
            for stage in TIMES:
                _add(stages, [*queue, stage], getattr(total, stage), _TASK_BOUNDS)
        yield stages

    def _of_queues(self) -> Iterator[Metric]:
        now_us = self._numbers.now_us
        tasks = _family("tasks", "Unfinished tasks by state.", [*_QUEUE, "state"])
        depth = _family("queue_depth", "Tasks that wait.", _QUEUE)
        limit = _family("queue_depth_limit", "How many may; none is shown for any.", _QUEUE)
        oldest = _family(
            "queue_oldest_ready_seconds", "How long the oldest ready task has been ready.", _QUEUE
        )
        answers = _family("cache_answers", "Answers that are kept.", _QUEUE)
        answer_bytes = _family("cache_bytes", "The size of those.", _QUEUE)
        for queue, counted in sorted(self._numbers.census.queues.items()):
            for state, number in counted.counts.items():
                if number:
                    tasks.add_metric([*queue, state.value], number)
            depth.add_metric([*queue], counted.depth)
            if counted.depth_limit:
                limit.add_metric([*queue], counted.depth_limit)
            since_us = counted.oldest_ready_us
            oldest.add_metric([*queue], max(0, now_us - since_us) / SECOND if since_us else 0)
            if counted.answers:
                answers.add_metric([*queue], counted.answers)
                answer_bytes.add_metric([*queue], counted.answer_bytes)
        yield from (tasks, depth, limit, oldest, answers, answer_bytes)

    def _of_pools(self) -> Iterator[Metric]:
        fleet = self._numbers.fleet
        groups = _family("pool_groups", "Groups of pools by state.", [*_QUEUE, "state"])
        launches = _family("pool_workers", "What pools started, by state.", [*_QUEUE, "state"])
        for family, counts in ((groups, fleet.groups), (launches, fleet.launches)):
            for pool, states in sorted(counts.items()):
                for state, number in sorted(states.items()):
                    family.add_metric([*pool, state], number)
            yield family
        ordered = CounterMetricFamily(
            "jackalope_pool_launches", "Workers that pools had started.", labels=_QUEUE
        )
        failed = CounterMetricFamily(
            "jackalope_pool_launch_failures", "Launches of pools that failed.", labels=_QUEUE
        )
        for pool, (number, failures) in sorted(fleet.orders.items()):
            ordered.add_metric([*pool], number)
            failed.add_metric([*pool], failures)
        yield ordered
        yield failed

    def _of_storage(self) -> Iterator[Metric]:
        machine, census = self._numbers.machine, self._numbers.census
        for name, about, spread in (
            ("journal_append_seconds", "How long batches took to be durable.", machine.append),
            ("history_flush_seconds", "How long changes took to reach history.", machine.flush),
            ("loop_lag_seconds", "How late the event loop was, twice a second.", machine.lag),
        ):
            histogram = _histogram(f"jackalope_{name}", about, [])
            _add(histogram, [], spread, _MACHINE_BOUNDS)
            yield histogram
        batch = _histogram("jackalope_journal_batch_records", "How many records a batch has.", [])
        _add(batch, [], machine.batch, _NUMBER_BOUNDS, unit=1)
        yield batch
        yield _counter("journal_records", "Records that were stored.", machine.records)
        yield _counter("journal_bytes", "Bytes that these took.", machine.bytes)
        yield _counter("storage_faults", "How often storage failed.", machine.faults)
        yield _counter("turns", "Batches of commands that were decided.", machine.turns)
        for name, about, number in (
            ("journal_sequence", "The last batch that is durable.", census.sequence),
            ("history_lag_batches", "How many batches history is behind.", census.lag),
            ("history_lag_tasks", "How many tasks history has to write.", census.unwritten),
            ("writable", "1 if the broker can write.", 0 if census.trouble else 1),
            ("accepting", "1 if new tasks are taken in.", 0 if census.shortage else 1),
        ):
            yield _gauge(f"jackalope_{name}", about, number)

    def _of_the_broker(self) -> Iterator[Metric]:
        numbers, census = self._numbers, self._numbers.census
        info = _family("info", "Which broker this is.", ["version", "durability"])
        info.add_metric([__version__, numbers.durability], 1)
        yield info
        started_s = numbers.started_us / SECOND
        yield _gauge("jackalope_start_time_seconds", "Since when it runs.", started_s)
        yield _gauge("jackalope_sessions", "Open sessions.", census.sessions)
        yield _gauge("jackalope_inbox_items", "Items that wait for a turn.", census.inbox)
        workers = _family("workers", "Workers by state.", ["state"])
        for state in ("active", "idle", "draining", "away"):
            workers.add_metric([state], census.workers[state])
        yield workers
        refused = CounterMetricFamily(
            "jackalope_refusals", "What was refused, by command.", labels=["command", "reason"]
        )
        for (command, code), number in sorted(numbers.machine.refused.items()):
            refused.add_metric([command, code], number)
        yield refused

    def _of_http(self) -> Iterator[Metric]:
        traffic = self._numbers.traffic
        requests = CounterMetricFamily(
            "jackalope_http_requests", "Requests by status.", labels=["method", "path", "status"]
        )
        for (method, path, status), number in sorted(traffic.requests.items()):
            requests.add_metric([method, path, str(status)], number)
        yield requests
        took = _histogram(
            "jackalope_http_request_seconds", "How long requests took, waiting included.", ["path"]
        )
        for path, spread in sorted(traffic.times.items()):
            _add(took, [path], spread, _MACHINE_BOUNDS)
        yield took
        yield _gauge("jackalope_http_requests_in_flight", "Requests now.", traffic.in_flight)
        yield _gauge("jackalope_http_websockets", "WebSockets that are open.", traffic.sockets)


def _by_status(total: Reading) -> dict[Status, int]:
    return {
        Status.PENDING: total.submitted,
        Status.IN_PROGRESS: total.queued.number(),
        Status.COMPLETED: total.succeeded,
        Status.FAILED: total.killed,
        Status.DEAD_LETTER: total.dead,
    }


# Families.


def _gauge(name: str, about: str, number: float) -> Metric:
    return GaugeMetricFamily(name, about, value=number)


def _counter(name: str, about: str, number: int) -> Metric:
    return CounterMetricFamily(f"jackalope_{name}", about, value=number)


def _family(name: str, about: str, labels: list[str]) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"jackalope_{name}", about, labels=labels)


def _labelled(
    name: str,
    about: str,
    label: str,
    fields: Iterable[str],
    totals: list[tuple[QueueName, Reading]],
) -> Metric:
    """Make one counter of several fields, told apart by a label."""
    counter = CounterMetricFamily(f"jackalope_{name}", about, labels=[*_QUEUE, label])
    for queue, total in totals:
        for field in fields:
            counter.add_metric([*queue, field], getattr(total, field))
    return counter


def _histogram(name: str, about: str, labels: list[str]) -> HistogramMetricFamily:
    return HistogramMetricFamily(name, about, labels=labels)


def _add(
    histogram: HistogramMetricFamily,
    labels: list[str],
    spread: Histogram,
    bounds: Sequence[int],
    unit: int = SECOND,
) -> None:
    """Add a spread, unless it is empty. Its bucket n holds whole numbers below 2^n."""
    if labels and not spread.number():
        return
    buckets, below, at = [], 0, 0
    for bound in bounds:
        below += sum(spread.buckets[at : bound + 1])
        at = bound + 1
        upper = 2**bound / unit if unit != 1 else 2**bound - 1
        buckets.append((str(upper), below))
    buckets.append(("+Inf", spread.number()))
    histogram.add_metric(labels, buckets, sum_value=spread.total / unit)
