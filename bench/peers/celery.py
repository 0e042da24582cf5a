"""Celery on Redis, or on RabbitMQ with results in Redis.

Its most favourable setting: one worker process with the solo pool, nothing but the work itself (no
gossip, mingle, heartbeat, events or rate limits), prefetch of 256, tasks acknowledged before they
run (its default), one producer for a whole bulk. On RabbitMQ a publish waits for the broker's
confirm, without which a submit that returned says nothing. A round trip waits by `result.get`,
which listens on a channel; the end of many tasks is seen by asking Redis for their results.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from celery import Celery

from bench.peers.base import RESULT_S_MAX, TEXT
from bench.peers.place import Place
from bench.peers.processes import python_program
from bench.peers.redis_server import RedisPeer
from bench.peers.servers import start_rabbitmq

_PLACE = Place.current()
_IS_RABBITMQ = _PLACE.name == "celery_rabbitmq"

app = Celery(
    "bench", broker=_PLACE.amqp_url if _IS_RABBITMQ else _PLACE.redis_url, backend=_PLACE.redis_url
)
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_transport_options={"confirm_publish": True} if _IS_RABBITMQ else {},
    result_expires=3600,
    task_default_queue="bench",
    worker_disable_rate_limits=True,
    worker_prefetch_multiplier=256,
    worker_send_task_events=False,
)


def _noop(payload: str) -> str:
    return payload


noop = app.task(name="noop", ignore_result=False)(_noop)


class CeleryRedis(RedisPeer):
    """Celery with Redis for tasks and results."""

    packages = ("celery", "kombu", "redis")
    notes = ("no bulk call: one producer, one task after the other",)

    def worker_command(self) -> Sequence[str]:
        """Return the leanest worker there is."""
        command = [python_program("celery"), "-A", "bench.peers.celery:app", "worker"]
        pool = ["--pool=solo", "--concurrency=1", "--loglevel=ERROR"]
        return [*command, *pool, "--without-gossip", "--without-mingle", "--without-heartbeat"]

    async def submit_one(self) -> Any:
        """Submit by `apply_async`."""
        return noop.apply_async((TEXT,))

    async def submit_bulk(self, count: int) -> list[Any]:
        """Submit with one producer."""
        with app.producer_or_acquire() as producer:
            return [noop.apply_async((TEXT,), producer=producer) for _ in range(count)]

    async def wait(self, handles: Sequence[Any]) -> None:
        """Wait for the results in Redis."""
        await self.wait_for_keys([f"celery-task-meta-{handle.id}" for handle in handles])

    async def round_trip(self) -> Any:
        """Wait on the result's channel."""
        return noop.apply_async((TEXT,)).get(timeout=RESULT_S_MAX)

    async def close(self) -> None:
        """Disconnect."""
        app.close()
        await super().close()


class CeleryRabbitmq(CeleryRedis):
    """Celery with RabbitMQ for tasks and Redis for results."""

    durability = "tasks: fsync (durable queue, confirms); results: {redis}"

    async def open(self) -> None:
        """Start both servers."""
        await super().open()
        self.servers.append(await asyncio.to_thread(start_rabbitmq, self.place))

    async def reset(self) -> None:
        """Empty the queue as well."""
        app.control.purge()
        await super().reset()
