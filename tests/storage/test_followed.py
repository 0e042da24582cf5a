"""The contract of `Followed`: journals whose entries another broker can follow."""

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from jackalope.storage import Corrupt
from jackalope.storage.entry import NO_DIGEST, Entry, Kind, decode
from jackalope.storage.ports import Followed, Journal
from jackalope.storage.sqlite.journal import SqliteJournal
from tests.storage.test_journal import OpenJournal, opener

EVERYTHING = 1 << 30


@pytest.fixture(params=["fsync", "interval", "segments-fsync", "segments-interval"])
def open_journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenJournal]:
    with ExitStack() as opened:
        yield opener(request.param, tmp_path, opened)


@pytest.fixture
def journal(open_journal: OpenJournal) -> Journal:
    journal = open_journal()
    journal.claim()
    for number in range(1, 11):
        journal.append(b"%d" % number)
    return journal


def follow(
    journal: Journal, sequence: int = 0, digest: bytes = NO_DIGEST, size: int = EVERYTHING
) -> list[Entry] | None:
    """Return what follows, as a chain."""
    assert isinstance(journal, Followed)
    found = journal.entries(sequence, digest, size)
    if found is None:
        return None
    entries = []
    for raw in found:
        entry = decode(raw)
        assert entry is not None
        assert entry.before == digest
        digest = entry.digest
        entries.append(entry)
    return entries


def batches(entries: list[Entry] | None) -> list[tuple[int, bytes]]:
    assert entries is not None
    return [(each.sequence, each.body) for each in entries if each.kind == Kind.BATCH]


def all_of(journal: Journal) -> list[Entry]:
    entries = follow(journal)
    assert entries is not None
    return entries


def test_all_entries_form_a_chain(journal: Journal) -> None:
    assert batches(all_of(journal)) == list(journal.read(0))


def test_it_goes_on_behind_an_entry(journal: Journal) -> None:
    fourth = all_of(journal)[3]
    assert batches(follow(journal, 4, fourth.digest))[0] == (5, b"5")
    last = all_of(journal)[-1]
    assert follow(journal, 10, last.digest) == []
    journal.append(b"more")
    assert batches(follow(journal, 10, last.digest)) == [(11, b"more")]


def test_an_entry_of_another_chain_is_not_known(journal: Journal) -> None:
    assert follow(journal, 4, b"another!") is None
    assert follow(journal, 99, all_of(journal)[-1].digest[::-1]) is None


def test_an_answer_is_bounded_and_never_empty(journal: Journal) -> None:
    assert len(follow(journal, size=1) or ()) == 1
    assert len(follow(journal, size=150) or ()) < 10


def test_the_chain_goes_on_with_the_next_writer(open_journal: OpenJournal) -> None:
    journal = open_journal()
    journal.claim()
    journal.append(b"a")
    (first,) = all_of(journal)
    journal.close()
    again = open_journal()
    again.claim()
    again.append(b"b")
    assert batches(follow(again, 1, first.digest)) == [(2, b"b")]
    assert batches(all_of(again)) == [(1, b"a"), (2, b"b")]


def test_what_is_trimmed_is_not_known_and_its_end_is(journal: Journal) -> None:
    assert isinstance(journal, Followed)
    entries = all_of(journal)
    journal.trim(6)
    journal.append(b"more")
    assert journal.digest_at(8) == entries[7].digest
    assert batches(follow(journal, 8, entries[7].digest))[-1] == (11, b"more")


def test_a_restart_begins_a_chain_of_its_own(journal: Journal) -> None:
    last = all_of(journal)[-1]
    journal.restart(10)
    journal.append(b"other")
    assert follow(journal, 10, last.digest) is None


# The journal in SQLite.


def test_digests_of_trimmed_batches_outlive_a_restart(tmp_path: Path) -> None:
    with closing(SqliteJournal(tmp_path / "journal.db")) as journal:
        journal.claim()
        for number in range(5):
            journal.append(b"%d" % number)
        last = all_of(journal)[-1]
        journal.trim(5)
    with closing(SqliteJournal(tmp_path / "journal.db")) as again:
        again.claim()
        again.append(b"next")
        assert again.digest_at(5) == last.digest
        assert batches(follow(again, 5, last.digest)) == [(6, b"next")]
        assert follow(again, 0) is None


@pytest.mark.parametrize("trimmed", [0, 2])
def test_a_journal_of_the_first_version_gets_its_digests(tmp_path: Path, trimmed: int) -> None:
    path = tmp_path / "journal.db"
    with closing(SqliteJournal(path)) as journal:
        journal.claim()
        for number in range(5):
            journal.append(b"%d" % number)
        journal.trim(trimmed)
    with closing(sqlite3.connect(path)) as tool:
        for table in ("writer", "batches"):
            tool.execute(f"ALTER TABLE {table} DROP COLUMN digest")
        tool.execute("PRAGMA user_version = 1")
    with closing(SqliteJournal(path)) as again:
        again.claim()
        again.append(b"new")
        before = again.digest_at(trimmed)
        assert before is not None
        assert (before == NO_DIGEST) == (trimmed == 0)
        assert batches(follow(again, trimmed, before)) == list(again.read(trimmed))


def test_a_changed_batch_is_found(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with closing(SqliteJournal(path)) as journal:
        journal.claim()
        for number in range(5):
            journal.append(b"%d" % number)
        with closing(sqlite3.connect(path)) as tool:
            tool.execute("UPDATE batches SET body = x'00' WHERE sequence = 3")
            tool.commit()
        with pytest.raises(Corrupt, match="batch 3 does not continue"):
            journal.entries(0, NO_DIGEST, EVERYTHING)
