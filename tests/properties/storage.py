"""Storage for the state machine: dicts of rows, and a list of batches."""

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from jackalope.core import Core
from jackalope.core.context import Missing
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import ENDED
from jackalope.core.records import decode_batch
from jackalope.core.shapes.request import StoredAnswer
from jackalope.core.state.changes import Changes, Counters, Entity
from jackalope.core.task import TaskRow

Row = TypeVar("Row", bound=msgspec.Struct)


class Storage:
    """What outlives the broker.

    Attributes:
        journal: every batch ever appended.
        applied: how many of them the rows contain.
        taken: changes that are being written, with the length of the journal when they were taken.
    """

    def __init__(self) -> None:
        self.journal: list[bytes] = []
        self.applied = 0
        self.counters = Counters()
        self.rows: dict[TaskId, TaskRow] = {}
        self.entities: dict[tuple[str, str, str], Entity] = {}
        self.answers: dict[TaskId, StoredAnswer] = {}
        self.taken: tuple[int, Changes] | None = None

    def take(self, core: Core) -> None:
        self.taken = (len(self.journal), copied(core.book.take_changes()))

    def write(self) -> Changes:
        """Write what was taken, and return it."""
        assert self.taken is not None
        (self.applied, changes), self.taken = self.taken, None
        for name in changes.queues_gone:
            self.rows = {k: r for k, r in self.rows.items() if (r.namespace, r.queue) != name}
        for task_id in changes.gone:
            self.rows.pop(task_id, None)
        self.rows |= {row.id: row for row in changes.tasks}
        self.entities |= {(each.kind, each.namespace, each.name): each for each in changes.entities}
        self.entities = {name: each for name, each in self.entities.items() if each.row is not None}
        for task_id in changes.answers_gone:
            self.answers.pop(task_id, None)
        self.answers |= {answer.task: answer for answer in changes.answers}
        self.counters = changes.counters
        return changes

    def recall(self, core: Core, missing: Missing) -> None:
        """Put back into memory what a command needs."""
        core.book.recall(copied(row) for row in self.rows.values() if is_wanted(row, missing))

    def rebuild(self) -> Core:
        """Make a core of the rows and of the batches that they do not contain."""
        self.taken = None
        core = Core()
        live = [copied(row) for row in self.rows.values() if row.state not in ENDED]
        live.sort(key=lambda row: row.rank)
        core.book.restore(copied(self.counters), self.entities.values(), live)
        apply_all(core, self.journal[self.applied :])
        return core


def copied(row: Row) -> Row:
    """Return what reading back gives."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(row), type=type(row))


def apply_all(core: Core, batches: Iterable[bytes]) -> None:
    for body in batches:
        for record in decode_batch(body):
            core.apply(record)


def is_wanted(row: TaskRow, missing: Missing) -> bool:
    wanted = missing.filter
    is_meant = wanted is not None and (
        row.state in wanted.states
        and wanted.queue in ("", row.queue)
        and wanted.key in ("", row.key)
    )
    return row.id in missing.ids or row.options.alias in missing.aliases or is_meant
