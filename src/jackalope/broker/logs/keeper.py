"""The keeper of task logs: takes lines of attempts, bounds them, and writes them behind.

Owns which lines are taken, and what waits to be written. Logs are no decisions: nothing of this
passes through the core or its journal, and a broker that cannot keep lines goes on without.

Lines are taken for an attempt that the sender's session has the lease on, or had a moment ago. Each
attempt has a rate and a size, the broker has a size, whatever the client does. Of too many lines
the newest are kept; what is dropped shows in the numbers of the lines, and is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import msgspec
import structlog

from jackalope.broker.config.task_logs import TaskLogsConfig
from jackalope.broker.engine import Engine
from jackalope.broker.logs.copies import LogCopies
from jackalope.broker.logs.limits import (
    ATTEMPTS_LOST_MAX,
    BURST_S,
    FOLLOWERS_MAX,
    LATE_US,
    MEMORY_BYTES_MAX,
    PENDING_BYTES_MAX,
    TASKS_PER_LOOK,
    TEND_EVERY_S,
    WRITE_EVERY_S,
)
from jackalope.core.durations import SECOND
from jackalope.core.ids import TaskId
from jackalope.core.limits import COUNT_MAX, LOG_LINES_PER_FRAME_MAX, NAME_CHARS_MAX, TIME_US_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.task_log import AttemptLogView, LogLine, LogLineView, LogsKept
from jackalope.core.task import lease_of
from jackalope.storage import Storage, StorageFault
from jackalope.storage.sqlite.task_logs import Slice, Wanted, line_bytes

if TYPE_CHECKING:
    from jackalope.broker.cluster.peers import Peers

T = TypeVar("T")
Told = Callable[[LogsKept], None]

log = structlog.get_logger(component="broker")


class LogCounts(msgspec.Struct):
    """How much was logged since the broker started."""

    lines: int = 0  # kept
    bytes: int = 0
    dropped: int = 0  # because of a limit, or because they could not be stored
    stale: int = 0  # of attempts that the sender does not run


class _Source(msgspec.Struct):
    """An attempt that has sent lines."""

    task: TaskId
    attempt: int
    held_us: int  # when its sender was last known to have the lease
    lines: float  # how many it may send now
    bytes: float
    at_us: int  # when that was so


class LogKeeper:
    """Keeps what tasks print and log."""

    def __init__(
        self,
        storage: Storage,
        engine: Engine,
        settings: TaskLogsConfig | None,
        free_bytes_min: int,
        now_us: Callable[[], int],
    ) -> None:
        self.settings = settings = settings or TaskLogsConfig()
        self.counts = LogCounts()
        self.copies: LogCopies | None = None  # at the other members of a cluster
        self._store = storage.logs
        self._storage = storage
        self._engine = engine
        self._free_bytes_min = 2 * free_bytes_min  # Logs stop first.
        self._now_us = now_us
        self._sources: dict[tuple[str, str, int], _Source] = {}
        # what waits to be written: whom to tell, and whether it came from another member
        self._pending: list[tuple[Slice, Told | None, bool]] = []
        self._pending_bytes = 0
        self._wake = asyncio.Event()
        self._flushed: list[asyncio.Future[None]] = []
        self._followers: dict[TaskId, list[asyncio.Future[None]]] = {}
        self._waiting = 0
        self._looked = b""  # the task through which they were looked for
        self._fault = ""  # why the last lines could not be stored
        # what was dropped because of that: the number of the last line of each attempt
        self._lost: dict[tuple[TaskId, int], Slice] = {}
        self._threads = ThreadPoolExecutor(2, "jackalope-logs")
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def stored_bytes(self) -> int:
        """The size of all lines that are kept."""
        return self._store.bytes

    @property
    def trouble(self) -> str:
        """Why lines are dropped, or in memory alone, just now; nothing if all is well."""
        return self._fault or self._store.trouble

    def start(self, peers: Callable[[], Peers | None]) -> None:
        """Begin to take lines, and to send copies to the members of the cluster, if it is one."""
        self.copies = LogCopies(peers, self._store)
        if self._store.bytes:
            self._work()

    def _work(self) -> None:
        """Begin to write and to remove: a broker whose tasks print nothing does neither."""
        if self.copies is not None and not self._tasks:
            self._tasks = [
                asyncio.create_task(self.copies.run(), name="jackalope-logs-copies"),
                asyncio.create_task(self._write_on(), name="jackalope-logs"),
                asyncio.create_task(self._tend(), name="jackalope-logs-tending"),
            ]

    async def stop(self) -> None:
        """Write what waits, and end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._pending:
            await self._write()
        self._threads.shutdown()

    # Taking.

    def take(
        self,
        session: int,
        held: tuple[TaskId, int],
        lines: list[LogLine],
        last: int,
        told: Told | None,
    ) -> Refusal | None:
        """Take lines of an attempt, or refuse all of them.

        `told` is called when they are stored, with how many of them are kept.
        """
        refusal = _refuse_bad(lines, last)
        if refusal is not None or not self.settings.enabled:
            return refusal or Refusal(Code.INVALID, "this broker keeps no task logs")
        task, fence = held
        worker = self._engine.core.roster.sessions.get(session)
        if worker is None:
            return Refusal(Code.UNKNOWN_SESSION, "join before sending lines of tasks")
        now_us = self._now_us()
        namespace = worker.namespace.name
        key = (namespace, worker.id, fence)
        source, leased = self._sources.get(key), worker.held.get(task)
        if leased is not None and lease_of(leased).fence == fence:
            if source is None:
                burst = BURST_S * self.settings.lines_per_s, BURST_S * self.settings.bytes_per_s
                source = _Source(task, leased.attempts, now_us, *burst, now_us)
                self._sources[key] = source
            source.held_us = now_us
        elif source is None or source.task != task or now_us - source.held_us > LATE_US:
            self.counts.stale += len(lines)
            message = f"fence {fence} is not the current lease of task {task.hex()}"
            return Refusal(Code.STALE_FENCE, f"{message}; its lines are not kept")
        kept = self._within_rate(source, lines, now_us)
        self.counts.dropped += len(lines) - len(kept)
        numbers = (line.number for line in lines)
        piece = Slice(task, fence, source.attempt, namespace, kept, max(last, *numbers, 0), now_us)
        self._put(piece, told, len(lines) - len(kept))
        return None

    def _within_rate(self, source: _Source, lines: list[LogLine], now_us: int) -> list[LogLine]:
        """Return the newest lines that an attempt may send now, none of them too long."""
        settings, passed_s = self.settings, max(0, now_us - source.at_us) / SECOND
        rate, bytes_rate = settings.lines_per_s, settings.bytes_per_s
        source.lines = min(BURST_S * rate, source.lines + passed_s * rate)
        source.bytes = min(BURST_S * bytes_rate, source.bytes + passed_s * bytes_rate)
        source.at_us = now_us
        room = PENDING_BYTES_MAX - self._pending_bytes
        kept: list[LogLine] = []
        for given in reversed(lines):
            line = _cut(given, settings.line_bytes_max)
            size = line_bytes(line)
            if source.lines < 1 or source.bytes < size or room < size:
                break
            source.lines -= 1
            source.bytes -= size
            room -= size
            kept.append(line)
        kept.reverse()
        return kept

    def _put(self, piece: Slice, told: Told | None, dropped: int, *, is_copy: bool = False) -> None:
        def count(kept: LogsKept) -> None:
            if told is not None:
                told(LogsKept(kept.kept, kept.dropped + dropped))

        self._pending.append((piece, None if told is None else count, is_copy))
        self._pending_bytes += sum(map(line_bytes, piece.lines))
        self._work()
        self._wake.set()

    async def adopt(self, slices: list[Slice]) -> None:
        """Store lines that another member has taken."""
        for piece in slices:
            self._put(piece, None, 0, is_copy=True)
        await self.flush()

    # Writing.

    async def _write_on(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(0 if self._flushed else WRITE_EVERY_S)
            await self._write()

    async def _write(self) -> None:
        self._wake.clear()
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        flushed, self._flushed = self._flushed, []
        slices = [piece for piece, *_ in pending]
        if self.copies is not None:
            await self.copies.send([piece for piece, _, is_copy in pending if not is_copy])
        lost = list(self._lost.values())
        try:
            done = await self.off_loop(lambda: self._store_all([*lost, *slices]))
        except StorageFault as fault:
            self._fail(str(fault), slices)
            done = [(0, 0)] * len(slices)
        else:
            done = done[len(lost) :]
            self._recover()
        for (piece, told, _), (new, pushed) in zip(pending, done, strict=True):
            size = sum(map(line_bytes, piece.lines)) if new else 0
            self.counts.lines += new
            self.counts.bytes += size
            self.counts.dropped += pushed
            if told is not None:
                told(LogsKept(len(piece.lines) if new else 0, 0 if new else len(piece.lines)))
        for each in flushed:
            _settle(each)
        for task in {piece.task for piece in slices}:
            for each in self._followers.pop(task, ()):
                _settle(each)

    def _store_all(self, slices: list[Slice]) -> list[tuple[int, int]]:
        """Store lines, in a thread of the keeper."""
        room = self._storage.room_bytes() if self._free_bytes_min else None
        if room is not None and room < self._free_bytes_min:
            raise StorageFault(f"free disk space is {room} bytes, less than {self._free_bytes_min}")
        settings = self.settings
        bytes_max = settings.bytes_max
        if self._store.is_in_memory:
            bytes_max = min(bytes_max, MEMORY_BYTES_MAX)
        return self._store.write(
            slices, attempt_bytes_max=settings.attempt_bytes_max, bytes_max=bytes_max
        )

    def _fail(self, why: str, slices: list[Slice]) -> None:
        for piece in slices:
            self.counts.dropped += len(piece.lines)
            lost = self._lost.pop((piece.task, piece.fence), piece)
            last = max(lost.last, piece.last)
            piece = msgspec.structs.replace(piece, lines=[], last=last)  # noqa: PLW2901
            self._lost[piece.task, piece.fence] = piece
        while len(self._lost) > ATTEMPTS_LOST_MAX:
            del self._lost[next(iter(self._lost))]
        if not self._fault:
            log.warning("task logs cannot be stored; tasks go on without", fault=why)
        self._fault = why

    def _recover(self) -> None:
        self._lost.clear()
        if self._fault:
            self._fault = ""
            log.info("task logs are stored again", dropped=self.counts.dropped)

    async def flush(self) -> None:
        """Return when everything that was taken by now is stored."""
        if self._pending and self._tasks:
            flushed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._flushed.append(flushed)
            self._wake.set()
            await flushed

    async def off_loop(self, job: Callable[[], T]) -> T:
        """Do something with the store, in a thread of the keeper."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, job)

    # Reading.

    async def read(
        self, task: TaskId, wanted: Wanted
    ) -> tuple[list[AttemptLogView], list[LogLineView]]:
        """Return what is kept of each attempt of a task, and the lines that are wanted."""
        await self.flush()
        return await self.off_loop(
            lambda: (self._store.attempts(task), self._store.read(task, wanted))
        )

    def missing(self, attempts: list[AttemptLogView]) -> str:
        """Return why lines may be missing here; nothing if none are known to be."""
        away = [] if self.copies is None else self.copies.unreachable()
        if not away or not any(each.dropped for each in attempts):
            return ""
        return f"some lines may be on {', '.join(away)} alone, which cannot be reached"

    async def changed(self, task: TaskId, within_s: float) -> None:
        """Return when a task has new lines, or after a time."""
        if self._waiting >= FOLLOWERS_MAX:
            await asyncio.sleep(min(1.0, within_s))
            return
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._followers.setdefault(task, []).append(changed)
        self._waiting += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await changed
        finally:
            self._waiting -= 1
            waiting = self._followers.get(task)
            if waiting is not None and changed in waiting:
                waiting.remove(changed)
                if not waiting:
                    del self._followers[task]

    # Removing.

    async def _tend(self) -> None:
        """Remove what is too old, and what belongs to tasks that are gone."""
        while True:
            await asyncio.sleep(TEND_EVERY_S)
            late_us = self._now_us() - LATE_US
            self._sources = {
                key: source for key, source in self._sources.items() if source.held_us > late_us
            }
            try:
                while await self.off_loop(self._forget_old):
                    pass
                await self.forget_tasks()
            except StorageFault as fault:
                log.warning("task logs cannot be removed", fault=str(fault))

    def _forget_old(self) -> int:
        return self._store.forget(self._now_us() - self.settings.retention_us)

    async def forget_tasks(self) -> None:
        """Remove the lines of tasks that are gone, of some tasks each time."""
        looked = self._looked
        found = await self.off_loop(lambda: self._store.tasks(looked, TASKS_PER_LOOK))
        self._looked = found[-1][1] if len(found) == TASKS_PER_LOOK else b""
        engine = self._engine
        gone = [task for namespace, task in found if engine.find(namespace, task) is None]
        if gone:
            await self.off_loop(lambda: self._store.remove_tasks(gone))


def _refuse_bad(lines: list[LogLine], last: int) -> Refusal | None:
    problems = []
    if len(lines) > LOG_LINES_PER_FRAME_MAX:
        problems.append(f"lines: {len(lines)}; at most {LOG_LINES_PER_FRAME_MAX} at once")
    if not 0 <= last <= COUNT_MAX or any(not 0 <= line.number <= COUNT_MAX for line in lines):
        problems.append(f"number, last: must be 0 to {COUNT_MAX}")
    if any(not 0 <= line.at_us <= TIME_US_MAX for line in lines):
        problems.append(f"at_us: must be 0 to {TIME_US_MAX}")
    return Refusal(Code.INVALID, f"logs: {'; '.join(problems)}") if problems else None


def _cut(line: LogLine, bytes_max: int) -> LogLine:
    """Return a line that is not too long, and has no end of line in it."""
    text, logger = line.text, line.logger
    if len(text) * 4 > bytes_max and len(data := text.encode()) > bytes_max:
        kept = data[:bytes_max].decode(errors="ignore")
        text = f"{kept} … [{len(data) - bytes_max} bytes more]"
    if "\n" in text:
        text = text.replace("\n", "\\n")
    if text is line.text and len(logger) <= NAME_CHARS_MAX:
        return line
    return msgspec.structs.replace(line, text=text, logger=logger[:NAME_CHARS_MAX])


def _settle(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
