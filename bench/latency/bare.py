"""The bare machine as a system: what no broker on sockets and this disk can be faster than.

A server with uvloop echoes a frame of the size of a submit after it has written it into a file of
zeros and synced it. For a round trip there are three processes: the server writes and syncs the
frame, passes it on to a worker, which sends it back at once, then writes and syncs again, and
answers. No frame is decoded, nothing is decided, nothing can be recovered.

`python -m bench.latency.bare serve PORT FILE` and `... work PORT` are the two processes.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from bench.peers.base import PAYLOAD, Peer
from bench.peers.processes import Started, free_port, is_listening
from bench.peers.servers import Server

#: About what a submit of a task with a payload of 100 bytes takes on the wire.
FRAME_BYTES = 186
_FILE_BYTES = 64 * 1024 * 1024

_SUBMIT, _CALL, _JOIN = b"s", b"c", b"j"


class _File:
    """A file of zeros that is written over from its begin to its end, again and again."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.write(self._descriptor, bytes(_FILE_BYTES))
        os.fsync(self._descriptor)
        self._offset = 0

    def store(self, frame: bytes) -> None:
        os.pwrite(self._descriptor, frame, self._offset)
        os.fdatasync(self._descriptor)
        self._offset = (self._offset + len(frame)) % (_FILE_BYTES - FRAME_BYTES)


class _Peer(asyncio.Protocol):
    """A connection of the server."""

    # There is one worker, and one caller at a time; a call may come before the worker.
    worker: Any = None
    caller: Any = None
    waiting: bytes = b""

    def __init__(self, file: _File) -> None:
        self._file = file
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        kind = data[:1]
        if kind == _JOIN:
            _Peer.worker = self._transport
            if _Peer.waiting:
                self._transport.write(_Peer.waiting)
            return
        self._file.store(data)
        if kind == _SUBMIT:
            self._transport.write(data)
        elif self._transport is _Peer.worker:
            _Peer.caller.write(data)
        else:
            _Peer.caller = self._transport
            if _Peer.worker is None:
                _Peer.waiting = data
            else:
                _Peer.worker.write(data)


class _Echo(asyncio.Protocol):
    """The worker: what comes goes back."""

    def __init__(self) -> None:
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.write(_JOIN)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class _Client(asyncio.Protocol):
    """The client's end: one frame out, one frame in."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._answer is not None:
            self._answer.set_result(data)

    async def ask(self, frame: bytes) -> bytes:
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(frame)
        return await self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class Bare(Peer):
    """Sockets and the disk, without anything between them."""

    durability = "fsync"

    async def open(self) -> None:
        """Start the server, and connect."""
        self._port = free_port()
        serve = [sys.executable, "-m", "bench.latency.bare", "serve", str(self._port)]
        server = Started([*serve, str(self.place.path / "bare")], self.place.path / "bare.log")
        self.servers.append(Server("", server))
        server.wait_until(lambda: is_listening(self._port))
        self._client = _Client()
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self._client, "127.0.0.1", self._port)

    def worker_command(self) -> Sequence[str]:
        """Return this module."""
        return [sys.executable, "-m", "bench.latency.bare", "work", str(self._port)]

    async def submit_one(self) -> Any:
        """Send a frame, and wait for it to be on the disk."""
        return await self._client.ask(_SUBMIT.ljust(FRAME_BYTES, b"-"))

    async def submit_bulk(self, count: int) -> list[Any]:
        """Send one after the other."""
        return [await self.submit_one() for _ in range(count)]

    async def wait(self, _handles: Sequence[Any]) -> None:
        """Do nothing: nothing is left to be done."""

    async def round_trip(self) -> Any:
        """Send a frame to the worker and back, and return what a task would."""
        await self._client.ask(_CALL.ljust(FRAME_BYTES, b"-"))
        return PAYLOAD

    async def reset(self) -> None:
        """Do nothing: nothing is kept."""

    async def close(self) -> None:
        """Disconnect."""
        self._client.close()


async def _serve(port: int, file: _File) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Peer(file), "127.0.0.1", port)
    await server.serve_forever()


async def _work(port: int) -> None:
    loop = asyncio.get_running_loop()
    await loop.create_connection(_Echo, "127.0.0.1", port)
    await loop.create_future()


if __name__ == "__main__":
    role, at, *rest = sys.argv[1:]
    uvloop.run(_serve(int(at), _File(Path(rest[0]))) if role == "serve" else _work(int(at)))
