"""What is left of queues and messages when a broker is killed, as RabbitMQ's clients see it."""

from __future__ import annotations

import contextlib
from pathlib import Path

import httpx
import pika
import pytest
from pika.exceptions import AMQPError, ChannelClosedByBroker

from tests.doors.amqp.harness import Broker, Serving

PERSISTENT = pika.BasicProperties(
    delivery_mode=2, headers={"bytes": b"\xff", "n": 1}, message_id="m"
)


def fill(broker: Broker) -> None:
    """Declare and publish what shall stay, and what shall not; then wait until it is safe."""
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("kept-x", "topic", durable=True)
        channel.exchange_declare("lost-x", "topic")
        channel.queue_declare("kept", durable=True, arguments={"x-max-length": 9})
        channel.queue_declare("lost")
        channel.queue_bind("kept", "kept-x", "a.#")
        channel.basic_publish("kept-x", "a.b", b"persistent", PERSISTENT)
        channel.basic_publish("kept-x", "a.b", b"transient", pika.BasicProperties(delivery_mode=1))
        channel.basic_publish("", "lost", b"persistent", PERSISTENT)
        # One that somebody held when the power went.
        channel.basic_publish("kept-x", "a.b", b"held", PERSISTENT)
    policy = {"pattern": "^kept$", "definition": {"max-length": 8}}
    told = httpx.put(
        f"{broker.management_url}/policies/%2F/p", json=policy, auth=("guest", "guest")
    )
    assert told.status_code == 201


def is_there(connection: pika.BlockingConnection, kind: str, name: str) -> bool:
    channel = connection.channel()
    try:
        if kind == "queue":
            channel.queue_declare(name, passive=True)
        else:
            channel.exchange_declare(name, passive=True)
    except ChannelClosedByBroker as error:
        return bool(error.reply_code != 404)
    return True


@pytest.mark.feature("O27")
def test_what_is_durable_survives_a_kill(tmp_path: Path) -> None:
    first = Serving(tmp_path)
    fill(first.broker)
    holder = pika.BlockingConnection(pika.URLParameters(first.broker.url))
    holding = holder.channel()
    assert holding.basic_get("kept")[2] == b"persistent"
    first.kill()
    second = Serving(tmp_path)
    try:
        with pika.BlockingConnection(pika.URLParameters(second.broker.url)) as connection:
            channel = connection.channel()
            got = [channel.basic_get("kept", auto_ack=True) for _ in range(3)]
            assert [body for _, _, body in got] == [b"persistent", b"held", None]
            assert got[0][1].headers == {"bytes": b"\xff", "n": 1}
            assert (got[0][1].message_id, got[0][0].routing_key) == ("m", "a.b")
            # Its bindings, its arguments and its policy are there as well.
            channel.confirm_delivery()
            channel.basic_publish("kept-x", "a", b"again", mandatory=True)
            channel.queue_declare("kept", durable=True, arguments={"x-max-length": 9})
            assert not is_there(connection, "queue", "lost")
            assert not is_there(connection, "exchange", "lost-x")
        policies = httpx.get(
            f"{second.broker.management_url}/policies", auth=("guest", "guest")
        ).json()
        assert [each["name"] for each in policies] == ["p"]
    finally:
        second.stop()
        with contextlib.suppress(AMQPError):
            holder.close()
