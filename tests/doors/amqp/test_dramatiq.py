"""A Dramatiq application: delays, retries, dead letters and results of pipelines."""

from __future__ import annotations

import queue
import time
import uuid
from collections.abc import Iterator
from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.middleware import CurrentMessage

from tests.doors.amqp.harness import PATIENCE_S, Broker


@pytest.fixture
def application(broker: Broker) -> Iterator[RabbitmqBroker]:
    application = RabbitmqBroker(url=broker.url, max_priority=10, confirm_delivery=True)
    application.add_middleware(CurrentMessage())
    yield application
    for name in application.get_declared_queues():
        for each in (name, f"{name}.DQ", f"{name}.XQ"):
            application.channel.queue_delete(each)
    application.close()


def running(application: RabbitmqBroker) -> Any:
    worker = dramatiq.Worker(application, worker_timeout=100, worker_threads=2)
    worker.start()
    return worker


def test_messages_are_worked_off(application: RabbitmqBroker) -> None:
    done: queue.Queue[int] = queue.Queue()
    name = f"dramatiq-{uuid.uuid4().hex}"
    actor = dramatiq.actor(done.put, broker=application, queue_name=name, actor_name="put")
    for number in range(20):
        actor.send(number)
    worker = running(application)
    got = sorted(done.get(timeout=PATIENCE_S) for _ in range(20))
    application.join(name, min_successes=1, timeout=int(PATIENCE_S * 1000))
    worker.stop()
    assert got == list(range(20))


def test_a_delay_and_a_retry(application: RabbitmqBroker) -> None:
    tries: queue.Queue[tuple[int, float]] = queue.Queue()
    name = f"dramatiq-{uuid.uuid4().hex}"

    def attempt() -> None:
        message = CurrentMessage.get_current_message()
        assert message is not None
        tries.put((message.options.get("retries", 0), time.monotonic()))
        if message.options.get("retries", 0) < 1:
            raise ValueError("the first time goes wrong")

    actor = dramatiq.actor(
        attempt, broker=application, queue_name=name, min_backoff=10, max_backoff=20
    )
    worker = running(application)
    begin = time.monotonic()
    actor.send_with_options(delay=500)
    first, second = (tries.get(timeout=PATIENCE_S) for _ in range(2))
    worker.stop()
    assert (first[0], second[0]) == (0, 1)
    assert first[1] - begin >= 0.4


def test_a_message_that_always_fails_is_a_dead_letter(application: RabbitmqBroker) -> None:
    name = f"dramatiq-{uuid.uuid4().hex}"

    def fail() -> None:
        raise ValueError("on purpose")

    actor = dramatiq.actor(fail, broker=application, queue_name=name, max_retries=0)
    worker = running(application)
    actor.send()
    deadline = time.monotonic() + PATIENCE_S
    while application.get_queue_message_counts(name)[2] != 1:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    worker.stop()
