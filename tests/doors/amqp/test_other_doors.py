"""A queue over AMQP is a queue of the broker: other doors see it, fill it and empty it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.doors.amqp.house import JACKALOPE, PATIENCE_S, Serving

QUEUE = "letters"


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    serving = Serving(tmp_path_factory.mktemp("doors"))
    yield serving
    serving.stop()


@pytest.fixture
def channel(serving: Serving) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(serving.broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(QUEUE, durable=True)
        yield channel
        channel.queue_delete(QUEUE)


def cli(serving: Serving, *words: str) -> Any:
    """Run the command line, and return its answer."""
    done = subprocess.run(
        [JACKALOPE, "--broker", serving.address, "--format", "json", *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_command_line_sees_messages(serving: Serving, channel: BlockingChannel) -> None:
    properties = pika.BasicProperties(type="greeting", delivery_mode=2)
    channel.basic_publish("", QUEUE, b"hello", properties)
    (task,) = cli(serving, "list", "--queue", QUEUE)
    assert (task["name"], task["state"], task["by"]) == ("greeting", "ready", "guest")
    assert cli(serving, "queues", "show", QUEUE)["counts"] == {"ready": 1}
    # No worker of any door is there.
    causes = cli(serving, "explain", task["id"])["causes"]
    assert [cause["why"] for cause in causes] == ["no_worker"]


def test_a_paused_queue_gives_nothing_out(serving: Serving, channel: BlockingChannel) -> None:
    channel.basic_publish("", QUEUE, b"hello")
    cli(serving, "queues", "pause", QUEUE)
    assert channel.basic_get(QUEUE)[0] is None
    cli(serving, "queues", "resume", QUEUE)
    assert channel.basic_get(QUEUE, auto_ack=True)[2] == b"hello"


def test_a_task_is_consumed_over_amqp(serving: Serving, channel: BlockingChannel) -> None:
    cli(serving, "submit", "--queue", QUEUE, "--name", "app.resize", "--payload", "cat.png")
    method, properties, body = channel.basic_get(QUEUE)
    assert (properties.type, body, method.redelivered) == ("app.resize", b"cat.png", False)
    (task,) = cli(serving, "list", "--queue", QUEUE)
    assert task["id"].replace("-", "") == properties.message_id
    assert task["state"] in ("assigned", "running")
    channel.basic_ack(method.delivery_tag)
    assert channel.queue_declare(QUEUE, passive=True).method.message_count == 0
