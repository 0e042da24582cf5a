"""Metrics: the broker's numbers in the Prometheus text format, and the counters of the HTTP door.

Owns the names. The numbers are those of the meter and the gauges, which know nothing of Prometheus,
and those of `Traffic`: nothing else is done while tasks run, only at a scrape. A scrape reads the
numbers in one go on the loop, and writes its text in another thread, with a library that the first
scrape loads: a start does not wait for it. Ours begin with `jackalope_`.
`tq_…` are aliases that dashboards for other task queues know; a scrape has those instead of ours if
it asks for them (`?names=task_queue`) or `http.names` says so. Counters begin at zero when the
broker starts.

`Traffic` stands outside of everything else in the door, so that it also counts what is turned away.
What it counts is bounded: paths as the routes write them, methods that HTTP knows, and `other`. It
logs each request at level `debug`, with its path and never its query, because tokens travel in
queries. Headers and bodies are not read.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from jackalope import __version__
from jackalope.broker.access import acting, own_namespace
from jackalope.broker.cluster.leadership import Role
from jackalope.broker.cluster.standing import Standing
from jackalope.broker.config.schema import Names
from jackalope.broker.logs.keeper import LogCounts
from jackalope.broker.telemetry.gauges import Census, take_census
from jackalope.broker.telemetry.key_limits import LimitName, LimitReading
from jackalope.broker.telemetry.meter import TIMES, Histogram, Machine, QueueName, Reading
from jackalope.broker.telemetry.namespaces import NamespaceCensus, count_namespaces, folded, named
from jackalope.broker.views.schedules import NO_SCHEDULES, ScheduleCensus, count_schedules
from jackalope.broker.views.workers import PoolCensus, count_pools
from jackalope.core.durations import SECOND
from jackalope.doors.http import vocabulary
from jackalope.doors.http.asgi import HTTP, ASGIApp, Message, Receive, Response, Scope, Send
from jackalope.doors.http.errors import Rejected
from jackalope.doors.http.request import Request, door_of
from jackalope.doors.http.rest.schemas import Status
from jackalope.doors.http.router import Routes
from jackalope.wire.peer import StandbyHealth

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from jackalope.doors.http.app import HttpDoor

log = structlog.get_logger(component="http")

Line = structlog.typing.FilteringBoundLogger

OTHER = "other"

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

#: What a request is counted as that ended without an answer: the peer went away.
_NO_STATUS = 499

_LOGGED_PATH_CHARS_MAX = 200


class Traffic:
    """Counts requests and WebSockets."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()  # by method, path and status
        self.times: dict[str, Histogram] = {}  # how long requests took, by path
        self.in_flight = 0  # requests that are under way
        self.sockets = 0  # WebSockets that are open

    def over(self, app: ASGIApp) -> ASGIApp:
        """Return an application that does the same, and is counted."""
        # Bound once: a logger that is looked up for a line costs more than one that is not written.
        line = log.bind()

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == HTTP:
                await self._count_request(app, line, scope, receive, send)
            else:
                await self._count_socket(app, line, scope, receive, send)

        return counted

    async def _count_request(
        self, app: ASGIApp, line: Line, scope: Scope, receive: Receive, send: Send
    ) -> None:
        begin_ns, status, asked = perf_counter_ns(), _NO_STATUS, str(scope["path"])

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self.in_flight += 1
        try:
            await app(scope, receive, send_counted)
        finally:
            self.in_flight -= 1
            took_us = (perf_counter_ns() - begin_ns) // 1_000
            method, path = scope["method"], _template(scope)
            self.requests[method if method in _METHODS else OTHER, path, status] += 1
            times = self.times.get(path)
            if times is None:
                times = self.times[path] = Histogram()
            times.count(took_us)
            line.debug(
                "request",
                method=method[:16],
                path=asked[:_LOGGED_PATH_CHARS_MAX],
                status=status,
                seconds=took_us / 1e6,
            )

    async def _count_socket(
        self, app: ASGIApp, line: Line, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self.sockets += 1
        asked = str(scope["path"])
        try:
            await app(scope, receive, send)
        finally:
            self.sockets -= 1
            line.debug("websocket closed", path=asked[:_LOGGED_PATH_CHARS_MAX])


def _template(scope: Scope) -> str:
    """Return the path as its route writes it."""
    return str(scope.get("path_template") or OTHER)


# The page of metrics.


routes = Routes()


#: The exponents of the upper bounds of buckets, in microseconds: 256 us to 67 s by twos, then to 19
#: hours by fours, for what tasks take.
_TASK_BOUNDS = (*range(8, 27), 28, 30, 32, 34, 36)

#: 64 us to 17 s by fours, for what the machine takes.
_MACHINE_BOUNDS = tuple(range(6, 26, 2))

#: 1 to 4,095 by twos, for how many there are of something.
_NUMBER_BOUNDS = tuple(range(1, 13))

_QUEUE = ("namespace", "queue")


NamespaceNumbers = dict[str, NamespaceCensus]


class Numbers(msgspec.Struct):
    """Everything that one scrape shows, looked at in one go."""

    now_us: int
    started_us: int
    durability: str
    machine: Machine
    totals: dict[QueueName, Reading]
    census: Census
    traffic: Traffic
    pools: dict[QueueName, PoolCensus] = {}
    types: dict[str, Reading] = {}
    skew_us: int = 0
    standing: Standing | None = None
    splices: dict[str, int] = {}
    spliced: dict[str, int] = {}
    forwarded: int = 0
    unreached: int = 0
    schedules: ScheduleCensus = NO_SCHEDULES
    namespaces: NamespaceNumbers = {}
    deliveries: dict[str, int] = {}
    logs: LogCounts = msgspec.field(default_factory=LogCounts)
    log_bytes: int = 0
    limits: dict[LimitName, LimitReading] = {}
    log_trouble: str = ""


@routes.get("/metrics", "read_tasks")
async def read_metrics(request: Request) -> Response:
    """Show the metrics, for Prometheus."""
    if acting.get().queues:
        raise Rejected(403, "metrics cover all queues; use an API key that is not limited to some")
    asked, own = request.query.get("names", ""), own_namespace()
    names = vocabulary.read(asked, "names") if asked else vocabulary.names()
    door = door_of(request)
    if own:
        shown: Exposition | OfNamespaces = OfNamespaces(*look_at_namespaces(door, own))
    else:
        shown = Exposition(look(door), names)
    accepted = request.header("accept")
    body, media_type = await asyncio.to_thread(_write, shown, accepted, is_whole=not own)
    return Response(body, media_type=media_type)


def _write(shown: Exposition | OfNamespaces, accepted: str, *, is_whole: bool) -> tuple[bytes, str]:
    """Return the text of a scrape in a format that it accepts, and its media type."""
    from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector  # noqa: PLC0415
    from prometheus_client.exposition import choose_encoder  # noqa: PLC0415

    encode, media_type = choose_encoder(accepted)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(shown)
    if is_whole:
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
    return encode(registry), media_type


def look_at_namespaces(door: HttpDoor, own: str = "") -> tuple[NamespaceNumbers, ScheduleCensus]:
    """Count what there is in namespaces, or in the one that a client is limited to."""
    core, meter = door.broker.engine.core, door.broker.meter
    meter.settle()
    found = count_namespaces(core, meter.namespaces, own)
    names = {own} if own else named(core, found, door.settings.metrics_namespaces)
    return folded(found, names), count_schedules(core, names, own)


def look(door: HttpDoor) -> Numbers:
    broker, forwarding = door.broker, door.forwarding
    numbers = Numbers(
        broker.now_us(),
        broker.started_us,
        broker.durability,
        deepcopy(broker.meter.machine),
        broker.meter.totals(),
        take_census(broker),
        deepcopy(door.traffic),
        count_pools(broker),
        broker.meter.types(),
        skew.worst_us if broker.peers and (skew := broker.peers.skew()) else 0,
    )
    numbers.namespaces, numbers.schedules = look_at_namespaces(door)
    numbers.limits = broker.meter.limits.take(broker.engine.core.book.namespaces)
    numbers.deliveries = broker.meter.deliveries
    numbers.logs, numbers.log_bytes = broker.logs.counts, broker.logs.stored_bytes
    numbers.log_trouble = broker.logs.trouble
    if forwarding is not None:
        numbers.standing = forwarding.leader.standing()
        numbers.spliced = dict(forwarding.spliced)
        numbers.splices = {name: forwarding.count(name) for name in numbers.spliced}
        numbers.forwarded, numbers.unreached = forwarding.forwarded, forwarding.failed
    return numbers


class Exposition:
    """The numbers of one look, as metrics."""

    def __init__(self, numbers: Numbers, names: Names = Names.JACKALOPE) -> None:
        self._numbers = numbers
        self._names = names

    def collect(self) -> Iterator[Metric]:
        if self._names is Names.TASK_QUEUE:
            yield from _of_task_queues(self._numbers)
            return
        yield from OfNamespaces(self._numbers.namespaces, self._numbers.schedules).collect()
        for section in (_of_tasks, _of_queues, _of_storage, _of_task_logs, _of_the_broker):
            yield from section(self._numbers)
        if (standing := self._numbers.standing) is not None:
            yield from _of_the_cluster(self._numbers, standing)
            if standing.standby is not None:
                yield from _of_the_standby(standing.standby)


def _of_task_queues(numbers: Numbers) -> Iterator[Metric]:
    census, types = numbers.census, numbers.types
    came = {each: _by_status(total) for each, total in types.items()}
    yield _counter("tq_tasks", "Tasks by status reached.", came, "task_type", "status")
    name, took = "tq_task_processing_duration_seconds", _of(types, "started")
    yield _histogram(name, "Run time of attempts.", took, "task_type")
    yield _gauge("tq_tasks_pending", "Tasks that are waiting.", census.pending)
    yield _gauge(
        "tq_tasks_in_progress", "Tasks assigned to workers or running.", census.in_progress()
    )
    yield _gauge("tq_workers_connected", "Connected workers.", census.connected)
    about = "Ready tasks by tier of priority."
    yield _gauge("tq_broker_queue_depth", about, census.tiers, "priority")
    epoch, leads = _leadership(numbers)
    about = "The term of the leader; a single broker counts its starts."
    yield _gauge("tq_raft_term", about, epoch)
    about = "1 if this broker is the leader; a single broker always is."
    yield _gauge("tq_raft_leader", about, leads)


def _leadership(numbers: Numbers) -> tuple[int, int]:
    """Return the term of the leader, and whether that is this broker."""
    standing = numbers.standing
    if standing is None:
        return numbers.census.epoch, 1
    return standing.epoch, int(standing.role == Role.LEADING)


def _by_status(total: Reading) -> dict[Status, int]:
    return {
        Status.PENDING: total.submitted,
        Status.IN_PROGRESS: total.queued.number(),
        Status.COMPLETED: total.succeeded,
        Status.FAILED: total.killed,
        Status.DEAD_LETTER: total.dead,
    }


def _of_tasks(numbers: Numbers) -> Iterator[Metric]:
    for name, about, field in (
        ("tasks_submitted", "Tasks accepted.", "submitted"),
        ("retries", "Retries.", "retries"),
        ("blobs", "Payloads and results written to the blob store.", "blobs"),
        ("blob_bytes", "Their total size in bytes.", "blob_bytes"),
    ):
        yield _counter(f"jackalope_{name}", about, _of(numbers.totals, field), *_QUEUE)
    ended = _of(numbers.totals, "succeeded", "dead", "killed")
    failed = _of(numbers.totals, "failures", "crashes", "interruptions")
    reasons, served = _of(numbers.totals, "reasons"), _of(numbers.totals, "served")
    for name, about, value, label in (
        ("tasks_ended", "Ended tasks by outcome.", ended, "state"),
        ("attempts_ended", "Unsuccessful attempts by outcome.", failed, "how"),
        ("tasks_dead", "Dead tasks by reason.", reasons, "reason"),
        ("requests", "Deduplicated requests by how they were served.", served, "how"),
    ):
        yield _counter(f"jackalope_{name}", about, value, *_QUEUE, label)
    about = "Time until tasks were assigned, started and ended, and from submit to success."
    stages = _of(numbers.totals, *TIMES)
    yield _histogram("jackalope_stage_seconds", about, stages, *_QUEUE, "stage")
    about, took = "Run time of attempts by the name of the task.", _of(numbers.types, "started")
    yield _histogram("jackalope_run_seconds", about, took, "name")


def _of_queues(numbers: Numbers) -> Iterator[Metric]:
    queues, pools, now_us = numbers.census.queues, numbers.pools, numbers.now_us
    counts = {name: +queue.counts for name, queue in queues.items()}
    limits = {name: queue.depth_limit for name, queue in queues.items() if queue.depth_limit}
    ready_for_s = {
        name: max(0, now_us - (queue.oldest_ready_us or now_us)) / SECOND
        for name, queue in queues.items()
    }
    with_answers = {name: queue for name, queue in queues.items() if queue.answers}
    for name, about, value, *label in (
        ("tasks", "Unfinished tasks by state.", counts, "state"),
        ("queue_depth", "Tasks that are waiting.", _of(queues, "depth")),
        ("queue_depth_limit", "The depth limit; absent if there is none.", limits),
        ("queue_oldest_ready_seconds", "Age of the oldest ready task.", ready_for_s),
        ("cache_answers", "Cached answers.", _of(with_answers, "answers")),
        ("cache_bytes", "Their total size in bytes.", _of(with_answers, "answer_bytes")),
        ("pool_groups", "Groups of pools by state.", _of(pools, "groups"), "state"),
        ("pool_workers", "Launched workers by state.", _of(pools, "launches"), "state"),
    ):
        yield _gauge(f"jackalope_{name}", about, value, *_QUEUE, *label)
    for name, about, field in (
        ("pool_launches", "Workers launched by pools.", "launched"),
        ("pool_launch_failures", "Failed launches of pools.", "failed"),
    ):
        yield _counter(f"jackalope_{name}", about, _of(pools, field), *_QUEUE)
    about, tiers = "Ready tasks by tier of priority.", numbers.census.tiers
    yield _gauge("jackalope_ready_tasks", about, tiers, "tier")
    yield from _of_limits(numbers.limits)
    about = "Deliveries of callbacks; those that `failed` are tried again."
    deliveries = {(outcome,): count for outcome, count in numbers.deliveries.items()}
    yield _counter("jackalope_callbacks", about, deliveries, "outcome")


class OfNamespaces:
    """The numbers of namespaces: all that a client of one of them is shown."""

    def __init__(self, numbers: NamespaceNumbers, schedules: ScheduleCensus) -> None:
        self._numbers, self._schedules = numbers, schedules

    def collect(self) -> Iterator[Metric]:
        found = self._numbers
        counts = {name: census.counts for name, census in found.items()}
        for name, about, value, *label in (
            ("submitted", "Tasks accepted, by namespace.", _of(counts, "submitted")),
            ("failures", "Attempts that failed, by namespace.", _of(counts, "failures")),
            ("ended", "Ended tasks, by namespace and outcome.", _of(counts, "ended"), "state"),
            ("refusals", "Refusals because of a quota.", _of(counts, "refused"), "quota"),
        ):
            yield _counter(f"jackalope_namespace_{name}", about, value, "namespace", *label)
        for name, about, value, *label in (
            ("tasks", "Unfinished tasks, by namespace and state.", _of(found, "tasks"), "state"),
            ("quota_used", "What is used of each quota.", _of(found, "used"), "quota"),
            ("quota_limit", "The quotas that are set.", _of(found, "limits"), "quota"),
        ):
            yield _gauge(f"jackalope_namespace_{name}", about, value, "namespace", *label)
        yield from _of_schedules(self._schedules)


def _of_schedules(census: ScheduleCensus) -> Iterator[Metric]:
    about = "Schedules by state; `orphaned` are also in another."
    yield _gauge("jackalope_schedules", about, census.states, "namespace", "state")
    about = "Tasks submitted by schedules."
    yield _counter("jackalope_schedule_fires", about, census.fired, "namespace")
    about = "Slots of schedules that were passed over."
    yield _counter("jackalope_schedule_missed", about, census.missed, "namespace")


def _of_limits(limits: dict[LimitName, LimitReading]) -> Iterator[Metric]:
    labels = ("namespace", "limit")
    for field, about in (
        ("in_flight", "Tasks that hold a slot of a limit by key."),
        ("waiting", "Ready tasks that a limit by key counts."),
    ):
        yield _gauge(f"jackalope_limit_{field}", about, _of(limits, field), *labels)
    for field, about in (
        ("throttled", "Attempts of which workers reported that they came too soon."),
        ("cancelled", "Tasks cancelled because a limit was full, with their children."),
    ):
        yield _counter(f"jackalope_limit_{field}", about, _of(limits, field), *labels)


def _of_storage(numbers: Numbers) -> Iterator[Metric]:
    machine, census = numbers.machine, numbers.census
    for name, about, spread in (
        ("journal_append_seconds", "Time until batches were durable.", machine.append),
        ("history_flush_seconds", "Time until changes were in history.", machine.flush),
        ("loop_lag_seconds", "Event loop lag, sampled twice a second.", machine.lag),
    ):
        yield _histogram(f"jackalope_{name}", about, spread, bounds=_MACHINE_BOUNDS)
    name, about = "jackalope_journal_batch_records", "Records per batch."
    yield _histogram(name, about, machine.batch, bounds=_NUMBER_BOUNDS)
    for name, about, number in (
        ("journal_records", "Records stored.", machine.records),
        ("journal_bytes", "Bytes of records stored.", machine.bytes),
        ("storage_faults", "Storage failures.", machine.faults),
        ("turns", "Batches of commands processed.", machine.turns),
    ):
        yield _counter(f"jackalope_{name}", about, number)
    for name, about, number in (
        ("journal_sequence", "The last durable batch.", census.sequence),
        ("history_lag_batches", "Batches not yet in history.", census.lag),
        ("history_lag_tasks", "Tasks not yet in history.", census.unwritten),
        ("writable", "1 if the broker can write.", 0 if census.trouble else 1),
        ("accepting", "1 if new tasks are accepted.", 0 if census.shortage else 1),
    ):
        yield _gauge(f"jackalope_{name}", about, number)


def _of_task_logs(numbers: Numbers) -> Iterator[Metric]:
    counts = numbers.logs
    for name, about, number in (
        ("lines", "Lines of tasks kept.", counts.lines),
        ("bytes", "Bytes of lines of tasks kept.", counts.bytes),
        ("dropped", "Lines of tasks dropped: too many, or not storable.", counts.dropped),
        ("stale", "Lines refused: the sender does not run the attempt.", counts.stale),
    ):
        yield _counter(f"jackalope_task_log_{name}", about, number)
    about = "The size of all lines of tasks that are stored."
    yield _gauge("jackalope_task_log_stored_bytes", about, numbers.log_bytes)
    about = "1 if lines of tasks can be stored; 0 if they are dropped, or in memory alone."
    yield _gauge("jackalope_task_log_writable", about, 0 if numbers.log_trouble else 1)


def _of_the_broker(numbers: Numbers) -> Iterator[Metric]:
    census, traffic = numbers.census, numbers.traffic
    info = {(__version__, numbers.durability): 1}
    yield _gauge(
        "jackalope_info", "Version and identity of the broker.", info, "version", "durability"
    )
    started_s = numbers.started_us / SECOND
    yield _gauge("jackalope_start_time_seconds", "Start time of the broker.", started_s)
    yield _gauge("jackalope_sessions", "Open sessions.", census.sessions)
    epoch, leads = _leadership(numbers)
    about = "The term of the leader; a single broker counts its starts."
    yield _gauge("jackalope_epoch", about, epoch)
    about = "1 if this broker is the leader; a single broker always is."
    yield _gauge("jackalope_leading", about, leads)
    yield _gauge("jackalope_inbox_items", "Commands waiting for a turn.", census.inbox)
    workers = {state: census.workers[state] for state in ("active", "idle", "draining", "away")}
    yield _gauge("jackalope_workers", "Workers by state.", workers, "state")
    name, refused = "jackalope_refusals", numbers.machine.refused
    yield _counter(name, "Refusals by command.", refused, "command", "reason")
    name, requests = "jackalope_http_requests", traffic.requests
    yield _counter(name, "Requests by status.", requests, "method", "path", "status")
    name, about = "jackalope_http_request_seconds", "Duration of requests, including waits."
    yield _histogram(name, about, traffic.times, "path", bounds=_MACHINE_BOUNDS)
    yield _gauge("jackalope_http_requests_in_flight", "Requests now.", traffic.in_flight)
    yield _gauge("jackalope_http_websockets", "Open WebSockets.", traffic.sockets)
    about = "The greatest difference to the clock of another member; 0 for a broker that is alone."
    yield _gauge("jackalope_clock_skew_seconds", about, numbers.skew_us / SECOND)


def _of_the_cluster(numbers: Numbers, standing: Standing) -> Iterator[Metric]:
    role = {standing.role: 1}
    for name, about, value, *label in (
        ("role", "1 for what this node is.", role, "role"),
        ("applied", "The last batch that this node has applied.", numbers.census.sequence),
        ("lag_batches", "Entries of the log that it has not applied.", standing.lag_batches),
        ("lag_seconds", "For how long it has not caught up.", standing.lag_s),
        ("quorum", "1 if the log was heard of recently.", int(standing.has_quorum)),
        ("members", "Nodes of the cluster.", standing.members),
        ("splices", "Connections handed on to the leader now.", numbers.splices, "door"),
    ):
        yield _gauge(f"jackalope_cluster_{name}", about, value, *label)
    for name, about, value, *label in (
        ("takeovers", "How often this node became the leader.", standing.takeovers),
        ("chain_errors", "Entries that did not continue the log.", standing.chain_errors),
        ("wrong_copies", "Damage found in copies of the log.", dict(standing.wrong_copies), "copy"),
        ("divergences", "States found unlike the leader's.", standing.divergences),
        ("spliced", "Connections handed on to the leader.", numbers.spliced, "door"),
        ("forwarded", "Requests over HTTP forwarded to the leader.", numbers.forwarded),
        ("unreached", "Connections and requests that found no leader.", numbers.unreached),
    ):
        yield _counter(f"jackalope_cluster_{name}", about, value, *label)
    name, about = "jackalope_cluster_append_seconds", "Time until entries stood in the log."
    yield _histogram(name, about, numbers.machine.append, bounds=_MACHINE_BOUNDS)


def _of_the_standby(standby: StandbyHealth) -> Iterator[Metric]:
    for name, about, value in (
        ("lag_entries", "Batches of the primary that are not here, as known.", standby.lag),
        ("lag_seconds", "For how long it has not had all of them.", standby.lag_us / SECOND),
        ("connected", "1 if the primary is followed.", int(standby.is_connected)),
        (
            "heard_seconds",
            "When the primary was last heard, in Unix time.",
            standby.heard_us / SECOND,
        ),
        ("blobs_lacking", "Large payloads and results that are not here.", standby.lacking),
    ):
        yield _gauge(f"jackalope_standby_{name}", about, value)


# Families. A value is a number, a histogram, or a mapping of such by the next label or labels.


def _of(things: Mapping[Any, object], *fields: str) -> dict[Any, Any]:
    """Return a field of each thing; or several of them, by their names."""
    if len(fields) == 1:
        return {key: getattr(thing, fields[0]) for key, thing in things.items()}
    return {
        key: {field: getattr(thing, field) for field in fields} for key, thing in things.items()
    }


def _gauge(name: str, about: str, value: Any, *labels: str) -> Metric:
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415

    return _filled(GaugeMetricFamily(name, about, labels=labels), value)


def _counter(name: str, about: str, value: Any, *labels: str) -> Metric:
    from prometheus_client.core import CounterMetricFamily  # noqa: PLC0415

    return _filled(CounterMetricFamily(name, about, labels=labels), value)


def _histogram(
    name: str, about: str, value: Any, *labels: str, bounds: Sequence[int] = _TASK_BOUNDS
) -> Metric:
    from prometheus_client.core import HistogramMetricFamily  # noqa: PLC0415

    return _filled(HistogramMetricFamily(name, about, labels=labels), value, (), bounds)


def _filled(
    metric: Any, value: Any, labels: tuple[Any, ...] = (), bounds: Sequence[int] = ()
) -> Metric:
    """Add what a value has to a metric; of a histogram with labels only what is not empty."""
    if isinstance(value, Mapping):
        for key, each in sorted(value.items()):
            names = key if isinstance(key, tuple) else (key,)
            _filled(metric, each, (*labels, *names), bounds)
    elif not isinstance(value, Histogram):
        metric.add_metric([*map(str, labels)], value)
    elif value.number() or not labels:
        unit = 1 if bounds is _NUMBER_BOUNDS else SECOND
        buckets = _buckets(value, bounds, unit)
        metric.add_metric([*map(str, labels)], buckets, sum_value=value.total / unit)
    filled: Metric = metric
    return filled


def _buckets(spread: Histogram, bounds: Sequence[int], unit: int) -> list[tuple[str, int]]:
    """Count what each bound includes. Bucket n of a histogram has whole numbers below 2^n."""
    buckets, below, at = [], 0, 0
    for bound in bounds:
        below += sum(spread.buckets[at : bound + 1])
        at = bound + 1
        upper = 2**bound / unit if unit != 1 else 2**bound - 1
        buckets.append((str(upper), below))
    return [*buckets, ("+Inf", spread.number())]
