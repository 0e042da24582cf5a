"""The writers: the threads that store turns in the journal and write history behind it.

Own when each of them writes, and how long that takes. What is written, and in which order, is the
engine's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic_ns
from typing import TypeVar

import structlog

from jackalope.broker.clock import Clock
from jackalope.broker.engine import Engine, Flush, Turn
from jackalope.broker.inbox import Bell
from jackalope.broker.telemetry.meter import Meter
from jackalope.core.durations import MILLISECOND, SECOND
from jackalope.storage import DiskFull

T = TypeVar("T")

log = structlog.get_logger(component="broker")

_SMALL_BODY_BYTES = 16 * 1024
_QUICK_DISK_US = 3 * MILLISECOND

#: How far history may be behind, in time and in tasks. A task that ends before it is written is
#: written once, not twice, and is still in memory when a client asks for its result.
_FLUSH_EVERY_US = 5 * SECOND
_FLUSH_TASKS = 50_000

#: A flush that a reader waits for begins at once, unless the last one took long: then it rests for
#: so many times as long, but no longer than this. Lists that are asked for all the time would
#: otherwise have every change written that is soon to be changed again, in many small writes.
_FLUSH_REST_TIMES = 4
_FLUSH_REST_US_MAX = 500 * MILLISECOND


class JournalWriter:
    """Stores turns: in its thread, or at once where that is quicker."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "jackalope-journal")
        self._usual_us = 0
        self._since_us = 0

    async def store(self, turn: Turn, *, is_idle: bool) -> int:
        """Make a turn durable: a small one at once, a large one while the next one gathers.

        Waking another thread and being woken again costs more than a quick disk takes for a small
        batch. On a slow disk, for a large batch, or when one turn follows the other, the loop must
        not stand still meanwhile; nor while a shared journal elects. Returns how long it took.

        Raises:
            StorageFault: it is not durable.
        """
        if not turn.body:
            self._engine.store(turn)
            return 0
        self._since_us = since_us = self._clock.steady_us()
        try:
            is_small = len(turn.body) <= _SMALL_BODY_BYTES
            is_quick = self._usual_us < _QUICK_DISK_US and not self._engine.is_shared
            if is_idle and is_small and is_quick:
                self._engine.store(turn)
                took_us = self._clock.steady_us() - since_us
            else:
                loop = asyncio.get_running_loop()
                took_us = await loop.run_in_executor(self._thread, self._store_timed, turn)
        finally:
            self._since_us = 0
        self._usual_us += (took_us - self._usual_us) // 8
        return took_us

    def _store_timed(self, turn: Turn) -> int:
        """Store a turn, and return how long that took; handing over to a thread is not the disk."""
        begin_ns = monotonic_ns()
        self._engine.store(turn)
        return (monotonic_ns() - begin_ns) // 1_000

    async def run(self, job: Callable[[], T]) -> T:
        """Do something with the journal, in its thread: one thing at a time."""
        return await self.begin(job)

    def begin(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Hand something in, to be done next in the thread of the journal."""
        return asyncio.get_running_loop().run_in_executor(self._thread, job)

    def storing_us(self) -> int:
        """Return for how long a turn has been on its way to the disk; 0 if none is."""
        return self._clock.steady_us() - self._since_us if self._since_us else 0

    def close(self) -> None:
        self._thread.shutdown()


class Flusher:
    """Writes history behind the journal: now and then, and soon where a reader waits for it."""

    def __init__(self, engine: Engine, clock: Clock, meter: Meter, wake: Bell) -> None:
        self._engine = engine
        self._clock = clock
        self._meter = meter
        self._machine = meter.machine
        self._machine.flushed = engine.history.applied()
        self._wake = wake
        self._thread = ThreadPoolExecutor(1, "jackalope-history")
        self._flush: Flush | None = None
        self._written: asyncio.Future[None] | None = None
        self._wanted: list[asyncio.Future[None]] = []
        self._awaited: list[asyncio.Future[None]] = []
        self._next_us = self._rested_us = self._since_us = 0

    async def flush(self) -> None:
        """Return when history has everything that has happened by now."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wanted.append(written)
        self._wake.ring()
        await written

    def next_us(self) -> int | None:
        """Return when to call `step` next; None if it is when the flush under way is written."""
        if self._flush is not None:
            return None
        if self._wanted:
            return self._rested_us
        has_changes = self._engine.core.book.has_changes()
        return self._next_us if has_changes else self._engine.next_forget_us

    def is_wanted(self) -> bool:
        """Return whether a reader waits for a flush that can begin now."""
        if not self._wanted or self._flush is not None:
            return False
        return self._clock.now_us() >= self._rested_us

    def step(self, now_us: int) -> bool:
        """End a flush that is written, and begin the next when it is time. Between turns.

        Returns whether the core is still the same: a full disk has it rebuilt.

        Raises:
            StorageFault: history cannot be written, for another reason than a full disk.
        """
        is_same = self._flush is None or self._end()
        is_due = now_us >= self._next_us or len(self._engine.core.book.dirty) >= _FLUSH_TASKS
        if self._flush is None and (is_due or (self._wanted and self.is_wanted())):
            self._next_us = now_us + _FLUSH_EVERY_US
            self._awaited, self._wanted = self._wanted, []
            self._begin(now_us)
        return is_same

    async def write_everything(self) -> None:
        """Return when there is nothing left to write, or nothing can be written."""
        while self._flush is not None or self._engine.core.book.has_changes():
            if self._engine.fault is not None:
                return
            if self._flush is None:
                self._begin(self._clock.now_us())
            if self._written is not None:
                await asyncio.wait([self._written])
            self.step(self._clock.now_us())

    async def drop(self) -> None:
        """Forget what was to be written, once nothing is being written."""
        if self._written is not None:
            await asyncio.wait([self._written])
        self._flush = self._written = None
        _resolve(self._awaited)

    def close(self) -> None:
        self._thread.shutdown()

    def _begin(self, now_us: int) -> None:
        flush = self._engine.begin_flush(now_us)
        if flush is None:
            _resolve(self._awaited)
            return
        self._flush, self._since_us = flush, now_us
        self._written = asyncio.get_running_loop().run_in_executor(
            self._thread, self._engine.write_flush, flush
        )
        self._written.add_done_callback(lambda _: self._wake.ring())

    def _end(self) -> bool:
        if self._flush is None or self._written is None or not self._written.done():
            return True
        flush, self._flush = self._flush, None
        self._meter.settle()  # It looks at tasks that now leave memory.
        fault = self._written.exception()
        if fault is None:
            self._engine.end_flush(flush)
            now_us = self._clock.now_us()
            took_us = now_us - self._since_us
            self._rested_us = now_us + min(_FLUSH_REST_TIMES * took_us, _FLUSH_REST_US_MAX)
            self._machine.flush.count(took_us)
            self._machine.flushed = flush.sequence
        elif isinstance(fault, DiskFull):
            log.error("history failed", fault=str(fault))
            self._machine.faults += 1
            self._engine.fail_flush(flush, fault)
        else:
            raise fault
        _resolve(self._awaited)
        return fault is None


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    """Let those who wait go on, unless they have given up."""
    for future in futures:
        if not future.done():
            future.set_result(None)
    futures.clear()
