"""Workers and submitters in other languages: real processes, killed, against real brokers."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jackalope.core.ids import TaskId
from jackalope.core.task import Options, TaskSpec
from jackalope.task_ids import new_task_id
from jackalope.wire.messages import Query
from tests.certificates import certificates
from tests.clients.languages import LANGUAGES, Language, started
from tests.conformance.broker import OpenBroker, new_key
from tests.conformance.driver import Shown
from tests.conformance.native import NativeDriver
from tests.doors.harness import run

PATIENCE_S = 60.0


@pytest.fixture(params=LANGUAGES.values(), ids=lambda each: each.name, scope="module")
def language(request: pytest.FixtureRequest) -> Language:
    chosen: Language = request.param
    if chosen.why_not:
        pytest.skip(chosen.why_not)
    return chosen


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenBroker]:
    opened = OpenBroker(tmp_path_factory.mktemp("broker"))
    yield opened
    opened.stop()


class Submitter(NativeDriver):
    """A client at the native door, which submits tasks whose argument is bytes."""

    async def call(self, queue: str, name: str, payload: bytes) -> TaskId:
        options = Options(headers={"content": "bytes"})
        spec = TaskSpec(new_task_id(), queue, name, payload=payload, options=options)
        assert await self.submit_specs([spec]) == [None]
        return spec.id

    async def until(self, task: TaskId, is_so: Callable[[Shown], bool]) -> Shown:
        """Ask until a task is as it should be; the broker sends no message for every change."""
        async with asyncio.timeout(PATIENCE_S):
            while not is_so(shown := await self.task(task)):
                pass
        return shown

    async def workers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await self.ask(Query(0, "workers"))
        return found


def is_running(shown: Shown) -> bool:
    return shown.state == "running"


def has_ended(shown: Shown) -> bool:
    return shown.state in ("succeeded", "dead", "killed")


def talk(broker: OpenBroker, check: Callable[[Submitter], Awaitable[None]]) -> None:
    """Run a check with a client of the broker."""

    async def talking() -> None:
        client = Submitter(broker.ports)
        try:
            await check(client)
        finally:
            await client.close()

    run(talking())


def test_values_failures_and_kills(language: Language, broker: OpenBroker) -> None:
    queue, name = f"{language.name}-values", f"{language.name}-1"

    async def check(client: Submitter) -> None:
        await client.declare(queue, retries=0)
        calls = [await client.call(queue, "reverse", b"task %d" % n) for n in range(100)]
        large = await client.call(queue, "reverse", b"ab" * 1024 * 1024)
        failing = await client.call(queue, "fail", b"on purpose")
        sleeping = await client.call(queue, "sleep", b"600")
        for number, task in enumerate(calls):
            assert (await client.wait(task, PATIENCE_S)).attempts == 1
            assert await client.result(task) == (b"task %d" % number)[::-1]
        assert (await client.wait(large, PATIENCE_S)).state == "succeeded"
        assert await client.result(large) == b"ba" * 1024 * 1024
        dead = await client.wait(failing, PATIENCE_S)
        assert (dead.state, dead.reason, dead.error[1]) == ("dead", "failed", "on purpose")
        shown = await client.until(sleeping, lambda shown: shown.percent is not None)
        assert (shown.percent, shown.note) == (50, "sleeping")
        assert await client.kill(sleeping) == "requested"
        assert (await client.wait(sleeping, PATIENCE_S)).state == "killed"

    environment = language.environment(broker.ports)
    with started(language.worker, environment, "--queue", queue, "--name", name):
        talk(broker, check)


def test_killed_worker_comes_back_with_empty_hands(language: Language, broker: OpenBroker) -> None:
    queue, name = f"{language.name}-killed", f"{language.name}-2"
    environment = language.environment(broker.ports)
    flags = ("--queue", queue, "--name", name)

    async def check(client: Submitter) -> None:
        task = await client.call(queue, "sleep", b"1")
        with started(language.worker, environment, *flags) as worker:
            await client.until(task, is_running)
            worker.process.send_signal(signal.SIGKILL)
            await asyncio.to_thread(worker.ended)
        with started(language.worker, environment, *flags):
            ended = await client.until(task, has_ended)
        assert (ended.state, ended.attempts, ended.crashes) == ("succeeded", 2, 1)

    talk(broker, check)


def test_worker_resumes_after_the_broker_was_killed(language: Language, broker: OpenBroker) -> None:
    """What ran goes on under its fence; what ended while there was no broker is reported."""
    queue, name = f"{language.name}-resumed", f"{language.name}-3"
    environment = language.environment(broker.ports)

    with started(language.worker, environment, "--queue", queue, "--name", name) as worker:
        tasks: list[TaskId] = []

        async def submit(client: Submitter) -> None:
            tasks.append(await client.call(queue, "sleep", b"0.1"))
            tasks.append(await client.call(queue, "sleep", b"3"))
            await client.until(tasks[1], is_running)

        talk(broker, submit)
        broker.kill_and_start()

        async def check(client: Submitter) -> None:
            for task in tasks:
                ended = await client.until(task, has_ended)
                assert (ended.state, ended.attempts, ended.crashes) == ("succeeded", 1, 0)
            assert await client.result(tasks[1]) == b"slept 3"

        talk(broker, check)
        assert worker.process.poll() is None


def test_worker_that_was_stopped_drops_what_it_lost(language: Language, broker: OpenBroker) -> None:
    """Its lease ends while it stands still. What it wakes up with is no longer its own."""
    queue, name = f"{language.name}-lost", f"{language.name}-lost"
    environment = language.environment(broker.ports)
    flags = ("--queue", queue, "--lease", "1.5", "--name")

    async def check(client: Submitter) -> None:
        task = await client.call(queue, "sleep", b"2")
        with started(language.worker, environment, *flags, name) as stopped:
            await client.until(task, is_running)
            stopped.process.send_signal(signal.SIGSTOP)
            with started(language.worker, environment, *flags, f"{name}-other"):
                ended = await client.until(task, has_ended)
            assert (ended.state, ended.attempts, ended.crashes) == ("succeeded", 2, 1)
            stopped.process.send_signal(signal.SIGCONT)
            later = await client.call(queue, "reverse", b"abc")
            assert (await client.until(later, has_ended)).state == "succeeded"
            assert stopped.process.poll() is None
        shown = await client.task(task)
        assert (shown.state, shown.attempts) == ("succeeded", 2)

    talk(broker, check)


def test_drains_when_it_is_told_to_stop(language: Language, broker: OpenBroker) -> None:
    queue, name = f"{language.name}-drained", f"{language.name}-4"
    environment = language.environment(broker.ports)
    flags = ("--queue", queue, "--name", name, "--drain", "1.5")

    async def check(client: Submitter) -> None:
        with started(language.worker, environment, *flags) as worker:
            short = await client.call(queue, "sleep", b"0.5")
            long = await client.call(queue, "sleep", b"600")
            await client.until(short, is_running)
            await client.until(long, is_running)
            worker.process.send_signal(signal.SIGTERM)
            code, _, log = await asyncio.to_thread(worker.ended)
            assert code == 0, log
        # It finished what it could, handed back the rest, and left.
        assert (await client.task(short)).state == "succeeded"
        left = await client.task(long)
        assert (left.state, left.interruptions, left.crashes) == ("ready", 1, 0)
        (gone,) = [each for each in await client.workers() if each["worker"] == name]
        assert (gone["state"], gone["why_gone"]) == ("gone", "left")

    talk(broker, check)


def test_submitter_outlives_the_broker(language: Language, broker: OpenBroker) -> None:
    """The broker is killed while tasks are submitted and awaited: each runs once, none is lost."""
    queue, count = f"{language.name}-submitted", 300
    environment = language.environment(broker.ports)
    flags = ("--queue", queue, "--count", str(count), "--name", "reverse", "task-%")
    with started(language.submit, environment, *flags) as submitter:

        async def some_are_there(client: Submitter) -> None:
            async with asyncio.timeout(PATIENCE_S):
                while not (await client.tasks(queue, 1)).total:
                    pass

        talk(broker, some_are_there)
        broker.kill_and_start()
        with started(language.worker, environment, "--queue", queue):
            code, out, log = submitter.ended()
    assert code == 0, log
    results = dict(line.split(" ", 1) for line in out.splitlines())
    assert results == {str(n): f"task-{n}"[::-1] for n in range(count)}

    async def check(client: Submitter) -> None:
        assert (await client.tasks(queue, 1)).total == count

    talk(broker, check)


def test_tls_and_keys(language: Language, tmp_path: Path) -> None:
    made = certificates()
    token, key = new_key("clients", "submit_tasks", "read_tasks", "work")
    config = {"tls": {"cert": made.cert, "key": made.key}, "auth": {"keys": [key]}}
    broker = OpenBroker(tmp_path, config)
    try:
        environment = language.environment(broker.ports, token, made.ca)
        flags = ("--queue", "q", "--name", "reverse", "abc")
        with (
            started(language.worker, environment, "--queue", "q"),
            started(language.submit, environment, *flags) as submitter,
        ):
            code, out, log = submitter.ended()
            assert (code, out) == (0, "0 cba\n"), log
        wrong = language.environment(broker.ports, "jk_0_wrong", made.ca)
        with (
            started(language.submit, wrong) as submitter,
            started(language.worker, wrong) as worker,
        ):
            for refused in (submitter, worker):
                code, out, log = refused.ended()
                assert (code, out) == (1, ""), log
                assert "unauthorised" in log or "API key" in log, log
    finally:
        broker.stop()


def test_refusals_reach_the_submitter(language: Language, broker: OpenBroker) -> None:
    queue = f"{language.name}-failing"
    environment = language.environment(broker.ports)

    async def check(client: Submitter) -> None:
        await client.declare(queue, retries=0)

    talk(broker, check)
    with (
        started(language.worker, environment, "--queue", queue),
        started(language.submit, environment, "--queue", queue, "--name", "fail", "boom") as failed,
    ):
        code, out, log = failed.ended()
    assert (code, out, "failed: boom" in log) == (1, "", True), log
    name = "x" * 300
    with started(language.submit, environment, "--queue", queue, "--name", name) as refused:
        code, out, log = refused.ended()
    assert (code, out, "refused invalid" in log) == (1, "", True), log
