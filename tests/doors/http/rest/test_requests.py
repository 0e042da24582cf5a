"""Requests and answers over REST."""

import base64

from jackalope.core.shapes.request import identity_of
from tests.doors.harness import run
from tests.doors.http.harness import open_http
from tests.doors.http.rest.test_tasks import claim, finish


def body_of(payload: bytes = b"hello", **fields: object) -> dict[str, object]:
    encoded = base64.b64encode(payload).decode()
    return {"name": "resize", "queue": "images", "payload": encoded, **fields}


def test_a_request_is_run_once_and_its_answer_kept() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            first = await client.post("/api/v1/requests", json=body_of(version="2"))
            assert first.status_code == 201, first.text
            miss = first.json()
            identity = identity_of("images", "resize", "", "2", b"hello").hex()
            assert (miss["how"], miss["identity"], miss["made_at"]) == ("miss", identity, None)
            joined = (await client.post("/api/v1/requests", json=body_of(version="2"))).json()
            assert (joined["how"], joined["task"]) == ("joined", miss["task"])
            under_way = (await client.get(f"/api/v1/requests/{identity}")).json()
            assert (under_way["state"], under_way["task"]) == ("ready", miss["task"])
            await finish(client, await claim(client, "images"), b"small")
            hit = (await client.post("/api/v1/requests", json=body_of(version="2"))).json()
            assert (hit["how"], hit["task"], hit["worker"]) == ("hit", miss["task"], "w1")
            result = await client.get(f"/api/v1/tasks/{hit['task']}/result")
            assert result.content == b"small"
            kept = (await client.get(f"/api/v1/requests/{identity}")).json()
            assert (kept["state"], kept["uses"], kept["size"]) == ("succeeded", 2, 5)
            shown = (await client.get(f"/api/v1/tasks/{hit['task']}")).json()
            assert (shown["how"], shown["answer"]) == ("miss", kept)
            for same, how in (("refresh", "refresh"), ("run", "bypass")):
                asked = body_of(version="2", same=same)
                served = (await client.post("/api/v1/requests", json=asked)).json()
                assert served["how"] == how
                own = (await client.get(f"/api/v1/tasks/{served['task']}")).json()
                assert (own["how"], own["answer"] is None) == (how, how == "bypass")
            metrics = (await client.get("/metrics")).text
            for how in ("hit", "miss", "joined", "refresh", "bypass"):
                labels = f'how="{how}",namespace="default",queue="images"'
                assert f"jackalope_requests_total{{{labels}}} 1.0" in metrics
            assert 'jackalope_cache_bytes{namespace="default",queue="images"} 5.0' in metrics

    run(check())


def test_a_task_of_a_queue_that_shares_has_the_id_of_who_serves_it() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            await client.put("/api/v1/queues/images", json={"policy": {"same": "cached"}})
            first = (await client.post("/api/v1/tasks", json=body_of())).json()
            again = (await client.post("/api/v1/tasks", json=body_of())).json()
            tasks = {"tasks": [body_of(), body_of(b"other")]}
            many = (await client.post("/api/v1/tasks/batch", json=tasks)).json()["tasks"]
            raw = await client.post("/api/v1/tasks/raw?name=resize&queue=images", content=b"hello")
            assert first == again
            assert many[0]["id"] == raw.json()["id"] == first["id"]
            assert many[1]["id"] != first["id"]
            alone = (await client.post("/api/v1/tasks", json=body_of(same="run"))).json()
            assert alone["id"] != first["id"]

    run(check())


def test_a_large_payload_has_an_identity_too() -> None:
    async def check() -> None:
        async with open_http() as house:
            large = bytes(100_000)
            first = (await house.client.post("/api/v1/requests", json=body_of(large))).json()
            again = (await house.client.post("/api/v1/requests", json=body_of(large))).json()
            assert (first["how"], again["how"]) == ("miss", "joined")
            assert first["identity"] == identity_of("images", "resize", "", "", large).hex()

    run(check())


def test_answers_are_listed_pinned_and_purged() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            for payload in (b"a", b"b"):
                await client.post("/api/v1/requests", json=body_of(payload))
                await finish(client, await claim(client, "images"), payload)
            listed = (await client.get("/api/v1/cache?queue=images")).json()["answers"]
            assert [each["size"] for each in listed] == [1, 1]
            meant = {"identities": [listed[0]["identity"], "0" * 64]}
            pinned = (await client.post("/api/v1/cache/pin", json=meant)).json()
            assert pinned == {"changed": 1, "unknown": ["0" * 64], "more": False}
            shown = (await client.get(f"/api/v1/requests/{listed[0]['identity']}")).json()
            assert shown["pinned_by"] == "http"
            assert (await client.post("/api/v1/cache/unpin", json=meant)).json()["changed"] == 1
            purge = {"name": "resize", "older_than": "2999-01-01T00:00:00Z"}
            assert (await client.post("/api/v1/cache/purge", json=purge)).json()["changed"] == 2
            assert (await client.get("/api/v1/cache")).json() == {"answers": []}

    run(check())


def test_what_is_no_request_is_not_there() -> None:
    async def check() -> None:
        async with open_http() as house:
            for identity in ("0" * 64, "abc", "xyz"):
                answer = await house.client.get(f"/api/v1/requests/{identity}")
                assert (answer.status_code, answer.json()["reason"]) == (404, "unknown_request")
            bad = await house.client.post("/api/v1/requests", json=body_of(same="twice"))
            assert bad.status_code == 400

    run(check())


def test_paced_tasks_are_replaced_throttled_and_counted() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            pace: dict[str, object] = {"how": "debounce", "key": "k", "span_seconds": 60}
            first = (await client.post("/api/v1/tasks", json=body_of(pace=pace))).json()
            again = (await client.post("/api/v1/tasks", json=body_of(b"new", pace=pace))).json()
            assert again["id"] == first["id"]
            shown = (await client.get(f"/api/v1/tasks/{first['id']}/history")).json()
            assert [each["what"] for each in shown["history"]] == ["submit", "replaced"]
            pace = {"how": "throttle", "span_seconds": 60}
            first = (await client.post("/api/v1/tasks", json=body_of(pace=pace))).json()
            refused = await client.post("/api/v1/tasks", json=body_of(pace=pace))
            assert (refused.status_code, refused.json()["reason"]) == (429, "throttled")
            assert 0 < int(refused.headers["retry-after"]) <= 60
            dropped = body_of(pace={**pace, "drop": True})
            assert (await client.post("/api/v1/tasks", json=dropped)).json() == first
            wrong = body_of(pace={"how": "debounce", "at_most_seconds": 1, "drop": True}, alias="a")
            refused = await client.post("/api/v1/tasks", json=wrong)
            assert refused.status_code == 400
            for word in ("span: must be more than 0", "drop: is for", "alias: cannot go"):
                assert word in refused.text
            metrics = (await client.get("/metrics")).text
            for how in ("replaced", "joined"):
                labels = f'how="{how}",namespace="default",queue="images"'
                assert f"jackalope_requests_total{{{labels}}} 1.0" in metrics

    run(check())
