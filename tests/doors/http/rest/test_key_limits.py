"""Limits by key over REST: declared, listed and deleted, and closed by a worker's verdict."""

from __future__ import annotations

import asyncio

from jackalope.wire.views import json_name
from tests.doors.http.harness import open_http


def test_a_limit_is_declared_changed_listed_and_deleted() -> None:
    async def scene() -> None:
        async with open_http() as house:
            client, at = house.client, "/api/v1/key-limits/per-user"
            wanted = {"queue": "q", "keys": ["user"], "concurrency": 1, "rate": 9, "per": "1m"}
            made = await client.put(at, json=wanted)
            assert (made.status_code, made.json()["settings"]["per"]) == (200, "1m")
            changed = (await client.put(at, json={"rate": 5})).json()["settings"]
            assert (changed["rate"], changed["concurrency"]) == (5, 1)
            for user in ("ada", "ada", "bob"):
                task = {"name": "t", "keys": {"user": user}, "queue": "q"}
                assert (await client.post("/api/v1/tasks", json=task)).status_code == 201
            claim = {"queues": ["q"], "count": 3}
            claimed = (await client.post("/api/v1/workers/w/claim", json=claim)).json()["tasks"]
            assert len(claimed) == 2
            [limit] = (await client.get("/api/v1/key-limits")).json()["key_limits"]
            assert (limit["in_flight"], limit["waiting"], limit["gate_count"]) == (2, 1, 2)
            assert limit["gates"][0]["values"] == ["ada"]
            wrong = await client.put(at, json={"rate": 1, "cost": 3})
            assert (wrong.status_code, "raise burst" in wrong.json()["error"]) == (400, True)
            assert (await client.delete(at)).status_code == 204
            assert (await client.delete(at)).status_code == 404
            assert (await client.get(at)).status_code == 404

    asyncio.run(scene())


def test_a_throttled_attempt_closes_its_key_and_counts_as_no_failure() -> None:
    async def scene() -> None:
        async with open_http() as house:
            client = house.client
            wanted = {"keys": ["host"], "concurrency": 5}
            await client.put("/api/v1/key-limits/hosts", json=wanted)
            for _ in range(2):
                task = {"name": "t", "keys": {"host": "a"}, "queue": "q"}
                await client.post("/api/v1/tasks", json=task)
            claim = {"queues": ["q"], "count": 1}
            [given] = (await client.post("/api/v1/workers/w/claim", json=claim)).json()["tasks"]
            told = {
                "type": "Throttled",
                "verdict": "throttled",
                "retry_after_seconds": 600,
                "key": "host",
            }
            at = f"/api/v1/attempts/{given['task']}/fail?worker=w&fence={given['fence']}"
            assert (await client.post(at, json=told)).status_code == 200
            again = await client.post("/api/v1/workers/w/claim", json=claim)
            assert again.json()["tasks"] == []
            seen = (await client.get(f"/api/v1/tasks/{given['task']}")).json()
            assert (seen["state"], seen["failures"]) == ("ready", 0)
            limit = (await client.get("/api/v1/key-limits/hosts")).json()
            assert limit["waiting"] == 2
            assert limit[json_name("opens_us")] is not None

    asyncio.run(scene())
