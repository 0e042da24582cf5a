"""Profiles of AiiDA come to this broker, and go back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.aiida.lab import READY, Lab

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not READY.exists(), reason="AIIDA IS NOT INSTALLED: `make aiida` does it; NOTHING IS TESTED"
    ),
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("profiles"))
    try:
        lab.open("core.zeromq", {"supervised_by_daemon": True})
        yield lab
    finally:
        lab.close()


def control_of(lab: Lab, profile: str = "lab") -> Any:
    config = json.loads((lab.folder / ".aiida" / "config.json").read_text())
    return config["profiles"][profile]["process_control"]


def copies(lab: Lab) -> list[str]:
    return [file.read_text() for file in (lab.folder / ".aiida").glob("config.json.*.bak")]


def test_a_profile_uses_it_and_goes_back(lab: Lab) -> None:
    before = control_of(lab)
    text = (lab.folder / ".aiida" / "config.json").read_text()
    lab.jackalope("aiida", "use", "lab", "--on-lost", "pause")
    ours = control_of(lab)
    assert ours["backend"] == "jackalope"
    assert ours["config"]["namespace"].startswith("lab-")
    assert text in copies(lab)

    told = json.loads(lab.jackalope("aiida", "status", "--format", "json"))
    assert told["own"]["pid"] == lab.broker_pid()
    assert told["profiles"]["lab"]["connected"]
    assert told["profiles"]["lab"]["processing_tasks"] == 0

    queues = json.loads(lab.look_at("lab", "queues", "--format", "json"))
    assert {each["queue"]: each["policy"]["on_lost"] for each in queues} == {"processes": "pause"}

    lab.jackalope("aiida", "use", "lab")  # Again: what it had before stays known.
    assert control_of(lab) == ours
    lab.jackalope("aiida", "revert", "lab")
    assert control_of(lab) == before


def test_a_broker_that_does_not_answer_changes_nothing(lab: Lab) -> None:
    before = control_of(lab)
    ran = lab.run("jackalope", "aiida", "use", "lab", "--broker", "jackalope://127.0.0.1:1")
    assert ran.returncode == 1
    assert "127.0.0.1:1" in ran.stderr
    assert control_of(lab) == before


def test_what_cannot_be_is_said(lab: Lab) -> None:
    for words, why in (
        (("use", "nobody"), "no profile is called 'nobody'; there are: lab"),
        (("revert", "lab"), "has the broker core.zeromq, not Jackalope"),
        (("use", "lab", "--on-lost", "dance"), "say continue or pause"),
    ):
        ran = lab.run("jackalope", "aiida", *words)
        assert ran.returncode == 2, ran.stderr
        assert why in ran.stderr


def test_a_new_profile_needs_nothing_else(lab: Lab) -> None:
    lab.jackalope("aiida", "new", "fresh", "--email", "ada@example.org")
    assert control_of(lab, "fresh")["backend"] == "jackalope"
    assert "Jackalope v" in lab.verdi("-p", "fresh", "status")
    ran = lab.run("jackalope", "aiida", "revert", "fresh")
    assert "nothing to go back to" in ran.stderr
    ran = lab.run("jackalope", "aiida", "new", "fresh")
    assert "there is a profile fresh" in ran.stderr
    # Two profiles on one broker see nothing of each other.
    lab.jackalope("aiida", "use", "lab")
    assert control_of(lab)["config"]["namespace"] != control_of(lab, "fresh")["config"]["namespace"]
