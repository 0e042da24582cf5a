"""GridLike's workers over their socket: registration, status, progress, loss, and bad manners."""

import asyncio
import re
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Opcode

from jackalope.broker.access import hash_of, id_of, new_token
from jackalope.core.api_key import ApiKey, Permission
from jackalope.core.commands import CreateApiKey
from tests.doors.harness import run
from tests.doors.http.gridlike.harness import (
    ASKED,
    BUSY,
    DONE,
    FAILED,
    NO_ATTEMPT,
    PENDING,
    READY,
    RUNNING,
    TOKEN,
    GridWorker,
    declare,
    eventually,
    open_grid,
    show,
    stranger,
    submit,
    until,
    worker,
)
from tests.doors.http.gridlike.test_jobs import LARGE, blob_files, blobs_are_gone
from tests.doors.http.harness import PATIENCE_S, HttpHouse

POLICY_VIOLATION = 1008
NOT_A_MESSAGE = 1007
TOO_LARGE = 1009
UNREADABLE = 1011


async def listed(house: HttpHouse) -> dict[str, dict[str, Any]]:
    answer = await house.client.get("/api/workers")
    assert answer.status_code == 200
    return {shown["worker"]: shown for shown in answer.json()}


# Registration.


@pytest.mark.feature("G13")
@pytest.mark.parametrize("kick_after_ms", [100, 500])
def test_who_does_not_register_is_kicked(kick_after_ms: int) -> None:
    async def check() -> None:
        async with open_grid(kick_after_us=kick_after_ms * 1000) as house:
            begin = time.monotonic()
            async with stranger(house) as one:
                closed = await one.closed()
            assert closed.rcvd is not None
            assert closed.rcvd.code == POLICY_VIOLATION
            assert kick_after_ms / 1000 - 0.02 <= time.monotonic() - begin < 2

    run(check())


NOT_A_REGISTRATION: list[str | bytes] = [
    '{"code":1,"status":1}',
    '{"code":0,"name":"n","token":"secret"}',
    '{"code":0,"name":"n","id":"","token":"secret"}',
    '{"code":0,"name":"n","id":7,"token":"secret"}',
    '{"code":0,"name":"n","id":"' + "x" * 241 + '","token":"secret"}',
    '{"code":"0"}',
    '{"code":true}',
    "[]",
    "{",
    "",
    "\ud7ff" * 10,
    "[" * 100_000,
    b"binary",
    b"",
]


def test_who_says_something_else_first_is_kicked() -> None:
    async def check() -> None:
        async with open_grid(kick_after_us=50_000, token=TOKEN) as house:
            for first in NOT_A_REGISTRATION:
                async with stranger(house) as one:
                    await one.socket.send(first)
                    closed = await one.closed()
                    assert closed.rcvd is not None
                    assert closed.rcvd.code == POLICY_VIOLATION
            assert await listed(house) == {}

    run(check())


@pytest.mark.feature("G14")
def test_a_wrong_token_is_kicked_after_the_time_to_register() -> None:
    async def check() -> None:
        async with open_grid(token=TOKEN, kick_after_us=200_000) as house:
            for token in ("", "wrong", "secret ", "sécret"):
                begin = time.monotonic()
                async with stranger(house) as one:
                    await one.register(token=token)
                    closed = await one.closed()
                assert closed.rcvd is not None
                assert closed.rcvd.code == POLICY_VIOLATION
                assert closed.rcvd.reason == "token: invalid"
                assert time.monotonic() - begin >= 0.18
            async with worker(house, token=TOKEN) as one:
                assert await one.hear() == ASKED

    run(check())


@pytest.mark.feature("G15")
def test_without_a_token_in_the_configuration_any_will_do() -> None:
    async def check() -> None:
        async with open_grid() as house:
            for token in ("", "anything", None):
                async with stranger(house) as one:
                    await one.say({"CODE": 0, "Name": "n", "ID": "i", "Token": token})
                    assert await one.hear() == ASKED

    run(check())


@pytest.mark.feature("G32")
def test_once_there_are_keys_a_worker_needs_one_that_permits_work() -> None:
    async def make_key(house: HttpHouse, *permissions: Permission, queues: Any = ()) -> str:
        token = new_token()
        key = ApiKey(id_of(token), hash_of(token), "k", permissions, queues)
        await house.door.client_session.ask(CreateApiKey(key=key))
        return token

    async def check() -> None:
        async with open_grid(kick_after_us=50_000, ask_every_us=100_000) as house:
            await submit(house, b"job")
            async with worker(house, "early") as early:
                assert await early.hear() == ASKED
                await make_key(house, Permission.ADMIN)
                reading = await make_key(house, Permission.READ_TASKS)
                working = await make_key(house, Permission.WORK)
                elsewhere = await make_key(house, Permission.WORK, queues=("other",))
                # Who came into the open broker has to come again.
                assert "one is now required" in str(await early.closed())
            for token, reason in (
                ("", "token"),
                (reading, "lacks the permission work"),
                (elsewhere, "does not cover queue 'jobs'"),
            ):
                async with worker(house, token=token) as one:
                    assert reason in str(await one.closed())
            async with worker(house, token=working) as one:
                assert await one.take() == b"job"
            refused = await house.client.get("/api/jobs")
            assert (refused.status_code, refused.content) == (401, b"")
            listed = await house.client.get("/api/jobs", headers={"X-API-KEY": reading})
            assert listed.status_code == 200

    run(check())


def test_an_unknown_type_is_not_found() -> None:
    async def check() -> None:
        async with open_grid() as house:
            with pytest.raises(InvalidStatus) as refused:
                async with stranger(house, "nothing"):
                    pass
            assert refused.value.response.status_code == 404
            assert b"'nothing'" in (refused.value.response.body or b"")

    run(check())


@pytest.mark.feature("G12")
def test_a_plain_request_is_told_to_use_a_socket() -> None:
    async def check() -> None:
        async with open_grid() as house:
            answer = await house.client.get("/api/worker")
            assert answer.status_code == 426
            assert answer.headers["upgrade"] == "websocket"
            assert "WebSocket" in answer.json()["problem"]

    run(check())


# Status.


@pytest.mark.feature("G17")
def test_a_status_without_an_answer_is_asked_for_again() -> None:
    async def check() -> None:
        async with open_grid(ask_every_us=100_000) as house, worker(house) as one:
            for _ in range(3):
                assert await one.hear() == ASKED

    run(check())


def test_a_busy_worker_is_given_nothing_and_asked_again() -> None:
    async def check() -> None:
        async with open_grid(ask_every_us=100_000) as house, worker(house) as one:
            await submit(house, b"job", key="k")
            assert await one.hear() == ASKED
            await one.say(BUSY)
            assert await one.hear() == ASKED
            assert (await show(house, "k"))["status"] == PENDING
            await one.say(READY)
            assert await one.hear() == b"job"

    run(check())


@pytest.mark.feature("G23")
def test_ready_while_it_has_a_job_gives_the_job_back() -> None:
    async def check() -> None:
        async with open_grid() as house, worker(house) as one:
            await submit(house, b"job", key="k")
            assert await one.take() == b"job"
            await one.say(READY)
            assert await one.answer_ready() == b"job"
            await one.send(b"done")
            assert await one.hear() == ASKED
            assert (await show(house, "k"))["status"] == DONE

    run(check())


def test_an_answer_to_an_older_question_does_not_give_the_job_back() -> None:
    """Two questions, two answers, and the job was sent after the first of them."""

    async def check() -> None:
        async with open_grid(ask_every_us=100_000) as house, worker(house) as one:
            assert await one.hear() == ASKED
            assert await one.hear() == ASKED
            await one.say(READY)
            await one.say(READY)
            await submit(house, b"first", key="first")
            assert await one.hear() == b"first"
            await submit(house, b"second", key="second")
            await one.send(b"result of first")
            assert await one.take() == b"second"
            result = await house.client.get("/api/jobs/first/result")
            assert result.content == b"result of first"

    run(check())


def test_an_answer_that_crosses_the_payload_does_not_give_the_job_back() -> None:
    async def check() -> None:
        async with open_grid(ask_every_us=100_000) as house:
            await submit(house, b"first", key="first")
            async with worker(house) as one:
                assert await one.hear() == ASKED
                assert await one.hear() == ASKED
                await one.say(READY)
                assert await one.hear() == b"first"
                # Said, as far as the broker can tell, before the payload was there.
                await one.say(READY)
                await submit(house, b"second", key="second")
                await one.send(b"result of first")
                assert await one.take() == b"second"
                job = await show(house, "first")
                assert (job["status"], job["workerId"]) == (DONE, "machine-1")
                result = await house.client.get("/api/jobs/first/result")
                assert result.content == b"result of first"

    run(check())


def test_a_job_that_is_always_handed_back_ends() -> None:
    async def check() -> None:
        async with open_grid() as house, worker(house) as one:
            await submit(house, b"job", key="k")
            await one.take()
            for _ in range(19):
                await one.say(READY)
                assert await one.answer_ready() == b"job"
            await one.say(READY)
            for _ in range(20):
                assert await one.hear() == ASKED
                await one.say(READY)
            job = await until(house, "k", lambda job: job["status"] == FAILED)
            assert job["reason"] == "interrupted"

    run(check())


def test_what_is_said_before_the_payload_is_there_is_not_about_it() -> None:
    """The payload is on its way, and the worker reads it only after it has said all this."""

    async def check() -> None:
        body = LARGE * 128
        async with open_grid() as house, worker(house) as one:
            await submit(house, body, key="large")
            assert await one.hear() == ASKED
            await one.say(READY)
            await until(house, "large", lambda job: job["status"] == RUNNING)
            await one.send(b"a result of nothing")
            await one.say({"code": 4, "info": "a failure of nothing"})
            await one.say(READY)
            await one.say({"code": 3, "info": "all of it was said"})
            await until(house, "large", lambda job: job["progress"])
            assert await one.hear() == body
            await one.send(b"its own result")
            assert await one.hear() == ASKED
            job = await show(house, "large")
            assert (job["status"], job["failureCount"]) == (DONE, 0)
            result = await house.client.get("/api/jobs/large/result")
            assert result.content == b"its own result"

    run(check())


# Progress.


@pytest.mark.feature("G18")
def test_progress_is_shown() -> None:
    async def check() -> None:
        async with open_grid() as house, worker(house) as one:
            await submit(house, key="k")
            await one.take()
            await one.say({"code": 3, "percent": 42.5, "info": "reticulating splines"})
            job = await until(house, "k", lambda job: job["progress"])
            assert job["progress"]["percent"] == 42.5
            assert job["progress"]["info"] == "reticulating splines"
            await one.say({"code": 3, "percent": 50, "info": None})
            job = await until(house, "k", lambda job: job["progress"]["percent"] == 50)
            assert job["progress"]["info"] == "reticulating splines"

    run(check())


MEANINGLESS: list[dict[str, Any]] = [
    {"code": 3, "percent": None, "info": None},
    {"code": 3},
    {"code": 3, "percent": 101},
    {"code": 3, "percent": -1},
    {"code": 3, "percent": "half"},
    {"code": 3, "percent": True},
    {"code": 3, "info": 7},
    {"code": 99},
    {"code": -1},
    {"code": 2},
    {"code": 0, "name": "n", "id": "another", "token": ""},
]


@pytest.mark.feature("G18")
def test_what_means_nothing_is_ignored() -> None:
    async def check() -> None:
        async with open_grid() as house, worker(house) as one:
            for number, message in enumerate(MEANINGLESS):
                key = f"{number}"
                await submit(house, key=key)
                await one.take()
                await one.say(message)
                await one.say({"code": 3, "info": "still here"})
                job = await until(house, key, lambda job: job["progress"])
                assert job["progress"]["percent"] is None
                await one.send(b"")
                await until(house, key, lambda job: job["status"] == DONE)

    run(check())


# Loss.


@pytest.mark.feature("G22")
def test_a_job_whose_worker_disconnects_is_pending_at_once() -> None:
    async def check() -> None:
        async with open_grid() as house:
            await submit(house, LARGE, key="k")
            async with worker(house, "one") as one:
                assert await one.take() == LARGE
                await until(house, "k", lambda job: job["status"] == RUNNING)
                one.socket.transport.abort()
                await until(house, "k", lambda job: job["status"] == PENDING)
            async with worker(house, "two") as two:
                assert await two.take() == LARGE

    run(check())


def test_a_half_sent_result_counts_for_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    async def check() -> None:
        async with open_grid(tmp_path) as house:
            await submit(house, key="k")
            async with worker(house, "one") as one:
                await one.take()
                sending = asyncio.create_task(one.socket.send(halves()))
                await eventually(is_being_written)
                one.socket.transport.abort()
                await until(house, "k", lambda job: job["status"] == PENDING)
                sending.cancel()
            await blobs_are_gone(tmp_path)

    async def is_being_written() -> bool:
        return any((tmp_path / "blobs").rglob("unfinished/*"))

    async def halves() -> Any:
        yield LARGE * 4
        await asyncio.sleep(PATIENCE_S)

    run(check())


def test_with_a_grace_a_worker_takes_up_its_job_again() -> None:
    async def check() -> None:
        async with open_grid(reconnect_grace_us=5_000_000) as house:
            await submit(house, b"job", key="k")
            async with worker(house, attempt=NO_ATTEMPT) as one:
                assert await one.take() == b"job"
                one.socket.transport.abort()
            async with worker(house, attempt=one.attempt) as again:
                assert await again.hear() == ASKED
                await again.say(BUSY)
                assert (await show(house, "k"))["status"] == RUNNING
                await again.send(b"from before")
                assert await again.hear() == ASKED
            result = await house.client.get("/api/jobs/k/result")
            assert result.content == b"from before"

    run(check())


def test_who_names_its_attempt_replaces_the_connection_that_it_had() -> None:
    async def check() -> None:
        async with open_grid() as house:
            await submit(house, b"job", key="k")
            async with worker(house, attempt=NO_ATTEMPT) as one:
                assert await one.take() == b"job"
                async with worker(house, attempt=one.attempt) as again:
                    closed = (await one.closed()).rcvd
                    assert closed is not None
                    assert closed.code == POLICY_VIOLATION
                    assert await again.hear() == ASKED
                    assert set(await listed(house)) == {"machine-1"}
                    await again.send(b"over the new one")
                    assert await again.hear() == ASKED
            result = await house.client.get("/api/jobs/k/result")
            assert result.content == b"over the new one"

    run(check())


@pytest.mark.parametrize(
    "attempt",
    [{"job": "k", "attempt": 1}, {"job": 1, "attempt": 1}, {"job": "0" * 32, "attempt": "1"}],
)
def test_an_attempt_that_is_none_is_refused(attempt: dict[str, Any]) -> None:
    async def check() -> None:
        async with open_grid(kick_after_us=100_000) as house, stranger(house) as one:
            await one.register(attempt=attempt)
            closed = (await one.closed()).rcvd
            assert closed is not None
            assert (closed.code, closed.reason.split(":")[0]) == (POLICY_VIOLATION, "job")

    run(check())


# Who is whom.


@pytest.mark.feature("G25", "G26")
def test_workers_are_listed_with_what_they_have_done() -> None:
    async def check() -> None:
        async with open_grid(linger_us=300_000) as house:
            for number in range(3):
                await submit(house, b"%d" % number)
            async with worker(house, "m") as one:
                await one.take()
                await one.send(b"")
                await one.take()
                (busy,) = (await listed(house)).values()
                assert (busy["id"], busy["name"], busy["type"]) == ("m", "a machine", "jobs")
                assert busy["state"] == "Busy"
                assert busy["jobId"] is not None
                await one.say({"code": 4})
                assert await one.hear() == ASKED
                (shown,) = (await listed(house)).values()
                assert (shown["succeeded"], shown["failed"], shown["jobId"]) == (1, 1, None)
                assert shown["state"] == "Registered"

            async def states() -> list[str]:
                return [shown["state"] for shown in (await listed(house)).values()]

            async def is_gone() -> bool:
                return await states() == ["Disconnected"]

            async def is_forgotten() -> bool:
                return await states() == []

            await eventually(is_gone)
            await eventually(is_forgotten)
            async with worker(house, "m") as one:
                assert await one.hear() == ASKED
                shown = (await listed(house))["m"]
                assert (shown["succeeded"], shown["failed"]) == (1, 1)

    run(check())


def test_two_workers_with_one_id_are_two_and_are_counted_as_one() -> None:
    async def check() -> None:
        async with open_grid() as house, AsyncExitStack() as stack:
            workers = [await stack.enter_async_context(worker(house, "same")) for _ in range(3)]
            for number, one in enumerate(workers):
                await submit(house, b"%d" % number, key=f"{number}")
                assert await one.take() == b"%d" % number
            assert set(await listed(house)) == {"same", "same#2", "same#3"}
            for number in (2, 0, 1):
                await workers[number].send(b"result %d" % number)
                assert await workers[number].hear() == ASKED
            for number in range(3):
                result = await house.client.get(f"/api/jobs/{number}/result")
                assert result.content == b"result %d" % number
            assert {shown["succeeded"] for shown in (await listed(house)).values()} == {3}

    run(check())


@pytest.mark.feature("G26")
def test_without_tracking_each_connection_is_a_worker_of_its_own() -> None:
    async def check() -> None:
        async with open_grid(worker_tracking=False) as house:
            names = set()
            for _ in range(2):
                async with worker(house, "same") as one:
                    assert await one.hear() == ASKED
                    names |= set(await listed(house))
            assert len(names) == 2
            assert "same" not in names

    run(check())


# The wire.


def test_payloads_and_results_of_any_size_come_whole() -> None:
    async def check() -> None:
        async with open_grid() as house, worker(house) as one:
            for size in (0, 1, 65_536, 65_537, 3_000_001):
                body = (LARGE * (size // len(LARGE) + 1))[:size]
                await submit(house, body, key=f"{size}")
                assert await one.take() == body
                await one.send(body[::-1])
                await until(house, f"{size}", lambda job: job["status"] == DONE)
                result = await house.client.get(f"/api/jobs/{size}/result")
                assert result.content == body[::-1]

    run(check())


def test_a_result_may_come_in_fragments() -> None:
    async def check() -> None:
        async with open_grid() as house, worker(house) as one:
            await submit(house, key="k")
            await one.take()
            await one.socket.send([b"a" * 100_000, b"", b"b" * 100_000, b"c"])
            assert await one.hear() == ASKED
            result = await house.client.get("/api/jobs/k/result")
            assert result.content == b"a" * 100_000 + b"b" * 100_000 + b"c"

    run(check())


def test_a_result_that_is_too_large_ends_the_job(tmp_path: Path) -> None:
    async def check() -> None:
        async with open_grid(tmp_path, {"upload_bytes_max": 100_000}) as house:
            await submit(house, key="k")
            async with worker(house) as one:
                await one.take()
                with_it = asyncio.create_task(one.socket.send(LARGE))
                closed = await one.closed()
                assert closed.rcvd is not None
                assert closed.rcvd.code == TOO_LARGE
                with_it.cancel()
            job = await show(house, "k")
            assert job["status"] == FAILED
            assert "100000" in job["failure"]["info"]
            await blobs_are_gone(tmp_path)

    run(check())


def test_a_damaged_payload_is_never_given_out_as_whole(tmp_path: Path) -> None:
    async def check() -> None:
        async with open_grid(tmp_path) as house:
            await declare(house, "jobs", retries=0)
            await submit(house, LARGE * 4, key="damaged")
            (blob,) = blob_files(tmp_path)
            blob.write_bytes(LARGE * 3 + LARGE[::-1])
            async with worker(house) as one:
                assert await one.hear() == ASKED
                await one.say(READY)
                closed = await one.closed()
                assert closed.rcvd is not None
                assert closed.rcvd.code == UNREADABLE
            job = await show(house, "damaged")
            assert job["status"] == FAILED
            assert "checksum" in job["failure"]["info"]

            blob.unlink()
            await submit(house, LARGE, key="missing")
            (blob,) = blob_files(tmp_path)
            blob.unlink()
            async with worker(house) as one:
                assert await one.hear() == ASKED
                await one.say(READY)
                assert await one.hear() == ASKED
                job = await show(house, "missing")
                assert job["status"] == FAILED
                assert "missing" in job["failure"]["info"]

    run(check())


def test_a_text_that_is_no_message_ends_the_connection() -> None:
    async def check() -> None:
        async with open_grid() as house:
            await submit(house, b"job", key="k")
            for garbage in ("no json", "[1]", '"text"', "null", '{"status":1}'):
                async with worker(house, "rude") as one:
                    assert await one.take() == b"job"
                    await one.socket.send(garbage)
                    closed = await one.closed()
                    assert closed.rcvd is not None
                    assert closed.rcvd.code == NOT_A_MESSAGE
            async with worker(house, "polite") as other:
                assert await other.take() == b"job"

    run(check())


def test_bytes_that_are_no_frames_harm_nobody() -> None:
    async def check() -> None:
        async with open_grid() as house:
            await submit(house, b"job", key="k")
            async with worker(house, "broken") as one, worker(house, "whole") as other:
                assert await one.take() == b"job"
                assert await other.hear() == ASKED
                one.socket.transport.write(b"\xff" * 1000)
                await one.closed()
                await other.say(READY)
                assert await other.hear() == b"job"

    run(check())


@pytest.mark.feature("G36")
def test_a_silent_worker_hears_pings_and_need_not_answer() -> None:
    async def check() -> None:
        async with open_grid(keepalive_us=1_000_000, ask_every_us=3_600_000_000) as house:
            await submit(house, b"job", key="k")
            url = f"{house.socket_url}/api/worker"
            async with connect(url, create_connection=Deaf, ping_interval=None) as link:
                assert isinstance(link, Deaf)
                one = GridWorker(link)
                await one.register()
                assert await one.take() == b"job"
                async with asyncio.timeout(PATIENCE_S):
                    await link.pinged.acquire()
                    await link.pinged.acquire()
                await one.send(b"done")
                assert await one.hear() == ASKED
                assert (await show(house, "k"))["status"] == DONE

    run(check())


class Deaf(ClientConnection):
    """A connection that counts pings and answers none."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.pinged = asyncio.Semaphore(0)

    def data_received(self, data: bytes) -> None:
        """Take out pings, which the library would answer by itself."""
        while len(data) >= 2 and data[0] & 0x0F == Opcode.PING:
            self.pinged.release()
            data = data[2 + (data[1] & 0x7F) :]
        super().data_received(data)


@pytest.mark.feature("G12", "G16")
def test_the_worker_of_the_documentation_works() -> None:
    page = (Path(__file__).parents[4] / "docs" / "how-to" / "gridlike.md").read_text()
    code, *_ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    written: dict[str, Any] = {}
    exec(code, written)  # noqa: S102  it is our own

    def work(url: str) -> None:
        with suppress(ConnectionClosed):
            written["work"](url, "documented")

    async def check() -> None:
        async with open_grid() as house:
            working = asyncio.create_task(asyncio.to_thread(work, house.socket_url + "/api/worker"))
            for number in range(3):
                await submit(house, b"abc%d" % number, key=f"{number}")
                await until(house, f"{number}", lambda job: job["status"] == DONE)
                result = await house.client.get(f"/api/jobs/{number}/result")
                assert result.content == b"%dcba" % number
        await working

    run(check())
