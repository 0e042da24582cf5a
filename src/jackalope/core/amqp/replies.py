"""Replies: every request to a pool over AMQP is answered, whatever its outcome.

Owns the replies that the broker sends. A worker that consumes over AMQP replies by itself before it
acknowledges. For all others the broker does: with what a worker of another door returned, with its
error, or with the reason why no worker answered. The header `x-status` holds which, as a byte
array, because osrdyne's clients read it so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from jackalope.core.amqp.dead_letters import REASONS
from jackalope.core.amqp.envelope import reply_address, reply_properties
from jackalope.core.amqp.publish import enter, priority_in
from jackalope.core.effects import Accepted, DirectReply, SendToSession
from jackalope.core.ids import TaskId, successor_id, volatile_id
from jackalope.core.lifecycle import Reason, State
from jackalope.core.records import AttemptFinished
from jackalope.core.shapes.exchange import REPLY_TO, is_request
from jackalope.core.task import BlobRef, Body, Envelope, Error, TaskSpec

if TYPE_CHECKING:
    from jackalope.core.commands.amqp import WaitForReplies
    from jackalope.core.core import Core
    from jackalope.core.state.queue import Queue
    from jackalope.core.task import Task

OK, APPLICATION_ERROR = "ok", "core_error"

#: What a person killed was rejected too.
_OTHERWISE = REASONS[Reason.REJECTED]


def wait_for_replies(core: Core, command: WaitForReplies) -> None:
    """Note that a session waits for direct replies, or does not any more.

    Addresses are secrets and never reused: after a restart no client waits at an earlier one.
    """
    waiting = core.waiting.setdefault(command.session, set())
    if command.is_over:
        waiting.discard(command.address)
    else:
        waiting.add(command.address)
    if not waiting:
        del core.waiting[command.session]
    core.reply(command, Accepted())


def address_of(session: int, secret: str) -> str:
    return f"{REPLY_TO}.{session}.{secret}"


def is_unanswered(core: Core, task: Task, record: object) -> bool:
    """Return whether a task that ends by this record is a request that only the broker answers."""
    if not is_request(task.queue.name, task.letter):
        return False
    if not isinstance(record, AttemptFinished) or task.attempt is None:
        return True
    worker = core.roster.workers.get((task.queue.namespace.name, task.attempt.worker))
    return worker is None or worker.consumer is None


def answer(core: Core, task: Task) -> None:
    """Answer a request that has ended."""
    outcome = task.outcome
    if task.letter is None or outcome is None:
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
    _send(core, task.queue, task.letter, _Reply(reply_id, status, body))


def answer_refused(core: Core, queue: Queue, spec: TaskSpec, envelope: Envelope) -> None:
    """Answer a request that there was no room for."""
    if is_request(queue.name, envelope):
        reply_id = successor_id(spec.id, "reply")
        _send(core, queue, envelope, _Reply(reply_id, REASONS[Reason.DISPLACED]))


class _Reply(NamedTuple):
    """An answer. Its id is another one each time that a person lets a request run again."""

    id: TaskId
    status: str
    body: Body = b""


def _send(core: Core, queue: Queue, envelope: Envelope, reply: _Reply) -> None:
    to = reply_address(envelope)
    if to.startswith(REPLY_TO):
        session = _session_of(to)
        if to not in core.waiting.get(session, ()):
            return
        properties = reply_properties(envelope, reply.status, is_persistent=False)
        core.effects.append(SendToSession(session, DirectReply(to, properties, reply.body)))
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
    enter(core, target, spec, Envelope("", core.book.share(to), properties), by="reply")


def _session_of(address: str) -> int:
    """Return the session that waits for direct replies at an address; 0 if it is none."""
    number = address.removeprefix(f"{REPLY_TO}.").partition(".")[0]
    return int(number) if number.isascii() and number.isdigit() and len(number) < 20 else 0


def _told(error: Error) -> bytes:
    """Write an error as osrdyne's clients read it."""
    fields = {"type": error.type, "message": error.message, "context": {}, "cause": "Internal"}
    return msgspec.json.encode(fields)
