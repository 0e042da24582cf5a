"""Several nodes in one process, each with a folder and a wire to the log that can be cut."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import ParamSpec

from jackalope.broker.access import THE_BROKER
from jackalope.broker.cluster.leadership import Role, Timing
from jackalope.broker.cluster.node import Node
from jackalope.broker.cluster.peer_host import PeerHost
from jackalope.broker.cluster.peer_link import Credentials
from jackalope.broker.cluster.peers import Peers
from jackalope.broker.local_session import LocalSession
from jackalope.broker.queries import Refused
from jackalope.broker.service import Broker
from jackalope.core.commands import SubmitTasks
from jackalope.core.durations import MILLISECOND
from jackalope.core.ids import TaskId
from jackalope.core.task import TaskSpec
from jackalope.doors.peer import PeerDoor
from jackalope.storage import OutOfReach, Storage
from jackalope.storage.memory import MemoryBlobs
from jackalope.storage.shared.log import Copied, LogEngine, LogState, Put
from tests.ports import free_port

#: Four times quicker than in earnest, so that a test takes seconds.
QUICK = Timing(
    beat_us=75 * MILLISECOND,
    read_lease_us=225 * MILLISECOND,
    takeover_us=300 * MILLISECOND,
    place_us=40 * MILLISECOND,
    courtesy_us=75 * MILLISECOND,
)
TIMEOUT_S = 30

P = ParamSpec("P")


def in_loop(test: Callable[P, Coroutine[None, None, None]]) -> Callable[P, None]:
    """Run a test in an event loop of its own."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def until(is_so: Callable[[], bool]) -> None:
    """Return when something is so."""
    async with asyncio.timeout(TIMEOUT_S):
        while not is_so():  # noqa: ASYNC110  what is waited for is not an event
            await asyncio.sleep(0.01)


class Wire:
    """An engine behind a wire that can be cut, or stop answering."""

    def __init__(self, engine: LogEngine) -> None:
        self.engine = engine
        self.message_bytes_max = engine.message_bytes_max
        self.is_cut = False
        self.loses_answers = False

    def put(self, position: int, message: bytes, timeout_s: float) -> Put:
        if self.is_cut:
            time.sleep(0.02)
            return Put.UNKNOWN
        outcome = self.engine.put(position, message, timeout_s)
        return Put.UNKNOWN if self.loses_answers else outcome

    def _open(self) -> LogEngine:
        if self.is_cut:
            raise OutOfReach("the wire is cut")
        return self.engine

    def get(self, position: int) -> bytes | None:
        return self._open().get(position)

    def read(self, after: int, count_max: int) -> list[tuple[int, bytes]]:
        return self._open().read(after, count_max)

    def wait(self, after: int, timeout_s: float) -> bool:
        return self._open().wait(after, timeout_s)

    def start(self) -> int:
        return self._open().start()

    def end(self) -> int:
        return self._open().end()

    def cut(self, through: int) -> None:
        self._open().cut(through)

    def state(self) -> LogState:
        return self._open().state()

    def read_copy(
        self, but: Collection[str], after: int, count_max: int
    ) -> tuple[str, list[tuple[int, bytes]]] | None:
        engine = self._open()
        return engine.read_copy(but, after, count_max) if isinstance(engine, Copied) else None

    def shun(self, copy: str) -> None:
        engine = self._open()
        if isinstance(engine, Copied):
            engine.shun(copy)

    def close(self) -> None:
        self.engine.close()


class Machine:
    """One node, that can be started and lost."""

    def __init__(self, name: str, place: int, folder: Path, engine: Callable[[], LogEngine]):
        self.name = name
        self._place = place
        self._folder = folder
        self._engine = engine
        self.wire: Wire
        self.node: Node
        self.broker: Broker
        self.is_up = False
        self.peer_ports: dict[str, int] = {}  # of all machines, where they have them
        self.door: PeerDoor | None = None
        self.founder = ""
        self.members = 1  # of the cluster

    async def start(self) -> None:
        self.wire = Wire(self._engine())
        storage = Storage.open_node(self._folder, self.wire, "c", self.name, MemoryBlobs())
        self.broker = Broker(storage)
        before = tuple("abcde"[: self._place])
        self.node = Node(self.broker, storage.journal, self._place, QUICK, before)  # type: ignore[arg-type]
        self.node.members = self.members
        storage.journal.may_begin = self.founder in {"", self.name}  # type: ignore[attr-defined]
        await self.node.start()
        self.is_up = True
        if self.peer_ports:
            await self._open_peer_door()

    async def _open_peer_door(self) -> None:
        where = {name: ("127.0.0.1", port) for name, port in self.peer_ports.items()}
        host = PeerHost(self.broker, "c", self.name, self.node)
        self.door = PeerDoor(host, where[self.name], "s")
        await self.door.start()
        self.broker.peers = Peers(where, Credentials("s", "c", self.name))
        self.broker.peers.start()

    async def _close_peer_door(self) -> None:
        if self.door is not None and self.broker.peers is not None:
            await self.door.stop()
            await self.broker.peers.stop()

    async def stop(self) -> None:
        """Stop in good order."""
        self.is_up = False
        await self._close_peer_door()
        await self.node.stop()

    async def lose(self) -> None:
        """Let the node be gone at once, as if its power had failed: nothing more leaves it."""
        self.is_up = False
        await self._close_peer_door()
        self.wire.is_cut = True
        task = self.broker._task
        assert task is not None
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        self.broker._task = None
        self.broker._storage.close()
        self.broker._writer.close()
        self.broker._flusher.close()
        for each in (self.broker._watching, self.broker._placed):
            if each is not None:
                each.cancel()
        await self.broker.blobs.stop()

    @property
    def leads(self) -> bool:
        return self.is_up and self.node.view.role is Role.LEADING

    def submitted(self) -> set[TaskId]:
        return set(self.broker.engine.core.book.tasks)


class Cluster:
    """Some machines on one log."""

    def __init__(self, machines: list[Machine]) -> None:
        self.machines = machines
        self.acknowledged: set[TaskId] = set()

    def leader(self) -> Machine | None:
        """Return the machine that leads, if one does; the newest epoch wins."""
        leading = [each for each in self.machines if each.leads]
        return max(leading, key=lambda each: each.node.view.epoch, default=None)

    async def led(self) -> Machine:
        """Return the machine that leads, once one does."""
        await until(lambda: self.leader() is not None)
        leader = self.leader()
        assert leader is not None
        return leader

    async def submit(self, task: TaskSpec) -> None:
        """Submit a task until it is acknowledged."""
        async with asyncio.timeout(TIMEOUT_S):
            while task.id not in self.acknowledged:
                leader = await self.led()
                session = LocalSession(leader.broker, THE_BROKER)
                session.open()
                with suppress(Refused, TimeoutError):
                    async with asyncio.timeout(1):
                        await session.ask(SubmitTasks(0, [task], namespace="default"))
                        self.acknowledged.add(task.id)
                session.close()

    async def settled(self) -> list[Machine]:
        """Return the machines that run, once all have applied the same batches."""
        await until(self._is_settled)
        return [each for each in self.machines if each.is_up]

    def _is_settled(self) -> bool:
        up = [each for each in self.machines if each.is_up]
        applied = {each.broker.engine.sequence for each in up}
        # What is being decided is in memory, and not in the log yet.
        is_busy = any(each.broker.engine.is_turning or each.broker.inbox_items() for each in up)
        return sum(each.leads for each in up) == 1 and len(applied) == 1 and not is_busy


@asynccontextmanager
async def running(
    folder: Path,
    engine: Callable[[], LogEngine],
    count: int = 3,
    *,
    has_peers: bool = False,
    founder: str = "",
    starting: str = "abcde",
) -> AsyncIterator[Cluster]:
    machines = [Machine(name, n, folder / name, engine) for n, name in enumerate("abcde"[:count])]
    cluster = Cluster(machines)
    for machine in machines:
        machine.members = count
    if has_peers:
        ports = {machine.name: free_port() for machine in machines}
        for machine in machines:
            machine.peer_ports = ports
            machine.founder = founder
    try:
        for machine in machines:
            if machine.name in starting:
                await machine.start()
        yield cluster
    finally:
        for machine in machines:
            if machine.is_up:
                machine.wire.is_cut = False
                await machine.stop()
