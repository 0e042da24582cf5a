"""A node of a cluster: its log, its storage, and the nats-server that it supervises.

Puts the parts together as the configuration says. Knows neither who leads nor what is in the log.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, cast

import structlog

from jackalope.broker.cluster.leadership import Role
from jackalope.broker.cluster.levels import Levels
from jackalope.broker.cluster.members import Member, members_of, timing_of
from jackalope.broker.cluster.node import Node
from jackalope.broker.cluster.skew import ClockRule
from jackalope.broker.cluster.trimming import Keep
from jackalope.broker.config.exposure import client_context
from jackalope.broker.config.schema import ClusterConfig, ClusterLog, Config, Upgrade
from jackalope.broker.service import Broker
from jackalope.core.assertions import must
from jackalope.core.durations import SECOND
from jackalope.doors.forwarding import Forwarding
from jackalope.storage import Blobs, OutOfReach, Storage, StorageFault
from jackalope.storage.blobs.folder import FolderBlobs
from jackalope.storage.data_folder import BLOBS, SHARDS
from jackalope.storage.shared.journal import SharedJournal
from jackalope.storage.shared.log import LogEngine
from jackalope.storage.shared.nats_server import NatsServer, ServerPlace
from jackalope.storage.snapshots import MOVING
from jackalope.transport.address import Address
from jackalope.wire.peer import PART_BYTES, LogCopy, LogHealth

if TYPE_CHECKING:
    from jackalope.pools.launcher import Launcher, Reach
    from jackalope.pools.leading import LeaderPools
    from jackalope.storage.shared.jetstream import JetStreamEngine

log = structlog.get_logger(component="cluster")

#: How often the server is looked at, and how long one that was started again is left alone.
_LOOK_S = 1.0
_REST_S = 10.0

#: How often the log is asked how it is.
_LOG_S = 3.0

#: How long the log may take to answer at the start: the other nodes may not be there yet.
_OPEN_S = 120.0


def missing_packages(cluster: ClusterConfig) -> list[str]:
    """Name what must be installed for the log that is configured, and is not."""
    is_postgres = cluster.log is ClusterLog.POSTGRES
    package, extra = ("psycopg", "postgres") if is_postgres else ("nats", "cluster")
    if find_spec(package) is not None:
        return []
    return [f"cluster.log: `{cluster.log}` needs pip install 'jackalope[{extra}]'"]


class ClusterPlace:
    """What a node has beside its broker: the client of the log, and the server behind it."""

    def __init__(self, config: Config, launchers: Mapping[str, Launcher] | None = None) -> None:
        self._config = config
        self._launchers = launchers or {}
        self.pools: LeaderPools | None = None  # if there are launchers, once there is a node
        self.members: dict[str, Member] = members_of(config)
        self.server: NatsServer | None = None
        self._journal: SharedJournal | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self, store: Callable[[str], Blobs] | None) -> Storage:
        """Start the log if it is ours, connect to it, and open the data folder."""
        folder = Path(self._config.data.folder)
        return await asyncio.to_thread(self._open, folder, store)

    def _open(self, folder: Path, store: Callable[[str], Blobs] | None) -> Storage:
        cluster = self._config.cluster
        engine = self._open_log(folder)
        try:
            storage = Storage.open_node(
                folder,
                engine,
                cluster.id,
                cluster.node,
                self._blobs(engine, store),
                has_writer_process=True,
            )
        except BaseException:
            engine.close()
            raise
        for problem in storage.problems:
            log.error("mended", problem=problem)
        self._journal = cast("SharedJournal", storage.journal)
        self._journal.may_begin = cluster.founder in ("", cluster.node)
        try:
            self._found(folder, engine, storage)
        except BaseException:
            storage.close()
            raise
        return storage

    def _found(self, folder: Path, engine: LogEngine, storage: Storage) -> None:
        """Bring what the log does not have to where all nodes find it, if this node begins it."""
        cluster, journal = self._config.cluster, cast("SharedJournal", storage.journal)
        if cluster.founder != cluster.node or engine.end():
            return
        if not journal.founds:
            raise StorageFault(
                f"{folder}: this node is `cluster.founder`, and has nothing to begin the cluster "
                "with; run `jackalope cluster init --from` on its machine"
            )
        there = FolderBlobs(folder / BLOBS)
        for name in there.names():
            storage.blobs.adopt(name, there.read(there.ref(name)))
        moving = folder / SHARDS / "0" / MOVING
        for path in moving.iterdir() if moving.exists() else ():
            with path.open("rb") as body:
                storage.blobs.adopt(path.name, iter(lambda: body.read(PART_BYTES), b""))
        shutil.rmtree(moving, ignore_errors=True)

    def _blobs(self, engine: LogEngine, store: Callable[[str], Blobs] | None) -> Blobs:
        if store is not None:
            return store(self._config.cluster.id)
        from jackalope.storage.blobs.jetstream import JetStreamBlobs

        return JetStreamBlobs(
            cast("JetStreamEngine", engine), self._config.cluster.node, self._replicas()
        )

    def _replicas(self) -> int:
        from jackalope.storage.shared.jetstream import REPLICAS

        return min(REPLICAS, len(self.members))

    def node(self, broker: Broker) -> Node:
        """Return what drives a broker as a node."""
        cluster = self._config.cluster
        journal = self._journal
        must(journal is not None, "the storage is open")
        names = tuple(self.members)
        place = names.index(cluster.node)
        node = Node(
            broker,
            cast("SharedJournal", journal),
            place,
            timing_of(self._config),
            before=names[:place],
        )
        node.on_lead = lambda: self._declare(broker)
        if self._launchers:
            self.pools = self._keep_pools(broker, node)
        node.find = self._find
        node.trimmer.keep = Keep(cluster.keep_log_bytes, cluster.keep_log_us)
        after_us = cluster.upgrade_after_us if cluster.upgrade is Upgrade.AUTO else 0
        node.levels = Levels(lambda: broker.peers, after_us)
        if cluster.secret:
            rule = ClockRule(
                lambda: None if broker.peers is None else broker.peers.skew(), cluster.skew_max_us
            )
            node.refusals.append(rule.refusal)
        self._tasks = [
            asyncio.create_task(self.supervise(), name="jackalope-nats-server"),
            asyncio.create_task(self._look_at_log(node), name="jackalope-log-health"),
        ]
        node.members = len(self.members)
        return node

    def forwarding(self, node: Node) -> Forwarding:
        """Return what the doors do with those who should be at another node."""
        cluster = self._config.cluster
        tls = client_context(self._config.tls, self._config.peer.ca)
        doors = tuple(member.address("native") for member in self.members.values())
        return Forwarding(node, cluster.forward, cluster.secret, tls, doors)

    async def _look_at_log(self, node: Node) -> None:
        """Keep what people are shown of the log up to date."""
        engine = cast("SharedJournal", self._journal).log
        while True:
            try:
                state = await asyncio.to_thread(engine.state)
            except OutOfReach:
                node.log_health = None
            else:
                copies = [LogCopy(e.name, e.is_current, e.lag) for e in state.replicas]
                node.log_health = LogHealth(state.engine, state.size, state.leader, tuple(copies))
            await asyncio.sleep(_LOG_S)

    async def _declare(self, broker: Broker) -> None:
        from jackalope.cli.serving import declare

        if self.pools is not None:
            await self.pools.lead()
        try:
            await declare(broker, self._config)
        finally:
            if self.pools is not None:
                self.pools.begin()

    def _keep_pools(self, broker: Broker, node: Node) -> LeaderPools:
        """Let pools be kept while this node leads."""
        from jackalope.pools.launchers import is_local
        from jackalope.pools.leading import LeaderPools

        # The only node leads again when it is started again, and finds all its workers.
        is_alone = len(self.members) == 1
        local = [
            name
            for name in self._launchers
            if not is_alone and is_local(self._config.launchers[name])
        ]
        every_s = self._config.launch.every_us / SECOND
        pools = LeaderPools(broker, self._launchers, local, self._reach(), every_s)

        def follow() -> None:
            view = node.view
            if view.role is not Role.LEADING:
                is_out = view.role in {Role.QUARANTINED, Role.FENCED}
                pools.follow(another_leads=is_out or view.leader not in ("", view.name))

        node.changed.append(follow)
        return pools

    def _reach(self) -> Reach:
        """Return how launched workers reach the cluster: this node first, then all others."""
        from jackalope.pools.launcher import Reach

        config, me = self._config, self.members[self._config.cluster.node]
        has_tls = bool(config.tls.cert)
        others = tuple((each.host, each.native) for each in self.members.values() if each != me)
        native = Address(me.host, me.native, tls=has_tls and config.native.tls, others=others)
        scheme = "amqps" if has_tls and config.amqp.tls else "amqp"
        amqp = f"{scheme}://{me.address('amqp')}" if config.amqp.enabled else ""
        launch = config.launch
        return Reach(
            launch.address or str(native), launch.amqp or amqp, config.amqp.message_bytes_max
        )

    def _find(self, name: str, door: str) -> str:
        member = self.members.get(name)
        return member.address(door) if member is not None else ""

    def _open_log(self, folder: Path) -> LogEngine:
        cluster = self._config.cluster
        if cluster.log is ClusterLog.POSTGRES:
            from jackalope.storage.shared.postgres import PostgresEngine

            database = PostgresEngine(cluster.dsn, cluster.id)
            database.open()
            return database
        from jackalope.storage.shared.jetstream import JetStreamEngine

        user = password = ""
        urls = list(cluster.urls)
        if cluster.log is ClusterLog.EMBEDDED:
            self.server = NatsServer(folder / "nats", self._place())
            self.server.start()
            self.server.wait()
            urls = [f"nats://{self.server.place.client}"]
            user, password = self.server.place.user, self.server.place.password
        engine = JetStreamEngine(
            urls, cluster.id, replicas=self._replicas(), user=user, password=password
        )
        engine.open(_OPEN_S)
        return engine

    def _place(self) -> ServerPlace:
        cluster = self._config.cluster
        me = self.members[cluster.node]
        return ServerPlace(
            name=cluster.node,
            cluster=cluster.id,
            client=f"127.0.0.1:{cluster.nats_port}",
            route=me.address("route"),
            routes=tuple(member.address("route") for member in self.members.values()),
            monitor=f"127.0.0.1:{cluster.monitor_port}",
            password=cluster.secret,
            binary=cluster.binary,
        )

    async def supervise(self) -> None:
        """Start the server again when it is gone, or cannot use its disk any more."""
        server = self.server
        while server is not None:
            await asyncio.sleep(_LOOK_S)
            if await asyncio.to_thread(self._is_gone, server):
                log.warning("nats-server is started again", last=server.last_words())
                try:
                    await asyncio.to_thread(server.start)
                except OutOfReach as fault:
                    log.exception("nats-server cannot be started", fault=str(fault))
                await asyncio.sleep(_REST_S)

    @staticmethod
    def _is_gone(server: NatsServer) -> bool:
        if server.pid() is None:
            return True
        if server.has_lost_its_disk():
            server.stop()
            return True
        return False

    def close(self) -> None:
        """Stop the server: the other nodes' go on."""
        if self.server is not None:
            self.server.stop()

    async def rest(self) -> None:
        """Look after the server no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
