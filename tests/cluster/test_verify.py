"""`cluster verify`: real nodes are compared, and the one that differs is named."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import application
from tests.cluster.brokers import Brokers, Process, until
from tests.cluster.test_commands import run, status
from tests.cluster.test_processes import client

pytestmark = pytest.mark.timeout(300)


def verify(brokers: Brokers) -> tuple[int, dict[str, Any]]:
    code, out, err = run(brokers, "verify", "--format", "json")
    assert out, err
    return code, json.loads(out)


@pytest.fixture
def submitted(whole: Brokers, tmp_path: Path) -> Brokers:
    """Return a cluster with tasks that wait, all of whose nodes follow."""

    async def submit() -> None:
        with client(whole) as app:
            async with app:
                for number in range(30):
                    await application.mark.submit(str(tmp_path), number)

    whole.leader()
    asyncio.run(submit())
    until(lambda: status(whole)[0] == 0, whole.all, 120)
    return whole


def of(found: dict[str, Any], node: Process) -> dict[str, Any]:
    return next(each for each in found["members"] if each["node"] == node.name)


def test_equal_nodes_are_found_equal(submitted: Brokers) -> None:
    code, found = verify(submitted)
    assert found["differences"] == found["unknown"] == []
    assert code == 0, found
    assert found["at"] > 0
    assert found["slices"] >= 1
    for each in found["members"]:
        assert (each["chain"], each["state"]) == ("equal", "equal")
        assert each["log_copy"].endswith("messages")
        assert each["applied"] >= found["at"]
    assert "all members are equal" in run(submitted, "verify")[1]


def test_a_damaged_mirror_is_named(submitted: Brokers) -> None:
    node = submitted.follower()
    home = node.folder / "data" / "shards" / "0"
    segment = max((home / "mirror").glob("*.log"))
    intact = segment.read_bytes()
    used = len(intact.rstrip(b"\0"))
    at = 4096 + (used - 4096) // 3
    with segment.open("r+b") as file:
        file.seek(at)
        file.write(bytes(byte ^ 0xFF for byte in intact[at : at + 16]))
    code, found = verify(submitted)
    assert code == 1
    assert of(found, node)["chain"] == "damaged"
    assert any(f"the mirror of {node.name} is damaged" in each for each in found["differences"])
    assert "remove `shards/0/mirror`" in " ".join(run(submitted, "verify")[1].split())

    assert node.stop() == 0
    code, out, _ = run(submitted, "verify", "--data", str(node.folder / "data"))
    assert code == 1
    assert "is missing or damaged" in " ".join(out.split())
    for path in (home / "mirror").iterdir():
        path.unlink()
    (home / "mirror").rmdir()
    node.start()
    until(lambda: verify(submitted)[0] == 0, submitted.all)


def stored(path: Path) -> int:
    """Return how many tasks a history has; it is written behind."""
    with closing(sqlite3.connect(path)) as history:
        return int(history.execute("SELECT count(*) FROM tasks").fetchone()[0])


def test_a_node_with_another_state_is_named_and_takes_over_that_of_another(
    submitted: Brokers,
) -> None:
    node = submitted.follower()
    path = node.folder / "data" / "shards" / "0" / "tasks.db"
    until(lambda: stored(path) > 0, submitted.all)
    assert node.stop() == 0
    with closing(sqlite3.connect(path)) as history:
        lost = "DELETE FROM tasks WHERE id IN (SELECT id FROM tasks LIMIT 1)"
        assert history.execute(lost).rowcount == 1
        history.commit()
    node.start()
    until(lambda: node.role() == "following", submitted.all)
    code, found = verify(submitted)
    assert code == 1, found
    assert of(found, node)["state"] == "differs"
    assert [f"the state of {node.name} differed" in each for each in found["differences"]] == [True]
    others = [each for each in found["members"] if each["node"] != node.name]
    assert [each["state"] for each in others] == ["equal", "equal"]
    assert "jackalope_cluster_divergences_total 1.0" in node.text("/metrics")

    until(lambda: node.role() == "following", submitted.all)
    code, view = status(submitted)
    assert code == 5
    assert any(f"the state of {node.name} differed" in each for each in view["problems"])
    until(lambda: verify(submitted)[0] == 0, submitted.all)
    until(lambda: status(submitted)[0] == 0, submitted.all)  # It was found equal since.


def test_a_member_that_is_down_was_not_compared(submitted: Brokers) -> None:
    node = submitted.follower()
    node.kill()
    code, found = verify(submitted)
    assert code == 5
    assert of(found, node)["role"] == "unreachable"
    assert [each for each in found["unknown"] if each.startswith(f"{node.name} does not answer")]
    assert found["differences"] == []
