"""Portraits: a task as anybody may see it.

Owns the way from a task to its view. Changes nothing.
"""

from __future__ import annotations

import msgspec

from jackalope.broker.answers import answer_of
from jackalope.core import Core
from jackalope.core.letters import headers_shown
from jackalope.core.lifecycle import ENDED
from jackalope.core.requests import how_made
from jackalope.core.task import Task, TaskRow, size_of, to_row
from jackalope.wire.views import ErrorView, ProgressView, RequestView, TaskView


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
