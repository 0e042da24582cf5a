"""Flows over REST: submitted as JSON, run by workers over REST, shown, and added to."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import pytest

from jackalope.core.limits import INLINE_BYTES_MAX
from tests.doors.harness import run
from tests.doors.http.harness import open_http

FLOW: dict[str, Any] = {
    "name": "thumbnails",
    "queue": "images",
    "nodes": [
        {"node": "fetch", "name": "fetch", "args": ["cat.png"]},
        {"node": "small", "name": "resize", "args": [{"$result": "fetch"}], "group": "sizes"},
        {"node": "large", "name": "resize", "args": [{"$result": "fetch"}], "group": "sizes"},
        {
            "node": "publish",
            "name": "publish",
            "args": [{"$results": "sizes"}],
            "kwargs": {"first": {"deep": [{"$result": "fetch"}]}},
            "retries": 0,
        },
    ],
    "groups": [{"name": "sizes", "width": 1}],
}


async def claim(client: httpx.AsyncClient) -> dict[str, Any]:
    answer = await client.post("/api/v1/workers/w/claim", json={"queues": ["images"], "wait": 5})
    [task] = answer.json()["tasks"]
    found: dict[str, Any] = task
    return found


async def finish(client: httpx.AsyncClient, task: dict[str, Any], result: bytes) -> None:
    path = f"/api/v1/attempts/{task['task']}/finish"
    answer = await client.post(
        path,
        params={"worker": "w", "fence": task["fence"]},
        content=result,
        headers={"content-type": "application/octet-stream"},
    )
    assert answer.status_code == 200, answer.text


def of(task: dict[str, Any]) -> list[tuple[str, str, str, bytes | None]]:
    return [
        (
            each["node"],
            each["group"],
            each["state"],
            None if each["result"] is None else base64.b64decode(each["result"]),
        )
        for each in task["inputs"]
    ]


def test_a_flow_is_run_by_workers_over_rest() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            made = await client.post("/api/v1/flows", json=FLOW)
            assert made.status_code == 201, made.text
            flow_id, nodes = made.json()["id"], made.json()["nodes"]
            assert list(nodes) == ["fetch", "small", "large", "publish"]
            first = await claim(client)
            assert (first["task"], first["inputs"]) == (nodes["fetch"], [])
            assert first["headers"] == {"content": "json"}
            assert json.loads(base64.b64decode(first["payload"])) == [["cat.png"], {}]
            await finish(client, first, b'"cat"')
            for name in ("small", "large"):  # One after the other: the group has a width of 1.
                task = await claim(client)
                assert task["task"] == nodes[name]
                assert of(task) == [("fetch", "", "succeeded", b'"cat"')]
                await finish(client, task, json.dumps(name).encode())
            last = await claim(client)
            assert of(last) == [
                ("fetch", "", "succeeded", b'"cat"'),
                ("small", "sizes", "succeeded", b'"small"'),
                ("large", "sizes", "succeeded", b'"large"'),
            ]
            await finish(client, last, b'"done"')
            task = (await client.get(f"/api/v1/tasks/{flow_id}")).json()
            assert task["state"] == "succeeded"
            assert base64.b64decode(task["result"]) == b'"done"'

    run(check())


def test_a_flow_is_shown_and_listed() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            made = (await client.post("/api/v1/flows", json=FLOW)).json()
            await client.post("/api/v1/tasks", json={"name": "other", "queue": "other"})
            await finish(client, await claim(client), b'"cat"')
            await claim(client)
            shown = (await client.get(f"/api/v1/flows/{made['id']}")).json()
            assert (shown["name"], shown["state"], shown["phase"]) == (
                "thumbnails",
                "waiting",
                "running",
            )
            assert (shown["done"], shown["total"], shown["succeeded"]) == (1, 4, 1)
            [group] = shown["groups"]
            assert (group["name"], group["width"], group["total"], group["done"]) == (
                "sizes",
                1,
                2,
                0,
            )
            nodes = {each["node"]: each for each in shown["nodes"]}
            assert nodes["small"]["after"] == [made["nodes"]["fetch"]]
            assert (nodes["small"]["group"], nodes["publish"]["groups"]) == ("sizes", ["sizes"])
            [attempt] = nodes["fetch"]["attempts"]
            assert (attempt["worker"], attempt["outcome"]) == ("w", "finish")
            assert attempt["started_at"] <= attempt["ended_at"]
            [attempt] = nodes["small"]["attempts"]
            assert (attempt["outcome"], attempt["ended_at"]) == (None, None)
            page = (await client.get("/api/v1/flows")).json()
            [one] = page["flows"]  # The other task is none.
            assert (one["id"], one["done"], one["nodes"]) == (made["id"], 1, [])
            queries: tuple[tuple[dict[str, Any], int], ...] = (
                ({"state": "waiting"}, 1),
                ({"state": "succeeded"}, 0),
                ({"name": "thumbnails"}, 1),
                ({"text": "other"}, 0),
                ({"queue": "images", "limit": 1}, 1),
            )
            for query, count in queries:
                page = (await client.get("/api/v1/flows", params=query)).json()
                assert len(page["flows"]) == count
            part = (await client.get(f"/api/v1/flows/{made['id']}?limit=3")).json()
            rest = await client.get(
                f"/api/v1/flows/{made['id']}", params={"cursor": part["cursor"], "limit": 3}
            )
            names = [each["node"] for each in part["nodes"] + rest.json()["nodes"]]
            assert sorted(names) == sorted(nodes)
            killed = await client.post(f"/api/v1/tasks/{made['id']}/kill")
            assert killed.status_code == 200
            no_flow = await client.get(f"/api/v1/flows/{made['nodes']['fetch']}")
            assert (no_flow.status_code, no_flow.json()["reason"]) == (404, "unknown_task")

    run(check())


def test_an_ended_flow_is_listed_from_history() -> None:
    async def check() -> None:
        async with open_http() as house:
            client, broker = house.client, house.broker
            flow = {"name": "f", "nodes": [{"node": "a", "name": "t"}], "queue": "images"}
            made = (await client.post("/api/v1/flows", json={**flow, "tags": ["x"]})).json()
            await client.post("/api/v1/tasks", json={"name": "t", "tags": ["x"]})
            await finish(client, await claim(client), b"")
            await broker.flush()
            [one] = (await client.get("/api/v1/flows?state=succeeded")).json()["flows"]
            assert (one["id"], one["tags"], one["done"]) == (made["id"], ["x"], 1)
            shown = (await client.get(f"/api/v1/flows/{made['id']}")).json()
            assert [each["state"] for each in shown["nodes"]] == ["succeeded"]

    run(check())


def test_nodes_are_added_to_open_groups() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            flow = {
                "name": "crawl",
                "queue": "images",
                "nodes": [{"node": "join", "name": "join", "args": [{"$results": "pages"}]}],
                "groups": [{"name": "pages", "is_open": True}],
            }
            made = (await client.post("/api/v1/flows", json=flow)).json()
            path = f"/api/v1/flows/{made['id']}/nodes"
            more = {"nodes": [{"node": "p1", "name": "page", "group": "pages", "queue": "images"}]}
            added = await client.post(path, json=more)
            assert added.status_code == 201, added.text
            assert (await client.post(path, json=more)).json() == added.json()
            assert (await client.post(path, json={"close": ["pages"]})).status_code == 201
            late = await client.post(path, json={"nodes": [{**more["nodes"][0], "node": "p2"}]})
            assert late.status_code >= 400
            assert "pages" in late.json()["error"]
            await finish(client, await claim(client), b"1")
            assert of(await claim(client)) == [("p1", "pages", "succeeded", b"1")]

    run(check())


def test_a_large_input_is_fetched() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            await client.post("/api/v1/flows", json=FLOW)
            large = b"x" * (INLINE_BYTES_MAX + 1)
            await finish(client, await claim(client), large)
            task = await claim(client)
            [given] = task["inputs"]
            assert (given["result"], given["result_size"]) == (None, len(large))
            path = f"/api/v1/attempts/{task['task']}/input"
            query = {"worker": "w", "fence": task["fence"], "node": "fetch"}
            assert (await client.get(path, params=query)).content == large
            other = await client.get(path, params={**query, "node": "publish"})
            assert other.status_code == 400

    run(check())


@pytest.mark.parametrize(
    ("change", "texts"),
    [
        (
            {
                "nodes": [
                    {"node": "a", "name": "t", "after": ["b"]},
                    {"node": "b", "name": "t", "after": ["a"]},
                    {"node": "c", "name": "t", "args": [{"$result": "nobody"}]},
                ]
            },
            ("a -> b -> a", "nobody"),
        ),
        ({"nodes": [{"node": "a", "name": "t", "group": "g"}], "groups": []}, ("'g'",)),
        (
            {"nodes": [{"node": "a", "name": "t", "args": [1], "payload": "YQ=="}]},
            ("a: arguments and payload exclude each other",),
        ),
        ({"nodes": [{"node": "a", "name": "t", "colour": 1}]}, ("colour",)),
        ({"on_failure": "explode"}, ("explode",)),
    ],
)
def test_what_cannot_be_a_flow_is_refused_with_all_problems(
    change: dict[str, Any], texts: tuple[str, ...]
) -> None:
    async def check() -> None:
        async with open_http() as house:
            answer = await house.client.post("/api/v1/flows", json={**FLOW, **change})
            assert answer.status_code in (400, 409, 422), answer.text
            for text in texts:
                assert text in answer.json()["error"]
            assert (await house.client.get("/api/v1/tasks")).json()["tasks"] == []

    run(check())


def test_a_deadline_and_an_id() -> None:
    async def check() -> None:
        async with open_http() as house:
            client, flow_id = house.client, "0193b5c2-7d1e-7c3a-9f00-2b1c3d4e5f60"
            flow = {**FLOW, "id": flow_id, "deadline_seconds": 3600, "alias": "nightly"}
            assert (await client.post("/api/v1/flows", json=flow)).json()["id"] == flow_id
            shown = (await client.get(f"/api/v1/flows/{flow_id}")).json()
            assert shown["expires_at"] > shown["created_at"]
            assert shown["alias"] == "nightly"

    run(check())
