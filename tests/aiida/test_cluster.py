"""AiiDA end to end at a follower of a cluster, whose leader is killed with work at hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.aiida.lab import NEEDS_AIIDA, Lab
from tests.cluster.brokers import Brokers, Process, running, until

pytestmark = NEEDS_AIIDA


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with running(tmp_path_factory.mktemp("nodes")) as brokers:
        brokers.leader()
        until(lambda: all(is_ready(each) for each in brokers.all), brokers.all)
        yield brokers


def is_ready(node: Process) -> bool:
    return node.get("/health/ready")[0] == 200


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, brokers: Brokers) -> Iterator[Lab]:
    """Return a lab that knows one follower, with a daemon of two workers."""
    lab = Lab(tmp_path_factory.mktemp("lab"))
    try:
        lab.make_profile("core.zeromq", {"supervised_by_daemon": True})
        address = f"jackalope://{brokers.follower().address('native')}"
        assert lab.quickly("jackalope", "aiida", "use", "lab", "--broker", address).well
        lab.furnish()
        lab.start_daemon()
        yield lab
    finally:
        lab.close()


@pytest.mark.parametrize("ends", [Process.kill, Process.stop], ids=["killed", "told to stop"])
def test_every_process_ends_once_when_the_leader_goes(
    lab: Lab, brokers: Brokers, ends: object
) -> None:
    for each in brokers.all:
        if not each.is_up:
            each.start()
    until(lambda: all(is_ready(each) for each in brokers.all), brokers.all)
    before = lab.ask("workers")
    lab.close_gate()
    pks = lab.ask("submit_adds", 2) + lab.ask("submit_chains", 2)
    lab.wait_until_begun(pks)
    leader = brokers.leader()
    assert callable(ends)
    ends(leader)
    lab.tell("submit_adds", 2)  # While no node leads.
    pks += lab.hear()
    pks += lab.ask("submit_chains", 1)
    lab.open_gate()
    lab.wait_until_ended(pks)
    lab.assert_run_once(pks)
    assert brokers.leader() is not leader
    assert lab.ask("workers") == before, "workers outlive it"
    assert not lab.has_own_broker()
