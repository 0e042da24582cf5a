"""The contract of `Journal`, on every backend."""

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackalope.core.assertions import BrokenInvariant
from jackalope.core.durations import HOUR
from jackalope.storage import Corrupt, Fenced, Journal, Level
from jackalope.storage.memory import Log, MemoryJournal
from jackalope.storage.segments.journal import SegmentJournal
from jackalope.storage.sqlite.journal import BATCHES_PER_READ, SqliteJournal

OpenJournal = Callable[[], Journal]

BACKENDS = ["memory", "fsync", "interval", "segments-fsync", "segments-interval"]


def opener(backend: str, folder: Path, opened: ExitStack) -> OpenJournal:
    """Return a function that opens the same journal each time; all are closed with `opened`."""
    log = Log()

    def open_journal() -> Journal:
        if backend == "memory":
            return MemoryJournal(log)
        journal: SqliteJournal | SegmentJournal
        level = Level(backend.removeprefix("segments-"))
        if backend.startswith("segments"):
            journal = SegmentJournal(folder / "journal", level, interval_us=HOUR)
        else:
            journal = SqliteJournal(folder / "journal.db", level, interval_us=HOUR)
        opened.callback(journal.close)
        return journal

    return open_journal


@pytest.fixture(params=BACKENDS)
def open_journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenJournal]:
    with ExitStack() as opened:
        yield opener(request.param, tmp_path, opened)


@pytest.fixture
def journal(open_journal: OpenJournal) -> Journal:
    journal = open_journal()
    journal.claim()
    return journal


def test_new_journal_is_empty(journal: Journal) -> None:
    assert (journal.last(), journal.trimmed(), list(journal.read(0))) == (0, 0, [])


def test_sequences_count_from_one(journal: Journal) -> None:
    assert [journal.append(body) for body in (b"a", b"b", b"c")] == [1, 2, 3]
    assert journal.last() == 3


def test_read_returns_what_is_later_in_order(journal: Journal) -> None:
    for body in (b"a", b"b", b"c"):
        journal.append(body)
    assert list(journal.read(0)) == [(1, b"a"), (2, b"b"), (3, b"c")]
    assert list(journal.read(2)) == [(3, b"c")]
    assert list(journal.read(3)) == []


def test_body_of_any_size(journal: Journal) -> None:
    bodies = [bytes([size % 251]) * size for size in (0, 1, 8191, 8192, 100_000, 3_000_000)]
    for body in bodies:
        journal.append(body)
    assert [body for _, body in journal.read(0)] == bodies


def test_more_batches_than_are_read_at_once(journal: Journal) -> None:
    count = 2 * BATCHES_PER_READ + 1
    for number in range(count):
        journal.append(b"%d" % number)
    assert list(journal.read(0)) == [(number + 1, b"%d" % number) for number in range(count)]


def test_append_while_reading(journal: Journal) -> None:
    for _ in range(3):
        journal.append(b"x")
    reading = journal.read(0)
    assert next(reading) == (1, b"x")
    assert journal.append(b"y") == 4
    assert [sequence for sequence, _ in reading][:2] == [2, 3]


def test_append_before_claim_is_a_bug(open_journal: OpenJournal) -> None:
    with pytest.raises(BrokenInvariant, match="claim"):
        open_journal().append(b"x")


def test_sync_before_claim_has_nothing_to_do(open_journal: OpenJournal) -> None:
    open_journal().sync()


def test_content_survives_opening_again(journal: Journal, open_journal: OpenJournal) -> None:
    journal.append(b"a")
    journal.append(b"b")
    journal.close()
    again = open_journal()
    assert again.last() == 2
    assert list(again.read(0)) == [(1, b"a"), (2, b"b")]
    again.claim()
    assert again.append(b"c") == 3


@pytest.mark.feature("T23")
def test_trim_removes_the_beginning(journal: Journal) -> None:
    for body in (b"a", b"b", b"c"):
        journal.append(body)
    journal.trim(2)
    assert (journal.trimmed(), journal.last()) == (2, 3)
    assert list(journal.read(2)) == [(3, b"c")]


def test_trim_of_what_is_trimmed_does_nothing(journal: Journal) -> None:
    for body in (b"a", b"b", b"c"):
        journal.append(body)
    journal.trim(2)
    journal.trim(1)
    assert (journal.trimmed(), list(journal.read(2))) == (2, [(3, b"c")])


def test_trim_of_what_is_not_there_is_a_bug(journal: Journal) -> None:
    journal.append(b"a")
    with pytest.raises(BrokenInvariant, match="do not exist"):
        journal.trim(2)
    assert list(journal.read(0)) == [(1, b"a")]


def test_sequences_go_on_after_all_was_trimmed(journal: Journal, open_journal: OpenJournal) -> None:
    journal.append(b"a")
    journal.append(b"b")
    journal.trim(2)
    journal.close()
    again = open_journal()
    assert again.last() == 2
    again.claim()
    assert again.append(b"c") == 3
    assert list(again.read(2)) == [(3, b"c")]


def test_reading_what_was_trimmed_is_refused(journal: Journal) -> None:
    for body in (b"a", b"b", b"c"):
        journal.append(body)
    journal.trim(2)
    with pytest.raises(Corrupt, match="begins at batch 3"):
        journal.read(1)


def test_epochs_grow(journal: Journal, open_journal: OpenJournal) -> None:
    assert [journal.claim(), open_journal().claim(), open_journal().claim()] == [2, 3, 4]


def test_older_writer_is_fenced(journal: Journal, open_journal: OpenJournal) -> None:
    journal.append(b"a")
    newer = open_journal()
    newer.claim()
    with pytest.raises(Fenced, match="must stop"):
        journal.append(b"b")
    with pytest.raises(Fenced):
        journal.trim(1)
    assert newer.append(b"c") == 2
    with pytest.raises(Fenced):
        journal.append(b"b")
    assert list(journal.read(0)) == list(newer.read(0)) == [(1, b"a"), (2, b"c")]


def test_claim_after_another_writer_goes_on_behind_it(
    journal: Journal, open_journal: OpenJournal
) -> None:
    other = open_journal()
    other.claim()
    other.append(b"a")
    other.append(b"b")
    journal.claim()
    assert journal.append(b"c") == 3


def test_any_thread_may_call(journal: Journal) -> None:
    with ThreadPoolExecutor(1) as elsewhere:
        assert elsewhere.submit(journal.append, b"a").result() == 1
    assert journal.append(b"b") == 2
    journal.sync()
    assert list(journal.read(0)) == [(1, b"a"), (2, b"b")]


def test_close_is_safe_to_repeat(journal: Journal) -> None:
    journal.append(b"a")
    journal.close()
    journal.close()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.binary(max_size=20) | st.just(b"x" * 20_000)),
        st.tuples(st.just("trim"), st.floats(0, 1)),
        st.tuples(st.just("reopen"), st.just(None)),
        st.tuples(st.just("take over"), st.just(None)),
    ),
    max_size=12,
)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=40, deadline=None)
@given(steps=steps)
def test_behaves_like_a_list(backend: str, steps: list[tuple[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        open_journal = opener(backend, Path(folder), opened)
        journal = open_journal()
        journal.claim()
        model: list[bytes] = []
        trimmed = 0
        for step, value in steps:
            match step, value:
                case "append", bytes(body):
                    model.append(body)
                    assert journal.append(body) == len(model)
                case "trim", float(part):
                    trimmed = max(trimmed, int(part * len(model)))
                    journal.trim(trimmed)
                case _:
                    if step == "reopen":
                        journal.close()
                    journal = open_journal()
                    journal.claim()
            expected = list(enumerate(model, 1))[trimmed:]
            assert list(journal.read(trimmed)) == expected
            assert (journal.trimmed(), journal.last()) == (trimmed, len(model))


def test_restart_goes_on_behind_a_sequence(open_journal: OpenJournal) -> None:
    """What was there is gone, and no number is given out again; also after it is opened again."""
    journal = open_journal()
    journal.claim()
    for body in (b"a", b"b", b"c"):
        journal.append(body)
    assert list(journal.salvage(1)) == [(2, b"b"), (3, b"c")]
    journal.restart(7)
    assert (journal.trimmed(), journal.last(), list(journal.read(7))) == (7, 7, [])
    assert journal.append(b"d") == 8
    again = open_journal()
    again.claim()
    assert list(again.read(7)) == [(8, b"d")]
    assert list(again.salvage(5)) == [(6, None), (7, None), (8, b"d")]
