"""Callers of the Python library are answered by workers that know nothing but AMQP.

The workers of `core` are real processes, started by the pool's launcher; see `pika_worker`. For
`by-hand` the test itself is the worker, with pika.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker
from pika.spec import BasicProperties

from jackalope import Jackalope
from jackalope.errors import CallRejected, DeliveryLimit, TaskFailed
from tests.pools.harness import PoolHouse

PATIENCE_S = 60
KEPT_BYTES_MAX = 3_000_000


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolHouse]:
    house = PoolHouse(
        tmp_path_factory.mktemp("answers"),
        {"core": {"launcher": "pika"}, "by-hand": {"launcher": "none"}},
        amqp={"message_bytes_max": KEPT_BYTES_MAX},
    )
    house.start()
    yield house
    house.stop()


def call(house: PoolHouse, pool: str, key: str, payload: bytes) -> object:
    """Call, and return the answer."""

    async def ask() -> object:
        async with Jackalope(house.address) as app:
            return await app.call(pool, key, payload, timeout=PATIENCE_S)

    return asyncio.run(ask())


def stream(house: PoolHouse, pool: str, key: str, payload: bytes) -> list[object]:
    """Call, and return all parts of the answer."""

    async def ask() -> list[object]:
        async with Jackalope(house.address) as app:
            return [part async for part in app.stream(pool, key, payload)]

    return asyncio.run(ask())


def test_the_answer_of_a_cold_key_comes_back(house: PoolHouse) -> None:
    assert call(house, "core", "paris", b"hello") == b"paris|hello"


def test_the_applications_error_is_an_error(house: PoolHouse) -> None:
    with pytest.raises(TaskFailed) as failed:
        call(house, "core", "k", b"error")
    assert failed.value.error is not None
    assert (failed.value.error.type, failed.value.error.message) == ("core_error", "error")
    with pytest.raises(CallRejected):
        call(house, "core", "k", b"reject")
    assert call(house, "core", "k", b"requeue") == b"k|requeue"


@pytest.mark.feature("O33")
def test_parts_become_a_stream(house: PoolHouse) -> None:
    assert stream(house, "core", "k", b"parts") == [b"0", b"1", b"2", b"k|parts"]
    assert call(house, "core", "k", b"parts") == b"k|parts"


@pytest.mark.feature("O28")
def test_an_answer_without_its_acknowledgement_does_not_count(house: PoolHouse) -> None:
    assert call(house, "core", "killed", b"unsure") == b"killed|unsure"


@pytest.mark.timeout(120)
def test_a_poisonous_call_is_told_so(house: PoolHouse) -> None:
    with pytest.raises(DeliveryLimit):
        call(house, "core", "poisoned", b"die")


# The worker is the test.


class Desk:
    """A worker of `by-hand`, and callers that wait for it."""

    def __init__(self, house: PoolHouse, callers: ThreadPoolExecutor) -> None:
        self.house = house
        self.callers = callers
        self.connection = pika.BlockingConnection(pika.URLParameters(house.amqp))
        self.channel: BlockingChannel = self.connection.channel()

    def asked(self, payload: bytes = b"?") -> Future[object]:
        """Let somebody call."""
        return self.callers.submit(call, self.house, "by-hand", "k", payload)

    def take(self, *, auto_ack: bool = False) -> tuple[int, BasicProperties]:
        """Wait for a call, and return its delivery tag and properties."""
        for method, properties, _ in self.channel.consume(
            "by-hand-req-k", inactivity_timeout=PATIENCE_S, auto_ack=auto_ack
        ):
            assert method is not None, f"no call within {PATIENCE_S} s"
            return method.delivery_tag, properties
        raise AssertionError("the consumer was cancelled")

    def answer(self, asked: BasicProperties, body: bytes, **headers: object) -> None:
        """Publish an answer."""
        told = BasicProperties(correlation_id=asked.correlation_id, headers=headers)
        self.channel.basic_publish("", asked.reply_to, body, told)


@pytest.fixture
def desk(house: PoolHouse) -> Iterator[Desk]:
    with ThreadPoolExecutor(4) as callers:
        desk = Desk(house, callers)
        yield desk
        desk.connection.close()


def test_a_call_says_where_it_is_answered(desk: Desk) -> None:
    answer = desk.asked()
    tag, asked = desk.take()
    assert asked.correlation_id == asked.message_id
    desk.answer(asked, b"the first")
    desk.answer(asked, b"too many")
    desk.channel.basic_ack(tag)
    assert answer.result(PATIENCE_S) == b"the first"
    answer = desk.asked()
    desk.channel.basic_ack(desk.take()[0])
    assert answer.result(PATIENCE_S) == b"", "what was done without a word is done"


def test_a_channel_can_confirm_or_transact_its_answers(desk: Desk) -> None:
    desk.channel.confirm_delivery()
    answer = desk.asked()
    tag, asked = desk.take()
    desk.answer(asked, b"confirmed")
    desk.channel.basic_ack(tag)
    assert answer.result(PATIENCE_S) == b"confirmed"
    desk.channel.cancel()
    desk.channel = desk.connection.channel()
    desk.channel.tx_select()
    answer = desk.asked()
    tag, asked = desk.take()
    desk.answer(asked, b"taken back")
    desk.channel.tx_rollback()
    desk.answer(asked, b"x" * 100_000)
    desk.channel.basic_ack(tag)
    desk.channel.tx_commit()
    assert answer.result(PATIENCE_S) == b"x" * 100_000


def test_only_who_has_the_call_answers_it(desk: Desk) -> None:
    answer = desk.asked()
    tag, before = desk.take()
    desk.answer(before, b"given back with the call")
    desk.channel.basic_nack(tag, requeue=True)
    tag, asked = desk.take()
    assert asked.reply_to != before.reply_to
    desk.answer(before, b"too late")
    with pika.BlockingConnection(pika.URLParameters(desk.house.amqp)) as other:
        channel = other.channel()
        channel.confirm_delivery()
        channel.basic_publish("", asked.reply_to, b"of somebody else")
    for odd in ("", ".", ".1", ".x.y", f".1.{'9' * 30}.0.0"):
        desk.channel.basic_publish("", f"amq.rabbitmq.reply-to.answer{odd}", b"odd")
    desk.answer(asked, b"right", **{"x-status": "ok"})
    desk.channel.basic_ack(tag)
    assert answer.result(PATIENCE_S) == b"right"


def test_an_error_in_osrdynes_words_is_read(desk: Desk) -> None:
    answer = desk.asked()
    tag, asked = desk.take()
    body = {"type": "core:no_path", "message": "no way", "context": {}, "cause": "User"}
    desk.answer(asked, json.dumps(body).encode(), **{"x-status": b"core_error"})
    desk.channel.basic_ack(tag)
    with pytest.raises(TaskFailed, match="core:no_path: no way"):
        answer.result(PATIENCE_S)


def test_a_part_that_cannot_be_passed_on_is_not_missed(desk: Desk) -> None:
    answer = desk.asked()
    tag, asked = desk.take()
    desk.answer(asked, b"x" * 2**20, **{"x-non-terminating-response": True})
    desk.answer(asked, b"the end")
    desk.channel.basic_ack(tag)
    with pytest.raises(TaskFailed, match="PartTooLarge"):
        answer.result(PATIENCE_S)


def test_a_consumer_that_does_not_acknowledge_is_not_asked_for_an_answer(desk: Desk) -> None:
    answer = desk.asked()
    _, asked = desk.take(auto_ack=True)
    assert asked.reply_to is None
    assert answer.result(PATIENCE_S) == b""


def test_so_much_is_kept_until_it_is_acknowledged(desk: Desk) -> None:
    desk.channel.basic_qos(prefetch_count=2)
    desk.channel.confirm_delivery()
    answers = [desk.asked(), desk.asked()]
    (_, first), (tag, second) = desk.take(), desk.take()
    desk.answer(first, b"x" * (KEPT_BYTES_MAX - 1))
    desk.answer(second, b"y")
    desk.channel.basic_ack(tag, multiple=True)
    told = sorted(len(each.result(PATIENCE_S)) for each in answers)  # type: ignore[arg-type]
    assert told == [1, KEPT_BYTES_MAX - 1]

    answers = [desk.asked(), desk.asked()]
    (tag, first), (_, second) = desk.take(), desk.take()
    desk.answer(first, b"x" * KEPT_BYTES_MAX)
    with pytest.raises(ChannelClosedByBroker, match="acknowledge each after its answer"):
        desk.answer(second, b"y")
    desk.channel = desk.connection.channel()
    for _ in answers:
        tag, asked = desk.take()
        desk.answer(asked, b"at last")
        desk.channel.basic_ack(tag)
    assert [each.result(PATIENCE_S) for each in answers] == [b"at last", b"at last"]
