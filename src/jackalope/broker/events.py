"""Events: send durable records to subscribers as they happen.

Owns the subscriptions. A listener is called between two turns and must not block; what
happens to one that cannot keep up is decided by its door.
"""

from __future__ import annotations

from collections.abc import Callable

from jackalope.broker.access import acting
from jackalope.broker.engine import Turn
from jackalope.core import Core
from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.lifecycle import State
from jackalope.core.records import (
    AnswerStored,
    AnswerUsed,
    AnyRecord,
    AttemptAssigned,
    AttemptEnded,
    AttemptFinished,
    AttemptStarted,
    EventSent,
    RequestJoined,
    SignalAdvanced,
    SignalRequested,
    StepRecorded,
    TaskMoved,
    TaskPurged,
    TaskReplaced,
    TaskRevived,
    TaskSubmitted,
    WaitBegan,
    task_of,
)
from jackalope.core.shapes.request import How
from jackalope.core.task import Task
from jackalope.wire.messages import Happened

Listener = Callable[[list[Happened]], None]

#: The namespace, the queue and the task of a subscription; the last two may be empty.
Topic = tuple[str, str, TaskId]


class Subscription:
    """A subscription to one task, one queue, or all of a namespace.

    It receives nothing of other queues than `queues`; by default those that the acting client sees.
    """

    __slots__ = ("listener", "namespace", "queue", "queues", "task")

    def __init__(
        self,
        listener: Listener,
        namespace: str,
        queue: str,
        task: TaskId,
        *,
        queues: tuple[str, ...] | None = None,
    ) -> None:
        self.listener = listener
        self.queues = acting.get().queues if queues is None else queues
        self.namespace = namespace
        self.queue = queue
        self.task = task

    @property
    def topic(self) -> Topic:
        return self.namespace, self.queue, self.task

    def may_hear(self, event: Happened) -> bool:
        """Return whether the queue of an event is visible to the subscriber."""
        return not self.queues or event.queue in self.queues


class Events:
    """Sends events to subscribers.

    They are indexed by topic, so that an event without subscribers costs next to nothing, however
    many subscribe to other topics.
    """

    def __init__(self) -> None:
        self._subscriptions: dict[Topic, dict[Subscription, None]] = {}

    def subscribe(self, subscription: Subscription) -> None:
        self._subscriptions.setdefault(subscription.topic, {})[subscription] = None

    def unsubscribe(self, subscription: Subscription) -> None:
        listening = self._subscriptions.get(subscription.topic, {})
        listening.pop(subscription, None)
        if not listening:
            self._subscriptions.pop(subscription.topic, None)

    def take(self, turn: Turn, core: Core) -> None:
        """Send the records of a durable turn to their subscribers."""
        if not self._subscriptions:
            return
        told: dict[Subscription, list[Happened]] = {}
        book = core.book
        for record in turn.records:
            if type(record) is AnswerStored:
                continue  # It comes with the end of its task, which is told.
            if type(record) is AnswerUsed:
                # Its task has mostly left memory.
                event, listening = self._used(record, core)
            else:
                task_id = task_of(record)
                task = book.tasks.get(task_id) or book.gone.get(task_id)
                listening = [] if task is None else self._listening(task)
                event = None if task is None or not listening else _happened(record, task)
            if event is None:
                continue
            for subscription in listening:
                if subscription.may_hear(event):
                    told.setdefault(subscription, []).append(event)
        for subscription, events in told.items():
            subscription.listener(events)

    def _listening(self, task: Task) -> list[Subscription]:
        return self._listening_to(task.queue.namespace.name, task.queue.name, task.id)

    def _used(self, record: AnswerUsed, core: Core) -> tuple[Happened | None, list[Subscription]]:
        """Return the event of a used answer, and its subscriptions."""
        answer = core.book.answers.by_task.get(record.task)
        if answer is None:
            return None, []  # Dropped by a later command of the same turn.
        listening = self._listening_to(answer.namespace, answer.queue, answer.task)
        state = str(answer.state)
        event = Happened(record.at_us, How.HIT, answer.task, answer.queue, state, record.by)
        return event, listening

    def _listening_to(self, namespace: str, queue: str, task_id: TaskId) -> list[Subscription]:
        topics = (
            (namespace, "", NO_TASK),
            (namespace, queue, NO_TASK),
            (namespace, "", task_id),
            (namespace, queue, task_id),
        )
        return [each for topic in topics for each in self._subscriptions.get(topic, ())]


#: How a submit was served that made no task of its own.
_SERVED = {RequestJoined: How.JOINED, TaskReplaced: How.REPLACED}


def _happened(record: AnyRecord, task: Task) -> Happened:
    """Describe a record as an event. The state is the one the record led to, if it has one."""
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
        case RequestJoined() | TaskReplaced():
            what, by = _SERVED[type(record)], record.by
        case TaskRevived() | TaskPurged():
            what, by = "retry" if isinstance(record, TaskRevived) else "purge", record.by
        case _:
            what, by, detail = _of_steps(record)
    queue, name = task.queue.name, task.name
    return Happened(record.at_us, str(what), task.id, queue, str(state), by, str(detail), name)


def _of_steps(record: AnyRecord) -> tuple[str, str, str]:
    """Return what happened to the steps of a task, by whom, and the name."""
    match record:
        case StepRecorded():
            return "step", "", record.name
        case WaitBegan():
            return "wait", "", record.name
        case EventSent():
            return "event", record.by, record.event
        case _:
            return type(record).__name__, "", ""
