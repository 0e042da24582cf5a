"""pika, with its blocking connection and with its select loop."""

from __future__ import annotations

import functools
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, NackError, UnroutableError
from pika.exchange_type import ExchangeType

from tests.doors.amqp.harness import PATIENCE_S, Broker

PERSISTENT = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)


@pytest.fixture
def connection(broker: Broker) -> Iterator[pika.BlockingConnection]:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    yield connection
    if connection.is_open:
        connection.close()


@pytest.fixture
def channel(connection: pika.BlockingConnection) -> BlockingChannel:
    return connection.channel()


@pytest.fixture
def queue(channel: BlockingChannel) -> Iterator[str]:
    name = f"pika-{uuid.uuid4().hex}"
    channel.queue_declare(name, durable=True)
    yield name
    channel.connection.channel().queue_delete(name)


def test_publish_get_and_acknowledge(channel: BlockingChannel, queue: str) -> None:
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"hello", PERSISTENT, mandatory=True)
    method, properties, body = channel.basic_get(queue)
    assert (method.redelivered, method.message_count, body) == (False, 0, b"hello")
    assert properties.delivery_mode == 2
    channel.basic_nack(method.delivery_tag)
    method, _, body = channel.basic_get(queue)
    assert (method.redelivered, body) == (True, b"hello")
    channel.basic_ack(method.delivery_tag)
    assert channel.basic_get(queue) == (None, None, None)


def test_a_consumer_that_iterates(channel: BlockingChannel, queue: str) -> None:
    for number in range(20):
        channel.basic_publish("", queue, str(number).encode())
    channel.basic_qos(prefetch_count=3)
    got: list[int] = []
    for method, _, body in channel.consume(queue, inactivity_timeout=PATIENCE_S):
        assert method is not None, f"nothing more after {got}"
        got.append(int(body))
        channel.basic_ack(method.delivery_tag)
        if len(got) == 20:
            break
    assert got == list(range(20))
    assert channel.cancel() == 0


def test_a_consumer_stops_amid_its_prefetch(channel: BlockingChannel, queue: str) -> None:
    for number in range(20):
        channel.basic_publish("", queue, str(number).encode(), PERSISTENT)
    channel.basic_qos(prefetch_count=10)
    for method, _, _ in channel.consume(queue, inactivity_timeout=PATIENCE_S):
        assert method is not None
        channel.basic_ack(method.delivery_tag)
        break
    # What pika has and did not hand out it rejects right behind the cancel.
    channel.cancel()
    deadline = time.monotonic() + PATIENCE_S
    while channel.queue_declare(queue, passive=True).method.message_count != 19:
        assert time.monotonic() < deadline


def test_callbacks(channel: BlockingChannel, queue: str) -> None:
    got = []

    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        got.append((properties.headers, body))
        channel.basic_ack(method.delivery_tag)
        if len(got) == 2:
            channel.stop_consuming()

    headers = {"a": 1, "b": [True, None, {"c": "d"}], "bytes": b"\xff\x00"}
    channel.basic_consume(queue, on_message)
    channel.basic_publish("", queue, b"one", pika.BasicProperties(headers=headers))
    channel.basic_publish("", queue, b"x" * 300_000)
    channel.start_consuming()
    assert got == [(headers, b"one"), (None, b"x" * 300_000)]


@pytest.mark.feature("O3")
def test_an_unroutable_message_comes_back(channel: BlockingChannel) -> None:
    channel.confirm_delivery()
    with pytest.raises(UnroutableError) as error:
        channel.basic_publish("", "nowhere-at-all", b"lost", mandatory=True)
    assert [message.body for message in error.value.messages] == [b"lost"]


def test_a_full_queue_says_no(channel: BlockingChannel) -> None:
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    name = channel.queue_declare("", exclusive=True, arguments=arguments).method.queue
    channel.confirm_delivery()
    channel.basic_publish("", name, b"one")
    with pytest.raises(NackError):
        channel.basic_publish("", name, b"two")


def test_an_error_closes_the_channel_alone(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    with pytest.raises(ChannelClosedByBroker) as error:
        channel.queue_declare("nowhere-at-all", passive=True)
    assert error.value.reply_code == 404
    again = connection.channel()
    with pytest.raises(ChannelClosedByBroker) as error:
        again.exchange_declare("amq.fanout", ExchangeType.direct)
    assert error.value.reply_code == 406
    assert connection.is_open


def test_work_from_another_thread(connection: pika.BlockingConnection, queue: str) -> None:
    """A worker of the tutorial: the connection lives while a thread works, and acknowledges."""
    channel = connection.channel()
    done = []

    def work(tag: int) -> None:
        connection.add_callback_threadsafe(functools.partial(finish, tag))

    def finish(tag: int) -> None:
        channel.basic_ack(tag)
        done.append(tag)
        if len(done) == 5:
            channel.stop_consuming()

    def on_message(_: Any, method: Any, *_rest: Any) -> None:
        threading.Thread(target=work, args=[method.delivery_tag]).start()

    for _ in range(5):
        channel.basic_publish("", queue, b"work")
    channel.basic_qos(prefetch_count=2)
    channel.basic_consume(queue, on_message)
    channel.start_consuming()
    assert sorted(done) == [1, 2, 3, 4, 5]


def test_a_remote_call(broker: Broker, channel: BlockingChannel, queue: str) -> None:
    """The call of the tutorial, with a reply address instead of a queue."""

    def serve() -> None:
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as server:
            own = server.channel()
            for method, properties, body in own.consume(queue, inactivity_timeout=PATIENCE_S):
                reply = pika.BasicProperties(correlation_id=properties.correlation_id)
                own.basic_publish("", properties.reply_to, body.upper(), reply)
                own.basic_ack(method.delivery_tag)
                return

    thread = threading.Thread(target=serve)
    thread.start()
    replies = channel.consume("amq.rabbitmq.reply-to", auto_ack=True, inactivity_timeout=PATIENCE_S)
    # The consumer exists once the iterator was asked; nothing may be published before.
    asked = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="1")
    channel.connection.call_later(0, lambda: channel.basic_publish("", queue, b"hello", asked))
    _, properties, body = next(replies)
    channel.cancel()
    thread.join()
    assert (properties.correlation_id, body) == ("1", b"HELLO")


def test_heartbeats_keep_a_quiet_connection(broker: Broker) -> None:
    parameters = pika.URLParameters(f"{broker.url}?heartbeat=1")
    with pika.BlockingConnection(parameters) as connection:
        # Twice what either side waits for a sign of life.
        connection.sleep(3)
        name = connection.channel().queue_declare("", exclusive=True).method.queue
        assert name.startswith("amq.gen-")


def test_a_client_without_a_heartbeat_is_given_up(broker: Broker) -> None:
    parameters = pika.URLParameters(f"{broker.url}?heartbeat=1")
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    name = f"silent-{uuid.uuid4().hex}"
    channel.queue_declare(name)
    channel.basic_publish("", name, b"held")
    assert channel.basic_get(name)[2] == b"held"
    # The loop of this connection does not run any more; another one finds the message again.
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as other:
        own = other.channel()
        deadline = time.monotonic() + PATIENCE_S
        while (found := own.basic_get(name))[0] is None and time.monotonic() < deadline:
            other.sleep(0.05)
        assert found[0] is not None
        assert (found[0].redelivered, found[2]) == (True, b"held")
        own.queue_delete(name)
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connection.process_data_events(PATIENCE_S)


class Walk:
    """An asynchronous program: each step is taken when the one before was answered."""

    def __init__(self, broker: Broker) -> None:
        self.steps: list[str] = []
        self._queue = f"select-{uuid.uuid4().hex}"
        self._connection = pika.SelectConnection(
            pika.URLParameters(broker.url),
            on_open_callback=self._on_open,
            on_open_error_callback=lambda _, error: self._end(repr(error)),
            on_close_callback=lambda connection, _: connection.ioloop.stop(),
        )
        self._connection.ioloop.call_later(PATIENCE_S, lambda: self._end("too late"))

    def run(self) -> list[str]:
        self._connection.ioloop.start()
        self._connection.ioloop.close()
        return self.steps

    def _on_open(self, connection: Any) -> None:
        self.steps.append("open")
        connection.channel(on_open_callback=self._on_channel)

    def _on_channel(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_return_callback(
            lambda *args: self.steps.append(f"return {args[1].reply_code}")
        )
        channel.add_on_cancel_callback(lambda _: self._end("cancelled"))
        channel.confirm_delivery(self._on_confirm)
        channel.exchange_declare(f"{self._queue}-x", ExchangeType.topic, callback=self._on_exchange)

    def _on_exchange(self, _: Any) -> None:
        self._channel.queue_declare(self._queue, callback=self._on_queue)

    def _on_queue(self, _: Any) -> None:
        self._channel.queue_bind(
            self._queue, f"{self._queue}-x", "a.#", callback=lambda _: self._publish()
        )

    def _publish(self) -> None:
        exchange = f"{self._queue}-x"
        self._channel.basic_publish(exchange, "b", b"lost", mandatory=True)
        self._channel.basic_publish(exchange, "a.b", b"found", mandatory=True)

    def _on_confirm(self, frame: Any) -> None:
        number = frame.method.delivery_tag
        self.steps.append(f"confirm {number}")
        if number == 2:
            self._channel.basic_consume(self._queue, self._on_message)

    def _on_message(self, channel: Any, method: Any, _: Any, body: bytes) -> None:
        self.steps.append(body.decode())
        channel.basic_ack(method.delivery_tag)
        channel.exchange_delete(f"{self._queue}-x")
        channel.queue_delete(self._queue)

    def _end(self, why: str) -> None:
        self.steps.append(why)
        self._connection.close()


def test_the_select_loop(broker: Broker) -> None:
    steps = Walk(broker).run()
    # The two confirms may come as one.
    assert [step for step in steps if step != "confirm 1"] == [
        "open",
        "return 312",
        "confirm 2",
        "found",
        "cancelled",
    ]
