"""Answers as they are shown: which requests are under way, and which answers are kept.

Owns the way from the core's cache to views. Changes nothing.
"""

from __future__ import annotations

from itertools import islice

from jackalope.broker.access import sees
from jackalope.core import Core
from jackalope.core.cache import StoredAnswer
from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.lifecycle import ENDED
from jackalope.core.queue import Queue
from jackalope.core.requests import joined
from jackalope.core.task import Task
from jackalope.wire.views import AnswerView


def list_answers(
    core: Core, namespace: str, *, queue: str, name: str, version: str, limit: int
) -> list[AnswerView]:
    """Show the answers that are kept, queue by queue, the most recently used first."""
    world = core.book.namespaces.get(namespace)
    queues = [] if world is None else sorted(world.queues.values(), key=lambda each: each.name)
    found = (
        view_of_answer(answer)
        for each in queues
        if queue in ("", each.name) and sees(each.name)
        for answer in reversed(each.cache.answers.values())
        if name in ("", answer.name) and version in ("", answer.version)
    )
    return list(islice(found, limit))


def find_answer(
    core: Core, namespace: str, *, identity: bytes = b"", task: TaskId = NO_TASK
) -> AnswerView | None:
    """Show a request by its identity or its task: the task that is under way, or the answer."""
    world = core.book.namespaces.get(namespace)
    if world is None:
        return None
    if not identity:
        answer = core.book.answers.by_task.get(task)
        is_here = answer is not None and answer.namespace == namespace and sees(answer.queue)
        return view_of_answer(answer) if answer is not None and is_here else None
    for queue in world.queues.values():
        if sees(queue.name):
            view = _in_queue(core, queue, identity)
            if view is not None:
                return view
    return None


def _in_queue(core: Core, queue: Queue, identity: bytes) -> AnswerView | None:
    under_way = queue.cache.flights.get(identity)
    if under_way is not None:
        return _awaited(core.book.tasks[under_way])
    answer = queue.cache.answers.get(identity)
    return None if answer is None else view_of_answer(answer)


def answer_of(core: Core, task: Task) -> AnswerView | None:
    """Show who has use of a task's result, or is waiting for it; None if nobody else may."""
    answer = core.book.answers.by_task.get(task.id)
    if answer is not None:
        return view_of_answer(answer)
    is_under_way = task.options.identity and task.state not in ENDED
    return _awaited(task) if is_under_way else None


def _awaited(task: Task) -> AnswerView:
    """Show the answer that a task will have."""
    return AnswerView(
        identity=task.options.identity,
        queue=task.queue.name,
        task=task.id,
        state=task.state,
        name=task.name,
        version=task.options.version,
        uses=joined(task),
    )


def view_of_answer(answer: StoredAnswer) -> AnswerView:
    """Show an answer that is kept."""
    return AnswerView(
        identity=answer.identity,
        queue=answer.queue,
        task=answer.task,
        state=answer.state,
        name=answer.name,
        version=answer.version,
        worker=answer.worker,
        size=answer.size,
        made_us=answer.made_us,
        until_us=answer.until_us,
        uses=answer.uses,
        used_us=answer.used_us,
        used_by=answer.used_by,
        pinned_by=answer.pinned_by,
    )
