"""Callbacks from a real broker to a real receiver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec

from jackalope.broker.access import THE_BROKER
from jackalope.broker.config.callbacks import CallbacksConfig, allowed_targets
from jackalope.broker.local_session import LocalSession
from jackalope.broker.service import Broker
from jackalope.callbacks import CallbackService
from jackalope.core.commands import (
    Action,
    ActOnTasks,
    DeclareQueue,
    DrainWorker,
    Fail,
    FailAttempts,
    Finish,
    FinishAttempts,
    JoinWorker,
    StartAttempts,
    SubmitTasks,
    Verdict,
)
from jackalope.core.commands import Held as HeldAttempt
from jackalope.core.effects import Accepted, Assignment, Message
from jackalope.core.ids import TaskId, id_text
from jackalope.core.lifecycle import State
from jackalope.core.shapes.callback import CALLBACKS_QUEUE, CALLBACKS_WORKER, Callback, CallbackOn
from jackalope.core.task import Error, Options, Task
from jackalope.storage import Level, Storage
from tests.callbacks.receiver import HANG, Receiver, answer, receiving
from tests.core.driving import spec
from tests.doors.harness import run

SOON: dict[str, object] = {"retry_base_us": 1_000, "retry_cap_us": 1_000}
LOCAL = CallbacksConfig(allow=("127.0.0.1",), timeout_us=5_000_000)
PATIENT = CallbacksConfig(allow=("127.0.0.1",), timeout_us=60_000_000)


class Worker(LocalSession):
    """A worker that is handed its tasks one by one."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker, THE_BROKER)
        self.given: asyncio.Queue[Assignment] = asyncio.Queue()

    def on_message(self, message: Message) -> None:
        if isinstance(message, Assignment):
            self.given.put_nowait(message)


@dataclass
class House:
    """A broker, its service of callbacks, and a worker of queue `q`."""

    broker: Broker
    worker: Worker
    service: CallbackService
    receiver: Receiver
    sent: list[TaskId] = field(default_factory=list)

    async def submit(self, *callbacks: Callback) -> TaskId:
        """Submit a task with callbacks."""
        number = len(self.sent) + 1
        made = spec(number, queue="q", name="t")
        made.options = Options(callbacks=callbacks) if callbacks else None
        accepted = await self.worker.ask(SubmitTasks(ref=0, tasks=[made]))
        assert accepted == Accepted(1)
        self.sent.append(made.id)
        return made.id

    async def finish(self, result: bytes = b"") -> TaskId:
        held = await self.take()
        done = Finish(held.task, held.fence, result)
        await self.worker.ask(FinishAttempts(ref=0, attempts=[done]))
        return held.task

    async def fail(self) -> None:
        held = await self.take()
        failed = Fail(held.task, held.fence, Error("Oh", "no"), Verdict.DEAD)
        await self.worker.ask(FailAttempts(ref=0, attempts=[failed]))

    async def take(self) -> HeldAttempt:
        async with asyncio.timeout(10):
            given = await self.worker.given.get()
        held = HeldAttempt(given.task, given.fence)
        await self.worker.ask(StartAttempts(ref=0, attempts=[held]))
        return held

    async def callbacks(self) -> list[Task]:
        """Return the tasks of the broker's own queue that are in memory."""
        tasks = await self.broker.read(lambda engine: list(engine.core.book.tasks.values()))
        return [task for task in tasks if task.queue.name == CALLBACKS_QUEUE]

    async def until(self, *states: State) -> list[Task]:
        """Wait until the callbacks are in these states."""
        async with asyncio.timeout(10):
            while True:
                found = await self.callbacks()
                if sorted(task.state for task in found) == sorted(states):
                    return found
                await asyncio.sleep(0.01)


@asynccontextmanager
async def house(*answers: bytes, config: CallbacksConfig = LOCAL) -> AsyncIterator[House]:
    broker = Broker(Storage.open(None, Level.MEMORY), callback_targets=allowed_targets(config))
    await broker.start()
    worker = Worker(broker)
    worker.open()
    await worker.ask(JoinWorker(ref=0, worker="w", queues=("q",), slots=10))
    await worker.ask(DeclareQueue(queue=CALLBACKS_QUEUE, changes=SOON))
    service = CallbackService(broker, config)
    service.start()
    try:
        async with receiving(*answers) as receiver:
            yield House(broker, worker, service, receiver)
    finally:
        await service.stop()
        worker.close()
        await broker.stop()


def test_the_end_of_a_task_is_posted() -> None:
    async def check() -> None:
        async with house() as it:
            task = await it.submit(Callback(it.receiver.url("/a")), Callback(it.receiver.url("/b")))
            await it.finish(msgspec.msgpack.encode([1, 2]))
            got = await it.receiver.until(2)
            assert sorted(each.line for each in got) == ["POST /a HTTP/1.1", "POST /b HTTP/1.1"]
            event = got[0].event
            assert event["type"] == "jackalope.task.succeeded"
            assert event["subject"] == id_text(task)
            assert event["data"]["result"] == [1, 2]
            assert got[0].headers["content-type"].startswith("application/cloudevents+json")
            found = await it.until(State.SUCCEEDED, State.SUCCEEDED)
            assert {id_text(each.id) for each in found} == {each.event["id"] for each in got}
            assert it.broker.meter.deliveries == {"delivered": 2, "failed": 0, "dead": 0}

    run(check())


def test_only_the_ends_that_were_asked_for() -> None:
    async def check() -> None:
        async with house() as it:
            only_dead = Callback(it.receiver.url(), (CallbackOn.DEAD,))
            await it.submit(only_dead)
            await it.finish()
            await it.submit(only_dead)
            await it.fail()
            (got,) = await it.receiver.until(1)
            assert got.event["type"] == "jackalope.task.dead"
            assert got.event["data"]["error"] == {"type": "Oh", "message": "no"}
            await it.until(State.SUCCEEDED)

    run(check())


def test_a_receiver_that_fails_is_tried_again_with_the_same_event() -> None:
    async def check() -> None:
        async with house(answer("500 Oh"), b"garbage", answer("429 Many")) as it:
            await it.submit(Callback(it.receiver.url()))
            await it.finish()
            got = await it.receiver.until(4)
            assert len({each.body for each in got}) == 1
            (task,) = await it.until(State.SUCCEEDED)
            assert task.failures == 3
            assert it.broker.meter.deliveries == {"delivered": 1, "failed": 3, "dead": 0}

    run(check())


def test_a_receiver_that_refuses_is_given_up_and_a_person_retries() -> None:
    async def check() -> None:
        async with house(answer("410 Gone")) as it:
            await it.submit(Callback(it.receiver.url()))
            await it.finish()
            (task,) = await it.until(State.DEAD)
            assert task.outcome is not None
            assert task.outcome.error is not None
            assert task.outcome.error.message == "410 Gone"
            await it.worker.ask(ActOnTasks(ref=0, action=Action.RETRY, tasks=(task.id,)))
            await it.until(State.SUCCEEDED)
            assert len(it.receiver.got) == 2

    run(check())


def test_a_receiver_that_hangs_does_not_hold_up_others() -> None:
    async def check() -> None:
        async with house(HANG, config=PATIENT) as it:
            await it.submit(Callback(it.receiver.url("/slow")))
            await it.finish()
            await it.receiver.until(1)
            await it.submit(Callback(it.receiver.url("/fast")))
            await it.finish()
            got = await it.receiver.until(2)
            assert got[1].line == "POST /fast HTTP/1.1"

    run(check())


def test_many_callbacks_to_a_receiver_that_hangs_do_not_hold_up_others() -> None:
    async def check() -> None:
        slots = 8
        config = CallbacksConfig(allow=("127.0.0.1",), timeout_us=600_000_000, concurrency=slots)
        async with house(*[HANG] * 1_000, config=config) as it, receiving() as other:
            slow: dict[str, object] = {"retry_base_us": 3_600_000_000}
            await it.worker.ask(DeclareQueue(queue=CALLBACKS_QUEUE, changes=slow))
            for _ in range(10 * slots):
                await it.submit(Callback(it.receiver.url()))
                await it.finish()
            await it.receiver.until(slots)  # It holds every slot there is.
            await it.submit(Callback(other.url()))
            await it.finish()
            await other.until(1)
            waiting = [each for each in await it.callbacks() if each.state is State.RUNNING]
            assert len(waiting) == slots // 4

    run(check())


def test_a_callback_that_is_killed_is_broken_off() -> None:
    async def check() -> None:
        async with house(HANG, config=PATIENT) as it:
            await it.submit(Callback(it.receiver.url()))
            await it.finish()
            await it.receiver.until(1)
            (task,) = await it.until(State.RUNNING)
            await it.worker.ask(ActOnTasks(ref=0, action=Action.KILL, tasks=(task.id,)))
            await it.until(State.KILLED)

    run(check())


def test_the_service_goes_on_after_a_drain_and_a_restart_of_its_own() -> None:
    async def check() -> None:
        async with house() as it:
            await it.submit(Callback(it.receiver.url()))
            await it.finish()
            await it.receiver.until(1)
            await it.worker.ask(DrainWorker(worker=CALLBACKS_WORKER))
            await it.submit(Callback(it.receiver.url()))
            await it.finish()
            await it.receiver.until(2)
            await it.service.stop()
            await it.submit(Callback(it.receiver.url()))
            await it.finish()
            await it.until(State.SUCCEEDED, State.SUCCEEDED, State.READY)
            it.service.start()
            await it.receiver.until(3)

    run(check())


def test_an_address_that_is_no_longer_allowed_is_not_called() -> None:
    async def check() -> None:
        async with house() as it:
            strict = CallbackService(it.broker, CallbacksConfig())
            it.service.poster = strict.poster
            await it.submit(Callback(it.receiver.url()))
            await it.finish()
            (task,) = await it.until(State.DEAD)
            assert task.outcome is not None
            assert task.outcome.error is not None
            assert task.outcome.error.type == "Forbidden"
            assert not it.receiver.got

    run(check())
