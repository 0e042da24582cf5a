"""Clients of others, connected to a node that does not lead, while nodes are killed.

Each knows one follower and comes back by its own means; nothing that it was told is lost.
"""

import time
from collections.abc import Callable, Iterator

import pika
import pytest
from pika.exceptions import AMQPError

from tests.cluster.brokers import Brokers, Process, running, until

pytestmark = pytest.mark.timeout(300)

TIMEOUT_S = 90.0


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with running(tmp_path_factory.mktemp("nodes")) as brokers:
        brokers.leader()
        yield brokers


@pytest.fixture
def whole(brokers: Brokers) -> Brokers:
    """Return the cluster with all of its nodes."""
    for each in brokers.all:
        if not each.is_up:
            each.start()
    until(lambda: all(each.get("/health")[0] for each in brokers.all), brokers.all)
    return brokers


def amqp(*nodes: Process) -> list[pika.ConnectionParameters]:
    return [
        pika.ConnectionParameters("127.0.0.1", each.config["amqp"]["port"], heartbeat=5)
        for each in nodes
    ]


class Publisher:
    """Publishes with confirms, and comes back as pika's own documentation has it."""

    def __init__(self, parameters: list[pika.ConnectionParameters], queue: str) -> None:
        self.parameters, self.queue = parameters, queue
        self.confirmed: list[int] = []
        self.losses: list[Exception] = []
        self._fault: Callable[[], None] = print
        self._fault_at = -1

    def publish(self, numbers: range, fault: Callable[[], None]) -> None:
        """Publish numbers, with a fault after the first half."""
        self._fault, self._fault_at = fault, numbers[len(numbers) // 2]
        wanted, end = list(numbers), time.monotonic() + TIMEOUT_S
        while wanted:
            assert time.monotonic() < end, self.losses[-3:]
            try:
                with pika.BlockingConnection(self.parameters) as connection:
                    channel = connection.channel()
                    channel.queue_declare(self.queue, durable=True)
                    channel.confirm_delivery()
                    self._publish(channel, wanted)
            except (AMQPError, OSError) as error:
                self.losses.append(error)
                time.sleep(0.1)

    def _publish(self, channel: pika.channel.Channel, wanted: list[int]) -> None:
        lasting = pika.BasicProperties(delivery_mode=2)
        while wanted:
            channel.basic_publish("", self.queue, str(wanted[0]).encode(), lasting)
            self.confirmed.append(wanted.pop(0))
            if self.confirmed[-1] == self._fault_at:
                self._fault()


def consume(parameters: list[pika.ConnectionParameters], queue: str, count: int) -> set[int]:
    """Return the numbers that were acknowledged."""
    done: set[int] = set()
    end = time.monotonic() + TIMEOUT_S
    while len(done) < count:
        assert time.monotonic() < end, len(done)
        try:
            with pika.BlockingConnection(parameters) as connection:
                channel = connection.channel()
                channel.basic_qos(prefetch_count=10)
                for method, _, body in channel.consume(queue, inactivity_timeout=1):
                    if method is None:
                        break
                    channel.basic_ack(method.delivery_tag)
                    done.add(int(body))
        except (AMQPError, OSError):
            time.sleep(0.1)
    return done


def test_pika_goes_on_when_the_leader_behind_its_follower_is_killed(whole: Brokers) -> None:
    leader, follower = whole.leader(), whole.follower()
    publisher = Publisher(amqp(follower), "letters")
    publisher.publish(range(40), leader.kill)
    assert publisher.losses
    assert publisher.confirmed == list(range(40))
    assert consume(amqp(follower), "letters", 40) == set(range(40))


def test_pika_is_told_that_the_leader_is_lost(whole: Brokers) -> None:
    leader, follower = whole.leader(), whole.follower()
    connection = pika.BlockingConnection(amqp(follower))
    connection.channel().queue_declare("told", durable=True)
    leader.kill()
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as told:
        connection.sleep(TIMEOUT_S)
    assert told.value.reply_code == 320
    assert "connect again" in told.value.reply_text


def test_pika_finds_another_node_when_its_follower_is_killed(whole: Brokers) -> None:
    follower = whole.follower()
    others = [each for each in whole.all if each is not follower]
    publisher = Publisher(amqp(follower, *others), "hosts")
    publisher.publish(range(30), follower.kill)
    assert publisher.losses
    assert publisher.confirmed == list(range(30))
    assert consume(amqp(follower, *others), "hosts", 30) == set(range(30))
