"""Numbers over time, over REST."""

from pathlib import Path
from typing import Any

import pytest

from jackalope.broker.telemetry.time_series import COARSE_S, FINE_S
from jackalope.core.durations import SECOND
from tests.doors.harness import run, spec
from tests.doors.http.harness import HttpHouse, open_http
from tests.doors.http.native import Native, start


async def close_interval(house: HttpHouse) -> None:
    """End the present interval now rather than in ten seconds."""
    broker = house.broker
    points = broker.series.close(broker.now_us() + FINE_S * SECOND, broker.engine.core)
    await broker.off_loop(lambda: broker.series.write(points))


async def work(house: HttpHouse, tasks: int, namespace: str = "default") -> None:
    async with Native(house) as native:
        client, worker = await native.peer(namespace), await native.peer(namespace)
        await worker.join(slots=tasks)
        await client.submit(*(spec() for _ in range(tasks)), spec("elsewhere"))
        taken = await worker.take(tasks)
        await start(worker, *taken)
        await worker.finish(*taken)
        await close_interval(house)


async def read(house: HttpHouse, **query: Any) -> dict[str, Any]:
    answer = await house.client.get("/api/v1/series", params=query)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_throughput_latency_and_depth(tmp_path: Path) -> None:
    async def check() -> None:
        async with open_http(tmp_path) as house:
            await work(house, 5)
            body = await read(house)
            assert body["step_s"] == FINE_S
            (point,) = body["points"]
            assert (point["submitted"], point["succeeded"], point["depth"]) == (6, 5, 1)
            assert point["workers"] == 1
            assert point["per_second"] == 0.5
            for stage in ("queued", "assigned", "started", "finished"):
                spread = point[stage]
                assert spread["number"] == 5
                assert 0 <= spread["p50_s"] <= spread["p95_s"] <= spread["p99_s"] < 10
            (alone,) = (await read(house, queue="elsewhere"))["points"]
            assert (alone["submitted"], alone["depth"], alone["started"]) == (1, 1, None)
        async with open_http(tmp_path) as house:
            points = (await read(house))["points"]
            assert sum(point["succeeded"] for point in points) == 5, "it is kept over a restart"
            stats = (await house.client.get("/api/v1/stats")).json()
            assert stats["succeeded_last_hour"] == 5
            assert stats["dead_last_hour"] == 0
            assert 0 < stats["mean_run_s"] < 10

    run(check())


def test_namespaces_stand_apart() -> None:
    async def check() -> None:
        async with open_http() as house:
            await work(house, 2, "team")
            assert (await read(house))["points"] == []
            (point,) = (await read(house, namespace="team"))["points"]
            assert point["succeeded"] == 2

    run(check())


def test_steps() -> None:
    async def check() -> None:
        async with open_http() as house:
            week = {"since": "2020-01-01T00:00:00Z"}
            assert (await read(house, **week))["step_s"] == COARSE_S
            assert (await read(house, step_s=60))["step_s"] == 60
            assert (await read(house, until="2021-01-01T00:00:00Z"))["points"] == []
            assert (await read(house, until="9999-01-01T00:00:00Z"))["points"] == []

    run(check())


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ({"step_s": 7}, "multiple of 10 s"),
        ({"since": "2020-01-01T00:00:00Z", "step_s": 10}, "multiple of that"),
        ({"since": "2026-11-16T00:00:00"}, "since"),
        ({"step_s": -10}, "int"),
        ({"stride": 1}, "stride"),
    ],
)
def test_what_cannot_be(query: dict[str, Any], problem: str) -> None:
    async def check() -> None:
        async with open_http() as house:
            answer = await house.client.get("/api/v1/series", params=query)
            assert answer.status_code == 400
            assert problem in answer.json()["error"]

    run(check())
