"""Limits against a naive model: never exceeded at any record, and nothing waits that need not.

The model counts leases one by one and keeps tokens as fractions. It knows nothing of lanes.
"""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from jackalope.core.commands import (
    AnyCommand,
    CloseSession,
    Fail,
    FailAttempts,
    Finish,
    FinishAttempts,
    JoinWorker,
    LimitTag,
    SubmitTasks,
    Tick,
    Verdict,
)
from jackalope.core.commands.limits import DeclareLimits, DeleteLimit
from jackalope.core.core import Core
from jackalope.core.durations import SECOND
from jackalope.core.ids import TaskId
from jackalope.core.invariants import check
from jackalope.core.lifecycle import State
from jackalope.core.records import AnyRecord, AttemptAssigned, decode_batch, encode_batch
from jackalope.core.records.limits import GatesClosed, LimitDeleted, LimitSet
from jackalope.core.shapes.limit import UNBOUNDED, LimitSettings
from jackalope.core.state.gates import gate_name, gate_text
from jackalope.core.task import Error, Options, Task, TaskSpec, lease_of
from tests.profiles import examples

START_US = 1_700_000_000 * SECOND
_LIMITS = ("a", "b", "c")
_ERROR = Error("Throttled", "later")


class Model:
    """What limits allow, the slow way."""

    def __init__(self) -> None:
        self.limits: dict[str, LimitSettings] = {}
        self.tags: dict[str, int] = {}
        self.tokens: dict[tuple[str, ...], tuple[Fraction, int]] = {}
        self.closed: dict[tuple[str, ...], int] = {}

    def gates(self, task: Task) -> dict[tuple[str, ...], int]:
        """Return the gates of a task, with the tokens that it takes."""
        found: dict[tuple[str, ...], int] = {
            ("", tag): 1 for tag in task.options.tags if tag in self.tags
        }
        for name, limit in self.limits.items():
            values = [task.options.keys.get(key, "") for key in limit.keys]
            if limit.queue in ("", task.queue.name) and all(values):
                cost = limit.cost
                if limit.cost_key:
                    cost = int(task.options.keys.get(limit.cost_key, "1"))
                found[name, *values] = cost
        return found

    def tokens_at(self, gate: tuple[str, ...], now_us: int) -> Fraction:
        limit = self.limits[gate[0]]
        tokens, at_us = self.tokens.get(gate, (Fraction(limit.tokens_max), now_us))
        gained = Fraction(limit.rate * (now_us - at_us), limit.per_us)
        return min(Fraction(limit.tokens_max), tokens + gained)

    def lets(self, gate: tuple[str, ...], need: int, leased: list[Task], now_us: int) -> bool:
        """Return whether a task that needs so many tokens may start."""
        use = sum(gate in self.gates(task) for task in leased)
        if not gate[0]:
            return use < self.tags[gate[1]]
        limit = self.limits[gate[0]]
        if self.closed.get(gate, 0) > now_us:
            return False
        if limit.concurrency != UNBOUNDED and use >= limit.concurrency:
            return False
        return not limit.rate or self.tokens_at(gate, now_us) >= min(need, limit.tokens_max)

    def assign(self, task: Task, leased: list[Task], now_us: int) -> None:
        for gate, cost in self.gates(task).items():
            assert self.lets(gate, cost, leased, now_us), (gate, cost)
            if gate[0] and self.limits[gate[0]].rate:
                taken = min(cost, self.limits[gate[0]].tokens_max)
                self.tokens[gate] = (self.tokens_at(gate, now_us) - taken, now_us)

    def set(self, name: str, limit: LimitSettings, now_us: int) -> None:
        old = self.limits.get(name)
        if old is not None and old.scope() != limit.scope():
            self.delete(name)
        elif old is not None:
            for gate in [each for each in self.tokens if each[0] == name]:
                tokens = self.tokens_at(gate, now_us)
                if tokens >= old.tokens_max:
                    tokens = Fraction(limit.tokens_max)
                # The units of the core are whole.
                units = min(tokens, Fraction(limit.tokens_max)) * limit.per_us
                self.tokens[gate] = (Fraction(units // 1, limit.per_us), now_us)
        self.limits[name] = limit

    def delete(self, name: str) -> None:
        del self.limits[name]
        self.tokens = {gate: each for gate, each in self.tokens.items() if gate[0] != name}
        self.closed = {gate: each for gate, each in self.closed.items() if gate[0] != name}


class Run:
    """A core that does what chance says, compared with the model after every command."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.core = Core()
        self.model = Model()
        self.journal: list[AnyRecord] = []
        self.now_us = START_US
        self.count = 0
        self.session = 0
        self.slots = 6

    def send(self, command: AnyCommand) -> None:
        before = {task.id for task in self.leased()}
        records, _ = self.core.handle(self.now_us, command)
        records = decode_batch(encode_batch(records))
        # What ended in this command ended before anything was assigned.
        leased = [task for task in self.leased() if task.id in before]
        for record in records:
            if isinstance(record, LimitSet):
                self.model.set(record.name, record.settings, record.at_us)
            elif isinstance(record, LimitDeleted):
                self.model.delete(record.name)
            elif isinstance(record, GatesClosed):
                for text in record.gates:
                    gate = gate_name(text)
                    until_us = max(record.until_us, self.model.closed.get(gate, 0))
                    self.model.closed[gate] = until_us
            elif isinstance(record, AttemptAssigned):
                task = self.core.book.tasks[record.task]
                others = [each for each in leased if each is not task]
                self.model.assign(task, others, record.at_us)
                leased = [*others, task]
        self.journal += records
        check(self.core)
        self.judge()

    def leased(self) -> list[Task]:
        return [task for task in self.core.book.tasks.values() if task.attempt is not None]

    def judge(self) -> None:
        """Check that nothing waits that could start, and that tokens agree."""
        leased, now_us = self.leased(), self.core.now_us
        ready = [t for t in self.core.book.tasks.values() if t.state is State.READY]
        worker = next(iter(self.core.roster.workers.values()), None)
        has_room = worker is not None and worker.has_room()
        needs: dict[tuple[str, ...], int] = {}
        for task in ready:
            for gate, cost in self.model.gates(task).items():
                needs[gate] = max(cost, needs.get(gate, 1))
        for task in ready if has_room else ():
            gates = self.model.gates(task)
            lets = all(self.model.lets(gate, needs[gate], leased, now_us) for gate in gates)
            assert not lets, f"task {task.id.hex()} waits for nothing"
        for gate, each in self.core.book.namespace("default").gates.gates.items():
            if each.bucket is not None and each.settings.rate:
                bucket = Fraction(each.bucket.units, each.settings.per_us)
                gained = each.settings.rate * max(0, now_us - each.bucket.at_us)
                tokens = min(
                    Fraction(each.settings.tokens_max),
                    bucket + Fraction(gained, each.settings.per_us),
                )
                assert tokens == self.model.tokens_at(gate, now_us), gate

    def step(self) -> None:
        chance = self.chance
        what = chance.choices(
            ["submit", "finish", "throttle", "time", "limit", "unlimit", "tag", "leave"],
            [30, 30, 4, 20, 6, 1, 2, 1],
        )[0]
        getattr(self, f"_{what}")()
        if not self.session:
            self._join()

    def _join(self) -> None:
        self.count += 1
        self.session = self.count
        self.send(
            JoinWorker(
                ref=0,
                worker=f"w{self.session}",
                queues=("q", "r"),
                slots=self.slots,
                session=self.session,
            )
        )

    def _submit(self) -> None:
        specs = []
        for _ in range(self.chance.randint(1, 6)):
            self.count += 1
            keys = {"user": self.chance.choice("xyz"), "host": self.chance.choice("gh")}
            keys = {key: value for key, value in keys.items() if self.chance.random() < 0.9}
            if self.chance.random() < 0.5:
                keys["cost"] = str(self.chance.randint(1, 5))
            tags = tuple(tag for tag in ("t", "u") if self.chance.random() < 0.3)
            options = Options(tags=tags, keys=keys)
            task_id = TaskId(self.count.to_bytes(16, "big"))
            specs.append(
                TaskSpec(
                    task_id,
                    self.chance.choice("qr"),
                    priority=self.chance.choice((100, 150)),
                    options=options,
                )
            )
        self.send(SubmitTasks(session=99, ref=1, tasks=specs))

    def _finish(self) -> None:
        leased = self.leased()
        if leased:
            task = self.chance.choice(leased)
            done = Finish(task.id, lease_of(task).fence)
            self.send(FinishAttempts(ref=0, attempts=[done], session=self.session))

    def _throttle(self) -> None:
        leased = self.leased()
        if leased:
            task = self.chance.choice(leased)
            after_us, key = self.chance.randint(1, 3) * SECOND, self.chance.choice(("user", "b"))
            fail = Fail(task.id, lease_of(task).fence, _ERROR, Verdict.THROTTLED, after_us, key=key)
            self.send(FailAttempts(ref=0, attempts=[fail], session=self.session))

    def _time(self) -> None:
        deadline_us = self.core.next_deadline_us()
        self.now_us += self.chance.choice((1, 100_000, SECOND))
        if deadline_us is not None and self.chance.random() < 0.5:
            self.now_us = max(self.now_us, deadline_us)
        self.send(Tick())

    def _limit(self) -> None:
        chance = self.chance
        changes: dict[str, object] = {
            "concurrency": chance.choice((UNBOUNDED, 0, 1, 2, 3)),
            "rate": chance.choice((0, 0, 1, 3)),
            "per_us": chance.choice((SECOND, 3 * SECOND + 7)),
            "cost_key": "",
            "burst": 0,
        }
        if changes["rate"]:
            changes["burst"] = chance.choice((0, 4))
            changes["cost_key"] = chance.choice(("", "cost"))
        if chance.random() < 0.3:
            changes["keys"] = chance.choice(((), ("user",), ("host",), ("user", "host")))
            changes["queue"] = chance.choice(("", "q"))
        self.send(DeclareLimits(limits={chance.choice(_LIMITS): changes}, session=99))

    def _unlimit(self) -> None:
        self.send(DeleteLimit(name=self.chance.choice(_LIMITS), session=99))

    def _tag(self) -> None:
        tag, limit = self.chance.choice("tu"), self.chance.randint(-1, 2)
        if limit < 0:
            self.model.tags.pop(tag, None)
        else:
            self.model.tags[tag] = limit
        self.send(LimitTag(tag=tag, limit=limit, session=99))

    def _leave(self) -> None:
        if self.session:
            session, self.session = self.session, 0
            self.send(CloseSession(session=session))
            self.now_us += 60 * SECOND
            self.send(Tick())


@pytest.mark.parametrize("seed", range(examples(60)))
def test_limits_do_what_the_model_says(seed: int) -> None:
    run = Run(seed)
    for _ in range(120):
        run.step()
    # Another node that applies the records has the same, and so has one that reads the rows.
    follower = Core()
    follower.apply(*run.journal)
    changes = run.core.book.snapshot()
    assert follower.book.snapshot() == changes
    restored = Core()
    restored.book.restore(changes.counters, changes.entities, changes.tasks)
    assert restored.book.snapshot() == changes
    gates = run.core.book.namespace("default").gates.gates
    again = restored.book.namespace("default").gates.gates
    assert {name: gate.use for name, gate in again.items()} == {
        name: gate.use for name, gate in gates.items()
    }
    assert {name: gate.bucket for name, gate in again.items()} == {
        name: gate.bucket for name, gate in gates.items()
    }


def test_names_of_gates_are_texts_and_back() -> None:
    for name in (("a",), ("", "tag"), ("a", '"', "ä\0")):
        assert gate_name(gate_text(name)) == name
