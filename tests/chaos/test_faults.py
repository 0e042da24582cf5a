"""A cluster on three machines under load, to which one thing after the other happens.

The faults here take some seconds each; `make chaos` runs all of them, and for longer.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.chaos import checks, faults, machines
from tests.chaos.evidence import Evidence
from tests.chaos.history import now
from tests.chaos.run import Run, longest_gap_s, running

pytestmark = pytest.mark.timeout(600)

#: How long nothing may be acknowledged. In earnest it is less than two seconds where only a broker
#: is lost, and up to ten where the log has to elect; here two cores run all of it, and other tests.
GAP_S = 60.0

QUICK = (
    faults.kill_leader,
    faults.stop_leader,
    faults.restart_leader,
    faults.cut_off,
    faults.fill_history,
    faults.lose_majority,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    if reason := machines.why_not():
        pytest.skip(reason)
    with running(tmp_path_factory.mktemp("machines"), disk_mb=200) as run:
        yield run


@pytest.fixture(scope="module")
def evidence(run: Run) -> Evidence:
    """End the run: what is asked for after this is about what it left."""
    return run.finish()


@pytest.mark.parametrize("do", QUICK, ids=lambda do: str(do.__name__))
def test_the_cluster_goes_on(run: Run, do: faults.Do) -> None:
    began = now()
    do(run, random.Random(1))
    run.settle()
    assert longest_gap_s(run.acknowledgements(), began, now()) < GAP_S


@pytest.mark.feature("D36")
@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: str(check.__name__))
def test_it_kept_its_promises(evidence: Evidence, check: checks.Check) -> None:
    assert check(evidence) == []


def test_something_was_promised(evidence: Evidence) -> None:
    assert checks.acknowledged(evidence) > 100
    assert len(evidence.led) > 1
    assert {op.outcome for op in evidence.ops if op.kind == "publish"} >= {"ok"}
