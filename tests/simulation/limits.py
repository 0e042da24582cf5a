"""Limits by key in a simulated world: limits that change while they work, and what must hold.

The checker knows limits, tasks and leases from the records alone, counts leases one by one and
keeps tokens as fractions. It knows nothing of gates or lanes, and forgets nothing when the broker
restarts or another one leads. At every assignment: no key has more leases than its limit, no window
has more starts than its bucket allows, and no closed key has a start. After every turn: a task that
waits has a limit to wait for, or no worker has room.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from jackalope.broker.engine import Turn
from jackalope.core import Core
from jackalope.core.commands import DeclareQueue, Fail, FailAttempts, SubmitTasks, Tick, Verdict
from jackalope.core.commands.limits import DeclareLimits, DeleteLimit
from jackalope.core.durations import SECOND
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import Event, State
from jackalope.core.records import AttemptAssigned, AttemptEnded, SignalRequested, TaskMoved
from jackalope.core.records.limits import BucketsFilled, GatesClosed, LimitDeleted, LimitSet
from jackalope.core.shapes.limit import UNBOUNDED, LimitSettings, OnFull
from jackalope.core.state.gates import gate_name
from jackalope.core.task import Error, Options, Task, TaskSpec
from tests.simulation.checker import Checker, demand
from tests.simulation.node import Node
from tests.simulation.requester import Requester
from tests.simulation.worker import Run, SimWorker
from tests.simulation.world import World

QUEUE = "limited"
_POLICY: dict[str, object] = {
    "depth_limit": 0,
    "prefer_other_worker": False,
    "retry_base_us": SECOND,
    "retries": 1,
}
#: What each limit tells tasks apart by.
_KEYS: dict[str, tuple[str, ...]] = {
    "per-user": ("user",),
    "per-host": ("host",),
    "both": ("user", "host"),
    "all": (),
    "job": ("job",),
    "per-api": ("api",),
}
_RATES = ((0, 1), (2, SECOND), (3, 2 * SECOND + 7), (1, SECOND))
#: Of what is slower than a broker that starts again.
_SLOW_RATES = ((1, 12 * SECOND), (3, 40 * SECOND))
#: More tasks than these do not wait.
_WAITING_MAX = 25
_CALM: dict[str, object] = {"concurrency": 2, "rate": 0, "burst": 0, "cost_key": ""}

#: The limit, and the values of its keys.
Name = tuple[str, ...]


class LimitedWorker(SimWorker):
    """A worker whose tasks find now and then that a host or a user has had enough."""

    usual_us = 3 * SECOND
    longest_us = 5 * SECOND

    def _complete(self, run: Run) -> None:
        is_here = self.runs.get(run.held.task) is run and not run.is_over
        is_awake = self.world.now_us >= self.frozen_until_us
        if is_here and is_awake and not self.is_able and self.world.rng.random() < 0.3:
            self._throttle(run)
        else:
            super()._complete(run)

    def _throttle(self, run: Run) -> None:
        run.is_over = True
        rng, held, checker = self.world.rng, run.held, self.node.checker
        key = rng.choice(("host", "per-host", "user", "api", "api", "nothing"))
        after_us = rng.randrange(SECOND, 30 * SECOND if key == "api" else 8 * SECOND)
        if isinstance(checker, LimitChecker):
            checker.throttles[held.fence] = (key, after_us)
        error = Error("Simulated", f"{held.fence}:{self.name}")
        fail = Fail(held.task, held.fence, error, Verdict.THROTTLED, after_us, key=key)
        self._report(FailAttempts(attempts=[fail]))


class SimLimits(Requester):
    """A client that submits tasks with keys, and changes their limits all the time."""

    name = "limits"

    def __init__(self, world: World, node: Node, seed: int, *, workers: int = 2) -> None:
        super().__init__(world, node, seed)
        self.ask(DeclareQueue(queue=QUEUE, changes=dict(_POLICY)))
        for name in _KEYS:
            self._change(name)
        self.workers = [
            LimitedWorker(world, node, f"limited{number}", queues=(QUEUE,), keys=(), slots=3)
            for number in range(workers)
        ]

    def tidy(self) -> None:
        super().tidy()
        self.outbox.clear()
        for name, keys in _KEYS.items():
            changes = {**_CALM, "on_full": "wait", "keys": keys}
            self.ask(DeclareLimits(limits={name: changes}))
        self.ask(DeclareLimits(limits={"all": {"concurrency": -1, "rate": 5, "per_us": SECOND}}))
        for worker in self.workers:
            worker.usual_us = worker.longest_us = SECOND // 2
            worker.is_able = True

    def act(self) -> None:
        if self.is_tidying or len(self.outbox) > 20:
            return
        chance = self.rng.random()
        if chance < 0.75:
            if len(self.node.checker.unfinished_of(QUEUE)) < _WAITING_MAX:
                specs = [self._spec() for _ in range(self.rng.choice((1, 4)))]
                self.ask(SubmitTasks(ref=0, tasks=specs))
        elif chance < 0.9:
            self._change(self.rng.choice(list(_KEYS)))
        elif chance < 0.92:
            self.ask(DeleteLimit(name=self.rng.choice(list(_KEYS))))

    def _spec(self) -> TaskSpec:
        rng = self.rng
        keys = {"user": rng.choice("abc"), "host": rng.choice("xy"), "cost": rng.choice("123")}
        keys = {key: value for key, value in keys.items() if rng.random() < 0.9}
        if rng.random() < 0.5:
            keys["job"] = rng.choice("mn")
        if rng.random() < 0.25:
            keys["api"] = "z"
        priority = rng.choice((50, 150, 200))
        return TaskSpec(self.world.new_id(), QUEUE, "", "", priority, b"", Options(keys=keys))

    def _change(self, name: str) -> None:
        """Change the numbers of a limit, and now and then which tasks it is for."""
        rng = self.rng
        rate, per_us = rng.choice(_SLOW_RATES if name == "per-api" else _RATES)
        bound = 0 if rng.random() < 0.05 else rng.choice((UNBOUNDED, 1, 2, 3))
        changes: dict[str, object] = {
            "keys": _KEYS[name],
            "queue": QUEUE,  # Messages that are not durable have no records.
            "concurrency": bound,
            "rate": rate,
            "per_us": per_us,
            "burst": rng.choice((0, 4)) if rate else 0,
        }
        if not rate:
            changes["cost_key"] = ""
        elif name != "per-api" and rng.random() < 0.2:
            changes["cost_key"] = rng.choice(("", "cost"))
        if _KEYS[name] and rng.random() < 0.2:
            changes["queue"] = ""
        if name == "job":
            on_full = str(rng.choice(list(OnFull)))
            changes |= {**_CALM, "concurrency": rng.choice((2, 3)), "on_full": on_full}
        self.ask(DeclareLimits(limits={name: changes}))


class LimitChecker(Checker):
    """A checker that knows what limits allow, the slow way."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: dict[str, LimitSettings] = {}
        self.throttles: dict[int, tuple[str, int]] = {}  # what workers report, by fence
        self._tokens: dict[Name, tuple[Fraction, int]] = {}
        # the starts at each bucket since its limit changed, with the tokens that they took
        self._starts: dict[Name, list[tuple[int, int]]] = {}
        self._closed: dict[Name, int] = {}
        self._gates: dict[TaskId, dict[Name, int]] = {}  # of tasks, until limits change
        self._core: Core | None = None
        self._tick_us = 0
        self._checks |= {
            LimitSet: self._on_limit,
            LimitDeleted: self._on_limit_deleted,
            GatesClosed: self._on_closed,
            BucketsFilled: self._on_filled,
            SignalRequested: self._on_signal,
        }

    # What limits allow.

    def gates(self, task: Task) -> dict[Name, int]:
        """Return the limits that a task counts for, with the tokens that it takes of each."""
        known = self._gates.get(task.id)
        if known is not None:
            return known
        found = self._gates[task.id] = dict[Name, int]()
        if task.queue.namespace.name != "default":
            return found
        keys = task.options.keys
        for name, limit in self.limits.items():
            values = [keys.get(key, "") for key in limit.keys]
            if limit.queue in ("", task.queue.name) and all(values):
                cost = int(keys.get(limit.cost_key, "1")) if limit.cost_key else limit.cost
                found[name, *values] = cost
        return found

    def _use(self, name: Name) -> int:
        tasks = self.shadow.book.tasks
        return sum(name in self.gates(tasks[held]) for held in self.holders)

    def _tokens_at(self, name: Name, at_us: int) -> Fraction:
        limit = self.limits[name[0]]
        tokens, since_us = self._tokens.get(name, (Fraction(limit.tokens_max), at_us))
        gained = Fraction(limit.rate * max(0, at_us - since_us), limit.per_us)
        return min(Fraction(limit.tokens_max), tokens + gained)

    def _lets(self, name: Name, tokens: int, at_us: int) -> bool:
        """Return whether tasks may start that take so many tokens."""
        limit = self.limits[name[0]]
        if self._closed.get(name, 0) > at_us:
            return False
        if limit.concurrency != UNBOUNDED and self._use(name) >= limit.concurrency:
            return False
        wanted = min(tokens, limit.tokens_max)
        return not limit.rate or self._tokens_at(name, at_us) >= wanted

    # What is durable.

    def _on_assigned(self, record: AttemptAssigned) -> None:
        super()._on_assigned(record)
        del self.holders[record.task]
        task, at_us = self.shadow.book.tasks[record.task], record.at_us
        for name, cost in self.gates(task).items():
            limit = self.limits[name[0]]
            use, bound = self._use(name), limit.concurrency
            demand(bound == UNBOUNDED or use < bound, "a limit is never exceeded", name, use, bound)
            demand(self._closed.get(name, 0) <= at_us, "a closed key starts nothing", name, record)
            if limit.rate:
                self._take(name, limit, min(cost, limit.tokens_max), at_us)
            self.counts["Limited"] += 1
        if task.queue.name == QUEUE:
            self._check_order(task, record)
        self.holders[record.task] = (record.fence, record.worker)

    def _check_order(self, task: Task, record: AttemptAssigned) -> None:
        """Demand that no better task is passed over for which all that let this one go is open."""
        gates = self.gates(task).keys()
        for other in self.shadow.book.tasks.values():
            is_next = other.state is State.READY and other.queue is task.queue
            is_better = (-other.priority, other.rank) < (-task.priority, task.rank)
            if is_next and is_better:
                is_free = all(map(self._is_idle, self.gates(other).keys() - gates))
                demand(not is_free, "the best goes first", record, other.id, task.id)
                self.counts["Passed"] += 1

    def _is_idle(self, name: Name) -> bool:
        """Return whether a limit lets tasks go whatever the time is."""
        limit = self.limits[name[0]]
        is_timed = limit.rate or name in self._closed
        is_bounded = limit.concurrency != UNBOUNDED
        return not is_timed and not (is_bounded and self._use(name) >= limit.concurrency)

    def _take(self, name: Name, limit: LimitSettings, cost: int, at_us: int) -> None:
        tokens = self._tokens_at(name, at_us) - cost
        demand(tokens >= 0, "a start has its tokens", name, float(tokens), limit)
        self._tokens[name] = (tokens, at_us)
        starts = self._starts.setdefault(name, [])
        starts.append((at_us, cost))
        total = 0
        for since_us, taken in reversed(starts):
            total += taken
            allowed = limit.tokens_max + Fraction(limit.rate * (at_us - since_us), limit.per_us)
            demand(total <= allowed, "no window has more starts than its bucket", name, limit)

    def _on_limit(self, record: LimitSet) -> None:
        if record.namespace != "default":
            return
        self._gates.clear()
        limit, old = record.settings, self.limits.get(record.name)
        if old is not None and old.scope() != limit.scope():
            self._forget(record.name)
        elif old is not None:
            for name in [each for each in self._tokens if each[0] == record.name]:
                tokens = self._tokens_at(name, record.at_us)
                if not old.rate or tokens >= old.tokens_max:
                    tokens = Fraction(limit.tokens_max)
                # A bucket has whole units, of which a token has as many as the period microseconds.
                units = min(tokens, Fraction(limit.tokens_max)) * limit.per_us // 1
                self._tokens[name] = (Fraction(units, limit.per_us), record.at_us)
        self._starts = {each: at for each, at in self._starts.items() if each[0] != record.name}
        self.limits[record.name] = limit

    def _on_limit_deleted(self, record: LimitDeleted) -> None:
        self._gates.clear()
        if record.namespace == "default":
            self._forget(record.name)
            del self.limits[record.name]

    def _forget(self, limit: str) -> None:
        for kept in (self._tokens, self._starts, self._closed):
            for name in [each for each in kept if each[0] == limit]:
                del kept[name]

    def _on_closed(self, record: GatesClosed) -> None:
        for text in record.gates:
            name = gate_name(text)
            self._closed[name] = max(record.until_us, self._closed.get(name, 0))

    def _on_filled(self, record: BucketsFilled) -> None:
        for name in map(gate_name, record.gates):
            limit = self.limits[name[0]]
            is_full = not limit.rate or self._tokens_at(name, record.at_us) == limit.tokens_max
            is_open = self._closed.get(name, 0) <= record.at_us
            demand(is_full and is_open, "only a full bucket is forgotten", name, record)

    def _on_attempt_ended(self, record: AttemptEnded) -> None:
        fence = self.holders.get(record.task, (0, ""))[0]
        super()._on_attempt_ended(record)
        if record.event is not Event.THROTTLE:
            return
        self.counts["Throttled"] += 1
        key, after_us = self.throttles[fence]
        task, until_us = self.shadow.book.tasks[record.task], record.at_us + after_us
        for name in self.gates(task):
            if key in (name[0], *self.limits[name[0]].keys):
                closed_us = self._closed.get(name, 0)
                demand(closed_us >= until_us, "a throttled key is closed", name, closed_us, record)

    # What gives way.

    def _on_moved(self, record: TaskMoved) -> None:
        super()._on_moved(record)
        if record.event is Event.KILL and record.by.startswith("limit "):
            self._gave_way(record.task, record.by.removeprefix("limit "))

    def _on_signal(self, record: SignalRequested) -> None:
        if record.by.startswith("limit "):
            self._gave_way(record.task, record.by.removeprefix("limit "))

    def _gave_way(self, task_id: TaskId, limit: str) -> None:
        """Demand that a task that gives way to others has to, and is the right one."""
        tasks = self.shadow.book.tasks
        task = tasks[task_id]
        on_full, bound = self.limits[limit].on_full, self.limits[limit].concurrency
        name = next((each for each in self.gates(task) if each[0] == limit), None)
        demand(name is not None, "who gives way counts for the limit", task, limit)
        if name is None:
            return
        self.counts[f"Gave way: {on_full}"] += 1
        queued = self._ready(name)
        running = sorted(
            (each for each in self.holders if name in self.gates(tasks[each])),
            key=lambda each: self.holders[each][0],
        )
        excess = len(queued) + len(running) - bound
        demand(excess > 0, "none gives way while there is room", task, limit)
        later = sum(each.rank > task.rank for each in queued)
        if on_full is OnFull.CANCEL_NEWEST:
            demand(task in queued and later < excess, "the newest give way", task, queued)
        elif on_full is OnFull.CANCEL_OLDEST:
            demand(task is queued[0] and excess > 1, "the oldest gives way", task, queued)
        else:
            demand(on_full is OnFull.CANCEL_RUNNING, "waiting tasks wait", task)
            is_right = task.id in running[:excess] or task is queued[0]
            demand(is_right, "the oldest that runs gives way", task, running)

    def _ready(self, name: Name) -> list[Task]:
        """Return the tasks that wait for a limit, the oldest first."""
        ready = (each for each in self.shadow.book.tasks.values() if each.state is State.READY)
        return sorted((each for each in ready if name in self.gates(each)), key=lambda it: it.rank)

    # After a turn.

    def on_turn(self, core: Core, turn: Turn) -> None:
        super().on_turn(core, turn)
        if core is not self._core:
            self._core, self._tick_us = core, 0
        if any(isinstance(each, Tick) for each in turn.commands):
            self._tick_us = core.now_us
        ready = [task for task in core.book.tasks.values() if task.state is State.READY]
        limited = [(task, self.gates(task)) for task in ready]
        self._check_crowds(limited)
        self._check_progress(core, limited)

    def _check_crowds(self, limited: list[tuple[Task, dict[Name, int]]]) -> None:
        """Demand that not more wait than a limit lets wait."""
        crowds = Counter(name for _, gates in limited for name in gates)
        for name, queued in crowds.items():
            limit = self.limits[name[0]]
            room = limit.concurrency - self._use(name)
            if limit.on_full is OnFull.CANCEL_NEWEST:
                demand(queued <= max(0, room), "none waits that has no room", name, queued, room)
            elif limit.on_full is OnFull.CANCEL_OLDEST:
                demand(queued <= max(0, room) + 1, "one waits at most", name, queued, room)
            elif limit.on_full is OnFull.CANCEL_RUNNING:
                bound = limit.concurrency
                demand(queued <= bound, "as many wait as may run", name, queued, bound)

    def _check_progress(self, core: Core, limited: list[tuple[Task, dict[Name, int]]]) -> None:
        """Demand that nothing waits that could start."""
        workers = [
            worker
            for worker in core.roster.workers.values()
            if worker.has_room() and QUEUE in worker.queues and worker.namespace.name == "default"
        ]
        queue = core.book.queue("default", QUEUE)
        if not workers or queue is None or queue.paused_by:
            return
        needs: dict[Name, int] = {}
        for _, gates in limited:
            for name, cost in gates.items():
                needs[name] = max(cost, needs.get(name, 1))
        open_ = {name for name, most in needs.items() if self._lets(name, most, self._tick_us)}
        for task, gates in limited:
            if task.queue is queue:
                demand(gates.keys() - open_, "nothing waits that could start", task, gates)
                self.counts["Waits"] += 1

    def at_end(self, core: Core) -> None:
        """Demand that nothing is left of any limit."""
        super().at_end(core)
        gates = core.book.namespace("default").gates
        left = [(gate.name, gate.use, gate.bucket) for gate in gates.gates.values()]
        demand(not left and not gates.held, "no slot and no token is lost", left, gates.held)
