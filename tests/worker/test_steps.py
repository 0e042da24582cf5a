"""Durable steps in real workers: done once, whatever becomes of worker and broker."""

import os
import signal
from pathlib import Path

import msgspec

from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import Reason, State
from jackalope.core.limits import INLINE_BYTES_MAX, STEPS_PER_TASK_MAX
from jackalope.core.task import Options
from tests.worker.executors.stage import pids
from tests.worker.harness import AT_ONCE, NO_RETRY, House, in_house


async def approve(house: House, task: TaskId, by: str) -> None:
    data = msgspec.msgpack.encode({"by": by})
    await house.manage("send_event", task=task, event="approved", data=data)


async def waits(house: House, task: TaskId) -> bool:
    return (await house.view(task)).waits_for == "approved"


def test_a_step_is_done_once_though_the_worker_dies(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        done, release = tmp_path / "done", tmp_path / "release"
        first = house.worker(name="first", lease_s=1.0, grace_s=0.1)
        task = await house.submit("order", str(done), str(release), 0.0)

        async def is_charged() -> bool:
            return [step.name for step in (await house.view(task)).steps] == ["charge"]

        await house.until(is_charged)
        first.kill()
        await house.exit_code(first)
        await house.state_is(task, State.READY)
        release.touch()
        house.worker(name="second")
        await house.until(lambda: waits(house, task))
        await approve(house, task, "Ann")
        *rest, attempt = await house.value(task)
        assert rest == ["CHARGE", "PACK", "Ann", "SHIP"]
        assert attempt == 3  # One that was lost, one until the wait, one behind it.
        assert done.read_text().split() == ["charge", "pack", "ship"]
        view = await house.view(task)
        assert [step.name for step in view.steps] == ["charge", "pack", "wait for approved", "ship"]
        assert view.failures == 0

    in_house(story, tmp_path / "data")


def test_a_broker_restarts_while_a_task_sleeps_and_waits(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        done, release = tmp_path / "done", tmp_path / "release"
        release.touch()
        house.worker(concurrency=1)
        task = await house.submit("order", str(done), str(release), 1.0)
        await house.state_is(task, State.SCHEDULED)
        # The slot is free meanwhile.
        assert await house.value(await house.submit("add", 1, 1)) == 2
        await house.shut()
        await house.open()
        await house.watch(task)
        await house.until(lambda: waits(house, task))
        assert await house.explain(task)
        await house.shut()
        await house.open()
        await house.watch(task)
        await approve(house, task, "Ben")
        assert (await house.value(task))[2] == "Ben"
        assert done.read_text().split() == ["charge", "pack", "ship"]
        view = await house.view(task)
        assert [step.name for step in view.steps][:3] == ["charge", "sleep", "pack"]

    in_house(story, tmp_path / "data")


def test_an_event_that_comes_first_is_kept(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        done, release = tmp_path / "done", tmp_path / "release"
        house.worker()
        task = await house.submit("order", str(done), str(release), 0.0)
        await house.state_is(task, State.RUNNING)
        await approve(house, task, "Cleo")
        release.touch()
        assert (await house.value(task))[2:] == ["Cleo", "SHIP", 1]

    in_house(story, tmp_path / "data")


def test_a_function_that_blocks_has_steps_too(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        done = tmp_path / "done"
        house.worker()
        task = await house.submit("blocking_order", str(done))
        late = "the event 'approved' did not come in time"
        assert await house.value(task) == ["CHARGE", late, 3]
        assert done.read_text().split() == ["charge"]

    in_house(story, tmp_path / "data")


# Tasks in processes of their own.


def test_a_process_is_killed_between_two_steps(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        done, release = tmp_path / "done", tmp_path / "release"
        house.worker(concurrency=1)
        task = await house.submit(
            "isolated_order", str(done), str(release), 0.0, options=Options(retry=AT_ONCE)
        )
        marks = tmp_path / "done.pids"
        await house.until(lambda: bool(pids(marks)))
        os.kill(pids(marks)[0], signal.SIGKILL)
        await house.until(lambda: len(pids(marks)) == 2)
        release.touch()
        await house.until(lambda: waits(house, task))
        # The slot is free meanwhile.
        assert await house.value(await house.submit("add", 1, 1)) == 2
        await approve(house, task, "Ann")
        assert await house.value(task) == ["CHARGE", "Ann", "SHIP", 3]
        assert done.read_text().split() == ["charge", "ship"]
        view = await house.view(task)
        assert [step.name for step in view.steps] == ["charge", "wait for approved", "ship"]
        assert view.crashes == 1

    in_house(story, tmp_path / "data")


def test_a_process_outlives_a_broker_that_restarts_during_a_step(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        done, release = tmp_path / "done", tmp_path / "release"
        house.worker()
        task = await house.submit("isolated_order", str(done), str(release), 0.0)
        marks = tmp_path / "done.pids"
        await house.until(lambda: bool(pids(marks)))
        await house.shut()
        release.touch()  # It comes to its wait, about which nobody can be asked.
        await house.open()
        await house.watch(task)
        await house.until(lambda: waits(house, task))
        await approve(house, task, "Ben")
        assert await house.value(task) == ["CHARGE", "Ben", "SHIP", 2]
        assert done.read_text().split() == ["charge", "ship"]
        assert len(set(pids(marks))) == 1  # The process served both attempts.

    in_house(story, tmp_path / "data")


def test_a_process_sleeps_and_awaits_its_steps(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        done, release = tmp_path / "done", tmp_path / "release"
        release.touch()
        house.worker()
        awaited = await house.submit("isolated_waits", str(tmp_path / "awaited"))
        late = "the event 'approved' did not come in time"
        assert await house.value(awaited) == ["CHARGE", late, 2]
        task = await house.submit("isolated_order", str(done), str(release), 0.2)
        await house.until(lambda: waits(house, task))
        await approve(house, task, "Cleo")
        assert await house.value(task) == ["CHARGE", "Cleo", "SHIP", 3]
        names = [step.name for step in (await house.view(task)).steps]
        assert names == ["charge", "sleep", "wait for approved", "ship"]

    in_house(story, tmp_path / "data")


def test_a_process_with_changed_code_is_refused(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.worker()
        ended = await house.end(await house.submit("isolated_names", str(tmp_path / "done")))
        assert ended.reason is Reason.REJECTED
        assert ended.error is not None
        assert "step 1 was 'charge 1' and is now 'charge 2'" in ended.error.message
        assert (tmp_path / "done").read_text().split() == ["charge"]

    in_house(story, tmp_path / "data")


def test_a_process_has_the_limits_of_steps(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.worker()
        most = STEPS_PER_TASK_MAX
        assert await house.value(await house.submit("isolated_steps", most, 0)) == 0
        many = await house.end(await house.submit("isolated_steps", most + 1, 0))
        assert many.error is not None
        assert f"at most {most} steps" in many.error.message
        fits = INLINE_BYTES_MAX - 3  # MessagePack's own bytes.
        assert await house.value(await house.submit("isolated_steps", 1, fits)) == fits
        large = await house.end(await house.submit("isolated_steps", 1, fits + 1))
        assert large.reason is Reason.REJECTED
        # The broker's own refusal reaches the process as such.
        full = await house.submit("isolated_steps", 17, fits, options=Options(retry=NO_RETRY))
        ended = await house.end(full)
        assert ended.error is not None
        assert ended.error.type == "jackalope.errors.Rejected"
        assert "store them elsewhere" in ended.error.message

    in_house(story, tmp_path / "data")
