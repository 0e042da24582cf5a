"""Bugs of flows that are planted with one broker and with a cluster: both must be caught."""

from __future__ import annotations

from typing import Any

import pytest

from jackalope.core import invariants
from jackalope.core.flows import progress
from jackalope.core.shapes.flow import MEMBERS_FROM, Input
from jackalope.core.state import flows
from jackalope.core.task import Task

Patch = pytest.MonkeyPatch


def lose_joins(monkeypatch: Patch) -> None:
    """Do not count the end of some nodes with those that wait for their group."""
    original = flows.arrive

    def forgetful(whole: Any, task: Task, ended: Task, place: int) -> None:
        if place < MEMBERS_FROM or ended.id[-1] % 4:
            original(whole, task, ended, place)

    monkeypatch.setattr(flows, "arrive", forgetful)


def join_too_early(monkeypatch: Patch) -> None:
    """Count one node more than has ended."""
    original = flows.prospect

    def hasty(state: Any, task: Task) -> flows.Prospect:
        own = flows.node_state(task)
        total, _ = flows.awaited(state, task)
        is_near = own.succeeded and own.succeeded + own.failed == total - 1
        return flows.Prospect.GO if is_near else original(state, task)

    monkeypatch.setattr(progress, "prospect", hasty)
    monkeypatch.setattr(invariants, "prospect", hasty)


def mix_inputs(monkeypatch: Patch) -> None:
    """Give a node what another one left."""
    original = flows.input_of

    def mixed(task: Task) -> Input:
        each = original(task)
        return Input(each.node, each.task, each.state, b"not it") if task.id[-1] % 4 == 0 else each

    monkeypatch.setattr(flows, "input_of", mixed)
