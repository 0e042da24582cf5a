"""Workers as real processes when things go wrong: held interpreters, lost leases, lost brokers."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from jackalope.core.lifecycle import Reason, State
from jackalope.wire.messages import Moved
from tests.client.harness import BrokerProcess
from tests.client.peer import ScriptedBroker
from tests.worker.executors.stage import children_of, pids
from tests.worker.harness import House, in_house

LEASE_S = 1.0
HEARTBEAT_S = 0.2


def test_task_that_holds_the_interpreter_is_not_taken_for_dead(tmp_path: Path) -> None:
    """Nothing in the worker's process can run for longer than its lease; its pulse beats on."""

    async def story(house: House) -> None:
        worker = house.worker(lease_s=LEASE_S)
        begun = tmp_path / "begun"
        await house.joined()
        task = await house.submit("hold_interpreter", 3 * LEASE_S, str(begun))
        assert await house.value(task) == "held"
        view = await house.view(task)
        assert (view.attempts, view.crashes) == (1, 0)
        assert pids(begun) == [worker.pid]
        assert await house.value(await house.submit("add", 1, 1)) == 2

    in_house(story, tmp_path / "data", heartbeat_s=HEARTBEAT_S)


def test_task_that_blocks_the_loop_blocks_neither_threads_nor_the_lease(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.worker(lease_s=LEASE_S)
        release, begun = tmp_path / "release", tmp_path / "begun"
        blocking = await house.submit("block_loop", str(release), str(begun))
        await house.until(lambda: pids(begun))
        assert await house.value(await house.submit("hold_interpreter_in_thread", 2 * LEASE_S)) == 1
        assert (await house.view(blocking)).state is State.RUNNING
        release.touch()
        assert await house.value(blocking) == "free"
        assert (await house.view(blocking)).attempts == 1

    in_house(story, tmp_path / "data", heartbeat_s=HEARTBEAT_S)


@pytest.mark.feature("J13", "J14")
def test_frozen_worker_loses_its_lease_and_its_late_result_is_refused(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        frozen = house.worker(lease_s=LEASE_S, grace_s=0.1, name="frozen")
        release, begun = tmp_path / "release", tmp_path / "begun"
        task = await house.submit("wait_for_file", str(release), str(begun))
        await house.until(lambda: pids(begun))
        frozen.send_signal(signal.SIGSTOP)
        await house.state_is(task, State.READY)
        house.worker(name="other")
        await house.state_is(task, State.RUNNING)
        release.touch()
        assert await house.value(task) == "seen"
        frozen.send_signal(signal.SIGCONT)
        await house.joined(2)
        view = await house.view(task)
        assert (view.state, view.attempts, view.crashes) == (State.SUCCEEDED, 2, 1)
        more = await house.submit_many([("add", (n, 1)) for n in range(50)])
        assert [await house.value(one) for one in more] == [n + 1 for n in range(50)]

    in_house(story, tmp_path / "data", heartbeat_s=HEARTBEAT_S)


def test_frozen_worker_drops_what_is_no_longer_its_own(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        frozen = house.worker(lease_s=LEASE_S, grace_s=0.1, concurrency=1)
        begun = tmp_path / "begun"
        task = await house.submit("wait_for_ever", str(begun))
        await house.until(lambda: pids(begun))
        frozen.send_signal(signal.SIGSTOP)
        await house.state_is(task, State.READY)
        frozen.send_signal(signal.SIGCONT)
        # Its only slot is free again, so it was given the same task a second time.
        await house.until(lambda: pids(begun) == [frozen.pid, frozen.pid])
        assert (await house.view(task)).attempts == 2

    in_house(story, tmp_path / "data", heartbeat_s=HEARTBEAT_S)


@pytest.mark.feature("J12")
def test_killed_worker_costs_a_crash_and_the_task_goes_on_elsewhere(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        victim = house.worker(grace_s=0.1)
        release, begun = tmp_path / "release", tmp_path / "begun"
        isolated = tmp_path / "isolated"
        task = await house.submit("wait_for_file", str(release), str(begun))
        child = await house.submit("isolated_wait", str(isolated))
        await house.until(lambda: pids(begun) and pids(isolated))
        victim.kill()
        await house.state_is(task, State.READY)
        await house.state_is(child, State.READY)
        await house.until(lambda: not Path(f"/proc/{pids(isolated)[0]}").exists())
        release.touch()
        house.worker()
        assert await house.value(task) == "seen"
        view = await house.view(task)
        assert (view.crashes, view.interruptions, view.failures) == (1, 0, 0)

    in_house(story, tmp_path / "data")


def test_task_that_kills_its_worker_at_once_is_known_to_have_begun(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        await house.manage("declare_queue", queue="default", changes={"crash_limit": 2})
        task = await house.submit("end_worker")
        for _ in range(2):
            worker = house.worker(grace_s=0)
            assert await house.exit_code(worker) == -signal.SIGKILL
        ended = await house.end(task)
        assert (ended.state, ended.reason) == (State.DEAD, Reason.CRASHED)

    in_house(story, tmp_path)


@pytest.mark.feature("T31")
def test_worker_outlives_the_broker_and_nothing_runs_twice(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.worker(concurrency=5)
        release, begun = tmp_path / "release", tmp_path / "begun"
        running = await house.submit("wait_for_file", str(release), str(begun))
        finishing = await house.submit("wait_for_file", str(tmp_path / "early"), str(begun))
        await house.until(lambda: len(pids(begun)) == 2)
        await house.shut()
        (tmp_path / "early").touch()
        await house.open()
        await house.watch(running, finishing)
        assert await house.value(finishing) == "seen"
        release.touch()
        assert await house.value(running) == "seen"
        assert len(pids(begun)) == 2
        assert (await house.view(running)).attempts == 1
        assert await house.value(await house.submit("add", 1, 1)) == 2

    in_house(story, tmp_path / "data")


def test_worker_waits_for_a_broker_that_is_not_there_yet(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        await house.shut()
        worker = house.worker()
        # It is up when it has a pulse, which is its child.
        await house.until(lambda: children_of(worker.pid))
        await house.open()
        assert await house.value(await house.submit("add", 1, 1)) == 2

    in_house(story, tmp_path)


def test_worker_and_its_pulse_go_to_the_member_that_is_alive(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        dying = BrokerProcess(tmp_path / "dying")
        await asyncio.to_thread(dying.start)
        house.worker(port=dying.port, others=[house.door.port], lease_s=LEASE_S)
        async with dying.app() as app:
            await house.until(app.workers)
        dying.kill()
        await house.joined()
        # Nothing in the worker's process can run meanwhile: it is the pulse that keeps the lease.
        task = await house.submit("hold_interpreter", 3 * LEASE_S)
        assert await house.value(task) == "held"
        view = await house.view(task)
        assert (view.attempts, view.crashes) == (1, 0)

    in_house(story, tmp_path / "data", heartbeat_s=HEARTBEAT_S)


def test_worker_and_its_pulse_go_where_they_are_sent(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        moved = Moved(f"127.0.0.1:{house.door.port}", 1)
        async with ScriptedBroker(lambda _: [moved]) as member:
            house.worker(port=member.port, lease_s=LEASE_S)
            await house.joined()
            task = await house.submit("hold_interpreter", 3 * LEASE_S)
            assert await house.value(task) == "held"
            assert (await house.view(task)).attempts == 1
            assert member.hellos == 1

    in_house(story, tmp_path / "data", heartbeat_s=HEARTBEAT_S)


def test_pulse_that_dies_is_started_again(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        worker = house.worker(lease_s=LEASE_S)
        await house.joined()
        first = children_of(worker.pid)
        os.kill(first[0], signal.SIGKILL)
        await house.until(lambda: children_of(worker.pid) not in ([], first))
        task = await house.submit("hold_interpreter", 2 * LEASE_S)
        assert await house.value(task) == "held"
        assert (await house.view(task)).attempts == 1

    in_house(story, tmp_path, heartbeat_s=HEARTBEAT_S)
