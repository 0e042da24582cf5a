"""One run of a cluster: faults for a while, then none, until everything has ended everywhere."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from jackalope.broker.cluster.leadership import Role, Timing
from jackalope.broker.cluster.trimming import Keep
from jackalope.core.durations import MILLISECOND, MINUTE, SECOND
from jackalope.core.invariants import check
from jackalope.core.task import TaskSpec
from jackalope.storage import Fenced
from tests.simulation import faults
from tests.simulation.checker import Violation
from tests.simulation.client import NAMES, QUEUES, SimClient
from tests.simulation.cluster.checker import ClusterChecker
from tests.simulation.cluster.machine import OUTSIDE, ClusterLink, Life, Machine
from tests.simulation.cluster.process import Clock, ClusterWorld, virtual
from tests.simulation.cluster.whole import WholeChecker
from tests.simulation.flows import SimFlows
from tests.simulation.limits import SimLimits
from tests.simulation.log import NO_FAULTS, LogFaults, SimLog
from tests.simulation.network import LOG, Network
from tests.simulation.paces import SimPacer
from tests.simulation.schedules import SimPlanner
from tests.simulation.steps import StepWorker
from tests.simulation.worker import SimWorker
from tests.simulation.world import BEGIN_US, Peer

#: What a world writes is gone when it ends.
_QUICK_DISK = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108

_FAULTY_US = 15 * SECOND
_PATIENCE_US = 30 * MINUTE
_READ_EVERY_US = 250 * MILLISECOND
_READ_EVERY_US_CALM = SECOND

#: What happens to clients, workers and their connections: less than to a single broker, since here
#: more happens to the brokers.
_PEER_FAULTS = faults.Faults(crash_at_step=0, append_fails=0, clock_jumps=0)


class ClusterWorker(SimWorker):
    """A worker whose tasks are short, so that worlds are."""

    longest_us = 6 * SECOND

    def hurry(self) -> None:
        """Let everything end soon, and well."""
        self.longest_us = self.usual_us = SECOND // 2
        self.is_able = True


class WholeWorker(ClusterWorker, StepWorker):
    """A worker some of whose tasks have steps."""


class ClusterClient(SimClient):
    """A client some of whose payloads are in the store that all nodes share."""

    ahead_us = 8 * SECOND

    def _spec(self) -> TaskSpec:
        spec, link = super()._spec(), self.link
        if not isinstance(link, ClusterLink) or self.world.rng.random() < 0.7:
            return spec
        with link.life.process.context():
            return msgspec.structs.replace(spec, payload=link.life.broker.blobs.write([b"large"]))


@dataclass(frozen=True)
class ClusterFaults:
    """Chances, each for one occasion."""

    crash_at_effect: float = 0.002
    wipe: float = 0.2
    tear: float = 0.3
    down_us: int = 4 * SECOND


_CALM = ClusterFaults(0, 0, 0, SECOND)


@dataclass(frozen=True)
class Report:
    """What a run saw."""

    seed: int
    nodes: int
    accepted: int
    lives: int
    virtual_s: int
    counts: dict[str, int] = field(hash=False)


Sufferings = tuple[Callable[["Cluster", Machine], None], ...]


class Cluster:
    """Machines, their log, and those who know their addresses."""

    def __init__(
        self,
        world: ClusterWorld,
        count: int,
        folder: Path,
        timing: Timing,
        checker: ClusterChecker | None = None,
    ) -> None:
        rng = world.rng
        names = [f"n{number}" for number in range(count)]
        self.world = world
        world.columns = names
        self.network = Network(*names, OUTSIDE)
        self.checker = checker or ClusterChecker(world)
        self.log = SimLog(world, self.network)
        self.log.faults = LogFaults(0.02, 0.02, 0.03, 0.02, 0.02, 0.001)
        self.log.on_stored = self.checker.on_stored
        self.log.on_cut = self._on_cut
        self.faults = ClusterFaults()
        self.timing = timing
        self.sufferings = SUFFERINGS
        self.blobs = self.checker.blobs = dict[str, bytes]()
        self.message_bytes_max = rng.choice((600, 1024 * 1024, 1024 * 1024))
        self.trim_batches = rng.choice((20, 1_000))
        self.keep = Keep(rng.choice((32 * 1024, 1024**3)), rng.choice((2 * SECOND, 60 * SECOND)))
        spread = rng.choice((0.0, 0.02, 0.09))
        clocks = [
            Clock(world, rng.randrange(-3 * SECOND, 3 * SECOND), 1 + rng.uniform(-spread, spread))
            for _ in names
        ]
        self.machines = [
            Machine(self, name, place, folder, clocks[place]) for place, name in enumerate(names)
        ]
        self.by_name = {machine.name: machine for machine in self.machines}
        self._addresses: dict[int, Machine] = {}
        for machine in self.machines:
            world.after(rng.randrange(SECOND), machine.start)
        world.after(2 * SECOND, self._suffer)
        world.after(SECOND, self._read)

    # For clients and workers.

    def connect(self, peer: Peer) -> ClusterLink | None:
        """Try the addresses, one after the other, and follow whoever knows the leader."""
        machine = self._addresses.get(id(peer), self.machines[0])
        for _ in range(len(self.machines) + 1):
            life = machine.life
            following = self.machines[(machine.place + 1) % len(self.machines)]
            if life is None or life.process.is_frozen() or not self._is_open(machine):
                machine = following
                continue
            where = life.node.elsewhere("native")
            if where is None:
                self._addresses[id(peer)] = machine
                return machine.open(peer)
            machine = self.by_name.get(where, following)
        self._addresses[id(peer)] = machine
        return None

    def clock_us(self) -> int:
        """Return what a clock shows that is right."""
        return self.world.now_us

    def receive(self, link: ClusterLink, command: Any) -> None:
        link.machine.receive(link, command)

    def _is_open(self, machine: Machine) -> bool:
        ways = ((OUTSIDE, machine.name), (machine.name, OUTSIDE))
        return all(self.network.reaches(*way) for way in ways)

    # Whoever reads.

    def _read(self) -> None:
        is_calm = self.faults is _CALM
        self.world.after(_READ_EVERY_US_CALM if is_calm else _READ_EVERY_US, self._read)
        for machine in self.machines:
            if machine.life is not None and machine.life.leads:
                machine.life.process.later(0, self._begin_to_ask, machine.life)

    def _begin_to_ask(self, life: Life) -> None:
        _ = life.process.create_task(self._ask(life), name="reader")

    async def _ask(self, life: Life) -> None:
        if life.node.elsewhere("http") is not None:
            return
        asked = self.checker.told
        try:
            sequence = await life.broker.read(lambda engine: engine.sequence)
        except Fenced:
            return
        self.checker.on_read(life, asked, sequence)

    # What goes wrong.

    def leader(self) -> Machine | None:
        """Return the machine that leads, by the log."""
        machine = self.by_name.get(self.checker.writers.get(self.checker.epoch, ""))
        return machine if machine and machine.life and machine.life.leads else None

    def _suffer(self) -> None:
        if self.faults is _CALM:
            return
        rng = self.world.rng
        self.world.after(rng.randrange(200 * MILLISECOND, 3 * SECOND), self._suffer)
        machine = rng.choice(self.machines)
        if rng.random() < 0.5:
            machine = self.leader() or machine
        rng.choice(self.sufferings)(self, machine)

    def has_another_state(self, machine: Machine) -> bool:
        """Return whether the log continues what some other machine has on its disk."""
        begins = self.log.begins()
        others = (each for each in self.machines if each is not machine)
        return not begins or any(each.history.applied() + 1 >= begins for each in others)

    def _on_cut(self, name: str, size: int) -> None:
        """Take a log that a node has cut, with its size before that."""
        life = self.by_name[name].life
        if life is not None:
            self.checker.on_cut(life, self.machines, self.log.begins(), size)

    def crash(self, machine: Machine) -> None:
        machine.crash("")

    def lose_disk(self, machine: Machine) -> None:
        if machine.life is not None and self.has_another_state(machine):
            machine.crash("with its disk")
            machine.wipe()

    def freeze(self, machine: Machine) -> None:
        if machine.life is not None:
            for_us = self.world.rng.randrange(200 * MILLISECOND, 6 * SECOND)
            self.world.say(machine.name, f"freezes for {for_us / SECOND} s")
            machine.life.process.freeze(for_us)

    def stop(self, machine: Machine) -> None:
        if machine.life is not None:
            life = machine.life
            self.world.say(machine.name, "is told to stop")
            life.process.later(0, lambda: life.process.create_task(life.stop()))

    def step_down(self, machine: Machine) -> None:
        if machine.life is not None:
            life, to = machine.life, self.world.rng.choice(("", *self.by_name))
            life.process.later(0, lambda: life.node.step_down(to))

    def fill(self, machine: Machine) -> None:
        self.world.say(machine.name, "has a full disk")
        machine.full_until_us = self.world.now_us + self.world.rng.randrange(4 * SECOND)

    def fill_log(self, _: Machine) -> None:
        self.world.say("log", "is full")
        self.log.full_until_us = self.world.now_us + self.world.rng.randrange(2 * SECOND)

    def slow(self, machine: Machine) -> None:
        slowness = self.log.slowness_us
        slowness[machine.name] = self.world.rng.randrange(400 * MILLISECOND)
        self.world.after(3 * SECOND, lambda: slowness.update({machine.name: 0}))

    def isolate(self, machine: Machine) -> None:
        """Cut a machine off, one way or both, at once or by turns."""
        rng = self.world.rng
        hears, is_heard = rng.choice(((False, False), (True, False), (False, True)))
        self.world.say("network", f"cuts {machine.name} off: {hears=} {is_heard=}")
        only = rng.choice((None, LOG, LOG))

        def cut() -> None:
            if only is None:
                self.network.isolate(machine.name, hears=hears, is_heard=is_heard)
            else:
                if not is_heard:
                    self.network.cut(machine.name, only)
                if not hears:
                    self.network.cut(only, machine.name)

        flaps = rng.choice((1, 1, 4))
        for flap in range(flaps):
            begin_us = flap * rng.randrange(200 * MILLISECOND, 2 * SECOND)
            self.world.after(begin_us, lambda: cut() if self.faults is not _CALM else None)
            last_us = rng.randrange(100 * MILLISECOND, 7 * SECOND // flaps)
            self.world.after(begin_us + last_us, self.network.heal)

    def stall(self, _: Machine) -> None:
        self.log.stall()

    # How it ends.

    def calm(self) -> None:
        """Let nothing go wrong from now on."""
        self.world.say("world", "faults stop")
        self.faults = _CALM
        self.world.faults = faults.NONE
        self.log.faults, self.log.stalled_until_us = NO_FAULTS, 0
        self.log.full_until_us = 0
        self.log.slowness_us.clear()
        self.network.heal()
        for machine in self.machines:
            machine.full_until_us = 0
            self.world.after(0, machine.start)
        lives = [machine.life for machine in self.machines if machine.life is not None]
        thawed_us = max([life.process.thaws_us for life in lives], default=0)
        self.world.run(max(self.world.now_us, thawed_us), stop=lambda: False)

    def demand_leader(self, *, is_known: bool = True) -> None:
        """Demand that one machine leads, and all others know it if they have had time."""
        lives = {machine.name: machine.life for machine in self.machines}
        views = {name: life.node.view for name, life in lives.items() if life is not None}
        leading = [name for name, view in views.items() if view.role is Role.LEADING]
        if len(leading) != 1:
            raise Violation(f"one node leads once faults stop: {views}")
        unaware = [view for view in views.values() if view.leader != leading[0]]
        if unaware and is_known:
            raise Violation(f"all know that {leading[0]} leads: {unaware}")

    def lagging(self) -> Machine | None:
        """Return a machine that does not have what the log has, if there is one."""
        for machine in self.machines:
            life = machine.life
            if life is None or life.broker.engine.sequence < self.checker.sequence - 3:
                return machine
        return None

    def demand_equal(self) -> None:
        """Demand that every node has what the log has."""
        machine = self.lagging()
        if machine is not None:
            status = machine.life and machine.life.node.status()
            raise Violation(
                f"all nodes follow once faults stop: {machine.name} is at {status}, "
                f"the log at {self.checker.sequence}"
            )
        for life in [machine.life for machine in self.machines if machine.life is not None]:
            if not life.broker.engine.is_turning:
                check(life.broker.engine.core)


SUFFERINGS: Sufferings = (
    Cluster.crash,
    Cluster.crash,
    Cluster.freeze,
    Cluster.freeze,
    Cluster.isolate,
    Cluster.isolate,
    Cluster.isolate,
    Cluster.stop,
    Cluster.step_down,
    Cluster.lose_disk,
    Cluster.lose_disk,
    Cluster.fill,
    Cluster.fill_log,
    Cluster.slow,
    Cluster.stall,
)


def simulate(
    seed: int,
    *,
    trace: bool = False,
    timing: Timing | None = None,
    sufferings: Sufferings | None = None,
    is_whole: bool = False,
) -> Report:
    """Run one seed to its end; with schedules, steps, paces, flows and limits if it is whole.

    Raises:
        Violation: something happened that must not happen.
    """
    world = ClusterWorld(seed, trace=trace)
    count = 5 if seed % 4 == 3 else 3
    is_collecting = gc.isenabled()
    gc.disable()  # A world is short. To look through all that was there before costs more.
    with (
        tempfile.TemporaryDirectory(prefix="jackalope-sim-", dir=_QUICK_DISK) as folder,
        virtual(world),
    ):
        checker = WholeChecker(world) if is_whole else None
        cluster = Cluster(world, count, Path(folder), timing or Timing(), checker)
        cluster.sufferings = sufferings or SUFFERINGS
        try:
            return _run(seed, cluster)
        finally:
            for machine in cluster.machines:
                machine.bury()
            if is_collecting:
                gc.enable()


def _run(seed: int, cluster: Cluster) -> Report:
    world, checker, rng = cluster.world, cluster.checker, cluster.world.rng
    world.faults = _PEER_FAULTS
    node: Any = cluster
    clients = [ClusterClient(world, node, f"client{n}", rng.randrange(20, 60)) for n in range(2)]
    queues = tuple(rng.sample(list(QUEUES), rng.randrange(1, len(QUEUES) + 1)))
    names = rng.choice((None, NAMES[:2], NAMES[1:]))
    slots = rng.randrange(1, 5)
    is_whole = isinstance(checker, WholeChecker)
    planner = SimPlanner(world, node, seed) if is_whole else None
    pacer = SimPacer(world, node, seed) if is_whole else None
    flows = SimFlows(world, node, seed, 4) if is_whole else None
    limits = SimLimits(world, node, seed, workers=1) if is_whole else None
    make_worker = WholeWorker if is_whole else ClusterWorker
    workers = [
        make_worker(world, node, "w0", queues=queues, keys=(), slots=slots, names=names),
        make_worker(world, node, "all", queues=tuple(QUEUES), keys=(), slots=4),
    ]
    world.run(BEGIN_US + _FAULTY_US, stop=lambda: False)

    cluster.calm()
    for worker in workers:
        worker.hurry()
    for client in clients:
        client.left, client.is_tidying = 0, True
    if planner is not None and pacer is not None and flows is not None and limits is not None:
        planner.tidy()
        flows.tidy()
        limits.tidy()
        pacer.is_tidying = True
    world.run(world.now_us + 3 * cluster.timing.takeover_us + SECOND, stop=lambda: False)
    cluster.demand_leader(is_known=False)
    end_us = world.now_us + 10 * SECOND - 3 * cluster.timing.takeover_us
    while world.now_us < end_us and cluster.lagging() is not None:
        world.run(world.now_us + SECOND, stop=lambda: False)
    cluster.demand_equal()
    world.run(world.now_us + 2 * SECOND, stop=lambda: False)
    cluster.demand_leader()

    def is_over() -> bool:
        is_quiet = not any(client.outbox or client.requests for client in clients)
        is_quiet &= not any(each.outbox for each in (planner, pacer, limits) if each is not None)
        return is_quiet and not checker.unfinished()

    end_us = world.now_us + _PATIENCE_US
    while world.now_us < end_us and not is_over():
        world.run(world.now_us + SECOND, stop=lambda: False)
    if unfinished := checker.unfinished():
        states = [checker.shadow.book.tasks[task_id] for task_id in unfinished[:3]]
        raise Violation(f"everything ends once faults stop: {len(unfinished)} do not: {states}")
    if asking := [client.requests for client in clients if client.requests]:
        raise Violation(f"everybody who asks is answered: {asking}")
    cluster.demand_leader()
    cluster.demand_equal()
    virtual_s = (world.now_us - BEGIN_US) // SECOND
    lives = sum(machine.lives for machine in cluster.machines)
    nodes = len(cluster.machines)
    return Report(seed, nodes, len(checker.accepted), lives, virtual_s, dict(checker.counts))
