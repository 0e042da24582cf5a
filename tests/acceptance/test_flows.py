"""A flow of a thousand nodes, with workers and broker killed at random: it ends once."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from jackalope.core.commands.flows import FlowNode, SubmitFlow
from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.shapes.flow import FlowSettings, GroupSettings, NodeSettings
from jackalope.core.task import TaskSpec
from jackalope.errors import JackalopeError
from jackalope.task_ids import new_task_id
from jackalope.transport.address import Address
from jackalope.transport.connection import Connection
from jackalope.wire.messages import Hello, Query
from tests.client.harness import BrokerProcess

CHAIN, MEMBERS, WIDE, NAMED = 100, 600, 250, 47
KILLS = 8


def _node(name: str, after: tuple[str, ...] = (), **settings: Any) -> FlowNode:
    return FlowNode(TaskSpec(NO_TASK, "nodes", name), NodeSettings(name, **settings), after)


def _nodes() -> list[FlowNode]:
    """Return a chain, then a group of any width, then a narrow one, each joined, and a diamond."""
    nodes = [_node("c0")]
    nodes += [_node(f"c{each}", (f"c{each - 1}",)) for each in range(1, CHAIN)]
    start = (f"c{CHAIN // 2}",)
    nodes += [_node(f"m{each}", start, group="members") for each in range(MEMBERS)]
    nodes.append(_node("all", groups=("members",)))
    nodes += [_node(f"w{each}", ("all",), group="wide") for each in range(WIDE)]
    nodes.append(_node("some", groups=("wide",), need=WIDE // 2))
    nodes += [_node(f"d{each}", ("all",)) for each in range(NAMED)]
    last = (*(f"d{each}" for each in range(NAMED)), f"c{CHAIN - 1}", "some")
    nodes.append(_node("last", last))
    return nodes


def _start_worker(port: int, name: str, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.acceptance.node_worker", str(port), name, str(log)]
    with log.with_suffix(".out").open("ab") as output:
        return subprocess.Popen(command, stdout=output, stderr=output)


async def _ask(port: int, request: Any) -> Any:
    """Ask until there is an answer: the broker may be down."""
    async with asyncio.timeout(60):
        while True:
            try:
                connection = await Connection.open(
                    Address("127.0.0.1", port),
                    Hello(name="tester"),
                    heard=lambda _: None,
                    lost=lambda _: None,
                )
                answer = await connection.request(request)
                await connection.close()
            except (JackalopeError, OSError):
                await asyncio.sleep(0.05)
            else:
                return answer


async def _end(port: int, flow: TaskId) -> str:
    """Wait for the end of a flow, and return its state."""
    async with asyncio.timeout(120):
        while True:
            view = await _ask(port, Query(0, "task", {"id": flow}))
            if view["state"] != "waiting":
                return str(view["state"])
            await asyncio.sleep(0.1)


def _check(log: Path, nodes: list[FlowNode]) -> None:
    """Check that each node ran, with just what those left that it waited for."""
    given = defaultdict(set)
    for line in log.read_text().splitlines():
        name, inputs, _ = line.split(" ")
        given[name].add(inputs)
    assert set(given) == {each.node.name for each in nodes}
    groups = {"members": MEMBERS, "wide": WIDE}
    for each in nodes:
        assert len(given[each.node.name]) == 1, each.node.name  # However often it ran.
        got = next(iter(given[each.node.name]))
        wanted = [f"{name}={name}" for name in each.after]
        if each.node.need:
            assert WIDE // 2 <= len(got.split(",")) <= WIDE
            assert len(set(got.split(","))) == len(got.split(","))
            continue
        for group in each.node.groups:
            wanted += [f"{group[0]}{at}={group[0]}{at}" for at in range(groups[group])]
        assert got == ",".join(wanted), each.node.name


def test_a_flow_of_a_thousand_nodes_ends_once_when_all_are_killed(tmp_path: Path) -> None:
    broker, rng = BrokerProcess(tmp_path), random.Random(19)
    log, nodes = tmp_path / "nodes.log", _nodes()
    log.touch()
    assert len(nodes) == 1_000
    groups = (GroupSettings("members"), GroupSettings("wide", 40))
    flow = TaskSpec(TaskId(new_task_id()), "flows", "album")
    command = SubmitFlow(0, flow, FlowSettings(groups=groups), nodes)
    workers: list[subprocess.Popen[bytes]] = []

    async def run() -> None:
        await _ask(broker.port, command)
        for _ in range(KILLS):
            await asyncio.sleep(rng.uniform(0.1, 0.7))
            if rng.random() < 0.5:
                broker.kill()
                broker.start()
            else:
                victim = rng.randrange(len(workers))
                workers[victim].send_signal(signal.SIGKILL)
                workers[victim].wait()
                workers[victim] = _start_worker(broker.port, f"w{victim}", log)
        await _ask(broker.port, command)  # Once more is harmless.
        assert await _end(broker.port, flow.id) == "succeeded"
        history = await _ask(broker.port, Query(0, "history", {"id": flow.id}))
        ends = [each for each in history if each["what"] == "complete"]
        assert len(ends) == 1

    broker.start()
    try:
        workers += [_start_worker(broker.port, f"w{number}", log) for number in range(3)]
        asyncio.run(run())
        _check(log, nodes)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
        broker.kill()
