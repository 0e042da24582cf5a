"""Jobs that run while the broker stops, however it stops, and comes back."""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.doors.http.gridlike.house import (
    ASKED,
    BUSY,
    DONE,
    PENDING,
    READY,
    RUNNING,
    Place,
    Remote,
    show,
    submit,
    until,
    worker,
)
from tests.doors.http.house import JACKALOPE


async def begun(place: Place, stack: AsyncExitStack, number: int, **options: Any) -> None:
    """Let a worker begin with a job that stays with it."""
    key = f"job {number}"
    job_type = options.get("job_type", "")
    await submit(place, key.encode(), job_type, key=key)
    one = await stack.enter_async_context(worker(place, **options))
    assert await one.take() == key.encode()
    await until(place, key, lambda job: job["status"] == RUNNING)


@asynccontextmanager
async def restarted(remote: Remote, number: int, **options: Any) -> AsyncIterator[None]:
    """Begin with job 0, and restart the broker under it."""
    async with AsyncExitStack() as stack:
        await begun(remote, stack, 0, **options)
        await asyncio.to_thread(remote.restart, number)
        yield


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_is_still_busy_keeps_its_job(remote: Remote, number: int) -> None:
    async def check() -> None:
        async with restarted(remote, number), worker(remote) as again:
            assert await again.hear() == ASKED
            await again.say(BUSY)
            await again.say({"code": 3, "percent": 90})
            job = await until(remote, "job 0", lambda job: job["progress"])
            assert job["status"] == RUNNING
            await again.send(b"computed through the restart")
            assert await again.hear() == ASKED
            await once_only(remote, b"computed through the restart")

    remote.run(check())


def test_a_worker_that_finished_meanwhile_sends_its_result_first(remote: Remote) -> None:
    async def check() -> None:
        async with restarted(remote, signal.SIGKILL), worker(remote) as again:
            await again.send(b"computed while it was away")
            assert await again.hear() == ASKED
            assert await again.hear() == ASKED
            await once_only(remote, b"computed while it was away")
            # The job is over, so these two answers mean what they say.
            await again.say(READY)
            await submit(remote, b"next")
            assert await again.hear() == b"next"

    remote.run(check())


async def once_only(remote: Remote, result: bytes) -> None:
    job = await show(remote, "job 0")
    assert (job["status"], job["failureCount"]) == (DONE, 0)
    answer = await remote.client.get("/api/jobs/job 0/result")
    assert answer.content == result
    told = (await remote.client.get(f"/api/v1/tasks/{job['id']}/history")).json()
    assert [happened["what"] for happened in told["history"]] == [
        "submit",
        "assign",
        "start",
        "finish",
    ]


def test_a_worker_that_fails_its_job_after_the_restart_has_failed_it(remote: Remote) -> None:
    async def check() -> None:
        async with restarted(remote, signal.SIGKILL), worker(remote) as again:
            assert await again.hear() == ASKED
            await again.say({"code": 4, "info": "in vain"})
            assert await again.hear() == ASKED
            job = await show(remote, "job 0")
            assert (job["status"], job["failureCount"]) == (PENDING, 1)
            assert job["failure"]["info"] == "in vain"

    remote.run(check())


def test_a_worker_that_is_ready_gives_its_job_back(remote: Remote) -> None:
    async def check() -> None:
        async with restarted(remote, signal.SIGKILL), worker(remote) as again:
            assert await again.hear() == ASKED
            await again.say(READY)
            assert await again.hear() == b"job 0"
            await again.send(b"computed again")
            assert await again.hear() == ASKED
            answer = await remote.client.get("/api/jobs/job 0/result")
            assert answer.content == b"computed again"

    remote.run(check())


def test_a_job_whose_worker_stays_away_goes_to_another(remote: Remote) -> None:
    """Without anybody looking at it: that was enough to forget jobs in GridLike."""

    async def check() -> None:
        async with (
            restarted(remote, signal.SIGKILL, job_type="hasty"),
            worker(remote, "another", "hasty") as other,
        ):
            assert await other.take() == b"job 0"

    remote.run(check())


def test_jobs_of_workers_with_one_id_are_mixed_up_by_nobody(remote: Remote) -> None:
    """Nobody can tell whose is whose, so neither goes on; both are done again."""

    async def check() -> None:
        async with AsyncExitStack() as stack:
            for number in range(2):
                await begun(remote, stack, number, worker_id="same", job_type="hasty")
            await asyncio.to_thread(remote.restart, signal.SIGKILL)
            again = await stack.enter_async_context(worker(remote, "same", "hasty"))
            await again.send(b"whose is this?")
            assert await again.hear() == ASKED
            assert await again.hear() == ASKED
            for number in range(2):
                job = await until(remote, f"job {number}", lambda job: job["status"] == PENDING)
                assert job["failureCount"] == 0
            await again.say(READY)
            assert await again.hear() == b"job 0"

    remote.run(check())


def test_results_and_counts_outlive_the_broker(remote: Remote) -> None:
    async def check() -> None:
        for number in range(2):
            await submit(remote, key=f"{number}")
        async with worker(remote, "m") as one:
            await one.take()
            await one.send(b"kept")
            await one.take()
            await one.say({"code": 4})
            assert await one.hear() == ASKED
        await asyncio.to_thread(remote.restart, signal.SIGKILL)
        job = await show(remote, "0")
        assert job["status"] == DONE
        assert (await remote.client.get("/api/jobs/0/result")).content == b"kept"
        async with worker(remote, "m") as one:
            assert await one.hear() == ASKED
            (shown,) = (await remote.client.get("/api/workers")).json()
            assert (shown["succeeded"], shown["failed"]) == (1, 1)

    remote.run(check())


def test_a_cycle_of_types_is_refused_at_the_start(tmp_path: Path) -> None:
    config = tmp_path / "jackalope.yaml"
    config.write_text(
        "namespaces: {default: {queues: {"
        "a: {preset: gridlike, result_becomes: b}, b: {preset: gridlike, result_becomes: a}}}}"
    )
    told = subprocess.run(
        [
            JACKALOPE,
            "serve",
            *("--config", str(config), "--data", str(tmp_path / "data")),
            *("--port", "0", "--http-port", "0"),
        ],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert told.returncode == 2
    assert "b -> a -> b" in told.stderr
