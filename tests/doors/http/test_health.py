"""Whether a broker is well, as a load balancer asks."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from jackalope.broker.access import hash_of, id_of, new_token
from jackalope.broker.config.schema import HttpConfig
from jackalope.broker.inbox import Admission
from jackalope.core.api_key import ApiKey, Permission
from jackalope.core.commands import CreateApiKey, SubmitTasks
from jackalope.doors.http.app import HttpDoor
from jackalope.wire.messages import Nack
from tests.doors.harness import Peer, run, spec
from tests.doors.http.harness import HttpHouse, Serving, open_http
from tests.doors.http.native import Native
from tests.ports import free_port
from tests.storage.full import fill, free

PATHS = ["/health", "/api/v1/health", "/health/ready", "/health/leader"]


async def healthy(house: HttpHouse) -> dict[str, Any]:
    answer = await house.client.get("/health")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    assert body["status"] == "healthy"
    return body


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.feature("D39")
def test_healthy(path: str) -> None:
    async def check() -> None:
        async with open_http() as house, Native(house) as native:
            client, worker = await native.peer(), await native.peer()
            await worker.join(slots=1)
            await client.submit(spec(), spec(), spec())
            await worker.take(1)
            answer = await house.client.get(path)
            assert answer.status_code == 200
            assert answer.json() == {
                "status": "healthy",
                "is_leader": True,
                "connected_workers": 1,
                "pending_tasks": 2,
                "role": "leader",
                "epoch": 1,
                "applied": house.broker.engine.sequence,
                "lag_s": 0.0,
                "quorum": True,
            }
            assert house.broker.engine.sequence > 0

    run(check())


async def fill_disk(native: Native) -> None:
    """Submit until there is no room."""
    client = await native.peer()
    while not isinstance(await client.ask(SubmitTasks(0, [spec(payload=b"x" * 30_000)])), Nack):
        pass


async def degraded(house: HttpHouse, native: Native) -> list[httpx.Response]:
    """Fill the disk, and return what is said then about health, life and metrics.

    The broker tries again every second, and its try may find the last bytes that there are.
    """
    for _ in range(50):
        await fill_disk(native)
        answers = [await house.client.get(path) for path in (*PATHS, "/health/live", "/metrics")]
        if all(answer.status_code == 503 for answer in answers[:-2]):
            return answers
    raise AssertionError("the disk did not stay full")


@pytest.mark.feature("D39")
def test_full_disk_and_room_again(tmp_path: Path) -> None:
    async def check() -> None:
        async with open_http(tmp_path) as house, Native(house) as native:
            await (await native.peer()).submit(spec())
            fill(house.broker._storage.journal)
            *answers, life, shown = await degraded(house, native)
            for answer in answers:
                assert answer.json()["status"] == "degraded"
                assert "no space left" in answer.json()["trouble"]
            assert (life.status_code, life.json()) == (200, {"status": "alive"})
            assert "\njackalope_writable " in shown.text
            assert "\njackalope_storage_faults_total 0.0\n" not in shown.text
            free(house.broker._storage.journal)
            async with asyncio.timeout(10):
                while (  # noqa: ASYNC110  the broker tries by itself, and tells nobody
                    await house.client.get("/health")
                ).status_code == 503:
                    await asyncio.sleep(0.02)
            await healthy(house)

    run(check())


def test_stopping() -> None:
    async def check() -> None:
        async with open_http() as house:
            house.door.closing.set()
            answer = await house.client.get("/health/ready")
            assert (answer.status_code, answer.json()["status"]) == (503, "degraded")
            assert answer.json()["trouble"] == "the broker is shutting down"
            assert (await house.client.get("/health/live")).status_code == 200
            house.door.closing.clear()
            await healthy(house)

    run(check())


def test_disk_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A write that hangs holds up everything but the question of how things are."""

    async def check() -> None:
        async with open_http(tmp_path) as house, Native(house) as native:
            client = await native.peer()
            await client.submit(spec())
            broker = house.broker
            answers, hung = asyncio.get_running_loop().create_future(), asyncio.Event()
            real = broker.engine.store

            async def hang(turn: Any, *, is_idle: bool) -> int:
                hung.set()
                broker._writer._since_us = broker.steady_us() - 11_000_000
                await answers
                real(turn)
                broker._writer._since_us = 0
                return 11_000_000

            monkeypatch.setattr(broker._writer, "store", hang)
            asked = asyncio.create_task(client.submit(spec()))
            await hung.wait()
            answer = await house.client.get("/health")
            assert answer.status_code == 503
            assert answer.json()["trouble"] == "the disk has not responded for 11 s"
            assert (await house.client.get("/metrics")).status_code == 200
            answers.set_result(None)
            await asked
            await healthy(house)

    run(check())


def test_answers_while_there_is_too_much_to_do() -> None:
    async def check() -> None:
        async with open_http() as house, Native(house) as native:
            flood = [asyncio.create_task(submit_much(await native.peer())) for _ in range(4)]
            answered = 0
            async with asyncio.timeout(20):
                while not all(each.done() for each in flood):
                    await healthy(house)
                    answered += 1
            assert answered >= 3
            await asyncio.gather(*flood)

    run(check())


async def submit_much(peer: Peer) -> None:
    for _ in range(10):
        await peer.submit(*(spec() for _ in range(1_000)))


def test_little_is_said_without_a_key() -> None:
    async def check() -> None:
        async with open_http() as house:
            made: dict[str, str] = {}
            await make_key(house, "root", (Permission.ADMIN,), ())
            for name, permissions, queues in (
                ("reader", (Permission.READ_TASKS,), ()),
                ("limited", (Permission.READ_TASKS,), ("q",)),
                ("sender", (Permission.SUBMIT_TASKS,), ()),
            ):
                made[name] = await make_key(house, name, permissions, queues)
            little = {"status": "healthy"}
            assert await healthy(house) == little
            for name, token in made.items():
                headers = {"authorization": f"Bearer {token}"}
                body = (await house.client.get("/health", headers=headers)).json()
                assert (body == little) == (name != "reader")
                shown = await house.client.get("/metrics", headers=headers)
                assert shown.status_code == (200 if name == "reader" else 403), name
            assert (await house.client.get("/metrics")).status_code == 401
            assert (await house.client.get("/health/live")).status_code == 200

    run(check())


async def make_key(
    house: HttpHouse, name: str, permissions: tuple[Permission, ...], queues: tuple[str, ...]
) -> str:
    """Make an API key, and return its token."""
    token = new_token()
    key = ApiKey(id_of(token), hash_of(token), name, permissions, queues)
    await house.door.client_session.ask(CreateApiKey(key=key))
    return token


def test_port_of_its_own() -> None:
    async def check() -> None:
        port = free_port()
        async with open_http(monitoring_port=port) as house:
            other = f"http://127.0.0.1:{port}"
            for path in (*PATHS, "/health/live", "/metrics"):
                assert (await house.client.get(path)).status_code == 200
                assert (await house.client.get(f"{other}{path}")).status_code == 200
            for path in ("/api/v1/stats", "/api/openapi.json", "/api/jobs", "/"):
                answer = await house.client.get(f"{other}{path}")
                assert (answer.status_code, answer.json()["reason"]) == (404, "unknown_path")
            assert (await house.client.get("/api/v1/stats")).status_code == 200

    run(check())


def test_port_of_its_own_that_is_taken() -> None:
    async def check() -> None:
        async with open_http() as house:
            taken = house.door.port
            door = HttpDoor(house.broker, HttpConfig(port=0, monitoring_port=taken))
            with pytest.raises(OSError, match=f"http.monitoring_port {taken}: Address"):
                await door.start()

    run(check())


def test_serve_is_ready_when_it_says_so(serving: Serving) -> None:
    answer = httpx.get(f"{serving.url}/health/ready")
    assert (answer.status_code, answer.json()["status"]) == (200, "healthy")
    assert httpx.get(f"{serving.url}/metrics").status_code == 200


def test_a_disk_that_is_nearly_full(tmp_path: Path) -> None:
    """Submits are refused, and everything that is asked about it says so."""

    async def check() -> None:
        async with open_http(tmp_path) as house, Native(house) as native:
            peer = await native.peer()
            await peer.submit(spec())
            await healthy(house)
            room = house.broker._storage.room_bytes
            house.broker.health.admission = Admission(room, 2**60)
            refused = await peer.ask(SubmitTasks(9, [spec()]))
            assert isinstance(refused, Nack)
            assert refused.code == "overloaded"
            for path in PATHS:
                answer = await house.client.get(path)
                assert (answer.status_code, answer.json()["status"]) == (503, "degraded")
                assert "free disk space is" in answer.json()["trouble"]
            assert (await house.client.get("/health/live")).status_code == 200
            assert "jackalope_accepting 0" in (await house.client.get("/metrics")).text
            assert "jackalope_writable 1" in (await house.client.get("/metrics")).text
            house.broker.health.admission._free_bytes_min = 1
            house.broker.health.admission._looked_us = 0
            await healthy(house)
            assert "jackalope_accepting 1" in (await house.client.get("/metrics")).text
            await peer.submit(spec())

    with capture_logs() as lines:
        run(check())
    logged = [line["event"] for line in lines]
    assert logged.count("disk space low; refusing new tasks") == 1
    assert logged.count("disk space available again; accepting new tasks") == 1
