"""Commands of messaging: queues, exchanges, consumers and messages in the manner of AMQP 0-9-1.

Owns their shapes. `owner` is the session of the connection that a command came over, which may own
queues and have consumers; a consumer has a session of its own besides.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from jackalope.core.api_key import ApiKey, Permission, is_unlimited_admin
from jackalope.core.commands.base import Command, Limited, Namespaced, Report, Scope, permits
from jackalope.core.ids import TaskId
from jackalope.core.shapes.exchange import Binding, Exchange, Rule
from jackalope.core.task import BlobRef


class OpenQueue(Namespaced):
    """Declare a queue: create it, or compare it with the existing one.

    With `passive` it must exist, and nothing else is compared. Only a `generated` name may begin
    with `amq.`. With a `key` it is the queue of a pool, and the requests of the key are opened:
    they exist as long as the pool does, like a queue that is not durable. Unless it `may_make` one,
    the queue must exist.
    """

    needs = (Permission.SUBMIT_TASKS, Permission.WORK, Permission.READ_TASKS)
    scope = Scope.QUEUES

    queue: str
    durable: bool = False
    exclusive: bool = False
    auto_delete: bool = False
    passive: bool = False
    generated: bool = False
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    owner: int = 0
    key: str | None = None
    may_make: bool = True

    def touches(self) -> Iterable[str]:
        """Return the queue, unless it is exclusive: then no other session can use it."""
        return () if self._is_private() else (self.queue,)

    def narrow(self, key: ApiKey) -> None:
        """Let only administrators create queues, except an exclusive one for replies."""
        is_for_replies = self._is_private() and permits(key, Permission.SUBMIT_TASKS)
        self.may_make = is_unlimited_admin(key) or is_for_replies

    def _is_private(self) -> bool:
        is_closed = not any(name.startswith("x-dead-letter") for name in self.arguments)
        return self.generated and self.exclusive and is_closed


class RemoveQueue(Namespaced):
    """Delete a queue and its tasks. A queue that does not exist counts as deleted.

    If `only` is set, it must be one of these, or exclusive to the owner's session. With a `key` it
    is the queue of a pool: the requests of the key are dropped and its consumers cancelled.
    """

    needs = (Permission.SUBMIT_TASKS,)
    scope = Scope.NARROWED

    queue: str
    if_unused: bool = False
    if_empty: bool = False
    owner: int = 0
    only: tuple[str, ...] | None = None
    key: str | None = None

    def narrow(self, key: ApiKey) -> None:
        """Let only administrators delete queues; others delete those of their own session."""
        self.only = None if is_unlimited_admin(key) else ()


class PurgeQueue(Namespaced):
    """Drop every ready task of a queue; with a `key`, every request of that key to a pool."""

    needs = (Permission.CANCEL_TASKS,)
    scope = Scope.QUEUES

    queue: str
    owner: int = 0
    key: str | None = None


class OpenExchange(Namespaced):
    """Declare an exchange: create it, or compare it with the existing one.

    Unless it `may_make` one, the exchange must exist.
    """

    needs = (Permission.SUBMIT_TASKS, Permission.WORK, Permission.READ_TASKS)
    scope = Scope.NARROWED

    exchange: Exchange
    passive: bool = False
    may_make: bool = True

    def narrow(self, key: ApiKey) -> None:
        self.may_make = is_unlimited_admin(key)


class RemoveExchange(Namespaced):
    """Delete an exchange and its bindings. One that does not exist counts as deleted."""

    needs = (Permission.ADMIN,)
    scope = Scope.NAMESPACE

    exchange: str
    if_unused: bool = False


class Bind(Namespaced):
    """Bind a queue or another exchange to an exchange; safe to repeat.

    If `only` is set, a new binding must lead to one of these queues, from an exchange that leads to
    no others and that no other exchange leads to.
    """

    needs = (Permission.SUBMIT_TASKS, Permission.WORK)
    scope = Scope.QUEUES

    binding: Binding
    owner: int = 0
    only: tuple[str, ...] | None = None

    def touches(self) -> Iterable[str]:
        """Return the destination if it is a queue."""
        return () if self.binding.is_to_exchange else (self.binding.to,)

    def narrow(self, key: ApiKey) -> None:
        """Let only administrators change bindings, limited to those between the key's queues."""
        if not is_unlimited_admin(key):
            self.only = key.queues if permits(key) else ()


class Unbind(Namespaced):
    """Remove a binding; safe to repeat. `only` limits it as it limits `Bind`."""

    needs = (Permission.SUBMIT_TASKS, Permission.WORK)
    scope = Scope.QUEUES

    binding: Binding
    owner: int = 0
    only: tuple[str, ...] | None = None

    def touches(self) -> Iterable[str]:
        return () if self.binding.is_to_exchange else (self.binding.to,)

    def narrow(self, key: ApiKey) -> None:
        if not is_unlimited_admin(key):
            self.only = key.queues if permits(key) else ()


class SetRule(Namespaced):
    """Set a rule: arguments for all queues and exchanges whose names match."""

    needs = (Permission.ADMIN,)
    scope = Scope.NAMESPACE

    rule: Rule


class ClearRule(Namespaced):
    """Remove a rule."""

    needs = (Permission.ADMIN,)
    scope = Scope.NAMESPACE

    rule: str


class Consume(Namespaced):
    """Register a consumer of a queue over its own session. It is a worker with one queue."""

    needs = (Permission.WORK, Permission.SUBMIT_TASKS)
    scope = Scope.NARROWED

    queue: str
    consumer: str  # its name among all workers
    slots: int  # how many tasks it may hold
    share: int = 0  # the share of slots that it has together with others; 0 for none
    share_slots: int = 0  # how many tasks they may hold together; 0 for any number
    # how many tasks it may be given that are done with as soon as it has them; None if it says
    # itself when it is done
    credit: int | None = None
    exclusive: bool = False  # whether it wants to be the only one
    priority: int = 0  # consumers of a greater one are served first
    owner: int = 0  # the session of its connection
    labels: dict[str, str] = msgspec.field(default_factory=dict)  # what it says about itself
    key: str | None = None  # the key of the tasks that it takes; None for any
    # if given, the queue is one of these, or belongs to the owner's session alone
    only: tuple[str, ...] | None = None

    def narrow(self, key: ApiKey) -> None:
        """Let a client without the permission `work` read only the queues of its own session."""
        if not permits(key, Permission.WORK):
            self.only = ()
        elif key.queues:
            self.only = key.queues


class StopConsuming(Report):
    """Assign no more tasks to the consumer of this session. It keeps those that it holds."""


class LimitShare(Report):
    """Limit how many tasks the consumers of a share may hold together; 0 for no limit.

    The consumer of this session, if there is one, joins the share.
    """

    share: int
    slots: int


class GrantCredit(Report):
    """Allow the consumer of this session more tasks that it will not acknowledge."""

    credit: int


class HoldConsumer(Report):
    """Suspend or resume deliveries to the consumer of this session."""

    is_held: bool


class WaitForReplies(Command):
    """Register or remove the session's address for direct replies."""

    needs = (Permission.SUBMIT_TASKS,)
    scope = Scope.SESSION

    address: str
    is_over: bool = False


class TakeTask(Namespaced):
    """Assign one ready task of a queue to this session, or report that there is none.

    With `at_once` it is acknowledged on delivery. `only` limits it as it limits `Consume`.
    """

    needs = (Permission.WORK, Permission.SUBMIT_TASKS)
    scope = Scope.NARROWED

    queue: str
    consumer: str
    at_once: bool = False
    owner: int = 0
    key: str | None = None
    only: tuple[str, ...] | None = None

    def narrow(self, key: ApiKey) -> None:
        if not permits(key, Permission.WORK):
            self.only = ()
        elif key.queues:
            self.only = key.queues


class Publication(msgspec.Struct, gc=False):
    """A message to route. It becomes one task in each destination queue."""

    id: TaskId  # the id of the first of these tasks; the others have ids that follow from it
    exchange: str
    key: str
    properties: bytes
    body: bytes
    mandatory: bool = False  # whether the sender wants to know if it leads nowhere
    persistent: bool = False  # whether it survives a restart, in durable queues
    priority: int = 0  # as the message has it
    expires_us: int = -1  # how long it may wait; negative for as long as the queue allows
    name: str = ""  # the name of the tasks
    # the body once more, where large ones are kept; for tasks that are not volatile
    blob: BlobRef | None = None


class PublishMessages(Limited):
    """Route messages in order. One with an unknown exchange stops the processing."""

    counted = "messages"
    needs = (Permission.SUBMIT_TASKS,)
    scope = Scope.NARROWED

    messages: list[Publication]


AnyMessaging = (
    OpenQueue
    | RemoveQueue
    | PurgeQueue
    | OpenExchange
    | RemoveExchange
    | Bind
    | Unbind
    | SetRule
    | ClearRule
    | Consume
    | StopConsuming
    | LimitShare
    | HoldConsumer
    | GrantCredit
    | WaitForReplies
    | TakeTask
    | PublishMessages
)
