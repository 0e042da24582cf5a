"""The shelf: a stand-in for storage, and the proof that what is stored gives the same state again.

Keeps a journal of encoded batches and a history of rows, as the real ones do, in plain memory.
"""

from __future__ import annotations

from difflib import unified_diff
from pprint import pformat

import msgspec

from jackalope.calendar import CronCalendar
from jackalope.core import Core, invariants
from jackalope.core.assertions import BrokenInvariant
from jackalope.core.commands import AnyCommand
from jackalope.core.context import Missing
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import ENDED
from jackalope.core.records import AnyRecord, decode_batch, encode_batch
from jackalope.core.shapes.request import StoredAnswer
from jackalope.core.state.book import Book
from jackalope.core.state.changes import Changes, Counters, Entity
from jackalope.core.task import Task, TaskRow


class Shelf:
    """A journal and a history."""

    def __init__(self) -> None:
        self._journal: list[bytes] = []
        self._stored_through = 0
        self._tasks: dict[TaskId, TaskRow] = {}
        self._entities: dict[tuple[str, str, str], Entity] = {}
        self._answers: dict[TaskId, StoredAnswer] = {}
        self._counters = Counters()
        self._had_volatile = False

    def append(self, records: list[AnyRecord]) -> None:
        """Write the records of one command into the journal."""
        if records:
            self._journal.append(encode_batch(records))

    def store(self, book: Book) -> tuple[list[TaskId], list[TaskId]]:
        """Write what changed into history, and let ended tasks leave memory.

        Returns:
            The tasks that left memory, and those that history has forgotten, their time being over.
        """
        before = set(book.tasks)
        changes = book.take_changes()
        self._write(_copy(changes))
        book.stored(changes)
        over = self.overdue(self._counters.horizon_us)
        for task_id in over:
            del self._tasks[task_id]
        forgotten = sorted({*over, *changes.gone})
        return sorted(before - set(book.tasks)), forgotten

    def overdue(self, through_us: int) -> list[TaskId]:
        """Return the ended tasks that were to be kept until a time at the latest."""
        return [
            row.id
            for row in self._tasks.values()
            if row.outcome and row.outcome.forget_us <= through_us and row.id not in self._answers
        ]

    def _write(self, changes: Changes) -> None:
        self._stored_through = len(self._journal)
        self._counters = changes.counters
        for task_id in changes.gone:
            self._tasks.pop(task_id, None)
        deleted = set(changes.queues_gone)
        for task in [t for t in self._tasks.values() if (t.namespace, t.queue) in deleted]:
            del self._tasks[task.id]
        self._tasks.update({row.id: row for row in changes.tasks})
        for entity in changes.entities:
            self._entities[entity.kind, entity.namespace, entity.name] = entity
            if entity.row is None:
                del self._entities[entity.kind, entity.namespace, entity.name]
        for task_id in changes.answers_gone:
            self._answers.pop(task_id, None)
        self._answers.update({answer.task: answer for answer in changes.answers})

    # Recalling.

    def recall(self, core: Core, command: AnyCommand) -> None:
        """Put back into memory what the command needs."""
        missing = core.missing(command)
        if missing is not None:
            core.book.recall(row for row in self._tasks.values() if _is_wanted(row, missing))

    def find(self, book: Book, task_id: TaskId) -> Task | None:
        """Find a task that has left memory, without putting it back."""
        row = self._tasks.get(task_id)
        return None if row is None else book.from_row(row)

    # Rebuilding.

    def rebuild(self) -> Core:
        """Make a core as a restart does: of the live rows of history and the journal after them."""
        live = Changes(
            counters=self._counters,
            tasks=[row for row in self._tasks.values() if row.state not in ENDED],
            entities=list(self._entities.values()),
            answers=list(self._answers.values()),
        )
        core = _restored(live)
        core.calendar = CronCalendar()
        _replay(core, self._journal[self._stored_through :])
        return core

    def check(self, core: Core) -> None:
        """Make sure that a core can be had again from storage, from records alone, from a snapshot.

        Raises:
            BrokenInvariant: with the difference.
        """
        snapshot = core.book.snapshot()
        rebuilt = self.rebuild()
        invariants.check(rebuilt)
        self._had_volatile = self._had_volatile or core.book.has_volatile
        if self._had_volatile:
            # What is not in the journal took places in line too: the order is the same, not more.
            _compare("storage has other tasks", _told(snapshot), _told(rebuilt.book.snapshot()))
            return
        _compare("storage gives another state", snapshot, rebuilt.book.snapshot())

        replayed = Core()
        _replay(replayed, self._journal)
        _compare("replay gives another state", snapshot, self._without_left(core, replayed))

        restored = _restored(snapshot)
        invariants.check(restored)
        _compare("a snapshot gives another state", snapshot, restored.book.snapshot())

    def _without_left(self, core: Core, replayed: Core) -> Changes:
        """Return the replayed state without ended tasks that left memory, which history must have.

        Those that left also raised the floor, which is not replayed.
        """
        all_of_it = replayed.book.snapshot()
        kept: list[TaskRow] = []
        left: list[TaskRow] = []
        for row in all_of_it.tasks:
            is_in_memory = row.id in core.book.tasks and row.id not in core.book.recalled
            (kept if is_in_memory or row.state not in ENDED else left).append(row)
        for row in left:
            if row.id in self._tasks:
                _compare("history has another task", self._tasks[row.id], row)
        all_of_it.tasks = kept
        all_of_it.counters.floor = core.book.counters.floor
        return all_of_it


def _restored(snapshot: Changes) -> Core:
    core, rows = Core(), _copy(snapshot)
    core.book.restore(rows.counters, rows.entities, rows.tasks, rows.answers)
    return core


def _replay(core: Core, journal: list[bytes]) -> None:
    for batch in journal:
        for record in decode_batch(batch):
            core.apply(record)


def _is_wanted(row: TaskRow, missing: Missing) -> bool:
    if missing.filter is not None and row.namespace == missing.namespace:
        return True
    has_alias = row.namespace == missing.namespace and row.options.alias in missing.aliases
    return row.id in missing.ids or (has_alias and bool(row.options.alias))


def _told(snapshot: Changes) -> list[object]:
    """Return what of a state does not depend on who came before."""
    tasks = [(row.id, row.state, row.payload, row.envelope, row.attempts) for row in snapshot.tasks]
    named = [(each.kind, each.namespace, each.name) for each in snapshot.entities]
    defined = [each for each in snapshot.entities if each.kind in ("exchange", "binding", "rule")]
    return [*tasks, *(name for name in named if name[0] == "queue"), *defined]


def _copy(changes: Changes) -> Changes:
    """Return the rows as they come back from a disk."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(changes), type=Changes)


def _compare(what: str, expected: object, actual: object) -> None:
    if expected != actual:
        old, new = (pformat(msgspec.to_builtins(it)).splitlines() for it in (expected, actual))
        diff = unified_diff(old, new, "memory", "rebuilt", n=4, lineterm="")
        raise BrokenInvariant("\n".join([what, *diff]))
