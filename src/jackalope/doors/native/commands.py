"""Requests of the native protocol, as commands of the core.

Owns the translation, one function a kind of message. Decides nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import msgspec

from jackalope.broker.queries import Refused
from jackalope.broker.service import Broker
from jackalope.core.commands import (
    ActOnAnswers,
    ActOnGroup,
    ActOnTasks,
    AnswerSignal,
    AnyCommand,
    ClaimTasks,
    CreateApiKey,
    DeclarePool,
    DeclareQueue,
    DeletePool,
    DeleteQueue,
    DrainWorker,
    EndHelp,
    Fail,
    FailAttempts,
    FinishAttempts,
    Held,
    JoinWorker,
    LeaveWorker,
    LimitTag,
    PauseQueue,
    ReleaseAttempts,
    ReportProgress,
    RequestHelpers,
    ResumeQueue,
    RevokeApiKey,
    StartAttempts,
    SubmitTasks,
    Verdict,
    WatchTasks,
)
from jackalope.core.durations import SECOND
from jackalope.core.effects import Accepted, Answered, Assignment, Effect, Reply
from jackalope.core.limits import INLINE_BYTES_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.core.task import BlobRef, Body, Error
from jackalope.storage import OutOfReach, StorageFault
from jackalope.wire.messages import (
    Act,
    Claim,
    HelpEnd,
    HelpersAsk,
    Join,
    Leave,
    Manage,
    Message,
    Progress,
    Result,
    SignalAnswer,
    Start,
    Submit,
    Watch,
)

#: Of chance in the token by which an owner and its helpers know each other.
_TOKEN_BYTES = 24


class Gathering:
    """One answer to a request that became several commands."""

    __slots__ = ("_accepted", "_begins", "_left", "_refused", "_sizes", "ref")

    def __init__(self, ref: int, sizes: list[int]) -> None:
        self.ref = ref
        self._begins = [sum(sizes[:number]) for number in range(len(sizes))]
        self._sizes = list(sizes)
        self._left = len(sizes)
        self._accepted = 0
        self._refused: list[tuple[int, Refusal]] = []

    def take(self, body: Answered) -> Answered | None:
        """Take one part of the answer, and return the whole when it is complete."""
        begin, size = self._begins.pop(0), self._sizes.pop(0)
        self._left -= 1
        if isinstance(body, Refusal):
            # The whole part was refused: each of its items was.
            self._refused += [(begin + index, body) for index in range(size)]
        elif isinstance(body, Accepted):
            self._accepted += body.count
            self._refused += [(begin + index, refusal) for index, refusal in body.refused]
        if self._left:
            return None
        if isinstance(body, Refusal) and body.code is Code.UNKNOWN_SESSION:
            return body  # It is about the session, not about any one attempt.
        return Accepted(self._accepted, tuple(self._refused))


def is_for_core(message: Message) -> bool:
    return type(message) in _TRANSLATIONS or type(message) is Result


def commands_of(
    message: Message, session: int, namespace: str, name: str
) -> tuple[list[AnyCommand], Gathering | None]:
    """Translate a message.

    Returns:
        The commands, and how to make one answer of several.

    Raises:
        Refused: the message names something that does not exist.
    """
    if isinstance(message, Result):
        return _result(message, session)
    command = _TRANSLATIONS[type(message)](message, namespace, name)
    command.session = session
    command.ref = getattr(message, "ref", 0)
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


def _submit(message: Submit, namespace: str, name: str) -> AnyCommand:
    return SubmitTasks(tasks=message.tasks, namespace=namespace, by=name, fence=message.fence)


def _claim(message: Claim, _: str, __: str) -> AnyCommand:
    return ClaimTasks(count=message.count, wait_us=message.wait_us)


def _join(message: Join, namespace: str, _: str) -> AnyCommand:
    return JoinWorker(
        worker=message.worker,
        queues=message.queues,
        keys=message.keys,
        slots=message.slots,
        labels=message.labels,
        holding=message.holding,
        namespace=namespace,
        lease_us=message.lease_us,
        grace_us=message.grace_us,
        generation=message.generation,
        ready=message.ready,
        helps=message.helps,
        names=message.names,
        secret=message.secret,
    )


def _leave(_: Leave, __: str, ___: str) -> AnyCommand:
    return LeaveWorker()


def _start(message: Start, _: str, __: str) -> AnyCommand:
    return StartAttempts(attempts=message.attempts)


def _progress(message: Progress, _: str, __: str) -> AnyCommand:
    return ReportProgress(
        task=message.task, fence=message.fence, percent=message.percent, note=message.note
    )


def _answer(message: SignalAnswer, _: str, __: str) -> AnyCommand:
    return AnswerSignal(
        task=message.task, fence=message.fence, answer=message.answer, detail=message.detail
    )


def _helpers(message: HelpersAsk, namespace: str, _: str) -> AnyCommand:
    return RequestHelpers(
        task=message.task,
        fence=message.fence,
        count=message.count,
        function=message.function,
        where=message.where,
        seal=message.seal,
        queue=message.queue,
        token=secrets.token_urlsafe(_TOKEN_BYTES),
        namespace=namespace,
        secret=message.secret,
    )


def _end_help(message: HelpEnd, _: str, __: str) -> AnyCommand:
    return EndHelp(fence=message.fence, why=message.why)


def _act(message: Act, namespace: str, name: str) -> AnyCommand:
    return ActOnTasks(
        action=message.action,
        tasks=message.tasks,
        filter=message.filter,
        namespace=namespace,
        by=name,
        dry_run=message.dry_run,
        terms=message.terms,
    )


def _watch(message: Watch, namespace: str, _: str) -> AnyCommand:
    return WatchTasks(tasks=message.tasks, namespace=namespace, progress=message.progress)


#: What MANAGE can do: the command and the fields that it takes.
MANAGEMENT: dict[str, tuple[type[Any], frozenset[str]]] = {
    "declare_queue": (DeclareQueue, frozenset({"queue", "preset", "changes"})),
    "delete_queue": (DeleteQueue, frozenset({"queue"})),
    "pause_queue": (PauseQueue, frozenset({"queue"})),
    "resume_queue": (ResumeQueue, frozenset({"queue"})),
    "limit_tag": (LimitTag, frozenset({"tag", "limit"})),
    "drain_worker": (DrainWorker, frozenset({"worker"})),
    "declare_pool": (DeclarePool, frozenset({"queue", "changes"})),
    "delete_pool": (DeletePool, frozenset({"queue"})),
    "act_on_group": (ActOnGroup, frozenset({"queue", "key", "action"})),
    "create_api_key": (CreateApiKey, frozenset({"key"})),
    "revoke_api_key": (RevokeApiKey, frozenset({"key"})),
    "act_on_answers": (
        ActOnAnswers,
        frozenset({"action", "identities", "queue", "name", "version", "older_than_us"}),
    ),
}


def _manage(message: Manage, namespace: str, name: str) -> AnyCommand:
    shape, fields = MANAGEMENT.get(message.what, (None, frozenset()))
    if shape is None:
        text = f"nothing to manage is called {message.what!r}; there are {', '.join(MANAGEMENT)}"
        raise Refused(Refusal(Code.INVALID, text))
    if unknown := sorted(set(message.about) - fields):
        text = f"{message.what}: unknown {', '.join(unknown)}; it takes {', '.join(sorted(fields))}"
        raise Refused(Refusal(Code.INVALID, text))
    try:
        command: AnyCommand = msgspec.convert(
            {**message.about, "namespace": namespace, "by": name}, shape
        )
    except msgspec.ValidationError as error:
        raise Refused(Refusal(Code.INVALID, f"{message.what}: {error}")) from None
    return command


_TRANSLATIONS: dict[type, Callable[[Any, str, str], AnyCommand]] = {
    Submit: _submit,
    Claim: _claim,
    Join: _join,
    Leave: _leave,
    Start: _start,
    Progress: _progress,
    SignalAnswer: _answer,
    Act: _act,
    Watch: _watch,
    Manage: _manage,
    HelpersAsk: _helpers,
    HelpEnd: _end_help,
}


# Large bodies of the native door: out of commands into the blob store, and back.

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
    """Return whether one of the bodies names what was uploaded before."""
    return any(type(body) is not bytes for body in bodies)


def has_large(bodies: list[Body]) -> bool:
    """Return whether one of the bodies must go to the blob store."""
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
    """Refuse to load a body that fits into no frame."""
    if blob.size > body_bytes_max:
        raise Oversized(
            f"a payload of {blob.size} bytes; a worker at the native door gets at most "
            f"{body_bytes_max} unless it fetches them. Let another worker run this task"
        )


def without_body(session: int, effect: Effect, fault: StorageFault) -> AnyCommand | None:
    """Return the command for a task whose payload is unavailable; None for other effects.

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
