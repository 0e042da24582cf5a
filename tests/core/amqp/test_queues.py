"""Queues in the manner of AMQP: what a declaration is refused for, and what goes with a queue."""

from __future__ import annotations

from typing import Any

import pytest

from jackalope.core.commands import DeclarePool, DeletePool, WatchTasks
from jackalope.core.commands.amqp import (
    Bind,
    Consume,
    LimitShare,
    OpenExchange,
    OpenQueue,
    Publication,
    PublishMessages,
    RemoveQueue,
    TakeTask,
)
from jackalope.core.effects import ConsumerCancelled, Published, TaskEnded
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import State
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.exchange import Binding, Exchange, Kind, exchanges_of
from tests.core.driving import Driver, task_id

QUORUM = {"x-queue-type": "quorum"}


def refusal_of(driver: Driver, command: Any) -> Refusal:
    """Return the refusal of a command, which changes nothing."""
    before = driver.snapshot()
    answer = driver.send(command)
    assert isinstance(answer, Refusal)
    assert driver.snapshot() == before
    return answer


def publish(driver: Driver, *numbers: int, key: str = "q", to: str = "") -> None:
    messages = [Publication(task_id(number), to, key, b"", b"body") for number in numbers]
    assert isinstance(driver.send(PublishMessages(messages=messages)), Published)


def consume(driver: Driver, session: int, **fields: Any) -> None:
    command = Consume(queue="q", consumer=f"c{session}", slots=9, session=session, **fields)
    assert not isinstance(driver.send(command), Refusal)


def held_in(driver: Driver) -> int:
    return sum(task.attempt is not None for task in driver.core.book.tasks.values())


def ends_told(driver: Driver, session: int) -> list[tuple[TaskId, State]]:
    found = driver.messages(session)
    return [(each.task, each.state) for each in found if isinstance(each, TaskEnded)]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"may_make": False}, "does not permit"),
        ({"queue": "amq.own"}, "reserved"),
        ({"durable": True, "arguments": {"x-max-length": -1}}, "must not be negative"),
        ({"arguments": QUORUM}, "cannot be non-durable"),
        ({"durable": True, "auto_delete": True, "arguments": QUORUM}, "cannot be auto-delete"),
        (
            {"durable": True, "exclusive": True, "owner": 7, "arguments": QUORUM},
            "cannot be exclusive-owner",
        ),
        ({"durable": True, "arguments": {**QUORUM, "x-max-priority": 5}}, "cannot have"),
    ],
)
def test_a_queue_that_cannot_be_is_refused(fields: dict[str, Any], why: str) -> None:
    assert why in refusal_of(Driver(), OpenQueue(**{"queue": "q", **fields})).message


@pytest.mark.parametrize(
    ("again", "code"),
    [
        ({"durable": False}, Code.NOT_EQUIVALENT),
        ({"auto_delete": True}, Code.NOT_EQUIVALENT),
        ({"exclusive": True, "owner": 7}, Code.LOCKED),
        ({"arguments": {"x-max-length": 3}}, Code.NOT_EQUIVALENT),
        ({"arguments": {"x-max-length": "many"}}, Code.NOT_EQUIVALENT),
    ],
)
def test_a_declaration_that_differs_is_refused(again: dict[str, Any], code: Code) -> None:
    driver = Driver()
    driver.send(OpenQueue(queue="q", durable=True))
    assert refusal_of(driver, OpenQueue(**{"queue": "q", "durable": True, **again})).code is code


def test_the_usual_type_need_not_be_named() -> None:
    driver = Driver()
    driver.send(OpenQueue(queue="q", durable=True))
    named = OpenQueue(queue="q", durable=True, arguments={"x-queue-type": "classic"})
    assert not isinstance(driver.send(named), Refusal)


def test_a_quorum_queue_with_a_single_active_consumer_gives_no_task_by_itself() -> None:
    driver = Driver()
    single = {**QUORUM, "x-single-active-consumer": True}
    driver.send(OpenQueue(queue="q", durable=True, arguments=single))
    refusal_of(driver, TakeTask(queue="q", consumer="c", session=5))


def test_what_goes_with_a_queue() -> None:
    """Its bindings, the exchange that only it used, its consumers, and its tasks."""
    driver = Driver()
    driver.send(OpenQueue(queue="q", durable=True))
    driver.send(OpenExchange(exchange=Exchange("to-q", Kind.DIRECT, auto_delete=True)))
    driver.send(Bind(binding=Binding("to-q", "q", key="k")))
    publish(driver, 1, key="k", to="to-q")
    driver.submit(2)
    driver.send(WatchTasks(1, tasks=(task_id(2),), session=3))
    driver.send(RemoveQueue(queue="q"))
    assert ends_told(driver, 3) == [(task_id(2), State.KILLED)]
    assert not driver.core.book.tasks
    topology = driver.core.book.namespaces["default"].topology
    assert not list(topology.from_source("to-q"))
    assert "to-q" not in topology.exchanges


def test_the_consumers_of_a_deleted_queue_are_told_and_keep_nothing() -> None:
    driver = Driver()
    driver.send(OpenQueue(queue="q", durable=True))
    consume(driver, 4)
    driver.submit(1)
    assert held_in(driver) == 1
    driver.send(WatchTasks(1, tasks=(task_id(1),), session=3))
    driver.send(RemoveQueue(queue="q"))
    assert driver.messages(4) == [ConsumerCancelled()]
    assert ends_told(driver, 3) == [(task_id(1), State.KILLED)]


def test_consumers_of_a_share_hold_no_more_than_its_slots_together() -> None:
    driver = Driver()
    driver.send(OpenQueue(queue="q", durable=True))
    consume(driver, 4)
    driver.send(LimitShare(share=1, slots=2, session=4))
    consume(driver, 5, share=1, share_slots=2)
    publish(driver, *range(1, 6))
    assert held_in(driver) == 2
    driver.send(LimitShare(share=1, slots=3, session=4))
    assert held_in(driver) == 3


def test_a_deleted_pool_takes_the_bindings_of_others_along() -> None:
    driver = Driver()
    driver.send(DeclarePool(queue="models", changes={}))
    driver.send(OpenExchange(exchange=Exchange("mine", Kind.FANOUT)))
    topology = driver.core.book.namespaces["default"].topology
    to_pool = Binding("mine", next(iter(exchanges_of("models"))), is_to_exchange=True)
    driver.send(Bind(binding=to_pool))
    assert list(topology.from_source("mine")) == [to_pool]
    driver.send(DeletePool(queue="models"))
    assert not list(topology.from_source("mine"))
    assert refusal_of(driver, DeletePool(queue="models")).code is Code.UNKNOWN_POOL
