"""Apply: what each record means for the book.

`apply` is the only way in which durable state changes: on the node that decided, on restart, and on
a follower. It decides nothing. A record that does not fit the book is a bug.

Records come in runs of one kind. What happens to every task is applied to a run as a whole, with
all that its tasks have in common looked up once; what is rare, record by record. Either way the
book is the same as if each record had come alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from jackalope.core.assertions import BrokenInvariant, must
from jackalope.core.ids import is_volatile
from jackalope.core.lifecycle import BEGINNINGS, ENDED, Event, State, can_lead, is_legal
from jackalope.core.records import (
    AnswerPinned,
    AnswersDropped,
    AnswerStored,
    AnswerUsed,
    AnyRecord,
    ApiKeyCreated,
    ApiKeyRevoked,
    AttemptAssigned,
    AttemptEnded,
    AttemptFinished,
    AttemptStarted,
    Bound,
    ContractDeclared,
    ContractDeleted,
    EventSent,
    ExchangeDeclared,
    ExchangeDeleted,
    FencesReserved,
    FlowFailed,
    FlowStopped,
    Forgotten,
    GroupPinned,
    GroupsClosed,
    InputsChanged,
    PoolDeclared,
    PoolDeleted,
    QueueDeclared,
    QueueDeleted,
    QueuePaused,
    QueueResumed,
    RequestJoined,
    RuleCleared,
    RuleSet,
    ScheduleDeclared,
    ScheduleDeleted,
    ScheduleFired,
    ScheduleOrphaned,
    SchedulePaused,
    ScheduleResumed,
    SignalAdvanced,
    SignalRequested,
    SlotsMissed,
    StepRecorded,
    TaskMoved,
    TaskPurged,
    TaskReplaced,
    TaskRevived,
    TasksDropped,
    TaskSubmitted,
    ThrottlesEnded,
    Unbound,
    WaitBegan,
)
from jackalope.core.shapes.flow import FlowState, NodeState
from jackalope.core.shapes.pace import Pacing
from jackalope.core.shapes.request import JOINED
from jackalope.core.shapes.steps import Pending, SentEvent, Step, Steps
from jackalope.core.state import contracts, flows, namespaces, paces, schedules
from jackalope.core.state.book import Book
from jackalope.core.state.changes import define
from jackalope.core.state.gates import applying as gates
from jackalope.core.state.queue import NO_TALLY, Queue
from jackalope.core.task import (
    NO_OPTIONS,
    Attempt,
    Body,
    Error,
    HistoryEntry,
    Outcome,
    SignalRequest,
    Task,
    blobs_of,
    lease_of,
    places,
    runs,
)

# The members of an enumeration take as long to look up as a call, and these are of every life.
_READY, _ASSIGNED, _RUNNING = State.READY, State.ASSIGNED, State.RUNNING
_SUCCEEDED = State.SUCCEEDED
_ASSIGN, _START, _FINISH = Event.ASSIGN, Event.START, Event.FINISH


def apply(book: Book, records: Sequence[AnyRecord]) -> None:
    for kind, run in runs(records, type):
        APPLIERS[kind](book, run)
        book.counters.latest_us = run[-1].at_us
    book.gate_changes.clear()  # Only a node that decides has a use for them.


def _submitted(book: Book, records: Sequence[TaskSubmitted]) -> None:
    while True:
        begun = _begun(book, records)
        book.admit(begun)
        for queue, state, run in places(begun):
            book.enter_state(queue, state, run)
            queue.count_in(run)
        book.mark(begun)
        namespace = begun[0].queue.namespace
        if namespace.settings.submits_per_second:
            namespaces.submitted(book, namespace, begun)
        if len(begun) == len(records):
            return
        records = records[len(begun) :]


def _begun(book: Book, records: Sequence[TaskSubmitted]) -> list[Task]:
    """Make the tasks that were submitted to the queue of the first, and count them in batches."""
    namespace, queue_name = records[0].namespace, records[0].spec.queue
    queue = book.namespaces[namespace].queues[queue_name]
    share, rank = book.sharing(), book.counters.rank
    batch, fill = queue.batch, queue.batch_fill
    begun = []
    for record in records:
        spec, state, by, at_us = record.spec, record.state, record.by, record.at_us
        if spec.queue != queue_name or record.namespace != namespace:
            break
        name, key, options, letter = spec.name, spec.key, spec.options, record.envelope
        task = Task(
            spec.id,
            queue,
            share(name, name),
            key and share(key, key),
            spec.priority,
            spec.payload,
            options or NO_OPTIONS,
            state,
            by and share(by, by),
            at_us,
            record.batch,
        )
        is_lasting = letter is None or not is_volatile(spec.id)
        if state is _READY:
            if is_lasting:
                task.rank = rank = rank + 1 if rank >= at_us else at_us
            else:
                task.rank = book.volatile_rank = max(rank + 1, book.volatile_rank + 1, at_us)
        elif state not in BEGINNINGS:
            raise BrokenInvariant(f"no life begins so: {record}")
        if options is not None or record.expires_us or letter is not None:
            _equip(book, task, record)
        if is_lasting:
            batch, fill = record.batch, fill + 1 if record.batch == batch else 1
        book.tasks[spec.id] = task  # It may be the parent of the next one.
        begun.append(task)
    book.counters.rank = rank
    if fill != queue.batch_fill or batch != queue.batch:
        queue.batch, queue.batch_fill = batch, fill
        book.entities_dirty[queue.entity] = queue
    return begun


def _equip(book: Book, task: Task, record: TaskSubmitted) -> None:
    """Give a new task what not every task has."""
    task.expires_us, task.envelope = record.expires_us, record.envelope
    if record.envelope is not None and is_volatile(task.id):
        book.has_volatile = True
    if task.options is not NO_OPTIONS:
        task.due_us = task.options.run_at_us
        task.waiting_for = set(record.waiting_for) or None
        task.guardian = book.guardian(task.options.parent)
        if task.options.flow is not None or task.options.node is not None:
            flows.begin(book, task)
        book.link(task)
        pace = task.options.pace
        if pace is not None and pace.how is Pacing.THROTTLE:
            paces.throttle(book, task, pace)


def _assigned(book: Book, records: Sequence[AttemptAssigned]) -> None:
    counters, tasks, entries = book.counters, [], []
    for record in records:
        task, fence, worker, at_us = (
            book.tasks[record.task],
            record.fence,
            record.worker,
            record.at_us,
        )
        if task.state is not _READY or task.attempt is not None or fence <= counters.fence:
            raise BrokenInvariant(
                f"only ready tasks are assigned, with a new fence: {task} {record}"
            )
        counters.fence = fence
        task.attempt = Attempt(fence, worker, at_us)
        task.attempts += 1
        if task.expires_us:
            book.expiry.cancel(task.id)
        tasks.append(task)
        entries.append(HistoryEntry(at_us, _ASSIGN, worker))
    book.change_state(tasks, _ASSIGNED)
    book.enter_lease(tasks, is_new=True)
    book.note_all(tasks, entries)


def _started(book: Book, records: Sequence[AttemptStarted]) -> None:
    tasks, entries = [], []
    for record in records:
        task, at_us = book.tasks[record.task], record.at_us
        attempt = task.attempt or lease_of(task)
        if task.state is not _ASSIGNED:
            raise BrokenInvariant(f"only assigned tasks are started: {task}")
        task.state = _RUNNING
        task.expires_us = 0  # What has begun does not expire.
        attempt.started_us = at_us
        timeout_us = task.options.timeout_us or task.queue.policy.timeout_us
        if timeout_us:
            attempt.times_out_us = at_us + timeout_us
            book.timeouts.set(task.id, attempt.times_out_us)
        tasks.append(task)
        entries.append(HistoryEntry(at_us, _START, attempt.worker))
    for queue, _, run in places(tasks):
        queue.counts[_ASSIGNED] -= len(run)
        queue.counts[_RUNNING] += len(run)
    book.note_all(tasks, entries)


def _finished(book: Book, records: Sequence[AttemptFinished]) -> None:
    tasks, entries, outcomes = [], [], []
    has_volatile = book.has_volatile
    namespace, doer, tally = None, "", NO_TALLY
    for record in records:
        task, at_us = book.tasks[record.task], record.at_us
        worker = (task.attempt or lease_of(task)).worker  # Only what is leased has a lease.
        if not (has_volatile and is_volatile(task.id)):
            if worker != doer or task.queue.namespace is not namespace:
                namespace, doer = task.queue.namespace, worker
                tally = book.tally(namespace, worker, at_us)
            tally.succeeded += 1
            tally.at_us = at_us
        tasks.append(task)
        entries.append(HistoryEntry(at_us, _FINISH, worker))
        outcomes.append(book.outcome(task, at_us, record.result))
    book.note_all(tasks, entries)
    book.end(tasks, _SUCCEEDED, outcomes)


def _attempt_ended(book: Book, record: AttemptEnded) -> None:
    task = book.tasks[record.task]
    must(can_lead(task.state, record.event, record.to), "a legal end", task.state, record)
    worker = lease_of(task).worker
    _count_end(task, record, worker)
    if record.event is Event.FAIL and not is_volatile(task.id):
        book.tally(task.queue.namespace, worker, record.at_us).failed += 1
    error = record.error
    book.note(task, record.at_us, record.event, record.by or worker, _detail(record))
    if record.to in ENDED:
        _end(book, task, record, error)
        return
    if error is not None:
        task.outcome = Outcome(error=error, ended_us=record.at_us)
    task.due_us = record.due_us
    _change_state(book, task, record)


def _change_state(book: Book, task: Task, record: AttemptEnded | TaskMoved) -> None:
    if record.to is _READY and not task.rank:
        task.rank = book.next_rank(task.id, record.at_us)
    book.change_state((task,), record.to)


def _end(book: Book, task: Task, record: AttemptEnded | TaskMoved, error: Error | None) -> None:
    """Let a task end without success; what went wrong before is kept if nothing else did."""
    if error is None and task.outcome is not None:
        error = task.outcome.error
    result: Body = b""
    if isinstance(task.flow, FlowState):
        result, task.flow.result = task.flow.result, b""
        task.flow.undo = []  # Done, or never needed.
        result = result if record.to is _SUCCEEDED else b""
    outcome = book.outcome(task, record.at_us, result, error=error, reason=record.reason)
    book.end((task,), record.to, (outcome,))


def _detail(record: AttemptEnded) -> str:
    """Describe in one line why an attempt ended."""
    error = record.error
    if error is not None:
        what = f"{error.type}: {error.message}"[:200]
        return f"{what}; {record.cause}" if record.cause else what
    return ": ".join(word for word in (record.reason, record.cause) if word)


def _count_end(task: Task, record: AttemptEnded, worker: str) -> None:
    policy = task.queue.policy
    if record.event is Event.FAIL:
        task.failures += 1
        task.avoid = worker if policy.prefer_other_worker else ""
        drop = min(policy.priority_drop, task.priority)
        task.priority -= drop
        task.penalty += drop
    elif record.event is Event.LOSE and task.state is _RUNNING:
        task.crashes += 1
        if record.error is not None and policy.prefer_other_worker:
            task.avoid = worker  # The worker is there, and reports that the task's process died.
    elif record.event in (Event.LOSE, Event.RELEASE):
        task.interruptions += 1


def _moved(book: Book, record: TaskMoved) -> None:
    task = book.tasks[record.task]
    must(can_lead(task.state, record.event, record.to), "a legal move", task.state, record)
    book.note(task, record.at_us, record.event, record.by, record.detail)
    if record.to in ENDED:
        _end(book, task, record, _error_of_move(record))
        return
    if record.event is Event.PLAY:
        task.avoid = ""
    elif record.event is Event.RETRY:
        task.due_us = 0
    _change_state(book, task, record)
    if isinstance(task.flow, NodeState):
        flows.settle(book, task)


def _error_of_move(record: TaskMoved) -> Error | None:
    """Return the error of a task that died without an attempt, if the record has one."""
    kind = _DIED_OF.get(record.event)
    return Error(kind, record.detail) if kind and record.detail else None


#: What the error of a task is called that died without an attempt.
_DIED_OF = {
    Event.ABANDON: "DependencyFailed",
    Event.EXPIRE: "Expired",
    Event.COMPLETE: "FlowFailed",
}


def _revived(book: Book, record: TaskRevived) -> None:
    before = book.tasks.get(record.row.id)  # Storage may have it alone.
    task = book.from_row(record.row)
    if before is not None:
        must(can_lead(before.state, Event.RETRY, task.state), "a legal retry", before, record)
    book.recalled.pop(record.row.id, None)
    if task.state is _READY and not task.rank:
        task.rank = book.next_rank(task.id, record.at_us)
    if isinstance(task.flow, NodeState):
        flows.revived(book, task)
    book.enter((task,))
    book.note(task, record.at_us, Event.RETRY, record.by)


def _purged(book: Book, record: TaskPurged) -> None:
    task = book.tasks.get(record.task)
    if task is not None:
        must(is_legal(task.state, Event.PURGE), "only what has ended is purged", task.state)
        book.blobs_gone += blobs_of(task)
    book.recalled.pop(record.task, None)
    book.dirty.pop(record.task, None)
    book.forget((record.task,))
    book.gone[record.task] = task


def _signal_requested(book: Book, record: SignalRequested) -> None:
    task = book.tasks[record.task]
    lease_of(task).request = SignalRequest(record.signal, record.by, record.at_us)
    book.note(task, record.at_us, f"{record.signal} requested", record.by)


def _signal_advanced(book: Book, record: SignalAdvanced) -> None:
    task = book.tasks[record.task]
    attempt = lease_of(task)
    request = attempt.request
    if request is None:
        raise BrokenInvariant(f"task {task.id.hex()} has no signal that could advance")
    attempt.request = SignalRequest(request.signal, request.by, request.at_us, record.stage)
    what = f"{request.signal} {record.stage}"
    book.note(task, record.at_us, what, attempt.worker, record.detail)


def _step_recorded(book: Book, record: StepRecorded) -> None:
    task = book.tasks[record.task]
    steps = _steps_of(task)
    if record.event:
        taken = next(each for each in steps.events if each.event == record.event)
        steps.events.remove(taken)
        steps.size -= len(taken.data)
    done = Step(
        record.index, record.name, record.result, record.at_us, record.took_us, record.is_late
    )
    _end_step(steps, done)
    book.mark((task,))


def _wait_began(book: Book, record: WaitBegan) -> None:
    task = book.tasks[record.task]
    steps = _steps_of(task)
    if record.event:
        steps.pending = Pending(record.index, record.name, record.event, record.until_us)
    else:
        # The task does not go on before, unless a person wants it to.
        _end_step(steps, Step(record.index, record.name, at_us=record.until_us))
    book.mark((task,))


def _event_sent(book: Book, record: EventSent) -> None:
    task = book.tasks[record.task]
    steps = _steps_of(task)
    pending = steps.pending
    if pending is not None and pending.event == record.event:
        _end_step(steps, Step(pending.index, pending.name, record.data, record.at_us))
        if task.state is not State.SCHEDULED:
            task.due_us = 0  # It goes on as soon as it is played.
    else:
        steps.events.append(SentEvent(record.event, record.data, record.at_us, record.by))
        steps.size += len(record.data)
    book.note(task, record.at_us, "event", record.by, record.event)


def _steps_of(task: Task) -> Steps:
    if task.steps is None:
        task.steps = Steps([], None, [])
    return task.steps


def _end_step(steps: Steps, step: Step) -> None:
    steps.done.append(step)
    steps.pending = None
    steps.size += len(step.result)


def _queue_declared(book: Book, record: QueueDeclared) -> None:
    namespace = book.namespace(record.namespace)
    queue = namespace.queues.get(record.queue)
    if queue is None:
        queue = namespace.queues[record.queue] = Queue(namespace, record.queue, record.policy)
    ageing_changes = queue.policy.ageing_us != record.policy.ageing_us
    is_other = queue.policy.callbacks != record.policy.callbacks
    is_shared_otherwise = queue.policy.fair_by != record.policy.fair_by
    queue.policy = record.policy
    namespace.weigh(queue)
    queue.follow_keys()
    if is_other:
        of_queue = (task for task in book.tasks.values() if task.queue is queue)
        queue.watch_batches(task for task in of_queue if task.state not in ENDED)
    if ageing_changes:
        queue.line.reorder(book.tasks)
    if is_shared_otherwise:
        namespace.share_out(queue, book.tasks)
    elif queue.line.fair is not None:
        queue.line.fair.weigh(record.policy.fair_weights)
    if record.traits is not None:
        queue.traits = record.traits
        queue.weigh(book.tasks)
    if queue.is_volatile():
        book.has_volatile = True
    else:
        book.entities_dirty[queue.entity] = queue


def _queue_deleted(book: Book, record: QueueDeleted) -> None:
    queue = book.namespaces[record.namespace].queues[record.queue]
    must(not queue.unfinished(), "a deleted queue is empty", record.queue)
    for answer in list(queue.cache.answers.values()):
        book.answers.leave(queue.cache, answer)
    for name in queue.contracts:
        entity = contracts.entity_name(queue.name, name)
        book.entities_dirty["contract", record.namespace, entity] = None
    del queue.namespace.queues[record.queue]
    queue.namespace.weighted.pop(record.queue, None)
    # Ended tasks of a volatile queue leave by themselves; no scan of all others is needed.
    ended = [] if record.is_volatile else [t for t in book.tasks.values() if t.queue is queue]
    for task in ended:
        book.blobs_gone += blobs_of(task)
        book.recalled.pop(task.id, None)
        book.dirty.pop(task.id, None)
    book.forget([task.id for task in ended])
    if record.is_volatile:
        book.entities_dirty.pop(queue.entity, None)
    else:
        book.entities_dirty[queue.entity] = None
        book.queues_gone[record.namespace, record.queue] = record


def _queue_paused(book: Book, record: QueuePaused | QueueResumed) -> None:
    queue = book.namespaces[record.namespace].queues[record.queue]
    queue.paused_by = record.by if isinstance(record, QueuePaused) else ""
    if not record.is_volatile:
        book.entities_dirty[queue.entity] = queue


def _tasks_dropped(book: Book, record: TasksDropped) -> None:
    for task_id in record.tasks:
        book.drop(book.tasks[task_id])


def _exchange_declared(book: Book, record: ExchangeDeclared) -> None:
    define(book.namespace(record.namespace), record.exchange)
    if record.exchange.durable:
        book.entities_dirty["exchange", record.namespace, record.exchange.name] = record.exchange
    else:
        book.has_volatile = True


def _exchange_deleted(book: Book, record: ExchangeDeleted) -> None:
    book.namespaces[record.namespace].topology.drop_exchange(record.exchange)
    if not record.is_volatile:
        book.entities_dirty["exchange", record.namespace, record.exchange] = None


def _bound(book: Book, record: Bound) -> None:
    define(book.namespace(record.namespace), record.binding)
    if not record.is_volatile:
        book.entities_dirty["binding", record.namespace, record.binding.name()] = record.binding
    else:
        book.has_volatile = True


def _unbound(book: Book, record: Unbound) -> None:
    book.namespaces[record.namespace].topology.unbind(record.binding)
    if not record.is_volatile:
        book.entities_dirty["binding", record.namespace, record.binding.name()] = None


def _rule_set(book: Book, record: RuleSet) -> None:
    define(book.namespace(record.namespace), record.rule)
    book.entities_dirty["rule", record.namespace, record.rule.name] = record.rule


def _rule_cleared(book: Book, record: RuleCleared) -> None:
    del book.namespaces[record.namespace].topology.rules[record.rule]
    book.entities_dirty["rule", record.namespace, record.rule] = None


def _api_key_created(book: Book, record: ApiKeyCreated) -> None:
    book.keep_api_key(record.key)


def _api_key_revoked(book: Book, record: ApiKeyRevoked) -> None:
    book.drop_api_key(record.key)


def _request_joined(book: Book, record: RequestJoined) -> None:
    """Add a join to the history of the task; consecutive joins share one line."""
    task = book.tasks[record.task]
    count = 1
    if task.history and task.history[-1].what == JOINED:
        count += int(task.history.pop().detail)
    book.note(task, record.at_us, JOINED, record.by, str(count))


def _answer_stored(book: Book, record: AnswerStored) -> None:
    answer = copy(record.answer)
    cache = book.cache_of(answer)
    answer.rank = cache.next_rank(record.at_us)
    replaced = cache.answers.get(answer.identity)
    if replaced is not None:
        book.answers.leave(cache, replaced)
    book.answers.enter(cache, answer)
    book.answers.dirty[answer.task] = None


def _answer_used(book: Book, record: AnswerUsed) -> None:
    answer = book.answers.by_task[record.task]
    answer.uses += 1
    answer.used_us, answer.used_by = record.at_us, record.by
    book.cache_of(answer).touch(answer, record.at_us)
    book.answers.dirty[answer.task] = None


def _answer_pinned(book: Book, record: AnswerPinned) -> None:
    answer = book.answers.by_task[record.task]
    answer.pinned_by = record.by
    book.answers.set_expiry(answer)
    book.answers.dirty[answer.task] = None


def _answers_dropped(book: Book, record: AnswersDropped) -> None:
    for task_id in record.tasks:
        answer = book.answers.by_task[task_id]
        book.answers.leave(book.cache_of(answer), answer)


def _pool_declared(book: Book, record: PoolDeclared) -> None:
    queue = book.namespaces[record.namespace].queues[record.queue]
    queue.pool = record.settings
    queue.namespace.topology.put_pool(queue.name)
    book.entities_dirty[queue.entity] = queue


def _pool_deleted(book: Book, record: PoolDeleted) -> None:
    queue = book.namespaces[record.namespace].queues[record.queue]
    queue.pool, queue.pins = None, {}
    queue.namespace.topology.drop_pool(queue.name)
    book.entities_dirty[queue.entity] = queue


def _group_pinned(book: Book, record: GroupPinned) -> None:
    queue = book.namespaces[record.namespace].queues[record.queue]
    if record.pinned:
        queue.pins[record.key] = None
    else:
        queue.pins.pop(record.key, None)
    book.entities_dirty[queue.entity] = queue


def _fences_reserved(book: Book, record: FencesReserved) -> None:
    counters = book.counters
    # No record shows which of those that were reserved before have been given out.
    counters.fence = max(counters.fence, counters.reserved)
    counters.reserved = record.through


def _forgotten(book: Book, record: Forgotten) -> None:
    book.counters.horizon_us = record.through_us


def _each(meaning: Callable[[Book, Any], None]) -> Callable[[Book, Sequence[Any]], None]:
    """Return what applies records one by one."""

    def apply_each(book: Book, records: Sequence[Any]) -> None:
        for record in records:
            meaning(book, record)

    return apply_each


#: The meaning of each kind of record, for a run of them.
APPLIERS: dict[type, Callable[[Book, Sequence[Any]], None]] = {
    AttemptAssigned: _assigned,
    AttemptStarted: _started,
    AttemptFinished: _finished,
    AttemptEnded: _each(_attempt_ended),
    TaskSubmitted: _submitted,
    TaskMoved: _each(_moved),
    TaskRevived: _each(_revived),
    TaskPurged: _each(_purged),
    SignalRequested: _each(_signal_requested),
    SignalAdvanced: _each(_signal_advanced),
    QueueDeclared: _each(_queue_declared),
    QueueDeleted: _each(_queue_deleted),
    QueuePaused: _each(_queue_paused),
    QueueResumed: _each(_queue_paused),
    ApiKeyCreated: _each(_api_key_created),
    ApiKeyRevoked: _each(_api_key_revoked),
    RequestJoined: _each(_request_joined),
    AnswerStored: _each(_answer_stored),
    AnswerUsed: _each(_answer_used),
    AnswerPinned: _each(_answer_pinned),
    AnswersDropped: _each(_answers_dropped),
    PoolDeclared: _each(_pool_declared),
    PoolDeleted: _each(_pool_deleted),
    GroupPinned: _each(_group_pinned),
    TasksDropped: _each(_tasks_dropped),
    ExchangeDeclared: _each(_exchange_declared),
    ExchangeDeleted: _each(_exchange_deleted),
    Bound: _each(_bound),
    Unbound: _each(_unbound),
    RuleSet: _each(_rule_set),
    RuleCleared: _each(_rule_cleared),
    StepRecorded: _each(_step_recorded),
    WaitBegan: _each(_wait_began),
    EventSent: _each(_event_sent),
    FencesReserved: _each(_fences_reserved),
    Forgotten: _each(_forgotten),
    ScheduleDeclared: _each(schedules.schedule_declared),
    ScheduleDeleted: _each(schedules.schedule_deleted),
    SchedulePaused: _each(schedules.schedule_paused),
    ScheduleResumed: _each(schedules.schedule_resumed),
    ScheduleOrphaned: _each(schedules.schedule_orphaned),
    ScheduleFired: _each(schedules.schedule_fired),
    SlotsMissed: _each(schedules.slots_missed),
    InputsChanged: _each(flows.inputs_changed),
    GroupsClosed: _each(flows.groups_closed),
    FlowFailed: _each(flows.flow_failed),
    FlowStopped: _each(flows.flow_stopped),
    TaskReplaced: _each(paces.task_replaced),
    ThrottlesEnded: _each(paces.throttles_ended),
    ContractDeclared: _each(contracts.contract_declared),
    ContractDeleted: _each(contracts.contract_deleted),
    **{kind: _each(act) for kind, act in (namespaces.MEANINGS | gates.MEANINGS).items()},
}
