"""WebSockets in pieces: for those who ask for them, bounded; for all others, as ever."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import Any

import uvicorn
from websockets.asyncio.client import ClientConnection, connect

from jackalope.broker.backlog import Backlog
from jackalope.doors.http.listener import EXTENSION, PieceProtocol, probe
from tests.doors.harness import run
from tests.doors.http.harness import PATIENCE_S

App = Callable[[Any, Any, Any], Awaitable[None]]

BODY = bytes(range(256)) * 1024 * 8


class Served:
    """A server with one application, and a client of it."""

    def __init__(self, server: uvicorn.Server, client: ClientConnection) -> None:
        self.client = client
        self._server = server

    def protocol(self) -> PieceProtocol:
        (protocol,) = self._server.server_state.connections
        assert isinstance(protocol, PieceProtocol)
        return protocol


@asynccontextmanager
async def served(app: App) -> AsyncIterator[Served]:
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        ws=partial(PieceProtocol, backlog=Backlog(1024 * 1024)),  # type: ignore[arg-type]
        lifespan="off",
        log_config=None,
        ws_per_message_deflate=False,
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listening])
    port = listening.getsockname()[1]
    async with connect(f"ws://127.0.0.1:{port}/", max_size=None) as client:
        yield Served(server, client)
    server.should_exit = True
    await server.shutdown(sockets=[listening])


def test_without_asking_for_it_messages_are_whole() -> None:
    async def echo(scope: Any, receive: Any, send: Any) -> None:
        assert EXTENSION in scope["extensions"]
        await receive()
        await send({"type": "websocket.accept"})
        for _ in range(2):
            message = await receive()
            assert "more" not in message
            await send(message | {"type": "websocket.send"})
        await receive()

    async def check() -> None:
        async with served(echo) as there, asyncio.timeout(PATIENCE_S):
            await there.client.send([BODY[:100], BODY[100:]])
            assert await there.client.recv() == BODY
            await there.client.send("a text")
            assert await there.client.recv() == "a text"

    run(check())


def test_a_message_in_pieces_is_not_read_while_the_application_is_behind() -> None:
    has_begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept", "pieces": True, "keepalive_s": None})
        message = await receive()
        has_begun.set()
        await go_on.wait()
        received = [message["bytes"]]
        while message["more"]:
            message = await receive()
            received.append(message["bytes"])
        for piece in received:
            await send({"type": "websocket.send", "bytes": piece, "more": True})
        await send({"type": "websocket.send", "bytes": b"", "more": False})
        await receive()

    async def check() -> None:
        async with served(slow) as there, asyncio.timeout(PATIENCE_S):
            sending = asyncio.create_task(there.client.send(BODY * 16))
            await has_begun.wait()
            for _ in range(1_000):
                await asyncio.sleep(0)
            # What one read of the socket brings, and not the 32 MiB behind it.
            queued = there.protocol().queue.qsize()
            assert queued <= 2
            assert not sending.done()
            go_on.set()
            assert await there.client.recv() == BODY * 16

    run(check())


def test_the_system_looks_after_a_silent_connection() -> None:
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as server,
        closing(socket.create_connection(server.getsockname())) as link,
    ):
        assert not link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        probe(link)
        assert link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert link.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
        probe(None)
