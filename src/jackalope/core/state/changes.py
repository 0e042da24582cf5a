"""Changes: what storage must write to catch up with memory, and what memory is rebuilt from.

A snapshot and a set of changes have the same shape: rows. A snapshot has all live rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from jackalope.core.api_key import ApiKey
from jackalope.core.audit import AuditEntry, entity_of
from jackalope.core.ids import TaskId, is_volatile
from jackalope.core.policy import Policy
from jackalope.core.shapes.contract import TaskContracts
from jackalope.core.shapes.exchange import GIVEN_NAMES, AmqpTraits, Binding, Exchange, Rule
from jackalope.core.shapes.limit import Bucket, Limit
from jackalope.core.shapes.namespace import NamespaceRow
from jackalope.core.shapes.pace import Throttled
from jackalope.core.shapes.pool import PoolSettings
from jackalope.core.shapes.request import StoredAnswer
from jackalope.core.shapes.schedule import Schedule
from jackalope.core.state.contracts import rows_of
from jackalope.core.task import TaskRow, to_row

if TYPE_CHECKING:
    from jackalope.core.state.book import Book
    from jackalope.core.state.queue import Namespace

T = TypeVar("T")


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
    "namespace": NamespaceRow,
    "queue": QueueRow,
    "exchange": Exchange,
    "binding": Binding,
    "rule": Rule,
    "limit": int,
    "key_limit": Limit,
    "bucket": Bucket,
    "tally": Tally,
    "schedule": Schedule,
    "throttle": Throttled,
    "contract": TaskContracts,
    "api_key": ApiKey,
    "audit": AuditEntry,
}

_encode = msgspec.json.Encoder().encode
_decoders = {kind: msgspec.json.Decoder(each).decode for kind, each in KINDS.items()}
_PLACES = {kind: place for place, kind in enumerate(KINDS)}


def to_entity(kind: str, namespace: str, name: str, value: object) -> Entity:
    """Encode a value of a kind; None for one that was deleted."""
    return Entity(kind, namespace, name, None if value is None else _encode(value).decode())


def _place_of(entity: Entity) -> tuple[int, str]:
    """Return where an entity is restored; entries of the audit log in their order."""
    return _PLACES[entity.kind], entity.name if entity.kind == "audit" else ""


def from_entities(entities: Iterable[Entity]) -> Iterator[tuple[Entity, Any]]:
    """Yield entities with their values, in the order in which they are restored."""
    for entity in sorted(entities, key=_place_of):
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


# The snapshot: all durable state of a book as rows.


def snapshot_of(book: Book) -> Changes:
    """Return all durable state in memory, in a canonical order."""
    return Changes(
        counters=copy(book.counters),
        tasks=[
            to_row(task)
            for task in sorted(book.tasks.values(), key=lambda task: (task.rank, task.id))
            if task.id not in book.recalled and not is_volatile(task.id)
        ],
        entities=[to_entity(*each) for each in entities_of(book)],
        answers=[
            copy(answer)
            for _, namespace in sorted(book.namespaces.items())
            for _, queue in sorted(namespace.queues.items())
            for answer in queue.cache.answers.values()
        ],
    )


def entities_of(
    book: Book, is_wanted: Callable[[str], bool] = lambda _: True
) -> Iterator[tuple[str, str, str, object]]:
    """Yield kind, namespace, name and value of everything durable except tasks and answers."""

    def wanted(named: dict[str, T]) -> list[tuple[str, T]]:
        return sorted((each for each in named.items() if is_wanted(each[0])), key=itemgetter(0))

    for name, namespace in sorted(book.namespaces.items()):
        for _, queue in wanted(namespace.queues):
            if not queue.is_volatile():
                yield *queue.entity, queue.to_row()
        for kind, defined, value in definitions_of(namespace):
            if is_wanted(defined):
                yield kind, name, defined, value
        tables: dict[str, dict[str, Any]] = {
            "namespace": {"": namespace.to_row()} if namespace.is_declared else {},
            **namespace.gates.tables(),
            "tally": namespace.tallies,
            "schedule": namespace.schedules,
            "throttle": namespace.throttles,
            "contract": rows_of(namespace.queues.values()),
        }
        for kind, table in tables.items():
            for key, each in wanted(table):
                yield kind, name, key, each
    for key, api_key in wanted(book.api_keys):
        yield "api_key", "", key, api_key
    yield from (
        (*entity_of(entry), entry) for entry in book.audit.in_order() if is_wanted(entry.name())
    )
