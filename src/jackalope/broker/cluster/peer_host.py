"""What a node tells other nodes, a standby and the command line about itself.

Answers questions and decides nothing. Who may ask is checked by `doors/peer` before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from jackalope import __version__
from jackalope.broker.clock import wall_us
from jackalope.broker.cluster.leadership import Role
from jackalope.broker.cluster.node import Node
from jackalope.broker.cluster.peer_link import PeerGone, PeerRefused
from jackalope.broker.cluster.primary import Primary
from jackalope.broker.cluster.standby import Standby
from jackalope.broker.logs.copies import decode_slices
from jackalope.broker.service import Broker
from jackalope.core.records import LEVEL
from jackalope.core.task import BlobRef
from jackalope.storage import Corrupt, StorageFault
from jackalope.storage.entry import NO_DIGEST
from jackalope.storage.ports import Followed
from jackalope.storage.segments.journal import SegmentJournal, Survey
from jackalope.storage.shared.copies import compare_copies
from jackalope.storage.shared.journal import SharedJournal
from jackalope.storage.snapshots import copy_path, drop_copies
from jackalope.wire.peer import (
    ENTRIES_BYTES_MAX,
    AskBlob,
    AskClear,
    AskEntries,
    AskFence,
    AskVerify,
    BlobHead,
    Compared,
    CopyFound,
    EntriesHead,
    Fenced,
    NodeStatus,
    Promoted,
    SnapshotHead,
    Verified,
)

T = TypeVar("T")

#: What a broker is that has no others.
ALONE = "alone"

_LEVEL_MIN = 1

_NOT_FENCED = "it is a standby itself: promote that one, or stop it first"

#: How long history may take to have what memory has before it is copied, how many copies are lent
#: at once, and how much of one is read at a time.
_FLUSH_S = 30.0
_COPIES_MAX = 2
_CHUNK_BYTES = 1024 * 1024

#: How often a journal is read again whose files were trimmed meanwhile.
_READS_MAX = 3
_READ_AGAIN_S = 0.2


class PeerHost:
    """Answers for a node, or for a broker that is alone."""

    def __init__(self, broker: Broker, cluster: str, name: str, node: Node | None = None) -> None:
        self.ports = (0, 0)  # of the native and the HTTP door
        self.pair: Primary | Standby | None = None  # a broker that is alone may have a standby
        self.cluster = cluster
        self.node = name
        self._broker = broker
        if broker.storage.home is not None:
            drop_copies(broker.storage.home)
        self._copying = asyncio.Semaphore(_COPIES_MAX)
        self._node = node

    async def step_down(self, to: str) -> None:
        """Let another node lead; raises `ValueError` if this one does not."""
        self._leading().step_down(to)

    async def raise_level(self, level: int) -> None:
        """Make records of a higher level; raises `ValueError` if a member does not read it."""
        await self._leading().raise_level(level)

    def _leading(self) -> Node:
        node = self._node
        if node is None or node.elsewhere("") is not None:
            raise ValueError("this node does not lead")
        return node

    async def compare(self) -> Compared:
        """Tell the digest of the whole state; raises `ValueError` if this node does not lead."""
        node = self._leading()
        slices = await node.comparison.go_round(self._broker)
        return Compared(slices, node.position())

    async def verify(self, asked: AskVerify) -> Verified:
        """Read this node's copy of the log, and every copy of the shared one if that is asked.

        Raises:
            PeerRefused: it has none.
            StorageFault: they cannot be read.
        """
        journal, node = self._broker.storage.journal, self._node
        if not isinstance(journal, SegmentJournal | SharedJournal):
            raise PeerRefused("the journal of this broker is not kept in segments")
        found = Survey(1, 0, NO_DIGEST, 0)
        if asked.is_whole:
            found = await _while_files_move(journal.survey)
            if found.problem:  # Or a file that was read has been used again meanwhile.
                found = await _while_files_move(journal.survey)
        digest: bytes | None = None
        if asked.at and not found.problem:
            digest = await _while_files_move(lambda: journal.digest_at(asked.at))
        copies: list[CopyFound] = []
        if asked.has_copies and isinstance(journal, SharedJournal):
            read = await asyncio.to_thread(compare_copies, journal.log)
            copies = [CopyFound(*each) for each in read]
        about = None if node is None else node.comparison
        return Verified(
            found.first,
            found.last,
            digest or b"",
            found.problem,
            0 if about is None else about.compared,
            0 if about is None else about.diverged,
            "" if about is None else about.differs,
            tuple(copies),
        )

    def clear(self, asked: AskClear) -> None:
        """Doubt what was found sound no more."""
        if self._node is not None:
            self._node.doubt.suspects -= set(asked.copies)
            if asked.state:
                self._node.comparison.is_doubted = False

    def status(self) -> NodeStatus:
        engine, node = self._broker.engine, self._node
        told = None if node is None else node.status()
        standing = None if self.pair is None else self.pair.standing()
        alone = ALONE if standing is None or standing.role == Role.LEADING else standing.role
        return NodeStatus(
            node=self.node,
            cluster=self.cluster,
            version=__version__,
            level_min=_LEVEL_MIN,
            level_max=LEVEL,
            role=alone if told is None else str(told.role),
            epoch=engine.epoch if told is None else told.epoch,
            leader=self.node if told is None else told.leader,
            applied=engine.sequence,
            mirrored=engine.sequence if node is None else node.mirrored(),
            flushed=engine.history.applied(),
            durable=engine.durable(),
            log_start=0,
            log_end=0 if node is None else node.position(),
            at_us=wall_us(),
            why="" if told is None else told.why,
            level=engine.core.level if node is None else node.level(),
            log=None if node is None else node.log_health,
            trimmed=self._broker.storage.journal.trimmed(),
            native=self.ports[0],
            http=self.ports[1],
            standby=None if standing is None else standing.standby,
            wrong=() if node is None else tuple(sorted(node.doubt.suspects)),
            diverged=node.comparison.differs if node and node.comparison.is_doubted else "",
            withdrawn=self._broker.access.withdrawn.told(),
        )

    async def fence(self, by: str, *, is_member: bool) -> Fenced:
        """Let a broker that is alone, or all nodes of a cluster, acknowledge nothing any more.

        A node that does not lead asks the one that does, unless another node asks.

        Raises:
            PeerRefused: it is a standby, or no node leads.
        """
        node = self._node
        if node is None:
            if self.pair is None or not self.pair.leads():
                raise PeerRefused(_NOT_FENCED)
            return Fenced(await self.pair.fence(by))
        if is_member or node.view.role in {Role.LEADING, Role.FENCED}:
            try:
                return Fenced(await node.fence(by))
            except ValueError as error:
                raise PeerRefused(str(error)) from None
        return await self._fence_leader(node.view.leader, by)

    async def _fence_leader(self, leader: str, by: str) -> Fenced:
        peers = self._broker.peers
        if not leader or peers is None:
            raise PeerRefused("no node of the cluster leads")
        try:
            link = await peers.connect(leader)
            try:
                return await link.ask(AskFence(by), Fenced)
            finally:
                await link.leave()
        except PeerGone as gone:
            raise PeerRefused(f"{leader} leads, and does not answer: {gone}") from None

    async def promote(self) -> Promoted:
        """Let a standby lead.

        Raises:
            PeerRefused: it is none.
        """
        if not isinstance(self.pair, Standby):
            raise PeerRefused("it is no standby")
        return await self.pair.promote()

    async def keep_logs(self, slices: bytes, *, is_member: bool) -> None:
        """Keep lines of tasks that the leader of this cluster has taken.

        Raises:
            PeerRefused: it is no member that asks, or what it sends cannot be read.
        """
        if self._node is None or not is_member:
            raise PeerRefused("only members of a cluster send lines of tasks")
        try:
            await self._broker.logs.adopt(decode_slices(slices))
        except msgspec.DecodeError as error:
            raise PeerRefused(f"lines of tasks: {error}") from None

    def _journal(self) -> Followed:
        journal = self._broker.storage.journal
        if not isinstance(journal, Followed):
            raise PeerRefused("the journal of this broker is in memory")
        return journal

    async def entries(
        self, asked: AskEntries, *, is_member: bool
    ) -> tuple[EntriesHead, list[bytes]]:
        """Return what follows an entry in this node's own copy of the log.

        What a standby may ask for next is kept; a member of the cluster has the log itself.

        Raises:
            PeerRefused: it has none.
            StorageFault: it is damaged.
        """
        journal = self._journal()
        if not is_member:
            self._broker.engine.keep_after = max(0, asked.sequence - 1)
            journal.keep_recent()
        bytes_max = max(0, min(asked.bytes_max, ENTRIES_BYTES_MAX))
        found = await self._broker.off_loop(
            lambda: journal.entries(asked.sequence, asked.digest, bytes_max)
        )
        last = self._broker.storage.journal.last()
        return EntriesHead(found is not None, last), found or []

    async def blob(self, asked: AskBlob) -> tuple[BlobHead, AsyncIterator[bytes]]:
        """Return a large payload or result, or the rest of one.

        Raises:
            StorageFault: the store does not answer.
        """
        blobs = self._broker.storage.blobs

        def begin() -> tuple[int, Iterator[bytes]]:
            ref = BlobRef(asked.name, asked.size) if asked.size >= 0 else blobs.ref(asked.name)
            return ref.size, blobs.read(ref, min(max(0, asked.offset), ref.size))

        try:
            size, chunks = await asyncio.to_thread(begin)
            return BlobHead(size), _read_out(chunks)
        except Corrupt:
            return BlobHead(-1), _read_out(iter(()))

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[tuple[SnapshotHead, AsyncIterator[bytes]]]:
        """Lend a copy of the history as it is now, and where in the log it stands.

        Raises:
            PeerRefused: this node has no state to give.
            StorageFault: it cannot be copied.
        """
        home, journal = self._broker.storage.home, self._journal()
        role = None if self._node is None else self._node.view.role
        if home is None or role in {Role.RESTORING, Role.QUARANTINED, Role.STOPPED}:
            raise PeerRefused(f"this node is {role}")
        async with self._copying:
            with suppress(TimeoutError):  # Then it is a little older.
                async with asyncio.timeout(_FLUSH_S):
                    await self._broker.flush()
            path = copy_path(home)
            try:
                sequence, digest = await asyncio.to_thread(
                    self._broker.engine.history.copy_to, path, journal.digest_at
                )
                if digest is None or (sequence and digest == NO_DIGEST):
                    raise PeerRefused(f"where batch {sequence} stands in the log is not known")
                yield SnapshotHead(sequence, digest, path.stat().st_size), _chunks(path)
            finally:
                path.unlink(missing_ok=True)


async def _while_files_move(read: Callable[[], T]) -> T:
    """Read a journal in a thread; again if a file of it was used for something else meanwhile."""
    for _ in range(_READS_MAX):
        try:
            return await asyncio.to_thread(read)
        except Corrupt:
            raise
        except StorageFault:
            await asyncio.sleep(_READ_AGAIN_S)
    return await asyncio.to_thread(read)


async def _read_out(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(next, chunks, b""):
        yield chunk


async def _chunks(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while chunk := await asyncio.to_thread(file.read, _CHUNK_BYTES):
            yield chunk
