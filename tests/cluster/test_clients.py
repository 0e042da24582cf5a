"""Clients of others, connected to a node that does not lead, while nodes are killed.

Each knows one follower and comes back by its own means; nothing that it was told is lost.
"""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import kiwipy
import pika
import pytest
from pika.exceptions import AMQPError
from websockets.exceptions import WebSocketException

from tests.cluster.brokers import Brokers, Process, until
from tests.doors.http.gridlike.harness import NO_ATTEMPT, try_submit
from tests.doors.http.gridlike.harness import worker as grid_worker
from tests.kiwipy.harness import Switch

pytestmark = pytest.mark.timeout(300)

TIMEOUT_S = 90.0


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


class Delivered(NamedTuple):
    """A message as a consumer got it."""

    number: int
    redelivered: bool
    connection: int  # how many there were before


class Consumer(threading.Thread):
    """Consumes over one connection after the other; holds the first messages back."""

    def __init__(self, node: Process, queue: str, count: int, held: int) -> None:
        super().__init__(daemon=True)
        self.delivered: list[Delivered] = []
        self.acknowledged: set[int] = set()
        self.may_go_on = threading.Event()
        self._node, self._queue, self._count, self._held = node, queue, count, held

    def run(self) -> None:
        end = time.monotonic() + TIMEOUT_S
        connections = 0
        while len(self.acknowledged) < self._count and time.monotonic() < end:
            try:
                with pika.BlockingConnection(amqp(self._node)) as connection:
                    self._consume(connection.channel(), connections)
            except (AMQPError, OSError):
                time.sleep(0.1)
            connections += 1

    def _consume(self, channel: pika.channel.Channel, connections: int) -> None:
        channel.basic_qos(prefetch_count=self._held)
        for method, _, body in channel.consume(self._queue, inactivity_timeout=0.2):
            if method is not None:
                self.delivered.append(Delivered(int(body), method.redelivered, connections))
            if self.may_go_on.is_set() and method is not None and connections:
                channel.basic_ack(method.delivery_tag)
                self.acknowledged.add(int(body))
            if len(self.acknowledged) == self._count:
                return


def test_a_pika_consumer_at_a_follower_outlives_the_leader(whole: Brokers) -> None:
    """It comes back by itself, and gets again what it held, marked as delivered before."""
    leader, follower = whole.leader(), whole.follower()
    held, count = 5, 30
    publisher = Publisher(amqp(follower), "consumed")
    publisher.publish(range(20), print)
    consumer = Consumer(follower, "consumed", count, held)
    consumer.start()
    until(lambda: len(consumer.delivered) == held, whole.all)
    assert [each.redelivered for each in consumer.delivered] == [False] * held
    leader.kill()
    consumer.may_go_on.set()
    publisher.publish(range(20, count), print)
    consumer.join(TIMEOUT_S)
    assert consumer.acknowledged == set(range(count))
    first = {each.number for each in consumer.delivered if each.connection == 0}
    again = [each for each in consumer.delivered if each.connection]
    assert {each.number for each in again if each.redelivered} == first
    assert len(again) == count, "each was delivered once more, or once"


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


# Celery.


def celery(urls: str, *words: str, log: Path | None = None) -> subprocess.Popen[str]:
    with ExitStack() as stack:
        out = subprocess.PIPE if log is None else stack.enter_context(log.open("w"))
        return subprocess.Popen(
            [sys.executable, "-m", *words],
            env=os.environ | {"TEST_CELERY_BROKER": urls},
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.mark.parametrize("killed", ["leader", "follower"])
def test_celery_goes_on(whole: Brokers, tmp_path: Path, killed: str) -> None:
    """Its worker and its producer know the follower; and all nodes, where that is killed."""
    leader, follower = whole.leader(), whole.follower()
    known = [follower]
    if killed == "follower":
        known += [each for each in whole.all if each is not follower]
    urls = ";".join(f"amqp://guest:guest@{each.address('amqp')}//" for each in known)
    marks = tmp_path / "marks"
    marks.mkdir()
    options = ("worker", "--pool", "solo", "--loglevel", "INFO", "--without-mingle")
    worker = celery(
        urls, "celery", "--app", "tests.cluster.celery_app:app", *options, log=tmp_path / "log"
    )
    producer = celery(urls, "tests.cluster.celery_app", str(marks), "40")
    try:
        assert producer.stdout is not None
        taken = []
        for line in producer.stdout:
            taken.append(line.strip())
            if taken[-1] == "15":
                until(lambda: any(marks.iterdir()), whole.all)  # The worker is there.
                (leader if killed == "leader" else follower).kill()
        assert taken[-1:] == ["39"], taken[-5:]
        until(lambda: len(list(marks.iterdir())) == 40, whole.all, TIMEOUT_S)
    finally:
        for process in (worker, producer):
            process.kill()
            process.wait()
        if producer.stdout is not None:
            producer.stdout.close()


# GridLike.


class Grid:
    """A node, as a client and a worker of GridLike know it."""

    def __init__(self, node: Process, client: httpx.AsyncClient) -> None:
        self.client = client
        self.socket_url = f"ws://{node.address('http')}"


async def serve_jobs(grid: Grid, done: set[bytes]) -> None:
    """Do jobs, and come back with the one at hand whenever the socket is lost."""
    attempt = dict(NO_ATTEMPT)
    while True:
        try:
            async with grid_worker(grid, attempt=attempt) as one:
                while True:
                    payload = await one.take()
                    attempt = one.attempt
                    await one.send(payload.upper())
                    done.add(payload)
        except (OSError, TimeoutError, WebSocketException):
            await asyncio.sleep(0.1)


async def submit_job(grid: Grid, number: int) -> None:
    """Submit a job under a key of its own, until it is taken in."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                answer = await try_submit(grid, b"job %d" % number, key=f"job {number}")
            except httpx.TransportError:
                await asyncio.sleep(0.1)
                continue
            if answer.status_code in (202, 409):  # It is known already: an answer was lost.
                return
            assert answer.status_code >= 500, answer.text
            await asyncio.sleep(0.1)


async def result_of(grid: Grid, number: int) -> bytes:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            with suppress(httpx.TransportError):
                answer = await grid.client.get(f"/api/jobs/job {number}/result")
                if answer.status_code == 200:
                    return answer.content
            await asyncio.sleep(0.1)


def test_gridlike_goes_on_when_the_leader_is_killed(whole: Brokers) -> None:
    leader, follower = whole.leader(), whole.follower()

    async def play() -> None:
        url = f"http://{follower.address('http')}"
        async with httpx.AsyncClient(base_url=url, timeout=10) as client:
            grid = Grid(follower, client)
            working = asyncio.create_task(serve_jobs(grid, set()))
            for number in range(20):
                if number == 10:
                    await asyncio.to_thread(leader.kill)
                await submit_job(grid, number)
            for number in range(20):
                assert await result_of(grid, number) == b"JOB %d" % number
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    asyncio.run(play())


# RabbitMQ's management API.


def manage(node: Process, method: str, queue: str, **more: Any) -> int:
    """Do something with a queue, and return the status of the answer; 0 if there is none."""
    url = f"http://127.0.0.1:{node.config['amqp']['management_port']}/api/queues/%2F/{queue}"
    with suppress(httpx.TransportError):
        return httpx.request(method, url, auth=("guest", "guest"), timeout=10, **more).status_code
    return 0


def test_every_node_serves_the_management_api(whole: Brokers) -> None:
    leader = whole.leader()
    for node in whole.all:
        assert manage(node, "PUT", f"of-{node.name}", json={"durable": True}) == 201
    for node in whole.all:
        assert {manage(node, "GET", f"of-{each.name}") for each in whole.all} == {200}
    leader.kill()
    follower = whole.follower()
    until(lambda: manage(follower, "GET", f"of-{leader.name}") == 200, whole.all)


# kiwipy, which AiiDA speaks.


def answer_of(told: object) -> object:
    while isinstance(told, kiwipy.Future):
        told = told.result(timeout=TIMEOUT_S)
    return told


def test_kiwipy_goes_on_when_the_leader_is_killed(whole: Brokers) -> None:
    leader, follower = whole.leader(), whole.follower()
    switch = Switch(f"jackalope://{follower.address('native')}")
    try:
        daemon, client = switch.connect(), switch.connect()
        daemon.add_task_subscriber(lambda _, task: task * 2)
        asked = []
        for number in range(20):
            if number == 10:
                leader.kill()
            asked.append(client.task_send(number))
        for number, answer in enumerate(asked):
            assert answer_of(answer) == number * 2
    finally:
        switch.close()
