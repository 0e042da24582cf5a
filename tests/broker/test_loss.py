"""Data folders that are really damaged: refused with a way out, looked at, and gone on with."""

import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from jackalope.broker.engine import FENCES_PER_LOSS, Engine
from jackalope.broker.inspection import inspect_folder
from jackalope.core.commands import JoinWorker, SubmitTasks
from jackalope.core.effects import Accepted, Reply
from jackalope.core.filter import Filter
from jackalope.core.invariants import check
from jackalope.core.limits import DEPTH_MAX
from jackalope.core.records import encode_batch
from jackalope.core.task import Options, TaskSpec
from jackalope.storage import Corrupt, Level, Storage
from jackalope.storage.entry import HEAD_BYTES
from jackalope.storage.journals import JournalKind
from jackalope.storage.segments.journal import SegmentJournal
from jackalope.storage.segments.segment import (
    HEADER_BYTES,
    MARK_BYTES,
    numbers_in,
    path_of,
    read_header,
    read_segment,
)
from jackalope.storage.sqlite.journal import checksum
from tests.core.driving import NOW_US, spec, task_id
from tests.wire.shapes import nested

BATCHES = 12
FLUSHED = 5


@contextmanager
def opened(
    folder: Path,
    level: Level = Level.FSYNC,
    kind: JournalKind = JournalKind.SEGMENTS,
    *,
    accepts_loss: bool = False,
) -> Iterator[Engine]:
    storage = Storage.open(folder, level, kind=kind, accepts_loss=accepts_loss)
    with closing(storage):
        yield Engine(
            storage.journal,
            storage.history,
            storage.blobs,
            witnessed=storage.witnessed,
            losses=storage.losses,
        )


def submit(engine: Engine, number: int) -> None:
    command = SubmitTasks(session=1, ref=number, tasks=[spec(number, f"q{number}")])
    turn = engine.decide(NOW_US + number, [command])
    engine.store(turn)
    (reply,) = (e for e in engine.settle(turn) if isinstance(e, Reply))
    assert reply.body == Accepted(1)


def flush(engine: Engine) -> None:
    begun = engine.begin_flush(NOW_US)
    assert begun is not None
    engine.write_flush(begun)
    engine.end_flush(begun)


def killed(
    folder: Path,
    count: int = BATCHES,
    level: Level = Level.FSYNC,
    kind: JournalKind = JournalKind.SEGMENTS,
) -> Path:
    """Return a folder in which so many tasks are, as a killed broker leaves it."""
    with opened(folder / "living", level, kind) as engine:
        for number in range(1, count + 1):
            submit(engine, number)
            if number == FLUSHED:
                flush(engine)
        if level is Level.INTERVAL:
            engine._journal.sync()
        shutil.copytree(folder / "living", folder / "killed")
    return folder / "killed"


def tasks_of(engine: Engine) -> set[int]:
    return {int.from_bytes(task[:6], "big") for task in engine.core.book.tasks}


# What damages a folder with a journal in SQLite.


def cut_wal(folder: Path) -> None:
    wal = folder / "journal.db-wal"
    with wal.open("r+b") as file:
        file.truncate(wal.stat().st_size // 2)


def remove_wal(folder: Path) -> None:
    (folder / "journal.db-wal").unlink()
    (folder / "journal.db-shm").unlink(missing_ok=True)


def remove_both(folder: Path) -> None:
    for file in folder.glob("*.db*"):
        file.unlink()


def older_journal(folder: Path) -> None:
    """Put a journal back as it was some batches before."""
    with sqlite3.connect(folder / "journal.db") as db:
        db.execute("DELETE FROM batches WHERE sequence > 8")
    db.close()


def break_wal(folder: Path) -> None:
    wal = folder / "journal.db-wal"
    with wal.open("r+b") as file:
        file.seek(wal.stat().st_size // 2)
        file.write(b"\xff" * 64)


def break_batch(folder: Path) -> None:
    """Write something else into the body of one batch."""
    with sqlite3.connect(folder / "journal.db") as db:
        db.execute("UPDATE batches SET body = x'00' WHERE sequence = 8")
    db.close()


def break_decoding(folder: Path) -> None:
    """Let one batch match its checksum and be no batch."""
    with sqlite3.connect(folder / "journal.db") as db:
        body = b"\x92\x01\xc4\x01x"
        db.execute(
            "UPDATE batches SET body = ?, checksum = ? WHERE sequence = 8",
            (body, checksum(8, body)),
        )
    db.close()


def drop_batch(folder: Path) -> None:
    with sqlite3.connect(folder / "journal.db") as db:
        db.execute("DELETE FROM batches WHERE sequence = 8")
    db.close()


def break_file(folder: Path) -> None:
    """Make the journal no database at all."""
    remove_wal(folder)
    (folder / "journal.db").write_bytes(b"garbage" * 4_000)


# What damages one with a journal of segments.


def last_segment(folder: Path) -> Path:
    return path_of(folder / "journal", numbers_in(folder / "journal")[-1])


def overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def frame_of(folder: Path, sequence: int) -> int:
    """Return where the frame of a batch begins in the last segment."""
    path = last_segment(folder)
    header = read_header(path)
    offset = HEADER_BYTES
    for entry in read_segment(path, header).entries:
        if entry.sequence == sequence:
            break
        offset += MARK_BYTES + HEAD_BYTES + len(entry.body)
    return offset


def cut_segment(folder: Path) -> None:
    with last_segment(folder).open("r+b") as file:
        file.truncate(frame_of(folder, 9) + 10)


def zero_segment(folder: Path) -> None:
    """Let the file be what it was before some of its batches were written."""
    begin = frame_of(folder, 9)
    overwrite(last_segment(folder), begin, bytes(frame_of(folder, BATCHES + 1) - begin))


def remove_segment(folder: Path) -> None:
    last_segment(folder).unlink()


def remove_segments_and_history(folder: Path) -> None:
    shutil.rmtree(folder / "journal")
    for file in folder.glob("*.db*"):
        file.unlink()


def break_entry(folder: Path) -> None:
    overwrite(last_segment(folder), frame_of(folder, 8) + 40, b"\xff" * 8)


def break_mark(folder: Path) -> None:
    overwrite(last_segment(folder), frame_of(folder, 8), bytes(MARK_BYTES))


def break_header(folder: Path) -> None:
    overwrite(last_segment(folder), 0, b"garbage!")


def break_segment(folder: Path) -> None:
    size = last_segment(folder).stat().st_size
    last_segment(folder).write_bytes((b"garbage" * size)[:size])


def write_again(folder: Path, change: Callable[[int, bytes], bytes]) -> None:
    """Make the journal again, with sound entries and other bodies."""
    with closing(SegmentJournal(folder / "journal")) as journal:
        trimmed = journal.trimmed()
        bodies = [change(*each) for each in journal.read(trimmed)]
    shutil.rmtree(folder / "journal")
    with closing(SegmentJournal(folder / "journal")) as journal:
        journal.claim()
        journal.restart(trimmed)
        for body in bodies:
            journal.append(body)


def break_body(folder: Path) -> None:
    """Let one batch match its digest and be no batch."""
    write_again(folder, lambda at, body: b"\x92\x01\xc4\x01x" if at == 8 else body)


ALL = set(range(1, BATCHES + 1))
DAMAGES: dict[JournalKind, dict[str, tuple[Callable[[Path], None], set[int] | None]]] = {
    # With what must be left; None where that depends on where the file was cut.
    JournalKind.SQLITE: {
        "the log is cut": (cut_wal, None),
        "the log is broken in the middle": (break_wal, None),
        "the log is gone": (remove_wal, None),
        "journal and history are gone": (remove_both, set()),
        "the journal is an older one": (older_journal, set(range(1, 9))),
        "a batch is broken": (break_batch, ALL - {8}),
        "a batch cannot be decoded": (break_decoding, ALL - {8}),
        "a batch is gone": (drop_batch, ALL - {8}),
        "the journal is no database": (break_file, set(range(1, FLUSHED + 1))),
    },
    JournalKind.SEGMENTS: {
        "the segment is cut": (cut_segment, set(range(1, 9))),
        "the segment is an older one": (zero_segment, set(range(1, 9))),
        "the segment is gone": (remove_segment, set(range(1, FLUSHED + 1))),
        "journal and history are gone": (remove_segments_and_history, set()),
        "a batch is broken": (break_entry, ALL - {8}),
        "a batch has no mark": (break_mark, ALL - {8}),
        "the header is broken": (break_header, ALL),
        "a batch cannot be decoded": (break_body, ALL - {8}),
        "the segment is no segment": (break_segment, set(range(1, FLUSHED + 1))),
    },
}


def contents(folder: Path) -> dict[str, bytes]:
    """Return all that a check must leave as it is."""
    files = [path for path in folder.rglob("*") if path.suffix in (".db", ".log")]
    return {str(path): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in JournalKind for name in DAMAGES[kind]]
)
def test_damage_is_refused_listed_and_can_be_accepted(
    tmp_path: Path, kind: JournalKind, name: str
) -> None:
    damage, left = DAMAGES[kind][name]
    folder = killed(tmp_path, kind=kind)
    damage(folder)
    before = contents(folder)
    problems = [problem for each in inspect_folder(folder) for problem in each.problems]
    assert problems, "check found nothing"
    assert contents(folder) == before, "check changed something"
    for _ in range(2):  # The first refusal makes nothing better.
        with pytest.raises(Corrupt) as refused, opened(folder, kind=kind):
            pass
        for word in ("jackalope check", "--accept-loss"):
            assert word in str(refused.value)
    with opened(folder, kind=kind, accepts_loss=True) as engine:
        found = tasks_of(engine)
        assert found == left if left is not None else found < ALL
        assert set(range(1, FLUSHED + 1)) <= found or left == set()
        check(engine.core)
        assert engine.sequence == BATCHES
        assert engine.core.book.counters.fence >= FENCES_PER_LOSS
        submit(engine, 50)
        assert engine.sequence == BATCHES + 1
    # It is whole again: the next start is like any other.
    assert not [problem for each in inspect_folder(folder) for problem in each.problems]
    with opened(folder) as engine:
        assert tasks_of(engine) == found | {50}


LOST = {JournalKind.SQLITE: remove_wal, JournalKind.SEGMENTS: remove_segment}
BOTH_LOST = {JournalKind.SQLITE: remove_both, JournalKind.SEGMENTS: remove_segments_and_history}


@pytest.mark.parametrize("kind", JournalKind)
@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("damages", [LOST, BOTH_LOST], ids=["journal", "both"])
def test_a_loss_before_the_first_flush_is_found(
    tmp_path: Path,
    kind: JournalKind,
    count: int,
    damages: dict[JournalKind, Callable[[Path], None]],
) -> None:
    folder = killed(tmp_path, count, kind=kind)
    damages[kind](folder)
    with pytest.raises(Corrupt, match=f"batch {count} was acknowledged"), opened(folder, kind=kind):
        pass


@pytest.mark.parametrize("kind", JournalKind)
@pytest.mark.parametrize("level", [Level.FSYNC, Level.INTERVAL])
def test_what_was_synced_is_witnessed_at_every_level(
    tmp_path: Path, level: Level, kind: JournalKind
) -> None:
    folder = killed(tmp_path, 4, level, kind)
    LOST[kind](folder)
    with pytest.raises(Corrupt, match="batch 4 was acknowledged"), opened(folder, level, kind):
        pass


def test_a_sound_folder_is_sound(tmp_path: Path) -> None:
    folder = killed(tmp_path)
    assert not [problem for each in inspect_folder(folder) for problem in each.problems]
    with opened(folder, accepts_loss=True) as engine:
        assert tasks_of(engine) == ALL
        assert engine.core.book.counters.fence < FENCES_PER_LOSS


@pytest.mark.parametrize("damaged", [0, 1, 2], ids=["none", "one slot", "both slots"])
def test_a_damaged_witness(tmp_path: Path, damaged: int) -> None:
    """One slot is enough; without any it is said that nothing is known."""
    folder = killed(tmp_path, 4)
    with (folder / "witness").open("r+b") as file:
        for slot in range(damaged):
            file.seek(4096 * slot)
            file.write(b"\xff" * 20)
    if damaged < 2:
        remove_segment(folder)
        with pytest.raises(Corrupt, match="was acknowledged"), opened(folder):
            pass
    else:
        with pytest.raises(Corrupt, match="witness: damaged"), opened(folder):
            pass
        with opened(folder, accepts_loss=True) as engine:
            assert tasks_of(engine) == {1, 2, 3, 4}
        with opened(folder) as engine:
            assert tasks_of(engine) == {1, 2, 3, 4}


def test_a_folder_of_an_earlier_version_has_no_witness(tmp_path: Path) -> None:
    folder = killed(tmp_path)
    (folder / "witness").unlink()
    with opened(folder) as engine:
        assert tasks_of(engine) == ALL


@pytest.mark.parametrize("depth", [DEPTH_MAX + 1, 1_500])
def test_a_task_that_an_earlier_version_took_in_too_deep(tmp_path: Path, depth: int) -> None:
    """Only that task is left out, not the others of its batch."""
    folder = killed(tmp_path)
    with opened(folder) as engine:
        command = SubmitTasks(session=1, ref=1, tasks=[spec(20, "q1"), spec(21, "q1")])
        records = engine.decide(NOW_US, [command]).records
        deep: TaskSpec = records[0].spec  # type: ignore[union-attr]
        deep.options = Options(headers={"h": nested(depth)})
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(5_000)
        engine._journal.append(encode_batch(records))
        sys.setrecursionlimit(limit)
    if depth > 500:
        with pytest.raises(Corrupt, match="jackalope check"), opened(folder):
            pass
        with opened(folder, accepts_loss=True) as engine:
            assert tasks_of(engine) == ALL | {21}
    with opened(folder) as engine:
        assert task_id(21) in engine.core.book.tasks


def test_a_flipped_index_is_found_and_mended(tmp_path: Path) -> None:
    """A list counts by an index: one that lacks rows must not be believed."""
    folder = killed(tmp_path)
    with sqlite3.connect(folder / "tasks.db") as db:
        db.execute("PRAGMA writable_schema = ON")
        (sql,) = db.execute(
            "SELECT sql FROM sqlite_schema WHERE name = 'tasks_by_state'"
        ).fetchone()
        # An index that leaves some rows out, as one with a lost page does.
        db.execute("DROP INDEX tasks_by_state")
        db.execute(f"{sql} WHERE queue <> 'q1'")
        db.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'tasks_by_state'", (sql,))
    db.close()
    found = {each.what: each.problems for each in inspect_folder(folder)}
    assert "missing from index tasks_by_state" in found["tasks.db"][0]
    with pytest.raises(Corrupt, match="missing from index"), opened(folder):
        pass
    with opened(folder, accepts_loss=True) as engine:
        assert tasks_of(engine) == ALL
    with opened(folder) as engine:
        assert tasks_of(engine) == ALL
        assert sum(engine.history.count("default", Filter()).values()) == BATCHES


def test_a_worker_of_a_lost_batch_has_no_valid_fence(tmp_path: Path) -> None:
    """Its fence was given out in a batch that is lost, and is never given out again."""
    folder = killed(tmp_path)
    with opened(folder) as engine:
        join = JoinWorker(session=7, ref=1, worker="w", queues=("q1",), slots=1)
        engine.store(turn := engine.decide(NOW_US, [join]))
        engine.settle(turn)
        lost = engine.core.book.counters.fence
        assert lost
        shutil.copytree(folder, tmp_path / "again")
    remove_segment(tmp_path / "again")
    with opened(tmp_path / "again", accepts_loss=True) as engine:
        engine.store(turn := engine.decide(NOW_US, [join]))
        attempt = engine.core.book.tasks[task_id(1)].attempt
        assert attempt is not None
        assert attempt.fence > lost


def test_only_the_owner_may_read(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as engine:
        submit(engine, 1)
        engine.blobs.write([b"blob"])
        for path in [tmp_path / "data", *(tmp_path / "data").rglob("*")]:
            assert path.stat().st_mode & 0o077 == 0, path


def test_a_folder_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    folder = killed(tmp_path)
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o755 if path.is_dir() else 0o644)
    with opened(folder):
        for path in [folder, *folder.iterdir()]:
            assert path.stat().st_mode & 0o077 == 0, path
