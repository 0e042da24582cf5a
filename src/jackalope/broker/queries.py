"""Queries: what the broker shows of itself.

Owns the way from state to views. Changes nothing. Whatever is in memory is read between two turns;
lists of tasks come from history, which is brought up to date first, so a list is never stale.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from jackalope import __version__
from jackalope.broker.engine import Engine
from jackalope.broker.service import Broker
from jackalope.core.explain import explain, history
from jackalope.core.filter import Filter
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import State
from jackalope.core.limits import TIME_US_MAX
from jackalope.core.queue import Namespace, Queue
from jackalope.core.refusals import Code, Refusal
from jackalope.core.task import BlobRef, Body, Task, TaskRow, to_row
from jackalope.core.worker import Worker
from jackalope.storage import BadCursor
from jackalope.wire.views import (
    BatchView,
    CauseView,
    ErrorView,
    ExplanationView,
    HappeningView,
    LimitView,
    ProgressView,
    QueueView,
    RequestView,
    StatsView,
    TaskPage,
    TaskView,
    WorkerView,
)

PAGE_ROWS_DEFAULT = 100
PAGE_ROWS_MAX = 1_000


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
    sort: str = "-created"
    limit: int = PAGE_ROWS_DEFAULT
    cursor: str = ""
    before: int = 0


async def answer(broker: Broker, namespace: str, what: str, about: dict[str, Any]) -> Any:
    """Answer a question.

    Raises:
        Refused: it is unknown, badly asked, or about something that is not there.
    """
    ask = _QUESTIONS.get(what)
    if ask is None:
        message = f"no question {what!r}; there are {', '.join(_QUESTIONS)}"
        raise Refused(Refusal(Code.INVALID, message))
    try:
        # Ids come as bytes, and only as bytes.
        asked = msgspec.convert(about, About, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise Refused(Refusal(Code.INVALID, f"question {what!r}: {error}")) from None
    if not all(0 <= n <= TIME_US_MAX for n in (asked.batch, asked.older_than_us, asked.before)):
        message = f"question {what!r}: batch, older_than_us and before must be 0 to {TIME_US_MAX}"
        raise Refused(Refusal(Code.INVALID, message))
    return await ask(broker, namespace, asked)


async def _task(broker: Broker, namespace: str, about: About) -> TaskView:
    view, bodies = await broker.read(lambda engine: _view_of(engine, namespace, about))
    if not about.bodies:
        return view
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
    )
    limit = min(max(about.limit, 1), PAGE_ROWS_MAX)
    await broker.flush()
    try:
        page = await broker.off_loop(
            lambda: broker.engine.history.page(
                namespace, wanted, sort=about.sort, limit=limit, cursor=about.cursor
            )
        )
    except (BadCursor, ValueError) as error:
        raise Refused(Refusal(Code.INVALID, f"list of tasks: {error}")) from None
    return TaskPage([view_of_row(row) for row in page.rows], page.cursor)


async def _history(broker: Broker, namespace: str, about: About) -> list[HappeningView]:
    happened = await broker.read(lambda engine: history(_find(engine, namespace, about)))
    return [HappeningView(h.at_us, h.what, h.by, h.detail) for h in happened]


async def _explain(broker: Broker, namespace: str, about: About) -> ExplanationView:
    explained = await broker.read(
        lambda engine: explain(engine.core, _find(engine, namespace, about))
    )
    causes = tuple(CauseView(cause.why, cause.text, cause.facts) for cause in explained.causes)
    return ExplanationView(explained.task, explained.state, causes)


async def _queues(broker: Broker, namespace: str, about: About) -> list[QueueView]:
    def ask(engine: Engine) -> list[QueueView]:
        world = engine.core.book.namespaces.get(namespace)
        queues = [] if world is None else sorted(world.queues.values(), key=lambda q: q.name)
        return [_queue_view(engine, queue) for queue in queues if about.queue in ("", queue.name)]

    return await broker.read(ask)


async def _workers(broker: Broker, namespace: str, _: About) -> list[WorkerView]:
    def ask(engine: Engine) -> list[WorkerView]:
        roster = engine.core.roster
        here = [_worker_view(w) for (world, _), w in roster.workers.items() if world == namespace]
        known = {view.worker for view in here}
        gone = [
            WorkerView(left.worker, "gone", gone_us=left.at_us, why_gone=left.why)
            for left in roster.departed
            if left.namespace == namespace and left.worker not in known
        ]
        return sorted(here, key=lambda view: view.worker) + gone

    return await broker.read(ask)


async def _limits(broker: Broker, namespace: str, _: About) -> list[LimitView]:
    def ask(engine: Engine) -> list[LimitView]:
        world = engine.core.book.namespaces.get(namespace) or Namespace(namespace)
        return [
            LimitView(tag, limit, world.in_flight.get(tag, 0))
            for tag, limit in sorted(world.limits.items())
        ]

    return await broker.read(ask)


async def _batches(broker: Broker, namespace: str, about: About) -> list[BatchView]:
    queue = await broker.read(lambda engine: engine.core.book.queue(namespace, about.queue))
    if queue is None:
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
        world = engine.core.book.namespaces.get(namespace) or Namespace(namespace)
        counts = dict.fromkeys(State, 0)
        ended: Counter[State] = Counter()
        tiers = {"high": 0, "normal": 0, "low": 0}
        for queue in world.queues.values():
            ended.update(queue.ended)
            for state, number in queue.counts.items():
                counts[state] += number
            for lane in queue.line.lanes.values():
                for priority, number in lane.sizes():
                    tier = "high" if priority >= 200 else "normal" if priority >= 100 else "low"
                    tiers[tier] += number
        workers = sum(world_name == namespace for world_name, _ in engine.core.roster.workers)
        return StatsView(
            counts={state: number for state, number in counts.items() if number},
            depth_by_tier=tiers,
            ended=dict(ended),
            workers=workers,
            sessions=broker.session_count(),
            started_us=broker.started_us,
            now_us=broker.now_us(),
            durability=broker.durability,
            version=__version__,
            sequence=engine.sequence,
        )

    return await broker.read(ask)


_QUESTIONS: dict[str, Callable[[Broker, str, About], Coroutine[Any, Any, Any]]] = {
    "task": _task,
    "tasks": _tasks,
    "history": _history,
    "explain": _explain,
    "queues": _queues,
    "workers": _workers,
    "limits": _limits,
    "batches": _batches,
    "stats": _stats,
}


def _find(engine: Engine, namespace: str, about: About) -> Task:
    """Find a task by its id or alias, in memory or else in history."""
    task = engine.find(namespace, about.id, about.alias)
    if task is None:
        what = about.alias or about.id.hex()
        message = f"no task {what!r} in namespace {namespace!r}"
        raise Refused(Refusal(Code.UNKNOWN_TASK, message))
    return task


def _view_of(engine: Engine, namespace: str, about: About) -> tuple[TaskView, tuple[Body, Body]]:
    task = _find(engine, namespace, about)
    view = view_of_row(to_row(task))
    progress = engine.core.progress.get(task.id)
    if progress is not None:
        shown = ProgressView(progress.at_us, progress.percent, progress.note)
        view = msgspec.structs.replace(view, progress=shown)
    return view, (task.payload, task.outcome.result if task.outcome else b"")


async def _load(broker: Broker, body: Body) -> bytes:
    if not isinstance(body, BlobRef):
        return body
    return await broker.off_loop(lambda: b"".join(broker.engine.blobs.read(body)))


def view_of_row(row: TaskRow) -> TaskView:
    """Show a task as it is stored, without its bodies."""
    options, attempt, outcome = row.options, row.attempt, row.outcome
    asked = attempt.request if attempt else None
    return TaskView(
        id=row.id,
        namespace=row.namespace,
        queue=row.queue,
        state=row.state,
        name=row.name,
        key=row.key,
        alias=options.alias,
        priority=row.priority,
        tags=options.tags,
        headers=options.headers,
        batch=row.batch,
        parent=options.parent,
        by=row.by,
        created_us=row.created_us,
        due_us=row.due_us,
        expires_us=row.expires_us,
        started_us=attempt.started_us if attempt else 0,
        ended_us=outcome.ended_us if outcome else 0,
        forget_us=outcome.forget_us if outcome else 0,
        worker=attempt.worker if attempt else _last_worker(row),
        fence=attempt.fence if attempt else 0,
        attempts=row.attempts,
        failures=row.failures,
        crashes=row.crashes,
        interruptions=row.interruptions,
        waiting_for=row.waiting_for,
        reason=outcome.reason if outcome else None,
        error=ErrorView.of(outcome.error) if outcome and outcome.error else None,
        request=RequestView(asked.signal, asked.stage, asked.by, asked.at_us) if asked else None,
        payload_size=_size(row.payload),
        result_size=_size(outcome.result) if outcome else 0,
    )


def _last_worker(row: TaskRow) -> str:
    assigned = (happening.by for happening in reversed(row.history) if happening.what == "assign")
    return next(assigned, "")


def _size(body: Body) -> int:
    return body.size if isinstance(body, BlobRef) else len(body)


def _queue_view(engine: Engine, queue: Queue) -> QueueView:
    heads = (lane.head(engine.core.book.tasks) for lane in queue.line.lanes.values())
    crews = engine.core.roster.crews(queue.namespace.name, queue.name)
    return QueueView(
        queue=queue.name,
        counts={state: number for state, number in queue.counts.items() if number},
        depth=queue.depth,
        workers=sum(len(crew.members) for crew in crews),
        policy=queue.policy,
        paused_by=queue.paused_by,
        oldest_ready_us=min((head.rank for head in heads if head), default=0),
    )


def _worker_view(worker: Worker) -> WorkerView:
    if not worker.session:
        state = "away"
    elif worker.is_draining:
        state = "draining"
    else:
        state = "active" if worker.held else "idle"
    return WorkerView(
        worker=worker.id,
        state=state,
        queues=worker.queues,
        keys=worker.keys,
        slots=worker.slots,
        load=len(worker.held),
        labels=worker.labels,
        stats=worker.stats,
        joined_us=worker.joined_us,
        heard_us=worker.heard_us,
    )
