"""The series in SQLite: `series.db`, numbers over time.

Owns the file. Does not know what the numbers are.

The numbers are for people to look at. They need no journal: a crash may cost those of the last
seconds, and a file that is damaged is put aside, because a broker must not fail to start because of
its charts.
"""

from pathlib import Path

from jackalope.storage.faults import Corrupt, DiskFull
from jackalope.storage.ports import Point
from jackalope.storage.sqlite.database import Database, Format, Migration

MIGRATIONS: dict[int, Migration] = {}

FORMAT = Format(
    version=1,
    schema=(
        """CREATE TABLE points (
            step_s    INTEGER NOT NULL,
            at_s      INTEGER NOT NULL,
            namespace TEXT NOT NULL,
            queue     TEXT NOT NULL,
            body      BLOB NOT NULL,
            PRIMARY KEY (step_s, at_s, namespace, queue)
        ) WITHOUT ROWID""",
    ),
    migrations=MIGRATIONS,
)

CACHE_BYTES = 1024 * 1024
WAL_BYTES_MAX = 1024 * 1024

#: Where a file goes that cannot be read.
DAMAGED = ".damaged"


class SeriesStore:
    """Numbers over time, for people to look at. They may be lost; no task depends on them.

    May be called from any thread, one call at a time. Without a path it is in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self._db = Database(
            path, FORMAT, synchronous="NORMAL", cache_bytes=CACHE_BYTES, wal_bytes_max=WAL_BYTES_MAX
        )

    @classmethod
    def open(cls, path: Path) -> "SeriesStore":
        """Open a file, or put it aside and begin another one if it is damaged.

        On a full disk the numbers are kept in memory.
        """
        try:
            return cls(path)
        except DiskFull:
            return cls(None)
        except Corrupt:
            for end in ("-wal", "-shm"):
                path.with_name(path.name + end).unlink(missing_ok=True)
            path.replace(path.with_name(path.name + DAMAGED))
            return cls(path)

    def write(self, points: list[Point], keep: dict[int, int]) -> None:
        """Store points, and remove those that begin before what is kept of their step.

        A point of the same step, time, namespace and queue is replaced. All of it happens or none.
        """
        rows = [(p.step_s, p.at_s, p.namespace, p.queue, p.body) for p in points]
        with self._db.transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?, ?)", rows)
            for step_s, first_s in keep.items():
                connection.execute(
                    "DELETE FROM points WHERE step_s = ? AND at_s < ?", (step_s, first_s)
                )
            self._db.wal_bytes += sum(len(p.body) + 64 for p in points)

    def read(
        self, step_s: int, first_s: int, before_s: int, namespace: str | None = None
    ) -> list[Point]:
        """Return the points of a step that begin within a time, oldest first."""
        with self._db.reading() as connection:
            found = connection.execute(
                "SELECT step_s, at_s, namespace, queue, body FROM points"
                " WHERE step_s = ? AND at_s >= ? AND at_s < ? AND (? IS NULL OR namespace = ?)"
                " ORDER BY at_s, namespace, queue",
                (step_s, first_s, before_s, namespace, namespace),
            ).fetchall()
        return [Point(*row) for row in found]

    def last(self, step_s: int) -> int | None:
        """Return when the latest point of a step begins; None if there is none."""
        with self._db.reading() as connection:
            found = connection.execute(
                "SELECT max(at_s) FROM points WHERE step_s = ?", (step_s,)
            ).fetchone()
        last: int | None = found[0]
        return last

    def close(self) -> None:
        """Close the file; safe to repeat."""
        self._db.close()
