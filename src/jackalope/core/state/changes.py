"""Changes: what storage must write to catch up with memory, and what memory is rebuilt from.

A snapshot and a set of changes have the same shape: rows. A snapshot has all live rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from jackalope.core.api_key import ApiKey
from jackalope.core.ids import TaskId
from jackalope.core.policy import Policy
from jackalope.core.shapes.exchange import GIVEN_NAMES, AmqpTraits, Binding, Exchange, Rule
from jackalope.core.shapes.pool import PoolSettings
from jackalope.core.shapes.request import StoredAnswer
from jackalope.core.task import TaskRow

if TYPE_CHECKING:
    from jackalope.core.state.queue import Namespace


class QueueRow(msgspec.Struct, array_like=True):
    """Everything durable about one queue. `batch` is the number that is being filled.

    `pins` are the keys whose groups of workers stay up, if the queue has a pool.
    """

    namespace: str
    queue: str
    policy: Policy
    paused_by: str
    batch: int
    batch_fill: int
    pool: PoolSettings | None = None
    pins: tuple[str, ...] = ()
    traits: AmqpTraits | None = None


class LimitRow(msgspec.Struct, array_like=True):
    """The limit of a tag."""

    namespace: str
    tag: str
    limit: int


class TallyRow(msgspec.Struct, array_like=True):
    """How many attempts of a worker succeeded and failed, and when the last of them ended."""

    namespace: str
    worker: str
    succeeded: int
    failed: int
    at_us: int


class DefinitionRow(msgspec.Struct, array_like=True):
    """An exchange, a binding or a rule of a namespace; without a definition it is gone."""

    namespace: str
    kind: str
    name: str
    definition: Exchange | Binding | Rule | None


class Counters(msgspec.Struct, array_like=True):
    """The numbers of the book that only grow."""

    fence: int = 0  # the last fence given out
    rank: int = 0  # the last place in line given out
    floor: TaskId = TaskId(b"")  # the greatest time-ordered id that ever left memory


class Changes(msgspec.Struct):
    """Rows that changed, and what is gone, since the last time changes were taken."""

    counters: Counters  # as they are now
    tasks: list[TaskRow] = []  # rows to write over whatever is stored
    gone: list[TaskId] = []  # ids of tasks to remove, with all that belongs to them
    queues: list[QueueRow] = []  # queues to write
    # (namespace, queue) to remove with all their tasks, before anything is written
    queues_gone: list[tuple[str, str]] = []
    limits: list[LimitRow] = []  # tag limits to write; a negative limit removes one
    # blobs of tasks that are gone without having been stored; to be deleted unless a row names them
    blobs: list[str] = []
    # what workers have done, to write; a row without any attempt removes one
    tallies: list[TallyRow] = []
    api_keys: list[ApiKey] = []  # API keys to write
    api_keys_gone: list[str] = []  # ids of API keys to remove, before any is written
    answers: list[StoredAnswer] = []  # answers that are kept, to write
    answers_gone: list[TaskId] = []  # tasks whose answers are no longer kept
    # exchanges, bindings and rules to write; an empty one removes one
    definitions: list[DefinitionRow] = []

    def is_empty(self) -> bool:
        """Return whether there is nothing to write but the counters."""
        return not (
            self.tasks
            or self.gone
            or self.queues
            or self.queues_gone
            or self.limits
            or self.tallies
            or self.api_keys
            or self.api_keys_gone
            or self.answers
            or self.answers_gone
            or self.definitions
        )


# Definitions: what is durable about the topology of a namespace.


def definitions_of(namespace: Namespace) -> Iterable[DefinitionRow]:
    """Yield what is durable about the topology of a namespace, in an order of its own."""
    topology = namespace.topology
    for name, exchange in sorted(topology.exchanges.items()):
        if exchange.durable and (name not in GIVEN_NAMES or exchange.rule):
            yield DefinitionRow(namespace.name, "exchange", name, exchange)
    for name, binding in sorted(topology.bindings.items()):
        if not is_volatile_binding(namespace, binding):
            yield DefinitionRow(namespace.name, "binding", name, binding)
    for name, rule in sorted(topology.rules.items()):
        yield DefinitionRow(namespace.name, "rule", name, rule)


def is_volatile_binding(namespace: Namespace, binding: Binding) -> bool:
    """Return whether a binding goes at a restart because one of its ends does."""
    exchanges = namespace.topology.exchanges
    if not exchanges[binding.source].durable:
        return True
    if binding.is_to_exchange:
        return not exchanges[binding.to].durable
    return namespace.queues[binding.to].is_volatile()


def in_order(rows: Iterable[DefinitionRow]) -> list[DefinitionRow]:
    """Return rows so that what others refer to comes before them."""
    kinds = ("exchange", "binding", "rule")
    return sorted(rows, key=lambda row: kinds.index(row.kind))


def define(namespace: Namespace, definition: Exchange | Binding | Rule | None) -> None:
    """Put an exchange, a binding or a rule into a namespace."""
    if isinstance(definition, Exchange):
        namespace.topology.put_exchange(definition)
    elif isinstance(definition, Binding):
        namespace.topology.bind(definition)
    elif definition is not None:
        namespace.topology.rules[definition.name] = definition
