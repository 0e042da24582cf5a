"""Lists of tasks: memory and history merged, one answer for all who ask, and cached totals.

Owns how the two become one list. History is written behind; what it lacks is in memory, and is
merged with it here, so that a list is never stale and nothing has to be written for it.

Counting looks at every task that matches, so it gets slower as history grows, while a page of a
list does not. A count that took long is therefore cached for a while: pages that are requested all
the time cannot keep the disk busy with counting.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from operator import gt, lt
from typing import Generic, TypeVar

from jackalope.core import Core
from jackalope.core.filter import Filter, matching
from jackalope.core.lifecycle import ENDED
from jackalope.core.state.book import Book
from jackalope.core.task import Task, to_row
from jackalope.storage import History, Unwritten
from jackalope.storage.ports import Position, Sort


class Moment:
    """What a list needs of memory, as it is between two turns.

    Made on the loop, as quickly as possible; `unwritten` may be called in another thread.
    """

    def __init__(
        self,
        core: Core,
        namespace: str,
        wanted: Filter,
        *,
        sort: Sort,
        after: Position | None,
        count: int,
    ) -> None:
        book = core.book
        # Tasks are still changed while these are looked at, but not when they were created.
        self._known = [*book.taken.values(), *book.dirty.values()]
        self._gone = list(book.gone)
        self._queues_gone = tuple(queue for ns, queue in book.queues_gone if ns == namespace)
        self._horizon_us = book.counters.horizon_us
        found = matching(wanted, _listed(book, namespace))
        self._count = len(found)
        first = _first(found, sort, after, count)
        self._tasks = [(position, to_row(task)) for position, task in first]

    def unwritten(self) -> Unwritten:
        """Return what history needs in order to merge its own with it."""
        hidden = {task.id: task.created_us for task in self._known}
        hidden |= dict.fromkeys(self._gone, 0)  # Another task of the id may have come since.
        return Unwritten(hidden, self._queues_gone, self._horizon_us, self._tasks, self._count)


def _listed(book: Book, namespace: str) -> list[Task]:
    """Return the tasks of a namespace that storage lacks and is to have."""
    ns, dirty, tasks = book.namespaces.get(namespace), book.dirty, book.tasks
    if ns is None:
        return []
    known = list(dirty.values())
    # What is on its way may have changed again, or be gone.
    known += [task for key, task in book.taken.items() if key not in dirty and key in tasks]
    horizon_us, answers = book.counters.horizon_us, book.answers.by_task
    return [
        task
        for task in known
        if task.queue.namespace is ns
        and (
            (outcome := task.outcome) is None
            or task.state not in ENDED
            # Some are not to be kept at all, and some no longer, unless they are answers.
            or (
                outcome.forget_us > outcome.ended_us
                and (outcome.forget_us > horizon_us or task.id in answers)
            )
        )
    ]


def _first(
    found: list[Task], sort: Sort, after: Position | None, count: int
) -> list[tuple[Position, Task]]:
    is_reversed = sort.startswith("-")
    is_beyond = lt if is_reversed else gt
    placed = list(zip(_values(found, sort), found, strict=True))
    if after is not None:
        placed = [
            (value, task)
            for value, task in placed
            if is_beyond(value, after[0]) or (value == after[0] and is_beyond(task.id, after[1]))
        ]
    if len(placed) > count:
        # Of most tasks only the value is looked at: there may be tens of thousands.
        end = sorted((value for value, _ in placed), reverse=is_reversed)[count - 1]
        placed = [(value, task) for value, task in placed if not is_beyond(value, end)]
    placed.sort(key=lambda each: (each[0], each[1].id), reverse=is_reversed)
    return [((value, task.id), task) for value, task in placed[:count]]


def _values(tasks: list[Task], sort: Sort) -> list[int]:
    if sort in {Sort.CREATED, Sort.CREATED_LAST}:
        return [task.created_us for task in tasks]
    if sort in {Sort.PRIORITY, Sort.PRIORITY_LAST}:
        return [task.priority for task in tasks]
    ended = (task.outcome if task.state in ENDED else None for task in tasks)
    return [0 if outcome is None else outcome.ended_us for outcome in ended]


# Sharing: one answer for all who ask the same thing at the same time.

T = TypeVar("T")


class Shared(Generic[T]):
    """Questions, by what they ask."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, asyncio.Future[T]] = {}
        self._one_by_one = asyncio.Lock()

    async def ask(self, what: Hashable, look: Callable[[Callable[[], None]], Awaitable[T]]) -> T:
        """Return what is found out, or what is found out for another who asked before.

        `look` calls what it is given as soon as it looks: those who ask later must not get an
        answer that may be older than their question.
        """
        waiting = self._waiting.get(what)
        if waiting is None:
            waiting = asyncio.ensure_future(look(lambda: self._close(what)))
            self._waiting[what] = waiting
            waiting.add_done_callback(lambda done: self._end(what, done))
        # A caller that is cancelled does not cancel the job for the others.
        answer = await asyncio.shield(waiting)
        async with self._one_by_one:
            await asyncio.sleep(0)  # All at once they would block the loop for other clients.
        return answer

    def _close(self, what: Hashable) -> None:
        self._waiting.pop(what, None)

    def _end(self, what: Hashable, done: asyncio.Future[T]) -> None:
        """Forget a question, also one that could not begin; its callers may be gone by now."""
        if self._waiting.get(what) is done:
            del self._waiting[what]
        if not done.cancelled():
            done.exception()


# Totals: how many tasks a list has in all.


#: What takes less than this to count is not remembered.
_QUICK_S = 0.002

#: How long a count is good for: this many times as long as it took, and not longer than this.
_TIMES_ITS_COST = 50
_AGE_S_MAX = 5.0

#: How many counts are remembered.
TOTALS_MAX = 100


class Totals:
    """Cached counts of history. Not thread-safe."""

    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        spent_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._now_s = now_s
        # Not the time that passed: who had to wait for a busy machine has not counted for longer.
        self._spent_s = spent_s
        self._known: OrderedDict[tuple[str, Filter], tuple[float, int]] = OrderedDict()

    def count(
        self, history: History, namespace: str, wanted: Filter, unwritten: Unwritten | None = None
    ) -> int:
        """Return how many tasks match, possibly cached for a short while if counting is slow."""
        name = (namespace, wanted)
        until_s, total = self._known.get(name, (0.0, 0))
        if self._now_s() < until_s:
            return total
        begin_s = self._spent_s()
        total = sum(history.count(namespace, wanted, unwritten).values())
        total += unwritten.count if unwritten else 0
        took_s = self._spent_s() - begin_s
        self._known.pop(name, None)
        if took_s >= _QUICK_S:
            good_s = min(_TIMES_ITS_COST * took_s, _AGE_S_MAX)
            self._known[name] = (self._now_s() + good_s, total)
            if len(self._known) > TOTALS_MAX:
                self._known.popitem(last=False)
        return total
