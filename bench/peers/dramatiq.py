"""Dramatiq on Redis, or on RabbitMQ; results in Redis either way, as it has no other lasting place.

Its most favourable setting: one worker process with eight threads, the consumer's idle wait
lowered from a second to a millisecond, since on Redis it polls, and a prefetch of 200. On RabbitMQ
a publish waits for the broker's confirm. A round trip waits by `get_result(block=True)`, a blocking
pop; the end of many tasks is seen by asking Redis for their results.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from bench.peers.base import RESULT_S_MAX, TEXT
from bench.peers.place import Place
from bench.peers.processes import python_program
from bench.peers.redis_server import RedisPeer
from bench.peers.servers import start_rabbitmq

_PLACE = Place.current()

results = RedisBackend(url=_PLACE.redis_url)
broker: Any = (
    RabbitmqBroker(url=_PLACE.amqp_url, confirm_delivery=True)
    if _PLACE.name == "dramatiq_rabbitmq"
    else RedisBroker(url=_PLACE.redis_url)
)
broker.add_middleware(Results(backend=results, store_results=True, result_ttl=3_600_000))
dramatiq.set_broker(broker)


def _noop(payload: str) -> str:
    return payload


noop = dramatiq.actor(_noop, actor_name="noop", queue_name="bench")


class DramatiqRedis(RedisPeer):
    """Dramatiq with Redis for tasks and results."""

    packages = ("dramatiq", "redis", "pika")
    notes = ("no bulk call: one task after the other",)

    def worker_command(self) -> Sequence[str]:
        """Return a worker of one process with threads."""
        command = [python_program("dramatiq"), "bench.peers.dramatiq"]
        return [*command, "--processes", "1", "--threads", "8", "--skip-logging"]

    def worker_environment(self) -> Mapping[str, str]:
        """Shorten the idle wait, and prefetch more."""
        return {"dramatiq_worker_timeout": "1", "dramatiq_queue_prefetch": "200"}

    async def submit_one(self) -> Any:
        """Submit by `send`."""
        return noop.send(TEXT)

    async def submit_bulk(self, count: int) -> list[Any]:
        """Submit one after the other, which is what its `group` does as well."""
        return [noop.send(TEXT) for _ in range(count)]

    async def wait(self, handles: Sequence[Any]) -> None:
        """Wait for the results in Redis."""
        await self.wait_for_keys([results.build_message_key(handle) for handle in handles])

    async def round_trip(self) -> Any:
        """Wait in Redis for the result to be pushed."""
        return noop.send(TEXT).get_result(block=True, timeout=RESULT_S_MAX * 1_000)

    async def close(self) -> None:
        """Disconnect."""
        broker.close()
        await super().close()


class DramatiqRabbitmq(DramatiqRedis):
    """Dramatiq with RabbitMQ for tasks and Redis for results."""

    durability = "tasks: fsync (durable queue, confirms); results: {redis}"

    async def open(self) -> None:
        """Start both servers."""
        await super().open()
        self.servers.append(await asyncio.to_thread(start_rabbitmq, self.place))

    async def reset(self) -> None:
        """Empty the queue as well."""
        broker.flush_all()
        await super().reset()
