"""Copies of task logs: the leader of a cluster sends the lines that it takes to the other members.

Owns one connection to each member, and which tasks each lacks lines of. A line is sent before the
leader stores it, and acknowledged and shown after that: what was seen is there when another member
leads. A member that does not answer delays the others for a moment; what it missed is sent when it
is back, task by task, by the one that took it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from jackalope.broker.cluster.peer_link import PeerGone, PeerLink
from jackalope.broker.logs.limits import (
    COPY_AGAIN_S,
    COPY_BYTES,
    COPY_S,
    LINE_COPIED_BYTES_MAX,
    TASKS_MISSED_MAX,
)
from jackalope.core.ids import TaskId
from jackalope.core.shapes.task_log import LogLine
from jackalope.storage import StorageFault
from jackalope.storage.sqlite.task_logs import LogStore, Slice, line_bytes
from jackalope.wire.peer import AskKeepLogs, Done

if TYPE_CHECKING:
    from jackalope.broker.cluster.peers import Peers

_encode = msgspec.msgpack.Encoder().encode
decode_slices = msgspec.msgpack.Decoder(list[Slice]).decode


class LogCopies:
    """Sends lines to other members."""

    def __init__(self, peers: Callable[[], Peers | None], store: LogStore) -> None:
        self._peers = peers
        self._store = store
        self._links: dict[str, PeerLink] = {}
        # the tasks of which each member lacks lines, those of longest ago first
        self._missed: dict[str, dict[TaskId, None]] = {}

    async def send(self, slices: list[Slice]) -> None:
        """Send lines to every member, and return when those that answer have them."""
        peers = self._peers()
        if peers is None or not slices:
            return
        await asyncio.gather(*(self._send_to(peers, name, slices) for name in peers.known))

    async def run(self) -> None:
        """Send what members have missed, when they are back, until cancelled."""
        try:
            while True:
                await asyncio.sleep(COPY_AGAIN_S)
                peers = self._peers()
                for name in list(self._missed) if peers is not None else ():
                    await self._catch_up(peers, name)  # type: ignore[arg-type]
        finally:
            for link in self._links.values():
                link.abort()

    def unreachable(self) -> list[str]:
        """Return the members that do not answer."""
        peers = self._peers()
        return [] if peers is None else [p.name for p in peers.known.values() if p.trouble]

    async def _send_to(self, peers: Peers, name: str, slices: list[Slice]) -> None:
        missed = self._missed.get(name)
        if missed is None:
            try:
                async with asyncio.timeout(COPY_S):
                    await self._ask(peers, name, slices)
            except (PeerGone, TimeoutError):
                self._drop(name)
            else:
                return
            missed = self._missed[name] = {}
        for piece in slices:
            missed[piece.task] = None
        while len(missed) > TASKS_MISSED_MAX:
            del missed[next(iter(missed))]

    async def _catch_up(self, peers: Peers, name: str) -> None:
        missed = self._missed[name]
        while missed:
            task = next(iter(missed))
            del missed[task]  # What comes meanwhile puts it back.
            try:
                slices = await asyncio.to_thread(self._store.slices, task)
                async with asyncio.timeout(10 * COPY_S):
                    await self._ask(peers, name, slices)
            except (PeerGone, TimeoutError):
                missed[task] = None
                self._drop(name)
                return
            except StorageFault:
                continue
        del self._missed[name]

    async def _ask(self, peers: Peers, name: str, slices: list[Slice]) -> None:
        link = self._links.get(name)
        if link is None:
            link = self._links[name] = await peers.connect(name)
        for body in _bodies(slices):
            await link.ask(AskKeepLogs(body), Done)

    def _drop(self, name: str) -> None:
        link = self._links.pop(name, None)
        if link is not None:
            link.abort()


def _bodies(slices: list[Slice]) -> Iterator[bytes]:
    """Encode slices in pieces that fit into a request."""
    for piece in slices:
        lines: list[LogLine] = []
        size = 0
        for line in piece.lines:
            if len(line.text) * 4 > LINE_COPIED_BYTES_MAX:
                text = line.text.encode()[:LINE_COPIED_BYTES_MAX].decode(errors="ignore")
                line = msgspec.structs.replace(line, text=text)  # noqa: PLW2901
            if lines and size + line_bytes(line) > COPY_BYTES:
                yield _encode([msgspec.structs.replace(piece, lines=lines, last=0)])
                lines, size = [], 0
            lines.append(line)
            size += line_bytes(line)
        yield _encode([msgspec.structs.replace(piece, lines=lines)])
