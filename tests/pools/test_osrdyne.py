"""A client and a worker that were written for osrdyne, with pika alone, find what they know.

The worker is a real process, started by the pool's launcher; see `pika_worker`.
"""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker
from pika.spec import BasicProperties

from jackalope import Jackalope
from tests.acceptance.harness import wait_until
from tests.pools.harness import PoolHouse
from tests.ports import free_port

PATIENCE_S = 60
MANAGEMENT_PORT = free_port()
DIRECT = "amq.rabbitmq.reply-to"
ODD_KEYS = ["42", "infra=42,timetable=24", "42-7", "héllo/ü", "", "a-req-b", "%2D #*", "core"]


class Answer(NamedTuple):
    """What came back for a request."""

    correlation_id: str
    status: bytes
    body: bytes
    is_last: bool


class Client:
    """Asks as osrdyne's client does: mandatory, with an id, and with a direct reply."""

    def __init__(self, url: str, reply_to: str = DIRECT) -> None:
        parameters = pika.URLParameters(url)
        parameters.blocked_connection_timeout = PATIENCE_S
        self.connection = pika.BlockingConnection(parameters)
        self.channel: BlockingChannel = self.connection.channel()
        self.reply_to = reply_to
        self.returned: list[str] = []
        self.channel.add_on_return_callback(lambda _, method, __, ___: self.returned.append(method))
        # The consumer must be there before the first request.
        next(self.channel.consume(reply_to, auto_ack=True, inactivity_timeout=0.01))

    def ask(self, pool: str, key: str, body: str, **properties: object) -> str:
        """Send a request, and return its id."""
        correlation_id = str(uuid.uuid4())
        told = BasicProperties(
            reply_to=self.reply_to,
            correlation_id=correlation_id,
            headers={"x-rpc-path": b"/test"},
            **properties,
        )
        exchange = f"{pool}-req-xchg"
        self.channel.basic_publish(exchange, key, body.encode(), told, mandatory=True)
        return correlation_id

    def answer(self) -> Answer:
        """Return the next answer."""
        for method, properties, body in self.channel.consume(
            self.reply_to, auto_ack=True, inactivity_timeout=PATIENCE_S
        ):
            assert method is not None, f"no answer within {PATIENCE_S} s"
            headers = properties.headers
            is_last = not headers.get("x-non-terminating-response", False)
            return Answer(properties.correlation_id, headers["x-status"], body, is_last)
        raise AssertionError("the consumer was cancelled")

    def call(self, pool: str, key: str, body: str, **properties: object) -> Answer:
        """Send a request, and return its answer."""
        correlation_id = self.ask(pool, key, body, **properties)
        answer = self.answer()
        assert answer.correlation_id == correlation_id
        return answer


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolHouse]:
    house = PoolHouse(
        tmp_path_factory.mktemp("osrdyne"),
        {
            "core": {"launcher": "pika"},
            "native": {"launcher": "local"},
            "by-hand": {"launcher": "none"},
            "tiny": {"launcher": "none"},
            "own": {"launcher": "nameless", "start_timeout": "3s"},
            "stalling": {"launcher": "pika"},
        },
        {
            "core": {"preset": "pool", "restart_grace": "1s"},
            "tiny": {"preset": "pool", "depth_limit": 1},
            "stalling": {"preset": "pool", "crash_limit": 2, "timeout": "1s"},
        },
        amqp={"management": True, "management_port": MANAGEMENT_PORT},
    )
    house.start()
    yield house
    house.stop()


@pytest.fixture
def client(house: PoolHouse) -> Iterator[Client]:
    client = Client(house.amqp)
    yield client
    assert not client.returned, "nothing that goes to a pool is unroutable"
    client.connection.close()


@pytest.mark.feature("O2", "O12", "O29")
def test_a_cold_key_is_answered_with_its_id_and_status(client: Client) -> None:
    answer = client.call("core", "cold", "hello")
    assert (answer.status, answer.body) == (b"ok", b"cold|hello")


@pytest.mark.feature("O5")
@pytest.mark.timeout(180)
def test_every_key_has_its_worker_however_odd(client: Client) -> None:
    asked = {client.ask("core", key, "hello"): key for key in ODD_KEYS}
    for _ in ODD_KEYS:
        answer = client.answer()
        key = asked.pop(answer.correlation_id)
        assert (answer.status, answer.body.decode()) == (b"ok", f"{key}|hello")


@pytest.mark.feature("O6")
def test_a_worker_is_told_what_osrdyne_tells(client: Client) -> None:
    told = json.loads(client.call("core", "42-7", "env").body)
    assert told["WORKER_KEY"] == "42-7"
    assert told["WORKER_POOL"] == "core"
    assert told["WORKER_REQUESTS_QUEUE"] == "core-req-42-7"
    assert told["WORKER_ACTIVITY_EXCHANGE"] == "core-activity-xchg"
    assert told["WORKER_AMQP_URI"].startswith(f"amqp://{told['WORKER_ID']}:")
    assert told["WORKER_MAX_MSG_SIZE"] == str(128 * 1024 * 1024)


@pytest.mark.feature("O4", "O8", "O33")
def test_errors_parts_and_second_tries_of_the_application(client: Client) -> None:
    assert client.call("core", "k", "error").status == b"core_error"
    assert client.call("core", "k", "reject").status == b"rejected"
    assert client.call("core", "k", "requeue").body == b"k|requeue"
    client.ask("core", "k", "parts")
    answers = [client.answer() for _ in range(4)]
    assert [answer.is_last for answer in answers] == [False, False, False, True]
    assert [answer.body for answer in answers] == [b"0", b"1", b"2", b"k|parts"]


@pytest.mark.feature("O9")
def test_a_request_survives_a_worker_that_is_killed(client: Client) -> None:
    answer = client.call("core", "killed", "once")
    assert (answer.status, answer.body) == (b"ok", b"killed|once")


@pytest.mark.feature("O4", "O10")
@pytest.mark.timeout(120)
def test_a_poisonous_request_is_answered_and_listed(client: Client, house: PoolHouse) -> None:
    assert client.call("core", "poisoned", "die").status == b"delivery_limit"

    async def listed() -> list[tuple[str, str | None]]:
        async with Jackalope(house.address) as app:
            tasks = app.tasks(queue="core", states=("dead",))
            return [(task.key, task.reason) async for task in tasks if task.key == "poisoned"]

    assert asyncio.run(listed()) == [("poisoned", "crashed")]
    assert client.call("core", "poisoned", "sound").status == b"ok"


@pytest.mark.timeout(120)
def test_a_request_whose_worker_stalls_is_answered(client: Client, tmp_path: Path) -> None:
    """Each time with another worker, because the one that stalls is replaced."""
    assert client.call("stalling", "k", f"wait {tmp_path}/never").status == b"delivery_limit"
    assert client.call("stalling", "k", "sound").body == b"k|sound"


@pytest.mark.timeout(120)
def test_a_worker_with_credentials_of_its_own_has_joined(client: Client, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    first = json.loads(client.call("own", "k", "env").body)
    asked = client.ask("own", "k", f"wait {gate}")
    wait_until(Path(f"{gate}.begun").exists, "the worker has begun", PATIENCE_S)
    client.connection.sleep(5)  # Longer than a start may take.
    gate.touch()
    answer = client.answer()
    assert (answer.correlation_id, answer.status) == (asked, b"ok")
    assert json.loads(client.call("own", "k", "env").body) == first


@pytest.mark.feature("O4", "O11", "O34")
def test_requests_that_nobody_begins_or_that_find_no_room(client: Client) -> None:
    assert client.call("by-hand", "k", "late", expiration="200").status == b"expired"
    first = client.ask("tiny", "k", "first", expiration="2000")
    assert client.call("tiny", "k", "second").status == b"maxlen"
    answer = client.answer()
    assert (answer.correlation_id, answer.status) == (first, b"expired")


def test_workers_of_another_door_answer_too(client: Client) -> None:
    answer = client.call("native", "ü", "hello")
    assert (answer.status, answer.body.decode()) == (b"ok", "ü|hello")


@pytest.mark.feature("O7")
def test_workers_report_what_they_do_to_whoever_listens(client: Client) -> None:
    queue = client.channel.queue_declare("", exclusive=True).method.queue
    client.channel.queue_bind(queue, "core-activity-xchg")
    client.call("core", "heard", "hello")
    events: list[str] = []
    while len(events) < 3:
        method, properties, _ = client.channel.basic_get(queue, auto_ack=True)
        if method is not None and method.routing_key == "heard":
            events.append(properties.headers["x-event"])
    assert events == ["started", "ready", "request-received"]


@pytest.mark.feature("O22")
def test_the_topology_is_there_and_is_the_brokers(client: Client) -> None:
    channel = client.connection.channel()
    channel.exchange_declare("core-req-xchg", "direct", durable=False)
    for name in ("activity", "orphan", "dl", "deadletter"):
        channel.exchange_declare(f"core-{name}-xchg", "fanout", durable=False)
    assert channel.queue_declare("core-req-any", durable=False).method.queue == "core-req-any"
    with pytest.raises(ChannelClosedByBroker, match="RESOURCE_LOCKED"):
        channel.queue_declare("core-orphan", durable=True, exclusive=True)
    channel = client.connection.channel()
    with pytest.raises(ChannelClosedByBroker, match="ACCESS_REFUSED"):
        channel.exchange_delete("core-req-xchg")


class Hand:
    """A worker by hand: it takes the requests of a key, and answers them as a test wants."""

    def __init__(self, house: PoolHouse, queue: str) -> None:
        parameters = pika.URLParameters(house.amqp)
        self.connection = pika.BlockingConnection(parameters)
        self.channel: BlockingChannel = self.connection.channel()
        self.requests = self.channel.consume(queue, inactivity_timeout=PATIENCE_S)

    def take(self) -> tuple[int, BasicProperties, bytes]:
        """Return the next request: its tag, properties and body."""
        method, properties, body = next(self.requests)
        assert method is not None, f"no request within {PATIENCE_S} s"
        return method.delivery_tag, properties, body

    def answer(self, asked: BasicProperties, body: bytes) -> None:
        """Answer a request."""
        told = BasicProperties(correlation_id=asked.correlation_id, headers={"x-status": b"ok"})
        self.channel.basic_publish("", asked.reply_to, body, told)


@pytest.fixture
def hand(house: PoolHouse) -> Iterator[Hand]:
    hand = Hand(house, "by-hand-req-hand")
    yield hand
    hand.connection.close()


@pytest.mark.feature("O1", "O31", "O32")
def test_a_request_arrives_as_it_was_sent(client: Client, hand: Hand) -> None:
    """Bytes stay byte arrays, which osrdyne's clients and workers insist on."""
    headers = {
        "x-rpc-path": b"/pathfinding",
        "traceparent": b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "text": "a long string",
        "nested": {"number": 7, "list": [True, b"\xff"]},
    }
    sent = BasicProperties(
        content_type="application/json",
        reply_to=client.reply_to,
        correlation_id="one",
        message_id="m-1",
        headers=headers,
        delivery_mode=1,
    )
    client.channel.basic_publish("by-hand-req-xchg", "hand", b"null", sent, mandatory=True)
    tag, properties, body = hand.take()
    assert (body, properties.headers) == (b"null", headers)
    names = ("content_type", "correlation_id", "message_id", "delivery_mode")
    assert [getattr(properties, each) for each in names] == [getattr(sent, each) for each in names]
    # A path that the worker does not know it rejects, and says why without an id.
    hand.channel.basic_reject(tag, requeue=False)
    why = BasicProperties(headers={"x-status": b"core_error"})
    hand.channel.basic_publish("", properties.reply_to, b"unknown path", why)
    answers = {
        answer.correlation_id: answer.status for answer in (client.answer(), client.answer())
    }
    assert answers == {"one": b"rejected", None: b"core_error"}


@pytest.mark.feature("O35")
@pytest.mark.timeout(180)
def test_a_hundred_megabytes_go_there_and_back(client: Client, hand: Hand) -> None:
    large = os.urandom(1 << 20) * 100
    told = BasicProperties(reply_to=client.reply_to, correlation_id="large")
    client.channel.basic_publish("by-hand-req-xchg", "hand", large, told)
    tag, properties, body = hand.take()
    assert body == large
    hand.answer(properties, body)
    hand.channel.basic_ack(tag)
    answer = client.answer()
    assert (answer.correlation_id, answer.status) == ("large", b"ok")
    assert answer.body == large


@pytest.mark.feature("O28")
def test_a_late_answer_comes_beside_the_other(client: Client) -> None:
    """The worker died between its answer and its acknowledgement: the client hears of it twice."""
    asked = client.ask("core", "late", "unsure")
    answers = [client.answer() for _ in range(2)]
    assert [answer.correlation_id for answer in answers] == [asked, asked]
    assert answers[1].body == b"late|unsure"
    assert client.call("core", "late", "next").body == b"late|next"


def test_the_broker_says_where_a_request_died(client: Client) -> None:
    queue = client.channel.queue_declare("", exclusive=True).method.queue
    client.channel.queue_bind(queue, "by-hand-dl-xchg")
    assert client.call("by-hand", "k", "late", expiration="100").status == b"expired"
    method, properties, _ = client.channel.basic_get(queue, auto_ack=True)
    assert method is not None
    assert properties.headers["x-first-death-queue"] == "by-hand-req-k"


def test_a_key_too_long_for_its_queue_is_refused(client: Client) -> None:
    channel = client.connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("by-hand-req-xchg", "x" * 243, b"", BasicProperties(expiration="100"))
    with pytest.raises(ChannelClosedByBroker, match="key is too long"):
        channel.basic_publish("by-hand-req-xchg", "x" * 244, b"")


@pytest.mark.feature("O23")
def test_the_queues_of_keys_are_listed_read_and_emptied_over_http(client: Client) -> None:
    url = f"http://127.0.0.1:{MANAGEMENT_PORT}/api/queues/%2F"
    ids = [client.ask("by-hand", "listed", "x") for _ in range(2)]
    with httpx.Client(auth=("guest", "guest")) as http:
        plain = http.get(url, params={"disable_stats": "true"}).raise_for_status().json()
        (listed,) = [each for each in plain if each["name"] == "by-hand-req-listed"]
        assert not any(listed[name] for name in ("durable", "exclusive", "auto_delete"))
        shown = http.get(f"{url}/by-hand-req-listed").raise_for_status().json()
        assert (shown["messages_ready"], shown["consumers"]) == (2, 0)
        look = {"ackmode": "ack_requeue_true", "encoding": "auto", "count": 5}
        seen = http.post(f"{url}/by-hand-req-listed/get", json=look).raise_for_status().json()
        assert [each["payload"] for each in seen] == ["x", "x"]
        asked = http.delete(f"{url}/by-hand-req-listed", params={"if-empty": "true"})
        assert asked.status_code == 400
        http.delete(f"{url}/by-hand-req-listed/contents").raise_for_status()
    answers = [client.answer() for _ in ids]
    assert [(each.correlation_id, each.status) for each in answers] == [
        (each, b"rejected") for each in ids
    ]


@pytest.mark.feature("O2", "O13", "O24", "O26")
@pytest.mark.timeout(180)
def test_a_request_survives_the_broker(house: PoolHouse, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    before = pika.BlockingConnection(pika.URLParameters(house.amqp))
    channel = before.channel()
    channel.queue_declare("answers", durable=True)
    channel.confirm_delivery()
    told = BasicProperties(reply_to="answers", correlation_id="one")
    channel.basic_publish("core-req-xchg", "restarted", f"wait {gate}".encode(), told)
    before.close()
    wait_until(Path(f"{gate}.begun").exists, "the worker has begun", PATIENCE_S)
    house.kill()
    gate.touch()
    house.start()
    client = Client(house.amqp, "answers")
    answer = client.answer()
    assert (answer.correlation_id, answer.status) == ("one", b"ok")
    assert client.call("core", "restarted", "again").body == b"restarted|again"
    client.connection.close()
