"""The contract of the series, on every backend."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from jackalope.storage import NewerFormat, Point, SeriesStore


def point(at_s: int, step_s: int = 10, namespace: str = "n", body: bytes = b"x") -> Point:
    return Point(step_s, at_s, namespace, "q", body)


@pytest.fixture(params=["sqlite", "memory"])
def series(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SeriesStore]:
    is_file = request.param == "sqlite"
    with closing(
        SeriesStore.open(tmp_path / "series.db") if is_file else SeriesStore(None)
    ) as store:
        yield store


def test_points_come_back_in_order(series: SeriesStore) -> None:
    points = [point(30), point(10), point(20, namespace="m"), point(20)]
    series.write(points, {})
    assert series.read(10, 0, 100) == [points[1], points[2], points[3], points[0]]
    assert series.read(10, 20, 30) == [points[2], points[3]]
    assert series.read(10, 0, 100, "m") == [points[2]]
    assert series.read(300, 0, 100) == []


def test_point_of_the_same_time_is_replaced(series: SeriesStore) -> None:
    series.write([point(10), point(10, step_s=300)], {})
    series.write([point(10, body=b"y"), point(10, namespace="m")], {})
    assert [each.body for each in series.read(10, 0, 100, "n")] == [b"y"]
    assert len(series.read(10, 0, 100)) == 2
    assert [each.body for each in series.read(300, 0, 100)] == [b"x"]


def test_last(series: SeriesStore) -> None:
    assert series.last(10) is None
    series.write([point(10), point(40), point(300, step_s=300)], {})
    assert (series.last(10), series.last(300), series.last(60)) == (40, 300, None)


def test_what_is_not_kept_goes(series: SeriesStore) -> None:
    series.write([point(at_s) for at_s in (10, 20, 30)] + [point(10, step_s=300)], {})
    series.write([point(40)], {10: 20})
    assert [each.at_s for each in series.read(10, 0, 100)] == [20, 30, 40]
    assert [each.at_s for each in series.read(300, 0, 100)] == [10]


def test_close_is_safe_to_repeat(series: SeriesStore) -> None:
    series.close()
    series.close()


# The file.


def test_points_are_there_the_next_time(tmp_path: Path) -> None:
    for at_s in (10, 20):
        with closing(SeriesStore.open(tmp_path / "series.db")) as store:
            store.write([point(at_s)], {})
            assert len(store.read(10, 0, 100)) == at_s // 10


def test_damaged_file_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "series.db"
    path.write_bytes(b"not a database " * 1_000)
    with closing(SeriesStore.open(path)) as store:
        store.write([point(10)], {})
        assert store.last(10) == 10
    assert (tmp_path / "series.db.damaged").read_bytes().startswith(b"not a database")


def test_file_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "series.db"
    with closing(SeriesStore.open(path)) as store, store._db.statement() as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(NewerFormat, match=r"series\.db"):
        SeriesStore.open(path)
