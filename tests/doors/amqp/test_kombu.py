"""kombu: what Celery stands on, used by itself."""

from __future__ import annotations

import contextlib
import queue
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from amqp.exceptions import MessageNacked
from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.mixins import ConsumerProducerMixin
from kombu.pidbox import Mailbox

from tests.doors.amqp.harness import PATIENCE_S, Broker


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    with Connection(broker.url) as connection:
        yield connection


def drain(connection: Connection, got: list[Any], number: int) -> None:
    while len(got) < number:
        connection.drain_events(timeout=PATIENCE_S)


def test_a_producer_and_a_consumer(connection: Connection) -> None:
    name = uuid.uuid4().hex
    exchange = Exchange(f"kombu-{name}", type="direct", durable=True)
    queues = [
        Queue(f"kombu-{name}-{key}", exchange, routing_key=key, max_priority=10)
        for key in ("video", "sound")
    ]
    producer = connection.Producer(serializer="json")
    for key in ("video", "sound", "video"):
        producer.publish(
            {"name": key, "size": [1, 2.5, None]},
            exchange=exchange,
            routing_key=key,
            declare=queues,
            compression="zlib",
            headers={"key": key},
        )
    got: list[Any] = []

    def on_message(body: Any, message: Any) -> None:
        assert message.headers["key"] == body["name"]
        got.append((message.delivery_info["routing_key"], body))
        message.ack()

    with connection.Consumer(queues, callbacks=[on_message]):
        drain(connection, got, 3)
    assert sorted(key for key, _ in got) == ["sound", "video", "video"]
    assert all(body == {"name": key, "size": [1, 2.5, None]} for key, body in got)
    for each in queues:
        each(connection.default_channel).delete()
    exchange(connection.default_channel).delete()


def test_a_simple_queue(connection: Connection) -> None:
    name = f"simple-{uuid.uuid4().hex}"
    simple = connection.SimpleQueue(name)
    for number in range(3):
        simple.put({"n": number})
    got = []
    for _ in range(3):
        message = simple.get(timeout=PATIENCE_S)
        got.append(message.payload["n"])
        message.ack()
    assert got == [0, 1, 2]
    with pytest.raises(queue.Empty):
        simple.get(block=False)
    simple.close()
    Queue(name)(connection.default_channel).delete()


def test_requeue_and_reject(connection: Connection) -> None:
    channel = connection.channel()
    target = Queue(f"again-{uuid.uuid4().hex}", durable=False)(channel)
    target.declare()
    Producer(channel).publish("hello", routing_key=target.name)
    first = target.get()
    assert first is not None
    assert not first.delivery_info["redelivered"]
    first.requeue()
    second = target.get()
    assert second is not None
    assert second.delivery_info["redelivered"]
    second.reject()
    assert target.get() is None
    target.delete()


def test_confirmed_publishes(broker: Broker) -> None:
    options = {"confirm_publish": True}
    with Connection(broker.url, transport_options=options) as connection:
        channel = connection.channel()
        arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
        name = f"full-{uuid.uuid4().hex}"
        full = Queue(name, exclusive=True, durable=False, queue_arguments=arguments)
        target = full(channel)
        target.declare()
        producer = Producer(channel)
        producer.publish("one", routing_key=target.name)
        with pytest.raises(MessageNacked):
            producer.publish("two", routing_key=target.name)


class Server(ConsumerProducerMixin):  # type: ignore[misc]
    """The RPC server of kombu's examples."""

    def __init__(self, connection: Connection, target: Queue) -> None:
        self.connection = connection
        self._target = target
        self.ready = threading.Event()

    def get_consumers(self, consumer: Any, _channel: Any) -> list[Consumer]:
        return [consumer(queues=[self._target], on_message=self._on_request, prefetch_count=1)]

    def on_consume_ready(self, *_args: Any, **_kwargs: Any) -> None:
        self.ready.set()

    def _on_request(self, message: Any) -> None:
        self.producer.publish(
            {"result": message.payload["n"] ** 2},
            exchange="",
            routing_key=message.properties["reply_to"],
            correlation_id=message.properties["correlation_id"],
            serializer="json",
        )
        message.ack()


def test_a_remote_call(broker: Broker, connection: Connection) -> None:
    target = Queue(f"rpc-{uuid.uuid4().hex}", durable=False, auto_delete=True)
    with Connection(broker.url) as serving:
        server = Server(serving, target)
        thread = threading.Thread(target=server.run)
        thread.start()
        assert server.ready.wait(PATIENCE_S)
        answers: list[Any] = []
        callback = Queue(uuid.uuid4().hex, exclusive=True, auto_delete=True, durable=False)
        with (
            Producer(connection) as producer,
            Consumer(connection, queues=[callback], on_message=answers.append, no_ack=True),
        ):
            producer.publish(
                {"n": 7},
                exchange="",
                routing_key=target.name,
                reply_to=callback.name,
                correlation_id="seven",
            )
            drain(connection, answers, 1)
        server.should_stop = True
        thread.join()
    assert answers[0].properties["correlation_id"] == "seven"
    assert answers[0].payload == {"result": 49}


def test_a_mailbox(broker: Broker, connection: Connection) -> None:
    """What Celery inspects and controls its workers with."""
    box = Mailbox(f"box-{uuid.uuid4().hex}", type="fanout")(connection)
    with Connection(broker.url) as other:
        handlers = {"double": lambda _state, n: {"ok": 2 * n}}
        node = box.Node("node", handlers=handlers, channel=other.channel())
        consumer = node.listen()
        stop = threading.Event()

        def serve() -> None:
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    other.drain_events(timeout=0.1)

        thread = threading.Thread(target=serve)
        thread.start()
        answers = box.call(["node"], "double", {"n": 4}, timeout=PATIENCE_S)
        stop.set()
        thread.join()
        consumer.cancel()
    assert answers == [{"node": {"ok": 8}}]
