"""What records about paces mean for the book. A part of `apply`; it decides nothing.

A task whose place a later submit may take is open (`task.is_open`). That follows from the task
itself, so a restart finds the same ones; `Queue.standing` has the last of each kind.
"""

from __future__ import annotations

from jackalope.core.assertions import must
from jackalope.core.lifecycle import Event, State, can_lead
from jackalope.core.limits import MERGED_PER_TASK_MAX
from jackalope.core.records import TaskReplaced, ThrottlesEnded
from jackalope.core.shapes.pace import REPLACED, Pace, Throttled, throttle_name
from jackalope.core.state.book import Book
from jackalope.core.task import Task, is_open


def throttle(book: Book, task: Task, pace: Pace) -> None:
    """Accept no other task of this kind for a while."""
    namespace, queue = task.queue.namespace, task.queue.name
    until_us = task.created_us + pace.span_us
    entry = Throttled(namespace.name, queue, task.name, pace.key, task.id, until_us)
    name = throttle_name(queue, task.name, pace.key)
    book.keep_throttle(name, entry)
    book.entities_dirty["throttle", namespace.name, name] = entry


def task_replaced(book: Book, record: TaskReplaced) -> None:
    """Give a task what a later submit has. It keeps its id, its place in line and its history."""
    task, spec = book.tasks[record.task], record.spec
    must(is_open(task), "only an open task is replaced", task, record)
    must(can_lead(task.state, Event.REPLACE, record.to), "a legal change", task.state, record)
    if record.to is State.READY and not task.rank:
        task.rank = book.next_rank(task.id, record.at_us)
    book.replace(task, spec, record.to, record.due_us, record.expires_us)
    task.merged = (*task.merged[1 - MERGED_PER_TASK_MAX :], spec.id)
    count = 1
    if task.history and task.history[-1].what == REPLACED:
        count += int(task.history.pop().detail)
    book.note(task, record.at_us, REPLACED, record.by, str(count))


def throttles_ended(book: Book, record: ThrottlesEnded) -> None:
    for kind in record.kinds:
        del book.namespaces[record.namespace].throttles[kind]
        book.throttled.cancel((record.namespace, kind))
        book.entities_dirty["throttle", record.namespace, kind] = None
