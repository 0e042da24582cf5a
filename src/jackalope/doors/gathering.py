"""Gathering: one answer to a request that became several commands. Knows no protocol."""

from __future__ import annotations

from jackalope.core.effects import Accepted, Answered
from jackalope.core.refusals import Code, Refusal


class Gathering:
    """One answer to a request that became several commands."""

    __slots__ = ("_accepted", "_begins", "_left", "_refused", "_sizes", "ref")

    def __init__(self, ref: int, sizes: list[int]) -> None:
        self.ref = ref
        self._begins = [sum(sizes[:number]) for number in range(len(sizes))]
        self._sizes = list(sizes)
        self._left = len(sizes)
        self._accepted = 0
        self._refused: list[tuple[int, Refusal]] = []

    def take(self, body: Answered) -> Answered | None:
        """Take one part of the answer, and return the whole when it is complete."""
        begin, size = self._begins.pop(0), self._sizes.pop(0)
        self._left -= 1
        if isinstance(body, Refusal):
            # The whole part was refused: each of its items was.
            self._refused += [(begin + index, body) for index in range(size)]
        elif isinstance(body, Accepted):
            self._accepted += body.count
            self._refused += [(begin + index, refusal) for index, refusal in body.refused]
        if self._left:
            return None
        if isinstance(body, Refusal) and body.code is Code.UNKNOWN_SESSION:
            return body  # It is about the session, not about any one attempt.
        return Accepted(self._accepted, tuple(self._refused))
