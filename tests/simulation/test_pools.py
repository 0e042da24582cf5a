"""Ten thousand races between tasks that arrive and groups that stop.

The real core on virtual time, with launchers and workers that are slow, fail, die and forget, and
tasks that arrive at the worst moments: the delays of the pool are of the same size as everything
else that takes time. After every command all invariants hold (a task that waits has a group that
comes up; nothing that is to go is given a task; no group stops under one), nothing is ever stopped
that holds a task, and when the faults end every task is done and everything is stopped.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TypeGuard

import pytest

from jackalope.core import Core, invariants
from jackalope.core.commands import (
    ActOnGroup,
    AnyCommand,
    CloseSession,
    DeclarePool,
    Finish,
    FinishAttempts,
    FollowPools,
    GroupAction,
    JoinWorker,
    LeaveWorker,
    Recover,
    ReportLaunches,
    Seen,
    SubmitTasks,
    Tick,
)
from jackalope.core.durations import MILLISECOND, SECOND
from jackalope.core.effects import Assignment, Effect, Orders, Reply, SendToSession
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import ENDED
from jackalope.core.records import AnyRecord, AttemptEnded, AttemptFinished, TaskMoved
from jackalope.core.shapes.pool import Phase
from jackalope.core.task import TaskSpec

KEYS = ("", "a", "b/c", "d=1,e", "ü")
LOOPS = 1
TASKS = 600
SEEDS = range(20)


class Process:
    """A worker's process, as its launcher and the world see it."""

    def __init__(self, launch: str, key: str, version: str) -> None:
        self.launch = launch
        self.key = key
        self.version = version
        self.phase = Phase.RUNNING
        self.session = 0
        self.held: dict[TaskId, int] = {}


class Races:
    """One run: a core, a launcher's processes, and chance."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.core = Core()
        self.now_us = 1_800_000_000 * SECOND
        self.records: list[AnyRecord] = []
        self.processes: dict[str, Process] = {}
        self.failed: dict[str, str] = {}
        self.submitted = 0
        self.sessions = 10
        self.launches = 0
        self.races = 0
        self.has_faults = True
        self.send(Recover())
        self.send(FollowPools(session=LOOPS, launchers=("local",)))
        limits = {"workers_max": 3, "tasks_per_worker": 2, "groups_max": 3, "spares": seed % 2}
        delays = {
            "unbind_delay_us": 40 * MILLISECOND,
            "stop_delay_us": 40 * MILLISECOND,
            "shrink_delay_us": 30 * MILLISECOND,
            "start_timeout_us": SECOND,
        }
        changes = {"launcher": "local", "workers_min": seed % 3 % 2, **limits, **delays}
        self.send(DeclarePool(queue="q", changes=changes))

    # The core.

    def send(self, command: AnyCommand) -> list[Effect]:
        """Give the core a command, and see to it that everything still holds."""
        command.ref = 1
        records, effects = self.core.handle(self.now_us, command)
        self.records += records
        if self.rng.random() < 0.2:
            invariants.check(self.core)
        else:
            invariants.check_pools(self.core)
        for effect in effects:
            if isinstance(effect, SendToSession) and isinstance(effect.message, Assignment):
                self._take(effect.session, effect.message)
        return effects

    def _take(self, session: int, assignment: Assignment) -> None:
        (process,) = [each for each in self.processes.values() if each.session == session]
        assert process.phase is Phase.RUNNING, "a task went to a worker that is told to stop"
        assert process.key == assignment.key
        process.held[assignment.task] = assignment.fence

    # What happens.

    def step(self) -> None:
        """Let a little time pass, and something happen."""
        self.now_us += self.rng.randrange(20 * MILLISECOND)
        if self.rng.random() < 0.1:
            self.core.book.stored(self.core.book.take_changes())  # What has ended leaves memory.
        deadline_us = self.core.next_deadline_us()
        if deadline_us is not None and deadline_us <= self.now_us:
            self.send(Tick())
        happenings = [self.submit] * 6 + [self.report] * 3 + [self.start] * 2 + [self.finish] * 4
        if self.has_faults:
            happenings += [self.die, self.leave, self.act, self.restart, self.change]
        self.rng.choice(happenings)()

    def submit(self) -> None:
        """Submit a task: often for a key whose group is on its way down."""
        if self.submitted >= TASKS:
            return
        pool = self.core.pools.by_name["default", "q"]
        falling = [key for key, group in pool.groups.items() if not group.leased()]
        key = self.rng.choice(falling or KEYS) if self.rng.random() < 0.5 else self.rng.choice(KEYS)
        self.races += key in falling
        self.submitted += 1
        task = TaskId(self.submitted.to_bytes(16, "big"))
        self.send(SubmitTasks(ref=0, tasks=[TaskSpec(task, "q", "", key, 150, b"")]))

    def report(self) -> None:
        """Let the launcher report, and carry out its orders, some of them badly."""
        seen = [
            Seen(each.launch, "default", "q", each.key, each.version, each.phase)
            for each in self.processes.values()
        ]
        ids = tuple(f"w{self.launches + number}" for number in range(1, 4))
        self.launches += len(ids)
        failed, self.failed = self.failed, {}
        command = ReportLaunches(session=LOOPS, launcher="local", seen=seen, failed=failed, ids=ids)
        for effect in self.send(command):
            if isinstance(effect, Reply) and isinstance(effect.body, Orders):
                self._carry_out(effect.body)

    def _carry_out(self, orders: Orders) -> None:
        for start in orders.start:
            if self.has_faults and self.rng.random() < 0.2:
                self.failed[start.launch] = "no luck"
            else:
                process = Process(start.launch, start.key, start.version)
                self.processes[start.launch] = process
        for stop in orders.stop:
            process = self.processes[stop.launch]
            assert not process.held, "a worker was stopped that holds a task"
            if process.phase is Phase.ENDED or self.rng.random() < 0.5:
                self._end(process)
                del self.processes[stop.launch]
            else:
                process.phase = Phase.STOPPING

    def start(self) -> None:
        """Let a process come so far that it joins; also one that is told to stop meanwhile."""
        waiting = [each for each in self.processes.values() if not each.session]
        waiting = [each for each in waiting if each.phase is not Phase.ENDED]
        if not waiting:
            return
        process = self.rng.choice(waiting)
        self.sessions += 1
        process.session = self.sessions
        slots = 0 if process.phase is Phase.STOPPING else self.rng.randrange(1, 3)
        join = JoinWorker(
            ref=0,
            session=process.session,
            worker=process.launch,
            queues=("q",),
            keys=(process.key,),
            slots=slots,
            grace_us=0,
            lease_us=3600 * SECOND,
        )
        self.send(join)

    def finish(self) -> None:
        """Let a worker end what it has."""
        busy = [each for each in self.processes.values() if each.held]
        if busy:
            process = self.rng.choice(busy)
            ends = [Finish(task, fence) for task, fence in process.held.items()]
            process.held.clear()
            self.send(FinishAttempts(session=process.session, attempts=ends))

    def die(self) -> None:
        """Kill a process."""
        if self.processes and self.rng.random() < 0.3:
            process = self.rng.choice(list(self.processes.values()))
            self._end(process)
            process.phase = Phase.ENDED

    def _end(self, process: Process) -> None:
        process.held.clear()
        session, process.session = process.session, 0
        if session:
            self.send(CloseSession(session=session))

    def leave(self) -> None:
        """Let a worker go by itself."""
        idle = [each for each in self.processes.values() if each.session and not each.held]
        if idle and self.rng.random() < 0.3:
            process = self.rng.choice(idle)
            session, process.session = process.session, 0
            process.phase = Phase.ENDED
            self.send(LeaveWorker(session=session))

    def act(self) -> None:
        """Start, stop, pin or unpin a group by hand."""
        action = self.rng.choice(list(GroupAction))
        self.send(ActOnGroup(queue="q", key=self.rng.choice(KEYS), action=action))

    def change(self) -> None:
        """Deploy another version."""
        if self.rng.random() < 0.1:
            version = f"v{self.rng.randrange(3)}"
            self.send(DeclarePool(queue="q", changes={"version": version}))

    def restart(self) -> None:
        """Restart the broker: its records are all that is left of it; what runs goes on."""
        if self.rng.random() > 0.1:
            return
        self.core = Core()
        for record in self.records:
            self.core.apply(record)
        for process in self.processes.values():
            process.session = 0
            process.held.clear()  # It gives up what it had; the broker finds that nobody has it.
        self.send(Recover())
        self.send(FollowPools(session=LOOPS, launchers=("local",)))

    # The end.

    def settle(self) -> None:
        """Let everything come to rest."""
        self.has_faults = False
        for key in KEYS:
            self.send(ActOnGroup(queue="q", key=key, action=GroupAction.UNPIN))
        for _ in range(20_000):
            self.step()
            if not any(task.state not in ENDED for task in self.core.book.tasks.values()):
                self.now_us += 50 * MILLISECOND
                if not self.processes and not self.core.pools.by_name["default", "q"].groups:
                    return
        pytest.fail("not everything came to rest")


@pytest.mark.parametrize("seed", SEEDS)
def test_no_group_stops_under_a_task(seed: int) -> None:
    races = Races(seed)
    while races.submitted < TASKS:
        races.step()
    races.settle()
    assert races.races > TASKS // 10
    ends = Counter(each.task for each in races.records if ends_task(each))
    assert len(ends) == TASKS, "a task was lost"
    assert set(ends.values()) == {1}
    pool = races.core.pools.by_name["default", "q"]
    assert [*pool.up, *pool.line, *pool.idle, *races.core.pools.launches] == []


def ends_task(record: AnyRecord) -> TypeGuard[AttemptFinished | AttemptEnded | TaskMoved]:
    if isinstance(record, AttemptFinished):
        return True
    return isinstance(record, AttemptEnded | TaskMoved) and record.to in ENDED
