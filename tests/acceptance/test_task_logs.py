"""Task logs of real processes: a full disk, and a broker that is killed while a log is followed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.acceptance.harness import House, wait_until
from tests.ports import free_port

MEBIBYTE = 1024 * 1024
DISK_BYTES = 64 * MEBIBYTE
FREE_BYTES_MIN = 8 * MEBIBYTE


class TalkingHouse(House):
    """A broker with HTTP, and a worker whose task prints when a test says so."""

    def __init__(self, folder: Path, *within: str) -> None:
        super().__init__(folder)
        self._within = within
        self._http = free_port()
        self.said = folder / "said"
        self.said.mkdir()

    def serve(self, *flags: str) -> None:
        """Start the broker, and return when it answers."""
        command = [sys.executable, "-m", "jackalope", "serve", "--port", str(self.port), *flags]
        more = ["--http-port", str(self._http), "--data", str(self.folder / "data")]
        with (self.folder / "broker.out").open("ab") as output:
            self.broker = subprocess.Popen(
                [*self._within, *command, *more], env=self.environment, stdout=output, stderr=output
            )
        wait_until(lambda: self._health() is not None, "the broker answers")

    def submit(self) -> str:
        arguments = json.dumps([str(self.said)])
        named = ("--queue", "talk", "--name", "tests.acceptance.tasks.talk", "--json", arguments)
        ran = self.cli("submit", *named, "--format", "json")
        assert ran.returncode == 0, ran.stderr
        return str(json.loads(ran.stdout)[0])

    def say(self, *what: object) -> None:
        for each in what:
            (self.said / str(each)).touch()

    def texts(self, task: str) -> list[str]:
        return [line["text"] for line in self.get(f"/api/v1/tasks/{task}/logs")["lines"]]

    def get(self, path: str) -> Any:
        with urlopen(f"http://127.0.0.1:{self._http}{path}", timeout=10) as answer:
            body = answer.read().decode()
        return json.loads(body) if path.startswith("/api") or "health" in path else body

    def metric(self, name: str) -> float:
        found = [line for line in self.get("/metrics").splitlines() if line.startswith(f"{name} ")]
        return float(found[0].split()[1])

    def _health(self) -> Any:
        with suppress(OSError):
            return self.get("/health")
        return None


def own_disk(folder: Path, size: int) -> tuple[str, ...]:
    """Return what to run a command with that has a disk of its own in a folder."""
    script = f'mkdir -p "$0" && mount -t tmpfs -o size={size} none "$0" && exec "$@"'
    return ("unshare", "--map-root-user", "--mount", "sh", "-c", script, str(folder))


@pytest.fixture
def house(tmp_path: Path) -> Iterator[TalkingHouse]:
    found = TalkingHouse(tmp_path)
    yield found
    found.close()


@pytest.fixture
def house_on_a_small_disk(tmp_path: Path) -> Iterator[TalkingHouse]:
    probe = [*own_disk(tmp_path / "probe", MEBIBYTE), "true"]
    if shutil.which("unshare") is None or subprocess.run(probe, check=False).returncode:
        pytest.skip("no disk of its own can be mounted here")
    found = TalkingHouse(tmp_path, *own_disk(tmp_path / "data", DISK_BYTES))
    yield found
    found.close()


def test_on_a_full_disk_lines_are_dropped_and_tasks_go_on(
    house_on_a_small_disk: TalkingHouse, tmp_path: Path
) -> None:
    house, output = house_on_a_small_disk, tmp_path / "broker.out"
    config = tmp_path / "jackalope.yaml"
    config.write_text(json.dumps({"data": {"free_bytes_min": FREE_BYTES_MIN}}))
    house.serve("--config", str(config))
    assert house.broker is not None
    house.start_worker("talker", "talk")
    task = house.submit()
    house.say(0)
    wait_until(lambda: house.texts(task) == ["line 0"], "the first line is there")
    assert house.metric("jackalope_task_log_writable") == 1

    # The disk is the broker's alone; this is the way to it from outside.
    ballast = Path(f"/proc/{house.broker.pid}/root{tmp_path}/data/ballast")
    disk = os.statvfs(ballast.parent)
    with ballast.open("wb") as file:
        room = disk.f_bavail * disk.f_frsize
        os.posix_fallocate(file.fileno(), 0, room - FREE_BYTES_MIN * 3 // 2)
    house.say(1, 2, 3)
    wait_until(lambda: house.metric("jackalope_task_log_dropped_total") == 3, "lines are dropped")
    assert house.metric("jackalope_task_log_writable") == 0
    health = house.get("/health")
    assert health["status"] == "healthy"
    assert "free disk space is" in health["task_logs"]
    wait_until(lambda: "task logs cannot be stored" in output.read_text(), "it is logged")
    silent = house.cli("submit", "--queue", "sums", "--name", "nobody", "--format", "json")
    assert silent.returncode == 0, silent.stderr  # New tasks are taken.
    house.say("end")
    assert house.cli("wait", task).returncode == 0  # The result is safe.
    assert house.texts(task) == ["line 0"]

    ballast.unlink()
    house.say(4)
    again = house.submit()
    wait_until(lambda: house.texts(again)[-1:] == ["line 4"], "lines are stored again")
    assert house.get("/health").get("task_logs", "") == ""
    assert house.metric("jackalope_task_log_writable") == 1
    wait_until(lambda: "task logs are stored again" in output.read_text(), "it is logged")
    (attempt,) = house.get(f"/api/v1/tasks/{task}/logs")["attempts"]
    assert (attempt["lines"], attempt["dropped"]) == (1, 3)


def has_lines(path: Path, count: int) -> bool:
    return path.read_text().count("\n") >= count


def test_log_is_followed_over_kills_of_the_broker_without_loss_or_doubles(
    house: TalkingHouse,
) -> None:
    house.serve()
    house.start_worker("talker", "talk")
    task = house.submit()
    path = house.folder / "followed"
    with path.open("wb") as output:
        follower = subprocess.Popen(
            [sys.executable, "-m", "jackalope", "logs", task, "--follow", "--raw"],
            env=house.environment,
            stdout=output,
            stderr=subprocess.PIPE,
        )
    try:
        for kill in range(3):
            first = 20 * kill
            house.say(*range(first, first + 10))
            wait_until(partial(has_lines, path, first + 1), "lines are followed")
            house.kill(house.broker)
            house.say(*range(first + 10, first + 20))
            house.serve()
        house.say("end")
        _, error = follower.communicate(timeout=60)
    finally:
        follower.kill()
    assert follower.returncode == 0, error
    assert path.read_text().splitlines() == [f"line {number}" for number in range(60)]
    assert house.texts(task) == [f"line {number}" for number in range(60)]
