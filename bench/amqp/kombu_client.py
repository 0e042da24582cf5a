"""kombu over py-amqp, as Celery uses it: each publish waits for its confirm."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from kombu import Connection, Consumer, Producer, Queue

_BODY = "x" * 100
_PREFETCH = 200


def confirmed(url: str, queue: str, number: int) -> float:
    with Connection(url, transport_options={"confirm_publish": True}) as connection:
        target = Queue(queue, durable=True)(connection.channel())
        target.declare()
        producer = Producer(connection.channel())
        begin = time.perf_counter()
        for _ in range(number):
            producer.publish(_BODY, routing_key=queue, delivery_mode=2)
        return number / (time.perf_counter() - begin)


def drained(url: str, queue: str, number: int) -> float:
    got = 0

    def on_message(message: Any) -> None:
        nonlocal got
        message.ack()
        got += 1

    with Connection(url) as connection:
        begin = time.perf_counter()
        with Consumer(
            connection,
            [Queue(queue, durable=True)],
            on_message=on_message,
            prefetch_count=_PREFETCH,
        ):
            while got < number:
                connection.drain_events()
        return number / (time.perf_counter() - begin)


def called(url: str, queue: str, number: int) -> float:
    service = Queue(queue, durable=False, auto_delete=True)
    answers: list[Any] = []
    with Connection(url) as serving, Connection(url) as calling:
        replies = Producer(serving.channel())

        def on_call(message: Any) -> None:
            replies.publish(message.payload, routing_key=message.properties["reply_to"])

        with (
            Consumer(serving, [service], on_message=on_call, no_ack=True),
            _draining(serving),
            Consumer(
                calling,
                [Queue("", exclusive=True, durable=False)],
                on_message=answers.append,
                no_ack=True,
            ) as listener,
        ):
            address = listener.queues[0].name
            producer = Producer(calling.channel())
            begin = time.perf_counter()
            for each in range(number):
                producer.publish(_BODY, routing_key=queue, reply_to=address)
                while len(answers) <= each:
                    calling.drain_events()
            return number / (time.perf_counter() - begin)


@contextlib.contextmanager
def _draining(connection: Any) -> Any:
    """Serve a connection in a thread of its own."""
    stop = threading.Event()
    thread = threading.Thread(target=_drain, args=[connection, stop.is_set])
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _drain(connection: Any, is_over: Callable[[], bool]) -> None:
    while not is_over():
        with contextlib.suppress(TimeoutError):
            connection.drain_events(timeout=0.1)
