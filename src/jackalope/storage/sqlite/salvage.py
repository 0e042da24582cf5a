"""Salvage: making a readable journal of a damaged one, as far as that goes.

Only for a start that accepts loss. What was found is kept next to the new file under another name,
so that nothing is destroyed. Which batches are lost is found out when they are read.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from shutil import copyfile

from jackalope.storage.faults import Corrupt, naming_faults
from jackalope.storage.sqlite.database import PAGE_BYTES, bring_up_to_date
from jackalope.storage.sqlite.journal import FORMAT
from jackalope.storage.sqlite.wal_check import check_wal

#: How many problems of a file are listed.
PROBLEMS_MAX = 20

_ENDS = ("", "-wal", "-shm")


def integrity_problems(path: Path) -> list[str]:
    """Return what SQLite finds wrong with a file; nothing if it is sound. Changes nothing."""
    try:
        with closing(_open(path)) as connection:
            found = connection.execute(f"PRAGMA integrity_check({PROBLEMS_MAX})").fetchall()
    except sqlite3.DatabaseError as error:
        return [str(error)]
    return [text for (text,) in found if text != "ok"]


def salvage_journal(path: Path) -> list[str]:
    """Make the journal readable, and return what was wrong with it."""
    if not path.exists():
        return []
    losses = []
    try:
        check_wal(path)
    except Corrupt as fault:
        losses.append(str(fault))
        set_aside(path, is_copied=True)
    problems = integrity_problems(path)
    if problems:
        rows, trimmed = list(_rows(path)), _trimmed(path)
        aside = set_aside(path)
        losses.append(f"{path}: {'; '.join(problems)}; kept as {aside.name}")
        _write_anew(path, rows, trimmed)
    return losses


def set_aside(path: Path, *, is_copied: bool = False) -> Path:
    """Give a database another name, or copy it, and return that name."""
    aside = name_aside(path)
    with naming_faults(path):
        for end in _ENDS:
            source = path.with_name(path.name + end)
            if source.exists():
                target = aside.with_name(aside.name + end)
                if is_copied:
                    copyfile(source, target)
                else:
                    source.rename(target)
    return aside


def name_aside(path: Path) -> Path:
    """Return a name that is free for something damaged."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return aside


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)


Row = tuple[int, int, int, bytes]


def _rows(path: Path) -> Iterator[Row]:
    """Yield every batch that can be read, one look-up each where a walk fails."""
    try:
        with closing(_open(path)) as connection:
            after, last = 0, _end(connection)
            while after < last:
                try:
                    for row in connection.execute(
                        "SELECT sequence, epoch, checksum, body FROM batches WHERE sequence > ?"
                        " ORDER BY sequence",
                        (after,),
                    ):
                        after = row[0]
                        yield row
                except sqlite3.DatabaseError:
                    after += 1
                else:
                    return
    except sqlite3.DatabaseError:
        return


def _end(connection: sqlite3.Connection) -> int:
    """Return the last sequence that a look into the file shows, by whatever way works."""
    for sql in ("SELECT max(sequence) FROM batches", "SELECT trimmed + 1000000 FROM writer"):
        try:
            (last,) = connection.execute(sql).fetchone()
        except sqlite3.DatabaseError:
            continue
        return int(last or 0)
    return 1_000_000


def _trimmed(path: Path) -> int:
    try:
        with closing(_open(path)) as connection:
            return int(connection.execute("SELECT trimmed FROM writer").fetchone()[0])
    except (sqlite3.DatabaseError, TypeError):
        return 0


def _write_anew(path: Path, rows: list[Row], trimmed: int) -> None:
    trimmed = trimmed or (rows[0][0] - 1 if rows else 0)
    with naming_faults(path), closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        bring_up_to_date(connection, FORMAT)
        epoch = max((row[1] for row in rows), default=0)
        connection.execute("BEGIN")
        connection.execute("UPDATE writer SET epoch = ?, trimmed = ?", (epoch, trimmed))
        connection.executemany("INSERT OR IGNORE INTO batches VALUES (?, ?, ?, ?, NULL)", rows)
        connection.execute("COMMIT")
