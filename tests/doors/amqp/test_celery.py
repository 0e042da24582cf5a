"""A Celery application with workers of its own, as processes: nothing but its address changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.peers.processes import ROOT, stop_tree
from tests.doors.amqp.harness import PATIENCE_S, Broker

APP = "tests.doors.amqp.celery_app"

#: A program that uses the application: the client's end of Celery keeps threads and globals.
CLIENT = """
import datetime as dt, json, sys, time
from celery import chain, chord, group
from tests.doors.amqp.celery_app import add, app, chords, fails, flaky, square, total

PATIENCE_S = float(sys.argv[1])
"""


class Application:
    """A worker for each of the two applications of the module, and clients that use them."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        results = folder / "results"
        results.mkdir()
        self._environment = {
            **os.environ,
            "TEST_CELERY_BROKER": broker.url,
            "TEST_CELERY_RESULTS": str(results),
        }
        self._workers = [self._start(name, folder) for name in ("app", "chords")]

    def _start(self, name: str, folder: Path) -> subprocess.Popen[bytes]:
        command = ["-m", "celery", "--app", f"{APP}:{name}", "worker", "--pool", "threads"]
        options = ["--concurrency", "2", "--hostname", f"{name}@here", "--loglevel", "INFO"]
        with (folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, *command, *options],
                cwd=ROOT,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def run(self, program: str) -> object:
        """Run a client, and return what it prints as JSON."""
        done = subprocess.run(
            [sys.executable, "-c", CLIENT + program, str(PATIENCE_S)],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=5 * PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def stop(self) -> None:
        for worker in self._workers:
            stop_tree(worker)


@pytest.fixture(scope="module", params=["ours", "rabbitmq"])
def application(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Application]:
    broker: Broker = request.getfixturevalue(request.param)
    application = Application(broker, tmp_path_factory.mktemp("celery"))
    yield application
    application.stop()


def test_results_over_rpc(application: Application) -> None:
    assert application.run("""
results = group(add.s(n, n) for n in range(10)).apply_async()
print(json.dumps(results.get(timeout=PATIENCE_S)))
""") == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]


def test_a_chain_a_failure_and_retries(application: Application) -> None:
    assert application.run("""
told = [chain(add.s(1, 2), add.s(3), add.s(4)).apply_async().get(timeout=PATIENCE_S)]
told.append(flaky.delay("x").get(timeout=PATIENCE_S))
try:
    fails.delay().get(timeout=PATIENCE_S)
except ValueError as error:
    told.append(str(error))
print(json.dumps(told))
""") == [10, 2, "on purpose"]


def test_a_task_waits_for_its_time(application: Application) -> None:
    waited_s = application.run("""
begin = time.time()
eta = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1)
assert add.apply_async((1, 1), eta=eta).get(timeout=PATIENCE_S) == 2
print(json.dumps(time.time() - begin))
""")
    assert isinstance(waited_s, float)
    assert waited_s >= 1


def test_a_chord(application: Application) -> None:
    assert (
        application.run("""
result = chord((square.s(n) for n in range(6)), total.s()).apply_async()
print(json.dumps(result.get(timeout=PATIENCE_S)))
""")
        == 55
    )


def test_workers_are_inspected(application: Application) -> None:
    told = application.run("""
found = None
deadline = time.time() + PATIENCE_S
while not found and time.time() < deadline:
    found = app.control.inspect(["app@here"], timeout=1, limit=1).ping()
tasks = app.control.inspect(["app@here"], timeout=PATIENCE_S, limit=1).registered()
print(json.dumps([found, sorted(tasks["app@here"])]))
""")
    assert told == [
        {"app@here": {"ok": "pong"}},
        [f"{APP}.{name}" for name in ("add", "fails", "flaky", "square", "total")],
    ]
