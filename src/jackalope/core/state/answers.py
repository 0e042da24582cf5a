"""Kept answers: which ones there are, of which queue, and which of them is evicted first.

Owns the index of requests: for each identity the task that is under way, and the task whose answer
is kept. Knows nothing of commands, and does not hold the answers themselves.

Theory of operation
===================

An answer is the result of a task, and stays where results are: in history, its bytes in the blob
store if they are many. An entry here names that task, and as long as it is here, storage does not
forget the task, whatever its retention. So there is one place for results, one way to get
them, and what is dropped from the cache costs nothing any more as soon as its retention is over.

Entries stand in the order in which they were last used. `rank` is that order as a number, and is
stored, so that a restart evicts the same ones.

A task that failed has an entry as well. It is no answer, and the next request runs again; it is
kept for a client that sent the request, disconnected, and comes back for the outcome.
"""

from __future__ import annotations

from copy import copy

from jackalope.core.durations import NEVER
from jackalope.core.ids import TaskId
from jackalope.core.policy import Policy
from jackalope.core.shapes.request import StoredAnswer
from jackalope.core.state.slices import Slices
from jackalope.core.state.timers import Timers


class Cache:
    """The requests of one queue."""

    __slots__ = ("answers", "bytes", "flights")

    def __init__(self) -> None:
        self.flights: dict[bytes, TaskId] = {}  # the unfinished task of each identity
        # the entry of each identity, least recently used first
        self.answers: dict[bytes, StoredAnswer] = {}
        self.bytes = 0  # how many bytes the answers have

    def add(self, answer: StoredAnswer) -> None:
        """Insert an entry as the most recently used one."""
        self.answers[answer.identity] = answer
        self.bytes += answer.size

    def remove(self, answer: StoredAnswer) -> None:
        del self.answers[answer.identity]
        self.bytes -= answer.size

    def touch(self, answer: StoredAnswer, at_us: int) -> None:
        answer.rank = self.next_rank(at_us)
        self.answers[answer.identity] = self.answers.pop(answer.identity)

    def next_rank(self, at_us: int) -> int:
        """Return the rank of an entry used now: the time, made unique."""
        newest = next(reversed(self.answers.values()), None)
        return at_us if newest is None else max(at_us, newest.rank + 1)

    def evicted_by(self, identity: bytes, size: int, policy: Policy) -> list[StoredAnswer] | None:
        """Return the entries to evict for another; None if evicting would not be enough.

        Pinned entries stay. The entry of the same identity is replaced.
        """
        entries, total = len(self.answers) + 1, self.bytes + size
        replaced = self.answers.get(identity)
        if replaced is not None:
            entries, total = entries - 1, total - replaced.size
        evicted: list[StoredAnswer] = []
        for answer in self.answers.values():
            if entries <= policy.cache_entries and total <= policy.cache_bytes:
                break
            if not answer.pinned_by and answer is not replaced:
                evicted.append(answer)
                entries, total = entries - 1, total - answer.size
        has_room = entries <= policy.cache_entries and total <= policy.cache_bytes
        return evicted if has_room else None


class Answers:
    """All cached answers, of all queues."""

    def __init__(self) -> None:
        self.by_task: dict[TaskId, StoredAnswer] = {}  # each by the task whose result it is
        self.slices: Slices | None = None  # of those tasks, if states are compared
        self.expiry: Timers[bytes] = Timers()  # when they have grown too old, by the task as well
        # tasks whose answers storage lacks as they are, or has and must not have
        self.dirty: dict[TaskId, None] = {}

    def enter(self, cache: Cache, answer: StoredAnswer) -> None:
        """Index an answer as the most recently used one of its queue."""
        cache.add(answer)
        self.by_task[answer.task] = answer
        if self.slices is not None:
            self.slices.add(answer.task)
        self.set_expiry(answer)

    def leave(self, cache: Cache, answer: StoredAnswer) -> None:
        cache.remove(answer)
        del self.by_task[answer.task]
        if self.slices is not None:
            self.slices.discard(answer.task)
        self.expiry.cancel(answer.task)
        self.dirty[answer.task] = None

    def set_expiry(self, answer: StoredAnswer) -> None:
        """Set the expiry of an answer, unless it is pinned or does not expire."""
        if answer.pinned_by or answer.until_us >= NEVER:
            self.expiry.cancel(answer.task)
        else:
            self.expiry.set(answer.task, answer.until_us)

    def changed(self) -> list[StoredAnswer]:
        """Return copies of the entries that storage lacks."""
        return [copy(self.by_task[task]) for task in self.dirty if task in self.by_task]

    def gone(self) -> list[TaskId]:
        """Return the tasks whose answers storage must delete."""
        return [task for task in self.dirty if task not in self.by_task]
