"""Ends: the callbacks and triggers of tasks that end, and of batches.

Owns which of them follow from an end, and what they tell of it. The task of a callback and that of
a trigger have ids that follow from the task, its end and what was asked for, and they are recorded
in the batch that records the end: they can be neither lost nor doubled.
"""

from __future__ import annotations

from collections.abc import Sequence

from jackalope.core.commands import JoinWorker
from jackalope.core.commands.callbacks import ServeCallbacks
from jackalope.core.context import Context, Ending
from jackalope.core.effects import Answered
from jackalope.core.ids import TaskId, id_text
from jackalope.core.limits import CALLBACK_ERROR_CHARS_MAX, CALLBACK_RESULT_BYTES_MAX
from jackalope.core.policy import CALLBACKS_POLICY
from jackalope.core.records import QueueDeclared
from jackalope.core.shapes.callback import (
    BATCH_EVENT,
    CALLBACKS_QUEUE,
    CALLBACKS_WORKER,
    SOURCE_HEADER,
    TASK_EVENT,
    Callback,
    CallbackOn,
    Notice,
    Trigger,
    TriggerPayload,
    batch_callback_id,
    callback_id,
    encode_notice,
    event_call,
    trigger_id,
)
from jackalope.core.state.queue import Namespace, Queue
from jackalope.core.task import NO_OPTIONS, Body, Options, Outcome, Task, TaskSpec, size_of
from jackalope.core.tasks.submit import submit_own, succeed
from jackalope.core.workers.sessions import join_worker

#: The header of a task that names how its payload and its result are encoded.
_CONTENT_HEADER = "content"

_NOTHING = Outcome()


def serve_callbacks(ctx: Context, command: ServeCallbacks) -> Answered | None:
    """Register the broker itself as the worker of the callbacks of a namespace."""
    join = JoinWorker(
        session=command.session,
        ref=command.ref,
        namespace=command.namespace,
        worker=CALLBACKS_WORKER,
        queues=(CALLBACKS_QUEUE,),
        slots=command.slots,
        lease_us=command.lease_us,
        grace_us=0,
    )
    return join_worker(ctx, join, is_own=True)


def tasks_ended(ctx: Context, endings: Sequence[Ending]) -> None:
    """Submit what follows from the ends of tasks, and of the batches that end with them."""
    batches: dict[tuple[Queue, int], Task] = {}  # those that have ended, with their last task
    for task, _, _ in endings:
        policy, options = task.queue.policy, task.options
        if options is not NO_OPTIONS and options.callbacks:
            _post(ctx, task, options.callbacks)
        if policy.callbacks:
            _post(ctx, task, policy.callbacks)
            if task.queue.has_ended(task.batch):
                batches[task.queue, task.batch] = task
        for number, trigger in enumerate(policy.triggers):
            if trigger.is_about(task.state):
                _trigger(ctx, task, number, trigger)
    for task in batches.values():
        _post_batch(ctx, task)


def _post(ctx: Context, task: Task, callbacks: tuple[Callback, ...]) -> None:
    """Submit the callbacks that are about this end. One URL is called once."""
    for callback in callbacks:
        if callback.is_about(task.state):
            task_id = callback_id(task.id, _ended_us(task), callback.url)
            _submit(ctx, task, task_id, notice_of(task, callback.url))


def _post_batch(ctx: Context, task: Task) -> None:
    """Submit the callbacks about the batch of a task, which was its last to end."""
    queue, ended_us = task.queue, _ended_us(task)
    for callback in queue.policy.callbacks:
        if CallbackOn.BATCH in callback.on:
            notice = Notice(
                url=callback.url,
                type=BATCH_EVENT,
                namespace=queue.namespace.name,
                queue=queue.name,
                at_us=ended_us,
                batch=task.batch,
            )
            task_id = batch_callback_id(task.id, queue.name, task.batch, ended_us, callback.url)
            _submit(ctx, task, task_id, notice)


def _submit(ctx: Context, task: Task, task_id: TaskId, notice: Notice) -> None:
    namespace = task.queue.namespace
    options = Options(headers={SOURCE_HEADER: id_text(task.id)})
    spec = TaskSpec(
        id=task_id,
        queue=CALLBACKS_QUEUE,
        name=notice.type,
        payload=encode_notice(notice),
        options=options,
    )
    _open_queue(ctx, namespace, task.by)
    submit_own(ctx, namespace.queues[CALLBACKS_QUEUE], spec, task.by)


def _open_queue(ctx: Context, namespace: Namespace, by: str) -> None:
    """Declare the queue of callbacks again, if a person has deleted it."""
    if CALLBACKS_QUEUE not in namespace.queues:
        policy = CALLBACKS_POLICY
        ctx.record(QueueDeclared(ctx.now_us, namespace.name, CALLBACKS_QUEUE, policy, by))


def _trigger(ctx: Context, task: Task, number: int, trigger: Trigger) -> None:
    """Submit the task that a trigger asks for."""
    headers = {**task.options.headers, SOURCE_HEADER: id_text(task.id)}
    payload: Body = task.payload
    if trigger.payload is TriggerPayload.RESULT:
        payload = (task.outcome or _NOTHING).result
    elif trigger.payload is TriggerPayload.EVENT:
        payload = event_call(notice_of(task, ""))
        headers.pop(_CONTENT_HEADER, None)  # It is a call of the default kind.
    task_id = trigger_id(task.id, _ended_us(task), number, trigger)
    succeed(ctx, task, task_id, trigger, payload=payload, headers=headers)


def notice_of(task: Task, url: str) -> Notice:
    """Return what is told of the end of a task."""
    outcome = task.outcome or _NOTHING
    result, error = outcome.result, outcome.error
    is_small = isinstance(result, bytes) and 0 < len(result) <= CALLBACK_RESULT_BYTES_MAX
    content = task.options.headers.get(_CONTENT_HEADER, "")
    return Notice(
        url=url,
        type=f"{TASK_EVENT}.{task.state}",
        namespace=task.queue.namespace.name,
        queue=task.queue.name,
        at_us=outcome.ended_us,
        task=id_text(task.id),
        name=task.name,
        key=task.key,
        state=str(task.state),
        reason=str(outcome.reason or ""),
        error_type=error.type[:CALLBACK_ERROR_CHARS_MAX] if error else "",
        error_message=error.message[:CALLBACK_ERROR_CHARS_MAX] if error else "",
        created_us=task.created_us,
        attempts=task.attempts,
        batch=task.batch,
        result_size=size_of(result),
        result=result if is_small and isinstance(result, bytes) else None,
        content=content if isinstance(content, str) else "",
    )


def _ended_us(task: Task) -> int:
    return (task.outcome or _NOTHING).ended_us
