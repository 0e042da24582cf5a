"""The session of a worker with the broker, over as many connections as it takes.

Owns the connection and its renewal, and the pulse. Knows nothing of how tasks are run: that is the
matter of the workload's executors.

Theory of operation: whatever happens to the connection, the worker comes back. Each new connection
begins with JOIN, which names everything the worker holds; the broker answers what is no longer the
worker's; then everything that is still open is reported again. The same happens when the broker
reports that the lease is lost. A worker that is connected has therefore always joined, with the
slots that it has now.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import structlog

from jackalope import __version__
from jackalope.core.commands import ClaimTasks, EndHelp, Heartbeat, Held, JoinWorker, LeaveWorker
from jackalope.core.durations import SECOND
from jackalope.core.effects import Assignment, HelpAsked, SignalAsked
from jackalope.errors import ConnectionLost, JackalopeError, Rejected
from jackalope.tasks.contracts import contracts_of
from jackalope.tasks.definition import TaskSource
from jackalope.transport.address import Address
from jackalope.transport.connection import Connection
from jackalope.transport.connector import PASSING, Backoff, Connector
from jackalope.wire.messages import AnyMessage, Assign, Hello, Manage, Notice, peer_codec
from jackalope.worker.pulse import now
from jackalope.worker.workload import Workload

log = structlog.get_logger(component="worker")

#: A JOIN without an answer for so long means that the connection is no good.
_JOIN_S = 30.0
_LEAVE_S = 2.0
#: Slots that change often are reported together.
_SLOTS_S = 0.02

_CONTRACTS_PER_REQUEST = 100
#: Most of the time that a guard gives must be left for an outage.
_BEATS_PER_GUARD = 4


@dataclass(frozen=True, slots=True)
class JoinTerms:
    """As what a worker joins."""

    address: Address  # where the broker is, and who we are there
    worker: str  # the worker's name, stable over reconnects
    queues: tuple[str, ...]  # the queues that it serves
    keys: tuple[str, ...] = ()  # the keys that it serves; none means every task of its queues
    labels: Mapping[str, str] = field(default_factory=dict)  # what it reports about itself
    lease_s: float = 30.0  # how long its silence is borne
    grace_s: float = 10.0  # how long it may take to come back after its connection closed
    # this process is killed when it holds tasks and the broker is silent for so long; 0 for never.
    # With less than lease and grace, no task runs in two workers at once.
    guard_s: float = 0.0
    secret: str = ""  # proves over other connections that they are this worker's
    # how much of what it has for tasks that need it, in thousandths
    resources: Mapping[str, int] = field(default_factory=dict)
    # the secret of slots that it has together with workers of other namespaces, and how many
    share: str = ""
    share_slots: int = 0


class Membership:
    """One worker's standing with the broker."""

    def __init__(
        self,
        standing: JoinTerms,
        workload: Workload,
        application: str = "",
        source: TaskSource | None = None,
    ) -> None:
        self._standing = standing
        self._application = application
        # the schedules of the application, as the broker takes them
        self._schedules: dict[str, Any] = dict(getattr(source, "planned", {}))
        # the limits of its tasks, likewise
        self._limits: dict[str, Any] = dict(getattr(source, "limited", {}))
        self._has_declared = False
        self._has_limited = False
        # what its tasks take and return
        self._contracts = contracts_of(source.functions.values()) if source is not None else {}
        self._workload = workload
        self._workload.on_forgotten = self._rejoin
        self._workload.on_slots_changed = self._tell_slots_later
        self._pulse = PulseKeeper()
        if standing.guard_s:
            self._workload.on_holding = self._on_holding
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._hello = Hello(
            namespace=standing.address.namespace,
            token=standing.address.token,
            name=standing.worker,
            agent=f"jackalope-worker {__version__}",
            fetches=True,
        )
        self._connector = Connector(
            standing.address, self._hello, heard=self._heard, troubled=_troubled
        )
        self._join_again = Backoff()
        self._joined = asyncio.Event()
        self._news = asyncio.Event()
        self._generation = 0
        self._slots_told = 0
        self._slots_timer: asyncio.TimerHandle | None = None
        self._is_wanted = True
        self._why_unwanted = ""
        # called when the broker asks the worker to finish and leave
        self.on_drain: Callable[[], None] = _nothing
        # called with the reason when the broker does not want this worker
        self.on_unwanted: Callable[[str], None] = _nothing
        # called when the broker asks the worker to help the task of another
        self.on_help: Callable[[HelpAsked], None] = _nothing
        # returns the names of the tasks that it knows; None if it takes any
        self.names: Callable[[], tuple[str, ...] | None] = lambda: None
        # returns the fence of the attempt that the worker helps; 0 for none
        self.helps: Callable[[], int] = int
        self.stats: Callable[[], dict[str, float]] = dict  # the numbers of heartbeats
        # whether the worker takes tasks; until then it is there, and loads. After a change it joins
        # again.
        self.is_ready = True

    def start(self) -> None:
        self._pulse.start()
        self._connecting = asyncio.create_task(self._stay_connected(), name="jackalope-connection")

    async def leave(self) -> None:
        if self._connection is not None and self._joined.is_set():
            self._joined.clear()
            with suppress(JackalopeError, TimeoutError):
                async with asyncio.timeout(_LEAVE_S):
                    await self._connection.request(LeaveWorker())

    async def disconnect(self) -> None:
        """End the connection, and come back no more."""
        if self._connecting is not None:
            self._connecting.cancel()
            with suppress(asyncio.CancelledError):
                await self._connecting
        if self._connection is not None:
            await self._connection.close()

    async def close(self) -> None:
        """End the pulse, which goes on until everything that ran has ended."""
        await self._pulse.close()

    async def joined(self) -> None:
        while not self._joined.is_set():
            if not self._is_wanted:
                raise ConnectionLost(self._why_unwanted)
            self._news.clear()
            await self._news.wait()

    async def claim(self) -> None:
        """Take one task beyond the slots; it comes to the workload like any other.

        Raises `Rejected` if there is none now (`nothing_to_claim`). If the connection is lost, a
        task that was given out meanwhile goes back.
        """
        await self.joined()
        connection = self._connection
        if connection is None:
            raise ConnectionLost(f"the connection to {self._standing.address} was lost")
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def answered(assignments: list[Assignment], error: JackalopeError | None) -> None:
            # Whether or not anybody still waits: a task that was given out is held.
            if error is None:
                self._workload.assign(assignments)
            if answer.done():
                return
            if error is None:
                answer.set_result(None)
            else:
                answer.set_exception(error)

        connection.ask(ClaimTasks(0), answered)
        await answer

    # The connection.

    async def _stay_connected(self) -> None:
        try:
            while True:
                await self._serve(await self._connector.connect())
        except Rejected as error:
            self._give_up(str(error))

    async def _serve(self, connection: Connection) -> None:
        """Join over a connection, and return when that is over."""
        self._connection = connection
        try:
            standing, welcome = self._standing, connection.welcome
            beat_s = min(welcome.heartbeat_us / SECOND, standing.lease_s / 3)
            if standing.guard_s:
                beat_s = min(beat_s, standing.guard_s / _BEATS_PER_GUARD)
            has_parts = welcome.part_bytes_max > 0
            self._workload.limit_results(welcome.frame_bytes_max, has_parts=has_parts)
            pulse = msgspec.structs.replace(self._hello, pulse=welcome.pulse)
            self._pulse.beat_for(self._connector.address_of(connection), pulse, beat_s)
            self.join()
            beating = asyncio.create_task(self._beat(connection, beat_s))
            try:
                _troubled(await connection.ended())
            finally:
                beating.cancel()
        finally:
            self._connection = None
            self._joined.clear()
            self._workload.reports.suspend()
            await connection.close()

    async def _beat(self, connection: Connection, every_s: float) -> None:
        """Send heartbeats to the broker; give up a connection over which the worker cannot join."""
        join_by = time.monotonic() + _JOIN_S
        while True:
            await asyncio.sleep(every_s)
            stats = self.stats()
            if self._joined.is_set():
                join_by = time.monotonic() + _JOIN_S
                connection.send(Heartbeat(stats=stats))
            elif time.monotonic() > join_by:
                connection.abort("no answer to JOIN")

    # Joining.

    def join(self) -> None:
        """Send JOIN to the broker: what the worker holds, and how many slots it has.

        The limits of its tasks come first, so that it is given none that they do not let go.
        """
        connection = self._connection
        if connection is None or not self._is_wanted:
            return  # If it is the former: the next connection begins with this.
        if self._limits and not self._has_limited and not self._joined.is_set():
            self._declare_limits(connection)
        else:
            self._join(connection)

    def _join(self, connection: Connection) -> None:
        standing, workload = self._standing, self._workload
        is_new = not self._joined.is_set()
        if is_new:
            workload.reports.suspend()
        self._slots_told = workload.slots
        sent = now()

        def answered(body: Any, error: JackalopeError | None) -> None:
            if connection is self._connection:
                self._on_joined(connection, body, error, is_new=is_new)
                if is_new and error is None and standing.guard_s:
                    self._pulse.guard(standing.guard_s, sent)

        connection.ask(
            JoinWorker(
                0,
                worker=standing.worker,
                queues=standing.queues,
                keys=standing.keys,
                slots=workload.slots,
                labels=dict(standing.labels),
                holding=workload.holding,
                lease_us=int(standing.lease_s * SECOND),
                grace_us=int(standing.grace_s * SECOND),
                generation=self._next_generation(),
                ready=self.is_ready,
                helps=self.helps(),
                names=self.names(),
                secret=standing.secret,
                resources=dict(standing.resources),
                share=standing.share,
                share_slots=standing.share_slots,
            ),
            answered,
        )

    def _next_generation(self) -> int:
        """Return a number that grows even where the clock is set back."""
        self._generation = max(self._generation + 1, time.time_ns() // 1000)
        return self._generation

    def _on_joined(
        self, connection: Connection, body: Any, error: JackalopeError | None, *, is_new: bool
    ) -> None:
        if isinstance(error, Rejected) and error.code in PASSING:
            wait_s = max(error.retry_after_s, self._join_again.next_s())
            asyncio.get_running_loop().call_later(wait_s, self.join)
        elif isinstance(error, Rejected):
            self._give_up(str(error))
        elif error is None:
            self._workload.drop(Held(task, fence) for task, fence in body["drop"])
            if is_new:
                self._joined.set()
                self._news.set()
                self._join_again.reset()
                log.info("joined", worker_id=self._standing.worker, slots=self._slots_told)
                self._workload.reports.resume(
                    connection, self._workload.attempts, keeps_logs=connection.welcome.logs
                )
                self._declare_schedules(connection)
                self._declare_contracts(connection)

    def _declare_limits(self, connection: Connection) -> None:
        """Declare the limits once, so that a reconnect undoes no live change, and join then."""

        def answered(_: Any, error: JackalopeError | None) -> None:
            is_refused = isinstance(error, Rejected) and error.code not in PASSING
            self._has_limited = error is None or is_refused
            if error is not None:
                advice = (
                    "declare them with app.declare_limits() and the API key of an administrator"
                )
                log.error("limits not declared", error=str(error), advice=advice)
            if connection is self._connection:
                self._join(connection)

        connection.ask(Manage(0, "declare_limits", {"limits": self._limits}), answered)

    def _declare_schedules(self, connection: Connection) -> None:
        """Declare the schedules of the application once; also that there are none any more."""
        if self._has_declared or not self._application:
            return

        def answered(_: Any, error: JackalopeError | None) -> None:
            self._has_declared = error is None
            if error is not None and self._schedules:
                log.error("schedules not declared", application=self._application, error=str(error))

        about = {"app": self._application, "schedules": self._schedules}
        connection.ask(Manage(0, "declare_schedules", about), answered)

    def _declare_contracts(self, connection: Connection) -> None:
        """Declare what the tasks of the application take, whenever the worker has joined."""

        def answered(_: Any, error: JackalopeError | None) -> None:
            if error is not None:
                log.warning("contracts not declared", error=str(error))

        contracts = list(self._contracts.items())
        for begin in range(0, len(contracts), _CONTRACTS_PER_REQUEST):
            some = dict(contracts[begin : begin + _CONTRACTS_PER_REQUEST])
            about = {"queues": self._standing.queues, "contracts": some}
            connection.ask(Manage(0, "declare_contracts", about), answered)

    def _on_holding(self, is_holding: bool) -> None:
        self._pulse.hold(is_holding=is_holding)

    def _rejoin(self) -> None:
        """Join from scratch: the broker does not know this worker any more."""
        if self._joined.is_set():
            self._joined.clear()
            self.join()

    def _tell_slots_later(self) -> None:
        if self._slots_timer is None:
            loop = asyncio.get_running_loop()
            self._slots_timer = loop.call_later(_SLOTS_S, self._tell_slots)

    def _tell_slots(self) -> None:
        self._slots_timer = None
        if self._joined.is_set() and self._workload.slots != self._slots_told:
            self.join()

    def free(self, fence: int, why: str) -> None:
        """Report that the worker helps no more. If this is lost, the next join reports it."""
        connection = self._connection
        if connection is not None and self._joined.is_set():
            connection.ask(EndHelp(0, fence, why), _whatever)

    # Messages of the broker.

    def _heard(self, message: AnyMessage) -> None:
        if type(message) is Assign:
            self._workload.assign(message.assignments)
        elif type(message) is SignalAsked:
            self._workload.signal(message)
        elif type(message) is HelpAsked:
            self.on_help(message)
        elif type(message) is Notice:
            self._on_notice(message)

    def _on_notice(self, notice: Notice) -> None:
        if notice.what == "drain":
            self.on_drain()
        elif notice.what == "lease_lost":
            self._rejoin()
        elif notice.what == "replaced":
            self._give_up(f"another worker has joined as {self._standing.worker!r}")
        else:
            log.info("the broker says", what=notice.what, detail=notice.detail)

    def _give_up(self, why: str) -> None:
        self._is_wanted = False
        self._why_unwanted = why
        self._news.set()
        self.on_unwanted(why)


def _troubled(error: JackalopeError) -> None:
    log.warning("not connected", why=str(error))


def _nothing(*_: object) -> None:
    pass


def _whatever(_: Any, __: JackalopeError | None) -> None:
    pass


# The pulse: the process that sends the heartbeats, which is started again if it dies.


# As a plain file and without site packages: it starts in a few milliseconds and stays small.
_COMMAND = (sys.executable, "-I", "-S", str(Path(__file__).with_name("pulse.py")))

_codec = peer_codec()


def _tls_words(address: Address) -> tuple[str, ...]:
    """Return how the connection is encrypted; empty where it is plain."""
    if not address.tls:
        return ()
    ca_file = str(Path(address.ca_file).absolute()) if address.ca_file else ""
    return ("verify" if address.verify else "trust", ca_file.encode().hex())


class PulseKeeper:
    """Keeps one pulse going."""

    def __init__(self) -> None:
        self.pid = 0  # the process of the pulse; 0 while there is none
        self._orders = b""
        self._guard_s = 0.0
        self._is_holding = False
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep(), name="jackalope-pulse")

    def beat_for(self, address: Address, hello: Hello, every_s: float) -> None:
        """Have it beat for a session, whose pulse stands in the greeting."""
        words = (
            address.hosts,
            f"{every_s:.3f}",
            # The pulse alone lets it in; the token is not its business.
            _codec.encode(msgspec.structs.replace(hello, token="", follows=True)).hex(),
            _codec.encode(Heartbeat(ref=1)).hex(),
            *_tls_words(address),
        )
        self._orders, self._guard_s = (" ".join(words) + "\n").encode(), 0.0
        self._tell(self._orders)

    def guard(self, limit_s: float, joined: float) -> None:
        """Have this process killed when it holds tasks and the broker is silent for so long.

        `joined` is when, by the clock of the pulse, the word was sent by which the broker knows the
        worker as that of the session for which the pulse beats.
        """
        self._guard_s = limit_s
        self._tell(self._guarding(joined))

    def hold(self, *, is_holding: bool) -> None:
        """Take the word that the worker holds tasks, or that it does not."""
        self._is_holding = is_holding
        if self._guard_s:
            self._tell(self._holds())

    def _guarding(self, joined: float) -> bytes:
        if not self._guard_s:
            return b""
        until = joined + self._guard_s
        return f"guard {self._guard_s:.3f} {until:.3f}\n".encode() + self._holds()

    def _holds(self) -> bytes:
        return b"holds 1\n" if self._is_holding else b"holds 0\n"

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        self.pid = 0

    async def _keep(self) -> None:
        backoff = Backoff()
        while True:
            try:
                log.warning(
                    "the heartbeat process has ended; restarting it", status=await self._live()
                )
            except OSError as error:
                log.warning("the heartbeat process cannot be started; retrying", why=str(error))
            await asyncio.sleep(backoff.next_s())

    async def _live(self) -> int:
        """Start the process, and return its status when it has ended."""
        self._process = await asyncio.create_subprocess_exec(
            *_COMMAND, str(os.getpid()), stdin=asyncio.subprocess.PIPE, start_new_session=True
        )
        self.pid = self._process.pid
        if self._orders:
            self._tell(self._orders + self._guarding(now()))
        return await self._process.wait()

    def _tell(self, lines: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError, RuntimeError):
                self._process.stdin.write(lines)
