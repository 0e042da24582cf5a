"""When the broker takes a turn, and how many it needs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from jackalope.broker import inbox, writers
from jackalope.broker.access import THE_BROKER
from jackalope.broker.engine import Turn
from jackalope.broker.events import Subscription
from jackalope.broker.service import Broker
from jackalope.core import Core
from jackalope.core.commands import (
    Finish,
    FinishAttempts,
    Held,
    JoinWorker,
    StartAttempts,
    SubmitTasks,
    WatchTasks,
)
from jackalope.core.effects import Assignment, Effect, Reply
from jackalope.core.ids import NO_TASK
from jackalope.storage import Level, Storage
from jackalope.wire.messages import Happened
from tests.core.driving import spec

TIMEOUT_S = 5


class Peer:
    """A session, and what the broker has told it."""

    def __init__(self, broker: Broker) -> None:
        self.session = broker.open_session(self)
        self.told: asyncio.Queue[Effect] = asyncio.Queue()

    def deliver(self, effects: list[Effect]) -> None:
        for effect in effects:
            self.told.put_nowait(effect)

    def end(self, why: str) -> None:
        raise AssertionError(why)

    async def reply(self) -> Reply:
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                effect = await self.told.get()
                if isinstance(effect, Reply):
                    return effect

    async def assignment(self) -> Assignment:
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                effect = await self.told.get()
                if not isinstance(effect, Reply) and isinstance(effect.message, Assignment):
                    return effect.message


@asynccontextmanager
async def working(folder: Path) -> AsyncIterator[tuple[Broker, Peer, Assignment]]:
    """Run a broker with one worker that holds one task."""
    broker = Broker(Storage.open(folder, Level.INTERVAL))
    await broker.start()
    try:
        peer = Peer(broker)
        join = JoinWorker(session=peer.session, ref=1, worker="w1", queues=("q",), slots=5)
        broker.post(join, THE_BROKER)
        broker.post(SubmitTasks(session=peer.session, ref=2, tasks=[spec(1)]), THE_BROKER)
        yield broker, peer, await peer.assignment()
    finally:
        await broker.stop()


def test_a_start_and_its_end_share_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        # Longer than any test machine stalls: only the end of the attempt can bring about the turn.
        monkeypatch.setattr(inbox, "_PATIENCE_S", 60.0)
        async with working(tmp_path) as (broker, peer, given):
            turns = broker.meter.machine.turns
            held = Held(given.task, given.fence)
            broker.post(StartAttempts(session=peer.session, ref=3, attempts=[held]), THE_BROKER)
            await asyncio.sleep(0)
            finish = Finish(given.task, given.fence, b"done")
            broker.post(FinishAttempts(session=peer.session, ref=4, attempts=[finish]), THE_BROKER)
            assert [(await peer.reply()).ref for _ in range(2)] == [3, 4]
            assert broker.meter.machine.turns == turns + 1

    asyncio.run(work())


class Witness(Peer):
    """A session that also notes when it was told something, among all of its kind."""

    def __init__(self, broker: Broker, name: str, order: list[tuple[str, str]]) -> None:
        super().__init__(broker)
        self._name = name
        self._order = order

    def deliver(self, effects: list[Effect]) -> None:
        for effect in effects:
            told = effect.body if isinstance(effect, Reply) else effect.message
            self._order.append((self._name, type(told).__name__))
        super().deliver(effects)


def test_pushes_leave_before_the_replies_of_a_turn() -> None:
    async def work() -> None:
        order: list[tuple[str, str]] = []
        broker = Broker(Storage.open(None, Level.MEMORY))
        await broker.start()
        try:
            client, worker = Witness(broker, "client", order), Witness(broker, "worker", order)
            join = JoinWorker(session=worker.session, ref=1, worker="w1", queues=("q",), slots=5)
            broker.post(join, THE_BROKER)
            await worker.reply()
            order.clear()
            submit = SubmitTasks(session=client.session, ref=1, tasks=[spec(1)])
            broker.post(submit, THE_BROKER)
            watch = WatchTasks(session=client.session, ref=2, tasks=(spec(1).id,))
            broker.post(watch, THE_BROKER)
            given = await worker.assignment()
            assert order == [
                ("worker", "Assignment"),
                ("client", "Accepted"),
                ("client", "Accepted"),
            ]
            order.clear()
            finish = Finish(given.task, given.fence, b"done")
            held = Held(given.task, given.fence)
            broker.post(StartAttempts(session=worker.session, ref=2, attempts=[held]), THE_BROKER)
            end = FinishAttempts(session=worker.session, ref=3, attempts=[finish])
            broker.post(end, THE_BROKER)
            await worker.reply()
            await broker.read(lambda _: None)
            assert order == [
                ("client", "TaskEnded"),
                ("worker", "Accepted"),
                ("worker", "Accepted"),
            ]
        finally:
            await broker.stop()

    asyncio.run(work())


def test_a_start_without_company_is_not_forgotten(tmp_path: Path) -> None:
    async def work() -> None:
        async with working(tmp_path) as (broker, peer, given):
            held = Held(given.task, given.fence)
            broker.post(StartAttempts(session=peer.session, ref=3, attempts=[held]), THE_BROKER)
            assert (await peer.reply()).ref == 3

    asyncio.run(work())


def test_who_reads_sees_a_start_that_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        monkeypatch.setattr(inbox, "_PATIENCE_S", 60.0)
        async with working(tmp_path) as (broker, peer, given):
            held = Held(given.task, given.fence)
            broker.post(StartAttempts(session=peer.session, ref=3, attempts=[held]), THE_BROKER)
            state = await broker.read(lambda engine: engine.core.book.tasks[given.task].state)
            assert state == "running"

    asyncio.run(work())


def test_a_read_needs_no_turn_when_none_is_under_way(tmp_path: Path) -> None:
    async def work() -> None:
        async with working(tmp_path) as (broker, peer, given):
            submit = SubmitTasks(session=peer.session, ref=3, tasks=[spec(2)])
            broker.post(submit, THE_BROKER)
            behind = broker.read(lambda engine: spec(2).id in engine.core.book.tasks)
            with pytest.raises(asyncio.TimeoutError):
                async with asyncio.timeout(0):
                    await behind  # What was posted before comes first.
            while (await peer.reply()).ref != submit.ref:
                pass
            at_once = broker.read(lambda engine: given.task in engine.core.book.tasks)
            with pytest.raises(StopIteration) as answered:
                at_once.send(None)
            assert answered.value.value is True

    asyncio.run(work())


def test_a_start_that_waits_is_taken_before_the_broker_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        monkeypatch.setattr(inbox, "_PATIENCE_S", 60.0)
        async with working(tmp_path) as (broker, peer, given):
            held = Held(given.task, given.fence)
            broker.post(StartAttempts(session=peer.session, ref=3, attempts=[held]), THE_BROKER)
        broker = Broker(Storage.open(tmp_path, Level.INTERVAL))
        await broker.start()
        try:
            state = await broker.read(lambda engine: engine.core.book.tasks[given.task].state)
            assert state == "running"
        finally:
            await broker.stop()

    asyncio.run(work())


def test_history_is_written_once_there_are_many_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        monkeypatch.setattr(writers, "_FLUSH_TASKS", 3)
        async with working(tmp_path) as (broker, peer, _):
            await broker.flush()
            flushed = broker.meter.machine.flushed
            tasks = [spec(number) for number in range(2, 6)]
            broker.post(SubmitTasks(session=peer.session, ref=3, tasks=tasks), THE_BROKER)
            # Something must happen for the broker to look around.
            for ref in range(4, 200):
                broker.post(
                    WatchTasks(session=peer.session, ref=ref, tasks=(tasks[0].id,)), THE_BROKER
                )
                await peer.reply()
                await asyncio.sleep(0.005)
                if broker.meter.machine.flushed > flushed:
                    return
            pytest.fail("history was not written")

    asyncio.run(work())


def test_a_flush_that_took_long_rests_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "_FLUSH_REST_TIMES", 1_000_000)
    monkeypatch.setattr(writers, "_FLUSH_REST_US_MAX", 300_000)

    async def work() -> None:
        async with working(tmp_path) as (broker, peer, _):
            await broker.flush()
            broker.post(SubmitTasks(session=peer.session, ref=3, tasks=[spec(2)]), THE_BROKER)
            await peer.reply()
            begin_us = broker.now_us()
            await broker.flush()
            assert broker.now_us() - begin_us >= 200_000
            found = await broker.off_loop(lambda: broker.engine.history.find([spec(2).id]))
            assert len(found) == 1

    asyncio.run(work())


class Listener:
    """Keeps the kinds of records that it is given."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def take(self, turn: Turn, _: Core) -> None:
        self.heard += [type(record).__name__ for record in turn.records]


def test_listeners_and_subscribers_hear_of_a_turn() -> None:
    async def work() -> None:
        listener, told = Listener(), list[Happened]()
        broker = Broker(Storage.open(None, Level.MEMORY), listeners=[listener])
        broker.events.subscribe(Subscription(told.extend, "default", "", NO_TASK))
        await broker.start()
        try:
            peer = Peer(broker)
            broker.post(SubmitTasks(session=peer.session, ref=1, tasks=[spec(1)]), THE_BROKER)
            await peer.reply()
            await broker.read(lambda _: None)
        finally:
            await broker.stop()
        assert listener.heard == ["QueueDeclared", "TaskSubmitted"]
        assert [event.what for event in told] == ["submit"]

    asyncio.run(work())
