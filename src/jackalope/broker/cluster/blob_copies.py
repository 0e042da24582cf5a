"""Copies of blobs: the large payloads and results of the broker that a standby follows.

Owns which of them are lacking, and how they are fetched over the peer port. Which batches name them
is the standby's to say.

Theory of operation
===================

What a batch names is fetched before the batch is appended, in parts that go to the store as they
come. A blob whose connection is lost goes on where it was; one that is here is not asked for again.

What the primary cannot give just now must not keep the standby from following: it is lacking, and
is asked for again between two requests for entries. So is what a state names that was copied as a
whole. A blob whose task was forgotten meanwhile is lacking until the standby forgets the task too;
what is lacking in earnest is counted by what history and memory name.

Where both have the same bucket of S3 nothing is copied and nothing removed; the standby makes it
its own when it is promoted.
"""

from __future__ import annotations

import asyncio
from functools import partial
from time import monotonic

import msgspec
import structlog

from jackalope.broker.cluster.peer_link import PeerGone, PeerLink, PeerRefused
from jackalope.broker.service import Broker
from jackalope.core.records import NewerFormat, blobs_named, decode_batch
from jackalope.core.task import BlobRef, blobs_of
from jackalope.storage import Corrupt, Draft, StorageFault
from jackalope.storage.ports import Owned
from jackalope.wire.peer import AskBlob, BlobHead

log = structlog.get_logger(component="standby")

#: When to ask again for what the primary did not have or could not read.
_AGAIN_S = 30.0

_UNKNOWN = -1


class BlobCopies:
    """The blobs of a standby."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._store = broker.storage.blobs
        self._off_loop = broker.blobs.off_loop
        self.lacking: dict[str, float] = {}  # and when to ask for each
        self.is_shared = False  # the primary has the same store
        self._begun: tuple[str, Draft, int] | None = None  # a part of a blob, and its size
        # Nothing is removed before it is known whose store it is.
        broker.blobs.is_ours = not isinstance(self._store, Owned)

    async def meet(self, primary: str) -> None:
        """Find out whether the primary has the same store.

        Raises:
            PeerRefused: it belongs to neither, or does not answer.
        """
        store = self._store
        if not isinstance(store, Owned):
            return
        try:
            holder = await self._off_loop(store.holder)
            self.is_shared = holder == primary
            if not self.is_shared:
                await self._off_loop(store.claim)
        except StorageFault as fault:
            raise PeerRefused(str(fault)) from None
        was_ours = self._broker.blobs.is_ours
        self._broker.blobs.is_ours = not self.is_shared
        if not (was_ours or self.is_shared):
            await self.look()

    async def take_over(self, primary: str) -> None:
        """Make a store that both have this broker's own; raises `StorageFault`."""
        store = self._store
        if isinstance(store, Owned) and self.is_shared:
            await self._off_loop(lambda: store.take_over(primary))
        self._broker.blobs.is_ours = True

    async def fetch_named(self, link: PeerLink, bodies: list[bytes]) -> None:
        """Fetch what batches name and is not here.

        Raises:
            PeerGone: the connection is lost.
            DiskFull: there is no room.
        """
        if self.is_shared:
            return
        for body in bodies:
            for ref in _refs_in(body):
                if self.lacking.get(ref.blob, 0.0) <= monotonic():
                    await self._fetch(link, ref)
            await asyncio.sleep(0)

    async def fetch_lacking(self, link: PeerLink, *, is_all: bool = False) -> None:
        """Fetch one of those that are lacking, or all of them; raises as `fetch_named` does."""
        now = monotonic()
        due = [name for name, at in self.lacking.items() if is_all or at <= now]
        for name in due if is_all else due[:1]:
            if await self._is_named(name):
                await self._fetch(link, BlobRef(name, _UNKNOWN))
            else:
                del self.lacking[name]  # Its task is forgotten.

    async def look(self) -> list[str]:
        """Return what is named and not here, and ask for it from now on; raises `StorageFault`."""
        if not self._broker.blobs.is_ours:
            return []
        tasks = list(self._broker.engine.core.book.tasks.values())
        history = self._broker.engine.history

        def compare() -> list[str]:
            named = set(history.blobs()) | {blob for task in tasks for blob in blobs_of(task)}
            return sorted(named.difference(self._store.names()) if named else ())

        found = await self._off_loop(compare)
        self.lacking = {name: self.lacking.get(name, 0.0) for name in found}
        return found

    async def _is_named(self, name: str) -> bool:
        unowned = await self._off_loop(lambda: self._broker.engine.history.unowned([name]))
        return not (unowned and self._broker.engine.unnamed(unowned))

    # One blob.

    async def _fetch(self, link: PeerLink, ref: BlobRef) -> None:
        name = ref.blob
        if await self._off_loop(lambda: self._is_here(ref)):
            self.lacking.pop(name, None)
            return
        self.lacking[name] = monotonic() + _AGAIN_S  # Unless it comes.
        self._broker.blobs.hold(ref)  # No task names it yet.
        try:
            is_whole = await self._receive(link, ref)
        except (PeerRefused, Corrupt) as refused:
            log.warning("a blob cannot be copied now", blob=name, why=str(refused))
            await self._drop()
            if isinstance(refused, Corrupt):
                return  # It has a name that this store does not take.
            raise
        finally:
            self._broker.blobs.let_go(ref)
        if is_whole:
            self.lacking.pop(name, None)
        else:
            log.info("a blob is not at the primary", blob=name)

    async def _receive(self, link: PeerLink, ref: BlobRef) -> bool:
        draft, size = await self._begin(ref.blob)
        head = await link.ask(AskBlob(ref.blob, size, ref.size), BlobHead)
        if head.size < 0:
            await self._drop()
            return False
        try:
            async for part in link.parts():
                await self._off_loop(partial(draft.add, part))
                size += len(part)
                self._begun = (ref.blob, draft, size)
        except StorageFault:
            self._begun = None
            raise
        except PeerRefused:
            raise
        except PeerGone:
            self.lacking.pop(ref.blob, None)  # It goes on with the next connection.
            raise
        self._begun = None
        if size != head.size:
            await self._off_loop(draft.abort)
            raise PeerRefused(f"blob {ref.blob} came with {size} of {head.size} bytes")
        stored = await self._off_loop(draft.finish)
        if len(ref.digest) == len(stored.digest) and ref.digest != stored.digest:
            await self._off_loop(lambda: self._store.delete(ref.blob))
            raise PeerRefused(f"blob {ref.blob} is not what its task names")
        return True

    async def _begin(self, name: str) -> tuple[Draft, int]:
        """Return the draft of a blob, and how much of it is here."""
        if self._begun is not None and self._begun[0] == name:
            return self._begun[1:]
        await self._drop()
        draft = await self._off_loop(lambda: self._store.begin_copy(name))
        self._begun = (name, draft, 0)
        return draft, 0

    async def _drop(self) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            await self._off_loop(begun[1].abort)

    def _is_here(self, ref: BlobRef) -> bool:
        try:
            if ref.size < 0:
                self._store.ref(ref.blob)
            else:
                self._store.read(ref, 0, 0)
        except Corrupt:
            return False
        return True


def _refs_in(body: bytes) -> list[BlobRef]:
    """Return what a batch names; nothing if it is damaged, which shows when it is applied."""
    try:
        return blobs_named(decode_batch(body))
    except (NewerFormat, msgspec.DecodeError, RecursionError):
        return []
