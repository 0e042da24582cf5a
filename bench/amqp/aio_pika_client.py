"""aio-pika: many publishes under way at once, as an asyncio program has them."""

from __future__ import annotations

import asyncio
import time

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

_AT_ONCE = 200
_BODY = b"x" * 100


def confirmed(url: str, queue: str, number: int) -> float:
    return asyncio.run(_confirmed(url, queue, number))


def drained(url: str, queue: str, number: int) -> float:
    return asyncio.run(_drained(url, queue, number))


def called(url: str, queue: str, number: int) -> float:
    return asyncio.run(_called(url, queue, number))


async def _confirmed(url: str, queue: str, number: int) -> float:
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        await channel.declare_queue(queue, durable=True)
        publish = channel.default_exchange.publish
        message = aio_pika.Message(_BODY, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        begin = time.perf_counter()
        for left in range(number, 0, -_AT_ONCE):
            wave = range(min(left, _AT_ONCE))
            await asyncio.gather(*(publish(message, queue) for _ in wave))
        return number / (time.perf_counter() - begin)


async def _drained(url: str, queue: str, number: int) -> float:
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=_AT_ONCE)
        target = await channel.declare_queue(queue, durable=True)
        done = asyncio.Event()
        got = 0

        async def on_message(message: AbstractIncomingMessage) -> None:
            nonlocal got
            await message.ack()
            got += 1
            if got == number:
                done.set()

        begin = time.perf_counter()
        await target.consume(on_message)
        await done.wait()
        return number / (time.perf_counter() - begin)


async def _called(url: str, queue: str, number: int) -> float:
    async with await aio_pika.connect(url) as serving, await aio_pika.connect(url) as calling:
        server = await serving.channel(publisher_confirms=False)
        service = await server.declare_queue(queue, auto_delete=True)

        async def on_call(message: AbstractIncomingMessage) -> None:
            assert message.reply_to is not None
            reply = aio_pika.Message(message.body)
            await server.default_exchange.publish(reply, message.reply_to, mandatory=False)

        await service.consume(on_call, no_ack=True)
        client = await calling.channel(publisher_confirms=False)
        replies: asyncio.Queue[bytes] = asyncio.Queue()
        address = await client.get_queue("amq.rabbitmq.reply-to", ensure=False)

        async def on_reply(message: AbstractIncomingMessage) -> None:
            replies.put_nowait(message.body)

        await address.consume(on_reply, no_ack=True)
        call = aio_pika.Message(_BODY, reply_to="amq.rabbitmq.reply-to")
        begin = time.perf_counter()
        for _ in range(number):
            await client.default_exchange.publish(call, queue)
            await replies.get()
        return number / (time.perf_counter() - begin)
