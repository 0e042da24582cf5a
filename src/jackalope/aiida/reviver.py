"""The reviver: starts the user's own broker again while a communicator has no connection to it.

Owns one thread, from a lost connection until the next one. A broker that is being killed or stopped
still listens for a moment, and one that starts may die again, so asking once is not enough: the
thread asks again, with growing waits, until the communicator is connected or closed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Protocol

from jackalope.transport.connector import Backoff

log = logging.getLogger("jackalope.aiida")

#: The longest wait between two tries, in seconds.
_WAIT_S_MAX = 2.0


class Broker(Protocol):
    """A broker that can be started."""

    def revive(self, *, is_needed: bool) -> None:
        """Start it unless it runs, or was stopped and is not needed."""


class Communicator(Protocol):
    """A communicator that uses the broker."""

    def is_closed(self) -> bool:
        """Return whether it was closed."""

    def is_connected(self) -> bool:
        """Return whether it has a connection."""

    def needs_broker(self) -> bool:
        """Return whether it cannot do without a broker."""

    def add_close_callback(self, callback: Callable[[Any, BaseException | None], Any]) -> None:
        """Have a function called each time that a connection has ended."""


class Reviver:
    """Starts a broker again for a communicator, after each lost connection."""

    def __init__(self, broker: Broker, communicator: Communicator) -> None:
        self._broker = broker
        self._communicator = communicator
        self._lock = threading.Lock()
        self._is_at_work = False
        self._woken = threading.Event()
        communicator.add_close_callback(self._on_lost)

    def _on_lost(self, _: Any, error: BaseException | None) -> None:
        """Begin, unless a thread is at work. The communicator's thread calls this."""
        self._woken.set()
        if error is None:
            return
        with self._lock:
            if self._is_at_work:
                return
            self._is_at_work = True
        threading.Thread(target=self._work, name="jackalope-revive", daemon=True).start()

    def _work(self) -> None:
        backoff, last = Backoff(cap_s=_WAIT_S_MAX), ""
        while not self._is_done():
            self._woken.clear()
            try:
                self._broker.revive(is_needed=self._communicator.needs_broker())
            except Exception as error:  # noqa: BLE001  whatever it was, it may be over next time
                if str(error) != last:
                    log.error("the broker is gone, and cannot be started: %s", error)  # noqa: TRY400
                last = str(error)
            self._woken.wait(backoff.next_s())

    def _is_done(self) -> bool:
        """Return whether nothing is left to do; a loss after that begins another thread."""
        with self._lock:
            if self._communicator.is_closed() or self._communicator.is_connected():
                self._is_at_work = False
            return not self._is_at_work
