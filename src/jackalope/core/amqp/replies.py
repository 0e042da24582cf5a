"""Replies: every request to a pool over AMQP is answered, whatever its outcome.

Owns the replies that the broker sends. A worker that consumes over AMQP replies by itself before it
acknowledges. For all others the broker does: with what a worker of another door returned, with its
error, or with the reason why no worker answered. The header `x-status` holds which, as a byte
array, because osrdyne's clients read it so.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from jackalope.core.amqp.dead_letters import REASONS
from jackalope.core.amqp.publish import enter, priority_in
from jackalope.core.commands.amqp import WaitForReplies
from jackalope.core.context import Context, TaskEnd
from jackalope.core.effects import Accepted, DirectReply
from jackalope.core.ids import TaskId, successor_id, volatile_id
from jackalope.core.lifecycle import Reason, State
from jackalope.core.records import AttemptFinished
from jackalope.core.shapes.envelope import reply_address, reply_properties
from jackalope.core.shapes.exchange import REPLY_TO, is_request
from jackalope.core.state.queue import Queue
from jackalope.core.task import Attempt, BlobRef, Body, Envelope, Error, Task, TaskSpec

OK, APPLICATION_ERROR = "ok", "core_error"

#: What a person killed was rejected too.
_OTHERWISE = REASONS[Reason.REJECTED]


class DirectReplies(dict[int, set[str]]):
    """The addresses at which sessions wait for direct replies, by session."""


def wait_for_replies(ctx: Context, command: WaitForReplies) -> Accepted:
    """Register or remove a session's address for direct replies.

    Addresses are secrets and never reused: after a restart no client waits at an earlier one.
    """
    by_session = ctx.own(DirectReplies)
    waiting = by_session.setdefault(command.session, set())
    if command.is_over:
        waiting.discard(command.address)
    else:
        waiting.add(command.address)
    if not waiting:
        del by_session[command.session]
    return Accepted()


def address_of(session: int, secret: str) -> str:
    return f"{REPLY_TO}.{session}.{secret}"


def is_unanswered(ctx: Context, task: Task, record: TaskEnd, attempt: Attempt | None) -> bool:
    """Return whether a task that ended by this record is a request that only the broker answers."""
    if not is_request(task.queue.name, task.envelope):
        return False
    if not isinstance(record, AttemptFinished) or attempt is None:
        return True
    worker = ctx.roster.workers.get((task.queue.namespace.name, attempt.worker))
    return worker is None or worker.consumer is None


def answer(ctx: Context, task: Task) -> None:
    outcome = task.outcome
    if task.envelope is None or outcome is None:
        return
    body: Body = b""
    status = _OTHERWISE
    if task.state is State.SUCCEEDED:
        status, body = OK, outcome.result
    elif outcome.reason is Reason.FAILED and outcome.error is not None:
        status, body = APPLICATION_ERROR, _told(outcome.error)
    elif outcome.reason is not None:
        status = REASONS.get(outcome.reason, _OTHERWISE)
    reply_id = successor_id(task.id, f"reply {task.attempts}")
    _send(ctx, task.queue, task.envelope, _Reply(reply_id, status, body))


def answer_refused(ctx: Context, queue: Queue, spec: TaskSpec, envelope: Envelope) -> None:
    """Answer a request that a full queue refused."""
    if is_request(queue.name, envelope):
        reply_id = successor_id(spec.id, "reply")
        _send(ctx, queue, envelope, _Reply(reply_id, REASONS[Reason.DISPLACED]))


class _Reply(NamedTuple):
    """A reply. Each retry of a request by a person gives its reply a new id."""

    id: TaskId
    status: str
    body: Body = b""


def _send(ctx: Context, queue: Queue, envelope: Envelope, reply: _Reply) -> None:
    to = reply_address(envelope)
    if to.startswith(REPLY_TO):
        session = _session_of(to)
        if to not in ctx.own(DirectReplies).get(session, ()):
            return
        properties = reply_properties(envelope, reply.status, is_persistent=False)
        ctx.send(session, DirectReply(to, properties, reply.body))
        return
    target = queue.namespace.queues.get(to)
    if target is None:
        return
    if isinstance(reply.body, BlobRef):
        # The blob belongs to the request, and goes with it.
        size = reply.body.size
        message = f"the answer has {size} bytes, too many for a queue; ask by {REPLY_TO}"
        reply = _Reply(reply.id, APPLICATION_ERROR, _told(Error("AnswerTooLarge", message)))
    properties = reply_properties(envelope, reply.status, is_persistent=True)
    reply_id = volatile_id(reply.id) if target.is_volatile() else reply.id
    spec = TaskSpec(reply_id, to, "", "", priority_in(target, 0), reply.body)
    enter(ctx, target, spec, Envelope("", ctx.book.share(to), properties), by="reply")


def _session_of(address: str) -> int:
    """Return the session of a direct-reply address; 0 if it is none."""
    number = address.removeprefix(f"{REPLY_TO}.").partition(".")[0]
    return int(number) if number.isascii() and number.isdigit() and len(number) < 20 else 0


def _told(error: Error) -> bytes:
    """Encode an error in osrdyne's format."""
    fields = {"type": error.type, "message": error.message, "context": {}, "cause": "Internal"}
    return msgspec.json.encode(fields)
