"""The audit log: which acts are noted, and what is said of them.

Owns the list of administrative commands and the line that describes each. An act is noted with the
command that does it (`NoteAct`), so that it is in the same batch of the journal, and every node has
it. What is refused because of its sender's rights is noted as well, up to some in a second.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from jackalope.broker.access import Access, Principal
from jackalope.core.audit import Act
from jackalope.core.commands import (
    ActOnAnswers,
    ActOnGroup,
    ActOnTasks,
    AnyCommand,
    CreateApiKey,
    DeclarePool,
    DeclareQueue,
    DeletePool,
    DeleteQueue,
    DrainWorker,
    LimitTag,
    PauseQueue,
    ResumeQueue,
    RevokeApiKey,
)
from jackalope.core.commands.amqp import (
    ClearRule,
    OpenExchange,
    PurgeQueue,
    RemoveExchange,
    RemoveQueue,
    SetRule,
)
from jackalope.core.commands.contracts import DeleteContract
from jackalope.core.commands.limits import DeclareLimits, DeleteLimit
from jackalope.core.commands.namespaces import DeclareNamespace, DeleteNamespace, NoteAct
from jackalope.core.commands.schedules import (
    BackfillSchedule,
    DeclareSchedule,
    DeleteSchedule,
    PauseSchedule,
    ResumeSchedule,
    TriggerSchedule,
)
from jackalope.core.durations import SECOND
from jackalope.core.limits import NAME_CHARS_MAX, NOTE_CHARS_MAX
from jackalope.core.refusals import Refusal

#: How many refused acts are noted in a second; those of one who tries everything would fill it.
REFUSED_PER_SECOND_MAX = 10

_encode = msgspec.json.Encoder().encode


def _changes(command: Any) -> str:
    """Describe what of something is changed."""
    preset = getattr(command, "preset", "")
    told = [f"preset={preset}"] if preset else []
    for name, value in command.changes.items():
        told.append(f"{name}={_told(value)}")
    return " ".join(told)


def _told(value: object) -> str:
    try:
        return _encode(value).decode()
    except (TypeError, ValueError, OverflowError):
        return "?"


def _filter(command: ActOnTasks) -> str:
    if command.filter is None:
        return f"{len(command.tasks)} tasks"
    wanted = msgspec.structs.asdict(command.filter)
    given = {name: value for name, value in wanted.items() if value}
    return f"{command.action} where " + (
        " ".join(f"{name}={_told(_plain(value))}" for name, value in given.items()) or "any"
    )


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value


def _key(command: CreateApiKey) -> str:
    key = command.key
    told = [f"{key.id} ({key.name})", " ".join(key.permissions)]
    told += [f"queues={','.join(key.queues)}"] if key.queues else []
    return ": ".join(told[:2]) + "".join(f" {each}" for each in told[2:])


#: What is noted, and what is said of it.
AUDITED: dict[type, Callable[[Any], str]] = {
    DeclareQueue: lambda c: f"queue {c.queue} {_changes(c)}",
    DeleteQueue: lambda c: f"queue {c.queue}",
    PauseQueue: lambda c: f"queue {c.queue}",
    ResumeQueue: lambda c: f"queue {c.queue}",
    RemoveQueue: lambda c: f"queue {c.queue}",
    PurgeQueue: lambda c: f"queue {c.queue}",
    OpenExchange: lambda c: f"exchange {c.exchange.name}",
    RemoveExchange: lambda c: f"exchange {c.exchange}",
    SetRule: lambda c: f"policy {c.rule.name}",
    ClearRule: lambda c: f"policy {c.rule}",
    LimitTag: lambda c: f"tag {c.tag} limit={c.limit}",
    DeclareLimits: lambda c: "limits " + " ".join(f"{n}={_told(s)}" for n, s in c.limits.items()),
    DeleteLimit: lambda c: f"limit {c.name}",
    DeleteContract: lambda c: f"contract of {c.name} in queue {c.queue}",
    DrainWorker: lambda c: f"worker {c.worker}",
    DeclarePool: lambda c: f"pool {c.queue} {_changes(c)}",
    DeletePool: lambda c: f"pool {c.queue}",
    ActOnGroup: lambda c: f"{c.action} group {c.key} of pool {c.queue}",
    ActOnAnswers: lambda c: f"{c.action} answers of queue {c.queue or 'any'}",
    ActOnTasks: _filter,
    DeclareSchedule: lambda c: f"schedule {c.name}",
    DeleteSchedule: lambda c: f"schedule {c.name}",
    PauseSchedule: lambda c: f"schedule {c.name}",
    ResumeSchedule: lambda c: f"schedule {c.name}",
    TriggerSchedule: lambda c: f"schedule {c.name}",
    BackfillSchedule: lambda c: f"schedule {c.name}",
    CreateApiKey: _key,
    RevokeApiKey: lambda c: c.key,
    DeclareNamespace: lambda c: f"namespace {c.name} {_changes(c)}",
    DeleteNamespace: lambda c: f"namespace {c.name}{' with force' * c.force}",
}

_WORDS = re.compile(r"(?<!^)(?=[A-Z])")


class Auditor:
    """Makes acts of commands."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._second = self._refused = 0

    def noted(self, command: AnyCommand, who: Principal) -> AnyCommand:
        """Return what does a command and notes it, if it is an administrative one."""
        act = self._act(command, who)
        if act is None:
            return command
        return NoteAct(act=act, command=command, session=command.session, ref=command.ref)

    def refused(self, command: AnyCommand, who: Principal, why: Refusal, now_us: int) -> Act | None:
        """Return the act that was refused, unless there are too many."""
        act = self._act(command, who)
        if act is None or not self.has_room(now_us):
            return None
        # It is told where the client belongs, not where it wanted to be.
        namespace = who.key.namespace if who.key is not None else act.namespace
        return msgspec.structs.replace(act, namespace=namespace, outcome=str(why.code))

    def has_room(self, now_us: int) -> bool:
        """Count a refused act, and return whether it is noted: so many are in a second."""
        second = now_us // SECOND
        self._refused = self._refused + 1 if second == self._second else 1
        self._second = second
        return self._refused <= REFUSED_PER_SECOND_MAX

    def _act(self, command: AnyCommand, who: Principal) -> Act | None:
        describe = AUDITED.get(type(command))
        if describe is None or (isinstance(command, ActOnTasks) and not _is_noted(command)):
            return None
        return act_of(
            who,
            _WORDS.sub("_", type(command).__name__).lower(),
            by=getattr(command, "by", "") or who.signed(""),
            namespace=self._place(command),
            about=describe(command),
        )

    def _place(self, command: AnyCommand) -> str:
        """Return the namespace that an act concerns; empty for the broker as a whole."""
        if isinstance(command, DeleteNamespace):
            return ""  # The log of the namespace goes with it.
        if isinstance(command, RevokeApiKey):
            key = self._access.key_of(command.key)
            return key.namespace if key is not None else command.within
        return str(getattr(command, "namespace", ""))


def act_of(who: Principal, what: str, *, by: str, namespace: str = "", about: str = "") -> Act:
    """Make an act of a client."""
    told = about.strip()[:NOTE_CHARS_MAX]
    return Act(what, by[:NAME_CHARS_MAX], namespace, told, who.address)


def _is_noted(command: ActOnTasks) -> bool:
    """Return whether an action is administrative: what is named has it in its own history."""
    return command.filter is not None and not command.tasks and not command.dry_run
