"""`logs.db`: lines of attempts, and what is removed when there are too many."""

from pathlib import Path

import pytest

from jackalope.core.ids import TaskId
from jackalope.core.shapes.task_log import LogLevel, LogLine, LogStream
from jackalope.storage.sqlite.task_logs import (
    LINE_OVERHEAD_BYTES,
    LogStore,
    Slice,
    Wanted,
    line_bytes,
)

ONE, TWO = TaskId(b"1" * 16), TaskId(b"2" * 16)
MUCH = 1 << 40


def lines(first: int, last: int, text: str = "line") -> list[LogLine]:
    return [LogLine(number, number, f"{text} {number}") for number in range(first, last + 1)]


def piece(task: TaskId = ONE, fence: int = 1, at_us: int = 1, **given: object) -> Slice:
    kept = given.get("lines", [])
    assert isinstance(kept, list)
    return Slice(task, fence, fence, "default", kept, 0, at_us)


def write(
    store: LogStore, *slices: Slice, attempt_bytes_max: int = MUCH, bytes_max: int = MUCH
) -> list[tuple[int, int]]:
    return store.write(slices, attempt_bytes_max=attempt_bytes_max, bytes_max=bytes_max)


def texts(store: LogStore, task: TaskId = ONE, wanted: Wanted | None = None) -> list[str]:
    return [line.text for line in store.read(task, wanted or Wanted())]


@pytest.fixture
def store(tmp_path: Path) -> LogStore:
    return LogStore.open(tmp_path / "logs.db")


def test_line_that_comes_again_is_not_stored_again(store: LogStore) -> None:
    assert write(store, piece(lines=lines(1, 3))) == [(3, 0)]
    assert write(store, piece(lines=lines(2, 5))) == [(2, 0)]
    assert texts(store) == [f"line {number}" for number in range(1, 6)]
    (kept,) = store.attempts(ONE)
    assert (kept.lines, kept.dropped) == (5, 0)
    assert store.bytes == kept.size == sum(map(line_bytes, lines(1, 5)))


def test_lines_without_numbers_get_the_next_ones(store: LogStore) -> None:
    unnumbered = [LogLine(0, 1, "a"), LogLine(0, 1, "b")]
    write(store, piece(lines=unnumbered), piece(lines=unnumbered))
    assert [line.number for line in store.read(ONE, Wanted())] == [1, 2, 3, 4]


def test_gap_in_the_numbers_is_what_was_dropped(store: LogStore) -> None:
    write(store, piece(lines=[*lines(1, 2), *lines(10, 10)]))
    late = Slice(ONE, 1, 1, "default", [], 20, 1)
    write(store, late)
    (kept,) = store.attempts(ONE)
    assert (kept.lines, kept.dropped) == (3, 17)


def test_oldest_lines_of_an_attempt_are_pushed_out(store: LogStore) -> None:
    most = 50 * (LINE_OVERHEAD_BYTES + 8)
    ((new, pushed),) = write(store, piece(lines=lines(1, 1_000)), attempt_bytes_max=most)
    (kept,) = store.attempts(ONE)
    assert (new, pushed) == (1_000, kept.dropped)
    assert kept.size <= most
    assert kept.size == store.bytes
    assert texts(store)[-1] == "line 1000"
    assert [line.number for line in store.read(ONE, Wanted())] == list(
        range(1_001 - kept.lines, 1_001)
    )


@pytest.mark.parametrize(("excess", "is_there"), [(0, True), (1, False)])
def test_attempts_that_wrote_longest_ago_are_removed(
    store: LogStore, excess: int, is_there: bool
) -> None:
    write(store, piece(TWO, at_us=1, lines=lines(1, 10)))
    write(store, piece(ONE, at_us=2, lines=lines(1, 10)))
    most = store.bytes + line_bytes(lines(1, 1)[0]) - excess
    write(store, piece(ONE, fence=2, at_us=3, lines=lines(1, 1)), bytes_max=most)
    assert bool(texts(store, TWO)) is is_there
    assert len(texts(store)) == 11
    assert store.bytes == sum(each.size for task in (ONE, TWO) for each in store.attempts(task))


def test_old_attempts_are_forgotten(store: LogStore) -> None:
    write(store, piece(ONE, at_us=10, lines=lines(1, 1)), piece(TWO, at_us=20, lines=lines(1, 1)))
    assert store.forget(20) == 1
    assert (texts(store, ONE), texts(store, TWO)) == ([], ["line 1"])
    assert store.forget(20) == 0
    store.remove_tasks([TWO])
    assert (store.bytes, store.tasks(b"", 10)) == (0, [])


def test_reading_ranges_levels_and_text(store: LogStore) -> None:
    mixed = [
        LogLine(1, 10, "100% done", LogLevel.INFO),
        LogLine(2, 20, "100_000 left", LogLevel.WARN, LogStream.STDERR),
        LogLine(3, 30, "Broken!", LogLevel.ERROR, LogStream.LOG, "shop"),
        LogLine(4, 40, "detail", LogLevel.DEBUG),
    ]
    write(store, piece(fence=5, lines=mixed), piece(fence=7, lines=lines(1, 2)))
    assert texts(store, wanted=Wanted(level=LogLevel.WARN)) == ["100_000 left", "Broken!"]
    assert texts(store, wanted=Wanted(text="100%")) == ["100% done"]
    assert texts(store, wanted=Wanted(text="0_0")) == ["100_000 left"]
    assert texts(store, wanted=Wanted(text="broken!")) == ["Broken!"]
    assert texts(store, wanted=Wanted(since_us=30, attempt=5)) == ["Broken!", "detail"]
    assert texts(store, wanted=Wanted(after=(5, 3))) == ["detail", "line 1", "line 2"]
    assert texts(store, wanted=Wanted(before=(5, 2))) == ["100% done"]
    assert texts(store, wanted=Wanted(after=(5, 4), limit=1)) == ["line 1"]
    assert texts(store, wanted=Wanted(before=(7, 2), limit=2, is_tail=True)) == ["detail", "line 1"]
    assert texts(store, wanted=Wanted(fence=7)) == ["line 1", "line 2"]
    line = store.read(ONE, Wanted(text="Broken"))[0]
    assert (line.id, line.attempt, line.logger, line.stream) == ("5-3", 5, "shop", "log")


def test_lines_are_there_after_a_restart(tmp_path: Path, store: LogStore) -> None:
    write(store, piece(lines=lines(1, 3)))
    size = store.bytes
    store.close()
    again = LogStore.open(tmp_path / "logs.db")
    assert again.bytes == size
    assert len(texts(again)) == 3


def test_damaged_file_is_put_aside(tmp_path: Path, store: LogStore) -> None:
    write(store, piece(lines=lines(1, 1_000)))
    store.close()
    path = tmp_path / "logs.db"
    path.write_bytes(b"not a database, whatever it was before" * 1_000)
    again = LogStore.open(path)
    assert texts(again) == []
    assert path.with_name("logs.db.damaged").exists()
