"""kiwipy's own communicator, over our door and over RabbitMQ: tasks, calls and broadcasts."""

from __future__ import annotations

from collections.abc import Iterator

import kiwipy
import pytest

from tests.doors.amqp.harness import Broker
from tests.kiwipy.harness import Ear, Inbox, Switch, result_of


@pytest.fixture
def switch(broker: Broker) -> Iterator[Switch]:
    switch = Switch(broker.url)
    yield switch
    switch.close()


def test_a_task_and_its_result(switch: Switch) -> None:
    sender, getter = switch.connect(), switch.connect()
    inbox = Inbox(lambda task: {"doubled": task["n"] * 2})
    getter.add_task_subscriber(inbox)
    assert result_of(sender.task_send({"n": 21})) == {"doubled": 42}
    assert inbox.next() == {"n": 21}


def test_a_task_that_fails(switch: Switch) -> None:
    sender, getter = switch.connect(), switch.connect()

    def fail(_: object) -> None:
        raise ValueError("on purpose")

    getter.add_task_subscriber(Inbox(fail))
    with pytest.raises(kiwipy.RemoteException, match="on purpose"):
        result_of(sender.task_send("hello"))


def test_a_rejected_task_goes_to_somebody_else(switch: Switch) -> None:
    sender, first, second = switch.connect(), switch.connect(), switch.connect()

    def reject(_: object) -> None:
        raise kiwipy.TaskRejected("not mine")

    first.add_task_subscriber(Inbox(reject))
    second.add_task_subscriber(Inbox(lambda _: "mine"))
    assert result_of(sender.task_send("hello")) == "mine"


def test_a_task_waits_for_a_subscriber(switch: Switch) -> None:
    sender = switch.connect()
    sender.task_send("later", no_reply=True)
    inbox = Inbox()
    switch.connect().add_task_subscriber(inbox)
    assert inbox.next() == "later"


def test_a_remote_call(switch: Switch) -> None:
    caller, callee = switch.connect(), switch.connect()
    callee.add_rpc_subscriber(lambda _, message: message + 1, "clerk")
    assert result_of(caller.rpc_send("clerk", 1)) == 2
    with pytest.raises(kiwipy.UnroutableError):
        result_of(caller.rpc_send("nobody", 1))


def test_broadcasts(switch: Switch) -> None:
    speaker, listener = switch.connect(), switch.connect()
    everything, filtered = Ear(), Ear()
    listener.add_broadcast_subscriber(everything)
    listener.add_broadcast_subscriber(kiwipy.BroadcastFilter(filtered, subject="purge.*"))
    speaker.broadcast_send("one", sender="me", subject="hello")
    speaker.broadcast_send("two", sender="me", subject="purge.all")
    assert everything.next()[:3] == ("one", "me", "hello")
    assert everything.next()[:3] == ("two", "me", "purge.all")
    assert filtered.next()[:3] == ("two", "me", "purge.all")
    assert filtered.is_empty()


def test_a_queue_of_its_own(switch: Switch) -> None:
    sender, getter = switch.connect(), switch.connect()
    name = f"own-{switch.name}"
    getter.task_queue(name).add_task_subscriber(Inbox(lambda number: number + 1))
    assert result_of(sender.task_queue(name).task_send(1)) == 2
