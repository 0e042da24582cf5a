"""The aliases of the published task queue design: whose answers have them, and all of them."""

import json
from typing import Any

import msgspec
import pytest
import websockets

from jackalope.broker.config.schema import Names
from jackalope.doors.http.vocabulary import aliases
from tests.doors.harness import run
from tests.doors.http.harness import open_http

TASKS = "/api/v1/tasks"
OWN_ID = "01890a5d-ac96-774b-bcce-b302099a8057"
OURS = {"X-Jackalope-Names": "jackalope"}

#: What a task, a worker and the statistics have in the published design and in our words.
WORDS = {
    "task_id": "id",
    "task_type": "name",
    "status": "state",
    "retry_count": "failures",
    "max_retries": "retries",
    "worker_id": "worker",
    "dependencies": "depends_on",
    "parent_id": "parent",
    "submitted_by": "by",
    "scheduled_at": "due_at",
    "forgotten_at": "forget_at",
    "signal": "request",
    "payload_head": "payload",
}
#: What both have, with other values in one case.
SHARED = {
    "priority", "created_at", "updated_at", "result", "error", "queue", "key", "alias", "tags",
    "headers", "namespace", "timeout_seconds", "attempts",
}  # fmt: skip


@pytest.mark.feature("D1", "D28")
def test_a_client_of_the_design_that_submits_needs_no_setting() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            body = {"task_type": "resize", "max_retries": 2, "schedule_at": "2999-01-01T00:00:00Z"}
            made = (await client.post(TASKS, json=body)).json()
            assert made.keys() == {"task_id", "status"}
            assert made["status"] == "pending"
            waiting = {"task_type": "crop", "dependencies": [made["task_id"]]}
            many = (await client.post(f"{TASKS}/batch", json={"tasks": [waiting]})).json()
            assert many["tasks"][0].keys() == {"task_id", "status", "error"}
            for query in ({"task_type": "resize"}, {"status": "pending", "name": "resize"}):
                listed = (await client.get(TASKS, params=query)).json()["tasks"]
                assert len(listed) == 1
                in_aliases = "task_type" in query
                assert ("task_id" in listed[0], "id" in listed[0]) == (in_aliases, not in_aliases)
            raw = await client.post(f"{TASKS}/raw?task_type=t&max_retries=1", content=b"x")
            assert raw.json().keys() == {"task_id", "status"}
            # The request says otherwise.
            ours = await client.post(TASKS, json=body, headers=OURS)
            assert ours.json().keys() == {"id"}
            assert (await client.post(f"{TASKS}?names=jackalope", json=body)).json().keys() == {
                "id"
            }
            # It mixes the words: then they are ours.
            mixed = await client.post(TASKS, json={"task_type": "t", "retries": 1})
            assert mixed.json().keys() == {"id"}

    run(check())


def test_either_word_means_the_same() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            first = (await client.post(TASKS, json={"name": "first"})).json()["id"]
            theirs = {
                "task_type": "t", "max_retries": 3, "dependencies": [first], "parent_id": first,
                "schedule_at": "2999-01-01T00:00:00Z", "task_id": OWN_ID,
            }  # fmt: skip
            ours = {
                "name": "t", "retries": 3, "depends_on": [first], "parent": first,
                "run_at": "2999-01-01T00:00:00Z", "id": OWN_ID,
            }  # fmt: skip
            for body in (theirs, ours, theirs | ours):  # The second and third repeat the first.
                made = await client.post(TASKS, json=body)
                assert made.status_code == 201, made.text
            shown = (await client.get(f"{TASKS}/{ours['id']}")).json()
            assert (shown["name"], shown["retries"], shown["parent"]) == ("t", 3, first)
            assert (shown["depends_on"], shown["due_at"]) == ([first], "2999-01-01T00:00:00Z")

    run(check())


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"name": "a", "task_type": "b"}, "name and task_type"),
        ({"task_type": "b", "name": "a"}, "name and task_type"),
        ({"name": "a", "retries": 1, "max_retries": 2}, "retries and max_retries"),
        ({"name": "a", "retries": None, "max_retries": 2}, "retries and max_retries"),
    ],
)
def test_two_words_that_differ_are_refused(body: dict[str, Any], names: str) -> None:
    async def check() -> None:
        async with open_http() as house:
            for path, sent in ((TASKS, body), (f"{TASKS}/batch", {"tasks": [body]})):
                answer = await house.client.post(path, json=sent)
                assert answer.status_code == 400
                said = f"{names} are the same field, and differ; give one of them"
                assert said in answer.json()["error"]
            assert (await house.client.get(TASKS)).json()["total"] == 0
            query = await house.client.get(TASKS, params={"name": "a", "task_type": "b"})
            assert (query.status_code, query.json()["reason"]) == (400, "invalid")

    run(check())


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"name": ""}, "`$.name`"),
        ({"task_type": ""}, "`$.task_type`"),
        ({"max_retries": 1}, "field `task_type`"),
        ({"retries": 1}, "field `name`"),
        ({"task_type": "t", "dependencies": ["x"]}, "`$.dependencies[0]`"),
    ],
)
def test_what_is_wrong_is_told_in_the_words_of_the_request(body: Any, named: str) -> None:
    async def check() -> None:
        async with open_http() as house:
            alone = await house.client.post(TASKS, json=body)
            assert alone.status_code == 400
            assert named in alone.json()["error"]
            many = await house.client.post(f"{TASKS}/batch", json={"tasks": [body]})
            assert named.removeprefix("`$.").rstrip("`") in many.json()["error"]

    run(check())


@pytest.mark.feature("D28")
def test_an_answer_in_aliases_is_whole_and_has_none_of_our_words() -> None:
    async def check() -> None:
        async with open_http(names=Names.TASK_QUEUE) as house:
            client = house.client
            made = (await client.post(TASKS, json={"task_type": "t", "queue": "q"})).json()
            at = f"{TASKS}/{made['task_id']}"
            task = (await client.get(at)).json()
            ours = (await client.get(at, headers=OURS)).json()
            assert task.keys() >= WORDS.keys() | SHARED | {"failure"}
            assert ours.keys() >= {*WORDS.values()} | SHARED
            assert task.keys() & ({*WORDS.values()} - SHARED) == set()
            assert ours.keys() & WORDS.keys() == set()
            claim = {"queues": ["q"], "wait": 5}
            claimed = (await client.post("/api/v1/workers/w/claim", json=claim)).json()["tasks"][0]
            assert (claimed["task_id"], claimed["task_type"]) == (made["task_id"], "t")
            where = {"worker": "w", "fence": claimed["fence"]}
            failed = {"type": "ValueError", "message": "no cat", "verdict": "dead"}
            told = await client.post(
                f"/api/v1/attempts/{made['task_id']}/fail", params=where, json=failed
            )
            assert told.json()["task_id"] == made["task_id"]
            task, ours = (await client.get(at)).json(), (await client.get(at, headers=OURS)).json()
            assert (task["status"], task["error"]) == ("dead_letter", "ValueError: no cat")
            assert (ours["state"], ours["error"]) == ("dead", task["failure"])
            stats = (await client.get("/api/v1/stats")).json()
            assert stats["worker_count"] == 1
            assert (await client.get("/api/v1/stats", headers=OURS)).json()["workers"] == 1
            # The page is not confused by the setting.
            async with websockets.connect(f"{house.socket_url}/api/v1/pulse") as socket:
                assert json.loads(await socket.recv())["stats"]["workers"] == 1

    run(check())


def test_events_have_the_words_that_are_asked_for() -> None:
    async def check() -> None:
        async with open_http() as house:
            task = (await house.client.post(TASKS, json={"name": "t", "held": True})).json()["id"]
            for query, named in ((f"?task_id={task}", "task_id"), (f"?task={task}", "task")):
                url = f"{house.socket_url}/api/v1/events{query}"
                async with websockets.connect(url) as socket:
                    assert json.loads(await socket.recv())[named] == task
                    action = "play" if named == "task_id" else "hold"
                    await house.client.post(f"{TASKS}/{task}/{action}")
                    event = json.loads(await socket.recv())
                    assert (event[named], event["type"]) == (task, "event")
                    assert ("status" in event) is (named == "task_id")

    run(check())


def test_aliases_name_fields_that_exist() -> None:
    for shape, alias in aliases().items():
        used = {ours for ours in alias.names if ours in shape.__struct_fields__}
        assert used or alias.added, shape
        assert set(alias.without) <= set(shape.__struct_fields__), shape
        theirs = [alias.names[ours] for ours in used]
        assert len(set(theirs)) == len(theirs), shape
        assert not set(theirs) & (set(shape.__struct_fields__) - used), shape
        assert issubclass(shape, msgspec.Struct)
