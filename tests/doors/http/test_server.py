import asyncio
import sys

import httpx
import pytest

from jackalope.cli.app import run as run_command
from tests.doors.house import run
from tests.doors.http.house import Serving, open_http


def test_door_answers_and_closes() -> None:
    async def check() -> None:
        async with open_http() as house:
            answer = await house.client.get("/api/v1/stats")
            assert answer.status_code == 200
            assert answer.headers["content-type"] == "application/json"

    run(check())


def test_unknown_paths_and_methods_have_the_one_error_body() -> None:
    async def check() -> None:
        async with open_http() as house:
            unknown = await house.client.get("/nowhere")
            assert unknown.status_code == 404
            assert unknown.json() == {
                "error": "nothing is at /nowhere; see /api/docs",
                "code": 404,
                "reason": "unknown_path",
            }
            wrong = await house.client.delete("/api/v1/stats")
            assert wrong.status_code == 405
            assert wrong.json()["reason"] == "wrong_method"
            assert "GET" in wrong.headers["allow"]

    run(check())


def test_serve_opens_both_doors(serving: Serving) -> None:
    assert httpx.get(f"{serving.url}/api/v1/stats").status_code == 200
    code, log = serving.stop()
    assert code == 0, log


def test_whoever_waits_is_told_when_the_broker_forgets_its_sessions() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            answer = await client.post("/api/v1/tasks", json={"task_type": "t"})
            url = f"/api/v1/tasks/{answer.json()['task_id']}/wait?wait=30"
            waiting = asyncio.create_task(client.get(url))
            claiming = asyncio.create_task(
                client.post("/api/v1/workers/w1/claim", json={"queues": ["q"], "wait": 30})
            )
            core = house.broker.engine.core
            async with asyncio.timeout(10):
                while not (core.watches.by_task and core.roster.workers):  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            house.broker._end_sessions()
            told = await waiting
            assert (told.status_code, told.json()["reason"]) == (503, "storage_failed")
            assert told.headers["retry-after"] == "1"
            assert (await claiming).status_code == 409
            again = await client.post("/api/v1/tasks", json={"task_type": "t"})
            assert again.status_code == 201

    run(check())


def test_port_of_a_door_that_is_not_installed_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "litestar", None)
    assert run_command(["serve", "--http-port", "0"]) == 2
    assert "jackalope[http]" in capfd.readouterr().err
