"""Backoff: how long to wait before the next try."""

from __future__ import annotations

import random

from jackalope.core.must import must


class Backoff:
    """Waits that grow up to a cap, each spread by chance so that many peers do not come at once."""

    def __init__(self, base_s: float = 0.05, factor: float = 2.0, cap_s: float = 5.0) -> None:
        must(0 < base_s <= cap_s and factor >= 1, "waits grow", base_s, factor, cap_s)
        self._base_s = base_s
        self._factor = factor
        self._cap_s = cap_s
        self._wait_s = base_s

    def next_s(self) -> float:
        """Return the next wait in seconds: half of it certain, half of it chance."""
        wait_s, self._wait_s = self._wait_s, min(self._wait_s * self._factor, self._cap_s)
        return wait_s * (0.5 + random.random() / 2)  # noqa: S311  spreads load, guards nothing

    def reset(self) -> None:
        """Begin again with the shortest wait."""
        self._wait_s = self._base_s
