"""The tasks of the model: what is known of them, and what can become of them.

The plainest way: a dict of tasks, a dict of queues, and linear scans. See `tests.properties.model`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jackalope.core.api_key import ApiKey
from jackalope.core.commands import Verdict
from jackalope.core.effects import SignalAsked
from jackalope.core.ids import NO_TASK, TaskId, successor_id
from jackalope.core.lifecycle import ENDED, Event, Reason, State
from jackalope.core.limits import RETRIES_ASKED_MAX
from jackalope.core.policy import DEFAULT_POLICY, OnLost, Policy
from jackalope.core.task import OnDependency, Options, Retry, Signal, Stage, TaskSpec
from jackalope.core.tasks.attempts import chance

#: What should have happened: the kind of record, and what matters in it.
Fact = tuple[Any, ...]
WEIGHT = {Signal.PAUSE: 0, Signal.TIMEOUT: 1, Signal.KILL: 2}


@dataclass
class ModelTask:
    """A task. `fence` is 0 unless a worker holds the lease; `rank` is 0 until it was ready."""

    spec: TaskSpec
    state: State
    batch: int
    priority: int
    expires_us: int
    due_us: int
    created_us: int
    waiting_for: set[TaskId]
    guardian: TaskId = NO_TASK
    rank: int = 0
    penalty: int = 0
    failures: int = 0
    crashes: int = 0
    interruptions: int = 0
    attempts: int = 0
    avoid: str = ""
    worker: str = ""
    fence: int = 0
    started_us: int = 0
    times_out_us: int = 0
    timeout_at_us: int = 0
    request: tuple[Signal, Stage] | None = None
    reason: Reason | None = None
    is_kept: bool = True

    @property
    def id(self) -> TaskId:
        return self.spec.id

    @property
    def options(self) -> Options:
        return self.spec.options or Options()

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED


@dataclass
class ModelQueue:
    policy: Policy
    is_paused: bool = False
    batch: int = 1
    batch_fill: int = 0


@dataclass
class ModelWorker:
    name: str
    session: int
    queues: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    names: tuple[str, ...] | None = None
    slots: int = 0
    lease_us: int = 0
    grace_us: int = 0
    heard_us: int = 0
    resume_until_us: int = 0
    is_draining: bool = False
    is_ready: bool = True
    #: Each is [ref, how many are left, until when].
    claims: list[list[int]] = field(default_factory=list)


class Tasks:
    """What the core should know, and what happens to a task."""

    def __init__(self) -> None:
        self.now_us = 0
        self.last_fence = 0
        self.last_rank = 0
        self.tasks: dict[TaskId, ModelTask] = {}
        self.queues: dict[str, ModelQueue] = {}
        self.limits: dict[str, int] = {}
        self.api_keys: dict[str, ApiKey] = {}
        self.workers: dict[str, ModelWorker] = {}
        #: Who watches each task, and whether they want to hear of its progress.
        self.watchers: dict[TaskId, dict[int, bool]] = {}
        #: What was last said of each task: under which fence, when, and how far.
        self.said: dict[TaskId, tuple[int, int, float | None]] = {}
        self.orphans: dict[TaskId, int] = {}
        # Of the command at hand.
        self.facts: list[Fact] = []
        self.messages: list[tuple[Any, ...]] = []
        self.claimant: ModelWorker | None = None
        self.ended: list[tuple[ModelTask, list[ModelTask]]] = []

    # Looking.

    def with_session(self, session: int) -> ModelWorker | None:
        return next((w for w in self.workers.values() if session and w.session == session), None)

    def held_by(self, worker: str) -> list[ModelTask]:
        return [task for task in self.tasks.values() if task.fence and task.worker == worker]

    def policy(self, task: ModelTask) -> Policy:
        return self.queues[task.spec.queue].policy

    def in_flight(self, tag: str) -> int:
        return sum(tag in task.options.tags for task in self.tasks.values() if task.fence)

    def has_room(self, worker: ModelWorker) -> bool:
        is_free = len(self.held_by(worker.name)) < worker.slots or bool(worker.claims)
        return bool(worker.session and worker.is_ready) and not worker.is_draining and is_free

    def serves(self, worker: ModelWorker, task: ModelTask) -> bool:
        is_key_served = not worker.keys or task.spec.key in worker.keys
        is_known = worker.names is None or task.spec.name in worker.names
        return task.spec.queue in worker.queues and is_key_served and is_known

    def may_take(self, worker: ModelWorker, task: ModelTask) -> bool:
        """Tell whether the worker could be given the task now."""
        others = [
            other
            for other in self.workers.values()
            if other is not worker
            and self.serves(other, task)
            and not other.is_draining
            and (other.slots or other.claims)
        ]
        return (
            task.state is State.READY
            and self.has_room(worker)
            and self.serves(worker, task)
            and not self.queues[task.spec.queue].is_paused
            and all(self.in_flight(t) < self.limits.get(t, 10**9) for t in task.options.tags)
            and not (task.avoid == worker.name and others)
        )

    def best_for(self, worker: ModelWorker) -> list[ModelTask]:
        """Return the best task of each queue for a worker, and only the best of these.

        Where ageing makes two equal, both are returned.
        """
        heads: list[ModelTask] = []
        for name in dict.fromkeys(worker.queues):
            queued = [task for task in self.tasks.values() if task.spec.queue == name]
            mine = [task for task in queued if self.may_take(worker, task)]
            first = min(map(self.order, mine), default=None)
            heads += [task for task in mine if self.order(task) == first]
        best = min(((-task.priority, task.rank) for task in heads), default=None)
        equal = [t for t in heads if sum(self.order(t) == self.order(u) for u in heads) > 1]
        return [task for task in heads if (-task.priority, task.rank) == best] + equal

    def order(self, task: ModelTask) -> tuple[int, int]:
        """Return less for the task of a queue that goes first."""
        ageing_us = self.policy(task).ageing_us
        if ageing_us:
            return task.rank - task.priority * ageing_us, 0
        return -task.priority, task.rank

    # Beginnings.

    def accept(self, spec: TaskSpec) -> None:
        options, queue = spec.options or Options(), self.queues[spec.queue]
        dependencies = [self.tasks[dependency] for dependency in options.depends_on]
        waiting_for = {task.id for task in dependencies if not task.has_ended}
        is_hopeless = options.on_dependency is OnDependency.DEAD and any(
            task.state in (State.DEAD, State.KILLED) for task in dependencies
        )
        if options.held or queue.policy.held:
            state = State.HELD
        elif waiting_for or is_hopeless:
            state = State.WAITING
        else:
            state = State.SCHEDULED if options.run_at_us > self.now_us else State.READY
        expires_us = options.expires_at_us
        if not expires_us and queue.policy.time_to_live_us:
            start_us = max(self.now_us, options.run_at_us)
            expires_us = start_us + queue.policy.time_to_live_us
        if queue.batch_fill >= queue.policy.batch_size:
            queue.batch, queue.batch_fill = queue.batch + 1, 0
        queue.batch_fill += 1
        parent = self.tasks.get(options.parent)
        task = ModelTask(
            spec,
            state,
            queue.batch,
            spec.priority,
            expires_us,
            options.run_at_us,
            self.now_us,
            waiting_for,
            self.living(parent.id if parent else NO_TASK),
        )
        self.tasks[spec.id] = task
        self.facts.append(("submit", spec.id, state, queue.batch, expires_us, waiting_for))
        if is_hopeless:
            self.move(task, Event.ABANDON, State.DEAD, Reason.DEPENDENCY)

    def living(self, ancestor: TaskId) -> TaskId:
        """Return the nearest of a task's ancestors that has not ended."""
        while ancestor and (task := self.tasks.get(ancestor)) and task.has_ended:
            ancestor = task.guardian
        return ancestor if ancestor in self.tasks else NO_TASK

    def open_queue(self, name: str) -> ModelQueue:
        if name not in self.queues:
            self.queues[name] = ModelQueue(DEFAULT_POLICY)
            self.facts.append(("queue", name, DEFAULT_POLICY))
        return self.queues[name]

    def open_state(self, task: ModelTask) -> State:
        if task.waiting_for:
            return State.WAITING
        return State.SCHEDULED if task.due_us > self.now_us else State.READY

    # Changes of a task.

    def move(self, task: ModelTask, event: Event, to: State, reason: Reason | None = None) -> None:
        self.facts.append(("move", task.id, event, to, reason))
        self.change(task, to, reason)

    def end_attempt(
        self,
        task: ModelTask,
        event: Event,
        to: State,
        reason: Reason | None = None,
        due_us: int = 0,
    ) -> None:
        self.facts.append(("end", task.id, event, to, reason, due_us))
        self.orphans.pop(task.id, None)
        if event is Event.FAIL:
            task.failures += 1
            task.avoid = task.worker if self.policy(task).prefer_other_worker else ""
            lowered = max(0, task.priority - self.policy(task).priority_drop)
            task.penalty += task.priority - lowered
            task.priority = lowered
        elif event is Event.LOSE and task.state is State.RUNNING:
            task.crashes += 1
        elif event is not Event.STOP:
            task.interruptions += 1
        task.due_us = due_us if to not in ENDED else task.due_us
        self.change(task, to, reason)

    def change(self, task: ModelTask, to: State, reason: Reason | None = None) -> None:
        """Take a task to a state, and its lease from whoever held it."""
        task.state, task.reason = to, reason
        task.worker, task.fence, task.request = "", 0, None
        task.started_us = task.times_out_us = task.timeout_at_us = 0
        if to in ENDED:
            task.waiting_for = set()
            task.is_kept = self.policy(task).retention_us > 0
            dependents = [each for each in self.tasks.values() if task.id in each.waiting_for]
            for each in self.tasks.values():
                each.waiting_for.discard(task.id)
                if each.guardian == task.id and not each.has_ended:
                    each.guardian = task.guardian
            self.ended.append((task, dependents))

    def request(self, task: ModelTask, signal: Signal) -> None:
        """Ask a worker for something, unless as much or more is already asked."""
        asked = task.request
        if asked is None or asked[1] is Stage.REFUSED or WEIGHT[signal] > WEIGHT[asked[0]]:
            self.facts.append(("signal", task.id, signal))
            task.request = asked = (signal, Stage.REQUESTED)
        worker = self.workers.get(task.worker)
        if worker is not None and worker.session:
            self.messages.append((worker.session, SignalAsked(task.id, task.fence, asked[0])))

    def as_asked(self, task: ModelTask) -> State | None:
        """Return the state that was asked for, if the task may have it now that it stops."""
        if task.request is None or task.request[1] is Stage.REFUSED:
            return None
        return {Signal.KILL: State.KILLED, Signal.PAUSE: State.PAUSED}.get(task.request[0])

    def fail(self, task: ModelTask, verdict: Verdict, retry_after_us: int) -> None:
        policy, asked = self.policy(task), self.as_asked(task)
        own = task.options.retry or Retry(
            policy.retries, policy.retry_base_us, policy.retry_factor, policy.retry_cap_us
        )
        wait_us = min(int(own.base_us * own.factor**task.failures), own.cap_us)
        wait_us -= int(wait_us * policy.retry_jitter * chance(task.id, task.failures))
        wait_us = retry_after_us if retry_after_us > 0 else wait_us
        retries = own.retries
        if task.options.retry is None and not retries and retry_after_us > 0:
            retries = RETRIES_ASKED_MAX
        if verdict is Verdict.REJECT:
            self.end_attempt(task, Event.FAIL, State.DEAD, Reason.REJECTED)
        elif asked is State.KILLED:
            self.end_attempt(task, Event.FAIL, asked)
        elif verdict is Verdict.DEAD or task.failures >= retries:
            self.end_attempt(task, Event.FAIL, State.DEAD, Reason.FAILED)
        elif asked is not None:
            self.end_attempt(task, Event.FAIL, asked)
        elif wait_us:
            self.end_attempt(task, Event.FAIL, State.SCHEDULED, due_us=self.now_us + wait_us)
        else:
            self.end_attempt(task, Event.FAIL, State.READY)

    def lose(self, task: ModelTask) -> None:
        policy, asked = self.policy(task), self.as_asked(task)
        if task.state is State.ASSIGNED:
            self.interrupt(task, Event.LOSE)
        elif asked is not None:
            self.end_attempt(task, Event.LOSE, asked)
        elif (
            policy.crash_limit and task.crashes + 1 >= policy.crash_limit
        ) or policy.on_lost is OnLost.DEAD:
            self.end_attempt(task, Event.LOSE, State.DEAD, Reason.CRASHED)
        elif policy.on_lost is OnLost.PAUSE:
            self.end_attempt(task, Event.LOSE, State.PAUSED)
        else:
            self.end_attempt(task, Event.LOSE, State.READY)

    def interrupt(self, task: ModelTask, event: Event) -> None:
        limit, asked = self.policy(task).interruption_limit, self.as_asked(task)
        if asked is not None:
            self.end_attempt(task, event, asked)
        elif limit and task.interruptions + 1 >= limit:
            self.end_attempt(task, event, State.DEAD, Reason.INTERRUPTED)
        elif task.expires_us and task.expires_us <= self.now_us:
            self.end_attempt(task, event, State.DEAD, Reason.EXPIRED)
        else:
            self.end_attempt(task, event, State.READY)

    def finish(self, task: ModelTask, result: Any) -> None:
        self.facts.append(("finish", task.id))
        target, guardian = self.policy(task).result_becomes, task.guardian
        self.change(task, State.SUCCEEDED)
        if target:
            options = Options(headers=task.options.headers, tags=task.options.tags, parent=task.id)
            priority = task.priority + task.penalty
            spec = TaskSpec(successor_id(task.id, target), target, task.spec.name, task.spec.key)
            spec.priority, spec.payload, spec.options = priority, result, options
            if spec.id not in self.tasks:
                self.accept(spec)
                self.tasks[spec.id].guardian = guardian
