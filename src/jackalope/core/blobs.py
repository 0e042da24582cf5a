"""Blobs: which of them the tasks in memory name.

Storage knows which blobs its rows name. A blob that is named neither there nor here is nobody's.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING

from jackalope.core.task import blobs_of

if TYPE_CHECKING:
    from jackalope.core.book import Book


def unnamed(book: Book, blobs: Iterable[str]) -> list[str]:
    """Return those of the blobs that no task names which storage lacks.

    These are the tasks that storage is still to have, and those that it never will: a large dead
    letter in a volatile queue may have its body from a task that is long gone.
    """
    large = book.volatile_large
    if large:
        large = {task_id: task for task_id, task in large.items() if task_id in book.tasks}
        book.volatile_large = large
    named = {blob for task in chain(book.dirty.values(), large.values()) for blob in blobs_of(task)}
    return [blob for blob in dict.fromkeys(blobs) if blob not in named]
