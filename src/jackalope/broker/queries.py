"""Queries: the questions that doors ask, and the permission that each needs.

Converts state to views, and changes nothing. Whatever is in memory is read between two turns;
lists of tasks are merged from memory and history, so that a list is never stale.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

import msgspec

from jackalope import __version__
from jackalope.broker.access import Principal, acting, own_namespace, sees
from jackalope.broker.engine import Engine
from jackalope.broker.logs.limits import LOOK_AGAIN_S, WAIT_US_MAX
from jackalope.broker.logs.reading import read_page, wanted_lines
from jackalope.broker.service import Broker
from jackalope.broker.telemetry.gauges import BadSpan, chart, count_tiers
from jackalope.broker.views.contracts import contract_views
from jackalope.broker.views.flows import flow_view, inputs_of, node_views
from jackalope.broker.views.limits import key_limit_views, tag_limit_views
from jackalope.broker.views.lists import Moment
from jackalope.broker.views.namespaces import Which, act_page, namespace_views
from jackalope.broker.views.queues import queue_view
from jackalope.broker.views.schedules import schedule_page, whole_view
from jackalope.broker.views.tasks import (
    explanation_of,
    find_answer,
    history_of,
    list_answers,
    view_of_row,
    view_of_task,
)
from jackalope.broker.views.workers import Leases, gone_view, pool_views, worker_view
from jackalope.core.api_key import Permission, role_of
from jackalope.core.commands import Held
from jackalope.core.commands.base import Scope
from jackalope.core.durations import SECOND
from jackalope.core.filter import Filter
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import ENDED, State
from jackalope.core.limits import TIME_US_MAX
from jackalope.core.namespaces import unknown_namespace
from jackalope.core.policy import Policy
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.request import unknown
from jackalope.core.shapes.task_log import LogPage
from jackalope.core.state.queue import NO_TALLY, Namespace
from jackalope.core.task import Body, Task, TaskRow, lease_of, size_of
from jackalope.storage import BadCursor, Sort
from jackalope.storage.sqlite.task_logs import Wanted
from jackalope.wire.frames import FRAME_BYTES_MAX
from jackalope.wire.views import (
    ActPage,
    AnswerView,
    ApiKeyView,
    BatchView,
    ContractView,
    ExplanationView,
    FlowPage,
    FlowView,
    HistoryEntryView,
    KeyLimitView,
    LimitView,
    NamespaceView,
    NodeView,
    PoolView,
    QueueView,
    SchedulePage,
    ScheduleView,
    SeriesView,
    StatsView,
    TaskPage,
    TaskView,
    WorkerView,
    view_as,
)

T = TypeVar("T")

PAGE_ROWS_DEFAULT = 100
PAGE_ROWS_MAX = 1_000

#: How many rows may be counted off; further pages need a cursor, which costs nothing.
OFFSET_ROWS_MAX = 100_000

#: How much of each payload a list has at most.
PAYLOAD_HEAD_BYTES_MAX = 1_024


class Refused(Exception):
    """The query cannot be answered."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class About(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of queries. Each kind of query uses those that it needs."""

    id: TaskId = TaskId(b"")
    alias: str = ""
    bodies: bool = False
    payload_head: int = 0
    states: tuple[State, ...] = ()
    queue: str = ""
    name: str = ""
    by: str = ""
    key: str = ""
    tag: str = ""
    parent: TaskId = TaskId(b"")
    batch: int = 0
    text: str = ""
    older_than_us: int = 0
    newer_than_us: int = 0
    contains: str = ""
    queues: tuple[str, ...] = ()
    sort: str = "-created"
    limit: int = PAGE_ROWS_DEFAULT
    cursor: str = ""
    before: int = 0
    offset: int = 0
    total: bool = False
    since_us: int = 0
    until_us: int = 0
    step_s: int = 0
    identity: bytes = b""
    version: str = ""
    is_flow: bool = False
    attempt: int = 0
    after_line: str = ""
    before_line: str = ""
    level: str = ""
    is_tail: bool = False
    wait_us: int = 0


NOTHING = About()

#: All kinds of questions, by name.
QUESTIONS: dict[str, Question[Any]] = {}

Ask = Callable[[Broker, str, About], Coroutine[Any, Any, T]]


class Question(Generic[T]):
    """A kind of query. Call it to get the answer, on behalf of the acting client."""

    def __init__(
        self,
        ask: Ask[T],
        needs: tuple[Permission, ...] = (Permission.READ_TASKS,),
        scope: Scope = Scope.NARROWED,
    ) -> None:
        self.name = ask.__name__.lstrip("_")
        self.needs = needs  # who may ask it: a client with one of these
        self.scope = scope  # how far it reaches; what is seen may depend on the client's queues
        self._ask = ask
        QUESTIONS[self.name] = self

    async def __call__(self, broker: Broker, namespace: str, about: About = NOTHING) -> T:
        """Answer the query; raises `Refused`."""
        self.admit(namespace)
        numbers = (about.batch, about.older_than_us, about.before, about.offset)
        times = (about.newer_than_us, about.since_us, about.until_us, about.step_s)
        if not all(0 <= number <= TIME_US_MAX for number in numbers + times):
            names = (
                "batch, older_than_us, newer_than_us, before, offset, since_us, until_us and step_s"
            )
            message = f"query {self.name!r}: {names} must be 0 to {TIME_US_MAX}"
            raise Refused(Refusal(Code.INVALID, message))
        return await self._ask(broker, namespace, about)

    def refuse(self, who: Principal, namespace: str) -> Refusal | None:
        where = None if self.scope is Scope.BROKER else namespace
        return who.refuse_any(self.needs, where) or who.refuse_scope(self.scope)

    def admit(self, namespace: str) -> None:
        """Raise `Refused` if the acting client may not make this query."""
        refusal = self.refuse(acting.get(), namespace)
        if refusal is not None:
            raise Refused(refusal)


async def answer_named(broker: Broker, namespace: str, what: str, about: dict[str, Any]) -> Any:
    """Answer a query of the wire, by the names of the query and its parameters."""
    question = QUESTIONS.get(what)
    if question is None:
        task.admit(namespace)  # Without the permission to ask, none is known.
        message = f"unknown query {what!r}; use {', '.join(QUESTIONS)}"
        raise Refused(Refusal(Code.INVALID, message))
    question.admit(namespace)
    try:
        # Ids come as bytes, and only as bytes.
        asked = msgspec.convert(about, About, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise Refused(Refusal(Code.INVALID, f"question {what!r}: {error}")) from None
    return await question(broker, namespace, asked)


async def task_and_bodies(
    broker: Broker,
    namespace: str,
    about: About,
    needs: tuple[Permission, ...] = (Permission.READ_TASKS,),
) -> tuple[TaskView, tuple[Body, Body]]:
    """Return a task, and references to its payload and result; raises `Refused`."""
    refusal = acting.get().refuse_any(needs, namespace)
    if refusal is not None:
        raise Refused(refusal)
    return await broker.read(lambda engine: _view_of(engine, namespace, about))


async def has_task(broker: Broker, namespace: str, task_id: TaskId) -> bool:
    """Return whether there is a task of this id that the acting client sees."""
    found = await broker.read(lambda engine: engine.find(namespace, task_id))
    return found is not None and sees(found.queue.name)


async def leased_payload(broker: Broker, session: int, held: Held, node: str = "") -> Body:
    """Return the payload of a task that the worker of a session has the lease on.

    With the name of a node of its flow: what that one left for it.
    """

    def ask(engine: Engine) -> Body:
        worker = engine.core.roster.sessions.get(session)
        leased = None if worker is None else worker.held.get(held.task)
        if leased is None or lease_of(leased).fence != held.fence:
            message = f"fence {held.fence} is not the current lease of task {held.task.hex()}"
            raise Refused(Refusal(Code.STALE_FENCE, f"{message}; stop working on it"))
        if not node:
            return leased.payload
        found = next((each for each in inputs_of(leased) if each.node == node), None)
        if found is None:
            message = f"task {held.task.hex()} has no input of node {node!r}"
            raise Refused(Refusal(Code.INVALID, message))
        return found.result

    return await broker.read(ask)


async def leases_of(
    broker: Broker, namespace: str, worker: str
) -> tuple[list[Held], tuple[str, ...]]:
    """Return what a disconnected worker holds, and the queues of that; else raises `Refused`."""

    def ask(engine: Engine) -> tuple[list[Held], tuple[str, ...]]:
        known = engine.core.roster.workers.get((namespace, worker))
        if known is not None and not any(map(sees, known.queues)):
            return [], ()  # To a key of other queues it is not there.
        if known is not None and known.session:
            message = f"worker {worker!r} is connected over another session; choose another name"
            raise Refused(Refusal(Code.STALE_SESSION, message))
        holding, queues = Leases(engine.core, namespace).of(worker)
        return holding, tuple(sorted(queues))

    return await broker.read(ask)


async def read_leases(broker: Broker, namespace: str, look: Callable[[Leases], T]) -> T:
    """Read the leases of a namespace between two turns."""
    return await broker.read(lambda engine: look(Leases(engine.core, namespace)))


async def policies(broker: Broker, namespace: str, queues: set[str]) -> dict[str, Policy]:
    """Return the policies of those queues that exist."""

    def ask(engine: Engine) -> dict[str, Policy]:
        found = [engine.core.book.queue(namespace, name) for name in queues]
        return {queue.name: queue.policy for queue in found if queue is not None}

    return await broker.read(ask)


@Question
async def task(broker: Broker, namespace: str, about: About) -> TaskView:
    view, bodies = await task_and_bodies(broker, namespace, about)
    if not about.bodies:
        return view
    total = sum(map(size_of, bodies))
    if total > FRAME_BYTES_MAX:  # Known before anything is loaded.
        message = f"the payload and result have {total} bytes; fetch them in parts"
        raise Refused(Refusal(Code.TOO_LARGE, message))
    payload, result = [await broker.blobs.load(body) for body in bodies]
    return msgspec.structs.replace(view, payload=payload, result=result)


@Question
async def tasks(broker: Broker, namespace: str, about: About) -> TaskPage:
    def show(rows: list[TaskRow], cursor: str, total: int | None) -> TaskPage:
        views = [view_of_row(row, with_payload=about.payload_head > 0) for row in rows]
        return TaskPage(views, cursor, total)

    return await _listed(broker, namespace, about, show)


@Question
async def flows(broker: Broker, namespace: str, about: About) -> FlowPage:
    def show(rows: list[TaskRow], cursor: str, _: int | None) -> FlowPage:
        return FlowPage([flow_view(row) for row in rows], cursor)

    return await _listed(broker, namespace, msgspec.structs.replace(about, is_flow=True), show)


@Question
async def flow(broker: Broker, namespace: str, about: About) -> FlowView:
    def ask(engine: Engine) -> FlowView:
        found = _find(engine, namespace, about)
        if found.options.flow is None:
            message = f"task {found.id.hex()} is not a flow; list the flows"
            raise Refused(Refusal(Code.UNKNOWN_TASK, message))
        return flow_view(found)

    def show(rows: list[TaskRow], cursor: str, _: int | None) -> tuple[tuple[NodeView, ...], str]:
        return node_views(rows), cursor

    view = await broker.read(ask)
    asked = About(parent=view.id, sort="created", limit=about.limit, cursor=about.cursor)
    nodes, cursor = await _listed(broker, namespace, asked, show)
    return msgspec.structs.replace(view, nodes=nodes, cursor=cursor)


async def _listed(
    broker: Broker,
    namespace: str,
    about: About,
    show: Callable[[list[TaskRow], str, int | None], T],
) -> T:
    """Return a page of the tasks that are meant, as `show` makes it of rows, cursor and total."""
    wanted = _filter_of(about)
    if not wanted.is_sound():
        raise Refused(Refusal(Code.INVALID, "list of tasks: too many queues"))
    limit = min(max(about.limit, 1), PAGE_ROWS_MAX)
    offset = min(about.offset, OFFSET_ROWS_MAX)
    head = min(max(about.payload_head, 0), PAYLOAD_HEAD_BYTES_MAX)

    try:
        sort = Sort(about.sort)
        after = broker.engine.history.position(namespace, wanted, sort, about.cursor)
    except (BadCursor, ValueError) as error:
        raise Refused(Refusal(Code.INVALID, f"list of tasks: {error}")) from None

    async def look(begin: Callable[[], None]) -> T:
        def see(engine: Engine) -> Moment:
            begin()
            count = offset + limit + 1
            return Moment(engine.core, namespace, wanted, sort=sort, after=after, count=count)

        moment = await broker.read(see)

        def merge() -> T:
            history, unwritten = broker.engine.history, moment.unwritten()
            page = history.page(
                namespace,
                wanted,
                sort=sort,
                limit=limit,
                cursor=about.cursor,
                offset=offset,
                payload_head=head,
                unwritten=unwritten,
            )
            total = None
            if about.total:
                total = broker.totals.count(history, namespace, wanted, unwritten)
            return show(page.rows, page.cursor, total)

        return await broker.off_loop(merge)

    kind = show.__qualname__
    what = (kind, namespace, wanted, sort, limit, about.cursor, offset, about.total, head)
    page: T = await broker.lists.ask(what, look)
    return page


def _filter_of(about: About) -> Filter:
    return Filter(
        about.states,
        about.queue,
        about.name,
        about.key,
        about.tag,
        about.parent,
        about.batch,
        about.text,
        about.older_than_us,
        _queues_meant(about),
        about.newer_than_us,
        about.contains,
        about.is_flow,
    )


def _queues_meant(about: About) -> tuple[str, ...]:
    """Return the queues that are requested and visible; the unnamed one if there is none."""
    seen = acting.get().queues
    if not seen or not about.queues:
        return seen or about.queues
    return tuple(queue for queue in about.queues if queue in seen) or ("",)


@Question
async def namespaces(broker: Broker, _: str, __: About) -> list[str]:
    own = own_namespace()
    found = await broker.read(lambda engine: sorted(engine.core.book.namespaces))
    return [name for name in found if own in ("", name)]


async def _namespace_list(broker: Broker, _: str, __: About) -> list[NamespaceView]:
    return await broker.read(lambda engine: namespace_views(engine.core, own_namespace()))


async def _namespace(broker: Broker, _: str, about: About) -> NamespaceView:
    found = await broker.read(lambda engine: namespace_views(engine.core, about.name))
    if not found or own_namespace() not in ("", about.name):
        raise Refused(unknown_namespace(about.name))
    return found[0]


namespace_list = Question(_namespace_list, scope=Scope.NAMESPACE)
namespace = Question(_namespace, scope=Scope.NAMESPACE)


async def _audit(broker: Broker, _: str, about: About) -> ActPage:
    which = Which(about.text, about.by, about.name, about.newer_than_us, about.older_than_us)
    asked = (own_namespace(), which, about.cursor, min(max(about.limit, 1), PAGE_ROWS_MAX))
    return await broker.read(lambda engine: act_page(engine.core, *asked))


audit = Question(_audit, (Permission.ADMIN,), Scope.NAMESPACE)


@Question
async def history(broker: Broker, namespace: str, about: About) -> list[HistoryEntryView]:
    return await broker.read(
        lambda engine: history_of(engine.core, _find(engine, namespace, about))
    )


def lines_meant(about: About) -> Wanted:
    """Return which lines of a task a question is about."""
    wanted = wanted_lines(about)
    if isinstance(wanted, Refusal):
        raise Refused(wanted)
    return wanted


@Question
async def logs(broker: Broker, namespace: str, about: About) -> LogPage:
    """Return lines that a task has printed and logged; wait for some if asked to."""
    keeper, wanted = broker.logs, lines_meant(about)
    until_us = broker.steady_us() + min(max(0, about.wait_us), WAIT_US_MAX)
    while True:
        found = await broker.read(lambda engine: _find(engine, namespace, about))
        page = await read_page(keeper, found.id, wanted, is_ended=found.state in ENDED)
        left_us = until_us - broker.steady_us()
        if page.lines or page.ended or left_us <= 0:
            return page
        await keeper.changed(found.id, min(left_us / SECOND, LOOK_AGAIN_S))


@Question
async def explain(broker: Broker, namespace: str, about: About) -> ExplanationView:
    return await broker.read(
        lambda engine: explanation_of(engine.core, _find(engine, namespace, about))
    )


@Question
async def queues(broker: Broker, namespace: str, about: About) -> list[QueueView]:
    def ask(engine: Engine) -> list[QueueView]:
        ns = engine.core.book.namespaces.get(namespace)
        queues = [] if ns is None else sorted(ns.queues.values(), key=lambda q: q.name)
        return [
            queue_view(engine.core, queue, has_shares=bool(about.queue))
            for queue in queues
            if about.queue in ("", queue.name) and sees(queue.name)
        ]

    return await broker.read(ask)


@Question
async def workers(broker: Broker, namespace: str, _: About) -> list[WorkerView]:
    def ask(engine: Engine) -> list[WorkerView]:
        roster = engine.core.roster
        here = [
            worker_view(worker, engine.core.fanouts.get(worker.helps))
            for (ns, _), worker in roster.workers.items()
            if ns == namespace and any(map(sees, worker.queues))
        ]
        if acting.get().queues:
            return sorted(
                here, key=lambda view: view.worker
            )  # Whom the others served is forgotten.
        known = {view.worker for view in here}
        home = engine.core.book.namespaces.get(namespace) or Namespace(namespace)
        gone = [
            gone_view(left, home.tallies.get(left.worker, NO_TALLY))
            for left in roster.departed
            if left.namespace == namespace and left.worker not in known
        ]
        return sorted(here, key=lambda view: view.worker) + gone

    return await broker.read(ask)


@Question
async def limits(broker: Broker, namespace: str, _: About) -> list[LimitView]:
    return await broker.read(lambda engine: tag_limit_views(engine.core.book, namespace))


@Question
async def key_limits(broker: Broker, namespace: str, _: About) -> list[KeyLimitView]:
    now_us = broker.now_us()
    return await broker.read(lambda engine: key_limit_views(engine.core.book, namespace, now_us))


@Question
async def batches(broker: Broker, namespace: str, about: About) -> list[BatchView]:
    queue = await broker.read(lambda engine: engine.core.book.queue(namespace, about.queue))
    if queue is None or not sees(about.queue):
        raise Refused(Refusal(Code.UNKNOWN_QUEUE, f"no queue {about.queue!r}; name one of yours"))
    filling, is_full = queue.batch, queue.batch_fill >= queue.policy.batch_size
    limit = min(max(about.limit, 1), PAGE_ROWS_MAX)
    await broker.flush()
    batches = await broker.off_loop(
        lambda: broker.engine.history.batches(
            namespace, about.queue, limit=limit, before=about.before
        )
    )
    return [
        BatchView(about.queue, batch.number, batch.counts, batch.number < filling or is_full)
        for batch in batches
    ]


@Question
async def stats(broker: Broker, namespace: str, _: About) -> StatsView:
    def ask(engine: Engine) -> StatsView:
        ns = engine.core.book.namespaces.get(namespace) or Namespace(namespace)
        counts = dict.fromkeys(State, 0)
        ended: Counter[State] = Counter()
        seen = [queue for queue in ns.queues.values() if sees(queue.name)]
        for queue in seen:
            ended.update(queue.ended)
            for state, number in queue.counts.items():
                counts[state] += number
        workers = sum(
            world_name == namespace and any(map(sees, worker.queues))
            for (world_name, _), worker in engine.core.roster.workers.items()
        )
        hour = broker.series.last_hour(namespace, sees)
        return StatsView(
            counts={state: number for state, number in counts.items() if number},
            depth_by_tier=count_tiers(seen),
            ended=dict(ended),
            workers=workers,
            sessions=0 if own_namespace() else broker.session_count(),  # Of all namespaces.
            started_us=broker.started_us,
            now_us=broker.now_us(),
            durability=broker.durability,
            version=__version__,
            sequence=0 if own_namespace() else engine.sequence,  # As well.
            succeeded_last_hour=hour.succeeded,
            dead_last_hour=hour.dead,
            mean_run_s=hour.mean_run_s,
        )

    return await broker.read(ask)


@Question
async def series(broker: Broker, namespace: str, about: About) -> SeriesView:
    seen = acting.get().queues  # Not to be asked for in the thread that reads.
    try:
        return await chart(
            broker,
            namespace,
            about.queue,
            since_us=about.since_us,
            until_us=about.until_us,
            step_s=about.step_s,
            sees=lambda queue: not seen or queue in seen,
        )
    except BadSpan as error:
        raise Refused(Refusal(Code.INVALID, f"series: {error}")) from None


@Question
async def pools(broker: Broker, namespace: str, about: About) -> list[PoolView]:
    views = await broker.read(lambda engine: pool_views(engine.core, namespace, sees))
    return [view for view in views if about.queue in ("", view.queue)]


@Question
async def schedules(broker: Broker, namespace: str, about: About) -> SchedulePage:
    limit = min(max(about.limit, 1), PAGE_ROWS_MAX)
    return await broker.read(
        lambda engine: schedule_page(
            engine.core, namespace, sees, text=about.text, after=about.cursor, limit=limit
        )
    )


@Question
async def schedule(broker: Broker, namespace: str, about: About) -> ScheduleView:
    def ask(engine: Engine) -> ScheduleView:
        ns = engine.core.book.namespaces.get(namespace) or Namespace(namespace)
        found = ns.schedules.get(about.name)
        if found is None or not sees(found.settings.queue):
            message = f"no schedule {about.name!r} in namespace {namespace!r}; list the schedules"
            raise Refused(Refusal(Code.UNKNOWN_SCHEDULE, message))
        return whole_view(engine, found)

    return await broker.read(ask)


@Question
async def contracts(broker: Broker, namespace: str, about: About) -> list[ContractView]:
    return await broker.read(
        lambda engine: contract_views(
            engine.core, namespace, sees, queue=about.queue, name=about.name, text=about.text
        )
    )


@Question
async def answer(broker: Broker, namespace: str, about: About) -> AnswerView:
    found = await broker.read(
        lambda engine: find_answer(engine.core, namespace, identity=about.identity, task=about.id)
    )
    if found is None:
        raise Refused(unknown(about.identity or about.id, namespace))
    return found


@Question
async def answers(broker: Broker, namespace: str, about: About) -> list[AnswerView]:
    return await broker.read(
        lambda engine: list_answers(
            engine.core,
            namespace,
            queue=about.queue,
            name=about.name,
            version=about.version,
            limit=min(max(about.limit, 1), PAGE_ROWS_MAX),
        )
    )


async def _api_keys(broker: Broker, _: str, __: About) -> list[ApiKeyView]:
    access, own = broker.access, own_namespace()
    return [
        view_as(ApiKeyView, key, configured=access.is_configured(key.id), role=role_of(key))
        for key in access.all_keys()
        if own in ("", key.namespace)
    ]


api_keys = Question(_api_keys, (Permission.ADMIN,), Scope.NAMESPACE)


def _find(engine: Engine, namespace: str, about: About) -> Task:
    task = engine.find(namespace, about.id, about.alias)
    if task is None or not sees(task.queue.name):
        what = about.alias or about.id.hex()
        message = f"no task {what!r} in namespace {namespace!r}"
        raise Refused(Refusal(Code.UNKNOWN_TASK, message))
    return task


def _view_of(engine: Engine, namespace: str, about: About) -> tuple[TaskView, tuple[Body, Body]]:
    task = _find(engine, namespace, about)
    result = task.outcome.result if task.outcome else b""
    return view_of_task(engine.core, task), (task.payload, result)
