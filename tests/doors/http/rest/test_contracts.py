"""Contracts over REST: declared, shown, held and deleted."""

from __future__ import annotations

import base64
import json

from tests.doors.harness import run
from tests.doors.http.harness import open_http

RESIZE = {
    "version": "1",
    "content": "json",
    "doc": "Make a picture smaller.",
    "parameters": [
        {"name": "path", "schema": {"type": "string"}, "required": True},
        {"name": "width", "schema": {"type": "integer"}, "default": 320},
    ],
}


def task(*args: object) -> dict[str, str]:
    payload = base64.b64encode(json.dumps([args, {}]).encode()).decode()
    return {"queue": "images", "name": "resize", "payload": payload}


def test_contract_is_declared_held_and_deleted() -> None:
    async def check() -> None:
        async with open_http() as house:
            client, path = house.client, "/api/v1/contracts"
            assert (await client.put("/api/v1/queues/images", json={})).status_code == 200
            wanted = {"queues": ["images"], "contracts": {"resize": RESIZE}}
            assert (await client.post(path, json=wanted)).status_code == 204
            [shown] = (await client.get(path)).json()["contracts"]
            assert shown["signature"] == "resize(path: string, width: integer = 320)"
            assert (shown["queue"], shown["workers"], shown["doc"]) == ("images", 0, RESIZE["doc"])
            assert shown["arguments"]["required"] == ["path"]
            assert (await client.get(f"{path}/resize?queue=images")).json()["contracts"] == [shown]
            assert (await client.get(f"{path}/resize?queue=other")).status_code == 404
            refused = await client.post("/api/v1/tasks", json=task(7))
            assert (refused.status_code, refused.json()["reason"]) == (400, "invalid")
            assert "argument 'path': expected string, got 7" in refused.json()["error"]
            both = {"tasks": [task("a.png"), task("a.png", "wide")]}
            answer = (await client.post("/api/v1/tasks/batch", json=both)).json()
            assert (answer["accepted"], answer["tasks"][0]["error"]) == (1, None)
            assert "'width'" in answer["tasks"][1]["error"]["error"]
            changed = await client.put(
                "/api/v1/queues/images", json={"policy": {"on_misfit": "warn"}}
            )
            assert changed.status_code == 200, changed.text
            warned = (await client.post("/api/v1/tasks", json=task(7))).json()
            assert "argument 'path': expected string" in warned["warning"]
            assert "warning" not in (await client.post("/api/v1/tasks", json=task("b"))).json()
            assert (await client.delete(f"{path}/resize?queue=images")).status_code == 204
            assert (await client.delete(f"{path}/resize?queue=images")).status_code == 404
            assert (await client.get(path)).json() == {"contracts": []}

    run(check())


def test_bad_contracts_are_refused() -> None:
    async def check() -> None:
        async with open_http() as house:
            bad = {"parameters": [{"name": ""}, {"name": "", "kind": "odd"}]}
            wanted = {"queues": ["images"], "contracts": {"resize": bad}}
            refused = await house.client.post("/api/v1/contracts", json=wanted)
            assert refused.status_code == 400
            assert "resize: " in refused.json()["error"]

    run(check())
