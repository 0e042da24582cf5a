"""What a scrape shows."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from jackalope.broker.config.schema import Names
from jackalope.broker.telemetry.meter import QUEUES_MAX
from jackalope.core.api_key import Permission
from jackalope.core.commands import StartAttempts
from tests.doors.harness import run, spec
from tests.doors.http.harness import HttpHouse, open_http
from tests.doors.http.native import Native, start
from tests.doors.http.test_dashboard import make_key

#: The names, labels and kinds that dashboards for other task queues know.
KNOWN = {
    "tq_tasks_total": ("counter", {"status", "task_type"}),
    "tq_tasks_pending": ("gauge", set()),
    "tq_tasks_in_progress": ("gauge", set()),
    "tq_task_processing_duration_seconds": ("histogram", {"task_type"}),
    "tq_workers_connected": ("gauge", set()),
    "tq_broker_queue_depth": ("gauge", {"priority"}),
    "tq_raft_term": ("gauge", set()),
    "tq_raft_leader": ("gauge", set()),
}

Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]


async def scrape(house: HttpHouse, *, with_aliases: bool = False) -> Samples:
    """Return every sample by name and labels; those of other task queues' names too, if wanted."""
    ours = await read(house, "/metrics")
    assert not any(name.startswith("tq_") for name in ours)
    if not with_aliases:
        return ours
    aliases = await read(house, "/metrics?names=task_queue")
    assert not any(name.startswith("jackalope_") for name in aliases)
    return aliases | ours


async def read(house: HttpHouse, path: str) -> Samples:
    answer = await house.client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    found: Samples = {}
    for family in parse_text(answer.text):
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in found.setdefault(sample.name, {}), "a sample is shown twice"
            found[sample.name][labels] = sample.value
    return found


@pytest.mark.feature("D37")
def test_known_names_and_labels() -> None:
    async def check() -> None:
        async with open_http() as house, Native(house) as native:
            client, worker = await native.peer(), await native.peer()
            await worker.join()
            await client.submit(spec(), spec(), spec("other-queue", priority=220))
            taken = await worker.take(1)
            await start(worker, *taken)
            await worker.finish(*taken)
            answer = await house.client.get("/metrics", params={"names": "task_queue"})
            families = {family.name: family for family in parse_text(answer.text)}
            assert not [name for name in families if name.startswith("jackalope_")]
            for name, (kind, labels) in KNOWN.items():
                family = families[name.removesuffix("_total")]
                assert family.type == kind, name
                shown = [s for s in family.samples if not s.name.endswith("_created")]
                assert {frozenset(set(s.labels) - {"le"}) for s in shown} == {frozenset(labels)}
            (term,) = families["tq_raft_term"].samples
            assert term.value == house.broker.engine.epoch == 1

    run(check())


def test_numbers_are_those_of_the_tasks() -> None:
    async def check() -> None:
        async with open_http() as house, Native(house) as native:
            client, worker = await native.peer(), await native.peer()
            await worker.join(slots=3)
            await client.submit(*(spec() for _ in range(5)), spec("idle", priority=220))
            taken = await worker.take(3)
            await start(worker, *taken)
            await worker.finish(*taken[:2])
            shown = await scrape(house, with_aliases=True)
            tasks = {
                (dict(k)["status"], dict(k)["task_type"]): v
                for k, v in shown["tq_tasks_total"].items()
            }
            assert tasks["pending", "q"] == 5
            assert tasks["completed", "q"] == 2
            assert tasks["in_progress", "q"] == 5
            assert tasks["pending", "idle"] == 1
            assert shown["tq_tasks_pending"] == {(): 1}
            assert shown["tq_tasks_in_progress"] == {(): 3}
            assert shown["tq_workers_connected"] == {(): 1}
            assert shown["tq_broker_queue_depth"][("priority", "high"),] == 1
            assert shown["tq_task_processing_duration_seconds_count"][("task_type", "q"),] == 2
            assert shown["jackalope_workers"][("state", "active"),] == 1
            assert shown["jackalope_sessions"] == {(): 2}
            tasks_by_state = {
                (dict(k)["queue"], dict(k)["state"]): v for k, v in shown["jackalope_tasks"].items()
            }
            assert tasks_by_state == {
                ("q", "assigned"): 2,
                ("q", "running"): 1,
                ("idle", "ready"): 1,
            }
            assert shown["jackalope_journal_append_seconds_count"][()] >= 4

    run(check())


def test_histograms_are_sound() -> None:
    """Buckets grow, the last one is the count, and bounds and sums are in seconds."""

    async def check() -> None:
        async with open_http() as house, Native(house) as native:
            client, worker = await native.peer(), await native.peer()
            await worker.join(slots=8)
            await client.submit(*(spec() for _ in range(8)))
            taken = await worker.take(8)
            await start(worker, *taken)
            await worker.finish(*taken)
            answer = await house.client.get("/metrics")
            for family in parse_text(answer.text):
                if family.type == "histogram":
                    for labels, buckets, count in histograms(family.samples):
                        values = [value for _, value in buckets]
                        assert values == sorted(values), (family.name, labels)
                        bounds = [bound for bound, _ in buckets]
                        assert bounds == sorted(bounds)
                        assert bounds[-1] == float("inf")
                        assert values[-1] == count
            stages = {
                dict(labels)["stage"]: count
                for labels, count in (await scrape(house))["jackalope_stage_seconds_count"].items()
            }
            assert stages == {"queued": 8, "assigned": 8, "started": 8, "finished": 8}

    run(check())


def histograms(samples: list) -> Iterator[tuple]:  # type: ignore[type-arg]
    found: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    counts = {}
    for sample in samples:
        labels = {name: value for name, value in sample.labels.items() if name != "le"}
        key = tuple(sorted(labels.items()))
        if sample.name.endswith("_bucket"):
            found.setdefault(key, []).append((float(sample.labels["le"]), sample.value))
        elif sample.name.endswith("_count"):
            counts[key] = sample.value
    return ((key, buckets, counts[key]) for key, buckets in found.items())


@pytest.mark.feature("D37")
def test_task_type_is_the_name_of_the_task() -> None:
    async def check() -> None:
        async with open_http() as house, Native(house) as native:
            client, worker = await native.peer(), await native.peer()
            await worker.join(slots=3)
            await client.submit(spec(name="resize"), spec(name="resize"), spec(name="mail"))
            taken = await worker.take(3)
            await start(worker, *taken)
            await worker.finish(*taken)
            shown = await scrape(house, with_aliases=True)
            done = {
                dict(labels)["task_type"]: number
                for labels, number in shown["tq_tasks_total"].items()
                if dict(labels)["status"] == "completed"
            }
            assert done == {"resize": 2, "mail": 1}
            took = shown["tq_task_processing_duration_seconds_count"]
            assert took[("task_type", "resize"),] == 2

    run(check())


def test_labels_are_bounded() -> None:
    async def check() -> None:
        async with open_http() as house, Native(house) as native:
            client = await native.peer()
            await client.submit(*(spec(f"queue-{number}") for number in range(QUEUES_MAX + 20)))
            shown = await scrape(house, with_aliases=True)
            types = {dict(labels)["task_type"] for labels in shown["tq_tasks_total"]}
            assert len(types) == QUEUES_MAX + 1
            assert "other" in types
            queues = {dict(labels)["queue"] for labels in shown["jackalope_tasks"]}
            assert len(queues) == QUEUES_MAX + 1
            for number in range(50):
                await house.client.get(f"/nowhere/{number}")
                await house.client.get(f"/api/v1/tasks/{number:032x}")
            for verb in ("PROPFIND", "MKCOL", "LOCK"):
                await house.client.request(verb, "/health")
            shown = await scrape(house, with_aliases=True)
            seen = [dict(labels) for labels in shown["jackalope_http_requests_total"]]
            assert {"GET", "other"} == {each["method"] for each in seen}
            assert not [each for each in seen if re.search(r"\d{3}", each["path"])]

    run(check())


def test_limits_by_key_are_counted_and_their_values_are_no_labels() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            wanted = {"keys": ["user"], "concurrency": 2, "on_full": "cancel_newest"}
            await client.put("/api/v1/key-limits/per-user", json=wanted)
            for user in ("ada", "ada", "ada", "bob"):
                task = {"name": "t", "keys": {"user": user}, "queue": "q"}
                assert (await client.post("/api/v1/tasks", json=task)).status_code == 201
            claim = {"queues": ["q"], "count": 1}
            [given] = (await client.post("/api/v1/workers/w/claim", json=claim)).json()["tasks"]
            await client.post("/api/v1/workers/w/claim", json=claim)
            at = f"/api/v1/attempts/{given['task']}/fail?worker=w&fence={given['fence']}"
            verdict = {"verdict": "throttled", "retry_after_seconds": 600, "key": "user"}
            assert (await client.post(at, json={"type": "E"} | verdict)).status_code == 200
            shown = await scrape(house)
            names = ("in_flight", "waiting", "throttled_total", "cancelled_total")
            label = (("limit", "per-user"), ("namespace", "default"))
            numbers = [shown[f"jackalope_limit_{name}"] for name in names]
            assert numbers == [{label: 1}, {label: 2}, {label: 1}, {label: 1}]

    run(check())


def test_refusals_and_requests_are_counted() -> None:
    async def check() -> None:
        async with open_http() as house, Native(house) as native:
            client = await native.peer()
            await house.client.get("/nowhere")
            await client.ask_no(StartAttempts(0, []))
            shown = await scrape(house)
            refused = shown["jackalope_refusals_total"]
            key = (("command", "StartAttempts"), ("reason", "unknown_session"))
            assert refused[key] == 1
            requests = shown["jackalope_http_requests_total"]
            assert requests[("method", "GET"), ("path", "other"), ("status", "404")] == 1
            shown = await scrape(house)
            requests = shown["jackalope_http_requests_total"]
            assert requests[("method", "GET"), ("path", "/metrics"), ("status", "200")] == 1

    run(check())


def test_openmetrics_if_asked_for() -> None:
    async def check() -> None:
        async with open_http() as house, Native(house) as native:
            client = await native.peer()
            await client.submit(spec())
            accept = {"accept": "application/openmetrics-text; version=1.0.0"}
            answer = await house.client.get("/metrics", headers=accept)
            assert answer.headers["content-type"].startswith("application/openmetrics-text")
            assert answer.text.endswith("# EOF\n")
            families = {family.name for family in parse_openmetrics(answer.text)}  # type: ignore[no-untyped-call]
            assert {"jackalope_tasks", "jackalope_stage_seconds"} <= families

    run(check())


def test_namespaces_stand_apart_in_ours() -> None:
    async def check() -> None:
        async with open_http() as house, Native(house) as native:
            one, other = await native.peer(), await native.peer("team")
            await one.submit(spec())
            await other.submit(spec(), spec())
            shown = await scrape(house, with_aliases=True)
            submitted = shown["jackalope_tasks_submitted_total"]
            assert submitted[("namespace", "team"), ("queue", "q")] == 2
            assert submitted[("namespace", "default"), ("queue", "q")] == 1
            assert shown["tq_tasks_total"][("status", "pending"), ("task_type", "q")] == 3

    run(check())


def test_history_is_not_behind_after_a_restart(tmp_path: Path) -> None:
    async def live() -> float:
        async with open_http(tmp_path) as house, Native(house) as native:
            client = await native.peer()
            for _ in range(20):
                await client.submit(spec())
            return (await scrape(house))["jackalope_history_lag_batches"][()]

    async def check() -> None:
        await live()
        assert await live() <= 25

    run(check())


@pytest.mark.parametrize("is_on_disk", [True, False])
def test_counters_begin_anew_and_numbers_of_the_hour_do_not(
    tmp_path: Path, is_on_disk: bool
) -> None:
    folder = tmp_path if is_on_disk else None

    async def live() -> tuple[Samples, dict[str, float]]:
        async with open_http(folder) as house, Native(house) as native:
            stats = (await house.client.get("/api/v1/stats")).json()
            before = await scrape(house, with_aliases=True), stats
            client, worker = await native.peer(), await native.peer()
            await worker.join(slots=4)
            await client.submit(*(spec() for _ in range(4)))
            taken = await worker.take(4)
            await start(worker, *taken)
            await worker.finish(*taken)
            return before

    async def check() -> None:
        await live()
        shown, stats = await live()
        assert "tq_tasks_total" not in shown
        assert stats["succeeded_last_hour"] == (4 if is_on_disk else 0)

    run(check())


def test_an_answer_has_our_names_or_the_aliases() -> None:
    async def check() -> None:
        async with open_http(names=Names.TASK_QUEUE) as house:
            assert "tq_tasks_pending 0.0" in (await house.client.get("/metrics")).text
            ours = (await house.client.get("/metrics", params={"names": "jackalope"})).text
            assert "jackalope_epoch 1.0" in ours
            assert "jackalope_leading 1.0" in ours
            assert "\ntq_" not in ours
            wrong = await house.client.get("/metrics", params={"names": "yours"})
            assert wrong.status_code == 400
            assert "names: must be jackalope or task_queue, got 'yours'" in wrong.json()["error"]

    run(check())


# Namespaces.


async def _scrape(house: HttpHouse, token: str = "") -> dict[tuple[str, ...], float]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answer = await house.client.get("/metrics", headers=headers)
    assert answer.status_code == 200, answer.text
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in parse_text(answer.text)
        for sample in family.samples
    }


async def _declare(house: HttpHouse, name: str, **settings: int) -> None:
    url = f"/api/v1/namespaces/{name}"
    assert (await house.client.put(url, json={"settings": settings})).status_code == 200


async def _submit(house: HttpHouse, namespace: str, count: int) -> None:
    for _ in range(count):
        headers = {"X-Jackalope-Namespace": namespace}
        task = {"name": "x", "queue": "q"}
        await house.client.post("/api/v1/tasks", json=task, headers=headers)


def test_namespaces_have_numbers_and_those_beyond_a_number_are_added_up() -> None:
    async def check() -> None:
        async with open_http(metrics_namespaces=2) as house:
            await _declare(house, "acme", tasks_queued=2)
            for namespace, count in (("acme", 5), ("busy", 4), ("idle", 1), ("calm", 2)):
                await _submit(house, namespace, count)
            found = await _scrape(house)
            prefix = "jackalope_namespace_"
            submitted = {
                key[1]: n for key, n in found.items() if key[0] == f"{prefix}submitted_total"
            }
            assert submitted == {"acme": 2, "busy": 4, "": 3}
            assert found[f"{prefix}refusals_total", "acme", "tasks_queued"] == 3
            assert found[f"{prefix}quota_used", "acme", "tasks_queued"] == 2
            assert found[f"{prefix}quota_limit", "acme", "tasks_queued"] == 2
            assert found[f"{prefix}tasks", "", "ready"] == 3
            assert found["jackalope_refusals_total", "SubmitTasks", "quota_exceeded"] == 3
            names = {key[1] for key in found if key[0].startswith(prefix)}
            assert names == {"acme", "busy", ""}

    run(check())


def test_a_key_of_a_namespace_scrapes_that_one_alone() -> None:
    async def check() -> None:
        async with open_http() as house:
            for namespace in ("acme", "zebra"):
                await _submit(house, namespace, 2)
            await make_key(house, Permission.ADMIN)
            token = await make_key(house, Permission.READ_TASKS, namespace="acme")
            found = await _scrape(house, token)
            assert {key[0].rpartition("_")[0] for key in found if key[1] != "acme"} == set()
            assert found["jackalope_namespace_tasks", "acme", "ready"] == 2
            text = str(found)
            assert "zebra" not in text

    run(check())


def test_outcomes_are_counted_by_namespace() -> None:
    async def check() -> None:
        async with open_http() as house:
            await _submit(house, "acme", 2)
            await _submit(house, "zebra", 1)
            url = "/api/v1/tasks?queue=q"
            headers = {"X-Jackalope-Namespace": "acme"}
            tasks = (await house.client.get(url, headers=headers)).json()["tasks"]
            killed = f"/api/v1/tasks/{tasks[0]['id']}/kill"
            assert (await house.client.post(killed, headers=headers)).status_code == 200
            found = await _scrape(house)
            assert found["jackalope_namespace_ended_total", "acme", "killed"] == 1
            assert found["jackalope_namespace_tasks", "acme", "ready"] == 1
            assert ("jackalope_namespace_ended_total", "zebra", "killed") not in found

    run(check())
