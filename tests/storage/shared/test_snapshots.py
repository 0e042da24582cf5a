"""Copies of a state: made while it is written, and installed so that a crash does no harm."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from jackalope.core.state.changes import Changes, Counters, Entity
from jackalope.storage import Corrupt, DiskFull
from jackalope.storage.shared.mirror import Mirror
from jackalope.storage.snapshots import (
    HISTORY,
    MIRROR,
    Incoming,
    StateMark,
    copy_path,
    drop_copies,
    install,
)
from jackalope.storage.sqlite.history import History

DIGEST = b"digest!!"


def write(history: History, sequence: int) -> None:
    counters = Counters()
    counters.fence = 1000 * sequence
    entity = Entity("queue", "default", f"q{sequence}", "{}")
    history.write(sequence, Changes(counters, entities=[entity]))


def made(path: Path, sequence: int) -> Path:
    """Make a history that ends at a batch."""
    history = History(path)
    write(history, sequence)
    history.close()
    return path


def state_of(home: Path) -> tuple[int, int, int, bytes]:
    """Return the sequence and the fence of a node's history, and the end of its mirror."""
    history = History(home / HISTORY)
    mirror = Mirror(home / MIRROR)
    try:
        loaded = history.load()
        list(loaded.tasks)
        return loaded.sequence, loaded.counters.fence, mirror.last(), mirror.digest
    finally:
        history.close()
        mirror.close()


def node_folder(home: Path) -> None:
    """Make the folder of a node that has come to batch 5."""
    home.mkdir()
    made(home / HISTORY, 5)
    mirror = Mirror(home / MIRROR)
    mirror.restart(5, b"of five!")
    mirror.close()


def receive(home: Path, copy: bytes, sequence: int = 9) -> None:
    incoming = Incoming(home, StateMark(sequence, DIGEST))
    for begin in range(0, len(copy), 10_000):
        incoming.add(copy[begin : begin + 10_000])
    incoming.finish()


def test_a_copy_is_of_one_moment_while_writing_goes_on(tmp_path: Path) -> None:
    history = History(tmp_path / HISTORY)
    write(history, 1)

    def look(sequence: int) -> str:
        write(history, 2)  # between the moment and the copy
        return f"at {sequence}"

    assert history.copy_to(tmp_path / "copy", look) == (1, "at 1")
    copy = History(tmp_path / "copy")
    assert copy.applied() == 1
    assert [each.name for each in copy.load().entities] == ["q1"]
    assert history.applied() == 2
    copy.close()
    history.close()


def test_a_copy_that_was_received_takes_the_place_of_the_state(tmp_path: Path) -> None:
    node_folder(home := tmp_path / "node")
    receive(home, made(tmp_path / "other", 9).read_bytes())
    assert state_of(home)[0] == 5  # until it is installed
    assert install(home) == StateMark(9, DIGEST)
    assert state_of(home) == (9, 9_000, 9, DIGEST)
    assert install(home) is None
    assert sorted(each.name for each in home.iterdir()) == [MIRROR, HISTORY]


@pytest.mark.parametrize("how", ["cut", "changed", "of another batch", "no database"])
def test_a_damaged_copy_is_refused(tmp_path: Path, how: str) -> None:
    node_folder(home := tmp_path / "node")
    copy = bytearray(made(tmp_path / "other", 9).read_bytes())
    match how:
        case "cut":
            copy = copy[: len(copy) // 2]
        case "changed":
            copy[8192:16384] = os.urandom(8192)
        case "no database":
            copy = bytearray(b"not what was asked for")
        case _:
            pass
    with pytest.raises(Corrupt):
        receive(home, bytes(copy), 8 if how == "of another batch" else 9)
    assert install(home) is None
    assert state_of(home) == (5, 5_000, 5, b"of five!")


def test_what_was_received_in_part_is_removed(tmp_path: Path) -> None:
    node_folder(home := tmp_path / "node")
    incoming = Incoming(home, StateMark(9, DIGEST))
    incoming.add(b"SQLite")
    incoming._file.close()  # as a crash would
    copy_path(home).touch()
    drop_copies(home)
    assert install(home) is None
    assert sorted(each.name for each in home.iterdir()) == [MIRROR, HISTORY]


def test_a_full_disk_leaves_the_state_as_it_is(tmp_path: Path) -> None:
    node_folder(home := tmp_path / "node")
    with Path("/dev/full").open("wb", buffering=0) as full:
        incoming = Incoming(home, StateMark(9, DIGEST))
        incoming._file.close()
        incoming._file = full
        with pytest.raises(DiskFull):
            incoming.add(bytes(100_000))
        incoming.abort()
    assert install(home) is None
    assert state_of(home)[0] == 5


_KILLED = """
import os, signal, sys
from pathlib import Path
from jackalope.storage import snapshots
from jackalope.storage.snapshots import Incoming, StateMark, install

home, copy, after = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
left = [after]

def dying(call):
    def wrapped(*args, **kwargs):
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        return call(*args, **kwargs)
    return wrapped

Path.rename = dying(Path.rename)
Path.unlink = dying(Path.unlink)
Path.rmdir = dying(Path.rmdir)
snapshots.shutil.rmtree = dying(snapshots.shutil.rmtree)
snapshots.sync_folder = dying(snapshots.sync_folder)
snapshots.Mirror.restart = dying(snapshots.Mirror.restart)
incoming = Incoming(home, StateMark(9, b"digest!!"))
incoming.add(copy.read_bytes())
incoming.finish()
install(home)
"""


def test_a_crash_at_any_step_leaves_the_old_state_or_the_new_one(tmp_path: Path) -> None:
    copy = made(tmp_path / "other", 9)
    node_folder(whole := tmp_path / "whole")
    seen, killed, step = [], True, 0
    while killed:
        home = tmp_path / f"node-{step}"
        shutil.copytree(whole, home)
        command = [sys.executable, "-c", _KILLED, str(home), str(copy), str(step)]
        killed = subprocess.run(command, check=False).returncode == -signal.SIGKILL
        install(home)  # what the next start does
        state = state_of(home)
        assert state in ((5, 5_000, 5, b"of five!"), (9, 9_000, 9, DIGEST))
        seen.append(state[0])
        step += 1
    assert seen == sorted(seen)
    assert len(seen) > 10
    assert set(seen) == {5, 9}


def test_a_writer_that_left_a_log_behind_does_not_change_the_copy(tmp_path: Path) -> None:
    """The write-ahead log of the old file must not be applied to the new one."""
    node_folder(home := tmp_path / "node")
    with closing(sqlite3.connect(home / HISTORY)) as writer:
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        writer.execute("INSERT INTO entities VALUES ('queue', 'default', 'left', '{}')")
        writer.commit()
        shutil.copytree(home, left := tmp_path / "left")  # with the log, as a crash leaves it
    assert (left / f"{HISTORY}-wal").stat().st_size
    receive(left, made(tmp_path / "other", 9).read_bytes())
    install(left)
    history = History(left / HISTORY)
    assert [each.name for each in history.load().entities] == ["q9"]
    history.close()
