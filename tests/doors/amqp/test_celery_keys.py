"""Celery with keys that do not administer: what the how-to says is enough."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pika

from bench.peers.processes import ROOT, stop_tree
from jackalope.broker.access import hash_of, id_of, new_token
from tests.doors.amqp.harness import PATIENCE_S, Serving

WORKER = """
from tests.doors.amqp.celery_app import chords
chords.conf.worker_enable_remote_control = False
chords.worker_main([
    "worker", "--pool", "threads", "--concurrency", "1", "--loglevel", "INFO",
    "--without-gossip", "--without-mingle", "--without-heartbeat",
])
"""

CLIENT = """
import sys
from tests.doors.amqp.celery_app import total
print(total.delay([1, 2]).get(timeout=float(sys.argv[1])))
"""

REPLIES = """
from tests.doors.amqp.celery_app import add
add.delay(1, 2)
"""


def test_a_worker_and_a_client_without_admin(tmp_path: Path) -> None:
    tokens = {name: new_token() for name in ("admin", "worker", "client")}
    permissions = {
        "admin": ["admin"],
        "worker": ["work", "submit_tasks"],
        "client": ["submit_tasks"],
    }
    keys = [
        {"id": id_of(t), "hash": hash_of(t), "name": n, "permissions": permissions[n]}
        for n, t in tokens.items()
    ]
    config = tmp_path / "jackalope.yaml"
    config.write_text(json.dumps({"auth": {"keys": keys}}))
    serving = Serving(tmp_path, "--config", str(config))
    port, results = serving.broker.port, tmp_path / "results"
    results.mkdir()

    def environment(name: str) -> dict[str, str]:
        url = f"amqp://any:{tokens[name]}@127.0.0.1:{port}//"
        return {**os.environ, "TEST_CELERY_BROKER": url, "TEST_CELERY_RESULTS": str(results)}

    def ask(program: str, name: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, str(PATIENCE_S)]
        return subprocess.run(
            command, cwd=ROOT, env=environment(name), capture_output=True, text=True, check=False
        )

    _declare(port, tokens["admin"])
    log = (tmp_path / "worker.log").open("wb")
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER],
        cwd=ROOT,
        env=environment("worker"),
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        done = ask(CLIENT, "client")
        assert done.stdout.strip() == "3", done.stderr + (tmp_path / "worker.log").read_text()
        # Results over rpc:// come to a queue that the client names, and so declares.
        assert "ACCESS_REFUSED" in ask(REPLIES, "client").stderr
    finally:
        stop_tree(worker)
        log.close()
        serving.stop()


def _declare(port: int, token: str) -> None:
    """Declare what Celery declares at its start, as an administrator does once."""
    credentials = pika.PlainCredentials("any", token)
    parameters = pika.ConnectionParameters("127.0.0.1", port, "/", credentials)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        for queue in ("celery-chords", "celery-celery_app"):
            channel.exchange_declare(queue, "direct", durable=True)
            channel.queue_declare(queue, durable=True, arguments={"x-max-priority": 10})
            channel.queue_bind(queue, queue, queue)
