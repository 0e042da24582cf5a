"""`cluster rebuild-log`: every store of the log is lost, and every acknowledged task is there."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from jackalope import Jackalope
from jackalope.storage.shared.nats_server import running_in
from tests.cluster import application
from tests.cluster.brokers import Brokers, Process, running, until
from tests.cluster.test_commands import run
from tests.cluster.test_processes import client

pytestmark = pytest.mark.timeout(300)


def kill_all(brokers: Brokers) -> None:
    """Kill all brokers, and then their nats-servers."""
    for each in brokers.all:
        each.kill()
    for each in brokers.all:
        end(each)


def end(node: Process) -> None:
    """Kill a broker and its nats-server, and return when both are gone."""
    node.end()
    until(lambda: running_in(node.folder / "data" / "nats") is None, [node])


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


def test_a_broker_that_is_left_gives_its_state_to_a_new_log(tmp_path: Path) -> None:
    """Two of three machines are lost with their disks; the third has all, but no majority."""
    with running(tmp_path) as brokers:
        leader = brokers.leader()
        left = next(each for each in brokers.all if each is not leader)
        handles = asyncio.run(submit(brokers, tmp_path, range(20)))
        applied = leader.status().applied
        # Its history has all, so that it can be given away at once.
        until(lambda: bool(left.role()), brokers.all)  # Two of three can elect while it starts.
        until(lambda: left.status().flushed >= applied, brokers.all)
        gone = [each for each in brokers.all if each is not left]
        for each in gone:
            end(each)
        file, data = tmp_path / "rebuilt.yaml", tmp_path / "made"
        words = ["rebuild-log", "--from", left.name, "--data", str(data), "--out", str(file)]
        until(lambda: run(brokers, *words)[0] == 1, brokers.all)  # No word of the others yet.
        code, _, err = run(brokers, *words)
        assert f"what {gone[0].name} has is not known" in err
        for each in gone:
            words += ["--gone", each.name]
        code, out, err = run(brokers, *words)
        assert code == 0, err
        assert f"may be missing: {leader.name} led last, and is gone" in out or "not known" in out

        end(left)
        use(brokers, file)
        for each in brokers.all:
            shutil.rmtree(each.folder / "data")
        shutil.move(data, left.folder / "data")
        for each in brokers.all:
            each.start()
        brokers.leader()
        asyncio.run(check_there(brokers, handles))
        until(lambda: run(brokers, "verify")[0] == 0, brokers.all)
