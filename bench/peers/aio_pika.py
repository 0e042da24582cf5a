"""Plain RabbitMQ by aio-pika: no task queue on top, messages and acknowledgements only.

A durable queue (quorum, unless `--queue-type classic`), persistent messages, publisher confirms. In
bulk 200 publishes wait for their confirms at once. The worker prefetches 500 and acknowledges each
message; it keeps no result, so that the end of many tasks is the reply to one more message behind
them. In a round trip the request is confirmed and persistent, and the reply comes by direct
reply-to, which keeps nothing. uvloop on both sides.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import aio_pika
import uvloop
from aio_pika.abc import AbstractIncomingMessage

from bench.peers.base import PAYLOAD, Peer, concurrently
from bench.peers.place import Place
from bench.peers.servers import start_rabbitmq

_QUEUE = "bench"
_REPLIES = "amq.rabbitmq.reply-to"
_ARGUMENTS = {"x-queue-type": Place.current().queue_type}


class AioPika(Peer):
    """RabbitMQ by aio-pika."""

    packages = ("aio-pika",)
    durability = "tasks: fsync (durable {queue} queue, confirms); no results"
    notes = (
        "no bulk call: 200 publishes at once",
        "the worker only acknowledges: no result is kept",
    )

    async def open(self) -> None:
        """Start RabbitMQ and connect."""
        self.servers.append(await asyncio.to_thread(start_rabbitmq, self.place))
        self._connection = await aio_pika.connect(self.place.amqp_url)
        channel = await self._connection.channel(publisher_confirms=True)
        self._exchange = channel.default_exchange
        self._queue = await _declare(channel)
        self._replies: asyncio.Queue[bytes] = asyncio.Queue()
        replies = await channel.get_queue(_REPLIES, ensure=False)
        await replies.consume(self._on_reply, no_ack=True)

    def worker_command(self) -> Sequence[str]:
        """Return this module."""
        return [sys.executable, "-m", "bench.peers.aio_pika"]

    async def submit_one(self) -> Any:
        """Publish, and wait for the confirm."""
        await self._exchange.publish(_message(None), _QUEUE)

    async def submit_bulk(self, count: int) -> list[Any]:
        """Publish many at once."""
        return await concurrently(count, 200, self.submit_one)

    async def wait(self, _handles: Sequence[Any]) -> None:
        """Wait for the reply to one more message, which the one worker reads last."""
        await self.round_trip()

    async def round_trip(self) -> Any:
        """Publish with confirm, and wait for the reply."""
        await self._exchange.publish(_message(_REPLIES), _QUEUE)
        return await self._replies.get()

    async def reset(self) -> None:
        """Empty the queue."""
        await self._queue.purge()

    async def close(self) -> None:
        """Disconnect."""
        if self.servers:
            await self._connection.close()

    async def _on_reply(self, message: AbstractIncomingMessage) -> None:
        self._replies.put_nowait(message.body)


def _message(reply_to: str | None) -> Any:
    mode = aio_pika.DeliveryMode.PERSISTENT
    return aio_pika.Message(PAYLOAD, delivery_mode=mode, reply_to=reply_to)


async def _declare(channel: Any) -> Any:
    return await channel.declare_queue(_QUEUE, durable=True, arguments=_ARGUMENTS)


async def _work(url: str) -> None:
    connection = await aio_pika.connect(url)
    # A reply that nobody waits for any more is nothing to wait for.
    channel = await connection.channel(publisher_confirms=False)
    await channel.set_qos(prefetch_count=500)
    queue = await _declare(channel)

    async def on_message(message: AbstractIncomingMessage) -> None:
        await message.ack()
        if message.reply_to is not None:
            reply = aio_pika.Message(message.body)
            await channel.default_exchange.publish(reply, message.reply_to)

    await queue.consume(on_message)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_work(Place.current().amqp_url))
