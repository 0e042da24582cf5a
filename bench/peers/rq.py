"""RQ on Redis.

Its most favourable setting: the worker that runs tasks in its own process rather than in a fork of
it for each task, and `enqueue_many`, which pipelines. A round trip waits by `latest_result` with a
timeout, a blocking read of a stream; the end of many tasks is seen by asking Redis for their
results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rq import Queue

from bench.peers.base import RESULT_S_MAX, TEXT
from bench.peers.processes import python_program
from bench.peers.redis_server import RedisPeer


def noop(payload: str) -> str:
    """Give the payload back."""
    return payload


class Rq(RedisPeer):
    """RQ with its simple worker."""

    packages = ("rq", "redis")

    async def open(self) -> None:
        """Start Redis and name the queue."""
        await super().open()
        self._queue = Queue("bench", connection=self.redis)

    def worker_command(self) -> Sequence[str]:
        """Return a worker that does not fork for each task."""
        command = [python_program("rq"), "worker", "bench", "--url", self.place.redis_url]
        return [*command, "--worker-class", "rq.worker.SimpleWorker", "--quiet"]

    async def submit_one(self) -> Any:
        """Submit by `enqueue`."""
        return self._queue.enqueue(noop, TEXT, result_ttl=3_600)

    async def submit_bulk(self, count: int) -> list[Any]:
        """Submit by `enqueue_many`."""
        data = [Queue.prepare_data(noop, (TEXT,), result_ttl=3_600) for _ in range(count)]
        return list(self._queue.enqueue_many(data))

    async def wait(self, handles: Sequence[Any]) -> None:
        """Wait for the results in Redis."""
        await self.wait_for_keys([f"rq:results:{handle.id}" for handle in handles])

    async def round_trip(self) -> Any:
        """Wait in Redis for the result to be added to its stream."""
        handle = await self.submit_one()
        return handle.latest_result(timeout=RESULT_S_MAX).return_value
