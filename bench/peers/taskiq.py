"""taskiq on Redis: a stream for tasks, keys for results.

Its most favourable setting that acknowledges tasks: one worker process that runs up to 50 tasks at
once and prefetches as many, uvloop on both sides. It has no bulk call; tasks are submitted 50 at
once. A round trip polls for the result every millisecond, as its client can do no better; the end
of many tasks is seen by asking Redis for their results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from bench.peers.base import RESULT_S_MAX, TEXT, concurrently
from bench.peers.place import Place
from bench.peers.processes import python_program
from bench.peers.redis_server import RedisPeer

_PLACE = Place.current()

broker = RedisStreamBroker(
    _PLACE.redis_url, max_connection_pool_size=100, xread_count=200
).with_result_backend(
    RedisAsyncResultBackend(_PLACE.redis_url, result_ex_time=3_600, max_connection_pool_size=100)
)


async def _noop(payload: str) -> str:
    return payload


noop = broker.task(task_name="noop")(_noop)


class Taskiq(RedisPeer):
    """taskiq with a stream."""

    packages = ("taskiq", "taskiq-redis", "redis")
    notes = ("no bulk call: 50 submits at once",)

    async def open(self) -> None:
        """Start Redis and connect."""
        await super().open()
        await broker.startup()

    def worker_command(self) -> Sequence[str]:
        """Return a worker of one process."""
        command = [python_program("taskiq"), "worker", "bench.peers.taskiq:broker"]
        limits = ["--workers", "1", "--max-async-tasks", "50", "--max-prefetch", "50"]
        return [*command, *limits, "--log-level", "ERROR"]

    async def submit_one(self) -> Any:
        """Submit by `kiq`."""
        return await noop.kiq(TEXT)

    async def submit_bulk(self, count: int) -> list[Any]:
        """Submit many at once, over as many connections."""
        return await concurrently(count, 50, self.submit_one)

    async def wait(self, handles: Sequence[Any]) -> None:
        """Wait for the results in Redis."""
        await self.wait_for_keys([handle.task_id for handle in handles])

    async def round_trip(self) -> Any:
        """Poll for the result."""
        handle = await self.submit_one()
        result = await handle.wait_result(check_interval=0.001, timeout=RESULT_S_MAX)
        return result.return_value

    async def reset(self) -> None:
        """Empty Redis, and make the stream again."""
        await super().reset()
        await broker.startup()

    async def close(self) -> None:
        """Disconnect."""
        if self.servers:
            await broker.shutdown()
        await super().close()
