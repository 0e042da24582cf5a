"""Jobs that run while the broker stops, however it stops, and comes back."""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.doors.http.gridlike.harness import (
    ASKED,
    BUSY,
    DONE,
    NO_ATTEMPT,
    PENDING,
    READY,
    RUNNING,
    GridWorker,
    Place,
    Remote,
    show,
    submit,
    until,
    worker,
)
from tests.doors.http.harness import JACKALOPE


async def begun(place: Place, stack: AsyncExitStack, number: int, **options: Any) -> GridWorker:
    """Let a worker begin with a job that stays with it."""
    key = f"job {number}"
    job_type = options.get("job_type", "")
    await submit(place, key.encode(), job_type, key=key)
    one = await stack.enter_async_context(worker(place, **options))
    assert await one.take() == key.encode()
    await until(place, key, lambda job: job["status"] == RUNNING)
    return one


@asynccontextmanager
async def restarted(remote: Remote, number: int, **options: Any) -> AsyncIterator[dict[str, Any]]:
    """Begin with job 0, restart the broker under it, and return the attempt if it was told."""
    async with AsyncExitStack() as stack:
        one = await begun(remote, stack, 0, **options)
        await asyncio.to_thread(remote.restart, number)
        yield one.attempt


@asynccontextmanager
async def resumed(remote: Remote, number: int) -> AsyncIterator[GridWorker]:
    """Let a worker that keeps track of its attempts come back after a restart with job 0."""
    async with (
        restarted(remote, number, attempt=NO_ATTEMPT) as attempt,
        worker(remote, attempt=attempt) as again,
    ):
        yield again


@pytest.mark.feature("G41")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_is_still_busy_keeps_its_job(remote: Remote, number: int) -> None:
    async def check() -> None:
        async with resumed(remote, number) as again:
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
        async with resumed(remote, signal.SIGKILL) as again:
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
        async with resumed(remote, signal.SIGKILL) as again:
            assert await again.hear() == ASKED
            await again.say({"code": 4, "info": "in vain"})
            assert await again.hear() == ASKED
            job = await show(remote, "job 0")
            assert (job["status"], job["failureCount"]) == (PENDING, 1)
            assert job["failure"]["info"] == "in vain"

    remote.run(check())


def test_a_worker_that_is_ready_gives_its_job_back(remote: Remote) -> None:
    async def check() -> None:
        async with resumed(remote, signal.SIGKILL) as again:
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


def test_a_worker_that_cannot_name_its_attempt_is_given_the_job_again(remote: Remote) -> None:
    """An id is no proof: the result is discarded, and the job runs once more, without a wait."""

    async def check() -> None:
        async with restarted(remote, signal.SIGKILL), worker(remote) as again:
            await again.send(b"of which attempt?")
            assert await again.hear() == ASKED
            assert await again.hear() == ASKED
            assert (await show(remote, "job 0"))["status"] == PENDING
            await again.say(READY)
            assert await again.hear() == b"job 0"

    remote.run(check())


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_result_never_ends_the_job_of_another_with_the_same_id(
    remote: Remote, is_deleted: bool
) -> None:
    """The worker whose job is gone comes back first, and only the other's job is leased."""

    async def check() -> None:
        async with AsyncExitStack() as stack:
            one = await begun(remote, stack, 0, worker_id="same")
            await begun(remote, stack, 1, worker_id="same")
            if is_deleted:
                assert (await remote.client.delete("/api/jobs/job 0")).status_code == 202
            else:
                one.socket.transport.abort()
                await until(remote, "job 0", lambda job: job["status"] == PENDING)
            await asyncio.to_thread(remote.restart, signal.SIGKILL)
            again = await stack.enter_async_context(worker(remote, "same"))
            await again.send(b"result of job 0")
            assert await again.hear() == ASKED
            assert await again.hear() == ASKED
            assert (await show(remote, "job 1"))["status"] != DONE
            assert (await remote.client.get("/api/jobs/job 1/result")).status_code == 409

    remote.run(check())


@pytest.mark.feature("G41")
def test_workers_with_one_id_go_on_with_their_own_jobs_if_they_name_them(remote: Remote) -> None:
    async def check() -> None:
        async with AsyncExitStack() as stack:
            options = {"worker_id": "same", "attempt": NO_ATTEMPT}
            began = [await begun(remote, stack, number, **options) for number in range(2)]
            await asyncio.to_thread(remote.restart, signal.SIGKILL)
            idle = await stack.enter_async_context(worker(remote, "same", attempt=NO_ATTEMPT))
            assert await idle.hear() == ASKED
            for number in (1, 0):
                again = worker(remote, "same", attempt=began[number].attempt)
                one = await stack.enter_async_context(again)
                await one.send(b"result of job %d" % number)
                assert await one.hear() == ASKED
                assert await one.hear() == ASKED
            for number in range(2):
                result = await remote.client.get(f"/api/jobs/job {number}/result")
                assert result.content == b"result of job %d" % number

    remote.run(check())


def test_an_attempt_that_is_over_is_not_resumed(remote: Remote) -> None:
    async def check() -> None:
        async with restarted(remote, signal.SIGKILL, attempt=NO_ATTEMPT) as attempt:
            stale = attempt | {"attempt": attempt["attempt"] + 1}
            async with worker(remote, attempt=stale) as again:
                assert await again.hear() == ASKED
                await again.say(BUSY)
                await again.send(b"of an attempt that is not its own")
                assert await again.hear() == ASKED
            assert (await show(remote, "job 0"))["status"] != DONE

    remote.run(check())


@pytest.mark.feature("G10")
def test_jobs_that_ran_are_done_after_the_broker_was_killed(remote: Remote) -> None:
    """Nobody asks the API for anything: GridLike knew its jobs only after that."""

    async def check() -> None:
        async with AsyncExitStack() as stack:
            for number in range(5):
                await begun(remote, stack, number, worker_id=f"machine-{number}")
            await asyncio.to_thread(remote.restart, signal.SIGKILL)
            given = set()
            for number in range(5):
                one = await stack.enter_async_context(worker(remote, f"machine-{number}"))
                payload = await one.take()
                await one.send(payload[::-1])
                assert await one.hear() == ASKED
                given.add(payload)
            assert given == {b"job %d" % number for number in range(5)}
            for number in range(5):
                result = await remote.client.get(f"/api/jobs/job {number}/result")
                assert result.content == (b"job %d" % number)[::-1]

    remote.run(check())


@pytest.mark.feature("G11", "G26")
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


@pytest.mark.feature("G7")
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
