"""The server of the HTTP door: uvicorn inside the broker's own loop.

Owns the listening socket and the life of the door. Signals, processes and loops are not its
business: it starts and stops like any other door.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from functools import partial

import uvicorn
from litestar.types import ASGIApp, Receive, Scope, Send

from jackalope.broker.service import Broker
from jackalope.broker.settings import GridlikeConfig, HttpConfig
from jackalope.core.durations import SECOND
from jackalope.doors.http.access import Gate
from jackalope.doors.http.app import WATCHING, build
from jackalope.doors.http.dashboard.visits import Visits
from jackalope.doors.http.desk import Desk
from jackalope.doors.http.feed import Feed
from jackalope.doors.http.fleet import Fleet
from jackalope.doors.http.protocol import Patience, PatientProtocol, look_after
from jackalope.doors.http.traffic import Traffic
from jackalope.doors.http.websocket import PieceProtocol

#: How long requests that are under way may take when the door closes.
_GOODBYE_S = 2

_BACKLOG = 1024
_WEBSOCKET_BYTES_MAX = 16 * 1024 * 1024


class HttpDoor:
    """A door for HTTP and WebSocket.

    Attributes:
        broker: what it opens to.
        settings: its part of the configuration.
        gridlike: the part of GridLike's jobs and workers.
        port: where it listens, once started.
        desk: the session of all actioners.
        fleet: the sessions of workers that have nothing but HTTP.
        feeds: whoever listens to what happens.
        traffic: how many requests come.
        visits: browsers that have signed in.
        closing: set when the door closes; whoever waits or streams ends then.
    """

    def __init__(
        self,
        broker: Broker,
        settings: HttpConfig | None = None,
        *,
        gridlike: GridlikeConfig | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.broker = broker
        self.settings = settings or HttpConfig()
        self.gridlike = gridlike or GridlikeConfig()
        self.port = self.settings.port
        self.desk = Desk(broker)
        self.fleet = Fleet(broker)
        self.feeds: set[Feed] = set()
        self.traffic = Traffic()
        self.visits = Visits(broker.access)
        self.closing = asyncio.Event()
        self._tls = tls
        self._sockets: list[socket.socket] = []
        self._server: uvicorn.Server | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to listen.

        Raises:
            OSError: the address cannot be had.
        """
        settings = self.settings
        self._sockets = [await self._listen(settings.port)]
        self.port = self.visits.port = self._sockets[0].getsockname()[1]
        if settings.monitoring_port:
            await self._listen_to_watchers(settings.monitoring_port)
        patience = Patience(
            settings.max_connections,
            settings.header_bytes_max,
            settings.header_timeout_us / SECOND,
            settings.body_timeout_us / SECOND,
        )
        config = uvicorn.Config(
            self.traffic.over(Gate(self._application(), self)),
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
        """Let nobody in any more, end what waits, finish what is under way, and close."""
        self.closing.set()
        self.desk.close()
        self.fleet.close()
        for feed in list(self.feeds):
            feed.close()
        server, self._server = self._server, None
        if self._looking is not None:
            self._looking.cancel()
        if server is not None:
            if self._ticking is not None:
                self._ticking.cancel()
            await server.shutdown(sockets=self._sockets)

    def _application(self) -> ASGIApp:
        """Return what answers: on the port for monitoring, to those who watch alone."""
        everything, port = build(self), self.settings.monitoring_port
        if not port:
            return everything
        watching = build(self, WATCHING)

        async def by_port(scope: Scope, receive: Receive, send: Send) -> None:
            is_watching = scope["server"] is not None and scope["server"][1] == port
            await (watching if is_watching else everything)(scope, receive, send)

        return by_port

    async def _listen_to_watchers(self, port: int) -> None:
        try:
            self._sockets.append(await self._listen(port))
        except OSError as error:
            self._sockets[0].close()
            raise OSError(f"http.monitoring_port {port}: {error.strerror}") from None

    async def _listen(self, port: int) -> socket.socket:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            self.settings.host,
            port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )
        family, _, _, _, address = found[0]
        return socket.create_server(address, family=family, backlog=_BACKLOG)
