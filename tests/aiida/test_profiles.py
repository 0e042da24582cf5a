"""Profiles of AiiDA come to this broker, and go back."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.aiida.lab import NEEDS_AIIDA, ROOT, Lab

pytestmark = NEEDS_AIIDA

PROFILES = ("lab", "fresh")

#: A broker that is away must be noticed within this time; without care it takes ten seconds.
QUICK_S = 5.0


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
    said = lab.jackalope("aiida", "use", "lab", "--on-lost", "pause")
    assert "code bash@localhost was added" in said  # It had no computer.
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
    before = (lab.folder / ".aiida" / "config.json").read_text()
    for words in (("use", "lab"), ("new", "never")):
        begin = time.monotonic()
        said = lab.quickly("jackalope", "aiida", *words, "--broker", "jackalope://127.0.0.1:1")
        assert time.monotonic() - begin < QUICK_S
        assert said.code == 1
        assert "no broker listens at 127.0.0.1:1" in said.err
        assert "jackalope serve --host 127.0.0.1 --port 1" in said.err
    assert (lab.folder / ".aiida" / "config.json").read_text() == before


def test_what_cannot_be_is_said(lab: Lab) -> None:
    for words, why in (
        (("use", "nobody"), "no profile is called 'nobody'; there are: lab"),
        (("revert", "lab"), "has the broker core.zeromq, not Jackalope"),
        (("use", "lab", "--on-lost", "dance"), "must be continue or pause"),
    ):
        said = lab.quickly("jackalope", "aiida", *words)
        assert said.code == 2, said.err
        assert why in said.err


def test_a_new_profile_needs_nothing_else(lab: Lab) -> None:
    said = lab.jackalope("aiida", "new", "fresh", "--email", "ada@example.org")
    assert "code bash@localhost was added" in said
    assert control_of(lab, "fresh")["backend"] == "jackalope"
    assert "Jackalope v" in lab.verdi("-p", "fresh", "status")
    assert "nothing to go back to" in lab.quickly("jackalope", "aiida", "revert", "fresh").err
    assert "there is a profile fresh" in lab.quickly("jackalope", "aiida", "new", "fresh").err


def test_two_profiles_run_at_once_on_one_broker(lab: Lab) -> None:
    """Both run what the how-to shows, each with a daemon of its own."""
    assert lab.quickly("jackalope", "aiida", "use", "lab").well
    names = [control_of(lab, profile)["config"]["namespace"] for profile in PROFILES]
    assert len(set(names)) == 2
    # A slow machine is no fault of the broker.
    assert lab.quickly("verdi", "-p", "fresh", "config", "set", "daemon.timeout", "60").well
    (lab.folder / "add.py").write_text(example())
    pks = {}
    for profile in PROFILES:
        lab.verdi("-p", profile, "daemon", "start", "1")
        pks[profile] = int(lab.verdi("-p", profile, "run", "add.py"))
    for profile, pk in pks.items():
        lab.wait(lambda: "Finished [0]" in shown(lab, profile, pk), "it ends")  # noqa: B023
        access = lab.quickly("jackalope", "aiida", "env", profile, "--format", "json").json
        tasks = json.loads(lab.run("jackalope", "list", "--format", "json", **access).stdout)
        assert [(task["alias"], task["state"]) for task in tasks] == [(str(pk), "succeeded")]


def example() -> str:
    """Return the program that the how-to shows."""
    page = (ROOT / "docs/how-to/aiida.md").read_text()
    return page.partition("```python\n")[2].partition("```")[0]


def shown(lab: Lab, profile: str, pk: int) -> str:
    return lab.verdi("-p", profile, "process", "status", str(pk))


def test_a_stop_under_a_daemon_is_a_restart(lab: Lab) -> None:
    before = lab.broker_pid()
    told = lab.jackalope("aiida", "stop", "--format", "json")
    assert json.loads(told) == {"stopped": True, "daemons": ["lab", "fresh"]}
    lab.wait(lambda: is_up(lab) and lab.broker_pid() != before, "the daemons start it again")
    for profile in PROFILES:
        lab.verdi("-p", profile, "daemon", "stop")


def is_up(lab: Lab) -> bool:
    return lab.has_own_broker() and lab.quickly("jackalope", "aiida", "status").code == 0


def test_ones_own_broker_is_stopped(lab: Lab) -> None:
    for is_running in (True, False):
        told = lab.jackalope("aiida", "stop", "--format", "json")
        assert json.loads(told) == {"stopped": is_running, "daemons": []}
    begin = time.monotonic()
    said = lab.quickly("jackalope", "aiida", "status", "--format", "json")
    assert time.monotonic() - begin < QUICK_S
    assert said.code == 1
    told = json.loads(said.out)
    assert told["own"]["pid"] is None
    assert all("it starts when it is needed" in each["error"] for each in told["profiles"].values())
