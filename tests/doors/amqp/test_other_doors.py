"""A queue over AMQP is a queue of the broker: other doors see it, fill it and empty it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from jackalope import Jackalope, State, TaskFailed
from tests.doors.amqp.harness import JACKALOPE, PATIENCE_S, Serving

QUEUE = "letters"
ROOT = Path(__file__).parents[3]


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
    headers = {"colour": "red", "raw": b"\xff", "nested": {"a": [1, True]}}
    properties = pika.BasicProperties(
        type="greeting", delivery_mode=2, content_type="text/plain", headers=headers
    )
    channel.basic_publish("", QUEUE, b"hello", properties)
    (task,) = cli(serving, "list", "--queue", QUEUE)
    assert (task["name"], task["state"], task["by"]) == ("greeting", "ready", "guest")
    # Bytes are shown as JSON shows them everywhere here.
    assert task["headers"] == {
        **headers,
        "raw": {"base64": "/w=="},
        "amqp": {
            "exchange": "",
            "routing_key": QUEUE,
            "content_type": "text/plain",
            "type": "greeting",
            "delivery_mode": 2,
        },
    }
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


@pytest.fixture
def app(serving: Serving) -> Iterator[Jackalope]:
    app = Jackalope(serving.address)
    yield app
    app.sync.close()


def test_a_worker_runs_messages(
    serving: Serving, channel: BlockingChannel, app: Jackalope, tmp_path: Path
) -> None:
    """The type of each is the name of a function, its body what that takes."""
    app.sync(app.declare_queue("shouts"))
    headers = {"a": 1, "raw": b"\0\xff"}
    for name, body in (("shout", b"hello"), ("add", b'[[1], {"b": 2}]'), ("describe", b"[[], {}]")):
        properties = pika.BasicProperties(
            type=name, delivery_mode=2, headers=headers, correlation_id="c1", timestamp=7
        )
        channel.basic_publish("", "shouts", body, properties, mandatory=True)
    tasks = {task.name: task for task in app.sync.iterate(app.tasks(queue="shouts"))}
    with (tmp_path / "worker.txt").open("w") as log:
        words = ["--broker", serving.address, "worker", "tests.doors.amqp.letters_app:app"]
        worker = subprocess.Popen([JACKALOPE, *words], cwd=ROOT, stdout=log, stderr=log)
    try:
        shouted = app.handle(tasks["shout"].id, content="bytes")
        assert app.sync(shouted.result(PATIENCE_S)) == b"HELLO"
        added = app.handle(tasks["add"].id, content="json")
        assert app.sync(added.result(PATIENCE_S)) == 3
        described = app.handle(tasks["describe"].id, content="json")
        assert app.sync(described.result(PATIENCE_S)) == {
            "a": 1,
            "raw": "00ff",
            "amqp": {
                "exchange": "",
                "routing_key": "shouts",
                "correlation_id": "c1",
                "type": "describe",
                "delivery_mode": 2,
                "timestamp": 7,
            },
        }
    finally:
        worker.terminate()
        worker.wait(PATIENCE_S)


def test_a_handle_hears_of_the_acknowledgement(channel: BlockingChannel, app: Jackalope) -> None:
    app.sync(app.declare_queue("parcels"))
    headers = {"colour": "red", "size": 3, "nested": {"a": [1, True]}}
    send = partial(app.submit, "parcels", name="pack", headers=headers, priority=200)
    handles = [app.sync(send(body)) for body in (b"small", b"large" * 50_000)]
    for handle, expected in zip(handles, (b"small", b"large" * 50_000), strict=True):
        method, properties, body = channel.basic_get("parcels")
        assert method is not None
        assert (method.exchange, method.routing_key) == ("", "parcels")
        assert (properties.type, properties.message_id) == ("pack", handle.id.hex())
        assert (properties.headers, properties.delivery_mode) == (headers, 2)
        assert (properties.priority, properties.content_type) == (None, None)
        assert body == expected
        assert app.sync(app.find(handle)).state in (State.ASSIGNED, State.RUNNING)
        channel.basic_ack(method.delivery_tag)
        assert app.sync(handle.wait(PATIENCE_S)) is State.SUCCEEDED
    # What is rejected is dead, and its handle says so.
    handle = app.sync(send(b"broken"))
    method, _, _ = channel.basic_get("parcels")
    channel.basic_reject(method.delivery_tag, requeue=False)
    with pytest.raises(TaskFailed, match="rejected"):
        app.sync(handle.result(PATIENCE_S))
