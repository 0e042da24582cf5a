"""aio-pika: its plain objects, its robust connection and its patterns."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from aio_pika.exceptions import ChannelPreconditionFailed, DeliveryError, QueueEmpty
from aio_pika.patterns import RPC, Master

from tests.doors.amqp.harness import PATIENCE_S, Broker


@asynccontextmanager
async def open_channel(broker: Broker) -> AsyncIterator[AbstractChannel]:
    async with asyncio.timeout(PATIENCE_S):
        connection = await aio_pika.connect_robust(broker.url)
        async with connection:
            yield await connection.channel(on_return_raises=True)


def test_exchanges_queues_and_messages(broker: Broker) -> None:
    async def scenario() -> None:
        async with open_channel(broker) as channel:
            exchange = await channel.declare_exchange(
                f"x-{uuid.uuid4().hex}", aio_pika.ExchangeType.TOPIC, auto_delete=True
            )
            queue = await channel.declare_queue(exclusive=True)
            await queue.bind(exchange, "weather.#")
            sent = aio_pika.Message(
                b"rain",
                headers={"n": 1, "deep": {"list": [1, "two"]}},
                priority=3,
                correlation_id="c",
                expiration=60,
                delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            )
            await exchange.publish(sent, "weather.north.today")
            got = await queue.get(timeout=PATIENCE_S)
            assert got.body == b"rain"
            assert got.headers == {"n": 1, "deep": {"list": [1, "two"]}}
            assert (got.priority, got.correlation_id, got.expiration) == (3, "c", 60)
            assert (got.exchange, got.routing_key) == (exchange.name, "weather.north.today")
            await got.ack()
            with pytest.raises(QueueEmpty):
                await queue.get(no_ack=True)

    asyncio.run(scenario())


def test_many_confirmed_at_once_and_iterated(broker: Broker) -> None:
    async def scenario() -> None:
        async with open_channel(broker) as channel:
            await channel.set_qos(prefetch_count=50)
            queue = await channel.declare_queue(f"q-{uuid.uuid4().hex}", durable=True)
            publish = channel.default_exchange.publish
            messages = [aio_pika.Message(str(n).encode(), delivery_mode=2) for n in range(500)]
            await asyncio.gather(*(publish(message, queue.name) for message in messages))
            got = []
            async with queue.iterator() as iterator:
                async for message in iterator:
                    async with message.process():
                        got.append(int(message.body))
                    if len(got) == 500:
                        break
            assert got == list(range(500))
            await queue.delete()

    asyncio.run(scenario())


def test_a_message_that_fails_is_delivered_again(broker: Broker) -> None:
    async def scenario() -> None:
        async with open_channel(broker) as channel:
            queue = await channel.declare_queue(exclusive=True)
            await channel.default_exchange.publish(aio_pika.Message(b"hard"), queue.name)
            tries: asyncio.Queue[bool | None] = asyncio.Queue()

            async def on_message(message: AbstractIncomingMessage) -> None:
                tries.put_nowait(message.redelivered)
                async with message.process(requeue=True):
                    if not message.redelivered:
                        raise ValueError("the first time goes wrong")

            def ignore(_loop: object, _context: object) -> None:
                """The failure above is meant."""

            asyncio.get_running_loop().set_exception_handler(ignore)
            await queue.consume(on_message)
            assert [await tries.get(), await tries.get()] == [False, True]

    asyncio.run(scenario())


def test_returned_messages_and_refused_declarations(broker: Broker) -> None:
    async def scenario() -> None:
        async with open_channel(broker) as channel:
            with pytest.raises(DeliveryError):
                await channel.default_exchange.publish(aio_pika.Message(b""), "nowhere-at-all")
            queue = await channel.declare_queue(exclusive=True)
            with pytest.raises(ChannelPreconditionFailed):
                await channel.declare_queue(
                    queue.name, exclusive=True, arguments={"x-max-length": 3}
                )

    asyncio.run(scenario())


def test_a_transaction(broker: Broker) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(PATIENCE_S), await aio_pika.connect(broker.url) as connection:
            channel = await connection.channel(publisher_confirms=False)
            queue = await channel.declare_queue(exclusive=True)
            async with channel.transaction():
                await channel.default_exchange.publish(aio_pika.Message(b"kept"), queue.name)
            transaction = channel.transaction()
            await transaction.select()
            await channel.default_exchange.publish(aio_pika.Message(b"dropped"), queue.name)
            await transaction.rollback()
            got = await queue.get(no_ack=True)
            assert got.body == b"kept"
            assert await queue.get(no_ack=True, fail=False) is None

    asyncio.run(scenario())


def test_remote_calls(broker: Broker) -> None:
    async def scenario() -> None:
        async with open_channel(broker) as serving, open_channel(broker) as calling:

            async def multiply(*, x: int, y: int) -> int:
                return x * y

            name = f"multiply-{uuid.uuid4().hex}"
            server, client = await RPC.create(serving), await RPC.create(calling)
            await server.register(name, multiply, auto_delete=True)
            results = await asyncio.gather(
                *(client.call(name, {"x": x, "y": 2}) for x in range(20))
            )
            assert results == [2 * x for x in range(20)]
            await client.close()
            await server.close()

    asyncio.run(scenario())


def test_a_master_and_its_worker(broker: Broker) -> None:
    async def scenario() -> None:
        async with open_channel(broker) as serving, open_channel(broker) as asking:
            done: asyncio.Queue[int] = asyncio.Queue()

            async def work(*, number: int) -> None:
                done.put_nowait(number)

            name = f"work-{uuid.uuid4().hex}"
            worker = await Master(serving).create_worker(name, work, auto_delete=True)
            master = Master(asking)
            for number in range(5):
                await master.create_task(name, {"number": number})
            assert [await done.get() for _ in range(5)] == [0, 1, 2, 3, 4]
            await worker.close()

    asyncio.run(scenario())
