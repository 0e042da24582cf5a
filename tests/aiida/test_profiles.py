"""Profiles of AiiDA come to this broker, and go back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.aiida.lab import NEEDS_AIIDA, Lab

pytestmark = NEEDS_AIIDA


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("profiles"))
    try:
        lab.make_profile("core.zeromq", {"supervised_by_daemon": True})
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

    told = lab.quickly("jackalope", "aiida", "status", "--format", "json").json
    assert told["own"]["pid"] == lab.broker_pid()
    assert told["profiles"]["lab"]["connected"]
    assert told["profiles"]["lab"]["processing_tasks"] == 0

    access = lab.quickly("jackalope", "aiida", "env", "lab", "--format", "json").json
    queues = json.loads(lab.run("jackalope", "queues", "--format", "json", **access).stdout)
    assert {each["queue"]: each["policy"]["on_lost"] for each in queues} == {"processes": "pause"}

    assert lab.quickly(
        "jackalope", "aiida", "use", "lab"
    ).well  # Again: what it had before stays known.
    assert control_of(lab) == ours
    assert lab.quickly("jackalope", "aiida", "revert", "lab").well
    assert control_of(lab) == before


def test_a_broker_that_does_not_answer_changes_nothing(lab: Lab) -> None:
    before = control_of(lab)
    said = lab.quickly("jackalope", "aiida", "use", "lab", "--broker", "jackalope://127.0.0.1:1")
    assert said.code == 1
    assert "127.0.0.1:1" in said.err
    assert control_of(lab) == before


def test_what_cannot_be_is_said(lab: Lab) -> None:
    for words, why in (
        (("use", "nobody"), "no profile is called 'nobody'; there are: lab"),
        (("revert", "lab"), "has the broker core.zeromq, not Jackalope"),
        (("use", "lab", "--on-lost", "dance"), "say continue or pause"),
    ):
        said = lab.quickly("jackalope", "aiida", *words)
        assert said.code == 2, said.err
        assert why in said.err


def test_a_new_profile_needs_nothing_else(lab: Lab) -> None:
    lab.jackalope("aiida", "new", "fresh", "--email", "ada@example.org")
    assert control_of(lab, "fresh")["backend"] == "jackalope"
    assert "Jackalope v" in lab.verdi("-p", "fresh", "status")
    assert "nothing to go back to" in lab.quickly("jackalope", "aiida", "revert", "fresh").err
    assert "there is a profile fresh" in lab.quickly("jackalope", "aiida", "new", "fresh").err
    # Two profiles on one broker see nothing of each other.
    assert lab.quickly("jackalope", "aiida", "use", "lab").well
    assert control_of(lab)["config"]["namespace"] != control_of(lab, "fresh")["config"]["namespace"]


def test_ones_own_broker_is_stopped(lab: Lab) -> None:
    for is_running in (True, False):
        told = lab.jackalope("aiida", "stop", "--format", "json")
        assert json.loads(told) == {"stopped": is_running}
