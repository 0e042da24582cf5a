"""Shares: how many deliveries one receiver may hold, and for how long.

Deliveries of a namespace share its slots. A receiver that answers may use them all. One that hangs
keeps a quarter: a delivery beyond that share waits a second in place of the whole timeout, and does
not begin while another of the same receiver has just timed out. Knows hosts, not HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from urllib.parse import urlsplit

from jackalope.callbacks.posting import Failed

#: The part of the slots that a receiver keeps however long its answers take.
_PART = 4

#: How long a delivery beyond the share may take.
BEYOND_S = 1.0


class Shares:
    """The deliveries under way, by receiver."""

    def __init__(self, slots: int) -> None:
        self.share = max(1, slots // _PART)
        self._under_way: dict[str, int] = {}
        self._hanging: set[str] = set()  # those whose last answer did not come in time

    @contextmanager
    def delivery(self, url: str) -> Iterator[float]:
        """Count a delivery while it is under way, and say how many seconds it may take at most.

        Raises:
            Failed: the receiver hangs, and has its share of deliveries that wait for it.
        """
        host = urlsplit(url).netloc.lower()
        others = self._under_way.get(host, 0)
        is_beyond = others >= self.share
        if is_beyond and host in self._hanging:
            raise Failed("Timeout", f"{host} hangs: {others} others wait for its answer")
        self._under_way[host] = others + 1
        try:
            yield BEYOND_S if is_beyond else inf
            self._hanging.discard(host)
        except Failed as failed:
            if failed.kind == "Timeout":
                self._hanging.add(host)
            else:
                self._hanging.discard(host)
            raise
        finally:
            self._leave(host)

    def _leave(self, host: str) -> None:
        left = self._under_way[host] - 1
        if left:
            self._under_way[host] = left
        else:  # Nothing is kept of a receiver that is idle: clients name as many as they like.
            del self._under_way[host]
            self._hanging.discard(host)
