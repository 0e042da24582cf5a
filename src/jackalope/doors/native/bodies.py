"""Large bodies of the native door: out of commands into the blob store, and back.

Owns which bodies a command has, what fits, and the way to the store. A body is in the store before
the command that names it is handed to the broker.
"""

from __future__ import annotations

import msgspec

from jackalope.broker.service import Broker
from jackalope.core.commands import (
    AnyCommand,
    Fail,
    FailAttempts,
    FinishAttempts,
    Held,
    ReleaseAttempts,
    SubmitTasks,
    Verdict,
)
from jackalope.core.durations import SECOND
from jackalope.core.effects import Assignment, Effect, Reply
from jackalope.core.limits import INLINE_BYTES_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.core.task import BlobRef, Body, Error
from jackalope.storage import OutOfReach, StorageFault

#: How long to wait before asking a store again that did not answer.
STORE_AWAY_US = 5 * SECOND


def bodies_of(command: AnyCommand) -> list[Body]:
    """Return the payloads or results in a command."""
    if type(command) is SubmitTasks:
        return [spec.payload for spec in command.tasks]
    if type(command) is FinishAttempts:
        return [finish.result for finish in command.attempts]
    return []


def unfit(bodies: list[Body], body_bytes_max: int) -> Refusal | None:
    """Refuse bodies that could not be delivered."""
    for body in bodies:
        if type(body) is bytes and len(body) > body_bytes_max:
            message = f"a body of {len(body)} bytes; over this door at most {body_bytes_max}"
            return Refusal(Code.TOO_LARGE, message)
    return None


def has_uploaded(bodies: list[Body]) -> bool:
    """Tell whether one of the bodies names what was uploaded before."""
    return any(type(body) is not bytes for body in bodies)


def has_large(bodies: list[Body]) -> bool:
    """Tell whether one of the bodies must go to the blob store."""
    return any(type(body) is bytes and len(body) > INLINE_BYTES_MAX for body in bodies)


async def spill(broker: Broker, commands: list[AnyCommand]) -> None:
    """Put the large bodies of commands into the blob store.

    Raises:
        StorageFault: one could not be stored.
    """
    for command in commands:
        if type(command) is SubmitTasks:
            for spec in command.tasks:
                spec.payload = await _stored(broker, spec.payload)
        elif type(command) is FinishAttempts:
            command.attempts = [
                msgspec.structs.replace(finish, result=await _stored(broker, finish.result))
                for finish in command.attempts
            ]


async def _stored(broker: Broker, body: Body) -> Body:
    if type(body) is bytes and len(body) > INLINE_BYTES_MAX:
        blobs = broker.blobs
        return await blobs.off_loop(lambda: blobs.write([body]))
    return body


class Oversized(StorageFault):
    """A payload that came in by another door, and is too large for this one."""


def refuse_oversized(blob: BlobRef, body_bytes_max: int) -> None:
    """Refuse to load a body that fits into no frame.

    Raises:
        Oversized: it is one.
    """
    if blob.size > body_bytes_max:
        raise Oversized(
            f"a payload of {blob.size} bytes; a worker at the native door gets at most "
            f"{body_bytes_max} unless it fetches them. Let another worker run this task"
        )


def without_body(session: int, effect: Effect, fault: StorageFault) -> AnyCommand | None:
    """Return what becomes of a task whose payload cannot be had; None if it is no such effect.

    While the store is away the attempt is handed back for a while, through no fault of the task;
    the worker has its slot for others. When the payload is lost, trying again would not help.
    """
    if isinstance(effect, Reply) or not isinstance(effect.message, Assignment):
        return None
    given = effect.message
    if isinstance(fault, OutOfReach):
        held = Held(given.task, given.fence)
        return ReleaseAttempts(session=session, attempts=[held], after_us=STORE_AWAY_US)
    # A worker at another door may be able to do what one at this door cannot.
    is_hopeless = not isinstance(fault, Oversized)
    error = Error("PayloadLost" if is_hopeless else "PayloadTooLarge", str(fault))
    verdict = Verdict.DEAD if is_hopeless else Verdict.RETRY
    failure = Fail(given.task, given.fence, error, verdict)
    return FailAttempts(session=session, attempts=[failure])
