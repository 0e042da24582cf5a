"""Submission: accept tasks, and release them when their dependencies have ended.

Owns the checks of a submitted task and the state in which its life begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import partial
from typing import Any

import msgspec

from jackalope.core.cache import single_flight
from jackalope.core.commands import SubmitTasks
from jackalope.core.commands.base import Limited, Namespaced
from jackalope.core.context import Context, Missing
from jackalope.core.contracts.fit import Answer, submit_checked
from jackalope.core.effects import Accepted, AcceptedRequests, Served
from jackalope.core.ids import ID_BYTES, TaskId, id_text, is_volatile, successor_id
from jackalope.core.lifecycle import ENDED, Event, Reason, State
from jackalope.core.limits import (
    COUNT_MAX,
    DEPENDENCIES_PER_TASK_MAX,
    HEADERS_BYTES_MAX,
    INLINE_BYTES_MAX,
    NAME_CHARS_MAX,
    TAG_CHARS_MAX,
    TAGS_PER_TASK_MAX,
    TIME_US_MAX,
)
from jackalope.core.namespaces import not_kept, open_queue, take_within
from jackalope.core.pacing import submits as pacing
from jackalope.core.policy import CALLBACKS_POLICY, Policy
from jackalope.core.records import QueueDeclared, TaskSubmitted
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.callback import CALLBACKS_QUEUE, OWN_QUEUE, Trigger, callback_problems
from jackalope.core.shapes.keys import fill_in, key_problems
from jackalope.core.shapes.needs import needs_problems
from jackalope.core.shapes.pace import Pace, Pacing, pace_problems
from jackalope.core.shapes.request import IDENTITY_BYTES, Same, how_run
from jackalope.core.state.queue import Queue
from jackalope.core.task import (
    NO_OPTIONS,
    PRIORITY_MAX,
    BlobRef,
    Body,
    OnDependency,
    Options,
    Retry,
    Task,
    TaskSpec,
    is_blob,
    is_same_body,
    is_same_but_for_trace,
    size_of,
    with_needs,
)
from jackalope.core.tasks.assign import serve
from jackalope.core.tasks.levels import too_old_for_callbacks, too_old_for_options
from jackalope.core.values import value_problem

_HELD, _READY, _RUN = State.HELD, State.READY, Same.RUN


def submit_tasks(ctx: Context, command: SubmitTasks) -> Accepted | AcceptedRequests:
    specs = command.tasks
    count = len(specs)
    is_one_list = count and _end_of_alone(ctx, specs, 0) == count
    if is_one_list and (count == 1 or _are_unlike(specs)):
        answers = _submit(ctx, command, specs)
    else:
        answers = _submit_in_parts(ctx, command, specs)
    if not answers:
        return Accepted(count)
    refused: list[tuple[int, Refusal]] = []
    served: list[tuple[int, Served]] = []
    warnings: list[tuple[int, str]] = []
    for number, answer in enumerate(answers):
        if isinstance(answer, Served):
            served.append((number, answer))
        elif isinstance(answer, str):
            warnings.append((number, answer))
        elif answer is not None:
            ctx.book.drop_blob(specs[number].payload)
            refused.append((number, answer))
    if served or warnings:
        return AcceptedRequests(
            count - len(refused), tuple(refused), tuple(served), tuple(warnings)
        )
    return Accepted(count - len(refused), tuple(refused))


def _submit_in_parts(ctx: Context, command: SubmitTasks, specs: list[TaskSpec]) -> list[Answer]:
    """Submit tasks that cannot all be decided about together; return an answer for each."""
    answers: list[Answer] = []
    are_unlike = _are_unlike(specs)
    while (begin := len(answers)) < len(specs):
        end = _end_of_alone(ctx, specs, begin, None if are_unlike else begin + 1)
        if end > begin:
            answers += _submit(ctx, command, specs[begin:end]) or [None] * (end - begin)
        else:
            answers.append(_submit_one(ctx, command, specs[begin]))
    return answers


def missing(ctx: Context, command: SubmitTasks) -> Missing:
    """Return the tasks that a submit refers to or repeats, and that are not in memory."""
    missing, tasks = Missing(command.namespace), ctx.book.tasks
    for spec in command.tasks:
        if spec.id not in tasks and len(spec.id) == ID_BYTES and ctx.book.may_have_ended(spec.id):
            missing.ids.append(spec.id)
        if spec.options is not None:
            links = (spec.options.parent, *spec.options.depends_on)
            missing.ids += [link for link in links if link and link not in tasks]
            if spec.options.alias:
                missing.aliases.append(spec.options.alias)
    return missing


def become(ctx: Context, task: Task, result: Body) -> None:
    """Create a task from the result of another, if the policy of its queue asks for it.

    It is exempt from the depth limit: the work is already accepted.
    """
    target = task.queue.policy.result_becomes
    if target:
        succeed(ctx, task, successor_id(task.id, target), Trigger(target), payload=result)


def succeed(
    ctx: Context,
    task: Task,
    task_id: TaskId,
    trigger: Trigger,
    *,
    payload: Body,
    headers: dict[str, Any] | None = None,
) -> None:
    """Create the task that follows from the end of another, unless it is there already."""
    target, namespace = trigger.queue, task.queue.namespace
    # Declared with the policy that names it, and kept for as long as one does. Earlier versions let
    # it be one that a restart takes along.
    if target not in namespace.queues:
        ctx.record(QueueDeclared(ctx.now_us, namespace.name, target, ctx.default_policy, task.by))
    queue = namespace.queues[target]
    headers = task.options.headers if headers is None else headers
    options = Options(headers=headers, tags=task.options.tags, parent=task.id)
    priority = task.priority + task.penalty if trigger.priority is None else trigger.priority
    spec = TaskSpec(
        id=task_id,
        queue=target,
        name=trigger.name or task.name,
        key=trigger.key or task.key,
        priority=priority,
        payload=payload,
        options=options,
    )
    submit_own(ctx, queue, spec, task.by)


def submit_own(ctx: Context, queue: Queue, spec: TaskSpec, by: str) -> None:
    """Accept a task of the broker's own making: at any depth, and once."""
    if spec.id not in ctx.book.tasks:
        _begin(ctx, [spec], queue, by)


def settle_dependents(ctx: Context, task: Task, dependents: tuple[TaskId, ...]) -> None:
    """Release, or give up, the tasks that waited for one that has ended."""
    nodes: list[Task] = []
    succeeded = task.state is State.SUCCEEDED
    for dependent_id in dependents:
        dependent = ctx.book.tasks.get(dependent_id)
        if dependent is None or dependent.state in ENDED:
            continue
        if dependent.flow is not None:
            nodes.append(dependent)
            continue
        if not succeeded and dependent.options.on_dependency is OnDependency.DEAD:
            _abandon(ctx, dependent, task)
        elif dependent.state is State.WAITING and not dependent.waiting_for:
            ctx.move(dependent, Event.UNBLOCK, open_state(dependent, ctx.now_us))
    if nodes:
        ctx.agenda.add(settle_dependents, (task, nodes))  # For `core.flows`.


def settle_let_down(ctx: Context) -> None:
    """Let go, or give up, the tasks that waited for a volatile one when the broker stopped."""
    let_down, ctx.book.let_down = ctx.book.let_down, {}
    for task_id in let_down:
        task = ctx.book.tasks.get(task_id)
        if task is None or task.state is not State.WAITING:
            continue
        if task.options.on_dependency is OnDependency.DEAD:
            gone = next(filter(is_volatile, task.options.depends_on))
            detail = f"{id_text(gone)} was not durable, and went with a restart of the broker"
            ctx.move(task, Event.ABANDON, State.DEAD, reason=Reason.DEPENDENCY, detail=detail)
        elif not task.waiting_for:
            ctx.move(task, Event.UNBLOCK, open_state(task, ctx.now_us))


def unfinished(ctx: Context, options: Options) -> list[TaskId]:
    """Return the unfinished dependencies of a task whose end will be recorded."""
    tasks = ctx.book.tasks
    return [
        dependency
        for dependency in dict.fromkeys(options.depends_on)
        if dependency in tasks
        and tasks[dependency].state not in ENDED
        and not is_volatile(dependency)
    ]


def open_state(task: Task, now_us: int) -> State:
    """Return the state that a task enters when it is not held."""
    if task.waiting_for:
        return State.WAITING
    return State.SCHEDULED if task.due_us > now_us else State.READY


def _abandon(ctx: Context, task: Task, dependency: Task) -> None:
    outcome = dependency.outcome
    why = f", {outcome.reason}" if outcome is not None and outcome.reason else ""
    name = f" ({dependency.name})" if dependency.name else ""
    detail = f"{id_text(dependency.id)}{name} is {dependency.state}{why}"
    ctx.move(task, Event.ABANDON, State.DEAD, reason=Reason.DEPENDENCY, detail=detail)


def _are_unlike(specs: list[TaskSpec]) -> bool:
    """Return whether no task comes twice."""
    return len({spec.id for spec in specs}) == len(specs)


def _end_of_alone(ctx: Context, specs: list[TaskSpec], begin: int, end: int | None = None) -> int:
    """Return the end of those tasks, from there on, that can be decided about together.

    They are sound, new, for one queue, and have nothing to do with other tasks. There may be none.
    """
    tasks, queue, index = ctx.book.tasks, specs[begin].queue, begin
    for spec in specs[begin:end] if begin or end is not None else specs:
        if spec.queue != queue or spec.id in tasks or spec_problems(spec):
            return index
        if spec.options is not None:
            if _is_linked(spec.options) or too_old_for_options(ctx, spec.options):
                return index
            if spec.options == NO_OPTIONS:
                spec.options = None
        index += 1
    return index


def _is_linked(options: Options) -> bool:
    """Return whether a task refers to others, may be served by another, or has callbacks."""
    return bool(
        options.alias
        or options.parent
        or options.depends_on
        or options.same is not None
        or options.identity
        or options.pace is not None
        or options.callbacks
    )


def _submit_one(ctx: Context, command: SubmitTasks, spec: TaskSpec) -> Answer:
    """Check a task by itself, and accept it if nothing is wrong."""
    problems = spec_problems(spec)
    if problems:
        is_large = problems[0].startswith("payload: ") and type(spec.payload) is bytes
        code = Code.TOO_LARGE if is_large else Code.INVALID
        problems += callbacks_wrong(ctx, command, spec)
        return Refusal(code, "task not accepted. " + "; ".join(problems))
    existing = ctx.book.tasks.get(spec.id)
    if existing is not None:
        ctx.book.drop_blob(spec.payload, unless=existing.payload)
        return _repeat(existing, command.namespace, spec)
    if spec.options is not None:
        refusal = _check_links(ctx, command, spec.options)
        refusal = refusal or check_callbacks(ctx, command, spec)
        refusal = refusal or open_callbacks(ctx, command, (spec,))
        refusal = refusal or too_old_for_options(ctx, spec.options)
        if refusal is not None:
            return refusal
    return next(iter(_submit(ctx, command, [spec])), None)


def _submit(ctx: Context, command: SubmitTasks, specs: list[TaskSpec]) -> Sequence[Answer]:
    """Accept or refuse tasks of one queue that are sound and new: one, or several on their own.

    Returns:
        An answer for each of them; nothing if all are accepted.
    """
    queue = open_queue(ctx, command.namespace, specs[0].queue, command.by)
    if not isinstance(queue, Queue):
        return [queue] * len(specs)
    if not queue.contracts:
        return _submit_fitting(ctx, command, specs, queue)
    return submit_checked(queue, specs, lambda fit: _submit_fitting(ctx, command, fit, queue))


def _submit_fitting(
    ctx: Context, command: SubmitTasks, specs: list[TaskSpec], queue: Queue
) -> Sequence[Answer]:
    options = specs[0].options
    if queue.policy.same is _RUN and (options is None or not _is_linked(options)):
        return _take_in(ctx, specs, queue, command.by)
    return [_serve_or_take_in(ctx, command, spec, queue) for spec in specs]


def _serve_or_take_in(ctx: Context, command: SubmitTasks, spec: TaskSpec, queue: Queue) -> Answer:
    """Serve a task from an equal request or one of its kind, or else accept it."""
    pace = None if spec.options is None else spec.options.pace
    if pace is not None:
        spec = copy(spec)  # What was submitted stays as it is, and may be submitted again.
        paced = pacing.ask(ctx, command, spec, queue, pace)
        return paced or next(iter(_take_in(ctx, [spec], queue, command.by)), None)
    served = single_flight.ask(ctx, command, spec, queue)
    if isinstance(served, Refusal):
        return served
    if served is not None and served.task != spec.id:
        ctx.book.drop_blob(spec.payload)
        return served
    return next(iter(_take_in(ctx, [spec], queue, command.by)), None) or served


def _take_in(
    ctx: Context, specs: list[TaskSpec], queue: Queue, by: str
) -> Sequence[Refusal | None]:
    """Accept tasks as far as there is room; return an answer for each, or nothing for all."""
    if queue.traits is not None and queue.is_volatile():
        return [not_kept(queue)] * len(specs)
    if not queue.namespace.has_quotas:
        return _take_in_by_depth(ctx, specs, queue, by)
    take = partial(_take_in_by_depth, ctx, specs, queue, by)
    return take_within(ctx, queue, [size_of(spec.payload) for spec in specs], take, serve)


def _take_in_by_depth(
    ctx: Context, every: list[TaskSpec], queue: Queue, by: str, some: slice = slice(None)
) -> Sequence[Refusal | None]:
    """Accept as many tasks, or some of them, as the depth limit of the queue allows."""
    specs = every[some]
    limit, taken, count = queue.policy.depth_limit, 0, len(specs)
    if not limit or count <= limit - queue.depth:
        (_begin if specs[0].options is None else _accept)(ctx, specs, queue, by)
        return ()
    while taken < count:
        if queue.depth >= limit:
            serve(ctx)  # What was accepted just now may not have to wait.
        room = limit - queue.depth
        if room <= 0:
            break
        _accept(ctx, specs[taken : taken + room], queue, by)
        taken = min(taken + room, count)
    if taken == count:
        return ()
    refusal = Refusal(
        Code.QUEUE_FULL,
        f"queue {queue.name!r} holds {queue.depth} waiting tasks, its depth limit; "
        "submit again later, or raise depth_limit",
        queue.retry_after_us(queue.depth - limit + 1, ctx.now_us),
    )
    return [None] * taken + [refusal] * (count - taken)


def _accept(ctx: Context, specs: list[TaskSpec], queue: Queue, by: str) -> None:
    """Let tasks begin: several on their own, or one that may have to wait for others."""
    options = specs[0].options
    if options is None or not options.depends_on:
        _begin(ctx, specs, queue, by)
        return
    tasks = ctx.book.tasks
    waiting_for = tuple(unfinished(ctx, options))
    dependencies = (tasks[dependency] for dependency in options.depends_on)
    failed = [task for task in dependencies if task.state in (State.DEAD, State.KILLED)]
    is_vain = bool(failed) and options.on_dependency is OnDependency.DEAD
    state = State.WAITING if waiting_for or is_vain else State.READY
    _begin(ctx, specs, queue, by, state=state, waiting_for=waiting_for)
    if is_vain:
        _abandon(ctx, tasks[specs[0].id], failed[0])


def _begin(
    ctx: Context,
    specs: list[TaskSpec],
    queue: Queue,
    by: str,
    *,
    state: State = State.READY,
    waiting_for: tuple[TaskId, ...] = (),
) -> None:
    """Let tasks begin in this state, unless they are held back."""
    policy, now_us, namespace = queue.policy, ctx.now_us, queue.namespace.name
    last, begins, expires_us = None, *beginning(NO_OPTIONS, policy, state, now_us)
    records = []
    for spec in specs:
        options = spec.options
        if options is not last:  # Most have none.
            last = options
            begins, expires_us = beginning(
                NO_OPTIONS if options is None else options, policy, state, now_us
            )
        records.append(
            TaskSubmitted(now_us, namespace, spec, begins, by, 0, expires_us, waiting_for)
        )
    begin(ctx, queue, records)


def beginning(options: Options, policy: Policy, state: State, now_us: int) -> tuple[State, int]:
    """Return the state in which a task begins, and when it expires."""
    if options.held or policy.held:
        state = _HELD
    elif state is _READY and options.run_at_us > now_us:
        state = State.SCHEDULED
    expires_us = options.expires_at_us
    if not expires_us and policy.time_to_live_us:
        expires_us = max(now_us, options.run_at_us) + policy.time_to_live_us
    return state, expires_us


def begin(ctx: Context, queue: Queue, records: list[TaskSubmitted]) -> None:
    """Let tasks of a queue begin, each in the batch that is being filled when it comes."""
    number, fill, size = queue.batch, queue.batch_fill, queue.policy.batch_size
    if queue.key_names:
        _fill_in_keys(queue, records)
    has_needs = bool(queue.policy.needs)
    for record in records:
        if has_needs:
            record.spec = with_needs(record.spec, queue.policy)
        is_next = fill >= size
        record.batch = number + is_next
        if record.envelope is None or not is_volatile(record.spec.id):
            number, fill = (number + 1, 1) if is_next else (number, fill + 1)
    ctx.record_all(records)
    tasks, lanes = ctx.book.tasks, ctx.agenda.lanes
    for record in records:
        lane = tasks[record.spec.id].lane
        if lane is not None:
            lanes[lane] = None


def _fill_in_keys(queue: Queue, records: list[TaskSubmitted]) -> None:
    """Give tasks the keys that their submitters left out, if they are to be found."""
    for record in records:
        spec, options = record.spec, record.spec.options or NO_OPTIONS
        found = fill_in(queue.key_names, options.keys, options.headers, spec.payload)
        if found:
            # A copy: what was submitted stays as it is, and may be submitted again.
            record.spec = spec = copy(spec)
            spec.options = msgspec.structs.replace(options, keys={**options.keys, **found})


def trim(ctx: Context, queue: Queue) -> None:
    """Displace the oldest tasks of a queue that is over its limit."""
    length_max, bytes_max = queue.room()
    while (length_max is not None and queue.depth > length_max) or (
        bytes_max and queue.ready_bytes > bytes_max
    ):
        task = queue.line.best((), lambda _: False, ctx.book.tasks)
        if task is None:
            return
        ctx.move(task, Event.EXPIRE, State.DEAD, reason=Reason.DISPLACED)


def _repeat(task: Task, namespace: str, spec: TaskSpec) -> Answer:
    """Answer a submit of an existing id: success if it is the same task, else a refusal."""
    pace = task.options.pace
    if pace is not None and pace.how is not Pacing.THROTTLE:
        # Its content may be that of a later submit.
        return None if _is_of_kind(task, namespace, spec) else _conflict(spec)
    is_same = (
        task.queue.name == spec.queue
        and task.queue.namespace.name == namespace
        and task.name == spec.name
        and task.key == spec.key
        and task.priority + task.penalty == spec.priority
        and is_same_body(task.payload, spec.payload)
        and (spec.options or NO_OPTIONS).keys.items() <= task.options.keys.items()
        and is_same_but_for_trace(_asked(task, spec), _as_asked(spec.options or NO_OPTIONS))
    )
    if is_same:
        options = task.options
        if options.same is None:
            return None
        return Served(how_run(options.same), task.id, options.identity)
    return _conflict(spec)


def _conflict(spec: TaskSpec) -> Refusal:
    return Refusal(
        Code.ID_CONFLICT, f"task {spec.id.hex()} exists with different content; use a new id"
    )


def _is_of_kind(task: Task, namespace: str, spec: TaskSpec) -> bool:
    """Return whether a submitted task is of the kind of another, whose pace lets it be replaced."""
    mine, its = task.options.pace, (spec.options or NO_OPTIONS).pace
    return (
        (task.queue.name, task.queue.namespace.name) == (spec.queue, namespace)
        and mine is not None
        and its is not None
        and mine.kind(task.name) == its.kind(spec.name)
    )


def _asked(task: Task, spec: TaskSpec) -> Options:
    """Return the options of a task as they were submitted, if it is submitted again as this."""
    options = _as_asked(task.options)
    if options.needs is None or (spec.options or NO_OPTIONS).needs is not None:
        return options
    return msgspec.structs.replace(options, needs=None)  # They are the queue's.


def _as_asked(options: Options) -> Options:
    """Return options as submitted, without what the broker has added."""
    if options.same is None and not (options.identity or options.keys or options.schedule):
        return options
    return msgspec.structs.replace(options, same=None, identity=b"", keys={}, schedule="")


def _check_links(ctx: Context, command: SubmitTasks, options: Options) -> Refusal | None:
    """Check the references of a task to others: its alias, parent and dependencies."""
    tasks, namespace = ctx.book.tasks, ctx.book.namespaces.get(command.namespace)
    taken = check_alias(ctx, command, options.alias)
    if taken is not None:
        return taken
    if options.parent:
        parent = tasks.get(options.parent)
        if parent is None or parent.queue.namespace is not namespace or _is_hidden(parent, command):
            message = f"parent {options.parent.hex()} is not a task of this namespace"
            return Refusal(Code.UNKNOWN_TASK, message)
        if parent.state in ENDED:
            message = f"parent {options.parent.hex()} is {parent.state}; submit without a parent"
            return Refusal(Code.PARENT_ENDED, message)
        if command.fence and (parent.attempt is None or parent.attempt.fence != command.fence):
            message = f"fence {command.fence} is not the lease of parent {options.parent.hex()}"
            return Refusal(Code.STALE_FENCE, message + "; stop working on it")
    return _check_dependencies(ctx, command, options)


def check_alias(ctx: Context, command: Limited, alias: str) -> Refusal | None:
    """Refuse an alias that a task has already."""
    namespace = ctx.book.namespaces.get(command.namespace)
    if namespace is None or alias not in namespace.aliases:
        return None
    holder = ctx.book.tasks.get(namespace.aliases[alias])
    message = f"alias {alias!r} is taken; choose another"
    if holder is not None and not _is_hidden(holder, command):
        message = (
            f"alias {alias!r} names task {holder.id.hex()}; "
            "choose another, or purge that task once it has ended"
        )
    return Refusal(Code.DUPLICATE_ALIAS, message)


def check_callbacks(ctx: Context, command: Namespaced, spec: TaskSpec) -> Refusal | None:
    """Refuse callbacks that cannot be posted, or that another task might have to post."""
    if problems := callbacks_wrong(ctx, command, spec):
        return Refusal(Code.INVALID, "task not accepted. " + "; ".join(problems))
    return too_old_for_callbacks(ctx) if spec.options and spec.options.callbacks else None


def callbacks_wrong(ctx: Context, command: Namespaced, spec: TaskSpec) -> list[str]:
    """List what is wrong with the callbacks of a task."""
    if (options := spec.options) is None or not options.callbacks:
        return []
    problems = callback_problems(options.callbacks, ctx.callback_targets, is_of_queue=False)
    queue = ctx.book.queue(command.namespace, spec.queue)
    if (options.same or (queue.policy if queue else ctx.default_policy).same) is not _RUN:
        instead = "declare them in the policy of the queue"
        problems.append(f"callbacks: not for a request, which another task may serve; {instead}")
    return problems


def open_callbacks(ctx: Context, command: Namespaced, specs: Sequence[TaskSpec]) -> Refusal | None:
    """Create the queue of callbacks, if one of these tasks has any."""
    if not any(spec.options is not None and spec.options.callbacks for spec in specs):
        return None
    own = open_queue(ctx, command.namespace, CALLBACKS_QUEUE, command.by, CALLBACKS_POLICY)
    return own if isinstance(own, Refusal) else None


def _check_dependencies(ctx: Context, command: SubmitTasks, options: Options) -> Refusal | None:
    namespace = ctx.book.namespaces.get(command.namespace)
    for dependency in options.depends_on:
        found = ctx.book.tasks.get(dependency)
        if found is None or found.queue.namespace is not namespace or _is_hidden(found, command):
            message = f"dependency {dependency.hex()} is not a task of this namespace"
            return Refusal(Code.UNKNOWN_DEPENDENCY, message + "; submit it first")
        if is_volatile(dependency):
            message = (
                f"dependency {dependency.hex()} is a message that is not durable, which a restart "
                "takes along: nothing can wait for it; publish it as persistent, to a durable queue"
            )
            return Refusal(Code.INVALID, message)
    return None


def _is_hidden(task: Task, command: Limited) -> bool:
    """Return whether the API key of a command does not cover the queue of a task."""
    return bool(command.only) and task.queue.name not in command.only


def spec_problems(spec: TaskSpec) -> list[str]:
    """List what is invalid in a submitted task by itself. The first line is the hot path."""
    payload = spec.payload
    size = len(payload) if type(payload) is bytes else INLINE_BYTES_MAX + 1
    if (
        len(spec.id) == ID_BYTES
        and 0 < len(spec.queue) <= NAME_CHARS_MAX
        and len(spec.name) <= NAME_CHARS_MAX
        and len(spec.key) <= NAME_CHARS_MAX
        and 0 <= spec.priority <= PRIORITY_MAX
        and size <= INLINE_BYTES_MAX
        and spec.options is None
        and not is_volatile(spec.id)
        and spec.queue != CALLBACKS_QUEUE
    ):
        return []
    problems = []
    size = len(payload) if isinstance(payload, bytes) else 0
    if len(spec.id) != ID_BYTES:
        problems.append(f"id: must be {ID_BYTES} bytes, got {len(spec.id)}")
    elif is_volatile(spec.id):
        problems.append("id: reserved for the broker; use a UUID of version 7 or 4")
    if not spec.queue:
        problems.append("queue: must not be empty")
    if spec.queue == CALLBACKS_QUEUE:
        problems.append(f"queue: {OWN_QUEUE}")
    problems += [
        f"{field}: longer than {NAME_CHARS_MAX} characters"
        for field in ("queue", "name", "key")
        if len(getattr(spec, field)) > NAME_CHARS_MAX
    ]
    if not 0 <= spec.priority <= PRIORITY_MAX:
        problems.append(f"priority: must be 0 to {PRIORITY_MAX}, got {spec.priority}")
    if size > INLINE_BYTES_MAX:
        problems.append(
            f"payload: {size} bytes, at most {INLINE_BYTES_MAX} are allowed inline; upload it as "
            "a blob"
        )
    if isinstance(payload, BlobRef) and not is_blob(payload):
        problems.append("payload: names no blob")
    return problems + (_option_problems(spec.options) if spec.options else [])


def _option_problems(options: Options) -> list[str]:
    problems = [
        f"{name}: must be 0 to {TIME_US_MAX}, got {getattr(options, name)}"
        for name in ("run_at_us", "expires_at_us", "timeout_us")
        if not 0 <= getattr(options, name) <= TIME_US_MAX
    ]
    if len(options.alias) > NAME_CHARS_MAX:
        problems.append(f"alias: longer than {NAME_CHARS_MAX} characters")
    if len(options.version) > NAME_CHARS_MAX:
        problems.append(f"version: longer than {NAME_CHARS_MAX} characters")
    if len(options.identity) not in (0, IDENTITY_BYTES):
        problems.append(f"identity: must be {IDENTITY_BYTES} bytes, got {len(options.identity)}")
    if len(options.tags) > TAGS_PER_TASK_MAX:
        problems.append(f"tags: more than {TAGS_PER_TASK_MAX}")
    if any(not 0 < len(tag) <= TAG_CHARS_MAX or "\0" in tag for tag in options.tags):
        problems.append(f"tags: each must have 1 to {TAG_CHARS_MAX} characters, none of them NUL")
    if len(options.depends_on) > DEPENDENCIES_PER_TASK_MAX:
        problems.append(f"depends_on: more than {DEPENDENCIES_PER_TASK_MAX}")
    if options.headers and (problem := value_problem(options.headers, HEADERS_BYTES_MAX)):
        problems.append(f"headers: {problem}")
    if options.flow is not None or options.node is not None or options.schedule:
        instead = "submit a flow with its nodes, or trigger a schedule, instead"
        problems.append(f"flow, node, schedule: set by the broker; {instead}")
    problems += [] if options.needs is None else needs_problems(options.needs)
    if options.pace is not None:
        problems += _paced_problems(options, options.pace)
    problems += key_problems(options.keys)
    return problems + (_retry_problems(options.retry) if options.retry else [])


def _paced_problems(options: Options, pace: Pace) -> list[str]:
    """List what is wrong with a pace, and what cannot go with it."""
    others = [] if options.same in (None, _RUN) and not options.identity else ["same"]
    if pace.how is not Pacing.THROTTLE:  # Another submit may take the place of the task.
        others += [name for name in ("alias", "parent", "depends_on") if getattr(options, name)]
    if pace.how is Pacing.DEBOUNCE and options.run_at_us:
        others.append("run_at_us")
    return pace_problems(pace) + [f"{name}: cannot go with {pace.how}" for name in others]


def _retry_problems(retry: Retry) -> list[str]:
    is_sound = (
        0 <= retry.retries <= COUNT_MAX
        and 0 <= retry.base_us <= TIME_US_MAX
        and 1.0 <= retry.factor <= 100.0
        and 0 <= retry.cap_us <= TIME_US_MAX
    )
    if is_sound:
        return []
    return [f"retry: retries 0 to {COUNT_MAX}, times 0 to {TIME_US_MAX}, factor 1 to 100"]
