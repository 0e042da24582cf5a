"""Limits by key among faults: never exceeded, nothing leaks; each planted bug is caught."""

from __future__ import annotations

import pytest

from jackalope.core.assertions import BrokenInvariant
from jackalope.core.ids import TaskId
from jackalope.core.limiting import crowds
from jackalope.core.shapes.limit import UNBOUNDED, Bucket
from jackalope.core.state.gates import Gate, GateName, GateNames, Gates
from jackalope.core.task import Task
from jackalope.storage.faults import Corrupt
from tests.simulation import node, run
from tests.simulation.checker import Violation
from tests.simulation.run import Report, simulate

_SEEDS = 24
_GROUP = 12

Patch = pytest.MonkeyPatch
Tasks = dict[TaskId, Task]


@pytest.mark.parametrize("begin", range(0, _SEEDS, _GROUP))
def test_seeds_with_limits(begin: int) -> None:
    reports: list[Report] = []
    for seed in range(begin, begin + _GROUP):
        try:
            reports.append(simulate(seed, with_limits=True))
        except Exception as error:
            error.add_note(f"simulate({seed}, with_limits=True)")
            raise
    kinds = {kind for report in reports for kind in report.counts}
    assert {"LimitSet", "LimitDeleted", "GatesClosed", "BucketsFilled", "Throttled"} <= kinds
    assert {f"Gave way: cancel_{which}" for which in ("newest", "oldest", "running")} <= kinds
    assert sum(report.counts["Limited"] for report in reports) > 500
    assert sum(report.counts["Waits"] for report in reports) > 5_000
    assert sum(report.restarts for report in reports) > 20


@pytest.fixture(autouse=True)
def _only_the_checker_looks(request: pytest.FixtureRequest, monkeypatch: Patch) -> None:
    """Let no planted bug be found by the invariants of the core, which know its gates."""
    if "begin" not in request.fixturenames:
        for module in (node, run):
            monkeypatch.setattr(module, "check", lambda _core: None)


def _caught() -> str:
    for seed in range(_SEEDS):
        try:
            simulate(seed, with_limits=True)
        except (Violation, BrokenInvariant, Corrupt) as error:
            return str(error)
    return ""


# Tokens.


def test_a_bucket_lets_nothing_wait_after_a_restart(monkeypatch: Patch) -> None:
    """It is put back, and the gate is not shut."""

    def open_again(gates: Gates, name: GateName, bucket: Bucket) -> None:
        gate = gates.gate(name)
        gate.bucket = bucket
        gates._time(gate)

    monkeypatch.setattr(Gates, "restore", open_again)
    caught = _caught()
    assert "a start has its tokens" in caught or "a closed key starts nothing" in caught


@pytest.mark.parametrize("tokens", [-1, 1])
def test_a_restart_loses_or_gains_tokens(monkeypatch: Patch, tokens: int) -> None:
    restore = Gates.restore

    def changed(gates: Gates, name: GateName, bucket: Bucket) -> None:
        bucket.units += tokens * gates.settings_of(name).per_us
        restore(gates, name, bucket)

    monkeypatch.setattr(Gates, "restore", changed)
    assert "replay equals memory" in _caught()


@pytest.mark.parametrize(
    ("times", "told"),
    [
        (2, ("nothing waits that could start",)),
        (0, ("a start has its tokens", "only a full bucket is forgotten")),
    ],
)
def test_a_bucket_leaks(monkeypatch: Patch, times: int, told: tuple[str, ...]) -> None:
    """Now and then a start takes twice its tokens, or none."""
    take = Gates._take

    def leaky(gates: Gates, gate: Gate, cost: int, at_us: int) -> None:
        for _ in range(times if at_us % 4 == 0 else 1):
            take(gates, gate, cost, at_us)

    monkeypatch.setattr(Gates, "_take", leaky)
    caught = _caught()
    assert any(each in caught for each in told)


# Slots.


def test_a_limit_is_exceeded_for_an_instant(monkeypatch: Patch) -> None:
    def lenient(gate: Gate) -> bool:
        bound = gate.settings.concurrency + bool(gate.name[0])  # Of tags another check knows.
        return gate.settings.concurrency != UNBOUNDED and gate.use >= bound

    monkeypatch.setattr(Gate, "is_full", lenient)
    assert "a limit is never exceeded" in _caught()


def test_a_slot_leaks_with_its_worker(monkeypatch: Patch) -> None:
    """The lease of some tasks ends, and their slots are kept."""
    free = Gates.free

    def leaky(gates: Gates, task: Task, tasks: Tasks) -> None:
        if task.id[-1] % 4 or not task.interruptions + task.crashes:
            free(gates, task, tasks)
        else:
            gates.held.pop(task.id, None)

    monkeypatch.setattr(Gates, "free", leaky)
    caught = _caught()
    assert any(
        told in caught
        for told in ("nothing waits that could start", "no slot and no token is lost", "ends once")
    )


# Who waits.


def test_a_closed_key_holds_up_another(monkeypatch: Patch) -> None:
    """The users share one gate, which one of them can close for all."""
    names = Gates.names

    def coarse(gates: Gates, task: Task) -> GateNames:
        found = names(gates, task)
        return tuple(
            ((name[0], "all of them") if name[0] == "per-user" else name, cost)
            for name, cost in found
        )

    monkeypatch.setattr(Gates, "names", coarse)
    caught = _caught()
    assert "nothing waits that could start" in caught or "the best goes first" in caught


def test_a_gate_does_not_open(monkeypatch: Patch) -> None:
    look = Gates.look

    def blind(gates: Gates, name: GateName, tasks: Tasks) -> None:
        if gates.changes.now_us % 4:
            look(gates, name, tasks)

    monkeypatch.setattr(Gates, "look", blind)
    assert "nothing waits that could start" in _caught()


def test_the_worst_goes_first(monkeypatch: Patch) -> None:
    push = Gates._push
    monkeypatch.setattr(
        Gates, "_push", lambda gates, gate, lane, place: push(gates, gate, lane, -place)
    )
    monkeypatch.setattr(Gates, "_fresh", lambda gates, gate, kind, _: gate.parked.get(kind, []))
    assert _caught()


# Throttled keys.


def test_a_throttled_key_stays_open(monkeypatch: Patch) -> None:
    close = Gates.close

    def lax(gates: Gates, name: GateName, at_us: int, until_us: int, tasks: Tasks) -> Gate:
        return close(gates, name, at_us, at_us + (until_us - at_us) // 2, tasks)

    monkeypatch.setattr(Gates, "close", lax)
    caught = _caught()
    assert "a closed key starts nothing" in caught or "only a full bucket is forgotten" in caught


def test_a_throttled_key_is_forgotten_by_a_restart(monkeypatch: Patch) -> None:
    restore = Gates.restore

    def forgetful(gates: Gates, name: GateName, bucket: Bucket) -> None:
        restore(gates, name, Bucket(bucket.units, bucket.at_us))

    monkeypatch.setattr(Gates, "restore", forgetful)
    assert "replay equals memory" in _caught()


# Who gives way.


def test_none_gives_way(monkeypatch: Patch) -> None:
    monkeypatch.setattr(crowds, "_thin_out", lambda *_: None)
    caught = _caught()
    assert any(told in caught for told in ("none waits that", "one waits", "as many wait"))


def test_one_too_many_gives_way(monkeypatch: Patch) -> None:
    queued = Gate.queued
    monkeypatch.setattr(Gate, "queued", lambda gate: queued(gate) + 1)
    caught = _caught()
    assert any(told in caught for told in ("while there is room", "newest give", "oldest gives"))
