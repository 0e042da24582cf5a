"""Events: durable records, told as they happen to whoever watches.

Owns the subscriptions. A listener is called between two turns and must not block; one that cannot
keep up is its door's business.
"""

from __future__ import annotations

from collections.abc import Callable

from jackalope.core import Core
from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.lifecycle import State
from jackalope.core.records import (
    AnyRecord,
    AttemptAssigned,
    AttemptEnded,
    AttemptFinished,
    AttemptStarted,
    SignalAdvanced,
    SignalRequested,
    TaskMoved,
    TaskPurged,
    TaskRevived,
    TaskSubmitted,
)
from jackalope.core.task import Task
from jackalope.wire.messages import Happened

Listener = Callable[[list[Happened]], None]


class Subscription:
    """What one listener wants to hear: one task, one queue, or all of a namespace."""

    __slots__ = ("listener", "namespace", "queue", "task")

    def __init__(self, listener: Listener, namespace: str, queue: str, task: TaskId) -> None:
        self.listener = listener
        self.namespace = namespace
        self.queue = queue
        self.task = task

    def wants(self, namespace: str, event: Happened) -> bool:
        """Tell whether the listener wants to hear of an event."""
        return (
            namespace == self.namespace
            and self.queue in ("", event.queue)
            and self.task in (NO_TASK, event.task)
        )


class Events:
    """Tells subscribers what happens."""

    def __init__(self) -> None:
        self._subscriptions: dict[Subscription, None] = {}

    def subscribe(self, subscription: Subscription) -> None:
        """Begin to tell a listener."""
        self._subscriptions[subscription] = None

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop telling a listener."""
        self._subscriptions.pop(subscription, None)

    def take(self, records: list[AnyRecord], core: Core) -> None:
        """Take the records of a turn that is durable."""
        if not self._subscriptions:
            return
        told: list[tuple[str, Happened]] = []
        for record in records:
            task = core.book.tasks.get(_task_of(record))
            if task is not None:
                told.append((task.queue.namespace.name, _happened(record, task)))
        for subscription in list(self._subscriptions):
            events = [event for namespace, event in told if subscription.wants(namespace, event)]
            if events:
                subscription.listener(events)


def _task_of(record: AnyRecord) -> TaskId:
    if isinstance(record, TaskSubmitted):
        return record.spec.id
    if isinstance(record, TaskRevived):
        return record.row.id
    return getattr(record, "task", NO_TASK)


def _happened(record: AnyRecord, task: Task) -> Happened:
    """Put a record into words. The state is the one the record led to, as far as it says."""
    what, by, detail, state = "", "", "", str(task.state)
    match record:
        case TaskSubmitted():
            what, by, state = "submit", record.by, record.state
        case AttemptAssigned():
            what, by, state = "assign", record.worker, State.ASSIGNED
        case AttemptStarted():
            what, state = "start", State.RUNNING
        case AttemptFinished():
            what, state = "finish", State.SUCCEEDED
        case AttemptEnded() | TaskMoved():
            what, by, state, detail = record.event, record.by, record.to, record.reason or ""
        case SignalRequested():
            what, by = f"{record.signal} requested", record.by
        case SignalAdvanced():
            what, detail = f"signal {record.stage}", record.detail
        case TaskRevived() | TaskPurged():
            what, by = "retry" if isinstance(record, TaskRevived) else "purge", record.by
        case _:
            what = type(record).__name__
    return Happened(record.at_us, str(what), task.id, task.queue.name, str(state), by, str(detail))
