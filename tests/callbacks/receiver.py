"""A receiver of callbacks: a real server that answers as it is told, and remembers what came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

OK = b"HTTP/1.1 204 No Content\r\n\r\n"

#: In place of an answer: none, ever.
HANG = b""


def answer(status: str, *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "Content-Length: 0", "", ""]).encode()


@dataclass
class Got:
    """A request that came."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        event: dict[str, Any] = msgspec.json.decode(self.body)
        return event


@dataclass
class Receiver:
    """A server on a port of this machine."""

    answers: list[bytes] = field(default_factory=list)  # one for each request; then `OK`
    got: list[Got] = field(default_factory=list)
    port: int = 0
    host: str = "127.0.0.1"
    _came: asyncio.Event = field(default_factory=asyncio.Event)
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    def url(self, path: str = "/hook", host: str = "") -> str:
        return f"http://{host or self.host}:{self.port}{path}"

    async def until(self, count: int, seconds: float = 20) -> list[Got]:
        """Wait until so many requests have come."""
        async with asyncio.timeout(seconds):
            while len(self.got) < count:
                self._came.clear()
                await self._came.wait()
        return self.got

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
            line, *fields = head.split("\r\n")
            named = (each.partition(":") for each in fields if each)
            headers = {name.lower(): value.strip() for name, _, value in named}
            body = await reader.readexactly(int(headers["content-length"]))
            self.got.append(Got(line, headers, body))
            self._came.set()
            said = self.answers.pop(0) if self.answers else OK
            if said is HANG:
                await reader.read()
            writer.write(said)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            await self._let_go(writer)

    async def close(self) -> None:
        """Break off every connection."""
        for writer in list(self._open):
            await self._let_go(writer)

    async def _let_go(self, writer: asyncio.StreamWriter) -> None:
        self._open.discard(writer)
        writer.close()
        with suppress(OSError, asyncio.CancelledError):
            await writer.wait_closed()


@asynccontextmanager
async def receiving(*answers: bytes, port: int = 0) -> AsyncIterator[Receiver]:
    receiver = Receiver(list(answers))
    server = await asyncio.start_server(receiver.serve, receiver.host, port)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        await receiver.close()
