"""The snapshot: all durable state of a book as rows."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from jackalope.core.changes import Changes, Counters, LimitRow
from jackalope.core.definitions import definitions_of
from jackalope.core.ids import is_volatile
from jackalope.core.task import to_row

if TYPE_CHECKING:
    from jackalope.core.book import Book


def snapshot_of(book: Book) -> Changes:
    """Return all durable state that is in memory, in an order that depends on it alone."""
    return Changes(
        counters=Counters(book.counters.fence, book.counters.rank, book.counters.floor),
        tasks=[
            to_row(task)
            for task in sorted(book.tasks.values(), key=lambda task: (task.rank, task.id))
            if task.id not in book.recalled and not is_volatile(task.id)
        ],
        queues=[
            queue.to_row()
            for _, world in sorted(book.namespaces.items())
            for _, queue in sorted(world.queues.items())
            if not queue.is_volatile()
        ],
        limits=[
            LimitRow(world.name, tag, limit)
            for _, world in sorted(book.namespaces.items())
            for tag, limit in sorted(world.limits.items())
        ],
        tallies=[
            book.tally_row(world.name, worker)
            for _, world in sorted(book.namespaces.items())
            for worker in sorted(world.tallies)
        ],
        api_keys=[key for _, key in sorted(book.api_keys.items())],
        answers=[
            copy(answer)
            for _, world in sorted(book.namespaces.items())
            for _, queue in sorted(world.queues.items())
            for answer in queue.cache.answers.values()
        ],
        definitions=[
            row for _, world in sorted(book.namespaces.items()) for row in definitions_of(world)
        ],
    )
