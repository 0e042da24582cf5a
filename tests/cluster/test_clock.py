"""A node whose clock is wrong: it follows, never leads, and no timer fires early because of it."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jackalope.broker.cluster.peer_link import PeerGone
from jackalope.core.durations import HOUR
from tests.cluster.brokers import Brokers, Process, until

pytestmark = pytest.mark.timeout(300)

SKEW = "jackalope_clock_skew_seconds "
AHEAD = {"JACKALOPE_CLOCK_OFFSET_US": str(HOUR)}


def role_of(process: Process) -> tuple[str, str]:
    """Return what a node is, and why."""
    try:
        status = process.status()
    except PeerGone:
        return "", ""
    return status.role, status.why


def test_a_node_that_is_an_hour_ahead_never_leads(tmp_path: Path) -> None:
    brokers = Brokers(tmp_path)
    ahead = brokers.all[0]
    try:
        for each in brokers.all:
            each.start()
        brokers.leader()
        ahead.kill()
        ahead.environment = AHEAD
        ahead.start()
        until(lambda: role_of(ahead)[0] == "following", brokers.all)
        first = brokers.leader()
        until(lambda: "3600 s ahead" in role_of(ahead)[1], brokers.all)
        at = datetime.now(UTC) + timedelta(minutes=30)
        later = {"queue": "later", "name": "later", "run_at": at.isoformat()}
        status, task = first.post("/api/v1/tasks", later)
        assert status == 201, task

        first.kill()
        other = brokers.leader()
        assert other not in (ahead, first)
        # Its place is the first among the members: it would have been the first to claim.
        assert role_of(ahead)[0] == "following"
        metrics = ahead.text("/metrics")
        skew_s = next(line for line in metrics.splitlines() if line.startswith(SKEW))
        assert float(skew_s.split()[1]) == pytest.approx(3_600, abs=30)

        other.kill()  # Nobody else is left, and its servers hold the log.
        seen: set[str] = set()
        end = time.monotonic() + 4 * 1.2
        while time.monotonic() < end:
            seen.add(role_of(ahead)[0])
            time.sleep(0.1)
        assert seen == {"following"}

        other.start()
        assert brokers.leader() is other
        status, shown = other.get(f"/api/v1/tasks/{task['id']}")
        assert (status, shown["state"]) == (200, "scheduled")
    finally:
        for each in brokers.all:
            each.end()


def test_a_leader_whose_clock_is_wrong_hands_over(tmp_path: Path) -> None:
    """It was alone when it began to lead, so that nobody told."""
    brokers = Brokers(tmp_path)
    ahead, second, third = brokers.all
    try:
        for each in brokers.all:
            each.start()
        brokers.leader()
        for each in brokers.all:
            each.kill()
        ahead.environment = AHEAD
        ahead.start()
        assert brokers.leader() is ahead
        for each in (second, third):
            each.start()
        until(lambda: "ahead" in role_of(ahead)[1], brokers.all)
        until(lambda: role_of(ahead)[0] == "following", brokers.all)
        assert brokers.leader() is not ahead
    finally:
        for each in brokers.all:
            each.end()
