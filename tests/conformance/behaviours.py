"""The behaviours that every door has alike, each written once against a driver.

A behaviour is a coroutine that asserts. It gets a stage: a driver of the door under test, a queue
of its own, and brokers in processes of their own. A new one is registered by its decorator, and
then runs through every door.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from hashlib import sha256
from time import monotonic, time_ns

import msgspec
import pytest

from jackalope.core.ids import NO_TASK, TaskId
from jackalope.task_ids import new_task_id
from tests.conformance.broker import ClosedBroker, OpenBroker, Ports
from tests.conformance.driver import DoneStep, Driver, Ends, Filled, NewTask, Refused, Shown

#: Above what fits into a record, so that it goes through the blob store.
LARGE_BYTES = 1024 * 1024


@dataclass
class Stage:
    """What a behaviour works with."""

    make: Callable[[Ports, str], Driver]
    broker: OpenBroker
    closed: ClosedBroker
    queue: str
    drivers: list[Driver] = field(default_factory=list)

    def connect(self, token: str | None = None) -> Driver:
        """Return a new client: of the open broker, or with a token of the one that has keys."""
        broker = self.broker if token is None else self.closed
        driver = self.make(broker.ports, token or "")
        self.drivers.append(driver)
        return driver

    async def close(self) -> None:
        for driver in self.drivers:
            await driver.close()


Behaviour = Callable[[Stage], Awaitable[None]]

BEHAVIOURS: dict[str, Behaviour] = {}


def behaviour(function: Behaviour) -> Behaviour:
    """Register a behaviour under its name."""
    BEHAVIOURS[getattr(function, "__name__", "")] = function
    return function


async def submitted(driver: Driver, *tasks: NewTask) -> list[TaskId]:
    """Submit tasks, all of which must be accepted."""
    refused = [refusal for refusal in await driver.submit(*tasks) if refusal is not None]
    assert refused == []
    return [task.id for task in tasks]


async def submit_one(driver: Driver, task: NewTask) -> None:
    """Submit one task; doors differ in whether they refuse the request or the task in it."""
    for refused in await driver.submit(task):
        if refused is not None:
            raise refused


async def refusal(request: Awaitable[object], *codes: str) -> Refused:
    """Await a request that must be refused with one of these codes."""
    with pytest.raises(Refused) as caught:
        await request
    assert caught.value.code in codes
    assert caught.value.message
    return caught.value


# Submitting.


@behaviour
async def submit_and_finish(stage: Stage) -> None:
    driver = stage.connect()
    task = NewTask(stage.queue, "resize", b"cat.png", 201)
    await submitted(driver, task)
    ready = Shown(task.id, stage.queue, "resize", "ready", 201, 0, 0, 0, 0)
    assert await driver.task(task.id) == ready
    worker = await driver.worker(f"{stage.queue}-w", stage.queue)
    attempt = await worker.claim()
    assert attempt is not None
    assert (attempt.task, attempt.name, attempt.payload) == (task.id, "resize", b"cat.png")
    assert (attempt.number, attempt.fence > 0) == (1, True)
    assert (await driver.task(task.id)).state == "running"
    await worker.finish(attempt, b"cat-small.png")
    ended = await driver.task(task.id)
    assert (ended.state, ended.attempts, ended.failures) == ("succeeded", 1, 0)
    assert await driver.result(task.id) == b"cat-small.png"
    assert await worker.claim(0) is None


@behaviour
async def resubmit_under_the_same_id(stage: Stage) -> None:
    driver = stage.connect()
    task = NewTask(stage.queue, payload=b"once")
    await submitted(driver, task)
    await submitted(driver, task)
    await submitted(stage.connect(), task)
    assert (await driver.tasks(stage.queue, 10)).total == 1
    other = NewTask(stage.queue, payload=b"twice", id=task.id)
    (refused,) = await driver.submit(other)
    assert refused is not None
    assert (refused.code, refused.retry_after_s) == ("id_conflict", 0)
    worker = await driver.worker(f"{stage.queue}-w", stage.queue)
    attempt = await worker.claim()
    assert attempt is not None
    await worker.finish(attempt, b"done")
    await submitted(driver, task)
    assert (await driver.task(task.id)).state == "succeeded"
    assert await worker.claim(0) is None


@behaviour
async def batch(stage: Stage) -> None:
    """Each task of a request is accepted or refused on its own."""
    driver = stage.connect()
    first = NewTask(stage.queue, payload=b"first")
    await submitted(driver, first)
    tasks = [NewTask(stage.queue, payload=b"%d" % number) for number in range(5)]
    conflict = NewTask(stage.queue, payload=b"another", id=first.id)
    refusals = await driver.submit(*tasks[:2], conflict, *tasks[2:])
    assert [refused and refused.code for refused in refusals] == [
        *(None, None, "id_conflict", None, None, None)
    ]
    page = await driver.tasks(stage.queue, 10)
    assert {task.id for task in page.tasks} == {first.id, *(task.id for task in tasks)}


@behaviour
async def queue_full(stage: Stage) -> None:
    driver = stage.connect()
    await driver.declare(stage.queue, depth_limit=2)
    tasks = [NewTask(stage.queue) for _ in range(3)]
    refusals = await driver.submit(*tasks)
    assert refusals[:2] == [None, None]
    refused = refusals[2]
    assert refused is not None
    assert (refused.code, stage.queue in refused.message) == ("queue_full", True)
    assert refused.retry_after_s > 0
    (alone,) = await driver.submit(tasks[2])
    assert alone is not None
    assert (alone.code, alone.retry_after_s > 0) == ("queue_full", True)
    worker = await driver.worker(f"{stage.queue}-w", stage.queue)
    attempt = await worker.claim()
    assert attempt is not None
    await worker.finish(attempt)
    await submitted(driver, tasks[2])


@behaviour
async def large_payload_and_result(stage: Stage) -> None:
    driver = stage.connect()
    payload = sha256(stage.queue.encode()).digest() * (LARGE_BYTES // 32)
    (task,) = await submitted(driver, NewTask(stage.queue, payload=payload))
    worker = await driver.worker(f"{stage.queue}-w", stage.queue)
    attempt = await worker.claim()
    assert attempt is not None
    assert attempt.payload == payload
    await worker.finish(attempt, payload[::-1])
    assert await driver.result(task) == payload[::-1]


# Asking.


@behaviour
async def unknown_task(stage: Stage) -> None:
    driver = stage.connect()
    nothing = new_task_id()
    await refusal(driver.task(nothing), "unknown_task")
    await refusal(driver.wait(nothing, 0.1), "unknown_task")
    await refusal(driver.explain(nothing), "unknown_task")
    await refusal(driver.kill(nothing), "unknown_task")
    await refusal(driver.result(nothing), "unknown_task")


@behaviour
async def wait_with_timeout(stage: Stage) -> None:
    driver = stage.connect()
    (task,) = await submitted(driver, NewTask(stage.queue))
    began = monotonic()
    waited = await driver.wait(task, 0.3)
    assert (waited.state, monotonic() - began >= 0.3) == ("ready", True)
    worker = await stage.connect().worker(f"{stage.queue}-w", stage.queue)
    attempt = await worker.claim()
    assert attempt is not None
    waiting = asyncio.create_task(driver.wait(task, 20))
    done, _ = await asyncio.wait([waiting], timeout=0.1)
    assert not done
    await worker.finish(attempt, b"at last")
    assert (await waiting).state == "succeeded"
    assert (await driver.wait(task, 20)).state == "succeeded"


@behaviour
async def list_with_paging(stage: Stage) -> None:
    driver = stage.connect()
    ids = [(await submitted(driver, NewTask(stage.queue)))[0] for _ in range(5)]
    found: list[TaskId] = []
    cursor, sizes, totals = "", [], []
    while True:
        page = await driver.tasks(stage.queue, 2, cursor)
        found += [task.id for task in page.tasks]
        sizes.append(len(page.tasks))
        totals.append(page.total)
        if not page.cursor:
            break
        cursor = page.cursor
        # What comes meanwhile changes no page of this list.
        await submitted(driver, NewTask(stage.queue))
    assert (sizes, totals) == ([2, 2, 1], [5, None, None])
    assert found == ids[::-1]
    await refusal(driver.tasks(stage.queue, 2, "no cursor"), "invalid")


@behaviour
async def explain(stage: Stage) -> None:
    driver = stage.connect()
    (task,) = await submitted(driver, NewTask(stage.queue))
    assert await driver.explain(task) == ["no_worker"]
    worker = await driver.worker(f"{stage.queue}-w", stage.queue)
    attempt = await worker.claim()
    assert attempt is not None
    assert await driver.explain(task) == ["running"]
    await worker.finish(attempt)
    assert await driver.explain(task) == ["ended"]


# Working.


@behaviour
async def progress_and_failure(stage: Stage) -> None:
    driver = stage.connect()
    await driver.declare(stage.queue, retries=0)
    (task,) = await submitted(driver, NewTask(stage.queue))
    worker = await driver.worker(f"{stage.queue}-w", stage.queue)
    attempt = await worker.claim()
    assert attempt is not None
    await worker.progress(attempt, 50, "half")
    half = await driver.task(task)
    assert (half.percent, half.note) == (50, "half")
    await worker.fail(attempt, "ValueError", "no such file")
    dead = await driver.task(task)
    assert (dead.state, dead.reason, dead.failures) == ("dead", "failed", 1)
    assert dead.error == ("ValueError", "no such file")


@behaviour
async def released_attempt_runs_again(stage: Stage) -> None:
    driver = stage.connect()
    (task,) = await submitted(driver, NewTask(stage.queue))
    worker = await driver.worker(f"{stage.queue}-w", stage.queue)
    attempt = await worker.claim()
    assert attempt is not None
    await worker.release(attempt)
    again = await worker.claim()
    assert again is not None
    assert (again.task, again.number, again.fence > attempt.fence) == (task, 2, True)
    await worker.finish(again)
    ended = await driver.task(task)
    assert (ended.state, ended.interruptions, ended.failures) == ("succeeded", 1, 0)


@behaviour
async def stale_fence(stage: Stage) -> None:
    driver = stage.connect()
    (task,) = await submitted(driver, NewTask(stage.queue))
    worker = await driver.worker(f"{stage.queue}-w", stage.queue)
    attempt = await worker.claim()
    assert attempt is not None
    stale = type(attempt)(task, attempt.fence + 1, "", b"", 1)
    await refusal(worker.finish(stale, b"wrong"), "stale_fence")
    await refusal(worker.fail(stale, "E", ""), "stale_fence")
    await refusal(worker.release(stale), "stale_fence")
    await refusal(worker.progress(stale, 1, ""), "stale_fence")
    assert (await driver.task(task)).state == "running"
    other = await driver.worker(f"{stage.queue}-other", stage.queue)
    await refusal(other.finish(attempt, b"stolen"), "stale_fence")
    await worker.finish(attempt, b"right")
    await refusal(worker.finish(attempt, b"twice"), "stale_fence")
    await refusal(driver.kill(task), "wrong_state")
    assert await driver.result(task) == b"right"


@behaviour
async def kill_a_running_task(stage: Stage) -> None:
    driver = stage.connect()
    running, ready = await submitted(driver, NewTask(stage.queue), NewTask(stage.queue))
    worker = await driver.worker(f"{stage.queue}-w", stage.queue)
    attempt = await worker.claim()
    assert attempt is not None
    assert attempt.task == running
    assert await driver.kill(ready) == "changed"
    assert (await driver.task(ready)).state == "killed"
    assert await driver.kill(running) == "requested"
    assert (await driver.task(running)).state == "running"
    assert await worker.signal() == (running, "kill")
    await worker.stopped(attempt)
    assert (await driver.wait(running, 20)).state == "killed"
    assert await driver.kill(running) == "changed"  # What is so already stays so.


@behaviour
async def lease_lost(stage: Stage) -> None:
    """A worker that is silent for longer than its lease has lost what it held."""
    driver = stage.connect()
    (task,) = await submitted(driver, NewTask(stage.queue))
    silent = await driver.worker(f"{stage.queue}-silent", stage.queue, lease_s=1)
    attempt = await silent.claim()
    assert attempt is not None
    other = await driver.worker(f"{stage.queue}-other", stage.queue)
    again = await other.claim(20)
    assert again is not None
    assert (again.task, again.number, again.fence > attempt.fence) == (task, 2, True)
    # The broker knows no such worker any more, or the fence is not the task's: by which is told
    # depends on how a door names a worker. In no case does the report count.
    await refusal(
        silent.finish(attempt, b"late"), "stale_fence", "unknown_session", "unknown_worker"
    )
    assert await silent.join(attempt) == (set(), {attempt.fence})
    await refusal(silent.finish(attempt, b"late"), "stale_fence")
    await other.finish(again, b"in time")
    assert await driver.result(task) == b"in time"
    assert (await driver.task(task)).crashes == 1


@behaviour
async def resume_after_a_restart(stage: Stage) -> None:
    """The broker is killed; what it acknowledged is there, and a worker goes on."""
    driver = stage.connect()
    held, waiting = await submitted(driver, NewTask(stage.queue), NewTask(stage.queue))
    worker = await driver.worker(f"{stage.queue}-w", stage.queue)
    attempt = await worker.claim()
    assert attempt is not None
    assert attempt.task == held
    await asyncio.to_thread(stage.broker.kill_and_start)
    driver = stage.connect()
    assert (await driver.task(held)).state == "running"
    assert (await driver.task(waiting)).state == "ready"
    worker = await driver.worker(f"{stage.queue}-w", stage.queue, holding=(attempt,))
    await worker.finish(attempt, b"over two brokers")
    ended = await driver.task(held)
    assert (ended.state, ended.attempts, ended.crashes) == ("succeeded", 1, 0)
    assert await driver.result(held) == b"over two brokers"
    later = await worker.claim()
    assert later is not None
    assert (later.task, later.fence > attempt.fence) == (waiting, True)
    await worker.finish(later)


# Steps.


@behaviour
async def steps_are_done_once(stage: Stage) -> None:
    driver = stage.connect()
    (task,) = await submitted(driver, NewTask(stage.queue))
    worker = await driver.worker(f"{stage.queue}-w", stage.queue)
    attempt = await worker.claim()
    assert attempt is not None
    assert attempt.steps == ()
    await worker.step(attempt, 0, "charge", b"paid")
    await worker.step(attempt, 0, "charge", b"paid")  # Saying it again is harmless.
    await refusal(worker.step(attempt, 0, "charge", b"paid twice"), "wrong_state")
    await refusal(worker.step(attempt, 0, "refund", b"paid"), "wrong_state")
    await refusal(worker.step(attempt, 1, "pack", bytes(64 * 1024 + 1)), "too_large", "invalid")
    await refusal(worker.step(attempt, 1_000, "pack", b""), "too_many", "invalid")
    stale = type(attempt)(task, attempt.fence + 1, "", b"", 1)
    await refusal(worker.step(stale, 1, "pack", b""), "stale_fence")
    assert (await driver.task(task)).steps == ("charge",)
    await worker.release(attempt)
    again = await worker.claim()
    assert again is not None
    assert again.steps == (DoneStep("charge", b"paid"),)
    await worker.finish(again, b"shipped")
    ended = await driver.task(task)
    assert (ended.state, ended.steps) == ("succeeded", ("charge",))


@behaviour
async def a_sleep_needs_no_worker(stage: Stage) -> None:
    driver = stage.connect()
    (task,) = await submitted(driver, NewTask(stage.queue))
    worker = await driver.worker(f"{stage.queue}-w", stage.queue)
    attempt = await worker.claim()
    assert attempt is not None
    await refusal(worker.suspend(attempt, 0, "sleep"), "invalid")
    assert await worker.suspend(attempt, 0, "sleep", after_s=0.3) is None
    await refusal(worker.finish(attempt, b"too late"), "stale_fence")
    slept = await driver.task(task)
    assert (slept.state, slept.steps, slept.failures) == ("scheduled", ("sleep",), 0)
    assert await driver.explain(task)
    again = await worker.claim(20)
    assert again is not None
    assert (again.task, again.number, again.fence > attempt.fence) == (task, 2, True)
    assert again.steps == (DoneStep("sleep"),)
    assert await worker.suspend(again, 0, "sleep", after_s=0.3) == DoneStep("sleep")
    await worker.finish(again)


@behaviour
async def an_event_ends_a_wait(stage: Stage) -> None:
    driver = stage.connect()
    (task,) = await submitted(driver, NewTask(stage.queue))
    worker = await driver.worker(f"{stage.queue}-w", stage.queue)
    attempt = await worker.claim()
    assert attempt is not None
    # One that comes before its wait is kept, and taken at once.
    await driver.send_event(task, "paid", {"by": "Ann"})
    paid = await worker.suspend(attempt, 0, "wait for paid", event="paid")
    assert paid is not None
    assert msgspec.msgpack.decode(paid.result) == {"by": "Ann"}
    assert await worker.suspend(attempt, 1, "wait for approved", 60, "approved") is None
    assert (await driver.task(task)).waits_for == "approved"
    await driver.send_event(task, "other", None)
    assert (await driver.task(task)).state == "scheduled"
    await driver.send_event(task, "approved", [1, "two"])
    again = await worker.claim()
    assert again is not None
    assert [each.name for each in again.steps] == ["wait for paid", "wait for approved"]
    assert msgspec.msgpack.decode(again.steps[1].result) == [1, "two"]
    assert await worker.suspend(again, 2, "wait for more", 0.2, "more") is None
    late = await worker.claim(20)
    assert late is not None
    assert late.steps[2] == DoneStep("wait for more", b"", is_late=True)
    await worker.finish(late)
    await refusal(driver.send_event(task, "approved", None), "wrong_state")
    await refusal(driver.send_event(new_task_id(), "approved", None), "unknown_task")


# Schedules.


@behaviour
async def schedule(stage: Stage) -> None:
    """Declared, changed, paused, resumed and deleted."""
    driver, name = stage.connect(), f"{stage.queue}-hourly"
    await driver.declare_schedule(name, every_s=3_600, queue=stage.queue, task="report")
    shown = await driver.schedule(name)
    assert (shown.name, shown.state, shown.queue) == (name, "active", stage.queue)
    assert (shown.task, shown.every_us, shown.overlap) == ("report", 3_600_000_000, "allow")
    assert (shown.fired, shown.runs, len(shown.upcoming)) == (0, (), 10)
    assert shown.upcoming[0] == shown.next_us
    assert shown.upcoming[1] - shown.upcoming[0] == 3_600_000_000
    await driver.declare_schedule(name, overlap="skip")
    changed = await driver.schedule(name)
    assert (changed.overlap, changed.task, changed.next_us) == ("skip", "report", shown.next_us)
    await driver.act_on_schedule(name, "pause")
    assert (await driver.schedule(name)).state == "paused"
    await driver.act_on_schedule(name, "resume")
    assert (await driver.schedule(name)).state == "active"
    await driver.act_on_schedule(name, "delete")
    for request in (
        driver.schedule(name),
        driver.trigger(name, new_task_id()),
        driver.backfill(name, 1, 2),
        *(driver.act_on_schedule(name, action) for action in ("pause", "resume", "delete")),
    ):
        await refusal(request, "unknown_schedule")


@behaviour
async def schedule_refused(stage: Stage) -> None:
    """Every problem is named, and nothing is stored."""
    driver, name = stage.connect(), f"{stage.queue}-wrong"
    wrong = driver.declare_schedule(
        name, queue=stage.queue, cron="0 0 30 2 *", zone="Europe/Atlantis"
    )
    refused = await refusal(wrong, "invalid")
    assert "cron" in refused.message
    assert "Europe/Atlantis" in refused.message
    await refusal(driver.schedule(name), "unknown_schedule")
    reader = stage.connect(stage.closed.reader_token)
    await refusal(reader.declare_schedule(name, queue=stage.queue, every_s=60), "forbidden")


@behaviour
async def schedules_with_paging(stage: Stage) -> None:
    driver = stage.connect()
    names = [f"{stage.queue}-{number}" for number in range(3)]
    for name in names:
        await driver.declare_schedule(name, queue=stage.queue, cron="@daily")
    first, cursor = await driver.schedules(stage.queue, 2)
    rest, end = await driver.schedules(stage.queue, 2, cursor)
    assert (first + rest, bool(cursor), end) == (names, True, "")


@behaviour
async def schedule_triggered_and_backfilled(stage: Stage) -> None:
    driver, name, task = stage.connect(), f"{stage.queue}-minutely", new_task_id()
    await driver.declare_schedule(name, queue=stage.queue, task="report", cron="* * * * *")
    assert await driver.trigger(name, task) == task
    assert await driver.trigger(name, task) == task  # A request that was repeated.
    triggered = await driver.task(task)
    assert (triggered.queue, triggered.name, triggered.state) == (stage.queue, "report", "ready")
    minute_us, now_us = 60_000_000, time_ns() // 1_000
    until_us = now_us - now_us % minute_us - 10 * minute_us
    since_us = until_us - 2 * minute_us
    filled = await driver.backfill(name, since_us, until_us)
    made = filled.tasks
    assert (len(made), filled.known, filled.forgotten) == (3, 0, [])
    assert await driver.backfill(name, since_us, until_us) == Filled([], 3)
    shown = await driver.schedule(name)
    assert sorted(how for _, how in shown.runs if how != "slot") == [
        *("backfill", "backfill", "backfill", "trigger")
    ]
    assert {task, *made} <= {each for each, _ in shown.runs}
    await refusal(driver.backfill(name, until_us, until_us - minute_us), "invalid")
    # A slot that fired does not fire again because its task is forgotten, unless that is asked for.
    await driver.kill(made[2])
    await driver.purge(made[2])
    assert await driver.backfill(name, since_us, until_us) == Filled([], 2, [until_us])
    assert await driver.backfill(name, since_us, until_us, again=True) == Filled([made[2]], 2)


# Ends.

HOOK = "https://hooks.example/ends"


@behaviour
async def callbacks_of_a_task(stage: Stage) -> None:
    driver = stage.connect()
    callbacks = ({"url": HOOK}, {"url": f"{HOOK}/dead", "on": ["dead", "killed"]})
    (task,) = await submitted(driver, NewTask(stage.queue, callbacks=callbacks))
    waits = ((HOOK, (), NO_TASK), (f"{HOOK}/dead", ("dead", "killed"), NO_TASK))
    assert (await driver.task(task)).callbacks == waits
    assert await driver.kill(task) == "changed"
    posts = (await driver.task(task)).callbacks
    assert [each[:2] for each in posts] == [each[:2] for each in waits]
    for _, _, post in posts:
        posting = await driver.task(post)
        assert (posting.queue, posting.name) == ("jackalope.callbacks", "jackalope.task.killed")
    wrong = ({"url": "http://127.0.0.1/"}, {"url": HOOK, "on": ["batch"]}, {"url": "ftp://x"})
    other = NewTask(stage.queue, callbacks=wrong)
    refused = await refusal(submit_one(driver, other), "invalid")
    for number, problem in enumerate(("127.0.0.1 is a loopback address", "`batch`", "http://")):
        assert f"callbacks[{number}]" in refused.message
        assert problem in refused.message
    await refusal(driver.task(other.id), "unknown_task")


@behaviour
async def callbacks_and_triggers_of_a_queue(stage: Stage) -> None:
    driver, target = stage.connect(), f"{stage.queue}-target"
    failed = {"queue": target, "on": ["dead", "killed"], "name": "clean", "payload": "payload"}
    ends = Ends(
        [{"url": HOOK, "on": ["dead", "batch"]}],
        [{"queue": target}, failed | {"key": "a", "priority": 0}],
    )
    await driver.declare_ends(stage.queue, ends)
    assert await driver.ends(stage.queue) == ends
    await driver.declare(stage.queue, retries=0)
    assert await driver.ends(stage.queue) == ends  # What is not named stays.
    (task,) = await submitted(driver, NewTask(stage.queue, "resize", b"cat.png"))
    worker = await driver.worker(f"{stage.queue}-w", stage.queue)
    attempt = await worker.claim()
    assert attempt is not None
    await worker.finish(attempt, b"small.png")
    (triggered,) = (await driver.tasks(target, 10)).tasks
    assert (triggered.name, triggered.priority) == ("resize", 150)
    other = await driver.worker(f"{target}-w", target)
    given = await other.claim()
    assert given is not None
    assert (given.task, given.payload) == (triggered.id, b"small.png")
    (task,) = await submitted(driver, NewTask(stage.queue, "resize", b"dog.png"))
    assert await driver.kill(task) == "changed"
    cleaning = (await driver.tasks(target, 10)).tasks[0]
    assert (cleaning.name, cleaning.priority) == ("clean", 0)
    await _refused_ends(driver, stage.queue, ends)
    await driver.declare_ends(stage.queue, Ends())
    assert await driver.ends(stage.queue) == Ends()


async def _refused_ends(driver: Driver, queue: str, before: Ends) -> None:
    """Declare what is wrong in several ways: all of them are named, and nothing is stored."""
    wrong = Ends(
        [{"url": "http://10.0.0.1/"}, {"url": "https://x@hooks.example/"}],
        [{"queue": ""}, {"queue": "jackalope.callbacks"}, {"queue": "x", "priority": 256}],
    )
    refused = await refusal(driver.declare_ends(queue, wrong), "invalid")
    for place in ("callbacks[0].url: 10.0.0.1", "callbacks[1].url", "triggers[0].queue"):
        assert place in refused.message
    for place in ("triggers[1].queue", "triggers[2].priority"):
        assert place in refused.message
    assert await driver.ends(queue) == before


# Access.


@behaviour
async def unauthorised(stage: Stage) -> None:
    for token in ("", stage.closed.unknown_token, "no token at all"):
        driver = stage.connect(token)
        await refusal(driver.tasks(stage.queue, 1), "unauthorised")
        await refusal(submit_one(driver, NewTask(stage.queue)), "unauthorised")


@behaviour
async def forbidden(stage: Stage) -> None:
    reader = stage.connect(stage.closed.reader_token)
    assert (await reader.tasks(stage.queue, 1)).tasks == []
    task = NewTask(stage.queue)
    await refusal(submit_one(reader, task), "forbidden")
    await refusal(reader.kill(task.id), "forbidden")
    await refusal(reader.declare(stage.queue, retries=0), "forbidden")
    await refusal(reader.worker(f"{stage.queue}-w", stage.queue), "forbidden")
    await submitted(stage.connect(stage.closed.root_token), task)
    assert (await reader.task(task.id)).state == "ready"


@behaviour
async def rate_limited(stage: Stage) -> None:
    """One key is limited, and another one is not held up by it."""
    hasty = stage.connect(stage.closed.hasty_token)

    async def ask_until_refused() -> None:
        for _ in range(20 * stage.closed.rate_burst):
            await hasty.tasks(stage.queue, 1)

    refused = await refusal(ask_until_refused(), "rate_limited")
    assert refused.retry_after_s > 0
    await stage.connect(stage.closed.root_token).tasks(stage.queue, 1)
