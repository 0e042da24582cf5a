"""Changes: what storage must write to catch up with memory, and what memory is rebuilt from.

A snapshot and a set of changes have the same shape: rows. A snapshot has all live rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from jackalope.core.api_key import ApiKey
from jackalope.core.ids import TaskId
from jackalope.core.policy import Policy
from jackalope.core.shapes.exchange import GIVEN_NAMES, AmqpTraits, Binding, Exchange, Rule
from jackalope.core.shapes.pace import Throttled
from jackalope.core.shapes.pool import PoolSettings
from jackalope.core.shapes.request import StoredAnswer
from jackalope.core.shapes.schedule import Schedule
from jackalope.core.task import TaskRow

if TYPE_CHECKING:
    from jackalope.core.state.queue import Namespace


class QueueRow(msgspec.Struct, array_like=True):
    """The durable state of a queue. `batch` is the number of the current batch.

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


class Tally(msgspec.Struct, array_like=True, gc=False):
    """The numbers of a worker's successful and failed attempts, and when the last one ended."""

    succeeded: int = 0
    failed: int = 0
    at_us: int = 0


class Entity(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Anything durable except tasks and answers, by its kind and its name.

    Storage needs to know neither: another kind is a line in `KINDS`, and no table.
    """

    kind: str  # one of `KINDS`
    namespace: str  # empty for what belongs to none
    name: str  # unique for its kind in the namespace
    row: str | None  # in JSON; None if it is gone


#: The type of each kind, in the order in which they are restored: what others refer to comes first.
KINDS: dict[str, Any] = {
    "queue": QueueRow,
    "exchange": Exchange,
    "binding": Binding,
    "rule": Rule,
    "limit": int,
    "tally": Tally,
    "schedule": Schedule,
    "throttle": Throttled,
    "api_key": ApiKey,
}

_encode = msgspec.json.Encoder().encode
_decoders = {kind: msgspec.json.Decoder(each).decode for kind, each in KINDS.items()}
_PLACES = {kind: place for place, kind in enumerate(KINDS)}


def to_entity(kind: str, namespace: str, name: str, value: object) -> Entity:
    """Encode a value of a kind; None for one that was deleted."""
    return Entity(kind, namespace, name, None if value is None else _encode(value).decode())


def from_entities(entities: Iterable[Entity]) -> Iterator[tuple[Entity, Any]]:
    """Yield entities with their values, in the order in which they are restored."""
    for entity in sorted(entities, key=lambda entity: _PLACES[entity.kind]):
        if entity.row is not None:
            yield entity, _decoders[entity.kind](entity.row)


class Counters(msgspec.Struct, array_like=True):
    """The counters of the book, which only grow, and its times, which a clock may set back."""

    fence: int = 0  # the last fence given out
    rank: int = 0  # the last place in line given out
    floor: TaskId = TaskId(b"")  # the greatest time-ordered id that ever left memory
    reserved: int = 0  # through which fences may have been given out without a record
    horizon_us: int = 0  # ended tasks that were to be kept until then at the latest are gone
    latest_us: int = 0  # when the last record was made
    level: int = 0  # of the last batch in a log that several nodes share; 0 elsewhere


class Changes(msgspec.Struct):
    """Rows that were changed or deleted since changes were last taken."""

    counters: Counters  # as they are now
    tasks: list[TaskRow] = []  # rows to write over whatever is stored
    gone: list[TaskId] = []  # ids of tasks to remove, with all that belongs to them
    entities: list[Entity] = []  # everything else to write, or to remove
    # (namespace, queue) whose tasks are to be removed, before anything is written
    queues_gone: list[tuple[str, str]] = []
    # blobs of tasks that are gone without having been stored; to be deleted unless a row names them
    blobs: list[str] = []
    answers: list[StoredAnswer] = []  # answers that are kept, to write
    answers_gone: list[TaskId] = []  # tasks whose answers are no longer kept

    def is_empty(self) -> bool:
        """Return whether there is nothing to write except the counters."""
        return not (
            self.tasks
            or self.gone
            or self.entities
            or self.queues_gone
            or self.answers
            or self.answers_gone
        )


# Definitions: what is durable about the topology of a namespace.


def definitions_of(namespace: Namespace) -> Iterator[tuple[str, str, object]]:
    """Yield kind, name and value of durable definitions, in a canonical order."""
    topology = namespace.topology
    for name, exchange in sorted(topology.exchanges.items()):
        if exchange.durable and (name not in GIVEN_NAMES or exchange.rule):
            yield "exchange", name, exchange
    for name, binding in sorted(topology.bindings.items()):
        if not is_volatile_binding(namespace, binding):
            yield "binding", name, binding
    for name, rule in sorted(topology.rules.items()):
        yield "rule", name, rule


def is_volatile_binding(namespace: Namespace, binding: Binding) -> bool:
    """Return whether a binding ends with a restart because its source or destination does."""
    exchanges = namespace.topology.exchanges
    if not exchanges[binding.source].durable:
        return True
    if binding.is_to_exchange:
        return not exchanges[binding.to].durable
    return namespace.queues[binding.to].is_volatile()


def define(namespace: Namespace, definition: Exchange | Binding | Rule) -> None:
    """Add an exchange, a binding or a rule to a namespace."""
    if isinstance(definition, Exchange):
        namespace.topology.put_exchange(definition)
    elif isinstance(definition, Binding):
        namespace.topology.bind(definition)
    else:
        namespace.topology.rules[definition.name] = definition
