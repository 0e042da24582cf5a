"""The book: all durable state, and every index over it.

Owns the tables and keeps the indexes true to them. Only `apply` changes them, so the same records
in the same order give the same book on any machine. Knows nothing of records, workers' connections
or replies.

Ended tasks stay until storage has them (`take_changes`, then `stored`) and leave memory then. When
a command names one that has left, it is put back for the moment (`recall`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from itertools import islice
from typing import Any, TypeVar

from jackalope.core.api_key import ApiKey
from jackalope.core.assertions import must
from jackalope.core.audit import AuditLog
from jackalope.core.durations import NEVER
from jackalope.core.ids import NO_TASK, TaskId, is_time_ordered, is_volatile
from jackalope.core.lifecycle import ENDED, LEASED, PENDING, Reason, State
from jackalope.core.limits import HAPPENINGS_PER_TASK_MAX
from jackalope.core.shapes.flow import NodeSettings
from jackalope.core.shapes.pace import Throttled
from jackalope.core.shapes.request import Same, StoredAnswer
from jackalope.core.state import flows
from jackalope.core.state.answers import Answers, Cache
from jackalope.core.state.changes import (
    Changes,
    Counters,
    Entity,
    Tally,
    define,
    from_entities,
    snapshot_of,
    to_entity,
)
from jackalope.core.state.contracts import KnownTask
from jackalope.core.state.gates import GATE_KINDS, GateChanges
from jackalope.core.state.queue import Namespace, Queue, make_room
from jackalope.core.state.slices import Slices
from jackalope.core.state.timers import Timers
from jackalope.core.task import (
    NO_OPTIONS,
    BlobRef,
    Body,
    Error,
    HistoryEntry,
    Outcome,
    Task,
    TaskRow,
    TaskSpec,
    blobs_of,
    from_row,
    is_open,
    lease_of,
    places,
    size_of,
    to_row,
)

T = TypeVar("T")
K = TypeVar("K")

_READY, _SCHEDULED = State.READY, State.SCHEDULED
_NAMES_SHARED_MAX = 10_000
_ROWS_AT_A_TIME = 1_000


class Book:
    """Tables and indexes."""

    def __init__(self) -> None:
        self.namespaces: dict[str, Namespace] = {}
        # every task in memory: all that have not ended, and ended ones that storage lacks
        self.tasks: dict[TaskId, Task] = {}
        self.slices: Slices | None = None  # of those that are indexed, if states are compared
        # the unfinished tasks that each task is the guardian of
        self.children: dict[TaskId, dict[TaskId, None]] = {}
        self.dependents: dict[TaskId, dict[TaskId, None]] = {}  # the tasks that wait for each task
        # the nodes that wait for each group of a flow
        self.joiners: dict[tuple[TaskId, str], dict[TaskId, None]] = {}
        # the API keys, by id. Each change makes another dict, so that a reader that keeps the last
        # one sees that there was a change.
        self.api_keys: dict[str, ApiKey] = {}
        self.answers = Answers()  # the answers that are kept
        self.audit = AuditLog()  # what administrators did
        self.counters = Counters()
        self._horizon_taken_us = 0
        self.due: Timers[bytes] = Timers()  # when scheduled tasks are due
        self.expiry: Timers[bytes] = Timers()  # when tasks that have not begun expire
        self.timeouts: Timers[bytes] = Timers()  # when running attempts have run for too long
        # when throttled kinds are accepted again, by namespace and name
        self.throttled: Timers[tuple[str, str]] = Timers()
        self.gate_changes = GateChanges()  # of the limits of all namespaces
        # tasks that storage has and must not have, as they last were if memory had them
        self.gone: dict[TaskId, Task | None] = {}
        self.dirty: dict[TaskId, Task] = {}  # tasks that storage lacks in their present state
        self.taken: dict[TaskId, Task] = {}  # those that are on their way to it
        # ended tasks that are here for the moment; storage has them
        self.recalled: dict[TaskId, Task] = {}
        # everything else that storage lacks, by kind, namespace and name; None for what is gone
        self.entities_dirty: dict[tuple[str, str, str], object] = {}
        self.queues_gone: dict[tuple[str, str], object] = {}
        self.blobs_gone: list[str] = []
        self.has_volatile = False  # whether there ever was anything that is not for the disk
        # the last rank of a task that is not; what becomes ready later must have a later time
        self.volatile_rank = 0
        # tasks that are not for the disk, but whose payload is a blob; also some that have left
        self.volatile_large: dict[TaskId, Task] = {}
        # tasks that wait for a volatile one, which earlier versions accepted
        self.let_down: dict[TaskId, None] = {}
        # namespaces that had as many attempts under way as they may, and have fewer now
        self.freed: dict[Namespace, None] = {}
        self._volatile_ended: list[TaskId] = []
        self._queues_leaving: dict[tuple[str, str], object] = {}
        self._names: dict[str, str] = {}

    # Reading.

    def queue(self, namespace: str, queue: str) -> Queue | None:
        return ns.queues.get(queue) if (ns := self.namespaces.get(namespace)) else None

    def may_have_ended(self, task_id: TaskId) -> bool:
        """Return whether a task that is not in memory may have ended and left it.

        A time-ordered id greater than every one that ever left is certainly new: this spares the
        submit of new tasks a storage lookup.
        """
        return not is_time_ordered(task_id) or task_id <= self.counters.floor

    def guardian(self, parent: TaskId) -> TaskId:
        """Return the nearest ancestor, from the parent on, that has not ended."""
        task = self.tasks.get(parent)
        while task is not None and task.state in ENDED:
            task = self.tasks.get(task.guardian)
        return NO_TASK if task is None else task.id

    def snapshot(self) -> Changes:
        return snapshot_of(self)

    def slice_up(self) -> None:
        """Index the slices of tasks and answers from now on, for digests (see `digest`)."""
        self.slices = Slices(self.tasks)
        self.answers.slices = Slices(self.answers.by_task)

    # Writing behind.

    def restore(
        self,
        counters: Counters,
        entities: Iterable[Entity],
        tasks: Iterable[TaskRow],
        answers: Iterable[StoredAnswer] = (),
    ) -> None:
        """Fill an empty book from stored rows."""
        must(not self.tasks and not self.namespaces, "only an empty book is filled")
        self.counters = counters
        self._horizon_taken_us = counters.horizon_us
        for entity, value in from_entities(entities):
            self._restore_entity(entity, value)
        for answer in sorted(answers, key=lambda answer: answer.rank):
            self.answers.enter(self.cache_of(answer), copy(answer))
        rows = iter(tasks)
        while some := list(islice(rows, _ROWS_AT_A_TIME)):
            self.enter([self.from_row(row) for row in some])

    def _restore_entity(self, entity: Entity, value: Any) -> None:
        if entity.kind == "api_key":
            self.api_keys[value.id] = value
            return
        if entity.kind == "audit":
            self.audit.restore(value)
            return
        namespace = self.namespace(entity.namespace)
        if entity.kind == "namespace":
            namespace.take_row(value)
        elif entity.kind == "queue":
            namespace.queues[entity.name] = Queue.from_row(namespace, value)
        elif entity.kind in GATE_KINDS:
            namespace.restore_limit(entity.kind, entity.name, value, self.tasks)
        elif entity.kind == "tally":
            namespace.tallies[entity.name] = value
        elif entity.kind == "schedule":
            namespace.schedules[entity.name] = value
        elif entity.kind == "contract":
            namespace.queues[value.queue].contracts[value.name] = KnownTask(value)
        elif entity.kind == "throttle":
            self.keep_throttle(entity.name, value)
        else:
            define(namespace, value)

    def recall(self, rows: Iterable[TaskRow]) -> int:
        """Put ended tasks back into memory until changes are next stored, and return how many.

        Rows of tasks that memory has a newer state of are ignored.
        """
        recalled = 0
        for row in rows:
            task = self.from_history(row)
            if task is not None:
                recalled += 1
                self.tasks[row.id] = self.recalled[row.id] = task
                if row.options.alias:
                    task.queue.namespace.aliases.setdefault(row.options.alias, row.id)
        return recalled

    def from_history(self, row: TaskRow) -> Task | None:
        """Make an unindexed ended task from its row; None if memory has a newer state."""
        if row.id in self.tasks or row.id in self.gone or row.state not in ENDED:
            return None
        is_over = row.outcome is not None and row.outcome.forget_us <= self.counters.horizon_us
        if is_over and row.id not in self.answers.by_task:
            return None  # It is forgotten, although storage still has it.
        is_deleted = (row.namespace, row.queue) in self.queues_gone
        if is_deleted or self.queue(row.namespace, row.queue) is None:
            return None
        return self.from_row(row)

    def drop_blob(self, body: Body, unless: Body = b"") -> None:
        """Release the blob of a rejected body, unless a task has that very blob."""
        if isinstance(body, BlobRef) and body != unless:
            self.blobs_gone.append(body.blob)

    def has_changes(self) -> bool:
        return bool(
            self.dirty
            or self.gone
            or self.blobs_gone
            or self.recalled
            or self.entities_dirty
            or self.queues_gone
            or self.answers.dirty
            or self.counters.horizon_us != self._horizon_taken_us
        )

    def take_changes(self) -> Changes:
        """Return what changed since the last call. Pass it to `stored` once storage has it."""
        gone = dict(self.gone)
        rows = []
        for task in self.dirty.values():
            outcome = task.outcome
            if task.state not in ENDED:
                rows.append(to_row(task))
                continue
            if is_time_ordered(task.id) and task.id > self.counters.floor:
                self.counters.floor = task.id
            if outcome is not None and outcome.forget_us <= outcome.ended_us:
                gone[task.id] = None
                self.blobs_gone += blobs_of(task)
            else:
                rows.append(to_row(task))
        changes = Changes(
            counters=copy(self.counters),
            tasks=rows,
            gone=list(gone),
            entities=[
                to_entity(*name, each.to_row() if isinstance(each, Queue | Namespace) else each)
                for name, each in self.entities_dirty.items()
            ],
            queues_gone=list(self.queues_gone),
            blobs=self.blobs_gone,
            answers=self.answers.changed(),
            answers_gone=self.answers.gone(),
        )
        self._horizon_taken_us = self.counters.horizon_us
        self.blobs_gone = []
        self.taken, self.dirty = self.dirty, {}
        self.entities_dirty, self.answers.dirty = {}, {}
        self._queues_leaving = dict(self.queues_gone)
        return changes

    def stored(self, changes: Changes) -> None:
        """Evict ended tasks that storage has, unless they changed again meanwhile."""
        self.taken = {}
        for task_id in changes.gone:
            self.gone.pop(task_id, None)
        self.forget(changes.gone)
        self.forget([row.id for row in changes.tasks if row.state in ENDED])
        self.forget(self.recalled)
        self.recalled = {}
        for name, deletion in self._queues_leaving.items():
            # One that was deleted once more meanwhile is still to go.
            if self.queues_gone.get(name) is deletion:
                del self.queues_gone[name]
        self._queues_leaving = {}

    def forget(self, ids: Iterable[TaskId]) -> None:
        """Evict ended tasks, unless storage lacks their latest state."""
        for task_id in ids:
            task = self.tasks.get(task_id)
            if task is None or task.state not in ENDED or task_id in self.dirty:
                continue
            del self.tasks[task_id]
            if self.slices is not None:
                self.slices.discard(task_id)
            if task.options.alias:
                aliases = task.queue.namespace.aliases
                if aliases.get(task.options.alias) == task_id:
                    del aliases[task.options.alias]

    def let_go(self) -> None:
        """Evict ended volatile tasks, which storage never has."""
        for task_id in self._volatile_ended:
            task = self.tasks.get(task_id)
            if task is not None and task.state in ENDED:
                self.blobs_gone += blobs_of(task)
        self.forget(self._volatile_ended)
        self._volatile_ended = []

    # Primitives, for `apply` alone. They take lists, and look up once what tasks have in common.

    def mark(self, tasks: Iterable[Task]) -> None:
        """Mark tasks as changed for storage, unless they are volatile."""
        dirty, has_volatile = self.dirty, self.has_volatile
        for task in tasks:
            if not (has_volatile and is_volatile(task.id)):
                dirty[task.id] = task
            elif isinstance(task.payload, BlobRef):
                self.volatile_large[task.id] = task

    def drop(self, task: Task) -> None:
        """Remove an unfinished task without an outcome."""
        self._leave_state(task.queue, task.state, (task,))
        task.queue.count_in((task,), -1)
        task.state = State.KILLED
        if task.expires_us:
            self.expiry.cancel(task.id)
        _leave(task.queue.namespace.runs, task.options.schedule, task.id)
        del self.tasks[task.id]
        if self.slices is not None:
            self.slices.discard(task.id)
        self.dirty.pop(task.id, None)
        self.blobs_gone += blobs_of(task)
        if not is_volatile(task.id):
            self.gone[task.id] = task

    def namespace(self, name: str) -> Namespace:
        """Return a namespace; create it if it does not exist."""
        if name not in self.namespaces:
            self.namespaces[name] = Namespace(name, self.gate_changes)
        return self.namespaces[name]

    def from_row(self, row: TaskRow) -> Task:
        """Make an unindexed task from its row."""
        return from_row(row, self.namespace(row.namespace).queues[row.queue])

    def next_rank(self, task_id: TaskId, at_us: int) -> int:
        """Return the next rank in the queue order: the time, made unique.

        That of a durable task follows from the records alone, so that it is the same on every node.
        A volatile task goes behind all others.
        """
        rank = max(self.counters.rank + 1, at_us)
        if is_volatile(task_id):
            rank = self.volatile_rank = max(rank, self.volatile_rank + 1)
        else:
            self.counters.rank = rank
        return rank

    def tally(self, namespace: Namespace, worker: str, at_us: int) -> Tally:
        """Return the counters of a worker that has just ended an attempt."""
        tally = namespace.tallies.get(worker)
        if tally is None:
            forgotten = make_room(namespace)
            if forgotten:
                self.entities_dirty["tally", namespace.name, forgotten] = None
            tally = namespace.tallies[worker] = Tally()
        tally.at_us = at_us
        self.entities_dirty["tally", namespace.name, worker] = tally
        return tally

    def keep_api_key(self, key: ApiKey) -> None:
        self.api_keys = {**self.api_keys, key.id: key}
        self.entities_dirty["api_key", "", key.id] = key

    def drop_api_key(self, key: str) -> None:
        self.api_keys = {each: kept for each, kept in self.api_keys.items() if each != key}
        self.entities_dirty["api_key", "", key] = None

    def keep_throttle(self, name: str, entry: Throttled) -> None:
        self.namespace(entry.namespace).throttles[name] = entry
        self.throttled.set((entry.namespace, name), entry.until_us)

    def cache_of(self, answer: StoredAnswer) -> Cache:
        return self.namespaces[answer.namespace].queues[answer.queue].cache

    def share(self, text: str) -> str:
        """Intern a text: most tasks have the same few."""
        return self.sharing()(text, text)

    def sharing(self) -> Callable[[str, str], str]:
        """Return the function that interns texts, each given twice; see `share`."""
        if len(self._names) >= _NAMES_SHARED_MAX:
            self._names.clear()
        return self._names.setdefault

    def enter(self, tasks: Sequence[Task]) -> None:
        """Put tasks into memory, and index them."""
        for task in tasks:
            self.tasks[task.id] = task
        self.admit(tasks)
        self.index(tasks)

    def admit(self, tasks: Iterable[Task]) -> None:
        """Index the slices of tasks that are in memory, and were not before."""
        if self.slices is not None:
            for task in tasks:
                self.slices.add(task.id)

    def index(self, tasks: Sequence[Task]) -> None:
        """Index tasks that are in memory, and were not before."""
        for task in tasks:
            if task.options is not NO_OPTIONS:
                self.link(task)
        for queue, state, run in places(tasks):
            if state in LEASED:
                self.enter_lease(run)
            if state not in ENDED:
                self.enter_state(queue, state, run)
                queue.count_in(run)

    def link(self, task: Task) -> None:
        """Index what only tasks with options have."""
        options = task.options
        if options.alias:
            task.queue.namespace.aliases[options.alias] = task.id
        if task.guardian and task.state not in ENDED:
            self.children.setdefault(task.guardian, {})[task.id] = None
        if options.identity and task.state not in ENDED:
            task.queue.cache.flights[options.identity] = task.id
        if options.pace is not None and is_open(task):
            task.queue.standing[options.pace.kind(task.name)] = task.id
        if task.waiting_for:
            self._enter_waiting(task, task.waiting_for)
        if options.node is not None and task.state not in ENDED:
            self._enter_groups(task, options.node)
        if options.schedule and task.state not in ENDED:
            task.queue.namespace.runs.setdefault(options.schedule, {})[task.id] = None

    def _enter_groups(self, task: Task, node: NodeSettings) -> None:
        """Index the groups that a node waits for."""
        if not flows.node_state(task).is_released:
            for group in node.groups:
                self.joiners.setdefault((task.options.parent, group), {})[task.id] = None

    def leave_group(self, task: Task, group: str) -> None:
        """Let a node wait for a group no longer."""
        _leave(self.joiners, (task.options.parent, group), task.id)

    def leave_dependency(self, task: Task, dependency: TaskId) -> None:
        """Let a task wait for another no longer, as far as the index goes."""
        waiting = self.dependents[dependency]
        del waiting[task.id]
        if not waiting:
            del self.dependents[dependency]

    def join_dependency(self, task: Task, dependency: TaskId) -> None:
        """Let a task wait for another again."""
        task.waiting_for = {*(task.waiting_for or ()), dependency}
        self.dependents.setdefault(dependency, {})[task.id] = None

    def _enter_waiting(self, task: Task, waiting_for: set[TaskId]) -> None:
        """Index what a task waits for, but for volatile tasks: no record reports their end."""
        lasting = {dependency for dependency in waiting_for if not is_volatile(dependency)}
        if len(lasting) < len(waiting_for):
            task.waiting_for = lasting or None
            self.let_down[task.id] = None
        for dependency in lasting:
            self.dependents.setdefault(dependency, {})[task.id] = None

    def replace(self, task: Task, spec: TaskSpec, to: State, due_us: int, expires_us: int) -> None:
        """Give a task that has not begun what another has, but for its id and its place in line."""
        self._leave_state(task.queue, task.state, (task,))
        if task.expires_us:
            self.expiry.cancel(task.id)
        self.drop_blob(task.payload, unless=spec.payload)
        task.key, task.priority, task.penalty = spec.key, spec.priority, 0
        namespace = task.queue.namespace
        if namespace.bytes_stored is not None:
            namespace.bytes_stored += size_of(spec.payload) - size_of(task.payload)
        task.payload, task.options = spec.payload, spec.options or NO_OPTIONS
        task.state, task.due_us, task.expires_us = to, due_us, expires_us
        self.enter_state(task.queue, to, (task,))

    def enter_lease(self, tasks: Sequence[Task], *, is_new: bool = False) -> None:
        """Record the leases of workers, and take a slot of each limit; of new ones, tokens too."""
        for task in tasks:
            attempt, namespace = task.attempt or lease_of(task), task.queue.namespace
            held = namespace.leases.get(attempt.worker)
            if held is None:
                held = namespace.leases[attempt.worker] = {}
            held[task.id] = task
            if task.options.needs is not None:
                namespace.hold_resources(attempt.worker, task.options.needs)
            if gates := namespace.gates:
                taken_us = attempt.assigned_us if is_new else None
                self.entities_dirty.update(gates.hold(task, self.tasks, taken_us))
            if attempt.times_out_us:
                self.timeouts.set(task.id, attempt.times_out_us)

    def change_state(self, tasks: Sequence[Task], to: State) -> None:
        """Take tasks out of the state that they are in, and into this one."""
        for queue, state, run in places(tasks):
            self._leave_state(queue, state, run)
            for task in run:
                task.state = to
            self.enter_state(queue, to, run)

    def enter_state(self, queue: Queue, state: State, tasks: Sequence[Task]) -> None:
        """Count and index tasks of a queue that are in this state from now on."""
        queue.counts[state] += len(tasks)
        if state is _READY:
            queue.namespace.line_up(queue, tasks, self.tasks)
            if queue.traits is not None and queue.traits.bytes_max:
                queue.ready_bytes += sum(size_of(task.payload) for task in tasks)
        elif state is _SCHEDULED:
            for task in tasks:
                self.due.set(task.id, task.due_us)
        elif state in LEASED:
            queue.namespace.leased += len(tasks)
        if state in PENDING:
            queue.depth += len(tasks)
            queue.namespace.depth += len(tasks)
            for task in tasks:
                if task.expires_us:
                    self.expiry.set(task.id, task.expires_us)

    def _leave_state(self, queue: Queue, state: State, tasks: Sequence[Task]) -> None:
        """Take tasks of a queue out of this state, and give back what they hold in it."""
        queue.counts[state] -= len(tasks)
        if state in PENDING:
            queue.depth -= len(tasks)
            queue.namespace.depth -= len(tasks)
        if state is _READY:
            queue.namespace.step_out(queue, tasks, self.tasks)
            if queue.traits is not None and queue.traits.bytes_max:
                queue.ready_bytes -= sum(size_of(task.payload) for task in tasks)
        elif state is _SCHEDULED:
            for task in tasks:
                self.due.cancel(task.id)
        elif state in LEASED:
            self._leave_lease(queue.namespace, tasks)

    def _leave_lease(self, namespace: Namespace, tasks: Sequence[Task]) -> None:
        """Release leases and their slots."""
        if namespace.is_at_limit():
            self.freed[namespace] = None
        namespace.leased -= len(tasks)
        for task in tasks:
            attempt = task.attempt or lease_of(task)
            del namespace.leases[attempt.worker][task.id]
            if task.options.needs is not None:
                namespace.free_resources(attempt.worker, task.options.needs)
            if namespace.gates.held:
                namespace.gates.free(task, self.tasks)
            if attempt.times_out_us:
                self.timeouts.cancel(task.id)
            task.attempt = None

    def end(self, tasks: Sequence[Task], to: State, outcomes: Sequence[Outcome]) -> None:
        """Let tasks end in this state, each with its outcome."""
        for queue, state, run in places(tasks):
            self._leave_state(queue, state, run)
            queue.count_in(run, -1)
            queue.ended[to] = queue.ended.get(to, 0) + len(run)
        dependents, children = self.dependents, self.children
        number = 0
        for task in tasks:
            outcome = outcomes[number]
            number += 1  # noqa: SIM113
            task.state, task.outcome = to, outcome
            task.queue.recent_ends_us.append(outcome.ended_us)
            if task.expires_us:
                self.expiry.cancel(task.id)
            if dependents and task.id in dependents:
                self._release_dependents(task)
            if task.options is not NO_OPTIONS:
                if task.flow is not None:
                    flows.end(self, task)
                self._unlink(task)
            if children and task.id in children:
                self._hand_over_children(task)
        if self.has_volatile:
            self._volatile_ended += [task.id for task in tasks if is_volatile(task.id)]

    def outcome(
        self,
        task: Task,
        at_us: int,
        result: Body = b"",
        error: Error | None = None,
        reason: Reason | None = None,
    ) -> Outcome:
        """Return what the end of a task at this time leaves behind, and for how long."""
        retention_us, options = task.queue.policy.retention_us, task.options
        if options.identity and options.same is not Same.UNIQUE:
            # Long enough to be stored: from then on the cache keeps what is an answer.
            retention_us = max(retention_us, 1)
        forget_us = NEVER if retention_us >= NEVER else at_us + retention_us
        return Outcome(result, error, reason, at_us, forget_us)

    def _release_dependents(self, task: Task) -> None:
        """Let those that wait for a task that ends wait for it no longer."""
        for dependent_id in self.dependents.pop(task.id):
            dependent = self.tasks[dependent_id]
            if dependent.waiting_for is not None:
                dependent.waiting_for.discard(task.id)
                if dependent.flow is not None:
                    place = dependent.options.depends_on.index(task.id)
                    flows.arrive(self, dependent, task, place)
                self.mark((dependent,))

    def _hand_over_children(self, task: Task) -> None:
        """Give the unfinished children of an ending task to its own guardian."""
        for child_id in self.children.pop(task.id):
            child = self.tasks[child_id]
            child.guardian = task.guardian
            self.mark((child,))
            if task.guardian:
                self.children.setdefault(task.guardian, {})[child_id] = None

    def _unlink(self, task: Task) -> None:
        if task.options.identity:
            del task.queue.cache.flights[task.options.identity]
        if task.options.pace is not None:
            kind = task.options.pace.kind(task.name)
            if task.queue.standing.get(kind) == task.id:
                del task.queue.standing[kind]
        for dependency in task.waiting_for or ():
            self.leave_dependency(task, dependency)
        task.waiting_for = None
        if task.options.node is not None:
            for group in task.options.node.groups:
                self.leave_group(task, group)
        if task.guardian:
            _leave(self.children, task.guardian, task.id)
        if task.options.schedule:
            _leave(task.queue.namespace.runs, task.options.schedule, task.id)

    def note(self, task: Task, at_us: int, what: str, by: str = "", detail: str = "") -> None:
        """Add an entry to the history of a task."""
        self.note_all((task,), (HistoryEntry(at_us, what, by, detail),))

    def note_all(self, tasks: Sequence[Task], entries: Sequence[HistoryEntry]) -> None:
        """Add an entry to the history of each task, which storage lacks then."""
        dirty, has_volatile = self.dirty, self.has_volatile
        number = 0  # By hand: to make a zip takes as long as all the rest for one task.
        for task in tasks:
            entry, history = entries[number], task.history
            number += 1  # noqa: SIM113
            if history is None:
                task.history = [entry]
            else:
                history.append(entry)
                if len(history) > HAPPENINGS_PER_TASK_MAX:
                    del history[HAPPENINGS_PER_TASK_MAX // 2]
            if not has_volatile:
                dirty[task.id] = task
        if has_volatile:
            self.mark(tasks)


def _leave(index: dict[K, dict[TaskId, None]], key: K, task: TaskId) -> None:
    """Take a task out of an index, and the key with the last of its tasks."""
    found = index.get(key)
    if found is not None:
        found.pop(task, None)
        if not found:
            del index[key]
