"""Views of tasks and answers.

Owns the conversion of a task to what is shown of it. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice

import msgspec

from jackalope.broker.access import sees
from jackalope.core import Core
from jackalope.core.durations import SECOND
from jackalope.core.explain import explain, whole_history
from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.lifecycle import ENDED
from jackalope.core.shapes.callback import callback_id
from jackalope.core.shapes.envelope import headers_shown
from jackalope.core.shapes.needs import NO_NEEDS, needs_shown
from jackalope.core.shapes.steps import Steps
from jackalope.core.state.queue import Queue
from jackalope.core.task import Task, TaskRow, how_made, joined, last_start_us, last_worker, size_of
from jackalope.wire.views import (
    AnswerView,
    CallbackView,
    CauseView,
    ErrorView,
    ExplanationView,
    HistoryEntryView,
    PaceView,
    ProgressView,
    RequestView,
    SentEventView,
    StepView,
    TaskView,
    view_as,
)

#: The year 10,000, which calendars do not know.
_CALENDAR_END_US = 253_402_300_800 * SECOND


def view_of_task(core: Core, task: Task) -> TaskView:
    """Return the view of a task, with what only memory has: progress and uses of its answer."""
    progress = core.progress.get(task.id)
    return _view(
        task,
        task.queue.namespace.name,
        task.queue.name,
        progress=None if progress is None else view_as(ProgressView, progress),
        answer=answer_of(core, task),
    )


def view_of_row(row: TaskRow, *, with_payload: bool = False) -> TaskView:
    """Return the view of a stored task, without its bodies, or with what the row has of one."""
    view = _view(row, row.namespace, row.queue)
    if with_payload and isinstance(row.payload, bytes):
        return msgspec.structs.replace(view, payload=row.payload)
    return view


def _view(
    task: Task | TaskRow,
    namespace: str,
    queue: str,
    progress: ProgressView | None = None,
    answer: AnswerView | None = None,
) -> TaskView:
    options, attempt, outcome, history = task.options, task.attempt, task.outcome, task.history
    has_ended, asked = task.state in ENDED, attempt.request if attempt else None
    start_us = last_start_us(task) if has_ended else 0
    return TaskView(
        id=task.id,
        namespace=namespace,
        queue=queue,
        state=task.state,
        name=task.name,
        key=task.key,
        alias=options.alias,
        priority=task.priority,
        tags=options.tags,
        headers=headers_shown(options.headers, task.envelope),
        batch=task.batch,
        parent=options.parent,
        by=task.by,
        created_us=task.created_us,
        due_us=task.due_us,
        expires_us=task.expires_us,
        started_us=attempt.started_us if attempt else start_us,
        ended_us=outcome.ended_us if outcome and has_ended else 0,
        forget_us=outcome.forget_us if outcome else 0,
        worker=attempt.worker if attempt else last_worker(task),
        fence=attempt.fence if attempt else 0,
        attempts=task.attempts,
        failures=task.failures,
        crashes=task.crashes,
        interruptions=task.interruptions,
        waiting_for=tuple(sorted(task.waiting_for or ())),
        reason=outcome.reason if outcome else None,
        error=view_as(ErrorView, outcome.error) if outcome and outcome.error else None,
        request=view_as(RequestView, asked) if asked else None,
        payload_size=size_of(task.payload),
        result_size=size_of(outcome.result) if outcome else 0,
        updated_us=history[-1].at_us if history else task.created_us,
        timeout_us=options.timeout_us,
        retries=options.retry.retries if options.retry else None,
        how=how_made(options),
        depends_on=options.depends_on,
        steps=_steps(task.steps) if task.steps is not None else (),
        waits_for=task.steps.pending.event if task.steps and task.steps.pending else "",
        events=_events(task.steps) if task.steps is not None else (),
        tried_us=outcome.ended_us if outcome and not has_ended else 0,
        callbacks=_callbacks(task) if options.callbacks else (),
        pace=view_as(PaceView, pace, drop=pace.drops) if (pace := options.pace) else None,
        needs=needs_shown(needs) if (needs := options.needs or NO_NEEDS) is not NO_NEEDS else {},
        prefer=dict(needs.prefer),
        avoid=dict(needs.avoid),
        sticky=needs.sticky,
        progress=progress,
        answer=answer,
    )


def _steps(steps: Steps) -> tuple[StepView, ...]:
    return tuple(
        view_as(StepView, step, size=len(step.result))
        for step in sorted(steps.done, key=lambda step: step.index)
    )


def _events(steps: Steps) -> tuple[SentEventView, ...]:
    return tuple(view_as(SentEventView, each, size=len(each.data)) for each in steps.events)


def _callbacks(task: Task | TaskRow) -> tuple[CallbackView, ...]:
    ended_us = task.outcome.ended_us if task.outcome and task.state in ENDED else 0
    return tuple(
        CallbackView(
            each.url,
            tuple(map(str, each.on)),
            callback_id(task.id, ended_us, each.url)
            if ended_us and each.is_about(task.state)
            else NO_TASK,
        )
        for each in task.options.callbacks
    )


def history_of(core: Core, task: Task) -> list[HistoryEntryView]:
    return [view_as(HistoryEntryView, entry) for entry in whole_history(core, task)]


def explanation_of(core: Core, task: Task) -> ExplanationView:
    explained = explain(core, task)
    causes = (
        view_as(CauseView, cause, text=_readable(cause.text, cause.facts))
        for cause in explained.causes
    )
    return ExplanationView(explained.task, explained.state, tuple(causes))


def _readable(text: str, facts: Mapping[str, str | int]) -> str:
    """Replace the timestamps in a text by readable times."""
    for name, fact in facts.items():
        if name.endswith("_us") and isinstance(fact, int) and 0 < fact < _CALENDAR_END_US:
            moment = datetime.fromtimestamp(fact / SECOND, UTC)
            text = text.replace(str(fact), f"{moment:%Y-%m-%dT%H:%M:%SZ}")
    return text


# Answers as they are shown: which requests are under way, and which answers are kept.


def list_answers(
    core: Core, namespace: str, *, queue: str, name: str, version: str, limit: int
) -> list[AnswerView]:
    """Return views of cached answers, queue by queue, the most recently used first."""
    ns = core.book.namespaces.get(namespace)
    queues = [] if ns is None else sorted(ns.queues.values(), key=lambda each: each.name)
    found = (
        view_as(AnswerView, answer)
        for each in queues
        if queue in ("", each.name) and sees(each.name)
        for answer in reversed(each.cache.answers.values())
        if name in ("", answer.name) and version in ("", answer.version)
    )
    return list(islice(found, limit))


def find_answer(
    core: Core, namespace: str, *, identity: bytes = b"", task: TaskId = NO_TASK
) -> AnswerView | None:
    ns = core.book.namespaces.get(namespace)
    if ns is None:
        return None
    if not identity:
        answer = core.book.answers.by_task.get(task)
        is_here = answer is not None and answer.namespace == namespace and sees(answer.queue)
        return view_as(AnswerView, answer) if answer is not None and is_here else None
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
    return None if answer is None else view_as(AnswerView, answer)


def answer_of(core: Core, task: Task) -> AnswerView | None:
    """Return the uses and waiters of a task's result; None if it is not shared."""
    answer = core.book.answers.by_task.get(task.id)
    if answer is not None:
        return view_as(AnswerView, answer)
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
