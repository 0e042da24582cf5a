"""Interests: which broadcasts a session wants to hear.

Owns the patterns and how a broadcast is held against them, for both ends of a connection.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec


class Interest(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The broadcasts that a session wants to hear; `*` stands for any text, also for none."""

    sender: str = "*"
    subject: str = "*"

    def is_meant(self, sender: str, subject: str) -> bool:
        """Tell whether a broadcast is one of those."""
        return matches(self.subject, subject) and matches(self.sender, sender)


def matches(pattern: str, text: str) -> bool:
    """Tell whether a text fits a pattern.

    In one walk from left to right: no pattern of a peer can make it take long.
    """
    if pattern in ("*", text):
        return True
    first, *rest = _pieces(pattern)
    if not rest or not text.startswith(first):
        return False
    *middle, last = rest
    at, end = len(first), len(text) - len(last)
    if end < at or not text.endswith(last):
        return False
    for piece in middle:
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


@lru_cache(1024)
def _pieces(pattern: str) -> tuple[str, ...]:
    return tuple(pattern.split("*"))
