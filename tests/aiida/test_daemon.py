"""AiiDA end to end: a real profile, daemon and broker, and work that goes well.

Each test leaves the lab as the next one finds it: the daemon runs with two workers, and the gate is
open.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from tests.aiida.lab import NEEDS_AIIDA, Lab

pytestmark = NEEDS_AIIDA


@pytest.mark.feature("T32")
def test_everything_that_is_submitted_finishes(lab: Lab) -> None:
    pks = lab.ask("submit_adds", 20) + lab.ask("submit_chains", 10)
    lab.wait_until_ended(pks)
    lab.assert_run_once(pks)
    assert len(lab.runs.read_text().split()) == 30
    assert "Jackalope v" in lab.verdi("status")


def test_processes_are_watched_paused_played_and_killed(lab: Lab) -> None:
    lab.close_gate()
    paused, killed = lab.ask("submit_chains", 2)
    lab.wait_until_begun([paused, killed])
    with lab.running("verdi", "process", "watch", str(paused), str(killed)) as watching:
        assert watching.stdout is not None
        assert "watching" in watching.stdout.readline()
        child = lab.ask("look", [paused])[0]["called"][-1]["pk"]
        shown = json.loads(lab.look_at("status", str(child), "--format", "json"))
        calculation = ("ArithmeticAddCalculation", ["computer:localhost"])
        assert (shown["name"], shown["tags"]) == calculation
        assert shown["priority"] == 151  # It is inside of another.
        assert lab.quickly("verdi", "process", "pause", str(paused), "--timeout", "60").well
        assert lab.ask("look", [paused])[0]["paused"]
        lab.verdi("process", "kill", str(killed), "--timeout", "60")
        lab.wait_until_ended([killed], "killed")
        # Its last calculation is killed with it, a moment later.
        lab.wait_until_ended([lab.ask("look", [killed])[0]["called"][-1]["pk"]], "killed")
        assert _has_line(watching.stdout, f"Process<{killed}> [state_changed.waiting.killed")
        lab.open_gate()
        [chain] = lab.ask("look", [paused])
        lab.wait_until_ended([child["pk"] for child in chain["called"]])
        assert lab.ask("look", [paused])[0]["state"] == "waiting"
        assert lab.quickly("verdi", "process", "play", str(paused), "--timeout", "60").well
        lab.wait_until_ended([paused])
        assert _has_line(watching.stdout, f"Process<{paused}> [state_changed.running.finished")
    lab.assert_run_once([paused, killed])
    assert "KilledError" not in lab.daemon_log()


def _has_line(lines: Iterable[str], beginning: str) -> bool:
    """Read until a line begins so; tell whether one did."""
    return any(line.startswith(beginning) for line in lines)
