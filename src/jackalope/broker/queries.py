"""Queries: what the broker shows of itself.

Converts state to views, and changes nothing. Whatever is in memory is read between two turns;
lists of tasks come from history, which is brought up to date first, so a list is never stale.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from jackalope import __version__
from jackalope.broker.access import Principal, acting, sees
from jackalope.broker.engine import Engine
from jackalope.broker.service import Broker
from jackalope.broker.telemetry.gauges import (
    BadSpan,
    chart,
    count_tiers,
    gone_view,
    oldest_ready_us,
    worker_view,
)
from jackalope.broker.views.pools import pool_views
from jackalope.broker.views.tasks import find_answer, list_answers, view_of_row, view_of_task
from jackalope.core.api_key import Permission
from jackalope.core.commands.base import Scope
from jackalope.core.durations import SECOND
from jackalope.core.explain import explain, whole_history
from jackalope.core.filter import Filter
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import State
from jackalope.core.limits import TIME_US_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.request import unknown
from jackalope.core.state.queue import NO_TALLY, Namespace, Queue
from jackalope.core.task import BlobRef, Body, Task, size_of
from jackalope.storage import BadCursor
from jackalope.wire.frames import FRAME_BYTES_MAX
from jackalope.wire.views import (
    AnswerView,
    ApiKeyView,
    BatchView,
    CauseView,
    ExplanationView,
    HistoryEntryView,
    LimitView,
    PoolView,
    QueueView,
    SeriesView,
    StatsView,
    TaskPage,
    TaskView,
    WorkerView,
)

PAGE_ROWS_DEFAULT = 100
PAGE_ROWS_MAX = 1_000

#: How many rows may be counted off; further pages need a cursor, which costs nothing.
OFFSET_ROWS_MAX = 100_000

#: The year 10,000, which calendars do not know.
_CALENDAR_END_US = 253_402_300_800 * SECOND


class Refused(Exception):
    """The question cannot be answered."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class About(msgspec.Struct, forbid_unknown_fields=True):
    """What a question may name. Each kind of question looks at what it needs."""

    id: TaskId = TaskId(b"")
    alias: str = ""
    bodies: bool = False
    states: tuple[State, ...] = ()
    queue: str = ""
    name: str = ""
    key: str = ""
    tag: str = ""
    parent: TaskId = TaskId(b"")
    batch: int = 0
    text: str = ""
    older_than_us: int = 0
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


async def answer(broker: Broker, namespace: str, what: str, about: dict[str, Any]) -> Any:
    """Answer a question."""
    question = QUESTIONS.get(what)
    if question is None:
        _admit(TASK, namespace)  # Without the permission to ask, none is known.
        message = f"no question {what!r}; there are {', '.join(QUESTIONS)}"
        raise Refused(Refusal(Code.INVALID, message))
    _admit(question, namespace)
    try:
        # Ids come as bytes, and only as bytes.
        asked = msgspec.convert(about, About, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise Refused(Refusal(Code.INVALID, f"question {what!r}: {error}")) from None
    numbers = (asked.batch, asked.older_than_us, asked.before, asked.offset)
    times = (asked.since_us, asked.until_us, asked.step_s)
    if not all(0 <= number <= TIME_US_MAX for number in numbers + times):
        names = "batch, older_than_us, before, offset, since_us, until_us and step_s"
        message = f"question {what!r}: {names} must be 0 to {TIME_US_MAX}"
        raise Refused(Refusal(Code.INVALID, message))
    return await question.ask(broker, namespace, asked)


async def task_and_bodies(
    broker: Broker,
    namespace: str,
    about: About,
    needs: tuple[Permission, ...] = (Permission.READ_TASKS,),
) -> tuple[TaskView, tuple[Body, Body]]:
    """Show a task, and name its payload and its result, wherever they are kept.

    Raises:
        Refused: there is no such task, or the client has none of the permissions for it.
    """
    _admit(Question(_task, needs), namespace)
    return await broker.read(lambda engine: _view_of(engine, namespace, about))


async def _task(broker: Broker, namespace: str, about: About) -> TaskView:
    view, bodies = await task_and_bodies(broker, namespace, about)
    if not about.bodies:
        return view
    total = sum(map(size_of, bodies))
    if total > FRAME_BYTES_MAX:  # Known before anything is loaded.
        message = f"the bodies of the task have {total} bytes; fetch them in parts"
        raise Refused(Refusal(Code.TOO_LARGE, message))
    payload, result = [await _load(broker, body) for body in bodies]
    return msgspec.structs.replace(view, payload=payload, result=result)


async def _tasks(broker: Broker, namespace: str, about: About) -> TaskPage:
    wanted = Filter(
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
    )
    if not wanted.is_sound():
        raise Refused(Refusal(Code.INVALID, "list of tasks: it names too many queues"))
    limit = min(max(about.limit, 1), PAGE_ROWS_MAX)
    offset = min(about.offset, OFFSET_ROWS_MAX)

    def ask() -> TaskPage:
        history = broker.engine.history
        page = history.page(
            namespace, wanted, sort=about.sort, limit=limit, cursor=about.cursor, offset=offset
        )
        total = broker.totals.count(history, namespace, wanted) if about.total else None
        return TaskPage([view_of_row(row) for row in page.rows], page.cursor, total)

    what = (namespace, wanted, about.sort, limit, about.cursor, offset, about.total)
    await broker.flush()
    try:
        return await broker.lists.ask(what, ask, broker.off_loop)
    except (BadCursor, ValueError) as error:
        raise Refused(Refusal(Code.INVALID, f"list of tasks: {error}")) from None


def _queues_meant(about: About) -> tuple[str, ...]:
    """Return the queues that are asked for and seen; the one without a name if there is none."""
    seen = acting.get().queues
    if not seen or not about.queues:
        return seen or about.queues
    return tuple(queue for queue in about.queues if queue in seen) or ("",)


async def _history(broker: Broker, namespace: str, about: About) -> list[HistoryEntryView]:
    happened = await broker.read(
        lambda engine: whole_history(engine.core, _find(engine, namespace, about))
    )
    return [HistoryEntryView(h.at_us, h.what, h.by, h.detail) for h in happened]


async def _explain(broker: Broker, namespace: str, about: About) -> ExplanationView:
    explained = await broker.read(
        lambda engine: explain(engine.core, _find(engine, namespace, about))
    )
    causes = tuple(
        CauseView(cause.why, _readable(cause.text, cause.facts), cause.facts)
        for cause in explained.causes
    )
    return ExplanationView(explained.task, explained.state, causes)


def _readable(text: str, facts: Mapping[str, str | int]) -> str:
    """Write the moments in a text as people do; the core knows them as numbers alone."""
    for name, fact in facts.items():
        if name.endswith("_us") and isinstance(fact, int) and 0 < fact < _CALENDAR_END_US:
            moment = datetime.fromtimestamp(fact / SECOND, UTC)
            text = text.replace(str(fact), f"{moment:%Y-%m-%dT%H:%M:%SZ}")
    return text


async def _namespaces(broker: Broker, _: str, __: About) -> list[str]:
    key = acting.get().key
    own = key.namespace if key else ""
    found = await broker.read(lambda engine: sorted(engine.core.book.namespaces))
    return [name for name in found if own in ("", name)]


async def _queues(broker: Broker, namespace: str, about: About) -> list[QueueView]:
    def ask(engine: Engine) -> list[QueueView]:
        ns = engine.core.book.namespaces.get(namespace)
        queues = [] if ns is None else sorted(ns.queues.values(), key=lambda q: q.name)
        return [
            _queue_view(engine, queue)
            for queue in queues
            if about.queue in ("", queue.name) and sees(queue.name)
        ]

    return await broker.read(ask)


async def _workers(broker: Broker, namespace: str, _: About) -> list[WorkerView]:
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


async def _limits(broker: Broker, namespace: str, _: About) -> list[LimitView]:
    def ask(engine: Engine) -> list[LimitView]:
        ns = engine.core.book.namespaces.get(namespace) or Namespace(namespace)
        return [
            LimitView(tag, limit, ns.in_flight.get(tag, 0))
            for tag, limit in sorted(ns.limits.items())
        ]

    return await broker.read(ask)


async def _batches(broker: Broker, namespace: str, about: About) -> list[BatchView]:
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


async def _stats(broker: Broker, namespace: str, _: About) -> StatsView:
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
            sessions=broker.session_count(),
            started_us=broker.started_us,
            now_us=broker.now_us(),
            durability=broker.durability,
            version=__version__,
            sequence=engine.sequence,
            succeeded_last_hour=hour.succeeded,
            dead_last_hour=hour.dead,
            mean_run_s=hour.mean_run_s,
        )

    return await broker.read(ask)


async def _pools(broker: Broker, namespace: str, about: About) -> list[PoolView]:
    views = await broker.read(lambda engine: pool_views(engine.core, namespace, sees))
    return [view for view in views if about.queue in ("", view.queue)]


async def _series(broker: Broker, namespace: str, about: About) -> SeriesView:
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


async def _answer(broker: Broker, namespace: str, about: About) -> AnswerView:
    found = await broker.read(
        lambda engine: find_answer(engine.core, namespace, identity=about.identity, task=about.id)
    )
    if found is None:
        raise Refused(unknown(about.identity or about.id, namespace))
    return found


async def _answers(broker: Broker, namespace: str, about: About) -> list[AnswerView]:
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
    access = broker.access
    return [
        ApiKeyView(
            id=key.id,
            name=key.name,
            permissions=key.permissions,
            queues=key.queues,
            namespace=key.namespace,
            expires_us=key.expires_us,
            created_us=key.created_us,
            by=key.by,
            configured=access.is_configured(key.id),
        )
        for key in access.all_keys()
    ]


class Question(NamedTuple):
    """A kind of question: who answers it, who may ask it, and how far it reaches."""

    ask: Callable[[Broker, str, About], Coroutine[Any, Any, Any]]
    needs: tuple[Permission, ...] = (Permission.READ_TASKS,)
    scope: Scope = Scope.NARROWED  # what is seen depends on the queues of who asks


TASK = Question(_task)

QUESTIONS: dict[str, Question] = {
    "task": TASK,
    "tasks": Question(_tasks),
    "namespaces": Question(_namespaces),
    "history": Question(_history),
    "explain": Question(_explain),
    "queues": Question(_queues),
    "workers": Question(_workers),
    "limits": Question(_limits),
    "batches": Question(_batches),
    "stats": Question(_stats),
    "series": Question(_series),
    "pools": Question(_pools),
    "answer": Question(_answer),
    "answers": Question(_answers),
    "api_keys": Question(_api_keys, (Permission.ADMIN,), Scope.BROKER),
}


def refuse_question(who: Principal, question: Question, namespace: str) -> Refusal | None:
    where = None if question.scope is Scope.BROKER else namespace
    return who.refuse_any(question.needs, where) or who.refuse_scope(question.scope)


def _admit(question: Question, namespace: str) -> None:
    refusal = refuse_question(acting.get(), question, namespace)
    if refusal is not None:
        raise Refused(refusal)


def _find(engine: Engine, namespace: str, about: About) -> Task:
    """Find a task by its id or alias, in memory or else in history."""
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


async def _load(broker: Broker, body: Body) -> bytes:
    if not isinstance(body, BlobRef):
        return body
    return await broker.blobs.off_loop(lambda: b"".join(broker.blobs.read(body)))


def _queue_view(engine: Engine, queue: Queue) -> QueueView:
    crews = engine.core.roster.crews(queue.namespace.name, queue.name)
    return QueueView(
        queue=queue.name,
        counts={state: number for state, number in queue.counts.items() if number},
        depth=queue.depth,
        workers=sum(len(crew.members) for crew in crews),
        policy=queue.policy,
        paused_by=queue.paused_by,
        oldest_ready_us=oldest_ready_us(queue, engine.core),
    )
