"""The HTTP door: what belongs to it, from its start to its end.

Owns the life of the door: it starts and stops like any other.
"""

from __future__ import annotations

import asyncio
import ssl

from jackalope.broker.config.schema import GridlikeConfig, HttpConfig
from jackalope.broker.service import Broker
from jackalope.doors.http.app import application
from jackalope.doors.http.asgi import ASGIApp, Receive, Scope, Send
from jackalope.doors.http.dashboard.login_sessions import Visits
from jackalope.doors.http.event_feed import Feed
from jackalope.doors.http.gridlike.context import Grid
from jackalope.doors.http.middleware.auth import Gate
from jackalope.doors.http.middleware.request_metrics import Traffic
from jackalope.doors.http.session import ClientSession
from jackalope.doors.http.transport.listener import Listener
from jackalope.doors.http.workers import Fleet


class HttpDoor:
    """A door for HTTP and WebSocket."""

    def __init__(
        self,
        broker: Broker,
        settings: HttpConfig | None = None,
        *,
        gridlike: GridlikeConfig | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.broker = broker  # what it opens to
        self.settings = settings or HttpConfig()  # its part of the configuration
        self.gridlike = gridlike or GridlikeConfig()  # the part of GridLike's jobs and workers
        self.port = self.settings.port  # where it listens, once started
        self.client_session = ClientSession(broker)  # the session of all actioners
        self.fleet = Fleet(broker)  # the sessions of workers that have nothing but HTTP
        self.feeds: set[Feed] = set()  # the open subscriptions to events
        self.grid = Grid(self)  # GridLike's jobs and workers
        self.traffic = Traffic()  # how many requests come
        self.visits = Visits(broker.access)  # browsers that have signed in
        # set when the door closes; waiting and streaming requests end then
        self.closing = asyncio.Event()
        self._listener = Listener(self.settings, broker.backlog, tls)

    async def start(self) -> None:
        """Begin to listen.

        Raises:
            OSError: the address cannot be had.
        """
        self.port = self.visits.port = await self._listener.listen(self.settings.port)
        if self.settings.monitoring_port:
            await self._listen_to_watchers(self.settings.monitoring_port)
        await self._listener.start(self.traffic.over(Gate(self._application(), self)))

    async def stop(self) -> None:
        """Accept no more connections, end what waits, finish what is under way, and close."""
        self.closing.set()
        self.client_session.close()
        self.fleet.close()
        for feed in list(self.feeds):
            feed.close()
        await self._listener.stop()

    def _application(self) -> ASGIApp:
        """Return what answers: on the port for monitoring, to those who watch alone."""
        everything, port = application(self), self.settings.monitoring_port
        if not port:
            return everything
        watching = application(self, is_watching=True)

        async def by_port(scope: Scope, receive: Receive, send: Send) -> None:
            is_watching = scope["server"] is not None and scope["server"][1] == port
            await (watching if is_watching else everything)(scope, receive, send)

        return by_port

    async def _listen_to_watchers(self, port: int) -> None:
        try:
            await self._listener.listen(port)
        except OSError as error:
            raise OSError(f"http.monitoring_port {port}: {error.strerror}") from None
