"""Flows from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jackalope.transport.address import Address
from tests.cli.conftest import Cli
from tests.cli.stub_worker import working

FLOW: dict[str, Any] = {
    "name": "thumbnails",
    "queue": "images",
    "alias": "nightly",
    "nodes": [
        {"node": "fetch", "name": "finish"},
        {"node": "small", "name": "finish", "after": ["fetch"], "group": "sizes"},
        {"node": "large", "name": "finish", "after": ["fetch"], "group": "sizes"},
        {"node": "publish", "name": "finish", "groups": ["sizes"]},
    ],
    "groups": [{"name": "sizes", "width": 1}],
}


@pytest.fixture
def worker(address: Address) -> Iterator[None]:
    with working(address, "w1", "images"):
        yield


def write(path: Path, **changes: Any) -> str:
    file = path / "flow.json"
    file.write_text(json.dumps({**FLOW, **changes}))
    return str(file)


@pytest.mark.usefixtures("worker")
def test_a_flow_is_submitted_and_waited_for(cli: Cli, tmp_path: Path) -> None:
    done = cli("flow", "submit", write(tmp_path), "--wait")
    assert done.code == 0, done.err
    assert "thumbnails  succeeded" in done.out
    assert "4 of 4 nodes" in done.out
    lines = [line.split() for line in done.out.splitlines()]
    shown = [line[0] for line in lines if line]
    assert [each for each in shown if each in ("fetch", "small", "large", "publish")] == [
        "fetch",
        "small",
        "large",
        "publish",
    ]
    assert "group sizes: 2 of 2, 1 at once" in done.out
    assert max(len(line) for line in done.out.splitlines()) <= 100
    view = cli("flow", "show", "nightly", "-f", "json").json
    assert [node["state"] for node in view["nodes"]] == ["succeeded"] * 4
    [row] = cli("flow", "list", "-f", "json").json
    assert (row["name"], row["done"], row["total"]) == ("thumbnails", 4, 4)
    assert "4 of 4" in cli("flow", "list").out
    assert cli("flow", "list", "--state", "unfinished", "-f", "json").json == []
    assert cli("flow", "list", "--state", "nowhere").code == 2


@pytest.mark.usefixtures("worker")
def test_a_failed_flow_says_so(cli: Cli, tmp_path: Path) -> None:
    nodes = [
        {"node": "fetch", "name": "fail", "retries": 0},
        {"node": "publish", "name": "finish", "after": ["fetch"]},
    ]
    done = cli("flow", "submit", write(tmp_path, nodes=nodes, groups=[]), "--wait")
    assert (done.code, "the flow is dead" in done.err) == (1, True)
    assert "dead" in done.out
    assert "fetch" in done.out


@pytest.mark.usefixtures("address")
def test_what_cannot_be_submitted(cli: Cli, tmp_path: Path) -> None:
    missing = cli("flow", "submit", str(tmp_path / "none.json"))
    assert (missing.code, "No such file" in missing.err) == (2, True)
    wrong = cli("flow", "submit", write(tmp_path, colour="red"))
    assert (wrong.code, "colour" in wrong.err) == (2, True)
    nodes = [{"node": "a", "name": "t", "after": ["a"]}]
    cycle = cli("flow", "submit", write(tmp_path, nodes=nodes, groups=[]))
    assert (cycle.code, "a -> a" in cycle.err) == (1, True)
    assert "no flows" in cli("flow", "list").out
