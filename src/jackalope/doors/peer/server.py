"""The peer door, port 7423: answers other nodes, a standby and the command line.

Owns the listening socket, the proofs and the limits. What is answered is the host's
(`jackalope.broker.cluster.peer_host`). The other end is `jackalope.broker.cluster.peer_link`.

Those that have not proved themselves have a limit of their own, and one that is new takes the place
of the oldest at the address that has most of them: strangers can neither take the places of members
nor keep members that come from elsewhere from proving that they are.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from hmac import compare_digest
from typing import Protocol, TypeVar

import structlog

from jackalope.broker.cluster.peer_link import HELLO_S, PeerGone, PeerLink, PeerRefused
from jackalope.storage import StorageFault
from jackalope.wire.messages import AnyMessage, Message
from jackalope.wire.peer import (
    NONCE_BYTES,
    PEER_VERSION,
    REQUEST_BYTES_MAX,
    AskBlob,
    AskClear,
    AskCompare,
    AskEntries,
    AskFence,
    AskKeepLogs,
    AskPromote,
    AskRaise,
    AskSnapshot,
    AskStatus,
    AskStepDown,
    AskVerify,
    BlobHead,
    Challenge,
    Compared,
    Done,
    EntriesHead,
    Fenced,
    Greeting,
    NodeStatus,
    Promoted,
    Refused,
    SnapshotHead,
    Verified,
    Welcome,
    host_codec,
    proof_of_guest,
    proof_of_host,
)

T = TypeVar("T")

log = structlog.get_logger(component="peer")

#: How long a connection may be silent between two requests.
IDLE_S = 60.0

#: How many may be connected that have the secret, and how many that have not shown it yet.
CONNECTIONS_MAX = 64
STRANGERS_MAX = 32


class Host(Protocol):
    """What answers."""

    node: str
    cluster: str

    def status(self) -> NodeStatus:
        """Return what this node is, and how far it has come."""

    async def step_down(self, to: str) -> None:
        """Let another node lead; raises `ValueError` if this one does not."""

    async def raise_level(self, level: int) -> None:
        """Make records of a higher level; raises `ValueError` if a member does not read it."""

    async def verify(self, asked: AskVerify) -> Verified:
        """Read what is on this node's disk, and the copies of the log if that is asked."""

    async def compare(self) -> Compared:
        """Tell the digest of the whole state; raises `ValueError` if this node does not lead."""

    def clear(self, asked: AskClear) -> None:
        """Doubt what was found sound no more."""

    async def entries(
        self, asked: AskEntries, *, is_member: bool
    ) -> tuple[EntriesHead, list[bytes]]:
        """Return what follows an entry in this node's own copy of the log."""

    async def blob(self, asked: AskBlob) -> tuple[BlobHead, AsyncIterator[bytes]]:
        """Return a large payload or result, or the rest of one."""

    async def fence(self, by: str, *, is_member: bool) -> Fenced:
        """Acknowledge nothing any more, because another takes this one's place."""

    async def promote(self) -> Promoted:
        """Take the place of the broker that is followed."""

    async def keep_logs(self, slices: bytes, *, is_member: bool) -> None:
        """Keep lines of tasks that the leader has taken."""

    def snapshot(self) -> AbstractAsyncContextManager[tuple[SnapshotHead, AsyncIterator[bytes]]]:
        """Lend a copy of the history."""


class PeerDoor:
    """A door for those who have the secret."""

    def __init__(
        self, host: Host, address: tuple[str, int], secret: str, tls: ssl.SSLContext | None = None
    ) -> None:
        self._host = host
        self._address = address
        self._secret = secret
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._strangers: dict[PeerLink, str] = {}  # and where each is, the oldest first
        self._proved: set[PeerLink] = set()

    @property
    def port(self) -> int:
        """Where it listens, once started."""
        return self._address[1]

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._tasks)

    async def start(self) -> None:
        """Start listening; raises `OSError` if the address is unavailable."""
        host, port = self._address
        self._server = await asyncio.start_server(
            self._accept,
            host,
            port,
            ssl=self._tls,
            ssl_handshake_timeout=HELLO_S if self._tls else None,
        )
        self._address = (host, self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Accept no more connections, and close those that are open."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = PeerLink(reader, writer, host_codec)
        if len(self._strangers) >= STRANGERS_MAX:
            self._drop_stranger()
        self._strangers[link] = str((writer.get_extra_info("peername") or ("",))[0])
        task = asyncio.create_task(self._serve(link))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _drop_stranger(self) -> None:
        (crowded, _), *_ = Counter(self._strangers.values()).most_common(1)
        oldest = next(link for link, host in self._strangers.items() if host == crowded)
        del self._strangers[oldest]
        oldest.abort()

    async def _serve(self, link: PeerLink) -> None:
        try:
            await self._greet(link)
            while True:
                await self._answer(link, await link.receive(IDLE_S))
        except PeerRefused as refusal:
            log.warning("a peer was refused", peer=link.peer, why=str(refusal))
            with suppress(PeerGone):
                await link.send(Refused(str(refusal)))
            link.close()
        except PeerGone:
            pass
        except StorageFault as fault:
            log.warning("a peer was not answered", peer=link.peer, fault=str(fault))
            with suppress(PeerGone):
                await link.send(Refused(str(fault)))
        except Exception:
            log.exception("a peer was not answered", peer=link.peer)
        finally:
            self._strangers.pop(link, None)
            self._proved.discard(link)
            if link.is_stuck():
                link.abort()
            link.close()

    async def _greet(self, link: PeerLink) -> None:
        host, challenge = self._host, os.urandom(NONCE_BYTES)
        await link.send(Challenge(PEER_VERSION, challenge))
        greeting = await link.expect(Greeting, HELLO_S)
        if greeting.version != PEER_VERSION:
            raise PeerRefused(f"version {greeting.version}; this node speaks {PEER_VERSION}")
        told = (self._secret, challenge, greeting.nonce)
        proof = proof_of_guest(*told, greeting.cluster, greeting.node)
        if not compare_digest(greeting.proof, proof):
            raise PeerRefused("the secret is another one")
        if greeting.cluster not in ("", host.cluster):
            raise PeerRefused(f"this node is of the cluster {host.cluster!r}")
        if len(self._proved) >= CONNECTIONS_MAX:
            raise PeerRefused(f"{CONNECTIONS_MAX} nodes and programs are connected already")
        self._strangers.pop(link, None)
        self._proved.add(link)
        link.peer = greeting.node
        link.bytes_max = REQUEST_BYTES_MAX
        await link.send(
            Welcome(proof_of_host(*told, host.cluster, host.node), host.cluster, host.node)
        )

    async def _answer(self, link: PeerLink, request: AnyMessage) -> None:
        match request:
            case AskEntries():
                head, entries = await self._host.entries(request, is_member=bool(link.peer))
                await link.send(head)
                await link.send_parts(_one_by_one(entries))
            case AskBlob():
                found, body = await self._host.blob(request)
                await link.send(found)
                if found.size >= 0:
                    await link.send_parts(body)
            case AskSnapshot():
                async with self._host.snapshot() as (copy, chunks):
                    await link.send(copy)
                    await link.send_parts(chunks)
            case _:
                await link.send(await self._reply(request, is_member=bool(link.peer)))

    async def _reply(self, request: AnyMessage, *, is_member: bool) -> Message:
        """Return the answer to what is answered by one message."""
        host = self._host
        match request:
            case AskStatus():
                return host.status()
            case AskStepDown():
                await self._do(host.step_down(request.to))
            case AskRaise():
                await self._do(host.raise_level(request.level))
            case AskVerify():
                return await host.verify(request)
            case AskCompare():
                return await self._do(host.compare())
            case AskClear():
                host.clear(request)
            case AskFence():
                return await host.fence(request.by, is_member=is_member)
            case AskPromote():
                return await host.promote()
            case AskKeepLogs():
                await host.keep_logs(request.slices, is_member=is_member)
            case _:
                raise PeerRefused(f"unexpected {type(request).__name__}")
        return Done()

    @staticmethod
    async def _do(deed: Coroutine[None, None, T]) -> T:
        try:
            return await deed
        except ValueError as error:
            raise PeerRefused(str(error)) from None


async def _one_by_one(entries: list[bytes]) -> AsyncIterator[bytes]:
    for entry in entries:
        yield entry
