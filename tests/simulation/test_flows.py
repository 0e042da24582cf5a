"""Flows among faults: joins fire once, with the right inputs, and every flow ends."""

from __future__ import annotations

import pytest

from jackalope.core.assertions import BrokenInvariant
from jackalope.storage.faults import Corrupt
from tests.simulation.checker import Violation
from tests.simulation.run import Report, simulate

_SEEDS = 20
_GROUP = 5

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("begin", range(0, _SEEDS, _GROUP))
def test_seeds_with_flows(begin: int) -> None:
    reports: list[Report] = []
    for seed in range(begin, begin + _GROUP):
        try:
            reports.append(simulate(seed, with_flows=True))
        except Exception as error:
            error.add_note(f"simulate({seed}, with_flows=True)")
            raise
    kinds = {kind for report in reports for kind in report.counts}
    assert {"FlowFailed", "FlowStopped", "GroupsClosed", "NodeReleased", "Inputs"} <= kinds
    assert {"Flow dead", "Flow killed", "Flow succeeded", "FlowRevived"} <= kinds
    assert sum(report.restarts for report in reports) > 2


def _caught() -> str:
    for seed in range(_SEEDS):
        try:
            simulate(seed, with_flows=True)
        except (Violation, BrokenInvariant, Corrupt) as error:
            return str(error)
    return ""
