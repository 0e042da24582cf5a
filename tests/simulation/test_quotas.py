"""Quotas, contracts and resources among faults; each planted bug is caught."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from jackalope.core import namespaces
from jackalope.core.assertions import BrokenInvariant
from jackalope.core.contracts import fit
from jackalope.core.placement import fit as placement
from jackalope.core.shapes.namespace import Bucket, NamespaceSettings, Quota
from jackalope.core.state.queue import Namespace, Queue
from jackalope.core.state.roster import Worker
from jackalope.core.tasks import submit
from jackalope.storage.faults import Corrupt
from tests.simulation import node, run
from tests.simulation.checker import Violation
from tests.simulation.run import Report, simulate

_SEEDS = 8

Patch = pytest.MonkeyPatch


def _reports(**kinds: bool) -> list[Report]:
    reports: list[Report] = []
    for seed in range(_SEEDS):
        try:
            reports.append(simulate(seed, **kinds))  # type: ignore[arg-type]
        except Exception as error:
            error.add_note(f"simulate({seed}, {kinds})")
            raise
    assert sum(report.restarts for report in reports) > 10
    return reports


def test_seeds_with_quotas() -> None:
    kinds = {kind for report in _reports(with_quotas=True) for kind in report.counts}
    refused = (Quota.TASKS_QUEUED, Quota.BYTES_STORED, Quota.SUBMITS_PER_SECOND)
    assert {f"Refused {quota}" for quota in refused} <= kinds
    assert {"ContractDeclared", "Misfit", "Full"} <= kinds


def test_seeds_with_needs() -> None:
    reports = _reports(with_needs=True)
    for amount in (1, 2, 4):
        assert sum(report.counts[f"Needs {amount}"] for report in reports) > 20
    assert sum(report.counts["Waits"] for report in reports) > 200


@pytest.fixture
def _only_the_checker_looks(monkeypatch: Patch) -> None:
    """Let no planted bug be found by the invariants of the core."""
    for module in (node, run):
        monkeypatch.setattr(module, "check", lambda _core: None)


def _caught(**kinds: bool) -> str:
    for seed in range(_SEEDS):
        try:
            simulate(seed, **kinds)  # type: ignore[arg-type]
        except (Violation, BrokenInvariant, Corrupt) as error:
            return str(error)
    return ""


_planted = pytest.mark.usefixtures("_only_the_checker_looks")


@_planted
@pytest.mark.parametrize(
    ("quota", "told"),
    [
        ("tasks_queued", "no more wait than may"),
        ("bytes_stored", "no more bytes than may be"),
        ("submits_per_second", "no more submits than may be"),
    ],
)
def test_a_quota_is_not_looked_at(monkeypatch: Patch, quota: str, told: str) -> None:
    room_for = namespaces.room_for

    def lenient(ctx: Any, queue: Queue, sizes: Sequence[int], **how: Any) -> Any:
        room, refusal = room_for(ctx, queue, sizes, **how)
        is_blind = getattr(refusal, "quota", "") == quota
        return (len(sizes), None) if is_blind else (room, refusal)

    monkeypatch.setattr(namespaces, "room_for", lenient)
    assert told in _caught(with_quotas=True)


@_planted
def test_a_restart_fills_the_bucket_of_submits(monkeypatch: Patch) -> None:
    take_row = Namespace.take_row

    def full(namespace: Namespace, row: Any) -> None:
        take_row(namespace, row)
        namespace.bucket_now = Bucket()

    monkeypatch.setattr(Namespace, "take_row", full)
    assert "no more submits than may be" in _caught(with_quotas=True)


@_planted
def test_a_quota_is_one_less_than_it_says(monkeypatch: Patch) -> None:
    tokens = Bucket.tokens

    def short(bucket: Bucket, settings: NamespaceSettings, now_us: int) -> int:
        return max(0, tokens(bucket, settings, now_us) - 1)

    monkeypatch.setattr(Bucket, "tokens", short)
    assert "nothing is refused that fits" in _caught(with_quotas=True)


@_planted
@pytest.mark.parametrize(
    ("by", "told"), [(1, "no more attempts than may be"), (-1, "what may start does start")]
)
def test_attempts_are_miscounted(monkeypatch: Patch, by: int, told: str) -> None:
    def wrong(namespace: Namespace) -> bool:
        limit = namespace.settings.concurrent_attempts
        return limit > 0 and namespace.leased >= limit + by

    monkeypatch.setattr(Namespace, "is_at_limit", wrong)
    monkeypatch.setattr(Namespace, "attempts_left", lambda _namespace: 1)
    assert told in _caught(with_quotas=True)


@_planted
@pytest.mark.parametrize("is_blind", [True, False])
def test_calls_are_misjudged(monkeypatch: Patch, is_blind: bool) -> None:
    """All of them are accepted, or only those that fit the newest version."""
    misfits_of = fit.misfits_of

    def misjudged(queue: Queue, specs: Any, **how: Any) -> dict[int, str]:
        if is_blind:
            return {}
        found = misfits_of(queue, specs, **how)
        for index, spec in enumerate(specs):
            known = queue.contracts.get(spec.name)
            if known is not None and known.checks[-1].problems(spec.payload, {}):
                found[index] = "old"
        return found

    monkeypatch.setattr(fit, "misfits_of", misjudged)
    monkeypatch.setattr(submit, "misfits_of", misjudged, raising=False)
    told = "a call fits a version" if is_blind else "what fits is accepted"
    assert told in _caught(with_quotas=True)


@_planted
def test_a_worker_is_given_more_than_it_has(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Worker, "has_left", lambda *_: True)
    assert "a worker is given no more than it has" in _caught(with_needs=True)


@_planted
def test_resources_leak_with_a_lost_worker(monkeypatch: Patch) -> None:
    free = Namespace.free_resources

    def leaky(namespace: Namespace, worker: str, needs: Any) -> None:
        if "." not in worker:
            free(namespace, worker, needs)

    monkeypatch.setattr(Namespace, "free_resources", leaky)
    assert "the first does not wait for a worker that is there" in _caught(with_needs=True)


@_planted
def test_a_large_task_starves(monkeypatch: Patch) -> None:
    """No worker is kept free for it."""
    monkeypatch.setattr(placement, "reserve", lambda *_: None)
    assert "a large task starts among small ones" in _caught(with_needs=True)
