"""The listener: uvicorn inside the broker's own loop, for one application.

Owns listening sockets and the life of what answers behind them. Signals, processes and loops are
not its business, nor what the application does.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from functools import partial

import uvicorn
from litestar.types import ASGIApp

from jackalope.broker.settings import HttpConfig
from jackalope.core.durations import SECOND
from jackalope.doors.http.protocol import Patience, PatientProtocol, look_after
from jackalope.doors.http.websocket import PieceProtocol

#: How long requests that are under way may take when the door closes.
_GOODBYE_S = 2

_BACKLOG = 1024
_WEBSOCKET_BYTES_MAX = 16 * 1024 * 1024


class Listener:
    """Listens on some ports of one host, and hands requests to an application."""

    def __init__(self, settings: HttpConfig, tls: ssl.SSLContext | None = None) -> None:
        self._settings = settings
        self._tls = tls
        self._sockets: list[socket.socket] = []
        self._server: uvicorn.Server | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None

    async def listen(self, port: int) -> int:
        """Take a port, and return which it is.

        Raises:
            OSError: it cannot be had; none of those before is kept.
        """
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(
                self._settings.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            family, _, _, _, address = found[0]
            taken = socket.create_server(address, family=family, backlog=_BACKLOG)
        except OSError:
            for each in self._sockets:
                each.close()
            raise
        self._sockets.append(taken)
        return int(taken.getsockname()[1])

    async def start(self, application: ASGIApp) -> None:
        """Begin to answer."""
        settings = self._settings
        patience = Patience(
            settings.max_connections,
            settings.header_bytes_max,
            settings.header_timeout_us / SECOND,
            settings.body_timeout_us / SECOND,
        )
        config = uvicorn.Config(
            application,
            loop="none",
            http=partial(PatientProtocol, patience=patience),  # type: ignore[arg-type]
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=list(settings.trusted_proxies),
            timeout_keep_alive=settings.keep_alive_us // SECOND,
            timeout_graceful_shutdown=_GOODBYE_S,
            ws=PieceProtocol,
            ws_max_size=_WEBSOCKET_BYTES_MAX,
            # What is unpacked can be a thousand times what came.
            ws_per_message_deflate=False,
        )
        config.load()
        config.ssl = self._tls
        self._server = uvicorn.Server(config)
        self._server.lifespan = config.lifespan_class(config)
        await self._server.startup(sockets=self._sockets)
        self._ticking = asyncio.create_task(self._server.main_loop(), name="jackalope-http-door")
        connections = self._server.server_state.connections
        self._looking = asyncio.create_task(
            look_after(connections, patience), name="jackalope-http-patience"
        )

    async def stop(self) -> None:
        """Let nobody in any more, finish what is under way, and close."""
        server, self._server = self._server, None
        if self._looking is not None:
            self._looking.cancel()
        if server is not None:
            if self._ticking is not None:
                self._ticking.cancel()
            await server.shutdown(sockets=self._sockets)
