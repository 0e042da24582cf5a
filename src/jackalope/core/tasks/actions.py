"""Actions: what people do with tasks from outside.

Owns hold, play, pause, kill, retry and purge, for tasks that are named and for those that match a
filter. What a worker runs is not marked as stopped at once: the request is recorded and sent to the
worker, and the task keeps its real state until the worker has reported.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import msgspec

from jackalope.core.cache.single_flight import drop_answer, is_doubled
from jackalope.core.commands import Action, ActOnTasks, RetryTerms
from jackalope.core.context import Context, Done, Missing
from jackalope.core.effects import Acted, SignalAsked
from jackalope.core.filter import Filter, matches
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import ENDED, LEASED, TRANSITIONS, Event, State, is_legal
from jackalope.core.limits import (
    COUNT_MAX,
    QUEUES_PER_API_KEY_MAX,
    TASKS_PER_FILTER_MAX,
    TIME_US_MAX,
)
from jackalope.core.pacing.submits import is_outrun
from jackalope.core.policy import Policy
from jackalope.core.records import SignalRequested, TaskPurged, TaskRevived
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.flow import FlowState
from jackalope.core.task import (
    PRIORITY_MAX,
    Options,
    Retry,
    Signal,
    Stage,
    Task,
    TaskRow,
    lease_of,
    to_row,
)
from jackalope.core.tasks.attempts import wrong_state
from jackalope.core.tasks.submit import open_state, unfinished

#: A weightier request takes the place of a lighter one.
_WEIGHT = {Signal.PAUSE: 0, Signal.TIMEOUT: 1, Signal.KILL: 2}


def act_on_tasks(ctx: Context, command: ActOnTasks) -> Acted | Refusal:
    """Apply an action to each selected task."""
    if command.filter is not None and not command.filter.is_sound():
        message = (
            f"filter: older_than_us, newer_than_us and batch must be 0 to {TIME_US_MAX}, "
            f"queues at most {QUEUES_PER_API_KEY_MAX}"
        )
        return Refusal(Code.INVALID, message)
    if command.terms is not None and (problem := _terms_problem(command, command.terms)):
        return Refusal(Code.INVALID, problem)
    tasks, refused, more = _select(ctx, command)
    changed = requested = 0
    for task in tasks:
        event = Event(command.action.value)
        if ctx.book.tasks.get(task.id) is not task:
            changed += 1  # It was retried with another one of its flow.
        elif not is_legal(task.state, event):
            refused.append((task.id, wrong_state(task, event)))
        elif event is Event.RETRY and (doubled := _doubled(ctx, task)):
            refused.append((task.id, doubled))
        elif command.terms is not None and task.state not in ENDED:
            message = f"task {task.id.hex()} is {task.state}; only an ended task can get new terms"
            refused.append((task.id, Refusal(Code.WRONG_STATE, message)))
        elif command.dry_run:
            requested += task.state in LEASED
            changed += task.state not in LEASED
        else:
            outcome = _act(ctx, task, command)
            if isinstance(outcome, Refusal):
                refused.append((task.id, outcome))
            else:
                requested += outcome is Done.REQUESTED
                changed += outcome is Done.CHANGED
    return Acted(changed, requested, tuple(refused), more)


def _act(ctx: Context, task: Task, command: ActOnTasks) -> Done | Refusal:
    outcome = ctx.act(task, Event(command.action.value), command.by, command.terms)
    if outcome is not None:
        return outcome
    if command.terms is not None:
        revive(ctx, revived_row(task, command.terms), command.by)
        return Done.CHANGED
    return _ACTIONS[command.action](ctx, task, command.by)


def _doubled(ctx: Context, task: Task) -> Refusal | None:
    """Refuse to retry a task whose work another one does."""
    if is_doubled(task):
        other = task.queue.cache.flights[task.options.identity].hex()
        what = f"task {other} is running the same request; wait for that one"
    elif task.state in ENDED and is_outrun(ctx, task):
        what = "a later one of its kind is queued, and will run"
    else:
        return None
    return Refusal(Code.WRONG_STATE, f"cannot retry task {task.id.hex()}: {what}")


def missing(ctx: Context, command: ActOnTasks) -> Missing:
    """Return the selected tasks that are not in memory."""
    ids = [task_id for task_id in command.tasks if task_id not in ctx.book.tasks]
    return Missing(command.namespace, ids, filter=_ended_ones(command))


def _ended_ones(command: ActOnTasks) -> Filter | None:
    """Return the part of the filter that selects ended tasks, which memory may lack."""
    if command.filter is None or command.tasks or not command.filter.is_sound():
        return None
    event = Event(command.action.value)
    can_change = {s for s in ENDED if is_legal(s, event) and TRANSITIONS[s][event] != {s}}
    states = tuple(sorted(can_change.intersection(command.filter.states or State)))
    wanted, only = command.filter.queues, command.only
    queues = tuple(each for each in only if each in wanted) if only and wanted else only or wanted
    if not states or (only and not queues):
        return None
    return msgspec.structs.replace(command.filter, states=states, queues=queues)


def request(ctx: Context, task: Task, signal: Signal, by: str) -> None:
    """Send a signal to the worker of a leased task, unless as much or more is pending."""
    attempt = lease_of(task)
    pending = attempt.request
    is_new = pending is None or pending.stage is Stage.REFUSED
    if is_new or (pending and _WEIGHT[signal] > _WEIGHT[pending.signal]):
        ctx.record(SignalRequested(ctx.now_us, task.id, signal, by))
    worker = ctx.roster.workers.get((task.queue.namespace.name, attempt.worker))
    if worker is not None and worker.session and attempt.request is not None:
        message = SignalAsked(task.id, attempt.fence, attempt.request.signal)
        ctx.send(worker.session, message)


def _select(
    ctx: Context, command: ActOnTasks
) -> tuple[list[Task], list[tuple[TaskId, Refusal]], bool]:
    """Return the selected tasks, refusals of unknown ones, and whether more match."""
    if command.filter is not None and not command.tasks:
        event = Event(command.action.value)
        matching = (
            task
            for task in ctx.book.tasks.values()
            if task.queue.is_seen_by(command)
            and is_legal(task.state, event)
            and (command.terms is None or task.state in ENDED)
            and not _is_so_already(task, command.action)
            and matches(command.filter, task)
        )
        found = list(islice(matching, TASKS_PER_FILTER_MAX + 1))
        return found[:TASKS_PER_FILTER_MAX], [], len(found) > TASKS_PER_FILTER_MAX
    tasks: list[Task] = []
    refused: list[tuple[TaskId, Refusal]] = []
    for task_id in dict.fromkeys(command.tasks):
        task = ctx.book.tasks.get(task_id)
        if task is None or not task.queue.is_seen_by(command):
            message = f"no task {task_id.hex()} in namespace {command.namespace!r}"
            refused.append((task_id, Refusal(Code.UNKNOWN_TASK, message)))
        elif command.filter is not None and not matches(command.filter, task):
            message = f"task {task_id.hex()} is {task.state}; it does not match the filter"
            refused.append((task_id, Refusal(Code.WRONG_STATE, message)))
        else:
            tasks.append(task)
    return tasks, refused, False


def _is_so_already(task: Task, action: Action) -> bool:
    """Return whether an action would change nothing: a filter skips such tasks."""
    if task.attempt is not None:
        asked = task.attempt.request
        return asked is not None and asked.signal.value == action.value
    return TRANSITIONS[task.state][Event(action.value)] == {task.state}


def _hold(ctx: Context, task: Task, by: str) -> Done:
    if task.state is not State.HELD:
        ctx.move(task, Event.HOLD, State.HELD, by)
    return Done.CHANGED


def _play(ctx: Context, task: Task, by: str) -> Done:
    ctx.move(task, Event.PLAY, open_state(task, ctx.now_us), by)
    return Done.CHANGED


def _pause(ctx: Context, task: Task, by: str) -> Done:
    if task.state in LEASED:
        request(ctx, task, Signal.PAUSE, by)
        return Done.REQUESTED
    if task.state is not State.PAUSED:
        ctx.move(task, Event.PAUSE, State.PAUSED, by)
    return Done.CHANGED


def kill(ctx: Context, task: Task, by: str, detail: str = "") -> Done:
    """Kill a task and its descendants. Those of a flow are its own matter."""
    family = [task]
    for member in family:  # It grows on the way: children of children.
        if member is task or not isinstance(member.flow, FlowState):
            children = ctx.book.children.get(member.id, ())
            family += [ctx.book.tasks[child] for child in children]
    how = _kill_one(ctx, task, by, detail)
    for child in family[1:]:
        if child.state not in ENDED and ctx.act(child, Event.KILL, by) is None:
            _kill_one(ctx, child, by)
    return how


def _kill_one(ctx: Context, task: Task, by: str, detail: str = "") -> Done:
    if task.state in LEASED:
        request(ctx, task, Signal.KILL, by)
        return Done.REQUESTED
    if task.state is not State.KILLED:
        ctx.move(task, Event.KILL, State.KILLED, by, detail=detail)
    return Done.CHANGED


def _retry(ctx: Context, task: Task, by: str) -> Done:
    """Revive an ended task with its old place in the queue, or run a scheduled retry now."""
    if task.state is State.SCHEDULED:
        ctx.move(task, Event.RETRY, State.READY, by)
    else:
        revive(ctx, revived_row(task, RetryTerms()), by)
    return Done.CHANGED


def revived_row(task: Task, terms: RetryTerms) -> TaskRow:
    """Return what an ended task is when it begins again, but for what it waits for."""
    row = to_row(task)
    row.failures = row.crashes = row.interruptions = 0
    row.priority, row.penalty = row.priority + row.penalty, 0
    row.avoid, row.due_us, row.expires_us, row.outcome = "", 0, 0, None
    if terms.priority is not None:
        row.priority = terms.priority
    row.options = _on_terms(row.options, terms, task.queue.policy)
    return row


def revive(ctx: Context, row: TaskRow, by: str) -> None:
    """Let an ended task begin again, when what it depends on has ended."""
    row.guardian = ctx.book.guardian(row.options.parent)
    row.waiting_for = tuple(sorted(unfinished(ctx, row.options)))
    row.state = State.WAITING if row.waiting_for else State.READY
    ctx.record(TaskRevived(ctx.now_us, row, by))
    ctx.agenda.offer(ctx.book.tasks[row.id])


def _on_terms(options: Options, terms: RetryTerms, policy: Policy) -> Options:
    if terms.timeout_us is not None:
        options = msgspec.structs.replace(options, timeout_us=terms.timeout_us)
    if terms.retries is not None:
        waits = (policy.retry_base_us, policy.retry_factor, policy.retry_cap_us)
        own = options.retry or Retry(0, *waits)
        retry = msgspec.structs.replace(own, retries=terms.retries)
        options = msgspec.structs.replace(options, retry=retry)
    return options


def _terms_problem(command: ActOnTasks, terms: RetryTerms) -> str:
    if command.action is not Action.RETRY:
        return f"terms: go with retry, not with {command.action}"
    bounds = (
        ("retries", terms.retries, COUNT_MAX),
        ("timeout_us", terms.timeout_us, TIME_US_MAX),
        ("priority", terms.priority, PRIORITY_MAX),
    )
    problems = [
        f"{name}: must be 0 to {most}, got {value}"
        for name, value, most in bounds
        if value is not None and not 0 <= value <= most
    ]
    return "; ".join(problems)


def _purge(ctx: Context, task: Task, by: str) -> Done:
    drop_answer(ctx, task.id, by)
    ctx.record(TaskPurged(ctx.now_us, task.id, by))
    return Done.CHANGED


_ACTIONS: dict[Action, Callable[[Context, Task, str], Done]] = {
    Action.HOLD: _hold,
    Action.PLAY: _play,
    Action.PAUSE: _pause,
    Action.KILL: kill,
    Action.RETRY: _retry,
    Action.PURGE: _purge,
}
