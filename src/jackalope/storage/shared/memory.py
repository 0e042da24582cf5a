"""A shared log in memory: for tests, and what the simulation puts its faults around."""

from __future__ import annotations

from threading import Condition

from jackalope.core.assertions import must
from jackalope.storage.shared.log import LogState, Put

MESSAGE_BYTES_MAX = 1024 * 1024


class MemoryLog:
    """What stands in the log; every engine on it sees the same."""

    def __init__(self) -> None:
        self.messages: dict[int, bytes] = {}  # by position, in order
        self.end = 0
        self.changed = Condition()

    def start(self) -> int:
        """Return the position of the first message; the next one if there is none."""
        return next(iter(self.messages), self.end + 1)


class MemoryEngine:
    """See `jackalope.storage.shared.log.LogEngine`."""

    def __init__(
        self, log: MemoryLog | None = None, message_bytes_max: int = MESSAGE_BYTES_MAX
    ) -> None:
        self.message_bytes_max = message_bytes_max
        self._log = log or MemoryLog()
        self._is_closed = False

    def put(self, position: int, message: bytes, timeout_s: float) -> Put:
        del timeout_s
        with self._log.changed:
            if position != self._log.end + 1:
                return Put.TAKEN
            self._log.end = position
            self._log.messages[position] = message
            self._log.changed.notify_all()
        return Put.STORED

    def get(self, position: int) -> bytes | None:
        return self._log.messages.get(position)

    def read(self, after: int, count_max: int) -> list[tuple[int, bytes]]:
        first = max(after + 1, self._log.start())
        wanted = range(first, min(first + count_max, self._log.end + 1))
        messages = self._log.messages
        return [(position, messages[position]) for position in wanted if position in messages]

    def wait(self, after: int, timeout_s: float) -> bool:
        with self._log.changed:
            return self._log.changed.wait_for(
                lambda: self._log.end > after or self._is_closed, timeout_s
            )

    def start(self) -> int:
        return self._log.start()

    def end(self) -> int:
        return self._log.end

    def cut(self, through: int) -> None:
        must(through < self._log.end, "the last message stays", through, self._log.end)
        for position in range(self._log.start(), through + 1):
            del self._log.messages[position]

    def state(self) -> LogState:
        size = sum(map(len, self._log.messages.values()))
        return LogState("memory", self._log.start(), self._log.end, size, "memory")

    def close(self) -> None:
        with self._log.changed:
            self._is_closed = True
            self._log.changed.notify_all()
