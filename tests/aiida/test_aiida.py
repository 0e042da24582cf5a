"""AiiDA end to end: a real profile, daemon and broker, and what may befall them.

The tests are the days of one lab, in this order. Each leaves it as the next one finds it: the
daemon runs with two workers, and the gate is open.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.aiida.lab import READY, Lab

pytestmark = [
    # A loaded machine of two cores needs ten times as long as an idle one.
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not READY.exists(), reason="AIIDA IS NOT INSTALLED: `make aiida` does it; NOTHING IS TESTED"
    ),
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("lab"))
    try:
        lab.open()
        lab.open_gate()
        lab.verdi("daemon", "start", "2")
        yield lab
    finally:
        lab.close()


def test_everything_that_is_submitted_finishes(lab: Lab) -> None:
    pks = lab.ask("submit_adds", 20) + lab.ask("submit_chains", 10)
    lab.wait_until_ended(pks)
    lab.assert_run_once(pks)
    assert len(lab.runs.read_text().split()) == 30
    assert "Jackalope v" in lab.verdi("status")


def test_processes_are_paused_played_and_killed(lab: Lab) -> None:
    lab.close_gate()
    paused, killed = lab.ask("submit_chains", 2)
    lab.wait_until_begun([paused, killed])
    child = lab.ask("look", [paused])[0]["called"][-1]["pk"]
    shown = json.loads(lab.look_at("lab", "status", str(child), "--format", "json"))
    assert (shown["name"], shown["tags"]) == ("ArithmeticAddCalculation", ["computer:localhost"])
    assert shown["priority"] == 151  # It is inside of another.
    lab.verdi("process", "pause", str(paused), "--timeout", "60")
    assert lab.ask("look", [paused])[0]["paused"]
    lab.verdi("process", "kill", str(killed), "--timeout", "60")
    lab.wait_until_ended([killed], "killed")
    assert [child["state"] for child in lab.ask("look", [killed])[0]["called"]][-1] == "killed"
    lab.open_gate()
    [chain] = lab.ask("look", [paused])
    lab.wait_until_ended([child["pk"] for child in chain["called"]])
    assert lab.ask("look", [paused])[0]["state"] == "waiting"
    lab.verdi("process", "play", str(paused), "--timeout", "60")
    lab.wait_until_ended([paused])
    lab.assert_run_once([paused, killed])


def test_a_worker_and_the_broker_are_killed(lab: Lab) -> None:
    lab.close_gate()
    pks = lab.ask("submit_adds", 4) + lab.ask("submit_chains", 4)
    lab.wait_until_begun(pks)
    before = lab.ask("workers")
    lab.kill(before[0])
    broker = lab.broker_pid()
    lab.kill(broker)
    lab.tell("submit_adds", 2)  # While there is no broker.
    pks += lab.hear()
    pks += lab.ask("submit_chains", 1)
    assert lab.broker_pid() != broker
    lab.open_gate()
    lab.wait_until_ended(pks)
    lab.assert_run_once(pks)
    lab.wait(lambda: len(lab.ask("workers")) == 2, "a new worker is there")
    assert lab.ask("workers") != before


def test_the_daemon_restarts_with_work_at_hand(lab: Lab) -> None:
    lab.close_gate()
    pks = lab.ask("submit_adds", 4) + lab.ask("submit_chains", 4)
    lab.wait_until_begun(pks)
    lab.verdi("daemon", "restart")
    lab.open_gate()
    lab.wait_until_ended(pks)
    lab.assert_run_once(pks)


def test_lost_tasks_are_repaired(lab: Lab) -> None:
    lab.verdi("daemon", "stop")
    pks = lab.ask("submit_adds", 3)
    assert "No inconsistencies" in lab.verdi("process", "repair")
    lost, other, _ = (str(pk) for pk in pks)
    assert "no worker" in lab.look_at("lab", "explain", other)
    lab.look_at("lab", "kill", lost, "--yes")
    assert f"Revived process `{lost}`" in lab.verdi("process", "repair")
    lab.verdi("daemon", "start", "2")
    lab.wait_until_ended(pks)
    lab.assert_run_once(pks)
