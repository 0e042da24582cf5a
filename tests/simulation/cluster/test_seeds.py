"""Seeds 0 to 199 of clusters of three and five, in groups, so that a failure names its seed."""

from __future__ import annotations

import pytest

from jackalope.broker.cluster import node
from jackalope.broker.engine import Engine
from tests.simulation.cluster.run import simulate

_SEEDS = 200
_GROUP = 10


@pytest.mark.parametrize("begin", range(0, _SEEDS, _GROUP))
def test_seeds(begin: int) -> None:
    """Nothing that must not happen happens, in any of these worlds."""
    for seed in range(begin, begin + _GROUP):
        try:
            report = simulate(seed)
        except Exception as error:
            alone = f"python -m tests.simulation --cluster --seed {seed} --trace"
            error.add_note(f"run it alone: {alone}")
            raise
        assert report.accepted > 0
        assert report.counts["AttemptFinished"] > 0
        assert report.counts["Reads"] > 0


def test_leaders_put_empty_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same holds where a few beats in a row are followed by one, as after minutes."""
    monkeypatch.setattr(node, "_BEATS_MAX", 3)
    put, appended = Engine.append_empty, []

    def append_empty(self: Engine, level: int) -> None:
        put(self, level)
        appended.append(level)

    monkeypatch.setattr(Engine, "append_empty", append_empty)
    for seed in range(4):
        simulate(seed)
    assert len(appended) > 20


def test_worlds_are_eventful() -> None:
    """The worlds see what they are there for."""
    reports = [simulate(seed) for seed in range(8)]
    assert {report.nodes for report in reports} == {3, 5}
    assert sum(report.counts["Claims"] for report in reports) >= 30
    assert sum(report.counts["Compared"] for report in reports) >= 300
    assert sum(report.lives for report in reports) >= 35


def test_a_leader_that_cannot_ask_who_leads_tells_nothing_late() -> None:
    """Its entry is stored after a while, another has claimed, and the log is out of reach again."""
    simulate(1225)


def test_a_task_that_is_retried_stands_where_it_stood() -> None:
    """Volatile tasks came before it, which only the leader knew; its record says where it is."""
    simulate(937)


@pytest.mark.parametrize("seed", [474, 502])
def test_a_node_that_was_restored_claims_a_new_epoch(seed: int) -> None:
    """Its copy ends with the last entry of the log, and the leader is gone before it says more."""
    simulate(seed)


@pytest.mark.parametrize("seed", [138, 290])
def test_a_node_that_was_restored_learns_who_leads(seed: int) -> None:
    """The leader has no time for a beat."""
    simulate(seed)


def test_a_seed_is_a_world() -> None:
    """The same seed gives the same world, to the last record."""
    assert simulate(7) == simulate(7)
