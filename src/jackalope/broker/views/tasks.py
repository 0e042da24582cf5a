"""Views of tasks.

Owns the conversion of a task to its view. Changes nothing.
"""

from __future__ import annotations

from itertools import islice

import msgspec

from jackalope.broker.access import sees
from jackalope.core import Core
from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.lifecycle import ENDED
from jackalope.core.shapes.envelope import headers_shown
from jackalope.core.shapes.request import StoredAnswer
from jackalope.core.state.queue import Queue
from jackalope.core.task import Task, TaskRow, how_made, joined, size_of, to_row
from jackalope.wire.views import AnswerView, ErrorView, ProgressView, RequestView, TaskView


def view_of_task(core: Core, task: Task) -> TaskView:
    """Show a task with what only memory knows: how far it is, and who has use of its answer."""
    progress = core.progress.get(task.id)
    return msgspec.structs.replace(
        view_of_row(to_row(task)),
        progress=progress and ProgressView(progress.at_us, progress.percent, progress.note),
        answer=answer_of(core, task),
    )


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
        headers=headers_shown(options.headers, row.letter),
        batch=row.batch,
        parent=options.parent,
        by=row.by,
        created_us=row.created_us,
        due_us=row.due_us,
        expires_us=row.expires_us,
        started_us=attempt.started_us if attempt else _last_start_us(row),
        ended_us=outcome.ended_us if outcome and row.state in ENDED else 0,
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
        payload_size=size_of(row.payload),
        result_size=size_of(outcome.result) if outcome else 0,
        updated_us=row.history[-1].at_us if row.history else row.created_us,
        timeout_us=options.timeout_us,
        retries=options.retry.retries if options.retry else None,
        how=how_made(options),
        depends_on=options.depends_on,
        tried_us=outcome.ended_us if outcome and row.state not in ENDED else 0,
    )


def _last_start_us(row: TaskRow) -> int:
    if row.state not in ENDED:
        return 0
    started = (happening.at_us for happening in reversed(row.history) if happening.what == "start")
    return next(started, 0)


def _last_worker(row: TaskRow) -> str:
    assigned = (happening.by for happening in reversed(row.history) if happening.what == "assign")
    return next(assigned, "")


# Answers as they are shown: which requests are under way, and which answers are kept.


def list_answers(
    core: Core, namespace: str, *, queue: str, name: str, version: str, limit: int
) -> list[AnswerView]:
    """Show the answers that are kept, queue by queue, the most recently used first."""
    ns = core.book.namespaces.get(namespace)
    queues = [] if ns is None else sorted(ns.queues.values(), key=lambda each: each.name)
    found = (
        view_of_answer(answer)
        for each in queues
        if queue in ("", each.name) and sees(each.name)
        for answer in reversed(each.cache.answers.values())
        if name in ("", answer.name) and version in ("", answer.version)
    )
    return list(islice(found, limit))


def find_answer(
    core: Core, namespace: str, *, identity: bytes = b"", task: TaskId = NO_TASK
) -> AnswerView | None:
    """Show a request by its identity or its task: the task that is under way, or the answer."""
    ns = core.book.namespaces.get(namespace)
    if ns is None:
        return None
    if not identity:
        answer = core.book.answers.by_task.get(task)
        is_here = answer is not None and answer.namespace == namespace and sees(answer.queue)
        return view_of_answer(answer) if answer is not None and is_here else None
    for queue in ns.queues.values():
        if sees(queue.name):
            view = _in_queue(core, queue, identity)
            if view is not None:
                return view
    return None


def _in_queue(core: Core, queue: Queue, identity: bytes) -> AnswerView | None:
    under_way = queue.cache.flights.get(identity)
    if under_way is not None:
        return _awaited(core.book.tasks[under_way])
    answer = queue.cache.answers.get(identity)
    return None if answer is None else view_of_answer(answer)


def answer_of(core: Core, task: Task) -> AnswerView | None:
    """Show who has use of a task's result, or is waiting for it; None if it is not shared."""
    answer = core.book.answers.by_task.get(task.id)
    if answer is not None:
        return view_of_answer(answer)
    is_under_way = task.options.identity and task.state not in ENDED
    return _awaited(task) if is_under_way else None


def _awaited(task: Task) -> AnswerView:
    return AnswerView(
        identity=task.options.identity,
        queue=task.queue.name,
        task=task.id,
        state=task.state,
        name=task.name,
        version=task.options.version,
        uses=joined(task),
    )


def view_of_answer(answer: StoredAnswer) -> AnswerView:
    return AnswerView(
        identity=answer.identity,
        queue=answer.queue,
        task=answer.task,
        state=answer.state,
        name=answer.name,
        version=answer.version,
        worker=answer.worker,
        size=answer.size,
        made_us=answer.made_us,
        until_us=answer.until_us,
        uses=answer.uses,
        used_us=answer.used_us,
        used_by=answer.used_by,
        pinned_by=answer.pinned_by,
    )
