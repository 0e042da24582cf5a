"""Needs over REST: what a task asks of its worker is taken, or refused and not stored."""

from typing import Any

import pytest

from tests.doors.harness import run
from tests.doors.http.harness import open_http

TASKS = "/api/v1/tasks"
WORKERS = "/api/v1/workers"


def test_a_need_that_no_worker_can_meet_is_accepted_and_explained() -> None:
    async def check() -> None:
        async with open_http() as house:
            body = {"name": "t", "queue": "q", "needs": {"gpu": 4}, "prefer": {"zone": "a"}}
            made = await house.client.post(TASKS, json=body)
            assert made.status_code == 201, made.text
            many = await house.client.post(f"{TASKS}/batch", json={"tasks": [body, body]})
            assert many.json()["accepted"] == 2
            claim = {"queues": ["q"], "wait": 0}
            claimed = await house.client.post("/api/v1/workers/w/claim", json=claim)
            assert claimed.json()["tasks"] == []
            why = await house.client.get(f"{TASKS}/{made.json()['id']}/explain")
            assert "needs gpu=4" in why.text
            assert "no worker can ever run it" in why.text
            assert "'w', lacks 4 gpu" in why.text
            shown = (await house.client.get(f"{TASKS}/{made.json()['id']}")).json()
            assert (shown["needs"], shown["prefer"]) == ({"gpu": 4}, {"zone": ["a"]})
            assert (shown["avoid"], shown["sticky"]) == ({}, "")

    run(check())


def test_a_worker_that_joins_or_claims_says_what_it_has() -> None:
    async def check() -> None:
        async with open_http() as house:
            task = {"name": "t", "queue": "q", "needs": {"gpu": 1, "mem": "1GiB", "arch": "arm64"}}
            for _ in range(3):
                assert (await house.client.post(TASKS, json=task)).status_code == 201
            join = {"queues": ["q"], "labels": {"arch": "arm64"}}
            join["resources"] = {"gpu": 2, "mem": "64GiB", "cpu": 0.5}
            assert (await house.client.post(f"{WORKERS}/w/join", json=join)).status_code == 200
            claim = {"queues": ["q"], "wait": 0, "count": 9}
            claimed = await house.client.post(f"{WORKERS}/w/claim", json=claim)
            assert len(claimed.json()["tasks"]) == 2
            shown = (await house.client.get(f"{WORKERS}/w")).json()
            assert shown["resources"] == {"gpu": 2, "mem": 64 * 2**30, "cpu": 0.5}
            assert shown["used"] == {"gpu": 2, "mem": 2 * 2**30}
            more = {**claim, "labels": {"arch": "arm64"}, "resources": {"gpu": 1, "mem": "1GiB"}}
            claimed = await house.client.post(f"{WORKERS}/new/claim", json=more)
            assert len(claimed.json()["tasks"]) == 1

    run(check())


@pytest.mark.parametrize("amount", [-1, True, "much", "1.5x", [1]])
def test_resources_that_are_not_sound_are_refused(amount: object) -> None:
    async def check() -> None:
        async with open_http() as house:
            body = {"queues": ["q"], "resources": {"gpu": amount}}
            for path in ("join", "claim"):
                answer = await house.client.post(f"{WORKERS}/w/{path}", json=body)
                assert answer.status_code == 400, answer.text
                assert "resources" in answer.json()["error"]
            assert (await house.client.get(WORKERS)).json() == []

    run(check())


def test_a_raw_task_has_its_needs_in_the_query() -> None:
    async def check() -> None:
        async with open_http() as house:
            query = "name=t&need=gpu=1&need=mem=8GiB&need=arch=arm64&need=arch=amd64"
            more = "&prefer=zone=a&avoid=tier=spot&sticky=user-1"
            made = await house.client.post(f"{TASKS}/raw?{query}{more}", content=b"body")
            assert made.status_code == 201, made.text
            shown = (await house.client.get(f"{TASKS}/{made.json()['id']}")).json()
            assert shown["needs"] == {"gpu": 1, "mem": 8 * 2**30, "arch": ["amd64", "arm64"]}
            assert (shown["prefer"], shown["avoid"]) == ({"zone": ["a"]}, {"tier": ["spot"]})
            assert shown["sticky"] == "user-1"
            for wrong in ("need=gpu", "need=gpu=-1", "need=gpu=0", "prefer==a", "avoid=zone="):
                answer = await house.client.post(f"{TASKS}/raw?name=t&{wrong}", content=b"body")
                assert answer.status_code == 400, wrong
            assert (await house.client.get(TASKS)).json()["total"] == 1

    run(check())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"needs": {"gpu": -1}}, "needs"),
        ({"needs": {"gpu": 0}}, "needs"),
        ({"needs": {"mem": "0k"}}, "needs: mem: must be more than 0"),
        ({"needs": {"gpu": True}}, "needs"),
        ({"needs": {"": 1}}, "needs"),
        ({"needs": ["gpu"]}, "needs"),
        ({"prefer": {"zone": 1}}, "prefer"),
        ({"avoid": {"zone": []}}, "avoid"),
    ],
)
def test_needs_that_are_not_sound_are_refused(given: dict[str, Any], told: str) -> None:
    async def check() -> None:
        async with open_http() as house:
            body = {"name": "t", **given}
            for path, sent in ((TASKS, body), (f"{TASKS}/batch", {"tasks": [body]})):
                answer = await house.client.post(path, json=sent)
                assert answer.status_code == 400, answer.text
                assert told in answer.json()["error"]
            assert (await house.client.get(TASKS)).json()["total"] == 0

    run(check())
