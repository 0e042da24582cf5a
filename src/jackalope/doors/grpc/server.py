"""The gRPC door: its server, its services, and its life from start to stop.

Owns the listening port, the limits of connections and messages, certificates, health and
reflection. The library has the sockets. What a call does is the matter of the services; no service
knows another.

A node of a cluster that does not lead answers `UNAVAILABLE` and names the leader in the trailer
`jackalope-leader`, and its health is `NOT_SERVING`: clients that balance go to the leader by
themselves.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from jackalope.broker.client_session import ClientSession, Feed
from jackalope.broker.config.listening import Compression, GrpcConfig
from jackalope.broker.config.schema import TlsConfig
from jackalope.broker.service import Broker
from jackalope.core.durations import MILLISECOND, SECOND
from jackalope.core.refusals import Code, Refusal
from jackalope.doors.grpc.admin import AdminService
from jackalope.doors.grpc.blobs import BlobService, Uploads
from jackalope.doors.grpc.calls import handlers_of
from jackalope.doors.grpc.contracts import ContractService
from jackalope.doors.grpc.flows import FlowService
from jackalope.doors.grpc.limits import LimitService
from jackalope.doors.grpc.messages import MessageService
from jackalope.doors.grpc.outbox import Outbox
from jackalope.doors.grpc.queues import BatchService, QueueService
from jackalope.doors.grpc.schedules import ScheduleService
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from jackalope.doors.grpc.tasks import TaskService
from jackalope.doors.grpc.workers import WorkerService, WorkStream
from jackalope.doors.rates import Rates
from jackalope.task_ids import TaskIds

_COMPRESSION = {
    Compression.NONE: grpc.Compression.NoCompression,
    Compression.GZIP: grpc.Compression.Gzip,
    Compression.DEFLATE: grpc.Compression.Deflate,
}

#: How long calls may take to end when the door closes.
_GRACE_S = 1.0

#: How often clients that do not read are looked for, in the time that they have.
_LOOKS = 4

#: The largest metadata of a call.
_METADATA_BYTES_MAX = 16 * 1024

_CLOSING = Refusal(Code.OVERLOADED, "the broker is shutting down; connect again later", SECOND)

#: Every service of the contract.
SERVICES: dict[str, type] = {
    "TaskService": TaskService,
    "WorkerService": WorkerService,
    "QueueService": QueueService,
    "LimitService": LimitService,
    "ContractService": ContractService,
    "ScheduleService": ScheduleService,
    "FlowService": FlowService,
    "BatchService": BatchService,
    "BlobService": BlobService,
    "MessageService": MessageService,
    "AdminService": AdminService,
}


class GrpcDoor:
    """A door for gRPC."""

    stuck_s = 30.0  # how long a message may wait for a client that does not read
    unsent_bytes_max = 64 * 1024 * 1024  # how much may wait for one

    def __init__(
        self,
        broker: Broker,
        settings: GrpcConfig | None = None,
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        self.broker = broker  # what it opens to
        self.settings = settings or GrpcConfig()  # its part of the configuration
        self.port = self.settings.port  # where it listens, once started
        self.client_session = ClientSession(broker)  # the session of all clients
        self.uploads = Uploads(broker)  # bodies that no task names yet
        self.workers: dict[str, WorkStream] = {}  # the streams of workers, by their secrets
        # how often each API key calls
        self.rates = Rates(self.settings.rate_per_s, self.settings.rate_burst)
        self.ids = TaskIds()  # for tasks that come without one
        self.feeds: set[Feed] = set()  # the open subscriptions to events
        self.outboxes: set[Outbox] = set()  # those of all open streams
        self.asks_certificates = credentials is not None and bool(self.settings.client_ca)
        self._credentials = credentials
        self._server: Any = None
        self._health: Any = None
        self._names: list[str] = []
        self._telling: set[asyncio.Task[None]] = set()
        self._looking: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Start listening; raises `OSError` if the address is unavailable."""
        settings = self.settings
        server = grpc.aio.server(
            options=_options(settings),
            maximum_concurrent_rpcs=settings.max_calls,
            compression=_COMPRESSION[settings.compression],
        )
        services = [handlers_of(self, name, service()) for name, service in SERVICES.items()]
        server.add_generic_rpc_handlers(tuple(services))
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = [pb.DESCRIPTOR.services_by_name[name].full_name for name in SERVICES]
        if settings.reflection:
            known = (*names, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(known, server)
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        address = f"{host}:{settings.port}"
        try:
            if self._credentials is None:
                self.port = server.add_insecure_port(address)
            else:
                self.port = server.add_secure_port(address, self._credentials)
        except RuntimeError as error:
            # It says why on the standard error alone.
            raise OSError(errno.EADDRINUSE, str(error)) from None
        await server.start()
        self._server = server
        self._names = names
        await self._tell_health()
        self._look()
        if self.broker.leader is not None:
            self.broker.leader.changed.append(self._leader_changed)

    async def stop(self) -> None:
        """Accept no more calls, end what waits, and close."""
        if self._server is None:
            return
        if self.broker.leader is not None:
            self.broker.leader.changed.remove(self._leader_changed)
        if self._looking is not None:
            self._looking.cancel()
        await self._health.enter_graceful_shutdown()
        stopping = asyncio.create_task(self._server.stop(_GRACE_S))
        self.client_session.close()
        for outbox in list(self.outboxes):
            outbox.end(_CLOSING)
        for feed in list(self.feeds):
            feed.close()
        await stopping
        self._server = None

    def _look(self) -> None:
        """Cut off clients that do not read, now and then."""
        loop = asyncio.get_running_loop()
        for outbox in list(self.outboxes):
            outbox.look(loop.time(), self.stuck_s)
        self._looking = loop.call_later(self.stuck_s / _LOOKS, self._look)

    # For a node of a cluster.

    def _leader_changed(self) -> None:
        """End the subscriptions of a node that leads no more, and tell its health."""
        if not self._leads():
            for feed in list(self.feeds):
                feed.close()
        task = asyncio.ensure_future(self._tell_health())
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell_health(self) -> None:
        response = health_pb2.HealthCheckResponse
        status = response.SERVING if self._leads() else response.NOT_SERVING
        for name in ("", *self._names):
            await self._health.set(name, status)

    def _leads(self) -> bool:
        leader = self.broker.leader
        return leader is None or leader.elsewhere("grpc") is None


def _options(settings: GrpcConfig) -> list[tuple[str, int]]:
    keepalive_ms = settings.keepalive_us // MILLISECOND
    return [
        # Two brokers must not share a port.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", settings.message_bytes_max),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", _METADATA_BYTES_MAX),
        ("grpc.max_concurrent_streams", settings.max_calls),
        ("grpc.max_allowed_incoming_connections", settings.max_connections),
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", keepalive_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        # Clients may probe as well, twice as often.
        ("grpc.http2.min_ping_interval_without_data_ms", keepalive_ms // 2),
    ]


def server_credentials(
    tls: TlsConfig, client_ca: str = "", version: Callable[[], int] = int
) -> grpc.ServerCredentials | None:
    """Return what the door encrypts with; None without a certificate.

    Args:
        tls: names the files.
        client_ca: the authorities for certificates of clients; empty if none are asked for.
        version: changes whenever the files are to be read again, for connections from then on.

    Raises:
        ValueError: a file cannot be used.
    """
    if not tls.cert:
        if client_ca:
            raise ValueError("grpc.client_ca needs TLS; set tls.cert and tls.key")
        return None
    seen = version()
    first = _read_certificates(tls, client_ca)

    def look() -> grpc.ServerCertificateConfiguration | None:
        nonlocal seen
        if (now := version()) == seen:
            return None
        seen = now
        try:
            return _read_certificates(tls, client_ca)
        except ValueError:  # They were sound a moment ago, and will be looked at again.
            return None

    return grpc.dynamic_ssl_server_credentials(first, look, bool(client_ca))


def _read_certificates(tls: TlsConfig, client_ca: str) -> grpc.ServerCertificateConfiguration:
    authorities = None
    try:
        pair = (Path(tls.key).read_bytes(), Path(tls.cert).read_bytes())
        if client_ca:
            ssl.create_default_context().load_verify_locations(client_ca)
            authorities = Path(client_ca).read_bytes()
    except (OSError, ValueError) as error:
        raise ValueError(f"grpc.client_ca {client_ca}: {error}") from None
    return grpc.ssl_server_certificate_configuration([pair], authorities)
