"""The audit log: what administrators did, or tried to do.

Owns the shape of an entry, and the log. Entries are part of the book, so that every node has them,
and bounded: of each namespace, and of the broker as a whole, the latest are kept.
"""

from __future__ import annotations

from collections import deque

import msgspec

from jackalope.core.limits import ACTS_OF_BROKER_MAX, ACTS_PER_NAMESPACE_MAX

#: The outcome of an act that was done; else it is the code of the refusal.
DONE = "done"


class Act(msgspec.Struct, array_like=True, frozen=True):
    """An administrative act: who did what, where and from where, and how it went."""

    what: str  # such as `declare_queue` or `sign_in`
    by: str = ""  # the API key, and what the client calls itself
    namespace: str = ""  # where; empty for the broker as a whole
    about: str = ""  # what it was done to, in a line
    origin: str = ""  # the address that it came from
    outcome: str = DONE


class AuditEntry(msgspec.Struct, array_like=True, frozen=True):
    """An act in the log."""

    number: int  # grows with every entry
    at_us: int
    act: Act
    is_past: bool = False  # its namespace was deleted: who has one of that name is not told of it

    def name(self) -> str:
        """Return its number as storage has it."""
        return f"{self.number:016d}"


def acts_max(namespace: str) -> int:
    """Return how many entries of a namespace, or of the broker as a whole, are kept."""
    return ACTS_PER_NAMESPACE_MAX if namespace else ACTS_OF_BROKER_MAX


class AuditLog:
    """The latest acts: of each namespace, and of the broker as a whole."""

    def __init__(self) -> None:
        self.last = 0  # the number of the last entry
        # by where they are counted: a namespace, or nowhere for the broker and what is past
        self._entries: dict[str, deque[AuditEntry]] = {}

    def in_order(self) -> list[AuditEntry]:
        """Return all entries, oldest first."""
        every = (entry for entries in self._entries.values() for entry in entries)
        return sorted(every, key=lambda entry: entry.number)

    def of(self, namespace: str) -> list[AuditEntry]:
        """Return the entries of a namespace that exists, oldest first."""
        return list(self._entries.get(namespace, ()))

    def restore(self, entry: AuditEntry) -> None:
        """Take in an entry from storage. They come in order."""
        self.last = max(self.last, entry.number)
        place = "" if entry.is_past else entry.act.namespace
        self._entries.setdefault(place, deque()).append(entry)

    def add(self, entry: AuditEntry) -> AuditEntry | None:
        """Add the latest entry, and return the one that goes for it."""
        self.restore(entry)
        place = entry.act.namespace
        entries = self._entries[place]
        return entries.popleft() if len(entries) > acts_max(place) else None

    def leave_behind(self, namespace: str) -> tuple[list[AuditEntry], list[AuditEntry]]:
        """Keep the entries of a namespace that is deleted; return these, and those that go."""
        past = [
            msgspec.structs.replace(entry, is_past=True)
            for entry in self._entries.pop(namespace, ())
        ]
        merged = sorted((*self._entries.get("", ()), *past), key=lambda entry: entry.number)
        gone = merged[: max(0, len(merged) - acts_max(""))]
        self._entries[""] = deque(merged[len(gone) :])
        lost = {entry.number for entry in gone}
        return [entry for entry in past if entry.number not in lost], gone


def entity_of(entry: AuditEntry) -> tuple[str, str, str]:
    """Return what storage knows an entry by."""
    return "audit", entry.act.namespace, entry.name()
