"""Tasks over REST: in our words, or in the fields and statuses of the task API."""

import asyncio
import base64
from base64 import b64decode, b64encode
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from jackalope.broker.config.schema import Names
from tests.doors.harness import run
from tests.doors.http.harness import HttpHouse, open_http

MEBIBYTE = 1024 * 1024

#: What the task API shows of a task.
FIELDS = {
    "task_id",
    "task_type",
    "status",
    "priority",
    "created_at",
    "updated_at",
    "result",
    "error",
    "retry_count",
    "worker_id",
}


async def submit(client: httpx.AsyncClient, **fields: Any) -> str:
    answer = await client.post("/api/v1/tasks", json={"name": "resize"} | fields)
    assert answer.status_code == 201, answer.text
    assert answer.json().keys() == {"id"}
    return str(answer.json()["id"])


async def submit_in_aliases(client: httpx.AsyncClient, **fields: Any) -> str:
    answer = await client.post("/api/v1/tasks", json={"task_type": "resize"} | fields)
    assert answer.status_code == 201, answer.text
    assert answer.json().keys() == {"task_id", "status"}
    assert answer.json()["status"] == "pending"
    return str(answer.json()["task_id"])


async def shown(client: httpx.AsyncClient, task_id: str) -> Any:
    answer = await client.get(f"/api/v1/tasks/{task_id}")
    assert answer.status_code == 200, answer.text
    assert ("state" in answer.json()) != ("status" in answer.json())
    return answer.json()


async def claim(client: httpx.AsyncClient, queue: str = "default", worker: str = "w1") -> Any:
    asked = {"queues": [queue], "wait": 5}
    answer = await client.post(f"/api/v1/workers/{worker}/claim", json=asked)
    (task,) = answer.json()["tasks"]
    return task


async def finish(client: httpx.AsyncClient, task: Any, result: bytes, worker: str = "w1") -> None:
    where = {"worker": worker, "fence": task["fence"]}
    url = f"/api/v1/attempts/{task.get('task') or task['task_id']}/finish"
    answer = await client.post(url, params=where, content=result)
    assert answer.status_code == 200, answer.text


@pytest.mark.feature("D3")
def test_minimal_task_has_the_defaults_of_the_task_api() -> None:
    async def check() -> None:
        async with open_http(names=Names.TASK_QUEUE) as house:
            task_id = await submit_in_aliases(house.client, payload=b64encode(b"cat.png").decode())
            assert UUID(task_id).version == 7
            task = await shown(house.client, task_id)
            assert task.keys() >= FIELDS
            assert (task["status"], task["priority"], task["retry_count"]) == ("pending", 150, 0)
            assert (task["result"], task["error"], task["worker_id"]) == (None, None, None)
            assert task["timeout_seconds"] is None
            assert task["queue"] == "default"
            queue = await house.client.get("/api/v1/queues/default")
            policy = queue.json()["policy"]
            assert (policy["retries"], policy["timeout"]) == (3, "0s")

    run(check())


@pytest.mark.feature("D1")
def test_every_field_of_a_submit_counts() -> None:
    async def check() -> None:
        async with open_http() as house:
            first = await submit(house.client)
            task_id = str(uuid4())
            fields = {
                "id": task_id,
                "queue": "images",
                "key": "gpu",
                "alias": "cats",
                "priority": 201,
                "run_at": "2999-01-01T00:00:00+01:00",
                "expires_at": "2999-02-01T00:00:00Z",
                "timeout_seconds": 1.5,
                "retries": 7,
                "depends_on": [first],
                "tags": ["night"],
                "headers": {"a": [1, None, 2**70]},
            }
            assert await submit(house.client, **fields) == task_id
            task = await shown(house.client, task_id)
            assert task["expires_at"] == "2999-02-01T00:00:00Z"
            assert (task["timeout_seconds"], task["retries"]) == (1.5, 7)
            assert (task["depends_on"], task["state"]) == ([first], "waiting")
            assert (task["key"], task["alias"], task["tags"]) == ("gpu", "cats", ["night"])
            assert task["headers"] == {"a": [1, None, 2.0**70]}
            again = await house.client.post("/api/v1/tasks", json={"name": "resize"} | fields)
            assert again.status_code == 201
            other = {"name": "crop", "id": task_id}
            answer = await house.client.post("/api/v1/tasks", json=other)
            assert (answer.status_code, answer.json()["reason"]) == (409, "id_conflict")

    run(check())


def test_dependencies_are_shown_after_the_end() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            first = await submit(client, retries=0)
            second = await submit(client, depends_on=[first])
            task = await shown(client, second)
            assert (task["depends_on"], task["waiting_for"]) == ([first], [first])
            assert (await client.delete(f"/api/v1/tasks/{first}")).status_code < 300
            task = await shown(client, second)
            assert (task["depends_on"], task["waiting_for"]) == ([first], [])
            assert (task["state"], task["reason"]) == ("dead", "dependency")
            assert task["error"]["type"] == "DependencyFailed"
            assert task["error"]["message"] == f"{first} (resize) is killed"

    run(check())


@pytest.mark.feature("D17", "D28")
def test_life_of_a_task_in_five_words() -> None:
    async def check() -> None:
        async with open_http(names=Names.TASK_QUEUE) as house:
            client = house.client
            done, dead = (
                await submit_in_aliases(client),
                await submit_in_aliases(client, max_retries=0),
            )
            first = await claim(client)
            assert (await shown(client, done))["status"] == "in_progress"
            assert (await shown(client, done))["worker_id"] == "w1"
            await finish(client, first, b"small")
            ended = await shown(client, done)
            assert (ended["status"], b64decode(ended["result"])) == ("completed", b"small")
            second = await claim(client)
            where = {"worker": "w1", "fence": second["fence"]}
            told = {"type": "ValueError", "message": "no cat"}
            await client.post(f"/api/v1/attempts/{dead}/fail", params=where, json=told)
            task = await shown(client, dead)
            assert (task["status"], task["error"]) == ("dead_letter", "ValueError: no cat")
            assert (task["retry_count"], task["reason"]) == (1, "failed")
            result = await client.get(f"/api/v1/tasks/{dead}/result")
            assert (result.status_code, result.json()["reason"]) == (409, "wrong_state")
            retried = await client.post(f"/api/v1/tasks/{dead}/retry")
            assert retried.json() == {"task_id": dead, "outcome": "changed"}
            assert (await shown(client, dead))["status"] == "pending"
            await claim(client)
            again = await shown(client, dead)
            assert (task["ended_at"] is None, again["ended_at"]) == (False, None)

    run(check())


@pytest.mark.feature("D27", "D28")
def test_cancel_is_204_404_and_409() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            pending, running = await submit(client, queue="a"), await submit(client, queue="b")
            await claim(client, "b")
            assert (await client.delete(f"/api/v1/tasks/{pending}")).status_code == 204
            assert (await shown(client, pending))["state"] == "killed"
            again = await client.delete(f"/api/v1/tasks/{pending}")
            assert (again.status_code, again.json()["code"]) == (409, 409)
            held = await client.delete(f"/api/v1/tasks/{running}")
            assert held.status_code == 409
            assert "is no longer pending and cannot be cancelled" in held.json()["error"]
            assert (await shown(client, running))["state"] == "running"
            unknown = await client.delete(f"/api/v1/tasks/{uuid4()}")
            assert (unknown.status_code, unknown.json()["reason"]) == (404, "unknown_task")
            assert (await client.delete("/api/v1/tasks/nonsense")).status_code == 404
            killed = await client.post(f"/api/v1/tasks/{running}/kill")
            assert killed.json()["outcome"] == "requested"

    run(check())


def test_a_request_chooses_the_names_of_its_answer() -> None:
    async def check() -> None:
        async with open_http() as house, open_http(names=Names.TASK_QUEUE) as known:
            ours, theirs = ({"X-Jackalope-Names": each} for each in Names)
            for client, header, word in (
                (house.client, {}, "state"),
                (house.client, theirs, "status"),
                (known.client, {}, "status"),
                (known.client, ours, "state"),
            ):
                task = {"task_type": "resize", "queue": "a"}
                if word == "state":
                    task = {"name": "resize", "queue": "a"}
                answer = await client.post("/api/v1/tasks", json=task, headers=header)
                made = answer.json()
                assert made.keys() == ({"id"} if word == "state" else {"task_id", "status"})
                await client.post("/api/v1/workers/w1/join", json={"queues": ["b"]})
                batch = {"tasks": [task]}
                many = await client.post("/api/v1/tasks/batch", json=batch, headers=header)
                assert ("status" in many.json()["tasks"][0]) == (word == "status")
                at = f"/api/v1/tasks/{made.get('id') or made['task_id']}"
                answers = [
                    (await client.get(path, headers=header)).json()
                    for path in (at, f"{at}/explain", "/api/v1/tasks", "/api/v1/workers")
                ]
                for shown in (*answers[:2], answers[2]["tasks"][0], answers[3][0]):
                    assert {"state", "status"} & set(shown) == {word}, shown
            wrong = await house.client.get("/api/v1/tasks", headers={"X-Jackalope-Names": "x"})
            assert wrong.status_code == 400
            assert "must be jackalope or task_queue, got 'x'" in wrong.json()["error"]

    run(check())


@pytest.mark.feature("D6")
def test_full_queue_is_503_with_retry_after() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            await client.put("/api/v1/queues/small", json={"policy": {"depth_limit": 10}})
            tasks = [{"name": "t", "queue": "small"}] * 10
            many = await client.post("/api/v1/tasks/batch", json={"tasks": tasks})
            assert (many.status_code, many.json()["accepted"]) == (201, 10)
            full = await client.post("/api/v1/tasks", json=tasks[0])
            assert (full.status_code, full.json()["reason"]) == (503, "queue_full")
            assert int(full.headers["retry-after"]) >= 1
            mixed = [tasks[0], {"name": "t", "queue": "other"}]
            answer = await client.post("/api/v1/tasks/batch", json={"tasks": mixed})
            assert answer.status_code == 201
            refused, accepted = answer.json()["tasks"]
            assert refused["error"]["reason"] == "queue_full"
            assert accepted["error"] is None
            assert not {"status", "state"} & {*refused, *accepted}
            all_refused = await client.post("/api/v1/tasks/batch", json={"tasks": tasks})
            assert all_refused.status_code == 503

    run(check())


@pytest.mark.feature("D1")
def test_payload_of_ten_mebibytes_and_one_byte_more() -> None:
    async def check() -> None:
        async with open_http() as house:
            payload = bytes(10 * MEBIBYTE)
            task_id = await submit(house.client, payload=b64encode(payload).decode())
            raw = await house.client.get(f"/api/v1/tasks/{task_id}/payload")
            assert raw.content == payload
            part = await house.client.get(
                f"/api/v1/tasks/{task_id}/payload", headers={"Range": "bytes=10-19"}
            )
            assert (part.status_code, len(part.content)) == (206, 10)
            body = {"name": "t", "payload": b64encode(payload + b"x").decode()}
            over = await house.client.post("/api/v1/tasks", json=body)
            assert (over.status_code, over.json()["reason"]) == (413, "too_large")
            body["payload"] = b64encode(bytes(13 * MEBIBYTE)).decode()
            far_over = await house.client.post("/api/v1/tasks", json=body)
            assert (far_over.status_code, far_over.json()["code"]) == (413, 413)

    run(check())


def test_raw_payload_and_result_of_any_size() -> None:
    async def check() -> None:
        async with open_http() as house:
            payload = bytes(range(256)) * 1024
            url = "/api/v1/tasks/raw?name=resize&queue=images&tag=a&tag=b&priority=7"
            answer = await house.client.post(url, content=payload)
            task_id = answer.json()["id"]
            task = await claim(house.client, "images")
            assert (task["payload"], task["payload_size"]) == (None, len(payload))
            assert task["tags"] == ["a", "b"]
            got = await house.client.get(f"/api/v1/tasks/{task_id}/payload")
            assert got.content == payload
            await finish(house.client, task, payload[::-1])
            assert (await shown(house.client, task_id))["result"] is None
            result = await house.client.get(f"/api/v1/tasks/{task_id}/result")
            assert result.content == payload[::-1]
            head = await house.client.head(f"/api/v1/tasks/{task_id}/result")
            assert head.headers["content-length"] == str(len(payload))

    run(check())


@pytest.mark.feature("D28")
def test_list_filters_pages_and_counts() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            ids = [await submit(client, queue=q) for q in ("a", "b") * 5]
            content = base64.b64encode(b"at midnight" + b"-" * 2_000).decode()
            await submit(client, queue="a", name="crop", tags=["night"], key="k", payload=content)
            heads = (await client.get("/api/v1/tasks?name=crop&payload_head=11")).json()["tasks"]
            assert base64.b64decode(heads[0]["payload"]) == b"at midnight"
            page = (await client.get("/api/v1/tasks?limit=4&name=resize")).json()
            assert (page["total"], len(page["tasks"])) == (10, 4)
            seen = [task["id"] for task in page["tasks"]]
            while page["cursor"]:
                url = f"/api/v1/tasks?limit=4&name=resize&cursor={page['cursor']}"
                page = (await client.get(url)).json()
                seen += [task["id"] for task in page["tasks"]]
            assert seen == ids[::-1]
            skipped = (await client.get("/api/v1/tasks?name=resize&offset=7&limit=2")).json()
            assert [task["id"] for task in skipped["tasks"]] == seen[7:9]
            for query, number in {
                "queue=a": 6,
                "queue=a&status=pending": 6,
                "status=completed": 0,
                "state=ready&state=running": 11,
                "status=pending&state=running": 0,
                "tag=night": 1,
                "key=k": 1,
                "text=CRO": 1,
                "batch=1&queue=b": 5,
                f"parent={ids[0]}": 0,
                "older_than=2000-01-01T00:00:00Z": 0,
                "newer_than=2000-01-01T00:00:00Z": 11,
                "newer_than=2999-01-01T00:00:00Z": 0,
                "contains=NotThere": 0,
                "contains=midnight": 1,
            }.items():
                found = (await client.get(f"/api/v1/tasks?{query}")).json()
                assert (query, found["total"]) == (query, number)
                assert len(found["tasks"]) == number
            for query in (
                "limit=1001",
                "stauts=dead",
                "status=nope",
                "limit=1&limit=2",
                "cursor=x",
            ):
                refused = await client.get(f"/api/v1/tasks?{query}")
                assert (query, refused.status_code) == (query, 400)
                assert refused.json()["reason"] == "invalid"

    run(check())


def test_actions_on_one_and_on_many() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            ids = [await submit(client) for _ in range(4)]
            for action, state in (("hold", "held"), ("play", "ready"), ("pause", "paused")):
                answer = await client.post(f"/api/v1/tasks/{ids[0]}/{action}")
                assert answer.json() == {"task": ids[0], "outcome": "changed"}
                assert (await shown(client, ids[0]))["state"] == state
            purged = await client.post(f"/api/v1/tasks/{ids[0]}/purge")
            assert (purged.status_code, purged.json()["reason"]) == (409, "wrong_state")
            assert (await client.post(f"/api/v1/tasks/{ids[0]}/fly")).status_code == 404
            kill = {"action": "kill", "filter": {"states": ["ready"]}}
            dry = await client.post("/api/v1/tasks/actions", json=kill | {"dry_run": True})
            assert dry.json() == {
                "changed": 3,
                "requested": 0,
                "refused": [],
                "more": False,
                "dry_run": True,
            }
            assert (await shown(client, ids[1]))["state"] == "ready"
            assert (await client.post("/api/v1/tasks/actions", json=kill)).json()["changed"] == 3
            terms = {"retries": 1, "timeout_seconds": 60, "priority": 9}
            again = {"action": "retry", "tasks": ids, "terms": terms}
            answer = (await client.post("/api/v1/tasks/actions", json=again)).json()
            assert (answer["changed"], len(answer["refused"])) == (3, 1)
            changed = await shown(client, ids[1])
            assert {name: changed[name] for name in terms} == terms
            wrong = await client.post("/api/v1/tasks/actions", json=kill | {"terms": terms})
            assert (wrong.status_code, wrong.json()["reason"]) == (400, "invalid")
            assert (await client.post("/api/v1/tasks/actions", json=kill)).json()["changed"] == 3
            named = {"action": "purge", "tasks": ids}
            answer = await client.post("/api/v1/tasks/actions", json=named)
            assert answer.json()["changed"] == 3
            (refused,) = answer.json()["refused"]
            assert (refused["task"], refused["error"]["code"]) == (ids[0], 409)
            assert (await client.get(f"/api/v1/tasks/{ids[1]}")).status_code == 404
            neither = await client.post("/api/v1/tasks/actions", json={"action": "kill"})
            assert neither.status_code == 400

    run(check())


def test_history_and_explanation() -> None:
    async def check() -> None:
        async with open_http() as house:
            task_id = await submit(house.client)
            explained = (await house.client.get(f"/api/v1/tasks/{task_id}/explain")).json()
            assert (explained["state"], explained["causes"][0]["why"]) == ("ready", "no_worker")
            headers = {"X-Jackalope-Client": "ann"}
            await house.client.post(f"/api/v1/tasks/{task_id}/pause", headers=headers)
            history = (await house.client.get(f"/api/v1/tasks/{task_id}/history")).json()
            told = [(line["what"], line["by"]) for line in history["history"]]
            assert told == [("submit", "http"), ("pause", "ann")]

    run(check())


def test_wait_ends_with_the_task_or_with_the_time() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            task_id = await submit(client)
            early = await client.get(f"/api/v1/tasks/{task_id}/result?wait=0.01")
            assert (early.status_code, early.json()["state"]) == (202, "ready")
            waiting = [
                asyncio.create_task(client.get(f"/api/v1/tasks/{task_id}/{what}?wait=10"))
                for what in ("result", "wait")
            ]
            await finish(client, await claim(client), b"\x00done")
            result, task = await asyncio.gather(*waiting)
            assert (result.status_code, result.content) == (200, b"\x00done")
            assert (task.status_code, task.json()["state"]) == (200, "succeeded")
            missing = await client.get(f"/api/v1/tasks/{uuid4()}/wait?wait=1")
            assert missing.status_code == 404

    run(check())


def test_waiting_for_a_task_that_nobody_keeps() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            await client.put("/api/v1/queues/rpc", json={"preset": "rpc"})
            task_id = await submit(client, queue="rpc")
            url = f"/api/v1/tasks/{task_id}/result?wait=10"
            waiting = asyncio.create_task(client.get(url))
            task = await claim(client, "rpc")
            await until_waiting(house)
            await finish(client, task, b"answer")
            assert (await waiting).content == b"answer"

    run(check())


async def until_waiting(house: HttpHouse) -> None:
    """Wait until somebody waits for a task."""
    async with asyncio.timeout(5):
        while not house.broker.engine.core.watches.by_task:  # noqa: ASYNC110  it tells nobody
            await asyncio.sleep(0.005)


def test_namespaces_are_worlds_of_their_own() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            team = {"X-Jackalope-Namespace": "team"}
            answer = await client.post("/api/v1/tasks", json={"name": "t"}, headers=team)
            task_id = answer.json()["id"]
            assert (await client.get(f"/api/v1/tasks/{task_id}")).status_code == 404
            seen = await client.get(f"/api/v1/tasks/{task_id}?namespace=team")
            assert seen.json()["namespace"] == "team"
            other = {"X-Jackalope-Namespace": "other"}
            waited = await client.get(f"/api/v1/tasks/{task_id}/wait?wait=1", headers=other)
            assert waited.status_code == 404
            assert (await client.get("/api/v1/tasks?namespace=")).status_code == 400
            # Also of a list that cannot have a task.
            nothing = "/api/v1/tasks?status=pending&state=dead"
            assert (await client.get(nothing)).status_code == 200
            assert (await client.get(f"{nothing}&namespace=")).status_code == 400

    run(check())


@pytest.mark.parametrize(
    ("body", "media_type", "status"),
    [
        (b"{}", "application/json", 400),
        (b'{"name": ""}', "application/json", 400),
        (b'{"name": "t", "priority": 256}', "application/json", 400),
        (b'{"name": "t", "priority": true}', "application/json", 400),
        (b'{"name": "t", "colour": "red"}', "application/json", 400),
        (b'{"name": "t", "payload": "?"}', "application/json", 400),
        (b'{"name": "t", "run_at": "tomorrow"}', "application/json", 400),
        (b'{"name": "t", "headers": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001, "", 415),
        (b'{"name": "t", "headers": {"a":' + b"[" * 50_000, "application/json", 400),
        (b'{"name": "\xff"}', "application/json", 400),
        (b'{"name": "t', "application/json", 400),
        (b"", "application/json", 400),
        (b"name=t", "application/x-www-form-urlencoded", 415),
        (b'{"name": "t", "depends_on": ["' + b"0" * 32 + b'"]}', "application/json", 409),
        (b'{"name": "t", "parent": "' + b"0" * 32 + b'"}', "application/json", 404),
    ],
)
def test_bad_submits_are_told_what_is_wrong(body: bytes, media_type: str, status: int) -> None:
    async def check() -> None:
        async with open_http() as house:
            headers = {"Content-Type": media_type} if media_type else {}
            answer = await house.client.post("/api/v1/tasks", content=body, headers=headers)
            assert answer.status_code == status, answer.text
            assert answer.json()["code"] == status
            assert (await house.client.get("/api/v1/tasks")).json()["total"] == 0

    run(check())


def test_description_has_every_route_and_loads_nothing() -> None:
    async def check() -> None:
        async with open_http() as house:
            described = (await house.client.get("/api/openapi.json")).json()
            assert described["openapi"] == "3.1.0"
            assert "/api/v1/tasks/{task_id}" in described["paths"]
            page = await house.client.get("/api/docs")
            assert page.headers["content-type"].startswith("text/html")
            assert "/api/v1/workers/{worker}/claim" in page.text
            assert "http://" not in page.text
            assert "https://" not in page.text
            assert "<script" not in page.text

    run(check())


def test_an_event_is_sent_to_a_task() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            task_id = await submit(client)
            url = f"/api/v1/tasks/{task_id}/events/approved"
            assert (await client.post(url)).status_code == 204
            assert (await client.post(url, json={"data": {"by": "Ann"}})).status_code == 204
            answer = await client.get(f"/api/v1/tasks/{task_id}/history")
            assert [
                each["detail"] for each in answer.json()["history"] if each["what"] == "event"
            ] == ["approved", "approved"]
            assert (await client.post(url, json={"dat": 1})).status_code == 400
            large = await client.post(url, json={"data": [-(2**70)]})
            assert (large.status_code, large.json()["reason"]) == (400, "invalid")
            unknown = await client.post(f"/api/v1/tasks/{uuid4()}/events/approved")
            assert unknown.status_code == 404
            await client.delete(f"/api/v1/tasks/{task_id}")
            assert (await client.post(url)).status_code == 409
            assert (await shown(client, task_id))["steps"] == []

    run(check())
