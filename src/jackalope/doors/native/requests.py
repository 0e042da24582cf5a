"""Requests of the native protocol, as commands of the core.

Owns the translation, one function a kind of message. Decides nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import msgspec

from jackalope.broker.queries import Refused
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
    FailAttempts,
    FinishAttempts,
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
    WatchTasks,
)
from jackalope.core.effects import Accepted, Answered
from jackalope.core.refusals import Code, Refusal
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
    """Tell whether a message becomes commands."""
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
