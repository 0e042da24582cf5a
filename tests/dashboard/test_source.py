"""The page's source: its own tests, and what it must know of the core and no more."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

import msgspec
import pytest

from jackalope.core.api_key import Role
from jackalope.core.commands import Action
from jackalope.core.lifecycle import TRANSITIONS, Event, State, can_lead
from jackalope.core.policy import SAME_OF_QUEUES, Done, OnLost, OnRestart, Policy
from jackalope.core.shapes.contract import OnMisfit
from jackalope.core.shapes.limit import LimitSettings
from jackalope.core.shapes.namespace import NamespaceSettings

SOURCE = Path(__file__).resolve().parents[2] / "dashboard"


def read(name: str) -> str:
    return (SOURCE / "src" / name).read_text()


def test_units() -> None:
    if shutil.which("npm") is None or not (SOURCE / "node_modules").exists():
        pytest.skip("no npm, or its packages are not there; `make dashboard` gets them")
    done = subprocess.run(
        ["npm", "test", "--silent"],
        cwd=SOURCE,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_states_are_those_of_the_core() -> None:
    (listed,) = re.findall(r"STATES = \[(.*?)\]", read("types.ts"), re.DOTALL)
    assert set(re.findall(r'"(\w+)"', listed)) == {str(state) for state in State}


def test_actions_offered_are_legal() -> None:
    offered = {
        State(state): set(re.findall(r'"(\w+)"', actions))
        for state, actions in re.findall(r"^  (\w+): \[(.*)\],$", read("words.ts"), re.MULTILINE)
    }
    for state, events in TRANSITIONS.items():
        legal = {str(event) for event in events if event in {Event(each) for each in Action}}
        # What leaves a task where it is need not be offered, unless a worker is asked.
        idle = {str(e) for e in events if can_lead(state, e, state) and state not in _AT_WORKERS}
        assert offered[state] == legal - idle, state


_AT_WORKERS = {State.ASSIGNED, State.RUNNING}


def test_policy_form_knows_every_field() -> None:
    fields = re.findall(r'field\("(\w+)",[^\n]*?(?:\[(.*?)\])?\),', read("policy.ts"))
    known = {name for name, _ in fields}
    # Lists are shown by the command line and REST, and changed there.
    lists = {"callbacks", "triggers", "fair_weights", "needs"}
    every = {field.name.removesuffix("_us") for field in msgspec.structs.fields(Policy)}
    assert known == every - lists
    choices = {name: set(re.findall(r'"(\w+)"', given)) for name, given in fields if given}
    kinds: dict[str, Iterable[StrEnum]] = {
        "on_lost": OnLost,
        "on_restart": OnRestart,
        "done": Done,
        "same": SAME_OF_QUEUES,
        "on_misfit": OnMisfit,
    }
    assert choices == {name: {str(each) for each in kind} for name, kind in kinds.items()}


def test_forms_know_every_setting() -> None:
    def known(name: str) -> set[str]:
        return set(re.findall(r'field\("(\w+)"', read(name)))

    def every(kind: type[msgspec.Struct]) -> set[str]:
        return {field.name.removesuffix("_us") for field in msgspec.structs.fields(kind)}

    assert known("limits.ts") == every(LimitSettings)
    assert known("quotas.ts") == every(NamespaceSettings)
    (offered,) = re.findall(r"ROLES = \[(.*?)\]", read("types.ts"))
    assert re.findall(r'"(\w+)"', offered) == [str(role) for role in Role]


def test_lock_file_names_no_address() -> None:
    assert '"resolved"' not in (SOURCE / "package-lock.json").read_text()
