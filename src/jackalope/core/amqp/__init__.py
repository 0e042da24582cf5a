"""AMQP 0-9-1 semantics: exchanges, bindings, consumers, dead letters, replies."""

from collections.abc import Sequence

from jackalope.core.amqp import consumers, dead_letters, exchanges, publish, queue_removal, replies
from jackalope.core.amqp.lifetimes import Lifetimes, watch_all
from jackalope.core.commands.amqp import (
    Bind,
    ClearRule,
    Consume,
    GrantCredit,
    HoldConsumer,
    LimitShare,
    OpenExchange,
    OpenQueue,
    PublishMessages,
    PurgeQueue,
    RemoveExchange,
    RemoveQueue,
    SetRule,
    StopConsuming,
    TakeTask,
    Unbind,
    WaitForReplies,
)
from jackalope.core.context import Context, Deadline, Ending, Room, each
from jackalope.core.records import AttemptFinished


def note_ends(ctx: Context, endings: Sequence[Ending]) -> None:
    """Put requests that the broker answers, and dead letters, on the agenda."""
    for task, record, attempt in endings:
        if task.envelope is not None and replies.is_unanswered(ctx, task, record, attempt):
            ctx.agenda.add(replies.answer, task)
        if isinstance(record, AttemptFinished) or record.reason is None:
            continue
        if dead_letters.has_dead_letters(task):
            ctx.agenda.add(dead_letters.dead_letter, (task, record.reason))


def settle(ctx: Context) -> None:
    """Send dead letters and replies, and handle queues that lost a consumer or their owner."""
    take = ctx.agenda.take
    for queue, spec, envelope in take(publish.enter):
        dead_letters.dead_letter_refused(ctx, queue, spec, envelope)
        replies.answer_refused(ctx, queue, spec, envelope)
    for task, reason in take(dead_letters.dead_letter):
        dead_letters.dead_letter(ctx, task, reason)
    for task in take(replies.answer):
        replies.answer(ctx, task)
    for name in dict.fromkeys(take(consumers.desert)):
        queue_removal.settle_queue(ctx, *name)


def forget_session(ctx: Context, session: int) -> None:
    """Drop the session's direct-reply addresses and delete its exclusive queues."""
    ctx.own(replies.DirectReplies).pop(session, None)
    for name in ctx.own(Lifetimes).owned.pop(session, ()):
        ctx.agenda.add(consumers.desert, name)


ROOM = Room(
    handlers={
        OpenQueue: consumers.open_queue,
        RemoveQueue: queue_removal.remove_queue,
        PurgeQueue: queue_removal.purge_queue,
        OpenExchange: exchanges.open_exchange,
        RemoveExchange: exchanges.remove_exchange,
        Bind: exchanges.bind,
        Unbind: exchanges.unbind,
        SetRule: exchanges.set_rule,
        ClearRule: exchanges.clear_rule,
        Consume: consumers.consume,
        StopConsuming: consumers.stop_consuming,
        HoldConsumer: consumers.hold_consumer,
        GrantCredit: consumers.grant_credit,
        LimitShare: consumers.limit_share,
        TakeTask: consumers.take_task,
        PublishMessages: publish.publish_messages,
        WaitForReplies: replies.wait_for_replies,
    },
    deadlines=(
        Deadline(lambda ctx: ctx.roster.deliveries, each(consumers.check_deliveries)),
        Deadline(lambda ctx: ctx.own(Lifetimes).idle, each(queue_removal.retire)),
    ),
    settle_rest=settle,
    tasks_ended=note_ends,
    session_ended=forget_session,
    worker_left=consumers.desert,
    recovered=watch_all,
)
