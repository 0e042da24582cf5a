"""AiiDA end to end: workers, the broker and the daemon end with work at hand.

Each test leaves the lab as the next one finds it: the daemon runs with two workers, and the gate is
open.
"""

from __future__ import annotations

from tests.aiida.lab import NEEDS_AIIDA, Lab

pytestmark = NEEDS_AIIDA


def test_a_worker_and_the_broker_are_killed(lab: Lab) -> None:
    lab.close_gate()
    pks = lab.ask("submit_adds", 4) + lab.ask("submit_chains", 4)
    lab.wait_until_begun(pks)
    before = lab.ask("workers")
    lab.kill(before[0])
    broker = lab.broker_pid()
    lab.kill(broker)
    lab.tell("submit_adds", 2)  # While there is no broker.
    pks += lab.hear()
    pks += lab.ask("submit_chains", 1)
    assert lab.broker_pid() != broker
    lab.open_gate()
    lab.wait_until_ended(pks)
    lab.assert_run_once(pks)
    lab.wait(lambda: len(lab.ask("workers")) == 2, "a new worker is there")
    assert lab.ask("workers") != before


def test_the_daemon_restarts_with_work_at_hand(lab: Lab) -> None:
    lab.close_gate()
    pks = lab.ask("submit_adds", 2) + lab.ask("submit_chains", 2)
    lab.wait_until_begun(pks)
    lab.verdi("daemon", "restart")
    lab.open_gate()
    lab.wait_until_ended(pks)
    lab.assert_run_once(pks)


def test_the_daemon_restarts_under_full_load(lab: Lab) -> None:
    """Processes are in every step of their lives when their workers are replaced, twice."""
    pks = lab.ask("submit_adds", 10) + lab.ask("submit_chains", 6)
    for _ in range(2):
        ended = lab.ask("states", pks).count("finished")
        lab.wait(lambda: lab.ask("states", pks).count("finished") > ended, "one more ends")  # noqa: B023
        assert lab.ask("states", pks).count("finished") < len(pks)
        lab.verdi("daemon", "restart")
    lab.wait_until_ended(pks)
    lab.assert_run_once(pks)
