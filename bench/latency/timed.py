"""Jackalope with marks in its client, broker and worker: the source of the stages."""

from __future__ import annotations

import signal
import sys

from bench.latency.marks import Marks
from bench.peers.jackalope import JackalopePeer

_marks = Marks()


class Timed(JackalopePeer):
    """Jackalope, slower by its marks."""

    async def open(self) -> None:
        """Place the client's marks, and start the broker with its own."""
        _marks.place("client")
        await super().open()

    def command(self, role: str) -> list[str]:
        """Return the command line with marks."""
        return [sys.executable, "-m", "bench.latency.marked", role, self.place.folder]

    async def stop(self) -> None:
        """Let every process end by itself, so that it writes its marks."""
        if self._worker is not None:
            self._worker.stop(signal.SIGTERM)
        await super().stop()
        _marks.write(self.place.path, "client")
