"""arq on Redis.

Its most favourable setting: the worker polls every 5 ms instead of every 500 ms and runs up to 200
tasks at once, uvloop on both sides. It has no bulk call; tasks are submitted 50 at once. A round
trip polls for the result every millisecond, as its client can do no better; the end of many tasks
is seen by asking Redis for their results.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import uvloop
from arq.connections import RedisSettings, create_pool
from arq.worker import Worker, func

from bench.peers.base import RESULT_S_MAX, TEXT, concurrently
from bench.peers.place import Place
from bench.peers.redis_server import RedisPeer

_REDIS = RedisSettings(port=Place.current().redis_port)


async def noop(_context: dict[str, Any], payload: str) -> str:
    """Give the payload back."""
    return payload


class Arq(RedisPeer):
    """arq with a fast poll."""

    packages = ("arq", "redis")
    notes = ("no bulk call: 50 submits at once",)

    async def open(self) -> None:
        """Start Redis and connect."""
        await super().open()
        self._pool = await create_pool(_REDIS)

    def worker_command(self) -> Sequence[str]:
        """Return this module: the `arq` program would not use uvloop."""
        return [sys.executable, "-m", "bench.peers.arq"]

    async def submit_one(self) -> Any:
        """Submit by `enqueue_job`."""
        return await self._pool.enqueue_job("noop", TEXT)

    async def submit_bulk(self, count: int) -> list[Any]:
        """Submit many at once, over as many connections."""
        return await concurrently(count, 50, self.submit_one)

    async def wait(self, handles: Sequence[Any]) -> None:
        """Wait for the results in Redis."""
        await self.wait_for_keys([f"arq:result:{handle.job_id}" for handle in handles])

    async def round_trip(self) -> Any:
        """Poll for the result."""
        handle = await self.submit_one()
        return await handle.result(timeout=RESULT_S_MAX, poll_delay=0.001)

    async def close(self) -> None:
        """Disconnect."""
        if self.servers:
            await self._pool.aclose()
        await super().close()


async def _work() -> None:
    worker = Worker(
        [func(noop, name="noop")],
        redis_settings=_REDIS,
        max_jobs=200,
        poll_delay=0.005,
        keep_result=3_600,
        log_results=False,
    )
    await worker.async_run()


if __name__ == "__main__":
    uvloop.run(_work())
