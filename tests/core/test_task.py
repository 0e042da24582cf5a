"""Wide structs that are built by position: each value lands in the field that it is meant for.

Keywords would cost the hot path: three microseconds for a row, of the fifteen of a whole life.
"""

from typing import Any

from jackalope.core.effects import Assignment
from jackalope.core.lifecycle import Reason, State
from jackalope.core.policy import DEFAULT_POLICY
from jackalope.core.shapes.exchange import AmqpTraits
from jackalope.core.shapes.flow import Input, NodeState
from jackalope.core.shapes.steps import Pending, SentEvent, Step, Steps
from jackalope.core.state.queue import Namespace, Queue
from jackalope.core.task import (
    Attempt,
    Envelope,
    Error,
    HistoryEntry,
    Options,
    Outcome,
    TaskRow,
    from_row,
    to_row,
)
from tests.core.driving import Driver, task_id

#: A value of its own for every field.
VALUES: dict[str, Any] = {
    "id": task_id(1),
    "namespace": "the namespace",
    "queue": "the queue",
    "name": "the name",
    "key": "the key",
    "priority": 3,
    "payload": b"the payload",
    "options": Options(alias="the alias"),
    "state": State.RUNNING,
    "by": "ada",
    "created_us": 5,
    "batch": 6,
    "rank": 7,
    "penalty": 8,
    "due_us": 9,
    "expires_us": 10,
    "waiting_for": (task_id(2), task_id(3)),
    "failures": 11,
    "crashes": 12,
    "interruptions": 13,
    "attempts": 14,
    "guardian": task_id(4),
    "avoid": "another worker",
    "attempt": Attempt(15, "the worker", 16),
    "outcome": Outcome(b"", Error("E", "of before"), Reason.FAILED, 17, 18),
    "history": [HistoryEntry(19, "assign")],
    "envelope": Envelope("an exchange", "a routing key", b""),
    "steps": Steps(
        [Step(0, "charge", b"paid", 20, 21)],
        Pending(1, "approval", "approved", 22),
        [SentEvent("rejected", b"no", 23, "ada")],
        6,
    ),
    "flow": NodeState(24, [(25, Input("a", task_id(5), State.SUCCEEDED, b"A"))], 26, 1, 0, True),
    "merged": (task_id(5), task_id(6)),
}


def test_a_row_has_every_value_where_it_belongs() -> None:
    row = TaskRow(**VALUES)
    assert set(TaskRow.__struct_fields__) == set(VALUES)
    queue = Queue(Namespace("the namespace"), "the queue", DEFAULT_POLICY)
    task = from_row(row, queue)
    assert task.queue is queue
    for name in VALUES.keys() - {"namespace", "queue", "waiting_for"}:
        assert getattr(task, name) == VALUES[name], name
    assert task.waiting_for == set(VALUES["waiting_for"])
    assert to_row(task) == row


def test_an_assignment_has_every_value_where_it_belongs() -> None:
    driver = Driver()
    options = {"timeout_us": 20, "alias": "the alias"}
    driver.submit(1, "q", name="the name", key="the key", payload=b"the payload", **options)
    driver.join("w", 1, slots=1)
    assert driver.assignments(1) == [
        Assignment(
            task=task_id(1),
            fence=driver.fence(1),
            queue="q",
            name="the name",
            key="the key",
            payload=b"the payload",
            options=Options(timeout_us=20, alias="the alias"),
            attempt=1,
            timeout_us=20,
            claim=0,
            envelope=None,
            steps=(),
            retries_left=3,
            inputs=(),
        )
    ]


def test_a_queue_row_has_every_value_where_it_belongs() -> None:
    namespace = Namespace("the namespace")
    queue = Queue(namespace, "the queue", DEFAULT_POLICY)
    queue.paused_by, queue.batch, queue.batch_fill = "ada", 2, 3
    queue.pins, queue.traits = {"pinned": None}, AmqpTraits(durable=True)
    row = queue.to_row()
    assert (row.namespace, row.queue, row.paused_by) == ("the namespace", "the queue", "ada")
    assert (row.batch, row.batch_fill, row.pins) == (2, 3, ("pinned",))
    assert Queue.from_row(namespace, row).to_row() == row
