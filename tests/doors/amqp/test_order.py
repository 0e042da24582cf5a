"""Methods of one channel are acted on in their order, however fast they come.

RabbitMQ drops the answer to a cancel if the channel is closed right behind it; here each method is
answered. What both answer is in the transcript `pipelined`.
"""

from __future__ import annotations

import os
from itertools import permutations

import pytest
from pamqp import base, commands, frame

from tests.doors.amqp.harness import Broker
from tests.doors.amqp.wire import Heard, Wire

CLOSE = commands.Channel.Close(200, "", 0, 0)
ANSWERS: dict[str, base.Frame] = {
    "cancel": commands.Basic.Cancel(consumer_tag="c"),
    "ack": commands.Basic.Ack(delivery_tag=1),
    "nack": commands.Basic.Nack(delivery_tag=2, requeue=False),
}


def opened(broker: Broker) -> Wire:
    wire = Wire(broker.port)
    assert wire.open().name == "connection.open-ok"
    wire.send(1, commands.Channel.Open())
    assert wire.hear(1).name == "channel.open-ok"
    return wire


def send(wire: Wire, *methods: base.Frame) -> None:
    wire.send_bytes(b"".join(frame.marshal(method, 1) for method in methods))


def hear(wire: Wire, count: int) -> list[Heard]:
    return [wire.hear(1) for _ in range(count)]


def names(heard: list[Heard]) -> list[str]:
    return [each.name for each in heard]


@pytest.mark.parametrize("order", list(permutations(ANSWERS)))
def test_a_close_behind_a_cancel(order: tuple[str, ...], ours: Broker) -> None:
    wire = opened(ours)
    send(wire, commands.Queue.Declare(queue="order", auto_delete=True))
    hear(wire, 1)
    for text in (b"one", b"two"):
        message = commands.Basic.Publish(routing_key="order")
        wire.publish(1, message, commands.Basic.Properties(), text)
    send(wire, commands.Basic.Consume(queue="order", consumer_tag="c"))
    assert names(hear(wire, 3)) == ["basic.consume-ok", "basic.deliver", "basic.deliver"]
    send(wire, *(ANSWERS[name] for name in order), CLOSE)
    assert names(hear(wire, 2)) == ["basic.cancel-ok", "channel.close-ok"]
    wire.close()


def test_everything_is_answered_before_the_connection_ends(ours: Broker) -> None:
    wire = opened(ours)
    queue = commands.Queue.Declare(queue="order-of-all", exclusive=True)
    consume = commands.Basic.Consume(queue="order-of-all", consumer_tag="c")
    methods = (queue, consume, queue, ANSWERS["cancel"], queue, CLOSE)
    close = frame.marshal(commands.Connection.Close(200, "", 0, 0), 0)
    wire.send_bytes(b"".join(frame.marshal(method, 1) for method in methods) + close)
    assert names(hear(wire, 6)) == [
        "queue.declare-ok",
        "basic.consume-ok",
        "queue.declare-ok",
        "basic.cancel-ok",
        "queue.declare-ok",
        "channel.close-ok",
    ]
    assert wire.hear(0).name == "connection.close-ok"
    wire.close()


def test_large_messages_come_before_what_is_behind_them(ours: Broker) -> None:
    """Their bodies are stored first, and a commit or a declaration must not overtake that."""
    wire = opened(ours)
    declare = commands.Queue.Declare(queue="order-large", durable=True)
    message = commands.Basic.Publish(routing_key="order-large")
    persistent = commands.Basic.Properties(delivery_mode=2)
    large = os.urandom(1 << 16) * 4
    send(wire, declare)
    hear(wire, 1)
    wire.publish_large(1, message, persistent, large)
    send(wire, declare)
    (told,) = hear(wire, 1)
    assert isinstance(told.method, commands.Queue.DeclareOk)
    assert told.method.message_count == 1
    send(wire, commands.Tx.Select())
    hear(wire, 1)
    wire.publish_large(1, message, persistent, large)
    send(wire, commands.Tx.Commit(), declare, *[commands.Basic.Get(queue="order-large")] * 3)
    heard = hear(wire, 5)
    wanted = ["tx.commit-ok", "queue.declare-ok", "basic.get-ok", "basic.get-ok", "basic.get-empty"]
    assert names(heard) == wanted
    assert isinstance(heard[1].method, commands.Queue.DeclareOk)
    assert heard[1].method.message_count == 2
    assert [each.content.body == large for each in heard if each.content] == [True, True]
    send(wire, commands.Queue.Delete(queue="order-large"))
    hear(wire, 1)
    wire.close()
