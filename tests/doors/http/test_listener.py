import asyncio
import socket
import sys
from typing import Any

import httpx
import pytest

from jackalope.cli.app import run as run_command
from jackalope.core.refusals import Code
from jackalope.doors.http.app import build
from jackalope.doors.http.errors import MEANINGS, STATUS
from jackalope.doors.http.router import Router, routable
from tests.doors.harness import run
from tests.doors.http.harness import Serving, open_http

#: Where Linux writes, in what it tells of a connection, how many segments with data have come.
_SEGMENTS_IN = 152


def test_door_answers_and_closes() -> None:
    async def check() -> None:
        async with open_http() as house:
            answer = await house.client.get("/api/v1/stats")
            assert answer.status_code == 200
            assert answer.headers["content-type"] == "application/json"

    run(check())


def test_unknown_paths_and_methods_have_the_one_error_body() -> None:
    async def check() -> None:
        async with open_http() as house:
            unknown = await house.client.get("/nowhere")
            assert unknown.status_code == 404
            assert unknown.json() == {
                "error": "no resource at /nowhere; see /api/docs",
                "code": 404,
                "reason": "unknown_path",
            }
            wrong = await house.client.delete("/api/v1/stats")
            assert wrong.status_code == 405
            assert wrong.json()["reason"] == "wrong_method"
            assert "GET" in wrong.headers["allow"]

    run(check())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts what a socket receives")
def test_an_answer_arrives_in_one_piece() -> None:
    async def check() -> None:
        async with open_http() as house:
            reader, writer = await asyncio.open_connection("127.0.0.1", house.door.port)
            for number in range(1, 4):
                writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                size = int(head.partition("content-length: ")[2].partition("\r\n")[0])
                assert (await reader.readexactly(size)).startswith(b"{")
                info = writer.get_extra_info("socket").getsockopt(
                    socket.IPPROTO_TCP, socket.TCP_INFO, 256
                )
                assert (
                    int.from_bytes(info[_SEGMENTS_IN : _SEGMENTS_IN + 4], sys.byteorder) == number
                )
            writer.close()

    run(check())


def test_no_two_routes_are_the_same() -> None:
    async def check() -> None:
        async with open_http() as house:
            routes = build(house.door).routes
            assert len(routes) > 50
            for route in routes:
                found = Router(routes).find(route.path)
                assert found is not None
                assert found[0][route.method] is route

    run(check())


JSON = {"content-type": "application/json"}
ASKED: list[tuple[str, str, dict[str, Any], int, str]] = [
    ("GET", "/api/v1/queues", {}, 200, '{"queues":[]}'),
    ("GET", "/api//v1//queues/", {}, 200, '{"queues":[]}'),
    ("GET", "/api/v1/tasks?unknown=1", {}, 400, "unknown"),
    ("GET", "/api/v1/queues/a%2Fb", {}, 404, "no queue 'a/b'"),
    ("GET", "/api/v1/queues/a%252Fb", {}, 404, "no queue 'a%2Fb'"),
    ("HEAD", "/health", {}, 405, ""),
    ("HEAD", "/", {}, 200, ""),
    ("OPTIONS", "/api/v1/tasks", {}, 204, ""),
    ("OPTIONS", "/nowhere", {}, 404, "no resource at /nowhere"),
    ("DELETE", "/api/v1/stats", {}, 405, "method DELETE is not allowed at /api/v1/stats"),
    ("GET", "/nowhere", {}, 404, "no resource at /nowhere"),
    ("GET", "/api/v1/tasks/none", {}, 404, "no task 'none'"),
    ("POST", "/api/v1/tasks", {"content": b"{}"}, 415, "no Content-Type"),
    ("POST", "/api/v1/tasks", {"json": {"name": ""}}, 400, "name"),
    ("POST", "/api/v1/tasks", {"json": {"name": "x" * 2_000}}, 413, "Too Large"),
    ("POST", "/api/v1/tasks", {"content": b"{", "headers": JSON}, 400, "body"),
    # These have words of their own for errors.
    ("GET", "/api/jobs/none", {}, 404, '{"problem":'),
    ("POST", "/api/jobs/submit", {"content": b"nothing"}, 415, '{"problem":'),
    ("GET", "/status/none", {}, 404, "no resource at /status/none"),
    ("GET", "/api/v1/queues", {"headers": {"host": "a b"}}, 400, "Invalid host header"),
]


@pytest.mark.parametrize(("method", "path", "more", "status", "text"), ASKED)
def test_what_is_odd_about_a_request_has_its_answer(
    method: str, path: str, more: dict[str, Any], status: int, text: str
) -> None:
    async def check() -> None:
        async with open_http(body_bytes_max=1_000) as house:
            # Without the gate, which has words of its own about hosts.
            transport = httpx.ASGITransport(_with_raw_paths(build(house.door)))
            async with httpx.AsyncClient(transport=transport, base_url=house.url) as client:
                told = await client.request(method, path, **more)
            assert told.status_code == status
            assert text in told.text

    run(check())


def _with_raw_paths(app: Any) -> Any:
    async def call(scope: Any, receive: Any, send: Any) -> None:
        await app(scope | {"path": routable(scope["raw_path"])}, receive, send)

    return call


def test_the_methods_of_a_path_are_told() -> None:
    async def check() -> None:
        async with open_http() as house:
            told = await house.client.options("/api/v1/queues/q")
            assert (told.status_code, told.headers["allow"]) == (204, "DELETE, GET, OPTIONS, PUT")
            told = await house.client.get("/api/v1/tasks/batch")
            assert (told.status_code, told.headers["allow"]) == (405, "OPTIONS, POST")

    run(check())


def test_every_refusal_has_its_status() -> None:
    assert STATUS.keys() == set(Code)
    assert set(STATUS.values()) <= MEANINGS.keys()
    assert STATUS[Code.UNKNOWN_POOL] == 404
    assert STATUS[Code.UNKNOWN_SESSION] == STATUS[Code.UNKNOWN_DEPENDENCY] == 409
    assert STATUS[Code.WRONG_STATE] == STATUS[Code.LOCKED] == 409
    assert STATUS[Code.QUEUE_FULL] == 503


ELSEWHERE = "https://elsewhere.example"


@pytest.mark.parametrize("origins", [(ELSEWHERE,), ("*",)])
def test_pages_of_other_origins_may_call(origins: tuple[str, ...]) -> None:
    async def check() -> None:
        async with open_http(cors_origins=origins) as house:
            origin = {"origin": ELSEWHERE}
            for path in ("/health", "/nowhere"):
                told = await house.client.get(path, headers=origin)
                allowed = told.headers["access-control-allow-origin"]
                assert allowed == ("*" if origins == ("*",) else ELSEWHERE)
                assert "Retry-After" in told.headers["access-control-expose-headers"]
            asked = origin | {"access-control-request-headers": "X-API-KEY"}
            told = await house.client.options("/api/v1/tasks", headers=asked)
            assert told.status_code == 204
            assert "X-API-KEY" in told.headers["access-control-allow-headers"]
            assert "PUT" in told.headers["access-control-allow-methods"]
            assert told.headers["access-control-max-age"] == "600"
            told = await house.client.get("/health")
            assert "access-control-allow-origin" not in told.headers

    run(check())


def test_serve_opens_both_doors(serving: Serving) -> None:
    assert httpx.get(f"{serving.url}/api/v1/stats").status_code == 200
    code, log = serving.stop()
    assert code == 0, log


def test_whoever_waits_is_told_when_the_broker_forgets_its_sessions() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            answer = await client.post("/api/v1/tasks", json={"name": "t"})
            url = f"/api/v1/tasks/{answer.json()['id']}/wait?wait=30"
            waiting = asyncio.create_task(client.get(url))
            claiming = asyncio.create_task(
                client.post("/api/v1/workers/w1/claim", json={"queues": ["q"], "wait": 30})
            )
            core = house.broker.engine.core
            async with asyncio.timeout(10):
                while not (core.watches.by_task and core.roster.workers):  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            house.broker._end_sessions()
            told = await waiting
            assert (told.status_code, told.json()["reason"]) == (503, "storage_failed")
            assert told.headers["retry-after"] == "1"
            assert (await claiming).status_code == 409
            again = await client.post("/api/v1/tasks", json={"name": "t"})
            assert again.status_code == 201

    run(check())


def test_port_of_a_door_that_is_not_installed_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert run_command(["serve", "--http-port", "0"]) == 2
    assert "pip install jackalope" in capfd.readouterr().err
