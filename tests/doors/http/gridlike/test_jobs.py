"""GridLike's jobs over HTTP: submitted, listed, shown, deleted; with its fields and its errors."""

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from structlog.testing import capture_logs

from jackalope.core.commands import Action, ActOnTasks, SubmitTasks
from jackalope.core.ids import TaskId
from jackalope.core.task import TaskSpec
from tests.doors.harness import run
from tests.doors.http.gridlike.harness import (
    ASKED,
    BUSY,
    DONE,
    FAILED,
    PENDING,
    READY,
    RUNNING,
    declare,
    eventually,
    open_grid,
    show,
    submit,
    try_submit,
    until,
    worker,
)

NEVER = "0001-01-01T00:00:00"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")

LARGE = bytes(range(256)) * 1024


@pytest.mark.feature("G1", "G16", "G27")
def test_a_job_from_submit_to_result() -> None:
    async def check() -> None:
        async with open_grid() as house:
            created = await submit(house, b"some work", key="first", description="the first one")
            assert set(created) == {"created", "id"}
            assert created["created"] == "first"
            assert str(UUID(created["id"])) == created["id"]
            (listed,) = (await house.client.get("/api/jobs")).json()
            assert TIME.fullmatch(listed.pop("submitted"))
            assert listed == {
                "id": created["id"],
                "status": PENDING,
                "key": "first",
                "display": "the first one",
                "priority": 1,
                "started": NEVER,
                "ended": NEVER,
                "workerId": None,
                "type": "jobs",
                "batch": 1,
                "fromId": None,
                "failureCount": 0,
                "stuck": False,
                "reason": None,
                "progress": None,
                "failure": None,
            }
            async with worker(house) as one:
                assert await one.take() == b"some work"
                running = await until(house, "first", lambda job: job["status"] == RUNNING)
                assert running["workerId"] == "machine-1"
                await one.send(b"the result")
                assert await one.hear() == ASKED
                job = await show(house, "first")
                assert job["status"] == DONE
                assert TIME.fullmatch(job["started"])
                assert TIME.fullmatch(job["ended"])
            result = await house.client.get("/api/jobs/first/result")
            assert (result.status_code, result.content) == (200, b"the result")
            payload = await house.client.get(f"/api/jobs/{created['id']}/payload")
            assert (payload.status_code, payload.content) == (200, b"some work")

    run(check())


@pytest.mark.feature("G2")
def test_without_a_key_the_id_is_the_key() -> None:
    async def check() -> None:
        async with open_grid() as house:
            created = await submit(house)
            assert created["created"] == created["id"]
            assert (await show(house, created["id"]))["key"] == created["id"]
            again = await try_submit(house, key=created["id"])
            assert again.status_code == 400

    run(check())


def test_names_of_fields_are_taken_in_any_case() -> None:
    async def check() -> None:
        async with open_grid() as house:
            answer = await house.client.post(
                "/api/jobs/submit",
                data={"Priority": "Batch", "KEY": "k"},
                files={"PayLoad": ("x", b"work")},
            )
            assert answer.status_code == 202
            job = await show(house, "k")
            assert job["priority"] == 0
            assert (await house.client.get("/api/jobs/k/payload")).content == b"work"

    run(check())


@pytest.mark.feature("G3")
@pytest.mark.parametrize("payload", [b"small", LARGE], ids=["inline", "blob"])
def test_a_duplicate_key_is_refused_and_leaves_nothing_behind(
    tmp_path: Path, payload: bytes
) -> None:
    async def check() -> None:
        async with open_grid(tmp_path) as house:
            await submit(house, b"first", key="k")
            again = await try_submit(house, payload, key="k")
            assert again.status_code == 400
            assert again.json() == {"problem": "A job with the key k already exists"}
            await house.broker.flush()
            await blobs_are_gone(tmp_path)
            assert (await house.client.get("/api/jobs/k/payload")).content == b"first"

    run(check())


async def blobs_are_gone(folder: Path) -> None:
    """Wait until the store has deleted what it was told to."""

    async def look() -> bool:
        return not blob_files(folder)

    await eventually(look)


def blob_files(folder: Path) -> list[Path]:
    return [path for path in (folder / "blobs").rglob("*") if path.is_file()]


@pytest.mark.feature("G9")
def test_one_of_fifty_submits_of_a_key_is_accepted() -> None:
    async def check() -> None:
        async with open_grid() as house:
            answers = await asyncio.gather(
                *(try_submit(house, b"%d" % number, key="same") for number in range(50))
            )
            codes = Counter(answer.status_code for answer in answers)
            assert codes == {202: 1, 400: 49}
            assert len((await house.client.get("/api/jobs")).json()) == 1

    run(check())


UNFIT: list[tuple[dict[str, str], str]] = [
    ({"priority": "urgent"}, "Unrecognized priority 'urgent', use either 'immediate' or 'batch'"),
    ({"description": "d" * 129}, "129 characters"),
    ({"key": "k" * 257}, "alias"),
]


@pytest.mark.feature("G4")
def test_a_form_with_a_fault_is_refused() -> None:
    async def check() -> None:
        async with open_grid() as house:
            for fields, problem in UNFIT:
                answer = await try_submit(house, b"payload", "", **fields)
                assert answer.status_code == 400
                assert problem in answer.json()["problem"]
            assert (await house.client.get("/api/jobs")).json() == []

    run(check())


def test_a_form_without_its_fields_gets_the_list_of_them() -> None:
    async def check() -> None:
        async with open_grid() as house:
            answer = await house.client.post("/api/jobs/submit", files={"other": ("x", b"y")})
            assert answer.status_code == 400
            assert answer.headers["content-type"].startswith("application/problem+json")
            assert answer.json() == {
                "title": "One or more validation errors occurred.",
                "status": 400,
                "errors": {
                    "Payload": ["The Payload field is required."],
                    "Priority": ["The Priority field is required."],
                },
            }
            raw = await house.client.post("/api/jobs/submit", content=b"no form")
            assert raw.status_code == 415
            assert "form" in raw.json()["problem"]

    run(check())


def test_a_payload_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async def check() -> None:
        async with open_grid(tmp_path, {"upload_bytes_max": 100_000}) as house:
            answer = await try_submit(house, LARGE)
            assert answer.status_code == 413
            assert "100000" in answer.json()["problem"]
            await blobs_are_gone(tmp_path)

    run(check())


def test_an_unknown_job_is_not_found() -> None:
    async def check() -> None:
        async with open_grid() as house:
            for path in ("", "/payload", "/result"):
                answer = await house.client.get(f"/api/jobs/nobody{path}")
                assert answer.status_code == 404
                assert answer.json() == {"problem": "There is no job with the key nobody"}

    run(check())


@pytest.mark.feature("G29")
def test_a_result_is_there_when_the_job_is_done() -> None:
    async def check() -> None:
        async with open_grid() as house:
            await submit(house, key="k")
            early = await house.client.get("/api/jobs/k/result")
            assert early.status_code == 409
            assert "pending" in early.json()["problem"]
            async with worker(house) as one:
                await one.take()
                await one.send(b"0123456789")
                assert await one.hear() == ASKED
            part = await house.client.get("/api/jobs/k/result", headers={"Range": "bytes=2-4"})
            assert (part.status_code, part.content) == (206, b"234")
            size = await house.client.head("/api/jobs/k/result")
            assert size.headers["content-length"] == "10"

    run(check())


# Deleting.


@pytest.mark.feature("G28")
@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_a_deleted_job_is_gone_with_its_blobs(tmp_path: Path, method: str) -> None:
    async def check() -> None:
        async with open_grid(tmp_path) as house:
            await submit(house, LARGE, key="k")
            async with worker(house) as one:
                await one.take()
                await one.send(LARGE[::-1])
                assert await one.hear() == ASKED
            assert len(blob_files(tmp_path)) == 2
            path = "/api/jobs/k/delete" if method == "POST" else "/api/jobs/k"
            answer = await house.client.request(method, path)
            assert answer.status_code == 202
            assert answer.json() == {"deleted": "k"}
            await house.broker.flush()
            await blobs_are_gone(tmp_path)
            assert (await house.client.get("/api/jobs/k")).status_code == 404
            assert (await house.client.request(method, path)).status_code == 404
            await submit(house, key="k")

    run(check())


def test_a_pending_job_can_be_deleted() -> None:
    async def check() -> None:
        async with open_grid() as house:
            created = await submit(house)
            answer = await house.client.post(f"/api/jobs/{created['id']}/delete")
            assert answer.json() == {"deleted": created["id"]}
            assert (await house.client.get("/api/jobs")).json() == []

    run(check())


def test_a_running_job_can_be_deleted_and_its_late_result_harms_nobody() -> None:
    async def check() -> None:
        async with open_grid() as house:
            await submit(house, b"one", key="one")
            async with worker(house) as machine:
                assert await machine.take() == b"one"
                await submit(house, b"two", key="two")
                answer = await house.client.delete("/api/jobs/one")
                assert answer.status_code == 202
                # It still works on the first job, so it is not given the second.
                await machine.send(b"result of one")
                assert await machine.hear() == ASKED
                assert (await show(house, "two"))["status"] == PENDING
                await machine.say(READY)
                assert await machine.hear() == b"two"
                await machine.send(b"result of two")
                assert await machine.hear() == ASKED
                result = await house.client.get("/api/jobs/two/result")
                assert result.content == b"result of two"

    run(check())


def test_a_worker_without_its_job_is_asked_again() -> None:
    """Busy with what was taken from it, it says nothing by itself when it has stopped."""

    async def check() -> None:
        async with open_grid(ask_every_us=100_000) as house:
            await submit(house, b"one", key="one")
            async with worker(house) as machine:
                assert await machine.take() == b"one"
                assert (await house.client.delete("/api/jobs/one")).status_code == 202
                assert await machine.hear() == ASKED
                await machine.say(BUSY)
                assert await machine.hear() == ASKED
                await submit(house, b"two", key="two")
                await machine.say(READY)
                assert await machine.hear() == b"two"

    run(check())


def test_a_job_cannot_be_paused_while_its_worker_has_it() -> None:
    async def check() -> None:
        async with open_grid() as house:
            created = await submit(house, key="k")
            async with worker(house) as machine:
                await machine.take()
                await until(house, "k", lambda job: job["status"] == RUNNING)
                task = TaskId(UUID(created["id"]).bytes)
                await house.door.client_session.ask(
                    ActOnTasks(ref=0, action=Action.PAUSE, tasks=(task,))
                )
                await machine.send(b"done all the same")
                assert await machine.hear() == ASKED
                assert (await show(house, "k"))["status"] == DONE

    run(check())


# Lists.


def test_a_list_can_be_narrowed() -> None:
    async def check() -> None:
        async with open_grid() as house:
            await declare(house, "render")
            for number in range(3):
                await submit(house, key=f"plain {number}")
            await submit(house, key="drawn", job_type="render")
            async with worker(house) as machine:
                await machine.take()
                await machine.send(b"")
                assert await machine.hear() == ASKED

            async def keys(**query: Any) -> list[str]:
                answer = await house.client.get("/api/jobs", params=query)
                assert answer.status_code == 200, answer.text
                return [job["key"] for job in answer.json()]

            assert await keys() == ["plain 0", "plain 1", "plain 2", "drawn"]
            assert await keys(type="render") == ["drawn"]
            assert await keys(status=DONE) == await keys(status="complete") == ["plain 0"]
            assert await keys(status="pending", type="jobs") == ["plain 1", "plain 2"]
            assert await keys(batch=2) == []
            for query in ({"status": "odd"}, {"batch": "x"}, {"batch": 0}):
                answer = await house.client.get("/api/jobs", params=query)
                assert answer.status_code == 400
            assert (await house.client.get("/api/jobs?type=none")).status_code == 404

    run(check())


@pytest.mark.feature("G27")
def test_a_long_list_is_whole() -> None:
    async def check() -> None:
        async with open_grid() as house:
            ids = [TaskId(uuid4().bytes) for _ in range(1_100)]
            tasks = [TaskSpec(task_id, "jobs") for task_id in ids]
            await house.door.client_session.ask(SubmitTasks(ref=0, tasks=tasks))
            jobs = (await house.client.get("/api/jobs")).json()
            assert {job["id"] for job in jobs} == {str(UUID(bytes=task_id)) for task_id in ids}
            assert len(jobs) == len(ids)

    run(check())


@pytest.mark.feature("G8")
def test_batches_are_numbered_and_stable_once_full() -> None:
    async def check() -> None:
        async with open_grid() as house:
            await declare(house, "render", batch_size=10)
            for number in range(25):
                await submit(house, key=f"{number:02}", job_type="render")
            batches = (await house.client.get("/api/batches?type=render")).json()
            assert [(b["id"], b["size"], b["stable"], b["pending"]) for b in batches] == [
                (1, 10, True, 10),
                (2, 10, True, 10),
                (3, 5, False, 5),
            ]
            before = (await house.client.get("/api/batches/1?type=render")).json()
            assert [job["key"] for job in before["jobs"]] == [f"{n:02}" for n in range(10)]
            for number in range(25, 40):
                await submit(house, key=f"{number:02}", job_type="render")
            assert (await house.client.get("/api/batches/1?type=render")).json() == before
            assert len((await house.client.get("/api/batches")).json()) == 4
            for path in ("/api/batches/9?type=render", "/api/batches/1", "/api/batches?type=no"):
                assert (await house.client.get(path)).status_code == 404
            assert (await house.client.get("/api/batches/x")).status_code == 400

    run(check())


# Order, failures, types.


@pytest.mark.feature("G35")
def test_immediate_jobs_come_first_and_then_the_oldest() -> None:
    async def check() -> None:
        async with open_grid() as house:
            for number in range(3):
                await submit(house, b"b%d" % number, priority="batch")
                await submit(house, b"i%d" % number, priority="immediate")
            taken = []
            async with worker(house) as machine:
                for _ in range(6):
                    taken.append(await machine.take())
                    await machine.send(b"")
            assert taken == [b"i0", b"i1", b"i2", b"b0", b"b1", b"b2"]

    run(check())


@pytest.mark.feature("G6")
def test_a_result_becomes_a_job_of_the_next_type(tmp_path: Path) -> None:
    async def check() -> None:
        async with open_grid(tmp_path) as house:
            await declare(house, "first", result_becomes="second")
            await declare(house, "second")
            created = await submit(house, b"seed", key="a", job_type="first", description="chain")
            async with worker(house, job_type="first") as one:
                assert await one.take() == b"seed"
                await one.send(LARGE)
                assert await one.hear() == ASKED
            (child,) = (await house.client.get("/api/jobs?type=second")).json()
            assert child["fromId"] == created["id"]
            assert child["key"] == child["id"]
            assert child["display"] == "chain"
            # What both have is one blob, and it stays for as long as one of them needs it.
            assert len(blob_files(tmp_path)) == 1
            assert (await house.client.delete("/api/jobs/a")).status_code == 202
            await house.broker.flush()
            async with worker(house, job_type="second") as two:
                assert await two.take() == LARGE
                await two.send(b"the end")
                assert await two.hear() == ASKED
            result = await house.client.get(f"/api/jobs/{child['id']}/result")
            assert result.content == b"the end"
            assert (await house.client.delete(f"/api/jobs/{child['id']}")).status_code == 202
            await house.broker.flush()
            await blobs_are_gone(tmp_path)

    run(check())


@pytest.mark.feature("G19", "G20")
def test_a_failure_is_told_and_another_worker_tries() -> None:
    async def check() -> None:
        async with open_grid() as house:
            await submit(house, b"hard", key="k")
            async with worker(house, "one") as one, worker(house, "two") as two:
                assert await one.take() == b"hard"
                assert await two.hear() == ASKED
                await one.say({"code": 4, "info": "no licence", "logs": "line 1\nline 2"})
                assert await one.hear() == ASKED
                job = await show(house, "k")
                assert (job["status"], job["failureCount"]) == (PENDING, 1)
                assert job["failure"] == {"info": "no licence", "logs": "line 1\nline 2"}
                # The first worker is ready sooner, and the job still waits for the other one.
                await one.say(READY)
                await submit(house, b"easy", key="e")
                assert await one.hear() == b"easy"
                await two.say(READY)
                assert await two.hear() == b"hard"

    run(check())


@pytest.mark.feature("G21")
def test_a_failed_job_goes_behind_others_of_its_priority() -> None:
    async def check() -> None:
        async with open_grid() as house:
            for name in ("failing", "other"):
                await submit(house, name.encode(), key=name)
            await submit(house, b"batch", key="batch", priority="batch")
            async with worker(house) as machine:
                assert await machine.take() == b"failing"
                await machine.say({"code": 4, "info": None, "logs": None})
                order = []
                for _ in range(3):
                    order.append(await machine.take())
                    await machine.send(b"")
                # With nobody else to try, it comes back to the same worker.
                assert order == [b"other", b"failing", b"batch"]

    run(check())


def test_a_job_that_fails_on_and_on_has_failed() -> None:
    async def check() -> None:
        async with open_grid() as house:
            await submit(house, key="k")
            async with worker(house) as machine:
                for _ in range(5):
                    await machine.take()
                    await machine.say({"code": 4, "info": "broken"})
                assert await machine.hear() == ASKED
                job = await show(house, "k")
                assert (job["status"], job["failureCount"], job["reason"]) == (FAILED, 5, "failed")
                assert job["failure"] == {"info": "broken", "logs": ""}

    run(check())


def test_a_type_without_the_preset_is_warned_of_once() -> None:
    async def check() -> None:
        async with open_grid() as house:
            await declare(house, "plain", preset="")
            await declare(house, "own")
            with capture_logs() as lines:
                for job_type in ("plain", "plain", "own", ""):
                    await submit(house, b"", job_type)
            warned = [line for line in lines if line["log_level"] == "warning"]
            assert [line["queue"] for line in warned] == ["plain"]
            assert "retention_us" in warned[0]["differs"]

    run(check())


@pytest.mark.feature("G5")
def test_types_are_kept_apart() -> None:
    async def check() -> None:
        async with open_grid() as house:
            await declare(house, "a")
            await declare(house, "b")
            async with worker(house, "w", job_type="a") as machine:
                assert await machine.hear() == ASKED
                await machine.say(READY)
                await submit(house, b"for b", job_type="b")
                await submit(house, b"for nobody")
                await submit(house, b"for a", job_type="a")
                assert await machine.hear() == b"for a"
            unknown = await try_submit(house, job_type="c")
            assert unknown.status_code == 404
            assert "'c'" in unknown.json()["problem"]

    run(check())


@pytest.mark.feature("G24")
def test_a_job_that_runs_for_long_is_shown_as_stuck() -> None:
    async def check() -> None:
        async with open_grid() as house:
            await declare(house, "jobs", stuck_after_us=50_000)
            await submit(house, key="k")
            async with worker(house) as machine:
                await machine.take()
                assert not (await show(house, "k"))["stuck"]
                await until(house, "k", lambda job: job["stuck"])
                (listed,) = (await house.client.get("/api/jobs")).json()
                assert listed["stuck"]
                await machine.send(b"")
                assert await machine.hear() == ASKED
                assert not (await show(house, "k"))["stuck"]

    run(check())


@pytest.mark.feature("G24")
def test_a_job_beyond_its_time_limit_goes_to_another_worker() -> None:
    async def check() -> None:
        async with open_grid() as house:
            await declare(house, "jobs", timeout_us=50_000)
            await submit(house, b"job", key="k")
            async with worker(house, "slow") as slow, worker(house, "quick") as quick:
                assert await slow.take() == b"job"
                assert await quick.take() == b"job"
                await quick.send(b"in time")
                assert await quick.hear() == ASKED
                await slow.send(b"too late")
                assert await slow.hear() == ASKED
            result = await house.client.get("/api/jobs/k/result")
            assert result.content == b"in time"

    run(check())


@pytest.mark.feature("G40")
def test_a_worker_without_a_socket_takes_a_job_and_returns_it() -> None:
    async def check() -> None:
        async with open_grid() as house:
            created = await submit(house, LARGE, key="k")
            claimed = await house.client.post(
                "/api/v1/workers/plain/claim", json={"queues": ["jobs"], "wait": 5}
            )
            (task,) = claimed.json()["tasks"]
            assert task["task"] == created["id"]
            proof = {"worker": "plain", "fence": task["fence"]}
            attempt = f"/api/v1/attempts/{task['task']}"
            payload = await house.client.get(f"{attempt}/payload", params=proof)
            assert payload.content == LARGE
            finished = await house.client.post(
                f"{attempt}/finish", params=proof, content=LARGE[::-1]
            )
            assert finished.status_code == 200, finished.text
            result = await house.client.get("/api/jobs/k/result")
            assert result.content == LARGE[::-1]
            assert (await show(house, "k"))["workerId"] == "plain"

    run(check())
