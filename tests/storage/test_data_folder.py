"""The data folder: one broker, files that belong together, and formats."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from zipfile import ZipFile

import pytest
from structlog.testing import capture_logs

from jackalope.broker.engine import Engine
from jackalope.broker.inspection import inspect_folder
from jackalope.core.api_key import Permission
from jackalope.core.assertions import BrokenInvariant
from jackalope.core.durations import HOUR
from jackalope.core.filter import Filter
from jackalope.core.lifecycle import ENDED, State
from jackalope.core.state.changes import Tally, to_entity
from jackalope.core.task import BlobRef
from jackalope.storage import (
    Corrupt,
    FolderBusy,
    FolderGone,
    Level,
    NewerFormat,
    Storage,
    StorageFault,
)
from jackalope.storage.journals import JournalKind, JournalPlace
from jackalope.storage.segments.journal import SegmentJournal
from jackalope.storage.sqlite import database
from jackalope.storage.sqlite.database import Database, Format
from jackalope.storage.sqlite.history import History
from jackalope.storage.sqlite.journal import SqliteJournal
from tests.storage.making import bring_back_version_1, make_changes, make_row, task_id

OpenStorage = Callable[..., Storage]


@pytest.fixture
def open_storage(tmp_path: Path) -> Iterator[OpenStorage]:
    opened: list[Storage] = []

    def open_folder(
        level: Level = Level.FSYNC, kind: JournalKind = JournalKind.SEGMENTS
    ) -> Storage:
        storage = Storage.open(tmp_path / "data", level, interval_us=HOUR, kind=kind)
        opened.append(storage)
        return storage

    yield open_folder
    for storage in opened:
        storage.close()


@pytest.mark.parametrize("level", Level)
def test_opens_at_every_level(open_storage: OpenStorage, tmp_path: Path, level: Level) -> None:
    storage = open_storage(level)
    storage.journal.claim()
    sequence = storage.journal.append(b"batch")
    assert storage.flush(sequence, make_changes(make_row(1))) == []
    storage.journal.trim(storage.history.sync())
    ref = storage.blobs.write([b"blob"])
    assert list(storage.blobs.read(ref)) == [b"blob"]
    storage.close()
    assert (tmp_path / "data").exists() == (level is not Level.MEMORY)
    if level is Level.MEMORY:
        return
    again = open_storage(level)
    assert (again.journal.last(), again.history.applied()) == (1, 1)
    assert list(again.history.load().tasks) == [make_row(1)]
    assert list(again.blobs.read(ref)) == [b"blob"]


def test_memory_needs_no_folder() -> None:
    storage = Storage.open(None, Level.MEMORY)
    assert storage.level is Level.MEMORY
    storage.close()
    with pytest.raises(BrokenInvariant, match="needs a folder"):
        Storage.open(None, Level.FSYNC)


@pytest.mark.parametrize("first", ["journal", "history", "blobs", "storage"])
def test_closing_in_any_order_twice(open_storage: OpenStorage, first: str) -> None:
    storage = open_storage(Level.INTERVAL)
    close = {
        "storage": storage.close,
        "journal": storage.journal.close,
        "history": storage.history.close,
        "blobs": storage.blobs.close,
    }
    for close_part in (close[first], *close.values(), *close.values()):
        close_part()
    open_storage()


def test_second_broker_is_refused_until_the_first_is_closed(open_storage: OpenStorage) -> None:
    first = open_storage()
    with pytest.raises(FolderBusy, match=f"process {os.getpid()}"):
        open_storage()
    first.close()
    open_storage()


OPEN_AND_WAIT = """
import sys
from pathlib import Path
from jackalope.storage import FolderBusy, Storage
try:
    storage = Storage.open(Path(sys.argv[1]))
except FolderBusy as fault:
    print(fault, flush=True)
else:
    print("open", flush=True)
    sys.stdin.read()
"""


def start_opening(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OPEN_AND_WAIT, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.feature("T24")
def test_second_process_is_refused_and_a_killed_one_holds_nothing(
    open_storage: OpenStorage, tmp_path: Path
) -> None:
    with start_opening(tmp_path / "data") as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "open\n"
        with pytest.raises(FolderBusy, match=f"process {first.pid}\\). Stop that broker"):
            open_storage()
        first.kill()
    open_storage()
    with start_opening(tmp_path / "data") as second:
        answer, _ = second.communicate()
    assert f"process {os.getpid()}" in answer


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageFault, match="Check that the folder exists"):
        Storage.open(tmp_path / "file" / "data")


def test_tool_that_holds_a_file_for_writing(
    open_storage: OpenStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0)
    storage = open_storage(kind=JournalKind.SQLITE)
    storage.journal.claim()
    with closing(sqlite3.connect(tmp_path / "data" / "journal.db", isolation_level=None)) as tool:
        tool.execute("BEGIN IMMEDIATE")
        with pytest.raises(FolderBusy, match=r"journal\.db: locked by another program"):
            storage.journal.append(b"batch")
        tool.execute("ROLLBACK")
        assert storage.journal.append(b"batch") == 1


def test_old_sqlite_is_refused(open_storage: OpenStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "VERSION_MIN", (99, 1, 0))
    with pytest.raises(StorageFault, match=r"SQLite 99\.1\.0 or newer"):
        open_storage()


# Files that do not belong together.


def fill(storage: Storage) -> None:
    storage.journal.claim()
    for number in range(1, 6):
        storage.flush(storage.journal.append(b"batch"), make_changes(make_row(number)))


def test_journal_that_lost_its_end(open_storage: OpenStorage, tmp_path: Path) -> None:
    storage = open_storage(kind=JournalKind.SQLITE)
    fill(storage)
    storage.close()
    with closing(sqlite3.connect(tmp_path / "data" / "journal.db")) as tool, tool:
        tool.execute("DELETE FROM batches WHERE sequence > 3")
    for kind in JournalKind:
        with pytest.raises(Corrupt, match=r"the journal ends at batch 3.*tasks\.db.* 5"):
            open_storage(kind=kind)


def test_history_of_an_older_backup(open_storage: OpenStorage, tmp_path: Path) -> None:
    open_storage().close()
    shutil.copy(tmp_path / "data" / "tasks.db", tmp_path / "older.db")
    storage = open_storage()
    fill(storage)
    storage.journal.trim(storage.history.sync() - 1)
    storage.close()
    shutil.copy(tmp_path / "older.db", tmp_path / "data" / "tasks.db")
    with pytest.raises(Corrupt, match=r"tasks\.db ends at batch 0.*the journal begins at 5"):
        open_storage()


def test_refused_folder_is_let_go(open_storage: OpenStorage, tmp_path: Path) -> None:
    open_storage().close()
    tasks = tmp_path / "data" / "tasks.db"
    good = tasks.read_bytes()
    tasks.write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(Corrupt, match=r"tasks\.db"):
        open_storage()
    tasks.write_bytes(good)
    open_storage()


# One kind of journal, and the other.


def bodies_of(storage: Storage) -> list[tuple[int, bytes]]:
    return list(storage.journal.read(storage.journal.trimmed()))


@pytest.mark.parametrize("before", JournalKind)
def test_a_journal_is_changed_into_the_other_kind(
    open_storage: OpenStorage, tmp_path: Path, before: JournalKind
) -> None:
    after = next(kind for kind in JournalKind if kind is not before)
    storage = open_storage(kind=before)
    fill(storage)
    storage.journal.trim(2)
    storage.close()
    changed = open_storage(kind=after)
    assert bodies_of(changed) == [(number, b"batch") for number in (3, 4, 5)]
    assert changed.journal.trimmed() == 2
    changed.journal.claim()
    assert changed.journal.append(b"more") == 6
    changed.close()
    place = JournalPlace(tmp_path / "data")
    assert (place.path(before).exists(), place.path(after).exists()) == (False, True)
    assert {path.name for path in (tmp_path / "data").glob("journal*")} == {place.path().name}
    again = open_storage(kind=before)
    assert bodies_of(again)[-1] == (6, b"more")


@pytest.mark.parametrize("before", JournalKind)
@pytest.mark.parametrize("stopped_at", ["copying", "renaming", "removing"])
def test_a_change_that_was_killed_is_done_again(
    open_storage: OpenStorage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: JournalKind,
    stopped_at: str,
) -> None:
    """Wherever it ends, every batch is in one of the two, and either kind can go on."""
    after = next(kind for kind in JournalKind if kind is not before)
    storage = open_storage(kind=before)
    fill(storage)
    storage.close()

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        match stopped_at:
            case "copying":
                patched.setattr(SegmentJournal, "sync", die)
                patched.setattr(SqliteJournal, "sync", die)
            case "renaming":
                patched.setattr(JournalPlace, "_remove_other", die)
            case _:
                patched.setattr("jackalope.storage.journals._remove", _only_new(die))
                patched.setattr(Path, "unlink", die)
        with pytest.raises(KeyboardInterrupt):
            open_storage(kind=after)
    for kind in (after, before):
        shutil.copytree(tmp_path / "data", tmp_path / kind)
        with closing(Storage.open(tmp_path / kind, kind=kind)) as storage:
            assert bodies_of(storage) == [(number, b"batch") for number in range(1, 6)]


def _only_new(die: Callable[..., None]) -> Callable[[Path], None]:
    def remove(path: Path) -> None:
        if path.name.endswith(".old") and path.exists():
            die()

    return remove


# Formats.


@pytest.mark.parametrize(("file", "newest"), [("journal.db", 2), ("tasks.db", 6)])
def test_newer_format_is_refused(
    open_storage: OpenStorage, tmp_path: Path, file: str, newest: int
) -> None:
    open_storage(kind=JournalKind.SQLITE).close()
    with closing(sqlite3.connect(tmp_path / "data" / file)) as tool:
        tool.execute("PRAGMA user_version = 9")
    with pytest.raises(NewerFormat, match=rf"{file}: written in format 9 .* up to {newest}\."):
        open_storage(kind=JournalKind.SQLITE)


def open_database(path: Path, form: Format) -> Database:
    return Database(path, form, synchronous="FULL", cache_bytes=100_000, wal_bytes_max=1_000_000)


OLDEST = Format(0, ("CREATE TABLE people (name TEXT)", "INSERT INTO people VALUES ('Ann')"))


def add_age(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE people ADD COLUMN age INTEGER NOT NULL DEFAULT 7")


def add_pets(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE pets AS SELECT name || '''s pet' AS name FROM people")


NEWEST = Format(
    2,
    (
        "CREATE TABLE people (name TEXT, age INTEGER NOT NULL DEFAULT 7)",
        "CREATE TABLE pets (name TEXT)",
    ),
    {0: add_age, 1: add_pets},
)


def test_older_format_is_migrated_step_by_step(tmp_path: Path) -> None:
    path = tmp_path / "some.db"
    open_database(path, OLDEST).close()
    for _ in range(2):
        with closing(open_database(path, NEWEST)) as db, db.reading() as connection:
            assert connection.execute("SELECT * FROM people").fetchall() == [("Ann", 7)]
            assert connection.execute("SELECT * FROM pets").fetchall() == [("Ann's pet",)]
            assert connection.execute("PRAGMA user_version").fetchone() == (2,)


def test_new_file_is_made_in_the_newest_format(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "some.db", NEWEST)) as db, db.reading() as connection:
        assert connection.execute("SELECT * FROM people").fetchall() == []
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)


def test_step_that_fails_leaves_the_version_before_it(tmp_path: Path) -> None:
    def add_pets_and_fail(connection: sqlite3.Connection) -> None:
        add_pets(connection)
        raise RuntimeError

    path = tmp_path / "some.db"
    open_database(path, OLDEST).close()
    with pytest.raises(RuntimeError):
        open_database(path, Format(2, NEWEST.schema, {0: add_age, 1: add_pets_and_fail}))
    with closing(sqlite3.connect(path)) as tool:
        assert tool.execute("PRAGMA user_version").fetchone() == (1,)
        tables = tool.execute("SELECT name FROM sqlite_schema").fetchall()
    assert tables == [("people",)]
    open_database(path, NEWEST).close()


def test_a_history_of_format_1_gets_its_tallies(tmp_path: Path) -> None:
    """A file that knew no tallies is opened, keeps what it has, and takes some."""
    path = tmp_path / "tasks.db"
    History(path).close()
    bring_back_version_1(path)
    with closing(History(path)) as history:
        tally = to_entity("tally", "default", "ann", Tally(1, 0, 100))
        history.write(1, make_changes(entities=[tally]))
        assert history.load().entities == [tally]


def test_a_folder_of_format_4_keeps_everything(tmp_path: Path) -> None:
    """Its broker was killed: five tables become one, and the journal has a task that is in none."""
    unzip(4, tmp_path)
    for _ in range(2):
        with closing(Storage.open(tmp_path)) as storage:
            book = Engine(storage.journal, storage.history, storage.blobs).core.book
            tables = storage.history._db._writer.execute("SELECT name FROM sqlite_schema")
            assert not {"queues", "limits", "tallies", "api_keys"} & {name for (name,) in tables}
        default, other = book.namespaces["default"], book.namespaces["other"]
        assert sorted(default.queues) == ["cores", "images", "letters"]
        assert default.queues["images"].policy.retries == 7
        assert (pool := default.queues["cores"].pool) is not None
        assert pool.launcher == "local"
        assert (traits := default.queues["letters"].traits) is not None
        assert traits.arguments == {"x-max-length": 3}
        assert other.queues["answers"].paused_by == "ann"
        assert (default.gates.tags, other.gates.tags) == ({"gpu": 0}, {"disk": 4})
        assert (default.tallies["w1"].succeeded, default.tallies["w1"].failed) == (1, 0)
        assert {key.id: key.permissions for key in book.api_keys.values()} == {
            "a0": (Permission.ADMIN,),
            "b0": (Permission.WORK,),
        }
        assert "orders" in default.topology.exchanges
        (binding,) = default.topology.bindings.values()
        assert (binding.source, binding.to, binding.key) == ("orders", "letters", "new.#")
        assert default.topology.rules["long"].definition == {"message-ttl": 60_000}
        assert sorted(book.tasks) == [task_id(2), task_id(3)]


def unzip(number: int, folder: Path) -> None:
    """Unpack a data folder that a broker wrote in an older format of `tasks.db`."""
    with ZipFile(Path(__file__).parent / "folders" / f"format-{number}.zip") as packed:
        packed.extractall(folder)


def check_folder_5(folder: Path) -> None:
    """Check that a folder has what its broker had been told before it was killed."""
    with closing(Storage.open(folder)) as storage:
        history = storage.history
        book = Engine(storage.journal, history, storage.blobs).core.book
        names = ["large", "blob", "dead"]
        large, blob, dead = (history.find_aliases("default", [name])[0] for name in names)
        ended = history.page("default", Filter(states=tuple(ENDED)), sort="created").rows
        counts = history.count("default", Filter(queue="later"))
        assert isinstance(blob.payload, BlobRef)
        assert b"y" * 100_000 in b"".join(storage.blobs.read(blob.payload))
    assert [row.name for row in ended] == ["echo"] * 22 + ["fail"]
    assert counts == {State.READY: 6}
    assert isinstance(large.payload, bytes)
    assert b"x" * 30_000 in large.payload
    assert large.outcome is not None
    assert isinstance(large.outcome.result, bytes)
    assert b"x" * 30_000 in large.outcome.result
    assert dead.options.tags == ("gpu", 'a "b"')
    assert dead.outcome is not None
    assert dead.outcome.error is not None
    assert dead.outcome.error.type == "ValueError"
    aliases = book.namespaces["default"].aliases
    held, waiting, unwritten = (book.tasks[aliases[n]] for n in ("held", "waiting", "unwritten"))
    assert (held.state, held.attempt.worker if held.attempt else "") == (State.RUNNING, "w1")
    assert (waiting.priority, waiting.key) == (7, "k")
    assert waiting.options.headers["h"] == b"\x00"
    assert unwritten.state is State.READY
    assert len(book.tasks) == 8


def test_a_folder_of_format_5_keeps_everything(tmp_path: Path) -> None:
    """Its broker was killed: rows stay as they are, and what is written again is version 6."""
    unzip(5, tmp_path)
    assert not any(finding.problems for finding in inspect_folder(tmp_path))
    check_folder_5(tmp_path)
    assert not any(finding.problems for finding in inspect_folder(tmp_path))
    check_folder_5(tmp_path)


DIE_MIGRATING = """
import os, signal, sys
from pathlib import Path
from jackalope.storage import Storage
from jackalope.storage.sqlite import schema
migrate = schema.MIGRATIONS[5]
def die(connection):
    migrate(connection)
    os.kill(os.getpid(), signal.SIGKILL)
schema.MIGRATIONS[5] = die
Storage.open(Path(sys.argv[1]))
"""


def test_a_kill_in_the_middle_of_a_migration_loses_nothing(tmp_path: Path) -> None:
    unzip(5, tmp_path)
    for _ in range(2):
        died = subprocess.run([sys.executable, "-c", DIE_MIGRATING, tmp_path], check=False)
        assert died.returncode == -signal.SIGKILL
        with closing(sqlite3.connect(f"file:{tmp_path / 'tasks.db'}?mode=ro", uri=True)) as tool:
            assert tool.execute("PRAGMA user_version").fetchone() == (5,)
    check_folder_5(tmp_path)


def test_a_migration_that_takes_long_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "PROGRESS_S", 0.0)
    monkeypatch.setattr(database, "_PROGRESS_STEPS", 10)
    unzip(5, tmp_path)
    with capture_logs() as logged:
        History(tmp_path / "tasks.db").close()
    assert {entry["event"] for entry in logged} == {"still migrating"}
    assert {entry["to_version"] for entry in logged} == {6}


def test_a_folder_that_is_no_longer_in_its_place_is_noticed(
    open_storage: OpenStorage, tmp_path: Path
) -> None:
    storage = open_storage()
    storage.check_place()
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    with pytest.raises(FolderGone, match="removed, moved or replaced"):
        storage.check_place()
    with closing(Storage.open(tmp_path / "data")) as another:
        another.check_place()
        with pytest.raises(FolderGone):
            storage.check_place()  # Another one stands there now.
    shutil.rmtree(tmp_path / "data")
    (tmp_path / "elsewhere").rename(tmp_path / "data")
    storage.check_place()
    open_storage(Level.MEMORY).check_place()
