"""Queues, batches, limits, workers and numbers over REST."""

from typing import Any

import pytest

from jackalope.broker.config.schema import Names
from tests.doors.harness import run
from tests.doors.http.harness import open_http
from tests.doors.http.rest.test_tasks import claim, finish, submit, submit_in_aliases


def test_queue_is_declared_changed_paused_and_deleted() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            wanted = {"preset": "gridlike", "policy": {"retry_base": "10s", "retention": "forever"}}
            made = (await client.put("/api/v1/queues/images", json=wanted)).json()
            assert (made["queue"], made["depth"], made["paused_by"]) == ("images", 0, None)
            policy = made["policy"]
            assert (policy["retries"], policy["retry_base"]) == (4, "10s")
            assert policy["retention"] == "forever"
            change = {"policy": {"timeout": 1.5}}
            changed = (await client.put("/api/v1/queues/images", json=change)).json()["policy"]
            assert (changed["timeout"], changed["retries"]) == ("1500ms", 4)
            paused = (await client.post("/api/v1/queues/images/pause")).json()
            assert paused["paused_by"] == "http"
            resumed = (await client.post("/api/v1/queues/images/resume")).json()
            assert resumed["paused_by"] is None
            await submit(client, queue="images")
            busy = await client.delete("/api/v1/queues/images")
            assert (busy.status_code, busy.json()["reason"]) == (409, "queue_not_empty")
            await finish(client, await claim(client, "images"), b"")
            await client.post("/api/v1/workers/w1/leave")
            assert (await client.delete("/api/v1/queues/images")).status_code == 204
            assert (await client.get("/api/v1/queues")).json() == {"queues": []}
            for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/pause")):
                gone = await client.request(method, f"/api/v1/queues/images{path}")
                assert (gone.status_code, gone.json()["reason"]) == (404, "unknown_queue")

    run(check())


@pytest.mark.parametrize(
    ("wanted", "status"),
    [
        ({"preset": "nobody"}, 400),
        ({"policy": {"retry_base": "soon"}}, 400),
        ({"policy": {"retries": -1}}, 400),
        ({"policy": {"colour": "red"}}, 400),
        ({"policy": {"result_becomes": "images"}}, 409),
    ],
)
def test_bad_policies_are_refused(wanted: dict[str, Any], status: int) -> None:
    async def check() -> None:
        async with open_http() as house:
            answer = await house.client.put("/api/v1/queues/images", json=wanted)
            assert answer.status_code == status, answer.text

    run(check())


def test_batches_with_their_tasks() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            await client.put("/api/v1/queues/b", json={"policy": {"batch_size": 2}})
            ids = [await submit(client, queue="b") for _ in range(3)]
            batches = (await client.get("/api/v1/queues/b/batches")).json()["batches"]
            assert [(each["number"], each["is_full"]) for each in batches] == [
                (2, False),
                (1, True),
            ]
            first = (await client.get("/api/v1/queues/b/batches/1")).json()
            assert (first["counts"], first["tasks"]["total"]) == ({"ready": 2}, 2)
            assert [task["id"] for task in first["tasks"]["tasks"]] == ids[:2]
            for path in ("b/batches/3", "b/batches/x", "none/batches", "none/batches/1"):
                assert (await client.get(f"/api/v1/queues/{path}")).status_code == 404

    run(check())


def test_limits_of_tags() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            limited = await client.put("/api/v1/limits/gpu", json={"limit": 1})
            assert limited.json() == {"tag": "gpu", "limit": 1, "in_flight": 0, "waiting": 0}
            for _ in range(2):
                await submit(client, tags=["gpu"])
            asked = {"queues": ["default"], "count": 2}
            claimed = await client.post("/api/v1/workers/w1/claim", json=asked)
            assert len(claimed.json()["tasks"]) == 1
            (limit,) = (await client.get("/api/v1/limits")).json()["limits"]
            assert limit["in_flight"] == 1
            assert (await client.delete("/api/v1/limits/gpu")).status_code == 204
            assert (await client.delete("/api/v1/limits/gpu")).status_code == 404

    run(check())


@pytest.mark.feature("D28")
def test_stats_and_workers_have_the_fields_of_the_task_api() -> None:
    async def check() -> None:
        async with open_http(names=Names.TASK_QUEUE) as house:
            client = house.client
            for priority in (250, 150, 100, 99, 0):
                await submit_in_aliases(client, priority=priority)
            stats = (await client.get("/api/v1/stats")).json()
            assert (stats["pending_count"], stats["in_progress_count"]) == (5, 0)
            assert stats["queue_depth_by_priority"] == {"high": 1, "normal": 2, "low": 2}
            await finish(client, await claim(client), b"")
            await claim(client)
            stats = (await client.get("/api/v1/stats")).json()
            assert (stats["pending_count"], stats["in_progress_count"]) == (3, 1)
            assert (stats["completed_last_hour"], stats["failed_last_hour"]) == (1, 0)
            assert (stats["worker_count"], stats["ended"]) == (1, {"succeeded": 1})
            assert stats["avg_processing_time_ms"] > 0
            (worker,) = (await client.get("/api/v1/workers")).json()
            assert worker.keys() >= {
                "worker_id",
                "hostname",
                "pid",
                "current_tasks",
                "cpu_usage_percent",
                "memory_usage_mb",
                "last_heartbeat",
                "status",
                "registered_at",
            }
            assert (await client.get("/api/v1/workers/w1")).json() == worker
            assert (await client.get("/api/v1/workers/w2")).status_code == 404

    run(check())
