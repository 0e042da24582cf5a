"""Ready tasks: who is next in a queue.

Owns the order of the tasks in state ready. Knows nothing of workers or states.

Theory of operation
===================

The ready tasks of a queue stand in lanes. A lane holds tasks that any worker treats alike: same
key, same gates (see `gates`), same worker to avoid, same needs. So a limit that is reached closes
whole lanes, and a task that must wait never stands before one that need not.

In a queue with a fairness key, a lane holds tasks of one share only, and what is next is decided by
the turn of the share first (`fair_shares`), then as in any other queue.

A lane may hold tasks of any name, until a worker is about to be given one whose name it does not
know. Such a task moves to a lane of its name, and so do later ones of that name while
there is such a lane. A task that avoids a worker or has needs has such a lane from the start,
because it must be known which others can take it.

Within a lane the order is priority, then rank (the moment when the task first became ready, made
unique). A lane keeps a bucket for each priority in use, and a bitmask of them. In a bucket, tasks
that become ready for the first time have ever growing ranks and join a deque at its end; a task
that comes back (a retry, a lost worker) has an old rank and goes to a small heap next to it. The
head is the lesser of the two heads.

Ageing needs no timers: if each span of waiting counts as one step of priority, then the order of
two tasks never changes while both wait, and comparing `rank - priority * span` gives it. Within a
priority that is again the order of ranks, so ageing only compares the heads of the buckets.

Between lanes, the best is found by heaps of their heads: one for the lanes of any key, and one for
each key that workers ask for; see `Row`.

Entries leave lazily: a task that is paused or moved to another lane stays behind as an entry that
no longer counts, and is skipped when it comes up. A rank is for life, so a task can be its own
entry. When stale entries outnumber live ones the lane is rebuilt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace, merge
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from jackalope.core.assertions import BrokenInvariant, must
from jackalope.core.state.fair_shares import FairShare, FairShares

if TYPE_CHECKING:
    from jackalope.core.ids import TaskId
    from jackalope.core.shapes.needs import Needs
    from jackalope.core.state.gates import Gate, GateNames
    from jackalope.core.state.queue import Queue
    from jackalope.core.task import Task

#: Without ageing, one step of priority outweighs any wait.
_NO_AGEING_US = 2**62

_STALE_ENTRIES_FREE = 64


class LaneName(NamedTuple):
    """What the tasks of a lane have in common."""

    key: str = ""
    gates: GateNames = ()  # what must be open for them to start
    avoid: str = ""  # the worker on which they failed
    task_name: str | None = None  # None if they may have any
    share: str = ""  # the value of the fairness key, if the queue has one
    needs: Needs | None = None  # what they need of a worker


#: The lane of tasks that ask for nothing special: nearly all.
PLAIN = LaneName()


class Bucket:
    """The tasks of one lane and one priority, oldest first. `size` excludes stale entries."""

    __slots__ = ("fresh", "late", "newest_rank", "size")

    def __init__(self) -> None:
        self.size = 0
        self.fresh: deque[Task] = deque()  # A pair of rank and id would take 64 bytes more.
        self.late: list[tuple[int, TaskId]] = []
        self.newest_rank = 0

    def __iter__(self) -> Iterator[TaskId]:
        yield from (task_id for _, task_id in self.late)
        yield from (task.id for task in self.fresh)


class Lane:
    """Ready tasks that any worker treats alike, best first.

    Attributes:
        size: how many tasks are in the lane.
        closed_by: the gate at which it waits. While there is one, no task of it may start.
        gates: what must be open for its tasks to start.
        share: whose turn decides when the lane is next, if the queue has a fairness key.
        task_name: the name of its tasks; None if they may have any.
        is_picky: whether some workers that serve it may not take its tasks.
    """

    __slots__ = (
        "_buckets",
        "_entries",
        "_mask",
        "avoid",
        "closed_by",
        "gates",
        "is_picky",
        "key",
        "name",
        "needs",
        "parked_at",
        "queue",
        "share",
        "size",
        "task_name",
        "ticket",
    )

    def __init__(self, queue: Queue, name: LaneName) -> None:
        self.queue = queue
        self.name = name
        self.key, self.avoid = name.key, name.avoid
        self.task_name, self.needs = name.task_name, name.needs
        self.is_picky = bool(name.avoid) or name.needs is not None
        self.share: FairShare | None = None
        self.size = 0
        self.gates: tuple[Gate, ...] = ()
        self.closed_by: Gate | None = None
        self.ticket, self.parked_at = 0, 0  # of its place at that gate
        self._buckets: dict[int, Bucket] = {}
        self._entries = 0
        self._mask = 0

    def place(self, task: Task) -> int:
        """Return a sort key of a task of this lane, for all lanes of the queue."""
        own = order(task, self.queue.policy.ageing_us)
        return own if self.share is None else self.share.place + own

    def push(self, entering: Sequence[Task]) -> None:
        buckets = self._buckets
        for task in entering:
            task.lane = self
            priority, rank = task.priority, task.rank
            bucket = buckets.get(priority)
            if bucket is None:
                bucket = buckets[priority] = Bucket()
            if rank > bucket.newest_rank:
                bucket.newest_rank = rank
                bucket.fresh.append(task)
            else:
                heappush(bucket.late, (rank, task.id))
            if not bucket.size:
                self._mask |= 1 << priority
            bucket.size += 1
        self.size += len(entering)
        self._entries += len(entering)

    def remove(self, leaving: Sequence[Task], tasks: dict[TaskId, Task]) -> None:
        """Take tasks out, wherever they stand."""
        for task in leaving:
            if task.lane is not self:
                raise BrokenInvariant(f"task {task.id.hex()} is ready but stands in no lane")
            task.lane = None
            self._buckets[task.priority].size -= 1
        self.size -= len(leaving)
        if self._entries > 2 * self.size + _STALE_ENTRIES_FREE:
            self._rebuild(tasks)

    def head(self, tasks: dict[TaskId, Task]) -> Task | None:
        """Return the next task without removing it."""
        ageing_us = self.queue.policy.ageing_us
        if not ageing_us:
            while self._mask:
                task = self._bucket_head(self._mask.bit_length() - 1, tasks)
                if task is not None:
                    return task
            return None
        best = None
        mask = self._mask
        while mask:
            priority = mask.bit_length() - 1
            mask ^= 1 << priority
            task = self._bucket_head(priority, tasks)
            if task is not None and (
                best is None or order(task, ageing_us) < order(best, ageing_us)
            ):
                best = task
        return best

    def first(self, count: int, tasks: dict[TaskId, Task]) -> list[Task]:
        """Return the tasks that are next one after the other, and leave them where they are.

        They may be fewer, where the order is less plain, but never none while there are any. Once
        they are gone, the rest can be asked for.
        """
        mask, ageing_us, head = self._mask, self.queue.policy.ageing_us, None
        if mask and not ageing_us:
            head = self._bucket_head(mask.bit_length() - 1, tasks)
        head = head or self.head(tasks)
        if head is None or count == 1:
            return [] if head is None else [head]
        first, priority = [head], head.priority
        if ageing_us and self._mask != 1 << priority:
            return first
        bucket = self._buckets[priority]
        late_rank = bucket.late[0][0] if bucket.late else None
        for task in islice(bucket.fresh, 1, None):
            if len(first) == count or (late_rank is not None and task.rank > late_rank):
                break
            if task.lane is self and task.priority == priority:
                first.append(task)
        return first

    def __iter__(self) -> Iterator[TaskId]:
        """Yield ids in no order, including stale and repeated ones."""
        for bucket in self._buckets.values():
            yield from bucket

    def sizes(self) -> Iterator[tuple[int, int]]:
        """Yield each priority in use, and how many tasks have it."""
        for priority, bucket in self._buckets.items():
            if bucket.size:
                yield priority, bucket.size

    def ordered(self, tasks: dict[TaskId, Task]) -> Iterator[Task]:
        ageing_us = self.queue.policy.ageing_us
        buckets = [self._in_bucket(priority, tasks) for priority in self._buckets]
        before = None
        for task in merge(*buckets, key=lambda task: order(task, ageing_us)):
            if task is not before:
                before = task
                yield task

    def _in_bucket(self, priority: int, tasks: dict[TaskId, Task]) -> Iterator[Task]:
        """Yield the tasks of a bucket by rank; repeated ones are adjacent."""
        bucket = self._buckets[priority]
        fresh = ((task.rank, task.id) for task in bucket.fresh)
        for rank, task_id in merge(sorted(bucket.late), fresh):
            task = tasks.get(task_id)
            if task and task.lane is self and task.rank == rank and task.priority == priority:
                yield task

    def _bucket_head(self, priority: int, tasks: dict[TaskId, Task]) -> Task | None:
        bucket = self._buckets[priority]
        fresh, late = bucket.fresh, bucket.late
        task = None
        while fresh:
            task = fresh[0]
            if task.lane is self and task.priority == priority:
                break
            task = None
            fresh.popleft()
            self._entries -= 1
        while late:
            rank, task_id = late[0]
            if task is not None and task.rank <= rank:
                break
            other = tasks.get(task_id)
            if other and other.lane is self and other.rank == rank and other.priority == priority:
                return other
            heappop(late)
            self._entries -= 1
        if task is None:
            self._mask ^= 1 << priority
        return task

    def _rebuild(self, tasks: dict[TaskId, Task]) -> None:
        live = {
            task_id: task
            for task_id in self
            if (task := tasks.get(task_id)) is not None and task.lane is self
        }
        self._buckets, self._mask, self.size, self._entries = {}, 0, 0, 0
        self.push(sorted(live.values(), key=lambda task: task.rank))


def order(task: Task, ageing_us: int) -> int:
    """Return a sort key: the lesser goes first."""
    return task.rank - task.priority * (ageing_us or _NO_AGEING_US)


class ReadyQueue:
    """All ready tasks of one queue: its lanes, and which of them is next.

    The plain lane always exists; others exist as long as they have tasks.
    """

    __slots__ = (
        "_any",
        "_by_key",
        "_keyed",
        "fair",
        "lanes",
        "named",
        "picky",
        "plain",
        "queue",
        "size",
    )

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.size = 0
        self.plain = Lane(queue, PLAIN)
        self.lanes: dict[LaneName, Lane] = {PLAIN: self.plain}  # all lanes
        self.named: dict[str, Row] = {}  # the lanes of each name that has some of its own
        self.picky: dict[Lane, None] = {}  # the lanes of tasks that not every worker may take
        self.fair: FairShares | None = None  # the shares that take turns, if they do
        self._any = Row()
        self._any.lanes[self.plain] = None
        self._by_key: dict[str, dict[LaneName, Lane]] = {"": {PLAIN: self.plain}}
        # the lanes of each key that was asked for, by their name
        self._keyed: dict[str, dict[str | None, Row]] = {}
        self.share_out()

    def share_out(self) -> None:
        """Follow the fairness key of the queue. While that changes, no task may be in line."""
        policy = self.queue.policy
        must(not self.size, "a line is empty while its shares change", self.queue.name)
        self.fair = FairShares(policy.fair_weights) if policy.fair_by else None
        self.plain.share = None

    def lane(self, name: LaneName) -> tuple[Lane, bool]:
        """Return the lane of this name, and whether it was created just now."""
        lane = self.lanes.get(name)
        if lane is not None:
            return lane, False
        lane = self.lanes[name] = Lane(self.queue, name)
        self._by_key.setdefault(lane.key, {})[name] = lane
        if lane.is_picky:
            self.picky[lane] = None
        if lane.task_name is not None and lane.task_name not in self.named:
            self.named[lane.task_name] = Row()
        self._row(lane).lanes[lane] = None
        if lane.key in self._keyed:
            self._keyed[lane.key].setdefault(lane.task_name, Row()).lanes[lane] = None
        return lane, True

    def of_key(self, key: str) -> Iterable[Lane]:
        return self._by_key.get(key, {}).values()

    def all(self, tasks: dict[TaskId, Task]) -> Iterator[Task]:
        """Yield all ready tasks, in no order."""
        for lane in self.lanes.values():
            for task_id in set(lane):
                task = tasks.get(task_id)
                if task is not None and task.lane is lane:
                    yield task

    def push(self, entering: Sequence[Task], lane: Lane, tasks: dict[TaskId, Task]) -> None:
        if self.fair is not None:
            lane.share = self.fair.enter(lane.name.share, len(entering))
        lane.push(entering)
        self.size += len(entering)
        if len(self.lanes) > 1:
            self._note(lane, tasks)

    def remove(self, leaving: Sequence[Task], lane: Lane, tasks: dict[TaskId, Task]) -> None:
        """Remove tasks from their lane. The caller drops the lane if it is empty."""
        lane.remove(leaving, tasks)
        self.size -= len(leaving)
        if lane.share is not None:
            self._leave(lane.share, len(leaving))
        if len(self.lanes) > 1:
            self._note(lane, tasks)

    def _leave(self, share: FairShare, count: int) -> None:
        if self.fair is not None:
            self.fair.leave(share, count)
            if not self.size:
                self.fair.clear()

    def drop(self, lane: Lane) -> None:
        must(not lane.size and lane is not self.plain, "only empty lanes are dropped", lane.name)
        del self.lanes[lane.name]
        self.picky.pop(lane, None)
        same_key = self._by_key[lane.key]
        del same_key[lane.name]
        row = self._row(lane)
        row.drop(lane)
        if lane.task_name is not None and not row.lanes:
            del self.named[lane.task_name]
        if not same_key:
            del self._by_key[lane.key]
            self._keyed.pop(lane.key, None)
        elif lane.key in self._keyed:
            rows = self._keyed[lane.key]
            rows[lane.task_name].drop(lane)
            if not rows[lane.task_name].lanes:
                del rows[lane.task_name]

    def reopen(self, lane: Lane, tasks: dict[TaskId, Task]) -> None:
        """Include a lane again that a gate has let go."""
        self._note(lane, tasks)

    def reorder(self, tasks: dict[TaskId, Task]) -> None:
        """Reorder the lanes after the ageing rule changed."""
        keyed = (row for rows in self._keyed.values() for row in rows.values())
        for row in (self._any, *self.named.values(), *keyed):
            row.reorder(tasks)
        for lane in self.lanes.values():
            if lane.closed_by is not None:
                self.queue.namespace.gates.repark(lane, tasks)

    def best(
        self,
        keys: tuple[str, ...],
        is_shut: Callable[[Lane], bool],
        tasks: dict[TaskId, Task],
        names: frozenset[str] | None = None,
    ) -> Task | None:
        """Return the best task in the open lanes of these keys; no keys means any key.

        Lanes for which `is_shut` is true are skipped, and those of other names than `names`; None
        means any name. The task may still have another name if its lane may have any.
        """
        if not self.size:
            return None
        best = None
        for row in self._rows_of_keys(keys, names) if keys else self._rows(names):
            found = row.best(is_shut, tasks)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        return None if best is None else best[1]

    def _rows(self, names: frozenset[str] | None) -> Iterable[Row]:
        """Return the rows that have what a worker of any key takes, which knows these names."""
        if not self.named:
            return (self._any,)
        named = self.named if names is None else sorted(self.named.keys() & names)
        return (self._any, *(self.named[name] for name in named))

    def _rows_of_keys(self, keys: tuple[str, ...], names: frozenset[str] | None) -> Iterator[Row]:
        """Yield the rows that have what a worker of these keys takes, which knows these names."""
        for key in keys:
            if key in self._by_key:
                rows = self._keyed.get(key) or self._gather(key)
                for name, row in rows.items():
                    if name is None or names is None or name in names:
                        yield row

    def _gather(self, key: str) -> dict[str | None, Row]:
        """Return the rows of a key that no worker asked for before."""
        rows = self._keyed[key] = {}
        for lane in self._by_key[key].values():
            rows.setdefault(lane.task_name, Row()).lanes[lane] = None
        return rows

    def _row(self, lane: Lane) -> Row:
        return self._any if lane.task_name is None else self.named[lane.task_name]

    def _note(self, lane: Lane, tasks: dict[TaskId, Task]) -> None:
        """Update the heaps after the head of a lane may have changed."""
        self._row(lane).note(lane, tasks)
        if self._keyed and lane.key in self._keyed:
            self._keyed[lane.key][lane.task_name].note(lane, tasks)


class Row:
    """Lanes among which a worker takes the best: those of one name, or of any, and of some keys.

    `_heads` is a heap of lane heads, used only while there are several lanes. An entry whose place
    is not the one in `lanes` is stale and skipped. The others are as low as the true places, or
    lower: a lane that moves back is put right when it comes up.
    """

    __slots__ = ("_has_heads", "_heads", "_serial", "lanes")

    def __init__(self) -> None:
        self.lanes: dict[Lane, int | None] = {}  # with the places that stand for them in the heap
        self._heads: list[tuple[int, int, Lane]] = []
        self._has_heads = False
        self._serial = 0

    def drop(self, lane: Lane) -> None:
        del self.lanes[lane]
        if len(self.lanes) <= 1:
            self._forget_heads()

    def reorder(self, tasks: dict[TaskId, Task]) -> None:
        self._forget_heads()
        if len(self.lanes) > 1:
            self._note_all_heads(tasks)

    def best(
        self, is_shut: Callable[[Lane], bool], tasks: dict[TaskId, Task]
    ) -> tuple[int, Task] | None:
        """Return the best task in the open lanes for which `is_shut` is false, with its place."""
        if len(self.lanes) == 1:
            [lane] = self.lanes
            if lane.closed_by or (lane.is_picky and is_shut(lane)):
                return None
            task = lane.head(tasks)
            return None if task is None else (lane.place(task), task)
        if not self._has_heads:
            self._note_all_heads(tasks)
        passed_over = []
        found = None
        while self._heads and found is None:
            noted, _, lane = self._heads[0]
            if self.lanes.get(lane) != noted:
                heappop(self._heads)
                continue
            task = None if lane.closed_by else lane.head(tasks)
            if task is None:
                heappop(self._heads)
                self.lanes[lane] = None
            elif (place := lane.place(task)) != noted:
                self._serial += 1
                self.lanes[lane] = place
                heapreplace(self._heads, (place, self._serial, lane))
            elif lane.is_picky and is_shut(lane):
                passed_over.append(heappop(self._heads))
            else:
                found = place, task
        for entry in passed_over:
            heappush(self._heads, entry)
        return found

    def note(self, lane: Lane, tasks: dict[TaskId, Task]) -> None:
        """Update the heap after the head of a lane may have changed."""
        if len(self.lanes) <= 1:
            return
        if not self._has_heads:
            self._note_all_heads(tasks)
        elif not lane.closed_by and (task := lane.head(tasks)) is not None:
            place, noted = lane.place(task), self.lanes[lane]
            if noted is None or place < noted:
                self.lanes[lane] = place
                self._serial += 1
                heappush(self._heads, (place, self._serial, lane))
                if len(self._heads) > 2 * len(self.lanes) + _STALE_ENTRIES_FREE:
                    self._note_all_heads(tasks)

    def _forget_heads(self) -> None:
        self._heads.clear()
        self._has_heads = False

    def _note_all_heads(self, tasks: dict[TaskId, Task]) -> None:
        self._heads.clear()
        self._has_heads = True
        for lane in self.lanes:
            task = None if lane.closed_by else lane.head(tasks)
            place = self.lanes[lane] = None if task is None else lane.place(task)
            if place is not None:
                self._serial += 1
                self._heads.append((place, self._serial, lane))
        heapify(self._heads)
