"""Plain RabbitMQ by pika: no task queue on top, messages and acknowledgements only.

A durable queue (quorum, unless `--queue-type classic`), persistent messages, publisher confirms. In
bulk a thousand messages are published before their confirms are waited for. The worker prefetches
500 and acknowledges each message; it keeps no result, so that the end of many tasks is the reply to
one more message behind them. In a round trip the request is confirmed and persistent, and the reply
comes by direct reply-to, which keeps nothing. Client and worker use pika's callback connection, its
fastest.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import pika

from bench.peers.base import PAYLOAD, Peer
from bench.peers.place import Place
from bench.peers.servers import start_rabbitmq

_QUEUE = "bench"
_REPLIES = "amq.rabbitmq.reply-to"
_ARGUMENTS = {"x-queue-type": Place.current().queue_type}


class Channel:
    """A channel with confirms whose loop runs only while something is waited for."""

    def __init__(self, url: str) -> None:
        self._parameters = pika.URLParameters(url)
        # The loop stands still between calls.
        self._parameters.heartbeat = 0
        self._error: BaseException | None = None
        self._is_closing = False
        self._unconfirmed: dict[int, None] = {}
        self._published = 0
        self._reply: bytes | None = None
        self._is_reply_awaited = False
        self._connection = pika.SelectConnection(
            self._parameters,
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._set_up),
            on_open_error_callback=self._fail,
            on_close_callback=self._fail,
        )
        self._run()

    def publish(self, count: int, *, is_reply_awaited: bool = False) -> bytes | None:
        """Publish messages, wait for their confirms, and for a reply if one is wanted."""
        properties = pika.BasicProperties(
            delivery_mode=2, reply_to=_REPLIES if is_reply_awaited else None
        )
        self._reply = None
        self._is_reply_awaited = is_reply_awaited
        for _ in range(count):
            self._published += 1
            self._unconfirmed[self._published] = None
            self._channel.basic_publish("", _QUEUE, PAYLOAD, properties)
        self._run()
        return self._reply

    def purge(self) -> None:
        """Empty the queue."""
        self._channel.queue_purge(_QUEUE, callback=self._stop)
        self._run()

    def close(self) -> None:
        """Disconnect."""
        self._is_closing = True
        self._connection.close()
        self._run()

    def _run(self) -> None:
        self._connection.ioloop.start()
        if self._error is not None:
            raise self._error

    def _stop(self, *_arguments: object) -> None:
        self._connection.ioloop.stop()

    def _fail(self, _connection: object, error: BaseException) -> None:
        if not self._is_closing:
            self._error = error
        self._stop()

    def _set_up(self, channel: Any) -> None:
        self._channel = channel
        channel.confirm_delivery(self._on_confirm)
        channel.basic_consume(_REPLIES, self._on_reply, auto_ack=True)
        channel.queue_declare(_QUEUE, durable=True, arguments=_ARGUMENTS, callback=self._stop)

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        if not isinstance(method, pika.spec.Basic.Ack):
            raise TypeError(f"RabbitMQ refused a message: {method}")
        if method.multiple:
            done = [tag for tag in self._unconfirmed if tag <= method.delivery_tag]
        else:
            done = [method.delivery_tag]
        for tag in done:
            del self._unconfirmed[tag]
        self._stop_if_done()

    def _on_reply(self, _channel: Any, _method: Any, _properties: Any, body: bytes) -> None:
        self._reply = body
        self._stop_if_done()

    def _stop_if_done(self) -> None:
        if not self._unconfirmed and (self._reply is not None or not self._is_reply_awaited):
            self._stop()


class Pika(Peer):
    """RabbitMQ by pika."""

    packages = ("pika",)
    durability = "tasks: fsync (durable {queue} queue, confirms); no results"
    notes = ("the worker only acknowledges: no result is kept",)

    async def open(self) -> None:
        """Start RabbitMQ and connect."""
        self.servers.append(await asyncio.to_thread(start_rabbitmq, self.place))
        self._channel = Channel(self.place.amqp_url)

    def worker_command(self) -> Sequence[str]:
        """Return this module."""
        return [sys.executable, "-m", "bench.peers.pika"]

    async def submit_one(self) -> Any:
        """Publish, and wait for the confirm."""
        self._channel.publish(1)

    async def submit_bulk(self, count: int) -> list[Any]:
        """Publish all, then wait for the confirms."""
        self._channel.publish(count)
        return [None] * count

    async def wait(self, _handles: Sequence[Any]) -> None:
        """Wait for the reply to one more message, which the one worker reads last."""
        await self.round_trip()

    async def round_trip(self) -> Any:
        """Publish with confirm, and wait for the reply."""
        return self._channel.publish(1, is_reply_awaited=True)

    async def reset(self) -> None:
        """Empty the queue."""
        self._channel.purge()

    async def close(self) -> None:
        """Disconnect."""
        if self.servers:
            self._channel.close()


def _work(url: str) -> None:
    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        channel.basic_ack(method.delivery_tag)
        if properties.reply_to is not None:
            channel.basic_publish("", properties.reply_to, body)

    def on_channel(channel: Any) -> None:
        channel.basic_qos(prefetch_count=500)
        channel.basic_consume(_QUEUE, on_message)

    connection = pika.SelectConnection(
        pika.URLParameters(url),
        on_open_callback=lambda connection: connection.channel(on_open_callback=on_channel),
    )
    connection.ioloop.start()


if __name__ == "__main__":
    _work(Place.current().amqp_url)
