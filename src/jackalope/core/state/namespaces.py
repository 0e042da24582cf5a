"""What records about namespaces mean for the book. A part of `apply`; it decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jackalope.core.assertions import must
from jackalope.core.audit import AuditEntry, entity_of
from jackalope.core.lifecycle import ENDED
from jackalope.core.records import ActNoted, NamespaceDeclared, NamespaceDeleted
from jackalope.core.state.book import Book
from jackalope.core.state.changes import definitions_of
from jackalope.core.state.queue import Namespace
from jackalope.core.task import Task


def submitted(book: Book, namespace: Namespace, tasks: Sequence[Task]) -> None:
    """Count tasks that were accepted into a namespace whose rate of submits is limited."""
    before = namespace.bucket
    namespace.spend(tasks)
    if namespace.bucket is not before:
        _mark(book, namespace)


def _declared(book: Book, record: NamespaceDeclared) -> None:
    namespace = book.namespace(record.namespace)
    if not namespace.is_declared:
        namespace.is_declared = True
        namespace.created_us, namespace.by = record.at_us, record.by
    tasks = book.tasks.values()
    here = (task for task in tasks if task.queue.namespace is namespace)
    namespace.set_up(record.settings, (task for task in here if task.state not in ENDED))
    _mark(book, namespace)


def _deleted(book: Book, record: NamespaceDeleted) -> None:
    namespace, dirty = book.namespaces[record.namespace], book.entities_dirty
    left = (namespace.queues, namespace.schedules)
    must(not any(left), "a deleted namespace is empty", record.namespace)
    for kind, name, _ in list(definitions_of(namespace)):
        dirty[kind, record.namespace, name] = None
    tables: dict[str, dict[str, Any]] = {
        **namespace.gates.tables(),
        "tally": namespace.tallies,
        "throttle": namespace.throttles,
    }
    for kind, table in tables.items():
        for name in table:
            dirty[kind, record.namespace, name] = None
    for name in namespace.throttles:
        book.throttled.cancel((record.namespace, name))
    namespace.gates.cancel_timers()
    past, gone = book.audit.leave_behind(record.namespace)
    for entry in past:
        dirty[entity_of(entry)] = entry
    for entry in gone:
        dirty[entity_of(entry)] = None
    dirty["namespace", record.namespace, ""] = None
    del book.namespaces[record.namespace]


def _act_noted(book: Book, record: ActNoted) -> None:
    entry = AuditEntry(book.audit.last + 1, record.at_us, record.act)
    gone = book.audit.add(entry)
    book.entities_dirty[entity_of(entry)] = entry
    if gone is not None:
        book.entities_dirty[entity_of(gone)] = None


def _mark(book: Book, namespace: Namespace) -> None:
    book.entities_dirty["namespace", namespace.name, ""] = namespace


MEANINGS: dict[type, Callable[[Book, Any], None]] = {
    NamespaceDeclared: _declared,
    NamespaceDeleted: _deleted,
    ActNoted: _act_noted,
}
