"""One run: a world from a seed, with faults for a while and then without, until everything ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jackalope.broker.engine import Engine
from jackalope.core.durations import HOUR, SECOND
from jackalope.core.invariants import check
from tests.simulation import faults
from tests.simulation.callbacks import CallbackChecker, SimCourier, SimSubscriber
from tests.simulation.checker import Checker, Violation
from tests.simulation.client import NAMES, QUEUES, SimClient
from tests.simulation.flows import FlowChecker, SimFlows
from tests.simulation.limits import LimitChecker, SimLimits
from tests.simulation.needs import NeedChecker, SimNeeds
from tests.simulation.node import Node
from tests.simulation.paces import PaceChecker, SimPacer
from tests.simulation.quotas import QuotaChecker, SimQuotas
from tests.simulation.requester import Requester
from tests.simulation.schedules import ScheduleChecker, SimPlanner
from tests.simulation.shares import ShareChecker, SimTenants
from tests.simulation.steps import StepChecker, StepWorker
from tests.simulation.worker import SimWorker
from tests.simulation.world import BEGIN_US, World

_FAULTY_US = 90 * SECOND
#: What workers know: any task, what old code has, or what new code has.
_KNOWN = (None, NAMES[:2], NAMES[1:])
_PATIENCE_US = 2 * HOUR
#: Nobody helps for longer, not even one who was frozen.
_HELP_US = 60 * SECOND


_CHECKERS: dict[str, type[Checker]] = {
    "": Checker,
    "schedules": ScheduleChecker,
    "steps": StepChecker,
    "paces": PaceChecker,
    "flows": FlowChecker,
    "callbacks": CallbackChecker,
    "shares": ShareChecker,
    "limits": LimitChecker,
    "quotas": QuotaChecker,
    "needs": NeedChecker,
}


@dataclass(frozen=True)
class Report:
    """What a run saw."""

    seed: int
    accepted: int
    restarts: int
    virtual_s: int
    counts: dict[str, int]


def simulate(
    seed: int,
    *,
    trace: bool = False,
    make_engine: Callable[..., Engine] = Engine,
    with_schedules: bool = False,
    with_steps: bool = False,
    with_paces: bool = False,
    with_flows: bool = False,
    with_callbacks: bool = False,
    with_shares: bool = False,
    with_limits: bool = False,
    with_quotas: bool = False,
    with_needs: bool = False,
) -> Report:
    """Run one seed to its end.

    Raises:
        Violation: something happened that must not happen.
    """
    world = World(seed, trace=trace)
    kinds = {
        "schedules": with_schedules,
        "steps": with_steps,
        "paces": with_paces,
        "flows": with_flows,
        "callbacks": with_callbacks,
        "shares": with_shares,
        "limits": with_limits,
        "quotas": with_quotas,
        "needs": with_needs,
    }
    checker = _CHECKERS[next((kind for kind, is_with in kinds.items() if is_with), "")]()
    make_worker = StepWorker if with_steps else SimWorker
    node = Node(world, checker, make_engine)
    clients = [SimClient(world, node, f"client{n}", world.rng.randrange(20, 60)) for n in range(2)]
    for number in range(world.rng.randrange(2, 5)):
        queues = tuple(world.rng.sample(list(QUEUES), world.rng.randrange(1, len(QUEUES) + 1)))
        keys = world.rng.choice(((), (), ("", "k1"), ("k1", "k2")))
        slots = world.rng.randrange(1, 5)
        names = _KNOWN[seed // 3**number % 3]
        make_worker(world, node, f"w{number}", queues=queues, keys=keys, slots=slots, names=names)
    planner = _planner(world, node, seed, kinds)
    _settle_callbacks(world, node, is_wanted=with_callbacks)
    pacer = SimPacer(world, node, seed) if with_paces else None
    # One that takes everything, so that everything can end.
    make_worker(world, node, "all", queues=tuple(QUEUES), keys=(), slots=3)
    world.run(BEGIN_US + _FAULTY_US, stop=lambda: False)

    world.say("world", "faults stop")
    world.faults = faults.NONE
    world.clock_offset_us = max(world.clock_offset_us, 0)
    for client in clients:
        client.left, client.is_tidying = 0, True
    if planner is not None:
        planner.tidy()
    if pacer is not None:
        pacer.is_tidying = True

    def is_over() -> bool:
        is_quiet = not any(client.outbox or client.requests for client in clients)
        others = [each.outbox for each in (planner, pacer) if each is not None]
        return is_quiet and not any(others) and not checker.unfinished()

    world.run(world.now_us + _PATIENCE_US, stop=is_over)
    if unfinished := checker.unfinished():
        states = [checker.shadow.book.tasks[task_id] for task_id in unfinished[:3]]
        raise Violation(f"everything ends once faults stop: {len(unfinished)} do not: {states}")
    if asking := [client.requests for client in clients if client.requests]:
        raise Violation(f"everybody who asks is answered: {asking}")
    world.run(world.now_us + _HELP_US, stop=lambda: False)
    if node.engine is not None:
        check(node.engine.core)
        checker.at_end(node.engine.core)
        roster = node.engine.core.roster
        if helping := [worker.id for worker in roster.workers.values() if worker.helps > 0]:
            raise Violation(f"whoever helped nobody any more has its slot back: {helping}")
    virtual_s = (world.now_us - BEGIN_US) // SECOND
    return Report(seed, len(checker.accepted), node.restarts, virtual_s, dict(checker.counts))


def _planner(
    world: World, node: Node, seed: int, kinds: dict[str, bool]
) -> SimPlanner | SimFlows | Requester | None:
    """Return the client that has schedules, flows or tenants, if there is one."""
    if kinds["shares"] and isinstance(node.checker, ShareChecker):
        node.checker.node = node
        return SimTenants(world, node, seed)
    requesters: dict[str, type[Requester]] = {
        "limits": SimLimits,
        "quotas": SimQuotas,
        "needs": SimNeeds,
    }
    for kind, make in requesters.items():
        if kinds[kind]:
            return make(world, node, seed)
    if kinds["schedules"]:
        return SimPlanner(world, node, seed)
    return SimFlows(world, node, seed) if kinds["flows"] else None


def _settle_callbacks(world: World, node: Node, *, is_wanted: bool) -> None:
    """Bring those into a world who belong to callbacks."""
    if is_wanted:
        SimSubscriber(world, node)
        SimCourier(world, node)
