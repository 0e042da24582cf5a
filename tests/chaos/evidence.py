"""Evidence: what a run leaves, read when nothing runs any more.

Owns how the shared log, the nodes' folders and the notes of clients and workers are read. What must
hold of them is not known here.

The log is trimmed while it grows. So on each machine a program reads it all the time, and writes it
to a file: `python -m tests.chaos.evidence FILE`. What one of them misses while its machine is cut
off, another has.
"""

from __future__ import annotations

import json
import sqlite3
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from jackalope.broker.engine import Engine
from jackalope.core import Core
from jackalope.storage import OutOfReach, Storage
from jackalope.storage.entry import Entry, decode
from jackalope.storage.memory import MemoryBlobs
from jackalope.storage.shared.chunks import Joiner
from jackalope.storage.shared.jetstream import JetStreamEngine
from jackalope.storage.shared.memory import MemoryEngine, MemoryLog
from jackalope.storage.sqlite.schema import COLUMNS
from tests.chaos import history
from tests.chaos.history import Op
from tests.chaos.machines import CLUSTER, NATS, SECRET, Machine

_HEAD = struct.Struct("<QI")  # position and size

#: Its places in a row are a node's own: the order of arrival, in numbers of its own.
_OWN = ("row", "row_checksum", "rank")
_RANK = 12  # of a task's fields


@dataclass
class NodeState:
    """What a node would start with."""

    name: str
    sequence: int  # of the last batch that it has applied
    core: Core
    rows: dict[str, dict[str, Any]]  # of `tasks.db`, by id


@dataclass
class Evidence:
    """Everything that is known of a run."""

    messages: list[tuple[int, bytes]]  # the shared log, by position
    nodes: list[NodeState]
    ops: list[Op]
    led: list[tuple[int, str]] = field(default_factory=list)  # epochs and who said it led in them
    forks: list[str] = field(default_factory=list)  # where two readers saw different messages

    def entries(self) -> Iterator[tuple[int, Entry | None]]:
        """Yield the entries with the positions of their last message; None for a damaged one."""
        joiner = Joiner()
        for position, message in self.messages:
            raw = joiner.add(message)
            if raw is not None:
                yield position, decode(raw)


def gather(machines: list[Machine], notes: Path) -> Evidence:
    """Read everything. The log must have been recorded to its end, and no broker may run."""
    log: dict[int, bytes] = {}
    forks = []
    for machine in machines:
        for position, message in read_recorded(recorded_at(notes, machine)):
            if log.setdefault(position, message) != message:
                forks.append(f"position {position} is another on {machine.name}")
    return Evidence(
        sorted(log.items()),
        [read_node(machine.name, machine.folder / "data") for machine in machines],
        history.read(notes),
        [led for machine in machines for led in read_led(machine)],
        forks,
    )


def recorded_at(notes: Path, machine: Machine) -> Path:
    return notes / f"{machine.name}.log-copy"


def read_recorded(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield what was recorded of the log on one machine."""
    raw, offset = path.read_bytes() if path.exists() else b"", 0
    while offset + _HEAD.size <= len(raw):
        position, size = _HEAD.unpack_from(raw, offset)
        offset += _HEAD.size + size
        if offset <= len(raw):
            yield position, raw[offset - size : offset]


def read_node(name: str, folder: Path) -> NodeState:
    """Return what a node recovers from its folder, with all of it written to history."""
    engine = MemoryEngine(MemoryLog())
    storage = Storage.open_node(folder, engine, CLUSTER, name, MemoryBlobs())
    try:
        driver = Engine(storage.journal, storage.history, storage.blobs)
        flush = driver.begin_flush(0)
        if flush is not None:
            driver.write_flush(flush)
            driver.end_flush(flush)
        core, sequence = driver.core, driver.sequence
    finally:
        storage.close()
    return NodeState(name, sequence, core, read_rows(folder / "shards" / "0" / "tasks.db"))


def read_rows(path: Path) -> dict[str, dict[str, Any]]:
    """Return the tasks of a history by id, without what each node numbers by itself."""
    names = [name for name in COLUMNS if name not in _OWN]
    query = f"SELECT {', '.join(names)}, row FROM tasks"  # noqa: S608
    rows = {}
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        for *columns, raw in database.execute(query):
            fields = msgspec.msgpack.decode(raw)
            fields[_RANK] = 0
            rows[columns[0].hex()] = dict(zip(names, columns, strict=True)) | {"row": fields}
    return rows


def read_led(machine: Machine) -> Iterator[tuple[int, str]]:
    """Yield the epochs in which a node said that it led."""
    for line in machine.log().splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if said.get("message") == "role" and said.get("role") == "leading":
            yield said["epoch"], machine.name


def main() -> None:
    """Record the log, for ever."""
    engine = JetStreamEngine(
        [f"nats://127.0.0.1:{NATS}"], CLUSTER, user="jackalope", password=SECRET
    )
    engine.open(300)
    after = 0
    with Path(sys.argv[1]).open("ab", buffering=0) as file:
        while True:
            try:
                found = engine.read(after, 256)
            except OutOfReach:
                found = []
            for position, message in found:
                file.write(_HEAD.pack(position, len(message)) + message)
                after = position
            if not found:
                time.sleep(0.2)


if __name__ == "__main__":
    main()
