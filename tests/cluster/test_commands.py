"""What a person who runs a cluster does: looks at it, moves the lead, changes members, upgrades."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.brokers import Brokers, Process, until

pytestmark = pytest.mark.timeout(300)


def run(brokers: Brokers, *words: str) -> tuple[int, str, str]:
    """Run a command about the cluster, with the file of its first node."""
    file = str(brokers.all[0].folder / "jackalope.yaml")
    command = [sys.executable, "-m", "jackalope", "cluster", *words, "--config", file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


def status(brokers: Brokers) -> tuple[int, dict[str, Any]]:
    code, out, err = run(brokers, "status", "--format", "json")
    assert out, err
    return code, json.loads(out)


def wait_until_healthy(brokers: Brokers) -> dict[str, Any]:
    for each in brokers.all:
        if not each.is_up:
            each.start()
    found: list[dict[str, Any]] = []

    def look() -> bool:
        code, view = status(brokers)
        found[:] = [view]
        return code == 0

    until(look, brokers.all, 120)
    return found[0]


def test_status_of_all_and_of_what_is_left(brokers: Brokers) -> None:
    view = wait_until_healthy(brokers)
    assert view["condition"] == "healthy"
    assert view["leader"] == brokers.leader().name
    roles = {each["node"]: each["role"] for each in view["members"]}
    assert sorted(roles.values()) == ["following", "following", "leading"]
    assert view["level"] >= 2
    assert len(view["log"]["copies"]) == 3

    down = next(each for each in brokers.all if each.name != view["leader"])
    down.kill()
    code, view = status(brokers)
    assert (code, view["condition"]) == (5, "degraded")
    assert {each["node"]: each["role"] for each in view["members"]}[down.name] == "unreachable"
    assert any(down.name in problem for problem in view["problems"])
    _, shown, _ = run(brokers, "status")
    assert "degraded" in shown
    assert "unreachable" in shown

    for each in brokers.all:
        if each.is_up:
            each.kill()
    code, view = status(brokers)
    assert (code, view["leader"]) == (6, "")
    wait_until_healthy(brokers)


def is_healthy(node: Process) -> bool:
    return node.get("/api/v1/cluster")[1].get("condition") == "healthy"


def test_any_node_shows_the_cluster_over_http(brokers: Brokers) -> None:
    view = wait_until_healthy(brokers)
    for each in brokers.all:
        until(partial(is_healthy, each), [each])
        code, shown = each.get("/api/v1/cluster")
        assert (code, shown["node"], shown["leader"]) == (200, each.name, view["leader"])
        assert len(shown["members"]) == 3
        assert shown["failovers"][0]["node"] == view["leader"]
        assert shown["failovers"][0]["epoch"] == shown["epoch"]


def test_the_lead_moves_where_it_is_told(brokers: Brokers) -> None:
    view = wait_until_healthy(brokers)
    before = view["leader"]
    to = next(each["node"] for each in view["members"] if each["node"] != before)
    code, out, err = run(brokers, "step-down", "--to", to)
    assert code == 0, err
    assert f"{before} has stepped down; {to} leads" in out
    assert brokers.leader().name == to
    for name, why in ((to, "leads already"), ("z", "not a member")):
        code, _, err = run(brokers, "step-down", "--to", name)
        assert code == 2
        assert why in err
    code, out, err = run(brokers, "step-down")
    assert code == 0, err
    assert wait_until_healthy(brokers)["leader"] != to


def test_upgrade_changes_nothing_where_all_have_the_newest(brokers: Brokers) -> None:
    view = wait_until_healthy(brokers)
    code, out, err = run(brokers, "upgrade")
    assert code == 0, err
    assert f"was already at level {view['level']}" in out
    brokers.all[2].kill()
    code, _, err = run(brokers, "upgrade")
    assert code == 1
    assert "c does not answer" in err


def test_a_machine_is_prepared_to_take_the_place_of_another(
    brokers: Brokers, tmp_path: Path
) -> None:
    wait_until_healthy(brokers)
    lost = next(each for each in brokers.all if each is not brokers.leader())
    out = str(tmp_path / "next.yaml")
    code, _, err = run(brokers, "join", f"{lost.name}=127.0.0.9", "--out", out)
    assert code == 1
    assert f"{lost.name} still answers: stop it first" in err
    code, _, err = run(brokers, "join", "d=127.0.0.9", "--out", out)
    assert code == 2
    assert "one, three or five" in err
    assert not Path(out).exists()

    lost.kill()
    code, told, err = run(brokers, "join", f"{lost.name}=127.0.0.9", "--out", out)
    assert code == 0, err
    assert f"--node {lost.name}" in told
    members = yaml.safe_load(Path(out).read_text())["cluster"]["members"]
    assert f"{lost.name}=127.0.0.9" in members
    assert len(members) == 3
