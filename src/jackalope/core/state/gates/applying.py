"""What records about limits mean for the book. A part of `apply`; it decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jackalope.core.records import TagLimited
from jackalope.core.records.limits import BucketsFilled, GatesClosed, LimitDeleted, LimitSet
from jackalope.core.shapes.limit import Limit
from jackalope.core.state.book import Book
from jackalope.core.state.gates import gate_name
from jackalope.core.state.queue import Namespace


def tag_limited(book: Book, record: TagLimited) -> None:
    namespace = book.namespace(record.namespace)
    namespace.limit_tag(record.tag, record.limit, book.tasks)
    limit = namespace.gates.tags.get(record.tag)
    book.entities_dirty["limit", record.namespace, record.tag] = limit


def limit_set(book: Book, record: LimitSet) -> None:
    namespace, limit = book.namespace(record.namespace), Limit(record.name, record.settings)
    for text in namespace.set_limit(limit, record.at_us, book.tasks):
        _bucket_changed(book, namespace, text)
    book.entities_dirty["key_limit", record.namespace, record.name] = limit


def limit_deleted(book: Book, record: LimitDeleted) -> None:
    namespace = book.namespaces[record.namespace]
    for text in namespace.delete_limit(record.name, book.tasks):
        _bucket_changed(book, namespace, text)
    book.entities_dirty["key_limit", record.namespace, record.name] = None


def gates_closed(book: Book, record: GatesClosed) -> None:
    namespace = book.namespaces[record.namespace]
    for text in record.gates:
        namespace.gates.close(gate_name(text), record.at_us, record.until_us, book.tasks)
        _bucket_changed(book, namespace, text)


def buckets_filled(book: Book, record: BucketsFilled) -> None:
    namespace = book.namespaces[record.namespace]
    for text in record.gates:
        namespace.gates.filled(gate_name(text), book.tasks)
        _bucket_changed(book, namespace, text)


def _bucket_changed(book: Book, namespace: Namespace, text: str) -> None:
    gate = namespace.gates.gates.get(gate_name(text))
    bucket = None if gate is None else gate.bucket
    book.entities_dirty["bucket", namespace.name, text] = bucket


#: What each kind of record does.
MEANINGS: dict[type, Callable[[Book, Any], None]] = {
    TagLimited: tag_limited,
    LimitSet: limit_set,
    LimitDeleted: limit_deleted,
    GatesClosed: gates_closed,
    BucketsFilled: buckets_filled,
}
