"""Names in paths: whatever is accepted as a name can be reached under it, at every route.

The requests are written by hand, as clients would normalise some of the paths.
"""

import asyncio
import json
from typing import Any
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.client import connect

from jackalope.doors.http.router import Router, Routes, routable
from tests.doors.harness import run
from tests.doors.http.gridlike.harness import open_grid
from tests.doors.http.harness import HttpHouse

NAMES = (
    "plain",
    "a/b",
    "/",
    "//",
    "/a/",
    "%2F",
    "a%2Fb",
    "%252F",
    "100%",
    "%zz",
    ".",
    "..",
    "../..",
    "a b",
    " ",
    "a?b=c",
    "a#b",
    "a+b",
    "a;b,c",
    "a\\b",
    "submit",
    "batches",
    "pause",
    "delete",
    "héllo/ü",
    "日本語",
    "🦌",
)

named = pytest.mark.parametrize("name", NAMES)


async def ask(
    house: HttpHouse, method: str, path: str, body: Any = None, form: bytes = b""
) -> tuple[int, Any]:
    """Send a request with just this path, and return the status and the body."""
    sent = form or (b"" if body is None else json.dumps(body).encode())
    kind = f"multipart/form-data; boundary={BOUNDARY}" if form else "application/json"
    reader, writer = await asyncio.open_connection("127.0.0.1", house.door.port)
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    head += f"content-type: {kind}\r\ncontent-length: {len(sent)}\r\n\r\n"
    writer.write(head.encode() + sent)
    answer = await reader.read()
    writer.close()
    first, _, rest = answer.partition(b"\r\n\r\n")
    return int(first.split()[1]), json.loads(rest) if rest.startswith((b"{", b"[")) else rest


BOUNDARY = "boundary"


def form_of(**fields: str) -> bytes:
    parts = [
        f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="{name}"'
        f"{'; filename=f' if name == 'payload' else ''}\r\n\r\n{value}\r\n"
        for name, value in fields.items()
    ]
    return ("".join(parts) + f"--{BOUNDARY}--\r\n").encode()


@named
def test_queues(name: str) -> None:
    async def check() -> None:
        async with open_grid() as house:
            path = f"/api/v1/queues/{quote(name, safe='')}"
            status, made = await ask(house, "PUT", path, {"policy": {"retries": 7}})
            assert (status, made["queue"]) == (200, name)
            status, shown = await ask(house, "GET", path)
            assert (status, shown["queue"], shown["policy"]["retries"]) == (200, name, 7)
            for what, by in (("pause", "http"), ("resume", None)):
                status, shown = await ask(house, "POST", f"{path}/{what}")
                assert (status, shown["queue"], shown["paused_by"]) == (200, name, by)
            await ask(house, "POST", "/api/v1/tasks", {"name": "t", "queue": name})
            status, batches = await ask(house, "GET", f"{path}/batches")
            assert (status, len(batches["batches"])) == (200, 1)
            status, batch = await ask(house, "GET", f"{path}/batches/1")
            assert (status, batch["number"]) == (200, 1)
            listed = (await ask(house, "GET", "/api/v1/queues"))[1]["queues"]
            assert [each["queue"] for each in listed] == [name]
            assert (await ask(house, "DELETE", path))[0] == 409

    run(check())


@named
def test_limits_and_workers_and_pools(name: str) -> None:
    async def check() -> None:
        async with open_grid() as house:
            encoded = quote(name, safe="")
            limit = f"/api/v1/limits/{encoded}"
            status, limited = await ask(house, "PUT", limit, {"limit": 3})
            assert (status, limited["tag"]) == (200, name)
            assert (await ask(house, "DELETE", limit))[0] == 204
            worker = f"/api/v1/workers/{encoded}"
            assert (await ask(house, "POST", f"{worker}/join", {"queues": ["q"]}))[0] == 200
            assert (await ask(house, "POST", f"{worker}/heartbeat", {}))[0] == 200
            status, shown = await ask(house, "GET", worker)
            assert (status, shown["worker"]) == (200, name)
            assert (await ask(house, "POST", f"{worker}/claim", {"queues": ["q"]}))[0] == 200
            assert (await ask(house, "POST", f"{worker}/drain"))[0] == 200
            assert (await ask(house, "POST", f"{worker}/leave"))[0] == 204
            pool = f"/api/v1/pools/{encoded}"
            status, made = await ask(house, "PUT", pool, {"launcher": "none"})
            assert (status, made["queue"]) == (200, name)
            assert (await ask(house, "GET", pool))[1]["queue"] == name
            acted = await ask(house, "POST", f"{pool}/groups", {"key": name, "action": "start"})
            assert (acted[0], acted[1]["groups"][0]["key"]) == (200, name)
            assert (await ask(house, "DELETE", pool))[0] in {200, 204}

    run(check())


@named
def test_jobs_and_their_types(name: str) -> None:
    async def check() -> None:
        async with open_grid() as house:
            encoded = quote(name, safe="")
            form = form_of(payload="bytes", priority="batch", key=name)
            if name in {".", "..", "submit"}:
                status, refused = await ask(house, "POST", "/api/jobs/submit", form=form)
                assert (status, list(refused)) == (400, ["problem"])
                assert (await house.client.get("/api/jobs")).json() == []
                return
            await ask(house, "PUT", f"/api/v1/queues/{encoded}", {"preset": "gridlike"})
            status, made = await ask(house, "POST", f"/api/jobs/submit/{encoded}", form=form)
            assert (status, made["created"]) == (202, name)
            job = f"/api/jobs/{encoded}"
            status, shown = await ask(house, "GET", job)
            assert (status, shown["key"], shown["type"]) == (200, name, name)
            assert await ask(house, "GET", f"{job}/payload") == (200, b"bytes")
            assert (await ask(house, "GET", f"{job}/result"))[0] == 409
            url = f"{house.socket_url}/api/worker/{encoded}"
            async with connect(url) as socket:
                await socket.send(json.dumps({"code": 0, "name": "", "id": name, "token": ""}))
                assert json.loads(await socket.recv()) == {"code": 2}
                await socket.send(json.dumps({"code": 1, "status": 1}))
                assert await socket.recv() == b"bytes"
                await socket.send(b"result")
                assert json.loads(await socket.recv()) == {"code": 2}
            assert await ask(house, "GET", f"{job}/result") == (200, b"result")
            assert (await ask(house, "POST", f"{job}/delete"))[1] == {"deleted": name}
            assert (await ask(house, "GET", job))[0] == 404

    run(check())


@pytest.mark.parametrize("path", ["queues", "limits", "workers", "pools"])
def test_a_name_cannot_be_empty(path: str) -> None:
    async def check() -> None:
        async with open_grid() as house:
            for method, end in (("PUT", ""), ("PUT", "/"), ("DELETE", "/"), ("POST", "//join")):
                status, _ = await ask(house, method, f"/api/v1/{path}{end}", {})
                assert status in {404, 405}, (method, end)

    run(check())


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=4))
def test_names_come_out_of_a_path_as_they_went_in(names: list[str]) -> None:
    raw = "/".join(quote(name, safe="") for name in names).encode()
    assert [unquote(segment) for segment in routable(raw).split("/")] == names


def test_a_name_goes_before_a_parameter_unless_it_leads_nowhere() -> None:
    routes = Routes("/a")
    for path in ("/{x}", "/b", "/b/{y}/c", "/{x}/{y}/d", "/{x}/e"):
        routes.get(path, "")(no_answer)
    router = Router(routes)

    def found(path: str) -> tuple[str, tuple[str, ...]] | None:
        at = router.find(path)
        return at and (at[0]["GET"].path, at[1])

    assert found("/a/b") == ("/a/b", ())
    assert found("/a/z/") == ("/a/{x}", ("z",))
    assert found("//a/b/1/c") == ("/a/b/{y}/c", ("1",))
    assert found("/a/b/1/d") == ("/a/{x}/{y}/d", ("b", "1"))
    assert found("/a/b/e") == ("/a/{x}/e", ("b",))
    assert found("/a/%2F%25") == ("/a/{x}", ("/%",))
    assert found("/a") is None
    assert found("/a/b/1/c/d") is None


async def no_answer() -> None:
    """Stand for a handler."""
