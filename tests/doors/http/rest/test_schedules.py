"""Schedules over REST."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.doors.harness import run
from tests.doors.http.harness import open_http

NIGHTLY = {
    "queue": "reports",
    "task": "report",
    "payload": base64.b64encode(b"[]").decode(),
    "cron": "0 3 * * *",
    "zone": "Europe/Berlin",
    "overlap": "skip",
    "catch_up_within": "2h",
}


def test_schedule_is_declared_changed_triggered_and_deleted() -> None:
    async def check() -> None:
        async with open_http() as house:
            client, path = house.client, "/api/v1/schedules/nightly"
            made = (await client.put(path, json=NIGHTLY)).json()
            assert (made["name"], made["state"], made["orphaned_at"]) == ("nightly", "active", None)
            assert made["settings"]["catch_up_within"] == "2h"
            assert made["settings"]["payload"] == NIGHTLY["payload"]
            assert len(made["upcoming"]) == 10
            assert made["next_at"] == made["upcoming"][0]
            assert made["runs"] == []
            assert (await client.put(path, json=NIGHTLY)).json() == made  # It is idempotent.
            paused = (await client.post(f"{path}/pause")).json()
            assert (paused["state"], paused["paused_by"]) == ("paused", "http")
            resumed = (await client.post(f"{path}/resume")).json()
            assert resumed["state"] == "active"
            ran = (await client.post(f"{path}/trigger", json={})).json()
            [task_id] = ran["tasks"]
            again = await client.post(f"{path}/trigger", json={})
            assert (again.status_code, again.json()["reason"]) == (409, "wrong_state")
            shown = (await client.get(path)).json()
            [first] = shown["runs"]
            assert (first["task"], first["how"], first["state"]) == (task_id, "trigger", "ready")
            explained = (await client.get(f"/api/v1/tasks/{task_id}/explain")).json()
            assert explained["causes"][-1]["why"] == "schedule"
            assert "'nightly'" in explained["causes"][-1]["text"]
            changed = (await client.put(path, json={"every": "10m", "overlap": "allow"})).json()
            assert (changed["settings"]["cron"], changed["settings"]["every"]) == ("", "10m")
            whole = (await client.get("/api/v1/schedules")).json()
            assert [each["name"] for each in whole["schedules"]] == ["nightly"]
            metrics = (await client.get("/metrics")).text
            assert 'jackalope_schedules{namespace="default",state="active"} 1.0' in metrics
            assert 'jackalope_schedule_fires_total{namespace="default"} 1.0' in metrics
            assert (await client.delete(path)).status_code == 204
            for method, end in (("GET", ""), ("DELETE", ""), ("POST", "/pause")):
                gone = await client.request(method, path + end)
                assert (gone.status_code, gone.json()["reason"]) == (404, "unknown_schedule")

    run(check())


def test_slots_that_passed_get_their_tasks_once() -> None:
    async def check() -> None:
        async with open_http() as house:
            client, path = house.client, "/api/v1/schedules/daily"
            await client.put(path, json={"queue": "q", "cron": "@daily"})
            times = {"since": "2026-03-28T00:00:00Z", "until": "2026-03-30T23:00:00Z"}
            done = (await client.post(f"{path}/backfill", json=times)).json()
            assert (len(done["tasks"]), done["known"], done["refused"]) == (3, 0, None)
            again = (await client.post(f"{path}/backfill", json=times)).json()
            assert (again["tasks"], again["known"]) == ([], 3)

    run(check())


def test_a_list_has_pages() -> None:
    async def check() -> None:
        async with open_http() as house:
            for number in range(5):
                wanted = {"queue": "q", "every": 60}
                await house.client.put(f"/api/v1/schedules/s{number}", json=wanted)
            names, cursor = [], ""
            while True:
                query: dict[str, str | int] = {"limit": 2, "cursor": cursor}
                page = (await house.client.get("/api/v1/schedules", params=query)).json()
                names += [each["name"] for each in page["schedules"]]
                cursor = page["cursor"]
                if cursor is None:
                    break
            assert names == ["s0", "s1", "s2", "s3", "s4"]

    run(check())


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({}, ["queue: must not be empty", "when: give one of"]),
        ({"queue": "q", "cron": "0 25 * * *", "zone": "Mars"}, ["bad hour", "no time zone"]),
        ({"queue": "q", "every": "1ms", "jitter": "1s"}, ["at least 1s", "jitter_us"]),
        (
            {
                "queue": "q",
                "every": 5,
                "start": "2030-01-02T00:00:00Z",
                "end": "2030-01-01T00:00:00Z",
            },
            ["end: "],
        ),
        ({"queue": "q", "every": 5, "payload": "A" * 88_000}, ["payload: 66000 bytes"]),
        ({"queue": "q", "every": 5, "overlap": "sometimes"}, ["sometimes"]),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_stored(
    wanted: dict[str, Any], words: list[str]
) -> None:
    async def check() -> None:
        async with open_http() as house:
            answer = await house.client.put("/api/v1/schedules/bad", json=wanted)
            assert answer.status_code == 400, answer.text
            assert all(word in answer.json()["error"] for word in words), answer.text
            assert (await house.client.get("/api/v1/schedules/bad")).status_code == 404

    run(check())
