"""`cluster rebuild-log`: every store of the log is lost, and every acknowledged task is there."""

import asyncio
import json
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from jackalope import Jackalope
from tests.cluster import application
from tests.cluster.brokers import Brokers, Process, running, until
from tests.cluster.test_commands import run
from tests.cluster.test_processes import client

pytestmark = pytest.mark.timeout(300)


def kill_all(brokers: Brokers) -> None:
    """Kill all brokers and their nats-servers at once."""
    for each in brokers.all:
        if each.is_up:
            each.kill()
    for each in brokers.all:
        pid = each.folder / "data" / "nats" / "server.pid"
        if pid.exists():
            with suppress(OSError, ValueError):
                os.kill(int(pid.read_text()), signal.SIGKILL)


def lose_log(node: Process) -> None:
    shutil.rmtree(node.folder / "data" / "nats")


def data_of(node: Process) -> str:
    return str(node.folder / "data")


def use(brokers: Brokers, file: Path) -> None:
    """Give the nodes the file that names the founder."""
    founder = yaml.safe_load(file.read_text())["cluster"]["founder"]
    for each in brokers.all:
        told = {**each.config, "cluster": {**each.config["cluster"], "founder": founder}}
        (each.folder / "jackalope.yaml").write_text(yaml.safe_dump(told))


async def submit(brokers: Brokers, folder: Path, numbers: range) -> list[Any]:
    with client(brokers) as app:
        async with app:
            return [await application.mark.submit(str(folder), number) for number in numbers]


async def check_there(brokers: Brokers, handles: list[Any]) -> None:
    """Check that every task is known to the leader."""
    async with Jackalope(brokers.address) as app:
        for each in handles:
            assert (await app.handle(each.id).status()).state == "ready"


def test_no_acknowledged_task_is_lost_with_the_log(tmp_path: Path) -> None:
    with running(tmp_path) as brokers:
        led = brokers.leader()
        handles = asyncio.run(submit(brokers, tmp_path, range(40)))
        epoch = led.status().epoch
        code, _, err = run(brokers, "rebuild-log", "--from", data_of(led), "--node", led.name)
        assert code == 1
        assert f"{led.name} leads: the log is alive" in err

        kill_all(brokers)
        others = [each for each in brokers.all if each is not led]
        words = ["rebuild-log", "--from", data_of(led), "--node", led.name]
        code, _, err = run(brokers, *words)
        assert code == 1
        assert f"what {others[0].name} has is not known" in err
        for each in brokers.all:
            lose_log(each)
        for each in others:
            words += ["--compare", f"{each.name}={data_of(each)}"]
        file = tmp_path / "rebuilt.yaml"
        code, out, err = run(brokers, *words, "--out", str(file), "--format", "json")
        assert code == 0, err
        told = json.loads(out)
        assert told["founder"] == led.name
        assert told["from"]["leader"] == led.name
        assert any("nothing that was acknowledged is missing" in each for each in told["said"])

        use(brokers, file)
        for each in brokers.all:
            each.start()
        brokers.leader()
        asyncio.run(check_there(brokers, handles))
        until(lambda: {each.role() for each in others} <= {"leading", "following"}, brokers.all)
        assert all(each.status().epoch > epoch for each in brokers.all)
        more = asyncio.run(submit(brokers, tmp_path, range(40, 50)))
        asyncio.run(check_there(brokers, handles + more))
        until(lambda: run(brokers, "verify")[0] == 0, brokers.all)
