"""Workers over HTTP: with httpx where time matters, and made of curl where that matters."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from jackalope.broker.access import Access
from jackalope.core.api_key import Permission
from jackalope.core.commands import ClaimTasks
from jackalope.core.effects import Effect
from tests.doors.harness import run
from tests.doors.http.harness import HttpHouse, Serving, open_http
from tests.doors.http.rest.test_tasks import claim, finish, shown, submit
from tests.doors.native.test_access import make_key

SCRIPT = Path(__file__).parents[4] / "examples" / "curl" / "worker.sh"


async def report(client: httpx.AsyncClient, task: Any, what: str, **more: Any) -> httpx.Response:
    where = {"worker": more.pop("worker", "w1"), "fence": more.pop("fence", task["fence"])}
    return await client.post(f"/api/v1/attempts/{task['task']}/{what}", params=where, **more)


async def open_claim(house: HttpHouse, worker: str) -> asyncio.Task[httpx.Response]:
    """Claim, and wait until the broker knows of it."""
    asked = {"queues": ["default"], "wait": 30}
    url = f"/api/v1/workers/{worker}/claim"
    claiming = asyncio.create_task(house.client.post(url, json=asked))
    await until(lambda: claims_of(house, worker) == 1)
    return claiming


def claims_of(house: HttpHouse, worker: str) -> int:
    known = house.broker.engine.core.roster.workers.get(("default", worker))
    return 0 if known is None else len(known.claims)


async def until(is_so: Any) -> None:
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110  the broker has no event for every condition
            await asyncio.sleep(0.005)


@pytest.mark.feature("D13")
def test_claim_start_progress_finish() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            claiming = await open_claim(house, "w1")
            task_id = await submit(client, payload=b64encode(b"hi").decode())
            (task,) = (await claiming).json()["tasks"]
            assert (task["task"], task["payload"], task["attempt"]) == (task_id, "aGk=", 1)
            assert (await shown(client, task_id))["state"] == "running"
            half = await report(client, task, "progress", json={"percent": 50, "note": "half"})
            assert half.json() == {"task": task_id, "signals": [], "draining": False}
            progress = (await shown(client, task_id))["progress"]
            assert (progress["percent"], progress["note"]) == (50, "half")
            stats = {"cpu_percent": 12.5, "memory_mb": 64}
            await client.post("/api/v1/workers/w1/heartbeat", json={"stats": stats})
            (worker,) = (await client.get("/api/v1/workers")).json()
            assert (worker["worker"], worker["state"]) == ("w1", "active")
            assert worker["stats"] == stats
            assert worker["load"] == 1
            await finish(client, task, b"ho")
            assert (await shown(client, task_id))["state"] == "succeeded"

    run(check())


def test_claim_without_start_is_only_assigned() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            task_id = await submit(client)
            asked = {"queues": ["default"], "start": False}
            answer = await client.post("/api/v1/workers/w1/claim", json=asked)
            (task,) = answer.json()["tasks"]
            assert (await shown(client, task_id))["state"] == "assigned"
            assert (await report(client, task, "start")).status_code == 200
            assert (await shown(client, task_id))["state"] == "running"
            assert (await report(client, task, "start")).status_code == 409
            assert (await report(client, task, "release")).status_code == 200
            released = await shown(client, task_id)
            assert (released["state"], released["interruptions"]) == ("ready", 1)

    run(check())


def test_a_worker_is_given_only_the_task_types_that_it_names() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            ids = {name: await submit(client, name=name) for name in ("new", "old", "older")}

            async def types(worker: str, **more: Any) -> list[str]:
                asked = {"queues": ["default"], "count": 3, **more}
                answer = await client.post(f"/api/v1/workers/{worker}/claim", json=asked)
                assert answer.status_code == 200, answer.text
                return [task["name"] for task in answer.json()["tasks"]]

            join = {"queues": ["default"], "names": ["old"]}
            assert (await client.post("/api/v1/workers/w1/join", json=join)).status_code == 200
            assert await types("w1") == ["old"]  # As it said when it joined.
            assert await types("w2", names=[""]) == []
            why = (await client.get(f"/api/v1/tasks/{ids['new']}/explain")).json()
            assert "name_unknown" in {cause["why"] for cause in why["causes"]}, why
            assert await types("w1", names=["old", "older"]) == ["older"]
            assert await types("w3") == ["new"]  # It named none, and takes any.
            too_many = {"queues": ["default"], "names": ["x"] * 10_001}
            answer = await client.post("/api/v1/workers/w4/claim", json=too_many)
            assert answer.status_code == 400

    run(check())


def test_stale_and_foreign_fences_are_refused() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            await submit(client)
            task = await claim(client)
            bodies: dict[str, dict[str, Any]] = {
                "finish": {"content": b""},
                "progress": {"json": {}},
            }
            for what, body in bodies.items():
                stale = await report(client, task, what, fence=task["fence"] + 1, **body)
                assert (stale.status_code, stale.json()["reason"]) == (409, "stale_fence")
            where = {"worker": "w1", "fence": task["fence"]}
            url = f"/api/v1/attempts/{task['task']}/payload"
            assert (await client.get(url, params=where)).status_code == 200
            stale = await client.get(url, params=where | {"fence": task["fence"] + 1})
            assert (stale.status_code, stale.json()["reason"]) == (409, "stale_fence")
            stranger = await report(client, task, "finish", worker="w2", content=b"")
            assert (stranger.status_code, stranger.json()["reason"]) == (404, "unknown_worker")
            await client.post("/api/v1/workers/w2/claim", json={"queues": ["default"]})
            other = await report(client, task, "finish", worker="w2", content=b"")
            assert (other.status_code, other.json()["reason"]) == (409, "stale_fence")
            assert (await shown(client, task["task"]))["state"] == "running"

    run(check())


def test_kill_reaches_the_worker_with_its_next_request() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            task_id = await submit(client)
            task = await claim(client)
            await client.post(f"/api/v1/tasks/{task_id}/kill")
            beat = (await client.post("/api/v1/workers/w1/heartbeat", json={})).json()
            (signal_asked,) = beat["signals"]
            assert (signal_asked["task"], signal_asked["signal"]) == (task_id, "kill")
            assert (await shown(client, task_id))["request"]["stage"] == "delivered"
            await report(client, task, "signal", json={"answer": "stopped"})
            assert (await shown(client, task_id))["state"] == "killed"

    run(check())


def test_drain_and_leave() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            task_id = await submit(client)
            await claim(client)
            assert (await client.post("/api/v1/workers/w1/drain")).json()["state"] == "draining"
            beat = await client.post("/api/v1/workers/w1/heartbeat", json={})
            assert beat.json()["draining"]
            assert (await client.post("/api/v1/workers/w1/leave")).status_code == 204
            assert (await shown(client, task_id))["state"] == "ready"
            gone = await client.post("/api/v1/workers/w1/heartbeat", json={})
            assert (gone.status_code, gone.json()["reason"]) == (404, "unknown_worker")
            assert (await client.post("/api/v1/workers/nobody/drain")).status_code == 404

    run(check())


@pytest.mark.feature("D15")
def test_join_gives_away_what_it_does_not_name() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            kept, lost = await submit(client), await submit(client)
            asked = {"queues": ["default"], "count": 2}
            answer = await client.post("/api/v1/workers/w1/claim", json=asked)
            tasks = {task["task"]: task for task in answer.json()["tasks"]}
            holding = [{"task": kept, "fence": tasks[kept]["fence"]}]
            join = {"queues": ["default"], "holding": holding, "labels": {"host": "here"}}
            joined = await client.post("/api/v1/workers/w1/join", json=join)
            assert joined.json() == {"resumed": holding, "dropped": []}
            await finish(client, tasks[kept], b"")
            assert (await shown(client, lost))["state"] == "ready"
            stale = await report(client, tasks[lost], "finish", content=b"")
            assert stale.status_code == 409

    run(check())


def test_silent_worker_is_gone_and_an_open_claim_is_not_silent() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            task_id = await submit(client)
            asked = {"queues": ["default"], "lease_seconds": 1}
            answer = await client.post("/api/v1/workers/w1/claim", json=asked)
            (task,) = answer.json()["tasks"]
            claiming = asyncio.create_task(
                client.post("/api/v1/workers/w1/claim", json=asked | {"wait": 2})
            )
            assert (await claiming).json()["tasks"] == []
            assert (await shown(client, task_id))["state"] == "running"
            other = await client.post(
                "/api/v1/workers/w2/claim", json={"queues": ["default"], "wait": 10}
            )
            (again,) = other.json()["tasks"]
            assert (again["task"], again["attempt"]) == (task_id, 2)
            stale = await report(client, task, "finish", content=b"late")
            assert stale.status_code in (404, 409)
            await finish(client, again, b"in time", worker="w2")
            assert (await client.get(f"/api/v1/tasks/{task_id}/result")).content == b"in time"

    run(check())


def test_claim_of_a_client_that_vanished_is_taken_back() -> None:
    async def check() -> None:
        async with open_http() as house:
            claiming = await open_claim(house, "w1")
            claiming.cancel()
            await until(lambda: claims_of(house, "w1") == 0)
            await submit(house.client)
            task = await claim(house.client, worker="w2")
            assert task["attempt"] == 1

    run(check())


def test_task_for_a_client_that_vanished_is_handed_back_at_once() -> None:
    async def check() -> None:
        async with open_http() as house:
            await submit(house.client)
            worker = await house.door.fleet.worker("default", "w1", ("default",))

            leaving: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            deliver = worker.deliver

            def deliver_too_late(effects: list[Effect]) -> None:
                leaving.set_result(None)
                deliver(effects)

            worker.deliver = deliver_too_late  # type: ignore[method-assign]
            assert await worker.claim(1, 10_000_000, leaving) == []
            worker.deliver = deliver  # type: ignore[method-assign]
            task = await claim(house.client, worker="w2")
            assert task["attempt"] == 2

    run(check())


def test_tasks_that_come_after_the_answer_are_handed_back() -> None:
    async def check() -> None:
        async with open_http() as house:
            worker = await house.door.fleet.worker("default", "w1", ("default",))
            worker.post(ClaimTasks(ref=999, count=1, wait_us=10_000_000))
            task_id = await submit(house.client)
            task = await claim(house.client, worker="w2")
            assert task["task"] == task_id

    run(check())


def test_two_workers_of_one_name_over_two_doors() -> None:
    async def check() -> None:
        async with open_http() as house:
            await claim_nothing(house)
            roster = house.broker.engine.core.roster
            # A worker of another connection has the name.
            roster.workers["default", "native"] = roster.workers["default", "w1"]
            taken = await house.client.post(
                "/api/v1/workers/native/claim", json={"queues": ["default"]}
            )
            del roster.workers["default", "native"]
            assert (taken.status_code, taken.json()["reason"]) == (409, "stale_session")

    run(check())


async def claim_nothing(house: HttpHouse) -> None:
    await house.client.post("/api/v1/workers/w1/claim", json={"queues": ["default"]})


def test_door_that_closes_lets_claims_go() -> None:
    async def check() -> None:
        async with open_http() as house:
            claiming = await open_claim(house, "w1")
            await house.door.stop()
            answer = await claiming
            assert (answer.status_code, answer.json()["reason"]) == (409, "stale_session")

    run(check())


# Made of curl.


def curl(url: str, *arguments: str) -> Any:
    """Call curl, and return the status and the body."""
    command = ["curl", "--silent", "--max-time", "60", "--write-out", "\n%{http_code}"]
    ran = subprocess.run([*command, *arguments, url], capture_output=True, text=True, check=True)
    body, _, status = ran.stdout.rpartition("\n")
    return int(status), json.loads(body) if body.startswith("{") else body


def post(url: str, body: Any) -> Any:
    return curl(url, "--header", "Content-Type: application/json", "--data", json.dumps(body))


def test_curl_works_on_after_the_broker_was_killed(tmp_path: Path) -> None:
    first = Serving(tmp_path)
    api = f"{first.url}/api/v1"
    try:
        _, submitted = post(f"{api}/tasks", {"name": "t", "queue": "q"})
        _, other = post(f"{api}/tasks", {"name": "t", "queue": "q"})
        _, claimed = post(f"{api}/workers/w1/claim", {"queues": ["q"], "count": 2})
        fences = {task["task"]: task["fence"] for task in claimed["tasks"]}
    finally:
        first.stop(signal.SIGKILL)
    second = Serving(tmp_path, http_port=first.http_port)
    try:
        assert post(f"{api}/workers/w1/heartbeat", {}) == (200, {"signals": [], "draining": False})
        assert post(f"{api}/workers/w2/claim", {"queues": ["q"]})[1]["tasks"] == []
        task_id = submitted["id"]
        where = f"worker=w1&fence={fences[task_id]}"
        status, _ = curl(f"{api}/attempts/{task_id}/finish?{where}", "--data-binary", "done")
        assert status == 200
        assert curl(f"{api}/tasks/{task_id}/result") == (200, "done")
        assert curl(f"{api}/tasks/{task_id}")[1]["attempts"] == 1
        _, running = curl(f"{api}/tasks/{other['id']}")
        assert (running["state"], running["attempts"]) == ("running", 1)
        again, _ = curl(f"{api}/attempts/{task_id}/finish?{where}", "--data-binary", "twice")
        assert again == 409
    finally:
        code, log = second.stop()
    assert code == 0, log


@pytest.fixture
def script(serving: Serving) -> Iterator[Any]:
    if shutil.which("jq") is None:
        pytest.skip("the worker in the examples needs jq")
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *command: str) -> subprocess.Popen[bytes]:
        arguments = ["sh", str(SCRIPT), f"{serving.url}/api/v1", "q", *command]
        environment = os.environ | {"WORKER": name, "LEASE": "2"}
        # With children of its own, which end with it.
        process = subprocess.Popen(arguments, env=environment, start_new_session=True)
        started.append(process)
        return process

    yield start
    for process in started:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a worker with everything that it has started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_worker_made_of_curl_runs_fails_and_dies(serving: Serving, script: Any) -> None:
    api = f"{serving.url}/api/v1"

    def submitted(payload: str, **more: Any) -> str:
        body = {"name": "t", "queue": "q", "payload": b64encode(payload.encode()).decode()}
        return str(post(f"{api}/tasks", body | more)[1]["id"])

    shouting = script("shouter", "tr", "a-z", "A-Z")
    assert curl(f"{api}/tasks/{submitted('hello')}/result?wait=20") == (200, "HELLO")
    kill(shouting)
    # It dies in the middle of a task, which goes to another.
    task_id = submitted("again")
    sleeping = script("sleeper", "sleep", "60")
    while curl(f"{api}/tasks/{task_id}")[1]["worker"] != "sleeper":
        assert sleeping.poll() is None
    fence = curl(f"{api}/tasks/{task_id}")[1]["fence"]
    kill(sleeping)
    script("failer", "sh", "-c", "echo no good >&2; exit 1")
    dead = submitted("bad", retries=0)
    assert curl(f"{api}/tasks/{dead}/wait?wait=30")[1]["error"]["message"] == "no good\n"
    while curl(f"{api}/tasks/{task_id}")[1]["crashes"] == 0:
        assert serving.process.poll() is None
    stale = f"{api}/attempts/{task_id}/finish?worker=sleeper&fence={fence}"
    status, refused = curl(stale, "--data-binary", "late")
    assert status in (404, 409), refused
    assert curl(f"{api}/tasks/{task_id}")[1]["result"] is None


# With keys.


def test_key_for_work_alone_is_enough_and_a_worker_belongs_to_its_key() -> None:
    async def check() -> None:
        made = {
            "boss": make_key(Permission.ADMIN),
            "worker": make_key(Permission.WORK),
            "rival": make_key(Permission.WORK),
            "elsewhere": make_key(Permission.WORK, queues=("other",)),
        }
        bearer = {name: {"Authorization": f"Bearer {token}"} for name, (token, _) in made.items()}
        access = Access([key for _, key in made.values()])
        async with open_http(access=access) as house:
            client = house.client
            body = {"name": "t", "payload": "aGk="}
            await client.post("/api/v1/tasks", json=body, headers=bearer["boss"])
            asked = {"queues": ["default"]}
            url = "/api/v1/workers/w1/claim"
            refused = await client.post(url, json=asked, headers=bearer["elsewhere"])
            assert (refused.status_code, refused.json()["reason"]) == (403, "forbidden")
            claimed = await client.post(url, json=asked, headers=bearer["worker"])
            (task,) = claimed.json()["tasks"]
            where = {"worker": "w1", "fence": task["fence"]}
            attempt = f"/api/v1/attempts/{task['task']}"
            for name in ("rival", "elsewhere"):
                stolen = await client.post(
                    f"{attempt}/finish", params=where, content=b"", headers=bearer[name]
                )
                assert (stolen.status_code, stolen.json()["reason"]) == (403, "forbidden")
            mine = bearer["worker"]
            payload = await client.get(f"{attempt}/payload", params=where, headers=mine)
            assert payload.content == b"hi"
            done = await client.post(f"{attempt}/finish", params=where, content=b"", headers=mine)
            assert done.status_code == 200
            hidden = await client.get(f"/api/v1/tasks/{task['task']}", headers=mine)
            assert hidden.status_code == 403

    run(check())
