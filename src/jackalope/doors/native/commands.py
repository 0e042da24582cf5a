"""Requests of the native protocol, as commands of the core.

A request is a command already, or names one. Owns what a peer must not say in it: the session, the
namespace and who sends it are set here, after decoding and always. Decides nothing.
"""

from __future__ import annotations

import secrets
from typing import Any

import msgspec

from jackalope.broker.blobs import without_payload
from jackalope.broker.queries import Refused
from jackalope.broker.service import Broker
from jackalope.core.commands import (
    ActOnAnswers,
    ActOnGroup,
    AnyCommand,
    Command,
    CreateApiKey,
    DeclarePool,
    DeclareQueue,
    DeletePool,
    DeleteQueue,
    DrainWorker,
    Fail,
    FailAttempts,
    FinishAttempts,
    LimitTag,
    PauseQueue,
    ReleaseAttempts,
    RequestHelpers,
    ResumeQueue,
    RevokeApiKey,
    SendEvent,
    SubmitTasks,
)
from jackalope.core.commands.base import HIDDEN, Limited, Namespaced, Signed
from jackalope.core.commands.contracts import DeclareContracts, DeleteContract
from jackalope.core.commands.flows import AddNodes, SubmitFlow, specs_in
from jackalope.core.commands.limits import DeclareLimits, DeleteLimit
from jackalope.core.commands.namespaces import DeclareNamespace, DeleteNamespace
from jackalope.core.commands.schedules import (
    BackfillSchedule,
    DeclareSchedule,
    DeclareSchedules,
    DeleteSchedule,
    PauseSchedule,
    ResumeSchedule,
    TriggerSchedule,
)
from jackalope.core.effects import Assignment, Effect, Reply
from jackalope.core.limits import INLINE_BYTES_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.core.task import BlobRef, Body, Error, TaskSpec
from jackalope.doors.gathering import Gathering
from jackalope.storage import StorageFault
from jackalope.wire.messages import Manage, Result

#: Of chance in the token by which an owner and its helpers know each other.
_TOKEN_BYTES = 24

#: What becomes commands of the core.
ForCore = Command | Result | Manage


def commands_of(
    message: ForCore, session: int, namespace: str, name: str
) -> tuple[list[AnyCommand], Gathering | None]:
    """Return the commands in a message, and how to make one answer of several."""
    if type(message) is SubmitTasks:
        message.session, message.namespace, message.by, message.only = session, namespace, name, ()
        return [message], None
    if isinstance(message, Result):
        return _result(message, session)
    command: Any = _managed(message) if isinstance(message, Manage) else message
    command.session = session
    if isinstance(command, Signed):
        command.by = name
        if isinstance(command, Namespaced):
            command.namespace = namespace
        if isinstance(command, Limited):
            command.only = ()
        if isinstance(command, RequestHelpers):
            command.token = secrets.token_urlsafe(_TOKEN_BYTES)
    return [command], None


def _result(message: Result, session: int) -> tuple[list[AnyCommand], Gathering | None]:
    parts: list[AnyCommand] = []
    sizes = []
    if message.finished or not (message.failed or message.released):
        parts.append(FinishAttempts(session=session, ref=message.ref, attempts=message.finished))
        sizes.append(len(message.finished))
    if message.failed:
        parts.append(FailAttempts(session=session, ref=message.ref, attempts=message.failed))
        sizes.append(len(message.failed))
    if message.released:
        parts.append(ReleaseAttempts(session=session, ref=message.ref, attempts=message.released))
        sizes.append(len(message.released))
    gathering = Gathering(message.ref, sizes) if message.ref and len(parts) > 1 else None
    return parts, gathering


#: What MANAGE can do.
MANAGEMENT: dict[str, type[Command]] = {
    "declare_queue": DeclareQueue,
    "delete_queue": DeleteQueue,
    "pause_queue": PauseQueue,
    "resume_queue": ResumeQueue,
    "limit_tag": LimitTag,
    "declare_limits": DeclareLimits,
    "delete_limit": DeleteLimit,
    "drain_worker": DrainWorker,
    "declare_pool": DeclarePool,
    "delete_pool": DeletePool,
    "act_on_group": ActOnGroup,
    "create_api_key": CreateApiKey,
    "revoke_api_key": RevokeApiKey,
    "act_on_answers": ActOnAnswers,
    "declare_schedule": DeclareSchedule,
    "declare_schedules": DeclareSchedules,
    "pause_schedule": PauseSchedule,
    "resume_schedule": ResumeSchedule,
    "trigger_schedule": TriggerSchedule,
    "backfill_schedule": BackfillSchedule,
    "delete_schedule": DeleteSchedule,
    "send_event": SendEvent,
    "declare_contracts": DeclareContracts,
    "delete_contract": DeleteContract,
    "declare_namespace": DeclareNamespace,
    "delete_namespace": DeleteNamespace,
}


def keys_of(command: type[Command]) -> frozenset[str]:
    """Return the fields of a command that MANAGE can set."""
    return frozenset(command.__struct_fields__) - HIDDEN - {"ref"}


def _managed(message: Manage) -> Command:
    shape = MANAGEMENT.get(message.what)
    if shape is None:
        text = f"unknown operation {message.what!r}; use {', '.join(MANAGEMENT)}"
        raise Refused(Refusal(Code.INVALID, text))
    keys = keys_of(shape)
    if unknown := sorted(set(message.about) - keys):
        text = f"{message.what}: unknown {', '.join(unknown)}; it takes {', '.join(sorted(keys))}"
        raise Refused(Refusal(Code.INVALID, text))
    try:
        return msgspec.convert({**message.about, "ref": message.ref}, shape)
    except msgspec.ValidationError as error:
        raise Refused(Refusal(Code.INVALID, f"{message.what}: {error}")) from None


# Large bodies of the native door: out of commands into the blob store, and back.


def submitted_in(command: SubmitTasks | SubmitFlow | AddNodes) -> list[TaskSpec]:
    """Return the tasks that a command submits."""
    return command.tasks if isinstance(command, SubmitTasks) else specs_in(command)


def bodies_of(command: AnyCommand) -> list[Body]:
    """Return the payloads or results in a command."""
    if type(command) is SubmitTasks:
        return [spec.payload for spec in command.tasks]
    if type(command) is FinishAttempts:
        return [finish.result for finish in command.attempts]
    if isinstance(command, SubmitFlow | AddNodes):
        return [spec.payload for spec in specs_in(command)]
    return []


def weigh(commands: list[AnyCommand]) -> tuple[int, bool]:
    """Return the size of the largest body in commands, and whether one was uploaded before."""
    largest, is_uploaded = 0, False
    for command in commands:
        for body in bodies_of(command):
            if type(body) is not bytes:
                is_uploaded = True
            elif len(body) > largest:
                largest = len(body)
    return largest, is_uploaded


def unfit(body_bytes: int, body_bytes_max: int) -> Refusal:
    """Refuse a body that could not be delivered."""
    message = f"a body of {body_bytes} bytes; this door accepts at most {body_bytes_max}"
    return Refusal(Code.TOO_LARGE, message)


async def spill(broker: Broker, commands: list[AnyCommand]) -> None:
    """Put the large bodies of commands into the blob store."""
    for command in commands:
        if isinstance(command, SubmitTasks | SubmitFlow | AddNodes):
            for spec in submitted_in(command):
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
    """Refuse to load a body that fits into no frame."""
    if blob.size > body_bytes_max:
        raise Oversized(
            f"a payload of {blob.size} bytes; a worker at the native door gets at most "
            f"{body_bytes_max} unless it fetches them. Let another worker run this task"
        )


def without_body(session: int, effect: Effect, fault: StorageFault) -> AnyCommand | None:
    """Return the command for a task whose payload is unavailable; None for other effects."""
    if isinstance(effect, Reply) or not isinstance(effect.message, Assignment):
        return None
    given = effect.message
    if not isinstance(fault, Oversized):
        return without_payload(session, given, fault)
    # A worker at another door may be able to do what one at this door cannot.
    failure = Fail(given.task, given.fence, Error("PayloadTooLarge", str(fault)))
    return FailAttempts(session=session, attempts=[failure])
