"""The series keep what the meter read, short and long, over restarts."""

from pathlib import Path

import pytest

from jackalope.broker.telemetry.meter import Reading
from jackalope.broker.telemetry.time_series import COARSE_S, FINE_S, HOUR_S, KEPT_S, Series
from jackalope.core.durations import SECOND
from jackalope.storage import Corrupt, DiskFull, Point
from jackalope.storage.sqlite.series import SeriesStore
from tests.broker.telemetry.metered import Metered


def everything(_: str) -> bool:
    return True


class Kept(Metered):
    """A metered driver whose readings are kept. Its clock begins with a long interval."""

    def __init__(self, store: SeriesStore) -> None:
        super().__init__()
        self.is_checked = False
        self.now_us = self.now_us // SECOND // COARSE_S * COARSE_S * SECOND
        self.store = store
        self.reopen()
        self._last = 0

    def reopen(self) -> None:
        self.series = Series(self.store, self.meter, self.now_us)

    def work(self, tasks: int, seconds: int = 1) -> None:
        """Let so many tasks run for some time."""
        self.join("w1", 1, slots=1_000)
        numbers = range(self._last + 1, self._last + tasks + 1)
        self._last += tasks
        for number in numbers:
            self.submit(number)
            self.start(number)
        self.tick(seconds * SECOND)
        for number in numbers:
            self.finish(number)

    def pass_time(self, seconds: int) -> None:
        """Let time pass, and close every interval on the way."""
        for _ in range(seconds // FINE_S):
            self.now_us = (self.now_us // SECOND // FINE_S + 1) * FINE_S * SECOND
            self.series.write(self.series.close(self.now_us, self.core))

    def read(self, step_s: int, queue: str = "", last_s: int = 86_400) -> list[tuple[int, Reading]]:
        now_s = self.now_us // SECOND
        return self.series.between(
            "default", queue, now_s - last_s, now_s, step_s=step_s, sees=everything
        )


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(SeriesStore(tmp_path / "series.db"))


def test_a_point_for_every_interval(kept: Kept) -> None:
    begin_s = kept.now_us // SECOND
    kept.work(3)
    kept.submit(99, "elsewhere")
    kept.pass_time(30)
    points = kept.read(FINE_S)
    assert [at_s - begin_s for at_s, _ in points] == [0, 10, 20]
    assert [reading.succeeded for _, reading in points] == [3, 0, 0]
    assert [reading.submitted for _, reading in points] == [4, 0, 0]
    assert [reading.depth for _, reading in points] == [1, 1, 1]
    assert [reading.workers for _, reading in points] == [1, 1, 1]
    assert points[0][1].started.mean() == SECOND
    (_, alone), *_ = kept.read(FINE_S, "q")
    assert (alone.submitted, alone.depth) == (3, 0)


def test_longer_steps_add_up(kept: Kept) -> None:
    for tasks in (1, 2, 3, 4, 5, 6):
        kept.work(tasks)
        kept.pass_time(10)
    points = kept.read(30)
    assert [reading.succeeded for _, reading in points] == [6, 15]
    assert points[1][1].started.number() == 15


def test_long_intervals_are_made_once_they_are_complete(kept: Kept) -> None:
    kept.work(5)
    kept.pass_time(COARSE_S - FINE_S)
    assert kept.read(COARSE_S) == []
    kept.pass_time(FINE_S)
    kept.work(7)
    kept.pass_time(COARSE_S)
    assert [reading.succeeded for _, reading in kept.read(COARSE_S)] == [5, 7]
    fine = sum(reading.succeeded for _, reading in kept.read(FINE_S))
    assert fine == sum(reading.succeeded for _, reading in kept.read(COARSE_S))


def test_long_interval_over_a_restart(kept: Kept) -> None:
    kept.work(2)
    kept.pass_time(COARSE_S // 2)
    kept.now_us += 2 * COARSE_S * SECOND  # The broker was away, and missed the end.
    kept.reopen()
    kept.work(1)
    kept.pass_time(COARSE_S)
    assert [reading.succeeded for _, reading in kept.read(COARSE_S)] == [2, 1]


def test_what_is_old_is_dropped(kept: Kept) -> None:
    kept.work(1)
    kept.pass_time(FINE_S)
    begin_s = kept.now_us // SECOND - FINE_S
    for step_s in (FINE_S, COARSE_S):
        old = Point(step_s, begin_s - KEPT_S[step_s] - COARSE_S, "default", "q", b"\x90")
        kept.store.write([old], {})
    kept.pass_time(COARSE_S)
    for step_s in (FINE_S, COARSE_S):
        ages = [begin_s - p.at_s for p in kept.store.read(step_s, 0, begin_s + HOUR_S)]
        assert max(ages) <= KEPT_S[step_s]
    assert kept.store.read(COARSE_S, 0, begin_s + HOUR_S)


def test_restart_within_an_interval(kept: Kept) -> None:
    kept.work(2)
    kept.series.write(kept.series.close(kept.now_us, kept.core))
    kept.reopen()
    kept.work(3, seconds=5)
    assert kept.series.last_hour("default", everything).succeeded == 5
    kept.pass_time(20)
    assert [reading.succeeded for _, reading in kept.read(FINE_S)] == [5, 0]
    assert kept.series.last_hour("default", everything).succeeded == 5


# The last hour.


def test_last_hour_counts_what_has_just_happened(kept: Kept) -> None:
    kept.work(4)
    hour = kept.series.last_hour("default", everything)
    assert (hour.succeeded, hour.dead, hour.mean_run_s) == (4, 0, 1.0)
    kept.pass_time(FINE_S)
    assert kept.series.last_hour("default", everything) == hour
    assert kept.series.last_hour("other", everything).succeeded == 0
    assert kept.series.last_hour("default", lambda queue: queue != "q").succeeded == 0


def test_last_hour_goes_on_after_a_restart(kept: Kept) -> None:
    kept.work(4)
    kept.pass_time(60)
    before = kept.series.last_hour("default", everything)
    kept.reopen()
    assert kept.series.last_hour("default", everything) == before


def test_last_hour_ends(kept: Kept) -> None:
    kept.work(4)
    kept.pass_time(HOUR_S)
    assert kept.series.last_hour("default", everything).succeeded == 4
    kept.pass_time(FINE_S)
    assert kept.series.last_hour("default", everything).succeeded == 0
    assert not kept.series._recent


# Faults.


def test_rates_are_those_of_the_last_minute(kept: Kept) -> None:
    begin_us = kept.now_us
    kept.work(30)
    young = kept.series.rates("default", begin_us + 10 * SECOND, begin_us, everything)
    assert young == {"q": 3.0}, "before its start there was nothing to count"
    kept.pass_time(60)
    old_us = begin_us - 3_600 * SECOND
    assert kept.series.rates("default", kept.now_us, old_us, everything) == {"q": 0.5}
    assert kept.series.rates("other", kept.now_us, old_us, everything) == {}
    assert kept.series.rates("default", kept.now_us, old_us, lambda queue: queue != "q") == {}
    kept.pass_time(10)
    assert kept.series.rates("default", kept.now_us, old_us, everything) == {}


def test_full_disk_costs_points_and_nothing_else(kept: Kept) -> None:
    with kept.store._db.statement() as connection:
        connection.execute("PRAGMA max_page_count = 1")
    with pytest.raises(DiskFull):
        kept.store.write([Point(FINE_S, 0, "n", "q", b"x" * 100_000)], {})
    kept.work(1)
    points = [Point(FINE_S, n, "n", "q", b"x" * 10_000) for n in range(10)]
    kept.series.write(points)
    kept.series.write(points)
    assert kept.store.read(FINE_S, 0, 100) == []
    with kept.store._db.statement() as connection:
        connection.execute("PRAGMA max_page_count = 1000000")
    kept.pass_time(FINE_S)
    assert [reading.succeeded for _, reading in kept.read(FINE_S)] == [1]


def test_points_that_cannot_be_read_cost_themselves_and_nothing_else(kept: Kept) -> None:
    kept.work(2)
    kept.pass_time(FINE_S)
    at_s = kept.now_us // SECOND
    kept.store.write([Point(FINE_S, at_s - 2 * FINE_S, "default", "q", b"\xc1 nonsense")], {})
    kept.reopen()
    assert kept.series.last_hour("default", everything).succeeded == 2
    kept.pass_time(COARSE_S)
    assert sum(reading.succeeded for _, reading in kept.read(COARSE_S)) == 2


class Unreadable(SeriesStore):
    """A file whose pages are damaged further on than anybody looks when it is opened."""

    def read(self, *_: object) -> list[Point]:
        raise Corrupt("series.db: a page is damaged")


def test_file_that_cannot_be_read_keeps_nobody_from_starting(tmp_path: Path) -> None:
    kept = Kept(Unreadable(tmp_path / "series.db"))
    kept.work(1)
    kept.pass_time(2 * FINE_S)
    assert kept.series.last_hour("default", everything).succeeded == 1
