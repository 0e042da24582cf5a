"""The process of a broker: opens the storage, declares what is configured, opens the doors.

Owns start, stop and exit codes. Decides nothing about tasks.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import socket
import ssl
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import click
import structlog
from msgspec.structs import replace

from jackalope import __version__
from jackalope.broker.access import THE_BROKER, Access
from jackalope.broker.cluster.members import cluster_problems
from jackalope.broker.config.callbacks import allowed_targets, callback_settings_problems
from jackalope.broker.config.certificates import Certificates
from jackalope.broker.config.exposure import exposure_problems, may_be_open, server_context
from jackalope.broker.config.loader import Declarations, declaration_problems
from jackalope.broker.config.schema import Config
from jackalope.broker.local_session import LocalSession
from jackalope.broker.queries import Refused
from jackalope.broker.service import Broker, TurnListener
from jackalope.broker.telemetry.event_log import EventLog
from jackalope.cli.base import Exit, Failure, say_error
from jackalope.cli.blob_store import store_of
from jackalope.cli.commands.serve import HOW_TO_HAVE_HTTP, bad_config, has_http
from jackalope.cli.grpc_door import grpc_problems, open_grpc
from jackalope.core.effects import Accepted
from jackalope.core.shapes.pool import NO_LAUNCHER
from jackalope.doors.native import NativeDoor
from jackalope.storage import FolderBusy, Level, Storage, StorageFault
from jackalope.storage.data_folder import FolderLock, folder_id
from jackalope.storage.disk import make_folder
from jackalope.storage.journals import JournalPlace
from jackalope.storage.standby import (
    StandbyMark,
    finish_copy,
    read_fence,
    read_standby,
    refusal_of,
    was_promoted,
    why_fenced,
    write_standby,
)
from jackalope.transport.address import Address

if TYPE_CHECKING:
    from jackalope.broker.cluster.node import Node
    from jackalope.broker.telemetry.tracing import Tracer
    from jackalope.cli.cluster import ClusterPlace
    from jackalope.doors.amqp import AmqpDoor
    from jackalope.doors.forwarding import Forwarding
    from jackalope.doors.http.app import HttpDoor
    from jackalope.doors.http.management.server import ManagementDoor
    from jackalope.pools.launcher import Launcher
    from jackalope.pools.reconciler import PoolService

log = structlog.get_logger(component="broker")


class Door(Protocol):
    """A way into the broker, once it is open."""

    async def stop(self) -> None:
        """Accept no more connections, and close."""


class Work(Protocol):
    """What works: a broker that is alone, or the node that drives it."""

    async def start(self) -> None:
        """Begin."""

    async def stop(self) -> None:
        """End in good order."""


async def run_broker(config: Config, *, accepts_loss: bool = False) -> Exit:
    """Run a broker until asked to stop, and return the exit code."""
    _tune()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, stop)
    config = _without_follow(config)
    _refuse_bad(config)
    tracers, event_log = _tracers(config), EventLog(config.log)
    listeners: list[TurnListener] = [event_log, *tracers]
    place = _place_in_cluster(config)
    storage = await _open(config, place, accepts_loss=accepts_loss)
    broker = _make(config, storage, listeners)
    worker, forwarding = _join(broker, place)
    if place is None:
        worker = _worker_of(broker, storage, config)
    try:
        doors = await _start(broker, worker, config, forwarding)
        doors += [] if place is None or place.pools is None else [place.pools]
    except BaseException:
        with suppress(Exception):
            await worker.stop()
        raise
    watching = asyncio.create_task(event_log.watch(broker), name="jackalope-event-log")
    try:
        return await _run((broker, worker), tracers, doors, config, stop)
    finally:
        watching.cancel()
        if place is not None:
            await place.rest()
            await asyncio.to_thread(place.close)


# Starting.


def _tune() -> None:
    """Fit the interpreter to a process that is nothing but a broker.

    Threads hand over soon: the journal's and the history's must not wait 5 ms for the loop, nor it
    for them. The collector looks seldom: nearly nothing here is ever part of a cycle, and looking
    through a million tasks takes long.
    """
    sys.setswitchinterval(0.0005)
    gc.set_threshold(100_000, 50, 100)


def _refuse_bad(config: Config) -> None:
    """Refuse what can be refused before there is a data folder."""
    if config.peer.port and not config.peer.secret:
        raise bad_config(["peer.secret: needed with `peer.port`"])
    if problems := _standby_problems(config):
        raise bad_config(problems)
    is_new = JournalPlace(Path(config.data.folder)).kind is None and not config.cluster.id
    problems = exposure_problems(config, has_keys=bool(config.auth.keys)) if is_new else []
    problems += (declaration_problems(config) if is_new else []) + grpc_problems(config)
    problems += callback_settings_problems(config.callbacks)
    if problems:
        raise bad_config(problems)
    _check_tls(config)
    if config.amqp.enabled:
        _check_tls(config, config.amqp.client_ca)
    if is_new:
        _try_ports(config)


def _without_follow(config: Config) -> Config:
    """Let a standby that was promoted lead, although its configuration still names a primary."""
    if not (config.peer.follow and was_promoted(Path(config.data.folder))):
        return config
    log.warning("this standby was promoted: `peer.follow` is ignored", follow=config.peer.follow)
    return replace(config, peer=replace(config.peer, follow=""))


def _standby_problems(config: Config) -> list[str]:
    if not config.peer.follow:
        return []
    problems = []
    if not config.peer.secret:
        problems.append("peer.secret: needed with `peer.follow`")
    if config.cluster.id:
        problems.append("peer.follow: not for a node of a cluster")
    if config.data.durability is Level.MEMORY:
        problems.append("peer.follow: needs a `data.durability` other than `memory`")
    if config.launchers:
        problems.append("launchers: a standby starts no workers; leave pools to the primary")
    return problems


def _try_ports(config: Config) -> None:
    """See that the ports can be had. The doors take them later, with a data folder behind them."""
    native, http, amqp, grpc = config.native, config.http, config.amqp, config.grpc
    has_pages = http.enabled and has_http()
    for is_wanted, host, port, flag in (
        (True, native.host, native.port, "--port"),
        (has_pages, http.host, http.port, "--http-port"),
        (amqp.enabled, amqp.host, amqp.port, "--amqp-port"),
        (grpc.enabled, grpc.host, grpc.port, "--grpc-port"),
        (
            amqp.enabled and amqp.management,
            amqp.host,
            amqp.management_port,
            "--amqp-management-port",
        ),
    ):
        if not is_wanted or not port:
            continue
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, _, _, _, address = found[0]
            socket.create_server(address, family=family).close()
        except OSError as error:
            raise _cannot_listen(error, host, port, flag) from None


def _place_in_cluster(config: Config) -> ClusterPlace | None:
    """Return the place of this broker in a cluster; None if it is alone."""
    if not config.cluster.id:
        return None
    from jackalope.cli.cluster import ClusterPlace, missing_packages

    if problems := cluster_problems(config) + missing_packages(config.cluster):
        raise bad_config(problems)
    return ClusterPlace(config, make_launchers(config))


def _worker_of(broker: Broker, storage: Storage, config: Config) -> Work:
    """Return what drives a broker that is in no cluster: itself, unless it has or is a standby."""
    if not (config.peer.port or config.peer.follow):
        return broker
    from jackalope.cli.peering import pair_of

    try:
        pair = pair_of(broker, storage, config)
    except ValueError as error:
        storage.close()
        raise bad_config([str(error)]) from None
    if pair is None:
        return broker
    pair.on_lead = lambda: declare(broker, config)
    return pair


async def _open(config: Config, place: ClusterPlace | None, *, accepts_loss: bool) -> Storage:
    data = config.data
    try:
        store = store_of(config, os.environ)
        if place is not None:
            _refuse_fenced(Path(data.folder))
            return await place.open(store)
        if data.durability is not Level.MEMORY:
            _claim_folder(Path(data.folder), follows=bool(config.peer.follow))
        return Storage.open(
            Path(data.folder),
            data.durability,
            data.interval_us,
            store,
            kind=data.journal,
            has_writer_process=True,
            accepts_loss=accepts_loss,
        )
    except FolderBusy as fault:
        raise Failure(str(fault), code=Exit.BUSY) from None
    except StorageFault as fault:
        raise Failure(str(fault), code=Exit.STORAGE) from None


def _claim_folder(folder: Path, *, follows: bool) -> None:
    """Refuse a folder whose broker was replaced, or that is the copy of another's."""
    is_new = JournalPlace(folder).kind is None
    if why := refusal_of(folder, follows=follows, is_new=is_new):
        raise Failure(why, code=Exit.STORAGE)
    if follows and not is_new:
        lock = FolderLock(folder)
        try:
            finish_copy(folder)
        finally:
            lock.close()
    if follows and is_new:
        make_folder(folder)
        write_standby(folder, read_standby(folder) or StandbyMark())


def _refuse_fenced(folder: Path) -> None:
    """Refuse the folder of a node in whose cluster's place a standby leads."""
    fence = read_fence(folder) if folder.exists() else None
    if fence is not None:
        raise Failure(f"{folder}: {why_fenced(fence, 'cluster')}", code=Exit.STORAGE)


def _make(config: Config, storage: Storage, listeners: list[TurnListener]) -> Broker:
    access = Access(config.auth.keys, may_be_open=may_be_open(config))
    try:
        return Broker(
            storage,
            access=access,
            free_bytes_min=config.data.free_bytes_min,
            default_policy=config.queue_defaults.policy(),
            limits=config.limits,
            callback_targets=allowed_targets(config.callbacks),
            task_logs=config.task_logs,
            listeners=listeners,
        )
    except StorageFault as fault:
        storage.close()
        raise Failure(str(fault), code=Exit.STORAGE) from None


def _tracers(config: Config) -> list[Tracer]:
    """Return what sends traces: one, or none if they are not to be sent."""
    if not config.telemetry.endpoint:
        return []
    try:
        from jackalope.broker.telemetry.tracing import Tracer
    except ImportError:
        how = "telemetry.endpoint: needs OpenTelemetry; pip install 'jackalope[telemetry]'"
        raise bad_config([how]) from None
    return [Tracer(config.telemetry.endpoint)]


def _join(broker: Broker, place: ClusterPlace | None) -> tuple[Work, Forwarding | None]:
    """Return what works, and what the doors do while another node leads."""
    if place is None:
        return broker, None
    node = place.node(broker)
    try:
        return node, place.forwarding(node)
    except ValueError as error:
        raise bad_config([str(error)]) from None


async def _start(
    broker: Broker, worker: Work, config: Config, forwarding: Forwarding | None
) -> list[Door]:
    """Bring the broker to work, declare what is configured, and open the doors."""
    if problems := exposure_problems(config, has_keys=bool(broker.access.all_keys())):
        raise bad_config(problems)
    certificates = _certificates(config)
    tls = certificates.server()
    launchers = make_launchers(config) if broker.leader is None else {}
    await worker.start()
    pools = await start_pools(broker, config, launchers)
    if broker.leader is None:
        await declare(broker, config)
    native = await _open_native(broker, config, tls, forwarding)
    # Said at once: the other doors take a while to load.
    address = _announce(config, native)
    amqp = await _open_amqp(broker, config, certificates, forwarding)
    begin_pools(pools, config, native.port, 0 if amqp is None else amqp.port)
    grpc = await _open_grpc(broker, config, certificates)
    http = await _open_http(broker, config, tls, forwarding)
    pages = "" if http is None else _announce_http(config, http)
    management = None
    if amqp is not None:
        management = await _open_management(broker, config, amqp, tls, forwarding)
    doors: list[Door] = [
        each for each in (management, amqp, grpc, http, native) if each is not None
    ]
    doors += await _open_peer(broker, worker, config, tls)
    if forwarding is not None:
        certificates.trust_alike(forwarding.tls)
    if broker.peers is not None:
        certificates.trust_alike(broker.peers.who.tls)
    certificates.start()
    doors.append(certificates)
    where = {"address": address, "http": pages, "data": _folder(config)}
    log.info("broker started", **where, durability=config.data.durability.value)
    if config.auth.insecure and broker.access.is_open:
        log.warning(
            "every client that reaches this broker has all permissions", host=config.native.host
        )
    from jackalope.callbacks.service import deliver_callbacks

    doors += deliver_callbacks(broker, config.callbacks)
    return doors if pools is None else [pools, *doors]


def _check_tls(config: Config, client_ca: str = "") -> None:
    try:
        server_context(config.tls, client_ca)
    except ValueError as error:
        raise bad_config([str(error)]) from None


def _certificates(config: Config) -> Certificates:
    """Return the certificates of all doors, which SIGHUP reads again."""
    asked = ((config.amqp, config.amqp.client_ca), (config.grpc, config.grpc.client_ca))
    cas = tuple(ca for door, ca in asked if door.enabled)
    found = Certificates(config.tls, config.peer.ca, cas)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, found.reload)
    return found


async def _open_native(
    broker: Broker, config: Config, tls: ssl.SSLContext | None, forwarding: Forwarding | None
) -> NativeDoor:
    native = config.native
    door = NativeDoor(broker, native, tls if native.tls else None, forwarding)
    try:
        await door.start()
    except OSError as error:
        raise _cannot_listen(error, native.host, native.port, "--port") from None
    return door


async def _open_http(
    broker: Broker, config: Config, tls: ssl.SSLContext | None, forwarding: Forwarding | None
) -> HttpDoor | None:
    """Open the HTTP door, unless it is not wanted or not installed."""
    http = config.http
    if not http.enabled:
        return None
    if not has_http():
        log.info("the HTTP door is disabled", hint=HOW_TO_HAVE_HTTP)
        return None
    from jackalope.doors.http.app import HttpDoor

    door = HttpDoor(
        broker, http, gridlike=config.gridlike, tls=tls if http.tls else None, forwarding=forwarding
    )
    try:
        await door.start()
    except OSError as error:
        raise _cannot_listen(error, http.host, http.port, "--http-port") from None
    return door


async def _open_amqp(
    broker: Broker, config: Config, certificates: Certificates, forwarding: Forwarding | None
) -> AmqpDoor | None:
    amqp = config.amqp
    if not amqp.enabled:
        return None
    from jackalope.doors.amqp import AmqpDoor

    context = certificates.server(amqp.client_ca) if amqp.tls else None
    door = AmqpDoor(broker, amqp, context, forwarding)
    try:
        await door.start()
    except OSError as error:
        raise _cannot_listen(error, amqp.host, amqp.port, "--amqp-port") from None
    scheme = "amqps" if context else "amqp"
    click.echo(f"AMQP at {scheme}://{amqp.host}:{door.port}")
    return door


async def _open_grpc(broker: Broker, config: Config, certificates: Certificates) -> Door | None:
    try:
        return await open_grpc(broker, config, certificates)
    except OSError as error:
        raise _cannot_listen(error, config.grpc.host, config.grpc.port, "--grpc-port") from None


async def _open_management(
    broker: Broker,
    config: Config,
    amqp: AmqpDoor,
    tls: ssl.SSLContext | None,
    forwarding: Forwarding | None,
) -> ManagementDoor | None:
    """Open RabbitMQ's management API, if it is wanted."""
    wanted = config.amqp
    if not wanted.management:
        return None
    if not has_http():
        raise bad_config([f"amqp.management: needs the HTTP door; {HOW_TO_HAVE_HTTP}"])
    from jackalope.doors.amqp.server import ConnectionRegistry
    from jackalope.doors.http.management.server import ManagementDoor

    settings = replace(config.http, host=wanted.host, port=wanted.management_port)
    context = tls if wanted.tls else None
    links = ConnectionRegistry(amqp)
    door = ManagementDoor(
        broker, links, settings, amqp_port=amqp.port, tls=context, forwarding=forwarding
    )
    try:
        await door.start()
    except OSError as error:
        flag = "--amqp-management-port"
        raise _cannot_listen(error, wanted.host, wanted.management_port, flag) from None
    scheme = "https" if context else "http"
    click.echo(f"RabbitMQ's management API at {scheme}://{wanted.host}:{door.port}/api")
    return door


async def _open_peer(
    broker: Broker, worker: Work, config: Config, tls: ssl.SSLContext | None
) -> list[Door]:
    """Open the peer door and begin to ask the other members, if it is wanted."""
    if not (config.cluster.id or config.peer.port or config.peer.follow):
        return []
    from jackalope.broker.cluster.node import Node
    from jackalope.broker.cluster.primary import Primary
    from jackalope.broker.cluster.standby import Standby
    from jackalope.cli.peering import peer_door, peers_of

    node = worker if isinstance(worker, Node) else None
    pair = worker if isinstance(worker, Primary | Standby) else None
    door = peer_door(broker, node, config, tls, pair)
    if door is None:
        return []
    try:
        broker.peers = peers_of(config, broker.access)
        await door.start()
    except ValueError as error:
        raise bad_config([str(error)]) from None
    except OSError as error:
        raise _cannot_listen(error, config.peer.host, door.port, "peer.port") from None
    broker.peers.start()
    return [broker.peers, door]


def _cannot_listen(error: OSError, host: str, port: int, flag: str) -> Failure:
    where = f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        hint = f"another program listens there; stop it, or choose another with {flag}"
        return Failure(f"cannot listen on {where}", hint, Exit.BUSY)
    hint = f"choose another address, or a port above 1023 with {flag}"
    reason = error.strerror or str(error)
    return Failure(f"cannot listen on {where}: {reason}", hint)


def _announce(config: Config, door: NativeDoor) -> str:
    has_tls = bool(config.tls.cert) and config.native.tls
    address = str(Address(config.native.host, door.port, tls=has_tls))
    level = config.data.durability.value
    click.echo(
        f"jackalope {__version__} at {address}, data in {_folder(config)}, durability {level}"
    )
    return address


def _announce_http(config: Config, door: HttpDoor) -> str:
    scheme = "https" if config.tls.cert and config.http.tls else "http"
    pages = f"{scheme}://{config.http.host}:{door.port}"
    click.echo(f"HTTP at {pages}, its description at {pages}/api/docs")
    return pages


def _folder(config: Config) -> str:
    data = config.data
    return "memory" if data.durability is Level.MEMORY else str(Path(data.folder).resolve())


async def declare(broker: Broker, config: Config) -> None:
    """Declare the queues, pools and limits of the configuration: all of them, or none."""
    wanted, session = Declarations(config), LocalSession(broker, THE_BROKER)
    session.open()
    try:
        answer = await session.ask(wanted.command)
    except Refused as refused:
        raise Failure(str(refused), code=Exit.STORAGE) from None
    finally:
        session.close()
    if isinstance(answer, Accepted) and answer.refused:
        raise bad_config(wanted.problems(list(answer.refused)))


# Running and stopping.


def _on_signal(stop: asyncio.Event) -> None:
    if stop.is_set():
        # The second time: nothing acknowledged is lost, it is only written behind at the next
        # start.
        os._exit(Exit.FAILED)
    stop.set()


async def _run(
    work: tuple[Broker, Work],
    tracers: list[Tracer],
    doors: list[Door],
    config: Config,
    stop: asyncio.Event,
) -> Exit:
    """Work until asked to stop or unable to go on, and return the exit code."""
    broker, worker = work
    stopping = asyncio.create_task(stop.wait())
    failing = asyncio.create_task(broker.failed())
    await asyncio.wait([stopping, failing], return_when=asyncio.FIRST_COMPLETED)
    if failing.done():
        await _close(doors)
        return _failed(failing.exception())
    log.info("broker stops")
    try:
        async with asyncio.timeout(config.shutdown.deadline_us / 1e6):
            if config.cluster.id:
                await cast("Node", worker).leave()  # Clients wait for the next leader.
            await _close(doors)
            await worker.stop()
            for tracer in tracers:
                await asyncio.to_thread(tracer.stop)
    except TimeoutError:
        # A thread hangs in the disk, and would keep the process from ending.
        say_error(
            "shutdown deadline exceeded; what is not in history is recovered from the journal"
        )
        os._exit(Exit.FAILED)
    except Exception as error:  # noqa: BLE001  it decides the exit code
        return _failed(error)
    finally:
        failing.cancel()
    log.info("broker stopped")
    return Exit.DONE


async def _close(doors: list[Door]) -> None:
    await asyncio.gather(*(door.stop() for door in doors))


def _failed(error: BaseException | None) -> Exit:
    if isinstance(error, StorageFault):
        raise Failure(str(error), code=Exit.STORAGE)
    log.error("broker failed", exc_info=error)
    return Exit.FAILED


# The launchers that are configured: made, and brought to work.

#: Where launchers keep their own notes, below the data folder.
_FOLDER = "launchers"


def make_launchers(config: Config) -> dict[str, Launcher]:
    """Make every launcher that is configured. Nothing is started yet.

    Each owns what it starts: another launcher of this broker does not see it, nor does another
    broker. In a cluster, the launchers of all nodes own together what all of them see.
    """
    if not config.launchers:
        return {}
    from jackalope.pools.launchers import make_launcher

    home, made, problems = Path(config.data.folder).resolve(), {}, []
    for name, settings in config.launchers.items():
        if name == NO_LAUNCHER or settings.get("type") == "none":
            problems.append(
                f"launchers.{name}: workers that are started by hand need no launcher; "
                f"leave the pool's at {NO_LAUNCHER}"
            )
            continue
        try:
            owner = f"{_owner(config, home, settings)}/{name}"
            made[name] = make_launcher(settings, home / _FOLDER / name, owner)
        except ValueError as error:
            problems.append(f"launchers.{name}: {error}")
    if problems:
        raise bad_config(problems)
    return made


def _owner(config: Config, home: Path, settings: Mapping[str, object]) -> str:
    """Return whose workers these are."""
    from jackalope.pools.launchers import is_local

    cluster = config.cluster
    if cluster.id:
        return f"{cluster.id}/{cluster.node}" if is_local(settings) else cluster.id
    # Two brokers may have folders of the same name, each in its own container.
    home.mkdir(parents=True, exist_ok=True)
    return folder_id(home)


async def start_pools(
    broker: Broker, config: Config, launchers: dict[str, Launcher]
) -> PoolService | None:
    """Register the launchers with the broker, if there are any."""
    if not launchers:
        return None
    from jackalope.pools.reconciler import PoolService

    service = PoolService(broker, launchers, config.launch.every_us / 1e6)
    await service.start()
    return service


def begin_pools(service: PoolService | None, config: Config, port: int, amqp_port: int) -> None:
    """Let workers be started, now that there are doors for them; AMQP's has no port if it is shut.

    What is configured comes first: workers on another machine reach the broker otherwise.
    """
    if service is not None:
        from jackalope.pools.launcher import Reach

        address = config.launch.address or str(_address(config, port))
        amqp = config.launch.amqp or (amqp_port and _amqp_address(config, amqp_port))
        service.begin(Reach(address, amqp or "", config.amqp.message_bytes_max))


def _address(config: Config, port: int) -> Address:
    """Return where workers on the same machine reach the native door."""
    host = _here(config.native.host)
    return Address(host, port, tls=bool(config.tls.cert) and config.native.tls)


def _amqp_address(config: Config, port: int) -> str:
    """Return where workers on the same machine reach the AMQP door."""
    host = _here(config.amqp.host)
    scheme = "amqps" if config.tls.cert and config.amqp.tls else "amqp"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _here(host: str) -> str:
    """Return where a client on the same machine reaches what listens at a host."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  looked for, not used
