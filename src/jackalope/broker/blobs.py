"""The blob manager: the blob store of a running broker.

Owns the threads that read and write blobs, the blobs that no task names yet, the removal of those
that no task names any more, and what is asked of the core for a task whose payload cannot be read.
Knows nothing of doors.

Theory of operation
===================

A blob belongs to what names it. In the order of time that is:

1. the upload that writes it, and then the request that hands it to the core: it is held, from its
   first byte until `HOLD_S` after its last, far longer than a command waits for its turn;
2. a task in memory;
3. a row in history, which a flush writes from memory; or none ever, if the task is volatile.

A dead letter goes back from the third to the second. So a blob that is not held, that no task in
memory names, and that history does not know after a flush, has no owner and never will: a crash, a
refused submit or a failed delete left it behind. The sweep looks for such blobs in the background,
a slice at a time, right after the start and then every `SWEEP_EVERY_S`.

Deleting happens later and is tried again until it works, so that a store that is out of reach
neither slows nor stops the broker. What is not deleted before the broker ends is swept by the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from threading import Lock
from time import monotonic
from typing import TypeVar

import structlog

from jackalope.core.commands import Fail, FailAttempts, Held, ReleaseAttempts, Verdict
from jackalope.core.durations import SECOND
from jackalope.core.effects import Assignment
from jackalope.core.refusals import Code, Refusal
from jackalope.core.task import BlobRef, Body, Error
from jackalope.storage import Blobs, Draft, History, OutOfReach, StorageFault

T = TypeVar("T")

log = structlog.get_logger(component="blobs")

#: How long a blob is kept for the client that wrote it, after its last byte.
HOLD_S = 120.0
#: How often holds that are over are forgotten.
FORGET_HOLDS_S = 30.0

#: How long one is kept whose writer gave up: a command that names it may still be in the inbox.
DOUBT_S = 60.0

SWEEP_EVERY_S = 3600.0
SWEEP_NAMES = 1_000

#: When to try again to delete what could not be deleted.
DELETE_AGAIN_S = 30.0
#: How many deletes are remembered; what is beyond is left to the sweep.
DELETES_MAX = 100_000

_THREADS = 8
_DELETES_AT_ONCE = 100
_FULL_RETRY_US = 5 * SECOND
#: How the names of a blob and of its draft begin.
_ID_CHARS = 32


class BlobKeeper(Blobs):
    """A blob store that tracks uploads in flight. See `jackalope.storage.ports.Blobs`."""

    def __init__(
        self,
        store: Blobs,
        history: History,
        flush: Callable[[], Awaitable[None]],
        unnamed: Callable[[Iterable[str]], list[str]],
    ) -> None:
        """Manage the blobs of a broker.

        `flush` returns when history is up to date. `unnamed` returns those of some blobs that no
        task in memory names; none while memory and history cannot be relied on.
        """
        self._store = store
        self._history = history
        self._flush = flush
        self._unnamed = unnamed
        self.doubt_s = DOUBT_S  # how long a blob is kept whose writer gave up
        self.drafts_max = store.drafts_max
        self.links = store.links
        self._threads = ThreadPoolExecutor(_THREADS, "jackalope-blobs")
        self._flight = Flight()
        self._doubted: dict[str, float] = {}
        self._leaving: dict[str, None] = {}
        self._deleting = asyncio.Event()
        self._doubting = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._is_reachable = True
        self.is_ours = True  # whether this broker may delete; another node's tasks name them too

    # The port.

    def begin(self) -> HeldDraft:
        """Begin to write a blob. It is held until some time after its last byte."""
        return HeldDraft(self._store.begin(), self._flight)

    def read(self, ref: BlobRef, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        return self._store.read(ref, offset, length)

    def delete(self, name: str) -> None:
        """Delete a blob in the background. Never fails; call it from the loop."""
        if self._flight.is_shared(name):
            self._doubt(name)
            return
        if not self.is_ours:
            return  # The node that leads does, or its sweep.
        if len(self._leaving) < DELETES_MAX:
            self._leaving[name] = None
        self._deleting.set()

    def names(self) -> Iterator[str]:
        return self._store.names()

    def clear(self) -> int:
        return self._store.clear()

    def close(self) -> None:
        """No-op: the store is closed with the storage."""

    # For the doors.

    async def off_loop(self, work: Callable[[], T]) -> T:
        """Run work on the store in one of its threads."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def load(self, body: Body) -> bytes:
        """Return a body as bytes, inline or from the store."""
        if isinstance(body, bytes):
            return body
        return await self.off_loop(lambda: b"".join(self.read(body)))

    async def begin_off_loop(self) -> HeldDraft:
        """Begin to write a blob. Cancelling the caller leaves nothing behind."""
        return await self._off_loop_or(self.begin, self.abandon)

    async def finish_off_loop(self, draft: Draft) -> BlobRef:
        """Finish a draft. Cancelling the caller leaves nothing behind."""
        return await self._off_loop_or(draft.finish, lambda ref: self.delete(ref.blob))

    async def _off_loop_or(self, work: Callable[[], T], undo: Callable[[T], None]) -> T:
        """Run work off the loop, and undo it if the caller is cancelled."""
        working = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            working.add_done_callback(lambda done: _undo(done, undo))
            raise

    def admit(self) -> Refusal | None:
        """Refuse an upload while too many are open."""
        drafts = self.draft_count()
        if drafts < self.drafts_max:
            return None
        message = f"{drafts} large bodies are being uploaded; try again a little later"
        return Refusal(Code.OVERLOADED, message, _FULL_RETRY_US)

    def draft_count(self) -> int:
        return len(self._flight.writing)

    def leaving_count(self) -> int:
        """Return how many blobs wait for deletion."""
        return len(self._leaving)

    def abandon(self, draft: Draft) -> None:
        """Abort a draft after its current write. Returns at once."""
        with suppress(RuntimeError):  # The threads have ended: what is left is cleared next time.
            self._threads.submit(draft.abort)

    def is_leaving(self, name: str) -> bool:
        return name in self._leaving

    def hold(self, ref: BlobRef) -> None:
        """Hold a blob that waits for a request to name it. It counts as an open upload."""
        self._flight.begin(ref.blob)

    def let_go(self, ref: BlobRef) -> None:
        """Hold a blob for a limited time: a request names it, or none ever will."""
        self._flight.finish(ref.blob)

    @contextmanager
    def holding(self, name: str) -> Iterator[None]:
        """Hold a blob that arrives by another way, and for a while after.

        A task may have named and released it just now: it is not deleted meanwhile.
        """
        self._flight.begin(name, is_shared=True)
        try:
            yield
        finally:
            self._flight.finish(name)

    def doubt(self, ref: BlobRef) -> None:
        """Delete a blob after a while unless a task names it: its writer was interrupted."""
        self._doubt(ref.blob)

    def _doubt(self, name: str) -> None:
        self._doubted[name] = monotonic() + self.doubt_s
        self._doubting.set()

    def leave(self) -> None:
        """Delete nothing from now on: another node leads."""
        self.is_ours = False
        self._leaving.clear()
        self._doubted.clear()

    # Life.

    def start(self) -> None:
        for work in (self._delete_on(), self._sweep_on()):
            self._tasks.append(asyncio.create_task(work, name="jackalope-blobs"))

    async def stop(self) -> None:
        """Delete what is pending, if the store responds, and end the threads."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._is_reachable:
            await self._delete_some(list(self._leaving))
        self._threads.shutdown()

    async def sweep(self) -> int:
        """Delete every unowned blob in the background, and return how many."""
        if not self.is_ours:
            return 0
        removed = await self.off_loop(self._store.clear)
        names = self._store.names()
        while some := await self.off_loop(lambda: list(islice(names, SWEEP_NAMES))):
            removed += await self._remove_unnamed(some)
        return removed

    # The work.

    async def _sweep_on(self) -> None:
        next_sweep_s = monotonic()
        while True:
            try:
                if monotonic() >= next_sweep_s:
                    next_sweep_s = monotonic() + SWEEP_EVERY_S
                    if swept := await self.sweep():
                        log.info("unreferenced blobs removed", count=swept)
                await self._remove_doubted()
            except StorageFault as fault:
                log.warning("blobs not swept", fault=str(fault))
            self._flight.forget()
            until_s = min([next_sweep_s, monotonic() + FORGET_HOLDS_S, *self._doubted.values()])
            with suppress(TimeoutError):
                await asyncio.wait_for(self._doubting.wait(), max(0, until_s - monotonic()))
            self._doubting.clear()

    async def _remove_doubted(self) -> None:
        due = [name for name, at in self._doubted.items() if at <= monotonic()]
        for name in due:
            del self._doubted[name]
            self._flight.drop(name)
        if due:
            await self._remove_unnamed(due)

    async def _remove_unnamed(self, names: list[str]) -> int:
        """Delete those of the blobs that have no owner.

        The order matters: owners are looked up in the order in which a blob passes between them, so
        that none is missed that changes hands meanwhile; and memory once more at the end, as a dead
        letter may have its blob from a row.
        """
        unknown = await self.off_loop(lambda: self._history.unowned(names))
        suspects = self._unnamed(name for name in unknown if not self._flight.has(name))
        if not suspects:
            return 0
        await self._flush()
        unnamed = self._unnamed(await self.off_loop(lambda: self._history.unowned(suspects)))
        for name in unnamed:
            self.delete(name)
        return len(unnamed)

    async def _delete_on(self) -> None:
        while True:
            await self._deleting.wait()
            self._deleting.clear()
            while self._leaving and await self._delete_some(
                list(islice(self._leaving, _DELETES_AT_ONCE))
            ):
                pass
            if self._leaving:
                await asyncio.sleep(DELETE_AGAIN_S)
                self._deleting.set()

    async def _delete_some(self, names: list[str]) -> bool:
        """Delete blobs, and return whether the store deleted them."""
        deleted, fault = await self.off_loop(lambda: _delete_all(self._store, names))
        for name in deleted:
            self._leaving.pop(name, None)
        if fault is not None and self._is_reachable:
            log.warning(
                "blob deletion failed; trying again later",
                count=len(self._leaving),
                fault=str(fault),
            )
        self._is_reachable = fault is None
        return self._is_reachable


class Flight:
    """The blobs that no task names yet. Used from any thread."""

    def __init__(self) -> None:
        self.writing: set[str] = set()  # the ids of those that are being written
        self._held: dict[str, float] = {}
        self._shared: set[str] = set()

    def begin(self, name: str, *, is_shared: bool = False) -> None:
        """Hold a blob from now on. A shared one may already belong to a task."""
        self.writing.add(name[:_ID_CHARS])
        if is_shared:
            self._shared.add(name[:_ID_CHARS])

    def is_shared(self, name: str) -> bool:
        return name[:_ID_CHARS] in self._shared

    def finish(self, name: str) -> None:
        """Hold a written blob for a limited time."""
        # In this order: it must not be missing in between.
        self._held[name[:_ID_CHARS]] = monotonic() + HOLD_S
        self.writing.discard(name[:_ID_CHARS])

    def drop(self, name: str) -> None:
        self.writing.discard(name[:_ID_CHARS])
        self._held.pop(name[:_ID_CHARS], None)
        self._shared.discard(name[:_ID_CHARS])

    def has(self, name: str) -> bool:
        name = name[:_ID_CHARS]
        return name in self.writing or self._held.get(name, 0.0) > monotonic()

    def forget(self) -> None:
        """Remove expired holds."""
        now = monotonic()
        for name, until in list(self._held.items()):
            if until <= now:
                self._held.pop(name, None)
                self._shared.discard(name)


class HeldDraft(Draft):
    """A draft whose blob is held, and that may be aborted while another thread writes to it."""

    def __init__(self, draft: Draft, flight: Flight) -> None:
        self.id = draft.id
        self._draft = draft
        self._flight = flight
        self._lock = Lock()
        self._is_ended = False
        flight.begin(self.id)

    def add(self, chunk: bytes) -> None:
        with self._lock:
            self._refuse_ended()
            try:
                self._draft.add(chunk)
            except BaseException:
                self._end()
                raise

    def finish(self) -> BlobRef:
        with self._lock:
            self._refuse_ended()
            try:
                ref = self._draft.finish()
            except BaseException:
                self._end()
                raise
            self._is_ended = True
            self._flight.finish(self.id)
            return ref

    def abort(self) -> None:
        with self._lock:
            if not self._is_ended:
                self._draft.abort()
                self._end()

    def _refuse_ended(self) -> None:
        if self._is_ended:
            raise StorageFault("the upload was aborted")

    def _end(self) -> None:
        self._is_ended = True
        self._flight.drop(self.id)


def _undo(done: asyncio.Future[T], undo: Callable[[T], None]) -> None:
    if not done.cancelled() and done.exception() is None:
        undo(done.result())


def _delete_all(store: Blobs, names: Iterable[str]) -> tuple[list[str], StorageFault | None]:
    """Delete blobs, and return the deleted ones and the last error."""
    deleted: list[str] = []
    last: StorageFault | None = None
    for name in names:
        try:
            store.delete(name)
        except OutOfReach as fault:
            return deleted, fault
        except StorageFault as fault:
            last = fault  # Of this one; the others may go.
        else:
            deleted.append(name)
    return deleted, last


# A task whose payload cannot be read.

#: How long to wait before asking a store again that did not answer.
STORE_AWAY_US = 5 * SECOND


def without_payload(
    session: int, given: Assignment, fault: StorageFault
) -> ReleaseAttempts | FailAttempts:
    """Return the command for an attempt whose payload cannot be sent to its worker.

    While the store is unreachable the attempt is released for a while, which frees the slot and
    does not count as a failure. If the payload is lost, a retry would not help.
    """
    if isinstance(fault, OutOfReach):
        held = Held(given.task, given.fence)
        return ReleaseAttempts(session=session, attempts=[held], after_us=STORE_AWAY_US)
    failure = Fail(given.task, given.fence, Error("PayloadLost", str(fault)), Verdict.DEAD)
    return FailAttempts(session=session, attempts=[failure])
