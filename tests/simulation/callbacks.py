"""Callbacks in a simulated world: queues that post and trigger, who delivers, and what must hold.

Every end of a task is told of once: its callbacks and triggered tasks are in the batch that ends
it, whatever happens to the broker, and no other batch has them.
"""

from __future__ import annotations

from jackalope.core.commands import Command, DeclareQueue, JoinWorker
from jackalope.core.commands.callbacks import ServeCallbacks
from jackalope.core.durations import SECOND
from jackalope.core.effects import Effect, Reply
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import ENDED, State
from jackalope.core.records import (
    AnyRecord,
    AttemptEnded,
    AttemptFinished,
    TaskMoved,
    TaskSubmitted,
)
from jackalope.core.shapes.callback import (
    CALLBACKS_QUEUE,
    CALLBACKS_WORKER,
    callback_id,
    decode_notice,
    trigger_id,
)
from jackalope.core.task import Task
from tests.simulation.checker import Checker, demand
from tests.simulation.node import Node
from tests.simulation.worker import SimWorker
from tests.simulation.world import Link, World

_ALL, _DEAD = "https://hooks.example/all", "https://hooks.example/dead"

#: What follows from the ends of tasks, by queue.
FOLLOWING: dict[str, dict[str, object]] = {
    "plain": {
        "callbacks": [{"url": _ALL}, {"url": _DEAD, "on": ["dead", "batch"]}],
        "batch_size": 5,
    },
    "careful": {
        "callbacks": [{"url": _DEAD, "on": ["dead", "killed"]}],
        "triggers": [{"queue": "hasty", "on": ["killed", "dead"], "payload": "event"}],
    },
    "aged": {"triggers": [{"queue": "hasty"}]},
    CALLBACKS_QUEUE: {"retry_base_us": SECOND},
}


class SimSubscriber:
    """A client that declares what follows from ends, until that is answered."""

    def __init__(self, world: World, node: Node) -> None:
        self.name = "subscriber"
        self.world = world
        self.node = node
        self.link: Link | None = None
        self.outbox: dict[int, Command] = {
            number: DeclareQueue(ref=number, queue=queue, changes=dict(changes))
            for number, (queue, changes) in enumerate(FOLLOWING.items(), 1)
        }
        world.after(SECOND, self._live)

    def _live(self) -> None:
        if not self.outbox:
            return
        self.world.after(SECOND, self._live)
        if self.link is None:
            self.link = self.node.connect(self)
        for command in list(self.outbox.values()) if self.link is not None else ():
            command.session = self.link.session if self.link is not None else 0
            if self.link is not None:
                self.link.up(command)

    def hear(self, link: Link, effect: Effect) -> None:
        if link is self.link and isinstance(effect, Reply):
            self.outbox.pop(effect.ref, None)

    def cut_off(self, link: Link) -> None:
        if link is self.link:
            self.link = None


class SimCourier(SimWorker):
    """The broker's own worker: it is lost with the broker, and in other ways as well."""

    usual_us = SECOND
    longest_us = 5 * SECOND

    def __init__(self, world: World, node: Node) -> None:
        queues = (CALLBACKS_QUEUE,)
        super().__init__(world, node, CALLBACKS_WORKER, queues=queues, keys=(), slots=4)

    def _die(self) -> None:
        self._forget()
        if self.link is not None:
            self.link.peer_knows = True
            self.link.cut()
            self.link = None

    def _send(self, command: Command) -> None:
        if isinstance(command, JoinWorker):
            command = ServeCallbacks(ref=command.ref, slots=self.slots, lease_us=command.lease_us)
        super()._send(command)


class CallbackChecker(Checker):
    """A checker that knows what must follow from each end."""

    def __init__(self) -> None:
        super().__init__()
        self.names["jackalope"] = None
        self._wanted: dict[TaskId, str] = {}
        self._batches: set[tuple[str, int, int, str]] = set()

    def on_durable(self, records: list[AnyRecord]) -> None:
        self._wanted = {}
        made = [record for record in records if isinstance(record, TaskSubmitted)]
        super().on_durable(records)
        there = {record.spec.id for record in made}
        for task_id, what in self._wanted.items():
            demand(task_id in there, "an end and what follows from it are one batch", what)
        for record in made:
            if record.spec.queue == CALLBACKS_QUEUE:
                self._check_callback(record)

    def _check_callback(self, record: TaskSubmitted) -> None:
        payload = record.spec.payload
        notice = decode_notice(payload if isinstance(payload, bytes) else b"")
        self.counts[notice.type] += 1
        if notice.task:
            demand(record.spec.id in self._wanted, "a callback follows from an end", notice)
            return
        batch = (notice.queue, notice.batch, notice.at_us, notice.url)
        demand(batch not in self._batches, "a batch is told of once", notice)
        self._batches.add(batch)
        tasks = self.shadow.book.tasks.values()
        of_batch = [each for each in tasks if each.batch == notice.batch]
        left = [
            each.id
            for each in of_batch
            if each.queue.name == notice.queue and each.state not in ENDED
        ]
        demand(not left, "a batch that is told of has ended", notice, left)

    def _end(self, task_id: TaskId, state: State) -> None:
        super()._end(task_id, state)
        task = self.shadow.book.tasks[task_id]
        self._expect(task, state, self._at_us)

    def _expect(self, task: Task, state: State, at_us: int) -> None:
        policy = task.queue.policy
        for callback in (*task.options.callbacks, *policy.callbacks):
            if callback.is_about(state):
                found = callback_id(task.id, at_us, callback.url)
                self._wanted[found] = f"{task.id.hex()} {state} {callback.url}"
        for number, trigger in enumerate(policy.triggers):
            if trigger.is_about(state):
                found = trigger_id(task.id, at_us, number, trigger)
                self._wanted[found] = f"{task.id.hex()} {state} {trigger.queue}"

    _at_us = 0

    def _on_finished(self, record: AttemptFinished) -> None:
        self._at_us = record.at_us
        super()._on_finished(record)

    def _on_attempt_ended(self, record: AttemptEnded) -> None:
        self._at_us = record.at_us
        super()._on_attempt_ended(record)

    def _on_moved(self, record: TaskMoved) -> None:
        self._at_us = record.at_us
        super()._on_moved(record)
