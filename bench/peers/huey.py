"""Huey on Redis, or on a SQLite file with a sync of every commit.

Its most favourable setting: one consumer process with one thread (tasks that do nothing gain
nothing from more), a poll of 1 ms, no scheduler of periodic tasks. On Redis the consumer waits in a
blocking pop, on SQLite it polls; a round trip polls for its result every millisecond on both. (Huey
can push results on Redis: a third off the round trip, a fifth off the throughput. It is off, as by
default.)
With SQLite there is no broker process: client and worker write the file, so that there is neither
memory nor CPU of a broker to measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import huey as library

from bench.peers.base import RESULT_S_MAX, TEXT, Peer, until
from bench.peers.place import Place
from bench.peers.processes import python_program
from bench.peers.servers import start_redis

_PLACE = Place.current()

huey: Any = (
    library.SqliteHuey("bench", filename=str(_PLACE.path / "huey.db"), fsync=True)
    if _PLACE.name == "huey_sqlite"
    else library.RedisHuey("bench", url=_PLACE.redis_url)
)


def _noop(payload: str) -> str:
    return payload


noop = huey.task(name="noop")(_noop)


class HueySqlite(Peer):
    """Huey with a file."""

    packages: ClassVar[tuple[str, ...]] = ("huey",)
    durability = "fsync (SQLite WAL, synchronous=FULL)"
    notes: ClassVar[tuple[str, ...]] = (
        "no bulk call: one task after the other",
        "no broker process: the file is written by client and worker",
    )

    async def open(self) -> None:
        """Do nothing: the file is made by its first use."""

    def worker_command(self) -> Sequence[str]:
        """Return a consumer of one process with one thread."""
        command = [python_program("huey_consumer"), "bench.peers.huey.huey", "--workers", "1"]
        poll = ["--delay", "0.001", "--max-delay", "0.001", "--backoff", "1.0"]
        return [*command, *poll, "--no-periodic", "--quiet"]

    async def submit_one(self) -> Any:
        """Submit by a call."""
        return noop(TEXT)

    async def submit_bulk(self, count: int) -> list[Any]:
        """Submit one after the other, which is what its `map` does as well."""
        return [noop(TEXT) for _ in range(count)]

    async def wait(self, handles: Sequence[Any]) -> None:
        """Wait for the result of the last task, then look that all are kept."""
        ids = [handle.id for handle in handles]

        async def is_last_there() -> bool:
            return bool(huey.storage.has_data_for_key(ids[-1]))

        async def are_all_there() -> bool:
            parts = [ids[at : at + 500] for at in range(0, len(ids), 500)]
            return sum(len(huey.storage.peek_many(part)) for part in parts) == len(ids)

        await until(is_last_there)
        await until(are_all_there)

    async def round_trip(self) -> Any:
        """Wait for the result, and leave it where it is."""
        return noop(TEXT).get(
            blocking=True, timeout=RESULT_S_MAX, backoff=1, max_delay=0.001, preserve=True
        )

    async def reset(self) -> None:
        """Empty the file."""
        huey.flush()

    async def close(self) -> None:
        """Disconnect."""
        huey.storage.close()


class HueyRedis(HueySqlite):
    """Huey with Redis."""

    packages = ("huey", "redis")
    durability = "{redis}"
    notes = ("no bulk call: one task after the other",)

    async def open(self) -> None:
        """Start Redis."""
        self.servers.append(start_redis(self.place))

    async def reset(self) -> None:
        """Empty Redis."""
        huey.storage.conn.flushall()

    async def close(self) -> None:
        """Disconnect."""
        huey.storage.conn.close()
