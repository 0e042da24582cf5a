"""The mailbox: what executors have to say, brought to the thread of the connection.

Owns the crossing between threads. However much is put in while the loop is busy, it is woken once
and takes everything: one batch of outcomes makes one frame.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from jackalope.worker.attempt import Attempt, Outcome

Ended = tuple[Attempt, Outcome]


class Mailbox:
    """Takes words from any thread, and hands them over on one loop.

    Attributes:
        on_ended: called on the loop with every attempt that has ended since the last call.
        on_began: called on the loop with an attempt whose code is about to run.
        on_acknowledged: called on the loop with an attempt that was told to stop.
        on_progressed: called on the loop with the latest word of each attempt.
        on_rested: called on the loop with an attempt that begins to wait, or goes on.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_ended: Callable[[list[Ended]], None],
        on_began: Callable[[list[Attempt]], None],
        on_acknowledged: Callable[[Attempt], None],
        on_progressed: Callable[[dict[Attempt, tuple[float | None, str]]], None],
        *,
        on_rested: Callable[[Attempt, bool], None],
    ) -> None:
        self._loop = loop
        self._on_ended = on_ended
        self._on_began = on_began
        self._on_acknowledged = on_acknowledged
        self._on_progressed = on_progressed
        self._on_rested = on_rested
        self._ended: deque[Ended] = deque()
        self._acknowledged: deque[Attempt] = deque()
        self._rested: deque[tuple[Attempt, bool]] = deque()
        self._progress: dict[Attempt, tuple[float | None, str]] = {}
        self._progress_lock = threading.Lock()
        self._is_telling = False
        self._is_woken = False

    def began(self, attempt: Attempt) -> None:
        """Take the word that user code is about to run. From the loop's own thread."""
        self._on_began([attempt])

    def ended(self, attempt: Attempt, outcome: Outcome) -> None:
        """Take the end of an attempt."""
        self._ended.append((attempt, outcome))
        self._wake()

    def acknowledged(self, attempt: Attempt) -> None:
        """Take the word that an attempt was told to stop."""
        self._acknowledged.append(attempt)
        self._wake()

    def rested(self, attempt: Attempt, *, is_resting: bool) -> None:
        """Take the word that an attempt only waits, or no more."""
        self._rested.append((attempt, is_resting))
        self._wake()

    def progressed(self, attempt: Attempt, percent: float | None, note: str) -> None:
        """Take how far an attempt has come; a later word replaces an earlier one."""
        with self._progress_lock:
            is_first = not self._is_telling
            self._is_telling = True
            self._progress[attempt] = (percent, note)
        if is_first:
            self._call(self._progress_later)

    def _wake(self) -> None:
        # Whoever puts something in does so before it looks at the flag, and the loop takes the flag
        # down before it looks inside: at worst the loop is woken for nothing, never left asleep.
        if not self._is_woken:
            self._is_woken = True
            self._call(self._empty)

    def _call(self, callback: Callable[[], None]) -> None:
        # A closed loop means that the worker has left: nobody waits for this any more.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)

    def _empty(self) -> None:
        self._is_woken = False
        while self._acknowledged:
            self._on_acknowledged(self._acknowledged.popleft())
        while self._rested:
            self._on_rested(*self._rested.popleft())
        ended: list[Ended] = []
        while self._ended:
            ended.append(self._ended.popleft())
        if ended:
            if self._progress:
                self._tell_last_progress(ended)
            self._on_ended(ended)

    def _progress_later(self) -> None:
        self._loop.call_later(_PROGRESS_EVERY_S, self._tell_progress)

    def _tell_last_progress(self, ended: list[Ended]) -> None:
        """Report what attempts said last before their ends, which would overtake it."""
        with self._progress_lock:
            last = {
                attempt: self._progress.pop(attempt)
                for attempt, _ in ended
                if attempt in self._progress
            }
        if last:
            self._on_progressed(last)

    def _tell_progress(self) -> None:
        with self._progress_lock:
            progress, self._progress = self._progress, {}
            self._is_telling = False
        self._on_progressed(progress)


#: A task may report its progress in every turn of a tight loop; the broker hears it this often.
_PROGRESS_EVERY_S = 0.05
