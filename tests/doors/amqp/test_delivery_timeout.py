"""A consumer that does not answer in time loses its channel and what it has, as with RabbitMQ.

RabbitMQ 3.10 has one limit for all queues; ours is an argument of the queue, as in later versions,
a policy, or the timeout of the queue as every door can set it. The core decides, with a clock that
scenarios move: `messaging-delivery-timeout`. Here the limit is short and the clock real.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import httpx
import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from bench.peers import servers
from bench.peers.place import Place
from tests.doors.amqp.harness import PATIENCE_S, Broker
from tests.ports import free_port

LIMIT_MS = 300
TEXT = (
    "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: "
    f"{LIMIT_MS} ms. This timeout value can be configured, see consumers doc guide to learn more"
)


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Return a RabbitMQ whose limit is short."""
    if "rabbitmq-server" in servers.missing():
        pytest.skip("rabbitmq-server is not installed: whether we behave the same is not checked")
    place = Place.new("amqp", tmp_path_factory.mktemp("impatient"), "always", "classic")
    flags = f"-rabbit consumer_timeout {LIMIT_MS} -rabbit channel_tick_interval 1000"
    port = free_port()
    server = servers.start_rabbitmq(place, management_port=port, flags=flags)
    yield Broker("rabbitmq", place.rabbitmq_port, port)
    server.stop()


@pytest.fixture(params=["ours", "impatient"])
def broker(request: pytest.FixtureRequest) -> Broker:
    found: Broker = request.getfixturevalue(request.param)
    return found


def stall(connection: pika.BlockingConnection, queue: str) -> ChannelClosedByBroker:
    """Take a message, and return how the channel ends that does not answer it."""
    channel = connection.channel(1)
    channel.basic_qos(prefetch_count=1)
    delivered = channel.consume(queue, inactivity_timeout=PATIENCE_S)
    assert next(delivered)[0] is not None
    with pytest.raises(ChannelClosedByBroker) as closed:
        next(delivered)
    return closed.value


def test_a_channel_ends_and_what_it_had_goes_to_another(broker: Broker) -> None:
    queue, dead = (f"slow-{uuid.uuid4().hex}" for _ in range(2))
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel(2)
    channel.queue_declare(dead)
    arguments = {
        "x-consumer-timeout": LIMIT_MS,
        "x-queue-type": "quorum",
        "x-delivery-limit": 1,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead,
    }
    channel.queue_declare(queue, durable=True, arguments=arguments)
    channel.basic_publish("", queue, b"hard")
    for _ in range(2):
        closed = stall(connection, queue)
        assert (closed.reply_code, closed.reply_text) == (406, TEXT)
    for method, properties, body in channel.consume(dead, inactivity_timeout=PATIENCE_S):
        assert method is not None, "it was not given up"
        assert (properties.headers["x-first-death-reason"], body) == ("delivery_limit", b"hard")
        channel.basic_ack(method.delivery_tag)
        break
    channel.cancel()
    channel.queue_delete(queue)
    connection.close()


def test_a_policy_sets_the_limit(ours: Broker) -> None:
    queue = f"slow-{uuid.uuid4().hex}"
    policy = {"pattern": f"^{queue}$", "definition": {"consumer-timeout": LIMIT_MS}}
    url = f"{ours.management_url}/policies/%2F/{queue}"
    assert httpx.put(url, json=policy, auth=("guest", "guest")).status_code == 201
    connection = pika.BlockingConnection(pika.URLParameters(ours.url))
    channel = connection.channel(2)
    channel.queue_declare(queue)
    channel.basic_publish("", queue, b"hard")
    assert stall(connection, queue).reply_text == TEXT
    method, _, _ = channel.basic_get(queue, auto_ack=True)
    assert method.redelivered
    channel.queue_delete(queue)
    connection.close()
