import asyncio
import socket
import sys
from typing import Any

import httpx
import pytest
from litestar.routes import HTTPRoute

from jackalope.cli.app import run as run_command
from jackalope.doors.http.app import Direct, build
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
                "error": "nothing is at /nowhere; see /api/docs",
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


def test_no_route_asks_for_what_the_door_leaves_out() -> None:
    async def check() -> None:
        async with open_http() as house:
            app = build(house.door)
            handlers = [
                handler
                for route in app.routes
                if isinstance(route, HTTPRoute)
                for handler in route.route_handlers
            ]
            assert len(handlers) > 50
            for handler in handlers:
                names = set(handler.parsed_fn_signature.parameters)
                assert not handler.resolve_dependencies(), handler
                assert not handler.resolve_guards(), handler
                assert not handler.resolve_before_request(), handler
                assert not handler.cache, handler
                assert handler.has_sync_callable or not names & {"data", "body", "state", "headers"}

    run(check())


ASKED = [
    ("GET", "/api/v1/queues", {}),
    ("GET", "//api/v1//queues/", {}),
    ("GET", "/api/v1/queues?unknown=1", {}),
    ("HEAD", "/health", {}),
    ("OPTIONS", "/api/v1/tasks", {}),
    ("DELETE", "/api/v1/stats", {}),
    ("GET", "/nowhere", {}),
    ("GET", "/api/v1/tasks/none", {}),
    ("POST", "/api/v1/tasks", {"content": b"{}"}),
    ("POST", "/api/v1/tasks", {"json": {"task_type": ""}}),
    ("POST", "/api/v1/tasks", {"json": {"task_type": "x" * 2_000}}),
    ("POST", "/api/v1/tasks", {"content": b"{", "headers": {"content-type": "application/json"}}),
    # These have words of their own for errors.
    ("GET", "/api/jobs/none", {}),
    ("POST", "/api/jobs/submit", {"content": b"nothing"}),
    ("GET", "/status/none", {}),
    ("GET", "/", {}),
    ("GET", "/api/v1/queues", {"headers": {"host": "a b"}}),
]


@pytest.mark.parametrize(("method", "path", "more"), ASKED)
def test_the_direct_way_answers_as_the_whole_way_does(
    method: str, path: str, more: dict[str, Any]
) -> None:
    async def check() -> None:
        async with open_http(body_bytes_max=1_000) as house:
            app = build(house.door)
            answers = []
            for way in (Direct(app), app):
                transport = httpx.ASGITransport(way)  # type: ignore[arg-type]
                async with httpx.AsyncClient(transport=transport, base_url=house.url) as client:
                    answers.append(await client.request(method, path, **more))
            direct, whole = answers
            assert direct.status_code == whole.status_code
            assert direct.headers == whole.headers
            assert direct.content == whole.content

    run(check())


def test_the_direct_way_is_not_for_answers_to_other_origins() -> None:
    async def check() -> None:
        async with open_http(cors_origins=("https://elsewhere.example",)) as house:
            answer = await house.client.get(
                "/health", headers={"origin": "https://elsewhere.example"}
            )
            assert answer.headers["access-control-allow-origin"] == "https://elsewhere.example"

    run(check())


def test_serve_opens_both_doors(serving: Serving) -> None:
    assert httpx.get(f"{serving.url}/api/v1/stats").status_code == 200
    code, log = serving.stop()
    assert code == 0, log


def test_whoever_waits_is_told_when_the_broker_forgets_its_sessions() -> None:
    async def check() -> None:
        async with open_http() as house:
            client = house.client
            answer = await client.post("/api/v1/tasks", json={"task_type": "t"})
            url = f"/api/v1/tasks/{answer.json()['task_id']}/wait?wait=30"
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
            again = await client.post("/api/v1/tasks", json={"task_type": "t"})
            assert again.status_code == 201

    run(check())


def test_port_of_a_door_that_is_not_installed_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "litestar", None)
    assert run_command(["serve", "--http-port", "0"]) == 2
    assert "jackalope[http]" in capfd.readouterr().err
