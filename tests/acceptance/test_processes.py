"""What must work with real processes: kills, freezes, restarts and drains."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from jackalope import Handle, State, gather
from jackalope.transport.address import parse_address
from tests.acceptance import tasks
from tests.acceptance.harness import House, wait_until

T = TypeVar("T")

#: A short lease and grace, so that the loss of a worker shows soon.
_QUICK = ("--lease", "3s", "--grace", "1s")


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    house.start_broker()
    tasks.app.address = parse_address(house.address)
    yield house
    house.close()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Do something as a client, on a connection of its own."""

    async def connected() -> T:
        async with tasks.app:
            return await work

    return asyncio.run(connected())


async def eventually(handle: Handle[Any], state: State) -> None:
    """Wait until a task is in a state."""
    async with asyncio.timeout(30):
        while (await handle.status()).state is not state:  # noqa: ASYNC110  it is elsewhere
            await asyncio.sleep(0.05)


def test_a_thousand_tasks_through_two_workers(house: House) -> None:
    house.start_worker("one", "sums", 50)
    house.start_worker("two", "sums", 50)

    async def sums() -> list[int]:
        handles = await tasks.add.submit_many((n, 1) for n in range(1000))
        return list(await gather(handles))

    assert run(sums()) == [n + 1 for n in range(1000)]


@pytest.mark.parametrize("policy", ["requeue", "pause", "dead"])
@pytest.mark.feature("T15", "T17")
@pytest.mark.feature("D14")
def test_worker_killed_while_it_runs_a_task(house: House, policy: str) -> None:
    async def scenario() -> tuple[State, str]:
        await tasks.app.declare_queue("work", changes={"on_lost": policy})
        victim = house.start_worker("victim", "work", 1, *_QUICK)
        handle = await tasks.work.submit(str(house.log), "t1", 3600 if policy != "requeue" else 2)
        await eventually(handle, State.RUNNING)
        wait_until(lambda: house.runs()["t1"] == 1, "the task has begun")
        house.kill(victim)
        house.start_worker("heir", "work", 1, *_QUICK)
        expected = {"requeue": State.SUCCEEDED, "pause": State.PAUSED, "dead": State.DEAD}
        await eventually(handle, expected[policy])
        view = await handle.status()
        return view.state, str(view.reason or "")

    state, reason = run(scenario())
    assert reason == ("crashed" if policy == "dead" else "")
    assert house.runs()["t1"] == (2 if policy == "requeue" else 1), state


@pytest.mark.feature("D16")
def test_frozen_worker_loses_its_lease_and_its_late_result_is_refused(house: House) -> None:
    async def scenario() -> tuple[str, int]:
        frozen = house.start_worker("frozen", "work", 1, *_QUICK)
        handle = await tasks.work.submit(str(house.log), "t1", 1)
        await eventually(handle, State.RUNNING)
        wait_until(lambda: house.runs()["t1"] == 1, "the task has begun")
        frozen.send_signal(signal.SIGSTOP)
        house.start_worker("awake", "work", 1, *_QUICK)
        result = await handle.result(timeout=30)
        frozen.send_signal(signal.SIGCONT)
        # Thawed, it ends its run and reports; then it takes new work as if nothing had been.
        wait_until(lambda: house.runs("end")["t1"] == 2, "the late run has ended")
        house.kill(house.workers["awake"])
        again = await tasks.work.submit(str(house.log), "t2", 0)
        await again.result(timeout=30)
        ends = [h for h in await handle.history() if h.what in ("finish", "fail")]
        return result, len(ends)

    assert run(scenario()) == ("t1", 1)
    assert house.runs() == {"t1": 2, "t2": 1}


@pytest.mark.feature("T23")
@pytest.mark.feature("D7", "D10")
def test_broker_killed_under_load_while_workers_go_on(house: House) -> None:
    """What runs goes on and is not run twice; what was accepted is done; nobody restarts but it."""
    house.start_worker("one", "work,sums", 20)
    house.start_worker("two", "work,sums", 20)

    async def scenario() -> list[str]:
        long = [(str(house.log), f"long{n}", 4.0) for n in range(20)]
        short = [(str(house.log), f"short{n}", 0.01) for n in range(300)]
        handles = await tasks.work.submit_many([*long, *short])
        wait_until(lambda: sum(house.runs().values()) >= 25, "work is under way")
        house.kill(house.broker)
        submitting = asyncio.ensure_future(tasks.add.submit(20, 22))
        await asyncio.sleep(0.5)
        house.start_broker()
        names = await gather(handles)
        assert await (await submitting).result(timeout=30) == 42
        return list(names)

    names = run(scenario())
    expected = {f"long{n}" for n in range(20)} | {f"short{n}" for n in range(300)}
    assert set(names) == expected
    runs = house.runs()
    assert set(runs) == expected
    assert {name: n for name, n in runs.items() if n > 1} == {}


@pytest.mark.feature("D7")
def test_client_killed_after_its_submit_was_acknowledged(house: House) -> None:
    code = (
        "import asyncio, os, signal\n"
        "from tests.acceptance.tasks import app, add\n"
        "async def main():\n"
        "    async with app:\n"
        "        handle = await add.submit(1, 2)\n"
        "        print(handle.id.hex(), flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    client = subprocess.run(
        [sys.executable, "-c", code],
        env=house.environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert client.returncode == -signal.SIGKILL
    house.start_worker("one", "sums")
    shown = house.cli("wait", client.stdout.strip(), "--format", "json")
    assert shown.returncode == 0, shown.stderr
    assert '"succeeded"' in shown.stdout


@pytest.mark.feature("D22")
def test_drain_finishes_what_it_can_and_hands_back_the_rest(house: House) -> None:
    async def scenario() -> dict[str, tuple[int, int]]:
        leaver = house.start_worker("leaver", "work", 2, "--drain-deadline", "2s")
        quick = await tasks.work.submit(str(house.log), "quick", 1)
        slow = await tasks.work.submit(str(house.log), "slow", 3600)
        wait_until(lambda: sum(house.runs().values()) == 2, "both run")
        leaver.send_signal(signal.SIGTERM)
        assert leaver.wait(timeout=20) == 0
        assert await quick.result(timeout=10) == "quick"
        await eventually(slow, State.READY)
        views = {"quick": await quick.status(), "slow": await slow.status()}
        return {name: (view.failures, view.interruptions) for name, view in views.items()}

    assert run(scenario()) == {"quick": (0, 0), "slow": (0, 1)}


def test_poison_ends_dead_and_everything_else_goes_on(house: House) -> None:
    async def scenario() -> tuple[State, str, int]:
        await tasks.app.declare_queue("poison", changes={"crash_limit": 3})
        handle = await tasks.poison.submit()
        others = await tasks.add.submit_many((n, n) for n in range(100))
        for attempt in range(1, 4):
            worker = house.start_worker(f"w{attempt}", "poison,sums", 5, *_QUICK)
            await asyncio.to_thread(worker.wait, 30)
        house.start_worker("survivor", "poison,sums", 5, *_QUICK)
        assert await gather(others) == [2 * n for n in range(100)]
        await eventually(handle, State.DEAD)
        view = await handle.status()
        return view.state, str(view.reason), view.crashes

    assert run(scenario()) == (State.DEAD, "crashed", 3)
    assert house.workers["survivor"].poll() is None


def test_blocked_loops_and_threads_do_not_look_dead(house: House) -> None:
    async def scenario() -> tuple[str, int]:
        house.start_worker("one", "blocking", 1, *_QUICK)
        handle = await tasks.block.submit(str(house.log), "t1", 7)
        result = await handle.result(timeout=30)
        return result, (await handle.status()).attempts

    assert run(scenario()) == ("t1", 1)


def test_the_command_line_sees_it_all(house: House) -> None:
    house.start_worker("one", "sums", 5)

    async def one() -> str:
        handle = await tasks.add.submit(1, 1)
        await handle.result(timeout=30)
        return handle.id.hex()

    task = run(one())
    status = json.loads(house.cli("status", task, "--format", "json").stdout)
    assert "succeeded" in json.dumps(status)
    assert "one" in house.cli("workers").stdout
    assert "sums" in house.cli("queues").stdout
    unreachable = house.cli("--broker", "127.0.0.1:1", "stats")
    assert unreachable.returncode == 1
    assert "jackalope serve" in unreachable.stderr
