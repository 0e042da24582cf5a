"""Seeds 0 to 299, in groups, so that a failure names its seed and how to run it alone."""

from __future__ import annotations

import pytest

from tests.simulation.run import simulate

_SEEDS = 300
_GROUP = 20


@pytest.mark.parametrize("begin", range(0, _SEEDS, _GROUP))
@pytest.mark.feature("D44")
def test_seeds(begin: int) -> None:
    """Nothing that must not happen happens, in any of these worlds."""
    for seed in range(begin, begin + _GROUP):
        try:
            report = simulate(seed)
        except Exception as error:
            error.add_note(f"run it alone: python -m tests.simulation --seed {seed} --trace")
            raise
        assert report.accepted > 0
        assert report.counts["AttemptFinished"] > 0


def test_worlds_are_eventful() -> None:
    """The worlds see what they are there for: restarts, losses, signals, retries, messages."""
    reports = [simulate(seed) for seed in range(10)]
    kinds = {kind for report in reports for kind in report.counts}
    assert sum(report.restarts for report in reports) >= 20
    assert {"RequestJoined", "AnswerStored", "AnswerUsed", "AnswersDropped"} <= kinds
    assert "HelpAsked" in kinds
    assert {"FencesReserved", "Forgotten", "Volatile"} <= kinds
    assert {"AttemptEnded", "SignalAdvanced", "TaskRevived", "TaskPurged", "TagLimited"} <= kinds


def test_a_seed_is_a_world() -> None:
    """The same seed gives the same world, to the last record."""
    assert simulate(7) == simulate(7)
