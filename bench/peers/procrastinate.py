"""procrastinate on PostgreSQL.

Its most favourable setting: one worker process that listens for notifications, runs up to 20 tasks
at once and polls every 50 ms instead of every 5 s for what a notification missed; `batch_defer` for
bulk; uvloop on both sides. It keeps no return values: what is kept, and waited for, is the task's
row with its status, asked for every millisecond in a round trip.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import uvloop
from procrastinate import App, PsycopgConnector

from bench.peers.base import TEXT, Peer, until
from bench.peers.place import Place
from bench.peers.servers import start_postgres

_UNFINISHED = (
    "SELECT EXISTS(SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing')) AS any"
)

app = App(connector=PsycopgConnector(conninfo=Place.current().postgres_url, max_size=30))


async def _noop(payload: str) -> str:
    return payload


noop = app.task(name="noop", queue="bench")(_noop)


class Procrastinate(Peer):
    """procrastinate with its defaults but for the polling."""

    packages = ("procrastinate", "psycopg")
    durability = "fsync (PostgreSQL synchronous_commit on)"
    notes = ("keeps the task's status, no return value",)

    async def open(self) -> None:
        """Start PostgreSQL and make the tables."""
        self.servers.append(await asyncio.to_thread(start_postgres, self.place))
        await app.open_async()
        await app.schema_manager.apply_schema_async()

    def worker_command(self) -> Sequence[str]:
        """Return this module."""
        return [sys.executable, "-m", "bench.peers.procrastinate"]

    async def submit_one(self) -> Any:
        """Submit by `defer`."""
        return await noop.defer_async(payload=TEXT)

    async def submit_bulk(self, count: int) -> list[Any]:
        """Submit by `batch_defer`."""
        return list(await noop.batch_defer_async(*({"payload": TEXT} for _ in range(count))))

    async def wait(self, _handles: Sequence[Any]) -> None:
        """Wait until no task is unfinished."""

        async def are_all_done() -> bool:
            row = await app.connector.execute_query_one_async(_UNFINISHED)
            return not row["any"]

        await until(are_all_done)

    async def round_trip(self) -> Any:
        """Poll for the status."""
        task_id = await self.submit_one()

        async def is_done() -> bool:
            status = await app.job_manager.get_job_status_async(task_id)
            return bool(status.value == "succeeded")

        await until(is_done, pause_s=0.001)
        return TEXT

    async def reset(self) -> None:
        """Empty the tables."""
        await app.connector.execute_query_async("TRUNCATE procrastinate_jobs CASCADE")

    async def close(self) -> None:
        """Disconnect."""
        await app.close_async()


async def _work() -> None:
    async with app.open_async():
        await app.run_worker_async(concurrency=20, fetch_job_polling_interval=0.05)


if __name__ == "__main__":
    uvloop.run(_work())
