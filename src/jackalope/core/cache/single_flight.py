"""Single flight: one run for all clients that request the same, its answer kept for later ones.

Owns single flight and the life of answers. A request is a submit of a task that has an identity.
If another task of that identity is under way, or its answer is kept, the submit creates no task:
the reply names the other one, and the client watches that.

Two tasks of one identity are never under way at once. An error is not an answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from jackalope.core.commands import ActOnAnswers, AnswerAction, SubmitTasks
from jackalope.core.context import Context, Ending
from jackalope.core.durations import NEVER
from jackalope.core.effects import Acted, Served
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import State
from jackalope.core.limits import TASKS_PER_FILTER_MAX, TIME_US_MAX
from jackalope.core.records import (
    AnswerPinned,
    AnswersDropped,
    AnswerStored,
    AnswerUsed,
    RequestJoined,
)
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.request import How, Same, StoredAnswer, how_run, identity_of, unknown
from jackalope.core.state.queue import Namespace, Queue
from jackalope.core.task import NO_OPTIONS, Options, Task, TaskSpec, joined, last_worker, size_of


def ask(
    ctx: Context, command: SubmitTasks, spec: TaskSpec, queue: Queue
) -> Served | Refusal | None:
    """Return how a submitted task is served and by which task; None if it is not a request.

    If it is going to run itself, its identity is stored in its options.
    """
    options = spec.options or NO_OPTIONS
    same = options.same or queue.policy.same
    if same is Same.RUN:
        if options.identity:
            spec.options = msgspec.structs.replace(options, identity=b"")
        return None if options.same is None else Served(How.BYPASS, spec.id)
    identity = _identity(spec, options)
    if isinstance(identity, Refusal):
        if options.same is None and not options.identity:
            return Served(How.BYPASS, spec.id)  # It was not marked as a request.
        return identity
    other = _serve(ctx, queue, identity, same, command.by)
    if other is None:
        spec.options = msgspec.structs.replace(options, same=same, identity=identity)
        return Served(how_run(same), spec.id, identity)
    return other


def _identity(spec: TaskSpec, options: Options) -> bytes | Refusal:
    """Return the identity of a task, computed from its content if the content is inline."""
    if isinstance(spec.payload, bytes):
        identity = identity_of(spec.queue, spec.name, spec.key, options.version, spec.payload)
        if options.identity not in (b"", identity):
            message = (
                f"identity: {options.identity.hex()} does not match this task, {identity.hex()}; "
                "omit it, or compute it as documented"
            )
            return Refusal(Code.INVALID, "task not accepted. " + message)
        return identity
    if not options.identity:
        message = "identity: required for a payload in the blob store"
        return Refusal(Code.INVALID, "task not accepted. " + message)
    return options.identity


def _serve(ctx: Context, queue: Queue, identity: bytes, same: Same, by: str) -> Served | None:
    """Serve a request from a running task or a cached answer, if there is one."""
    cache = queue.cache
    under_way = cache.flights.get(identity)
    if under_way is not None:
        ctx.record(RequestJoined(ctx.now_us, under_way, by))
        return Served(How.JOINED, under_way, identity)
    if same is Same.CACHED:
        answer = cache.answers.get(identity)
        if answer is not None and answer.is_good(ctx.now_us):
            ctx.record(AnswerUsed(ctx.now_us, answer.task, by))
            return Served(How.HIT, answer.task, identity, answer.made_us, answer.worker)
    return None


def is_doubled(task: Task) -> bool:
    """Return whether another task is running the request of an ended one."""
    other = task.queue.cache.flights.get(task.options.identity, task.id)
    return other != task.id


def keep_answers(ctx: Context, endings: Sequence[Ending]) -> None:
    """Cache the answers of requests that have ended."""
    for task, _, _ in endings:
        if task.options.identity:
            _keep_answer(ctx, task)


def _keep_answer(ctx: Context, task: Task) -> None:
    """Cache the answer of a request that has ended, evicting others if necessary."""
    queue, options, now_us = task.queue, task.options, ctx.now_us
    policy, outcome = queue.policy, task.outcome
    if options.same is Same.UNIQUE or not policy.cache_us or outcome is None:
        return
    replaced = queue.cache.answers.get(options.identity)
    is_error = task.state is not State.SUCCEEDED
    if is_error and replaced is not None and replaced.is_good(now_us):
        return  # A refresh that failed takes nothing away.
    size = size_of(outcome.result)
    evicted = queue.cache.evicted_by(options.identity, size, policy)
    if evicted is None:
        return
    leaving = [answer.task for answer in evicted]
    if leaving:
        ctx.record(AnswersDropped(now_us, tuple(leaving), "evicted"))
    answer = StoredAnswer(
        namespace=queue.namespace.name,
        queue=queue.name,
        identity=options.identity,
        task=task.id,
        name=task.name,
        version=options.version,
        worker=last_worker(task),
        state=task.state,
        size=size,
        made_us=now_us,
        until_us=min(now_us + policy.cache_us, NEVER),
        uses=joined(task),
        pinned_by=replaced.pinned_by if replaced is not None and not is_error else "",
    )
    ctx.record(AnswerStored(now_us, answer))


def drop_answer(ctx: Context, task_id: TaskId, by: str) -> None:
    if task_id in ctx.book.answers.by_task:
        ctx.record(AnswersDropped(ctx.now_us, (task_id,), "purged", by))


def expire_answers(ctx: Context, due: Iterator[TaskId]) -> None:
    tasks = tuple(due)
    if tasks:
        ctx.record(AnswersDropped(ctx.now_us, tasks, "expired"))


# From outside.


def act_on_answers(ctx: Context, command: ActOnAnswers) -> Acted | Refusal:
    """Pin, unpin or purge answers, by identity or by filter."""
    if not 0 <= command.older_than_us <= TIME_US_MAX:
        message = f"older_than_us: must be 0 to {TIME_US_MAX}, got {command.older_than_us}"
        return Refusal(Code.INVALID, message)
    namespace = ctx.book.namespaces.get(command.namespace)
    refused: list[tuple[TaskId, Refusal]] = []
    if command.identities:
        found = []
        for identity in dict.fromkeys(command.identities):
            answer = None if namespace is None else _find(namespace, identity, command)
            if answer is None:
                refused.append((TaskId(identity), unknown(identity, command.namespace)))
            else:
                found.append(answer)
    else:
        matching = iter(()) if namespace is None else _matching(namespace, command)
        found = list(islice(matching, TASKS_PER_FILTER_MAX + 1))
    more = len(found) > TASKS_PER_FILTER_MAX
    changed = _change(ctx, command, found[:TASKS_PER_FILTER_MAX])
    return Acted(changed, 0, tuple(refused), more)


def _find(namespace: Namespace, identity: bytes, command: ActOnAnswers) -> StoredAnswer | None:
    for queue in namespace.queues.values():
        answer = queue.cache.answers.get(identity)
        if answer is not None and queue.is_seen_by(command):
            return answer
    return None


def _matching(namespace: Namespace, command: ActOnAnswers) -> Iterator[StoredAnswer]:
    for queue in namespace.queues.values():
        if command.queue not in ("", queue.name) or not queue.is_seen_by(command):
            continue
        for answer in queue.cache.answers.values():
            if (
                command.name in ("", answer.name)
                and command.version in ("", answer.version)
                and not 0 < command.older_than_us <= answer.made_us
            ):
                yield answer


def _change(ctx: Context, command: ActOnAnswers, answers: list[StoredAnswer]) -> int:
    if command.action is AnswerAction.PURGE:
        tasks = tuple(answer.task for answer in answers)
        if tasks:
            ctx.record(AnswersDropped(ctx.now_us, tasks, "purged", command.by))
        return len(tasks)
    is_pinned = command.action is AnswerAction.PIN
    changed = 0
    for answer in answers:
        if bool(answer.pinned_by) != is_pinned:
            by = (command.by or "unknown") if is_pinned else ""
            ctx.record(AnswerPinned(ctx.now_us, answer.task, by))
            changed += 1
    return changed
