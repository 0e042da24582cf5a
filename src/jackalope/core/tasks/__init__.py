"""The life of a task: submitted, assigned, attempted, retried, acted on, watched."""

from __future__ import annotations

from jackalope.core.commands import (
    ActOnTasks,
    AnswerSignal,
    FailAttempts,
    FinishAttempts,
    ReleaseAttempts,
    ReportProgress,
    StartAttempts,
    SubmitTasks,
    WatchTasks,
)
from jackalope.core.context import Context, Deadline, Room, each
from jackalope.core.tasks import actions, attempts, deadlines, submit, watches
from jackalope.core.tasks.assign import serve, skip_reserved


def settle(ctx: Context) -> None:
    """Release what waited for ended tasks, and assign ready tasks to workers."""
    ended = ctx.agenda.ended
    while ended:
        task, dependents = ended.popleft()
        watches.tell_watchers(ctx, task)
        submit.settle_dependents(ctx, task, dependents)
    serve(ctx)
    if ctx.agenda.rest:
        for queue in dict.fromkeys(ctx.agenda.take(submit.trim)):
            submit.trim(ctx, queue)


def recovered(ctx: Context) -> None:
    """See to what volatile tasks that are gone have left behind."""
    skip_reserved(ctx)
    submit.settle_let_down(ctx)


ROOM = Room(
    handlers={
        SubmitTasks: submit.submit_tasks,
        ActOnTasks: actions.act_on_tasks,
        WatchTasks: watches.watch_tasks,
    },
    reports={
        StartAttempts: attempts.start_attempts,
        FinishAttempts: attempts.finish_attempts,
        FailAttempts: attempts.fail_attempts,
        ReleaseAttempts: attempts.release_attempts,
        ReportProgress: attempts.report_progress,
        AnswerSignal: attempts.answer_signal,
    },
    missing={
        SubmitTasks: submit.missing,
        FinishAttempts: attempts.missing,
        ActOnTasks: actions.missing,
        WatchTasks: watches.missing,
    },
    deadlines=(
        Deadline(lambda ctx: ctx.book.expiry, each(deadlines.expire)),
        Deadline(lambda ctx: ctx.book.due, each(deadlines.come_due)),
        Deadline(lambda ctx: ctx.book.timeouts, each(deadlines.time_out)),
    ),
    settle=settle,
    session_ended=lambda ctx, session: ctx.watches.forget_session(session),
    recovered=recovered,
)
