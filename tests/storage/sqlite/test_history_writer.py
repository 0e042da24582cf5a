"""The process that writes history, and what becomes of it and of what it writes."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from multiprocessing import Pipe
from pathlib import Path
from threading import Thread

import msgspec
import pytest

from jackalope.core.assertions import BrokenInvariant
from jackalope.core.filter import Filter
from jackalope.core.lifecycle import State
from jackalope.core.task import TaskRow
from jackalope.storage import DiskFull, FolderBusy, History, Storage, SyncFailed
from jackalope.storage.sqlite.history_writer import (
    PIECE_BYTES,
    Answer,
    Write,
    Writer,
    WriterProcess,
    decode_answer,
    encode,
    encoded_pieces,
    fault_of,
    serve,
)
from jackalope.storage.sqlite.schema import open_history
from tests.storage.making import make_changes, make_row, task_id


class House:
    """A history with a writer process."""

    def __init__(self, folder: Path) -> None:
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT)
        path = folder / "tasks.db"
        self.history = History(path, self._lock)

    @property
    def writer(self) -> WriterProcess:
        writer = self.history._writer
        assert isinstance(writer, WriterProcess)
        return writer

    @property
    def pid(self) -> int:
        pid = self.writer.pid
        assert pid is not None
        return pid

    def write(self, number: int) -> None:
        self.history.write(number, make_changes(make_row(number)))

    def numbers(self) -> list[int]:
        rows = self.history.page("default", Filter(), sort="created").rows
        return sorted(int.from_bytes(row.id, "big") for row in rows)

    def close(self) -> None:
        self.history.close()
        os.close(self._lock)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with closing(House(tmp_path)) as house:
        yield house


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it did not come to pass in time"
        time.sleep(0.01)


def state_of(pid: int) -> str:
    """Return the letter of a process's state; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def is_there(pid: int) -> bool:
    return state_of(pid) not in ("", "Z", "X")


def test_another_process_writes_and_this_one_reads(house: House) -> None:
    house.write(1)
    pid = house.pid
    assert pid != os.getpid()
    house.write(2)
    assert house.pid == pid
    assert house.numbers() == [1, 2]
    assert house.history.applied() == 2
    assert house.history.sync() == 2


def test_large_write_is_said_in_pieces(house: House) -> None:
    rows = [make_row(number, payload=b"x" * 60_000) for number in range(1, 61)]
    house.history.write(1, make_changes(*rows))
    assert house.history.find([task_id(60)]) == [rows[-1]]
    assert house.numbers() == list(range(1, 61))


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        ([], []),
        ([make_row(1)], [1]),
        ([make_row(1)] * 4_001, [2_000, 2_000, 1]),
        ([make_row(1, payload=b"x" * PIECE_BYTES)] * 2 + [make_row(1)], [1, 1, 1]),
        ([make_row(1, payload=b"x" * (PIECE_BYTES // 2))] * 3, [2, 1]),
    ],
)
def test_pieces(rows: list[TaskRow], sizes: list[int]) -> None:
    decode = msgspec.msgpack.Decoder(list[TaskRow]).decode
    pieces = list(map(decode, encoded_pieces(rows)))
    assert [len(piece) for piece in pieces] == sizes
    assert [row for piece in pieces for row in piece] == rows


def test_killed_writer_is_replaced_and_nothing_is_lost(house: House) -> None:
    house.write(1)
    first = house.pid
    os.kill(first, signal.SIGKILL)
    house.write(2)
    assert not is_there(first)
    house.write(3)
    assert house.pid != first
    os.kill(house.pid, signal.SIGKILL)
    house.write(4)
    assert house.history.sync() == 4
    os.kill(house.pid, signal.SIGKILL)
    assert house.history.sync() == 4
    assert house.numbers() == [1, 2, 3, 4]


def test_kill_in_the_middle_of_a_write(house: House) -> None:
    house.write(1)
    first = house.pid
    os.kill(first, signal.SIGSTOP)
    rows = [make_row(number, payload=b"x" * 60_000) for number in range(2, 100)]
    writing = Thread(target=house.history.write, args=(2, make_changes(*rows)))
    writing.start()
    time.sleep(0.2)
    assert writing.is_alive()
    os.kill(first, signal.SIGKILL)
    writing.join(30)
    assert house.numbers() == list(range(1, 100))
    assert house.history.applied() == 2


def test_write_that_was_done_before_the_kill_is_done_again(house: House, tmp_path: Path) -> None:
    house.write(1)
    with closing(History(tmp_path / "tasks.db")) as other:
        other.write(2, make_changes(make_row(2)))
    os.kill(house.pid, signal.SIGKILL)
    house.write(2)
    assert house.numbers() == [1, 2]


def test_writer_that_cannot_start(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    os.kill(house.pid, signal.SIGKILL)
    for number in (1, 2, 3):
        house.write(number)
    assert house.writer.pid is None
    assert house.numbers() == [1, 2, 3]
    monkeypatch.undo()
    house.write(4)
    assert is_there(house.pid)


def test_full_disk_is_told_and_later_writes_succeed(tmp_path: Path) -> None:
    ours, theirs = Pipe()
    db = open_history(tmp_path / "tasks.db")
    db._writer.execute("PRAGMA max_page_count = 60")
    process = Thread(target=serve, args=(Writer(db), theirs))
    process.start()
    rows = [make_row(number, payload=b"x" * 60_000) for number in range(20)]

    def write() -> Answer:
        ours.send_bytes(encode(Write(1, make_changes())))
        for begin in range(0, 20, 5):
            ours.send_bytes(encode(rows[begin : begin + 5]))
        ours.send_bytes(b"")
        return decode_answer(ours.recv_bytes())

    failed = write()
    assert isinstance(fault_of(failed), DiskFull)
    assert "tasks.db: no space left" in failed.message
    db._writer.execute("PRAGMA max_page_count = 1000")
    assert write() == Answer()
    ours.close()
    process.join()
    theirs.close()
    db.close()
    with closing(History(tmp_path / "tasks.db")) as history:
        assert history.count("default", Filter()) == {State.READY: 20}


def test_fault_keeps_its_kind_and_its_message() -> None:
    assert isinstance(fault_of(Answer(fault="SyncFailed", message="what to do")), SyncFailed)
    assert str(fault_of(Answer(fault="DiskFull", message="what to do"))) == "what to do"
    with pytest.raises(BrokenInvariant, match="Path"):
        fault_of(Answer(fault="Path"))


def test_unsettled_fault_ends_all_writing(house: House) -> None:
    house.write(1)
    _, hard = resource.prlimit(house.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(house.pid, resource.RLIMIT_FSIZE, (100_000, hard))
    rows = [make_row(number, payload=b"x" * 60_000) for number in range(2, 100)]
    with pytest.raises(SyncFailed, match="the state of the disk is unknown"):
        house.history.write(2, make_changes(*rows))
    # Neither here nor over there, whatever becomes of the process.
    os.kill(house.pid, signal.SIGKILL)
    writes: list[Callable[[], object]] = [lambda: house.write(3), house.history.sync]
    for write in writes:
        with pytest.raises(SyncFailed, match="the state of the disk is unknown"):
            write()
    assert house.numbers() == [1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_to_all_are_the_brokers_business(house: House, number: int) -> None:
    house.write(1)
    first = house.pid
    os.kill(first, number)
    house.write(2)
    assert house.pid == first


def test_modules_that_lie_about_are_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "msgspec.py").write_text("raise SystemExit('not the one')")
    monkeypatch.chdir(tmp_path)
    with closing(House(tmp_path)) as house:
        first = house.pid
        house.write(1)
        assert house.pid == first


def test_ends_when_it_is_closed(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.write(1)
    pid = house.pid
    house.close()
    assert not is_there(pid)
    with pytest.raises(BrokenInvariant, match="closed"):
        house.writer.write(2, make_changes(make_row(2)))


OPEN_AND_WAIT = """
import sys
from pathlib import Path
from jackalope.storage import Storage
from tests.storage.making import make_changes, make_row
storage = Storage.open(Path(sys.argv[1]), has_writer_process=True)
storage.journal.claim()
storage.flush(storage.journal.append(b""), make_changes(make_row(1)))
print(storage.history._writer.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start a process with a writer process, and yield both."""
    with subprocess.Popen(
        [sys.executable, "-c", OPEN_AND_WAIT, str(tmp_path / "data")],
        cwd=Path(__file__).parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        process.kill()


def test_writer_of_a_killed_broker_is_gone_before_another_opens(
    tmp_path: Path, broker: tuple[subprocess.Popen[str], int]
) -> None:
    process, writer = broker
    assert is_there(writer)
    process.kill()
    with closing(Storage.open(tmp_path / "data")) as storage:
        assert not is_there(writer)
        assert list(storage.history.load().tasks) == [make_row(1)]


def test_writer_holds_the_folder(tmp_path: Path, broker: tuple[subprocess.Popen[str], int]) -> None:
    process, writer = broker
    held = {file.readlink() for file in Path(f"/proc/{writer}/fd").iterdir()}
    assert tmp_path / "data" / "lock" in held
    with pytest.raises(FolderBusy, match=f"process {process.pid}"):
        Storage.open(tmp_path / "data")
    assert process.stdin is not None
    process.stdin.close()
    process.wait()
    until(lambda: not is_there(writer))
    Storage.open(tmp_path / "data", has_writer_process=True).close()


def test_open_storage_has_a_writer_if_it_is_wanted(tmp_path: Path) -> None:
    opening = partial(Storage.open, tmp_path / "data")
    with closing(opening(has_writer_process=True)) as storage:
        assert isinstance(storage.history, History)
        assert isinstance(storage.history._writer, WriterProcess)
    with closing(opening()) as storage:
        assert isinstance(storage.history, History)
        assert isinstance(storage.history._writer, Writer)
