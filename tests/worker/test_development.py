"""What a developer sees of a worker: its log, its last progress, and its new code."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from jackalope import Jackalope, TaskFailed
from jackalope.embedded import EmbeddedBroker
from jackalope.worker.outcome_log import LINES_PER_SECOND_MAX

WAIT_S = 60.0

CODE = """
from jackalope import Jackalope, current
app = Jackalope({address!r})

@app.task(retries=0)
def work(fail: bool = False) -> str:
    if fail:
        raise ValueError("as told")
    return {answer!r}

@app.task
async def climb() -> str:
    for percent in range(101):
        current().progress(percent, f"at {{percent}}")
    return "top"

@app.task(isolation="thread")
def climb_thread() -> str:
    for percent in range(101):
        current().progress(percent, f"at {{percent}}")
    return "top"

@app.task(isolation="process")
def climb_process() -> str:
    for percent in range(101):
        current().progress(percent, f"at {{percent}}")
    return "top"
"""


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    broker = EmbeddedBroker()
    yield broker
    broker.stop()


class Worker:
    """A worker as a user starts it, with its log in a file."""

    def __init__(self, folder: Path, broker: EmbeddedBroker) -> None:
        self.folder, self.broker = folder, broker
        self.write("first")
        self.log = folder / "log"

    def write(self, answer: str) -> None:
        code = CODE.format(address=self.broker.address, answer=answer)
        (self.folder / "shop.py").write_text(code)

    def start(self, *options: str) -> None:
        command = [sys.executable, "-m", "jackalope", "worker", "shop:app", *options]
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [*command, "--log-format", "json"], cwd=self.folder, stdout=out, stderr=out
            )

    def lines(self, message: str) -> list[dict[str, object]]:
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line[:1] == "{"]
        return [line for line in lines if line["message"] == message]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_S)


@pytest.fixture
def worker(tmp_path: Path, broker: EmbeddedBroker) -> Iterator[Worker]:
    worker = Worker(tmp_path, broker)
    yield worker
    if worker.process.poll() is None:
        worker.process.kill()
        worker.process.wait()


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)


def test_the_log_names_what_is_served_each_success_and_each_failure(worker: Worker) -> None:
    worker.start()
    app = Jackalope(worker.broker.address)
    with app.sync as sync:
        good = sync(app.submit("default", name="shop.work", content="msgpack"))
        assert sync(good.result(timeout=WAIT_S)) == "first"
        bad = sync(app.submit("default", b"\x92\x91\xc3\x80", name="shop.work", retries=0))
        with pytest.raises(TaskFailed):
            sync(bad.result(timeout=WAIT_S))
    assert worker.stop() == 0
    (start,) = worker.lines("worker starts")
    assert start["tasks"] == ["shop.climb", "shop.climb_process", "shop.climb_thread", "shop.work"]
    (success,) = worker.lines("task succeeded")
    assert (success["level"], success["name"]) == ("info", "shop.work")
    assert float(str(success["took_ms"])) >= 0
    (failure,) = worker.lines("task failed")
    assert (failure["error"], failure["why"]) == ("ValueError", "as told")
    assert 'raise ValueError("as told")' in str(failure["exception"])


def test_many_successes_are_counted_in_one_line() -> None:
    app = Jackalope.embedded()

    @app.task
    async def work() -> None: ...

    with capture_logs() as lines:
        app.work()
        handles = app.sync(work.submit_many([()] * 500))
        for handle in handles:
            app.sync(handle.result(timeout=WAIT_S))

        def count() -> int:
            told = [line for line in list(lines) if "succeeded" in line["event"]]
            return sum(int(line.get("count", 1)) for line in told)

        until(lambda: count() == 500)
        app.sync.close()
        app.stop()
    shown = [line for line in lines if line["event"] == "task succeeded"]
    assert LINES_PER_SECOND_MAX <= len(shown) < 250


@pytest.mark.parametrize("name", ["climb", "climb_thread", "climb_process"])
def test_the_last_progress_arrives_before_the_result(worker: Worker, name: str) -> None:
    worker.start()

    async def follow() -> None:
        async with Jackalope(worker.broker.address) as app:
            for _ in range(5):
                task = f"shop.{name}"
                handle = await app.submit("default", name=task, content="msgpack", delay=0.3)
                steps = [step async for step in handle.progress()]
                assert (steps[-1].percent, steps[-1].note) == (100.0, "at 100")
                assert await handle.result(timeout=WAIT_S) == "top"

    asyncio.run(asyncio.wait_for(follow(), WAIT_S))
    assert worker.stop() == 0


def test_a_worker_starts_again_with_new_code(worker: Worker) -> None:
    worker.start("--reload")
    app = Jackalope(worker.broker.address)
    with app.sync as sync:

        def answer() -> object:
            handle = sync(app.submit("default", name="shop.work", content="msgpack"))
            return sync(handle.result(timeout=WAIT_S))

        assert answer() == "first"
        worker.write("second")
        until(lambda: answer() == "second")
        (worker.folder / "shop.py").write_text("this is no Python")
        until(lambda: worker.lines("the worker ended; waiting for a change"))
        worker.write("third")
        assert answer() == "third"
    assert len(worker.lines("code changed; the worker starts again")) == 3
    pids = {int(str(pid)) for line in worker.lines("worker starts") if (pid := line.get("pid"))}
    assert worker.stop() == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids if pid != os.getpid())
