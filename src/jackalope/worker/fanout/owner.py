"""The owner's end of a fan-out: the hub, to which its helpers connect.

Owns a thread with an event loop: the listener for helpers, the connection to the broker that asks
for them, and the timer that notices silence. Everything else happens at its callers' pace; what
they call from their own thread is documented as such.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import structlog

from jackalope import __version__
from jackalope.core.assertions import BrokenInvariant
from jackalope.core.commands import RequestHelpers
from jackalope.core.effects import HelpAsked, HelperFailed
from jackalope.core.refusals import Code
from jackalope.core.task import Error
from jackalope.errors import ConfigError, ConnectionLost, JackalopeError, Rejected, TaskFailed
from jackalope.tasks.context import Running, running
from jackalope.tasks.definition import TaskDefinition
from jackalope.tasks.serialization import error_of
from jackalope.transport.address import Address
from jackalope.transport.connection import Connection, new_event_loop
from jackalope.transport.connector import Connector
from jackalope.wire.fanout import ItemFailed
from jackalope.wire.messages import AnyMessage, Hello
from jackalope.worker.attempt import Attempt, Failed, Listener, Outcome, Surroundings
from jackalope.worker.executors.processes import ProcessExecutor
from jackalope.worker.fanout.computation import Run
from jackalope.worker.fanout.helper_session import help_assignment
from jackalope.worker.fanout.ledger import Batch
from jackalope.worker.fanout.remote_helper import RemotePeer

log = structlog.get_logger(component="fanout")

#: How often the clock looks around.
_LOOK_S = 0.25
_PART_S = 1.0
_CLOSE_S = 5.0


class Hub:
    """The owner's end of all connections to helpers.

    Attributes:
        tokens: what helpers may prove themselves with.
        helpers: how many there are.
        by_broker: why items go through the broker; empty while they do not.
        is_closed: it is over, or about to be.
    """

    def __init__(
        self, attempt: Attempt, surroundings: Surroundings, helpers_max: int, local_helpers: int = 0
    ) -> None:
        """Prepare for helpers.

        `local_helpers` is how many processes of this worker's own compute as helpers do.
        """
        self._attempt = attempt
        self._surroundings = surroundings
        self._max = helpers_max
        self._local_helpers = local_helpers
        self._processes: ProcessExecutor | None = None
        self._definition: TaskDefinition | None = None
        self._loop = new_event_loop()
        context = copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._live,), name="jackalope-fanout", daemon=True
        )
        self._over: asyncio.Future[None] | None = None
        self.is_closed = False
        self._peers: dict[RemotePeer, None] = {}
        self._run: Run | None = None
        self._through: ThroughBroker | None = None
        self._server: asyncio.Server | None = None
        self._where = self._seal = ""
        self._has_helped = False
        self._local_token = secrets.token_urlsafe(24)
        self.tokens: set[str] = {self._local_token}
        self.by_broker = ""

    # From the owner's thread.

    @property
    def helpers(self) -> int:
        return sum(1 for peer in list(self._peers) if peer.worker)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def begin(self, run: Run) -> None:
        """Begin a run; the thread is started with the first."""
        self._definition = run.definition
        if not self._thread.is_alive():
            self._thread.start()
        self._call(self._begin, run)

    def fits(self, definition: TaskDefinition) -> bool:
        """Return whether helpers that came for an earlier run can do this one."""
        before = self._definition
        return before is None or (before.isolation, before.is_async) == (
            definition.isolation,
            definition.is_async,
        )

    def finish(self) -> None:
        self._call(self._finish)

    def wake(self) -> None:
        """Look whether there is something to hand out."""
        self._call(self._feed)

    def close(self) -> None:
        """Let the helpers go, and end the thread."""
        if self._thread.is_alive():
            self._call(self._close)
            self._thread.join(_CLOSE_S)

    def _call(self, act: Callable[..., None], *arguments: Any) -> None:
        with suppress(RuntimeError):  # The loop is closed: it is over.
            self._loop.call_soon_threadsafe(act, *arguments)

    # In the hub's thread.

    def _live(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._over = self._loop.create_future()
        if self.is_closed:
            return
        asking = self._loop.create_task(self._find_helpers())
        looking = self._loop.create_task(self._look())
        try:
            await self._over
        finally:
            asking.cancel()
            looking.cancel()
            if self._server is not None:
                self._server.close()
            await self._part()
            if self._through is not None:
                await self._through.close()
            if self._processes is not None:
                await self._processes.close()
            await asyncio.gather(asking, looking, return_exceptions=True)
            if self._server is not None:
                await self._server.wait_closed()

    async def _part(self) -> None:
        """Release the helpers; without notice where that takes long."""
        for peer in list(self._peers):
            peer.end()
        with suppress(TimeoutError):
            async with asyncio.timeout(_PART_S):
                while self._peers:  # noqa: ASYNC110  it is over in a moment
                    await asyncio.sleep(0.01)
        for peer in list(self._peers):
            peer.abort()
        await asyncio.sleep(0.01)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            now = self._loop.time()
            for peer in list(self._peers):
                peer.check(now)

    def _begin(self, run: Run) -> None:
        self._run = run
        for peer in self._peers:
            if peer.worker:
                peer.begin(run)
        if self._through is not None:
            self._through.begin(run)
        self._count()

    def _finish(self) -> None:
        self._run = None
        for peer in self._peers:
            peer.rest()
        if self._through is not None:
            self._through.rest()

    def _feed(self) -> None:
        for peer in list(self._peers):
            peer.feed()
        if self._through is not None:
            self._through.feed()

    def _close(self) -> None:
        self.is_closed = True
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    def _count(self) -> None:
        if self._run is not None:
            # One for the owner itself, whether or not it computes: batches must not run out.
            self._run.ledger.enlist(self.helpers + (4 if self._through else 0) + 1)

    # Helpers.

    def welcomed(self, peer: RemotePeer) -> None:
        self._has_helped = True
        self._count()
        if self._run is not None:
            peer.begin(self._run)

    def lost(self, peer: RemotePeer) -> None:
        self._peers.pop(peer, None)
        self._count()

    def refused(self, peer: RemotePeer, why: str) -> None:
        log.warning("a worker cannot become a helper", worker_id=peer.worker, why=why)
        peer.end(why)

    def _meet(self) -> RemotePeer:
        peer = RemotePeer(self)
        self._peers[peer] = None
        return peer

    # The broker.

    async def _find_helpers(self) -> None:
        try:
            await self._open()
        except ConfigError as error:
            self._go_through_broker(str(error))
            return
        self._start_local_helpers()
        if not self._max:
            return
        surroundings, address = self._surroundings, self._surroundings.address
        hello = Hello(
            namespace=address.namespace,
            token=address.token,
            name=f"{surroundings.worker} (fan-out)",
            agent=f"jackalope-worker {__version__}",
        )
        connector = Connector(address, hello, heard=self._heard, troubled=_away)
        try:
            while True:
                await self._ask_for_helpers(await connector.connect())
        except Rejected as error:
            log.warning("no helpers", why=str(error))

    async def _ask_for_helpers(self, connection: Connection) -> None:
        assignment, definition = self._attempt.assignment, self._wanted()
        try:
            promised = await connection.request(
                RequestHelpers(
                    0,
                    assignment.task,
                    assignment.fence,
                    self._max,
                    definition.name,
                    self._where,
                    self._seal,
                    definition.queue,
                    self._surroundings.secret,
                )
            )
            self.tokens.add(promised["token"])
            _away(await connection.ended())
        except Rejected as error:
            if error.code != Code.UNKNOWN_SESSION:  # The worker may not be back yet.
                raise
        except ConnectionLost as error:
            _away(error)
        finally:
            await connection.close()

    async def _open(self) -> None:
        around = self._surroundings
        context, self._seal = await asyncio.to_thread(server_seal, around)
        host = around.fanout_host
        try:
            host = host or await asyncio.to_thread(_host_towards, around.address)
            self._server = await self._loop.create_server(self._meet, host, 0, ssl=context)
        except OSError as error:
            raise ConfigError(f"cannot listen for helpers at {host}: {error}") from None
        port = self._server.sockets[0].getsockname()[1]
        told = around.fanout_advertise or host
        self._where = f"[{told}]:{port}" if ":" in told else f"{told}:{port}"

    def _heard(self, message: AnyMessage) -> None:
        if not isinstance(message, HelperFailed):
            return
        log.warning("a worker cannot become a helper", worker_id=message.worker, why=message.why)
        if message.why.startswith("unreachable") and not self._has_helped:
            self._go_through_broker(message.why)

    def _go_through_broker(self, why: str) -> None:
        """Hand out items as child tasks, because helpers cannot come here."""
        if self._through is not None or self.is_closed:
            return
        self.by_broker = why
        log.warning("helpers cannot reach this worker; items go through the broker", why=why)
        self._through = ThroughBroker()
        if self._run is not None:
            self._through.begin(self._run)
        self._count()

    # Helper sessions of this worker's own.

    def _wanted(self) -> TaskDefinition:
        definition = self._definition
        if definition is None:
            raise BrokenInvariant("a hub begins with a run")
        return definition

    def _start_local_helpers(self) -> None:
        """Compute here as well, in processes: where the function must not share one with others."""
        if not self._local_helpers:
            return
        around = self._surroundings
        self._processes = ProcessExecutor(
            around.application, command=around.child_command, log=around.log, surroundings=around
        )
        definition, given = self._wanted(), self._attempt.assignment
        for number in range(self._local_helpers):
            ask = HelpAsked(
                given.fence,
                given.task,
                given.queue,
                definition.name,
                self._where,
                self._local_token,
                self._seal,
            )
            assignment = help_assignment(ask, f"{around.worker}/{number + 1}")
            self._processes.run([Attempt(assignment, definition, _LocalHelpers(self))])


class _LocalHelpers(Listener):
    """Receives the outcome of the helper sessions that this worker runs for itself."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def ended(self, _: Attempt, outcome: Outcome) -> None:
        """Log why a helper session did not come about."""
        if isinstance(outcome, Failed) and not self._hub.is_closed:
            log.warning("cannot compute here", why=outcome.error.message)


def _away(error: JackalopeError) -> None:
    log.info("the broker is unreachable; helpers stay", why=str(error))


def _host_towards(address: Address) -> str:
    """Return the address of this machine from which a broker is reached."""
    unknown: OSError | None = None
    for member in address.members:
        try:
            found = socket.getaddrinfo(member.host, member.port, type=socket.SOCK_DGRAM)
        except OSError as error:
            unknown = error
            continue
        for family, kind, *_, place in found:
            with suppress(OSError), socket.socket(family, kind) as probe:
                probe.connect(place)  # Sends nothing.
                return str(probe.getsockname()[0])
    if unknown is not None:
        raise unknown
    return "127.0.0.1"


# Through the broker: items as child tasks, where helpers cannot reach the owner.

#: How many batches are under way at once, and how many items of one are submitted together.
BATCHES_MAX = 4
CHILDREN_MAX = 250


class ThroughBroker:
    """Hands out batches as tasks."""

    def __init__(self) -> None:
        self._run: Run | None = None
        self._parent: Running | None = running.get()
        self._works: set[asyncio.Task[None]] = set()
        self._apps: list[Any] = []

    def begin(self, run: Run) -> None:
        self._run = run
        self.feed()

    def rest(self) -> None:
        """Hand out nothing more of the run, which is over."""
        self._run = None
        for work in self._works:
            work.cancel()

    def feed(self) -> None:
        """Take batches while fewer than enough are under way."""
        while self._run is not None and len(self._works) < BATCHES_MAX:
            batch = self._run.ledger.take(self)
            if batch is None:
                return
            work = asyncio.get_running_loop().create_task(self._compute(self._run, batch))
            self._works.add(work)
            work.add_done_callback(self._done)

    async def close(self) -> None:
        self.rest()
        await asyncio.gather(*self._works, return_exceptions=True)
        for app in self._apps:
            await app.close()

    def _done(self, work: asyncio.Task[None]) -> None:
        self._works.discard(work)
        self.feed()

    async def _compute(self, run: Run, batch: Batch) -> None:
        if run.task.app not in self._apps:
            self._apps.append(run.task.app)
        items: list[Any] = msgspec.msgpack.decode(batch.data)
        for begin in range(0, len(items), CHILDREN_MAX):
            part = items[begin : begin + CHILDREN_MAX]
            try:
                values, failed = await self._as_children(run, part, begin)
            except JackalopeError as error:
                run.ledger.fail(error)
                return
            run.ledger.answer(self, batch.number, begin, values, failed)

    async def _as_children(
        self, run: Run, items: list[Any], begin: int
    ) -> tuple[list[Any], list[ItemFailed]]:
        task = run.task.options(parent=self._parent)
        handles = await task.submit_many(task.call(item, **run.fixed) for item in items)
        values, failed = [], []
        for at, handle in enumerate(handles, begin):
            try:
                values.append(await handle.result())
            except TaskFailed as error:
                values.append(None)
                known = error.error or Error("TaskFailed", str(error))
                failed.append(ItemFailed(at, known, can_retry=False))
            except Exception as error:  # noqa: BLE001  a result that cannot be read is the item's
                values.append(None)
                failed.append(ItemFailed(at, error_of(error), can_retry=False))
        return values, failed


# The seal of a fan-out: the certificate that its owner shows to helpers.

_MAKE_S = 20.0


def server_seal(surroundings: Surroundings) -> tuple[ssl.SSLContext | None, str]:
    """Return how to listen for helpers, and the fingerprint; nothing where the broker is plain."""
    if not surroundings.address.tls:
        return None, ""
    if surroundings.fanout_cert:
        return _load(Path(surroundings.fanout_cert), Path(surroundings.fanout_key))
    openssl = shutil.which("openssl")
    if openssl is None:
        raise ConfigError(
            "no certificate for helpers: name one with --fanout-cert, or install openssl"
        )
    with TemporaryDirectory(prefix="jackalope-fanout-") as folder:
        cert, key = Path(folder) / "cert.pem", Path(folder) / "key.pem"
        command = [openssl, "req", "-x509", "-newkey", "ec", "-nodes", "-days", "3650"]
        command += ["-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=jackalope-fanout"]
        command += ["-keyout", str(key), "-out", str(cert)]
        try:
            # The program that the path of this worker names, with words of our own.
            subprocess.run(  # noqa: S603
                command, capture_output=True, check=True, timeout=_MAKE_S
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ConfigError(f"no certificate for helpers: openssl failed: {error}") from None
        return _load(cert, key)


def _load(cert: Path, key: Path) -> tuple[ssl.SSLContext, str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key)
        text = cert.read_text()
    except (OSError, ValueError) as error:
        raise ConfigError(f"certificate for helpers {cert}: {error}") from None
    first = text[: text.index("-----END CERTIFICATE-----")] + "-----END CERTIFICATE-----\n"
    der = ssl.PEM_cert_to_DER_cert(first[first.index("-----BEGIN CERTIFICATE-----") :])
    return context, sha256(der).hexdigest()
