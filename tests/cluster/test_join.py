"""`cluster join`: a machine is lost for good, and another takes its place while clients work."""

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import application
from tests.cluster.brokers import Brokers, Process, running, until
from tests.cluster.test_commands import run, status
from tests.cluster.test_processes import client
from tests.ports import free_port

pytestmark = pytest.mark.timeout(300)


def lose(node: Process) -> None:
    """Let a machine be gone, with its broker, its nats-server and its disks."""
    pid = int((node.folder / "data" / "nats" / "server.pid").read_text())
    node.kill()
    os.kill(pid, signal.SIGKILL)
    shutil.rmtree(node.folder)


def restart(node: Process, members: list[str]) -> None:
    """Start a node again with another list of members, as after a new file was copied to it."""
    assert node.stop() == 0
    node.config["cluster"]["members"] = members
    (node.folder / "jackalope.yaml").write_text(yaml.safe_dump(node.config))
    node.start()
    until(lambda: node.role() in {"following", "leading"}, [node], 120)


def machine(name: str, folder: Path, like: Process) -> tuple[str, Process]:
    """Return a new machine for a member: what `join` is told of it, and its broker."""
    native, http, amqp, management, route, peer, nats, monitor = (free_port() for _ in range(8))
    member = (
        f"{name}=127.0.0.1 native={native} http={http} amqp={amqp} management={management} "
        f"route={route} peer={peer}"
    )
    config: dict[str, Any] = {
        **like.config,
        "native": {**like.config["native"], "port": native},
        "http": {"port": http},
        "amqp": {**like.config["amqp"], "port": amqp, "management_port": management},
        "cluster": {
            **like.config["cluster"],
            "node": name,
            "nats_port": nats,
            "monitor_port": monitor,
        },
    }
    return member, Process(name, folder, config)


async def under_load(brokers: Brokers, folder: Path, deed: Callable[[], None]) -> list[Any]:
    """Submit tasks one after the other while something is done; return what was acknowledged."""
    handles: list[Any] = []
    with client(brokers) as app:
        async with app:
            doing = asyncio.create_task(asyncio.to_thread(deed))
            while not doing.done():
                number = len(handles)
                handles.append(await application.mark.submit(str(folder), number))
                await asyncio.sleep(0.02)
            await doing
            for each in handles:
                assert (await each.status()).state == "ready"
    return handles


def test_another_machine_takes_the_place_of_one_that_is_lost(tmp_path: Path) -> None:
    with running(tmp_path) as brokers:
        leader = brokers.leader()
        lost, other = [each for each in brokers.all if each is not leader]
        if lost is brokers.all[0]:
            lost, other = other, lost  # The command reads the file of the first.
        member, new = machine(lost.name, tmp_path / "new", lost)
        file = tmp_path / "next.yaml"

        def replace() -> None:
            lose(lost)
            until(lambda: run(brokers, "status")[0] == 5, [leader, other], 60)
            # A follower may have to find the leader of its log again: until then it is refused.
            answers: list[tuple[int, str, str]] = []

            def is_joined() -> bool:
                answers.append(run(brokers, "join", member, "--out", str(file)))
                code, _, err = answers[-1]
                assert code == 0 or "not now" in err, err
                return code == 0

            until(is_joined, [leader, other], 60)
            out = answers[-1][1]
            assert f"--node {lost.name}" in out
            members = yaml.safe_load(file.read_text())["cluster"]["members"]
            assert member in members
            new.config["cluster"]["members"] = members
            (new.folder / "jackalope.yaml").write_text(yaml.safe_dump(new.config))
            restart(other, members)
            code, _, err = run(brokers, "step-down")
            assert code == 0, err
            restart(leader, members)
            new.start()
            until(lambda: new.role() == "following", [new, leader, other], 120)
            brokers.all[brokers.all.index(lost)] = new

        try:
            handles = asyncio.run(under_load(brokers, tmp_path, replace))
            assert len(handles) > 20
            until(lambda: status(brokers)[0] == 0, brokers.all, 120)
            until(lambda: run(brokers, "verify")[0] == 0, brokers.all, 120)
            # It takes part: without it there would be no majority, and it can lead.
            code, _, err = run(brokers, "step-down", "--to", new.name)
            assert code == 0, err
            until(lambda: new.role() == "leading", brokers.all)
            other.end()
            assert asyncio.run(under_load(brokers, tmp_path, lambda: time.sleep(1)))
        finally:
            new.end()
