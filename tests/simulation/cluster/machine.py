"""A machine of a cluster: the real node, broker and journal, in a process that suffers."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from jackalope.broker.access import THE_BROKER
from jackalope.broker.cluster.leadership import Role
from jackalope.broker.cluster.node import Node
from jackalope.broker.cluster.peer_host import PeerHost
from jackalope.broker.engine import Turn
from jackalope.broker.service import Broker
from jackalope.core.commands import CloseSession, Command
from jackalope.core.durations import MILLISECOND
from jackalope.core.effects import Effect
from jackalope.core.records import AnyRecord
from jackalope.storage import DiskFull, Level, LogStore, Storage, StorageFault
from jackalope.storage.data_folder import SHARDS
from jackalope.storage.disk import make_folder
from jackalope.storage.memory import MemoryBlobs
from jackalope.storage.segments.segment import HEADER_BYTES, path_of
from jackalope.storage.shared.journal import SharedJournal
from jackalope.storage.shared.mirror import Mirror, open_mirror
from jackalope.storage.snapshots import HISTORY, MIRROR, install
from jackalope.storage.sqlite.history import History, sequence_in
from jackalope.storage.sqlite.history_writer import Writer
from jackalope.storage.sqlite.schema import open_history
from jackalope.storage.sqlite.series import SeriesStore
from tests.simulation.cluster.checker import Batch
from tests.simulation.cluster.peers import SimLink, SimPeers
from tests.simulation.cluster.process import Clock, Process
from tests.simulation.log import SlowEngine
from tests.simulation.world import Link, Peer

if TYPE_CHECKING:
    from tests.simulation.cluster.run import Cluster

#: Where clients and workers are.
OUTSIDE = "outside"


class ClusterLink(Link):
    """A connection to one life of one machine, over a network that may be cut."""

    def __init__(self, machine: Machine, peer: Peer, life: Life) -> None:
        super().__init__(machine.cluster.world, machine, peer, 0)  # type: ignore[arg-type]
        self.machine = machine
        self.life = life

    def up(self, command: Command) -> None:
        """Send a command as bytes, as it is: no two brokers share an object."""
        copied = msgspec.msgpack.decode(msgspec.msgpack.encode(command), type=type(command))
        super().up(copied)

    def _send(self, *, is_up: bool, deliver: Callable[[], None]) -> None:
        way = (OUTSIDE, self.machine.name) if is_up else (self.machine.name, OUTSIDE)
        if not self.machine.cluster.network.reaches(*way):
            self.cut()
            return
        super()._send(is_up=is_up, deliver=deliver)


class Door:
    """The broker's side of a connection."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.link: ClusterLink

    def deliver(self, effects: list[Effect]) -> None:
        machine, world = self.life.machine, self.life.machine.cluster.world
        for effect in effects:
            if self.life.process.is_dead:
                return
            world.say(machine.name, effect)
            machine.cluster.checker.on_told(self.life, effect)
            self.link.down(effect)
            if world.chance(machine.cluster.faults.crash_at_effect):
                machine.crash("between two effects")

    def end(self, why: str) -> None:
        self.life.machine.cluster.world.say(self.life.machine.name, f"ends a session: {why}")
        self.link.node_knows = True
        self.link.cut()


class NodeBlobs(MemoryBlobs):
    """The store of blobs that all nodes share, as one of them sees it."""

    def __init__(self, life: Life) -> None:
        super().__init__()
        self._life = life
        self._blobs = life.machine.cluster.blobs

    def delete(self, name: str) -> None:
        if not self._life.process.is_dead:
            self._life.machine.cluster.checker.on_blob_deleted(self._life, name)
            super().delete(name)


class DiskHistory(History):
    """A history in memory that outlives a process, and is replaced by a file that was received."""

    def __init__(self, home: Path) -> None:
        self._file = home / HISTORY
        super().__init__(None)

    def _open(self) -> None:
        self._db = open_history(None)
        if self._file.exists():
            with closing(sqlite3.connect(self._file)) as received:
                received.backup(self._db._writer)
            self._file.unlink()
        with self._db.reading() as connection:
            self._applied = sequence_in(connection)
        self._writer = Writer(self._db)

    def reopen(self, change: Callable[[], object]) -> None:
        change()
        if self._file.exists():
            self.close()
            self._open()


class Life:
    """What is lost with a process: a broker and a node in it."""

    def __init__(self, machine: Machine) -> None:
        cluster = machine.cluster
        self.machine = machine
        self.process = Process(  # type: ignore[abstract]
            cluster.world, machine.name, machine.clock
        )
        self.links: dict[ClusterLink, None] = {}
        self.lent: dict[SimLink, None] = {}  # the links of other nodes to this one
        with self.process.context():
            engine = SlowEngine(cluster.log, self.process, cluster.message_bytes_max)
            machine.history.reopen(lambda: install(machine.home))
            mirror, _ = open_mirror(machine.home / MIRROR, machine.history.applied())
            self.journal = SharedJournal(engine, mirror, "sim", machine.name)
            self._tend(mirror)
            opened = ExitStack()
            opened.callback(self.journal.close)
            storage = Storage(
                level=Level.FSYNC,
                journal=self.journal,
                history=machine.history,
                blobs=NodeBlobs(self),
                series=machine.series,
                logs=LogStore(None),
                _opened=opened,
                path=machine.folder,
            )
            self.broker = Broker(storage, listeners=[self])
            self.broker.engine._trim_batches = cluster.trim_batches
            names = cluster.world.columns
            before = tuple(names[: machine.place])
            self.node = Node(self.broker, self.journal, machine.place, cluster.timing, before)
            self.node.members = len(names)
            self.node.trimmer.keep = cluster.keep
            self.host = PeerHost(self.broker, "sim", machine.name, self.node)
            self.peers = self.broker.peers = SimPeers(self)
            self._watch()
            self._living = self.process.create_task(self._live(), name="life")

    def _tend(self, mirror: Mirror) -> None:
        """Know what of a mirror is on the disk, which may be full."""
        self.mirror = mirror
        self.synced = self._end_of_mirror()
        self._sync, mirror.sync = mirror.sync, self._synced  # type: ignore[method-assign]
        mirror.take = self.machine.unless_full(mirror.take)  # type: ignore[method-assign]

    def _end_of_mirror(self) -> tuple[int, int]:
        """Return the number of the segment that is written, and how far."""
        return self.mirror._header.number, self.mirror._offset

    def _synced(self) -> None:
        self._sync()
        self.synced = self._end_of_mirror()

    def tear(self) -> None:
        """Lose some of what was written last and is not on the disk yet."""
        number, end = self._end_of_mirror()
        begin = self.synced[1] if self.synced[0] == number else HEADER_BYTES
        if begin < end:
            kept = self.machine.cluster.world.rng.randrange(begin, end)
            with path_of(self.mirror.folder, number).open("r+b") as file:
                file.seek(kept)
                file.write(bytes(end - kept))

    @property
    def leads(self) -> bool:
        return not self.process.is_dead and self.node.view.role is Role.LEADING

    def _watch(self) -> None:
        """Let the checker see every turn that is settled, and every batch that is followed."""
        engine, cluster = self.broker.engine, self.machine.cluster
        settle, follow, append = engine.settle, engine.follow, self.journal.append
        adopt_mirror, adopt = self.journal.adopt, self.broker.adopt

        def settled(turn: Turn) -> list[Effect]:
            effects = settle(turn)
            cluster.checker.on_settled(self, turn, effects)
            return effects

        def followed(sequence: int, body: bytes) -> list[AnyRecord]:
            records = follow(sequence, body)
            cluster.checker.on_applied(self)
            return records

        def appended(body: bytes) -> int:
            sequence, epoch = self.journal.mark.sequence + 1, self.journal.mark.epoch
            try:
                return append(body)
            except StorageFault as fault:
                if fault.is_settled:
                    cluster.checker.on_refused(sequence, Batch(epoch, body))
                raise

        def adopted_mirror(mirror: Mirror) -> None:
            self._tend(mirror)
            adopt_mirror(mirror)

        async def adopted() -> None:
            await adopt()
            cluster.checker.on_restored(self)

        self.journal.adopt = adopted_mirror  # type: ignore[method-assign]
        self.broker.adopt = adopted  # type: ignore[method-assign]
        self.journal.append = appended  # type: ignore[method-assign]
        engine.settle = settled  # type: ignore[method-assign]
        engine.follow = followed  # type: ignore[method-assign]

    def take(self, turn: Turn, _core: object) -> None:
        """Take a turn whose effects were sent."""
        if turn.body:
            self.machine.cluster.checker.on_applied(self)

    async def _live(self) -> None:
        try:
            await self.node.start()
            self.peers.start()
            await self.broker.failed()
        except StorageFault as fault:
            self.machine.on_fault(self, fault)
        except Exception as error:  # noqa: BLE001  whatever it is, it must not happen
            self.machine.cluster.world.failure = error

    async def stop(self) -> None:
        """Stop in good order, and come back."""
        await self.peers.stop()
        await self.node.stop()
        self.machine.crash("in good order")


class Machine:
    """What a machine has between two lives of its node."""

    def __init__(self, cluster: Cluster, name: str, place: int, folder: Path, clock: Clock) -> None:
        self.cluster = cluster
        self.name = name
        self.place = place
        self.folder = folder / name
        self.home = self.folder / SHARDS / "0"
        self.clock = clock
        self.series = SeriesStore(None)
        self.life: Life | None = None
        self.lives = 0
        self.full_until_us = 0
        self.has_lost_disk = False  # and has not taken over another's state since
        self._graves: list[Life] = []
        self._new_disk()

    def _new_disk(self) -> None:
        make_folder(self.home)
        self.history = DiskHistory(self.home)
        self.history.write = self.unless_full(self.history.write)  # type: ignore[method-assign]

    def unless_full(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def careful(*args: object) -> object:
            if self.cluster.world.now_us < self.full_until_us:
                raise DiskFull("the disk is full")
            return write(*args)

        return careful

    # Life and death.

    def start(self) -> None:
        if self.life is None:
            self.lives += 1
            self.cluster.world.say(self.name, "starts")
            self.life = Life(self)

    def crash(self, where: str) -> None:
        """Die, and come back after a while."""
        life, world = self.life, self.cluster.world
        if life is None:
            return
        world.say(self.name, f"dies {where}")
        life.process.is_dead = True
        self.life = None
        self._graves.append(life)
        life.mirror.close()
        for link in list(life.links):
            link.node_knows = True
            link.cut()
        for lent in list(life.lent):
            lent.close()
        if world.chance(self.cluster.faults.wipe) and self.cluster.has_another_state(self):
            self.wipe()
        elif world.chance(self.cluster.faults.tear):
            life.tear()
        world.after(world.rng.randrange(50 * MILLISECOND, self.cluster.faults.down_us), self.start)

    def wipe(self) -> None:
        """Lose the disk."""
        self.cluster.world.say(self.name, "loses its disk")
        shutil.rmtree(self.folder)
        self.history.close()
        self._new_disk()
        self.has_lost_disk = True

    def on_fault(self, life: Life, fault: StorageFault) -> None:
        """Note that the node ended by itself."""
        self.cluster.checker.on_fault(life, fault)
        if life is self.life:
            self.crash(f"because of {fault}")

    def bury(self) -> None:
        """Let go of everything, at the end of the world."""
        if self.life is not None:
            self.life.process.is_dead = True
            self.life.mirror.close()
            self._graves.append(self.life)
        for life in self._graves:
            life.process.bury()
        self.history.close()
        self.series.close()

    # Its door.

    def open(self, peer: Peer) -> ClusterLink | None:
        """Let a peer in, if this node leads."""
        life = self.life
        if life is None:
            return None
        door = Door(life)
        link = door.link = ClusterLink(self, peer, life)
        link.session = life.broker.open_session(door)
        life.links[link] = None
        return link

    def receive(self, link: ClusterLink, command: Any) -> None:
        """Take what arrived over a connection."""
        life = link.life
        life.process.later(0, lambda: self._take(life, link, command))

    def _take(self, life: Life, link: ClusterLink, command: Any) -> None:
        if isinstance(command, CloseSession):
            life.links.pop(link, None)
            life.broker.close_session(link.session)
        elif link in life.links:
            life.broker.post(command, THE_BROKER)
