"""The owner's own share: a thread that computes items beside the helpers.

Takes the same encoded batches as a helper does, so that an item gives the same result wherever it
is computed.
"""

from __future__ import annotations

import threading
from contextvars import copy_context

from jackalope.worker.coroutine import run_coroutine
from jackalope.worker.fanout.calculation import Part, Stopwatch
from jackalope.worker.fanout.run import Run


class LocalPeer:
    """One thread, for one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._calculation = run.calculation()
        self._wake = threading.Event()
        self._is_closed = False
        context = copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._live,), name="jackalope-fanout-local", daemon=True
        )

    def start(self) -> None:
        """Begin to take batches."""
        self._thread.start()

    def wake(self) -> None:
        """Look whether there is something to take. From any thread."""
        self._wake.set()

    def close(self) -> None:
        """Take no more. What is being computed ends by itself."""
        self._is_closed = True
        self._wake.set()

    def _live(self) -> None:
        ledger = self._run.ledger
        while not self._is_closed:
            self._wake.clear()
            batch = ledger.take(self, is_careful=True)
            if batch is None:
                self._wake.wait()
                continue
            watch = Stopwatch()
            try:
                parts = self._compute(batch.data)
            except BaseException as error:  # noqa: BLE001  the owner decides what it means
                ledger.fail(error)
                return
            busy_us = watch.us()
            for part in parts:
                values, is_last = self._run.values(part.data), part is parts[-1]
                spent_us = busy_us if is_last else 0
                ledger.answer(self, batch.number, part.begin, values, part.failed, busy_us=spent_us)

    def _compute(self, data: bytes) -> list[Part]:
        if self._calculation.is_async:
            parts: list[Part] = run_coroutine(self._calculation.run_async(data))
            return parts
        return self._calculation.run(data)
