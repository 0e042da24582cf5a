"""The dashboard without a browser: its files, signing in to it, and its pulse."""

import asyncio
import gzip
import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, cast

import httpx
import msgspec
import pytest
import websockets

from jackalope.broker.access import Access, Principal, hash_of, id_of, new_token
from jackalope.core.api_key import ApiKey, Permission
from jackalope.core.commands import CreateApiKey, RevokeApiKey
from jackalope.doors.http.dashboard import FOLDER, INDEX, Page
from jackalope.doors.http.errors import Rejected
from jackalope.doors.http.visits import VISIT_US_MAX, VISITS_MAX, Visits
from tests.doors.http.harness import HttpHouse, open_http

#: What the first look at the page may cost, compressed.
FIRST_LOAD_BYTES_MAX = 300 * 1000

PROOF = {"X-Jackalope-Client": "test"}

is_built = pytest.mark.skipif(
    not (FOLDER / INDEX).exists(), reason="the dashboard is not built; `make dashboard` does it"
)


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 30))


async def make_key(house: HttpHouse, *permissions: Permission, **limits: Any) -> str:
    """Make an API key, the first one an administrator's, and return its token."""
    if house.broker.access.is_open and Permission.ADMIN not in permissions:
        await make_key(house, Permission.ADMIN)
    token = new_token()
    key = ApiKey(id_of(token), hash_of(token), "ada", permissions, **limits)
    await house.door.client_session.ask(CreateApiKey(key=key))
    return token


async def sign_in(house: HttpHouse, token: str) -> httpx.Response:
    return await house.client.post("/api/v1/session", json={"token": token})


# The files.


@is_built
def test_page_is_small_and_holds_everything() -> None:
    sizes = [path.stat().st_size for path in FOLDER.rglob("*.gz")]
    assert sizes
    assert sum(sizes) < FIRST_LOAD_BYTES_MAX
    index = (FOLDER / INDEX).read_text()
    named = re.findall(r'(?:src|href)="([^"]+)"', index)
    assert named
    for name in named:
        assert name.startswith("./assets/"), "the page loads nothing from elsewhere"
        assert (FOLDER / name).is_file()
    assert "<style" not in index
    assert not re.search(r"<script[^>]*>[^<]", index), "no script inside the page"


@is_built
def test_page_is_sent_compressed_and_once() -> None:
    async def check() -> None:
        async with open_http() as house:
            page = await house.client.get("/")
            assert page.status_code == 200
            policy = page.headers["content-security-policy"]
            assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert page.headers["cache-control"] == "no-cache"
            again = await house.client.get("/", headers={"If-None-Match": page.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
            (script,) = re.findall(r'src="\./(assets/[^"]+\.js)"', page.text)
            plain = await house.client.get(f"/{script}", headers={"Accept-Encoding": "identity"})
            assert "immutable" in plain.headers["cache-control"]
            assert plain.headers["content-type"].startswith("text/javascript")
            zipped = await house.client.get(f"/{script}", headers={"Accept-Encoding": "gzip"})
            assert zipped.headers["content-encoding"] == "gzip"
            assert zipped.content == plain.content
            assert zipped.headers["etag"] != plain.headers["etag"]
            best = await house.client.head(
                f"/{script}", headers={"Accept-Encoding": "gzip, br, zstd"}
            )
            assert best.headers["content-encoding"] == "br"
            assert int(best.headers["content-length"]) < len(gzip.compress(plain.content))

    run(check())


@is_built
def test_page_is_also_where_gridlike_signs_in() -> None:
    async def check() -> None:
        async with open_http() as house:
            pages = [(await house.client.get(path)).text for path in ("/", "/login")]
            assert pages[0] == pages[1]

    run(check())


@is_built
def test_page_below_a_prefix() -> None:
    async def check() -> None:
        async with open_http(prefix="/queue") as house:
            page = await house.client.get("/queue/")
            assert page.status_code == 200
            (script,) = re.findall(r'src="\./(assets/[^"]+\.js)"', page.text)
            assert (await house.client.get(f"/queue/{script}")).status_code == 200
            token = await make_key(house, Permission.ADMIN)
            visit = await house.client.post("/queue/api/v1/session", json={"token": token})
            assert "Path=/queue;" in visit.headers["set-cookie"]

    run(check())


@pytest.mark.parametrize(
    "path", ["/assets/none.js", "/assets/..%2findex.html", "/assets/%2e%2e/server.py"]
)
def test_there_is_nothing_else(path: str) -> None:
    async def check() -> None:
        async with open_http() as house:
            assert (await house.client.get(path)).status_code == 404

    run(check())


def test_install_without_page_says_so(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="make dashboard") as rejected:
        Page(tmp_path).answer(cast("Any", None), INDEX)
    assert rejected.value.status == 404


# Signing in.


def test_open_broker_needs_no_sign_in() -> None:
    async def check() -> None:
        async with open_http() as house:
            visitor = (await house.client.get("/api/v1/session")).json()
            assert visitor["needs_key"] is False
            assert visitor["permissions"] == [str(each) for each in Permission]
            assert (visitor["namespace"], visitor["namespaces"]) == (None, ["default"])
            answer = await sign_in(house, "anything")
            assert (answer.status_code, "set-cookie" in answer.headers) == (200, False)

    run(check())


def test_sign_in_and_out() -> None:
    async def check() -> None:
        async with open_http() as house:
            limits = {"queues": ("q",), "namespace": "team"}
            token = await make_key(house, Permission.READ_TASKS, **limits)
            stranger = (await house.client.get("/api/v1/session")).json()
            assert (stranger["needs_key"], stranger["permissions"]) == (True, [])
            assert stranger["version"] == "", "a stranger learns nothing"
            refused = await sign_in(house, token[:-1] + "x")
            assert (refused.status_code, refused.json()["reason"]) == (401, "unauthorised")
            answer = await sign_in(house, f" {token} ")
            cookie = answer.headers["set-cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=strict" in cookie
            assert token not in cookie
            visitor = (await house.client.get("/api/v1/session")).json()
            assert (visitor["name"], visitor["queues"]) == ("ada", ["q"])
            assert (visitor["namespace"], visitor["namespaces"]) == ("team", ["team"])
            assert visitor["permissions"] == ["read_tasks"]
            assert visitor["expires_at"] is not None
            stats = "/api/v1/stats?namespace=team"
            assert (await house.client.get(stats)).status_code == 200
            left = await house.client.delete("/api/v1/session", headers=PROOF)
            assert left.status_code == 204
            assert (await house.client.get("/api/v1/stats")).status_code == 401
            assert len(house.door.visits) == 0

    run(check())


def test_cookie_is_secure_over_tls() -> None:
    async def check() -> None:
        async with open_http(trusted_proxies=("127.0.0.1",)) as house:
            token = await make_key(house, Permission.READ_TASKS)
            for scheme, is_secure in (("https", True), ("http", False)):
                answer = await house.client.post(
                    "/api/v1/session", json={"token": token}, headers={"X-Forwarded-Proto": scheme}
                )
                assert ("Secure" in answer.headers["set-cookie"]) == is_secure

    run(check())


def test_cookie_alone_changes_nothing() -> None:
    async def check() -> None:
        async with open_http() as house:
            await sign_in(house, await make_key(house, Permission.ADMIN))
            task = {"name": "x"}
            forged = await house.client.post("/api/v1/tasks", json=task)
            assert (forged.status_code, forged.json()["reason"]) == (403, "forbidden")
            meant = await house.client.post("/api/v1/tasks", json=task, headers=PROOF)
            assert meant.status_code == 201
            total = (await house.client.get("/api/v1/tasks")).json()["total"]
            assert total == 1

    run(check())


def test_what_a_key_may_not_is_refused_to_its_visit() -> None:
    async def check() -> None:
        async with open_http() as house:
            await sign_in(house, await make_key(house, Permission.READ_TASKS))
            for path in ("tasks/actions", "tasks", "queues/q/pause", "workers/w/drain"):
                body = {"action": "kill", "filter": {}} if path == "tasks/actions" else {}
                answer = await house.client.post(f"/api/v1/{path}", json=body, headers=PROOF)
                assert answer.status_code == 403, path

    run(check())


def test_visit_ends_with_its_key() -> None:
    async def check() -> None:
        async with open_http() as house:
            await make_key(house, Permission.ADMIN)
            token = await make_key(house, Permission.READ_TASKS)
            await sign_in(house, token)
            assert (await house.client.get("/api/v1/stats")).status_code == 200
            await house.door.client_session.ask(RevokeApiKey(key=id_of(token)))
            assert (await house.client.get("/api/v1/stats")).status_code == 401

    run(check())


def test_visits_are_bounded_and_expire() -> None:
    token = new_token()
    key = ApiKey(id_of(token), hash_of(token), "ada", (Permission.ADMIN,))
    visits = Visits(Access([key]))
    principal = Principal(key)

    def headers(value: str) -> dict[bytes, bytes]:
        return {b"cookie": f"other=1; {visits.cookie}={value}".encode()}

    values = [visits.open(principal, 0)[0] for _ in range(VISITS_MAX)]
    assert visits.find(headers(values[0]), 0) is not None
    values.append(visits.open(principal, 0)[0])
    assert len(visits) == VISITS_MAX
    assert visits.find(headers(values[0]), 0) is None, "the oldest made room"
    assert visits.find(headers(values[1]), VISIT_US_MAX - 1) is not None
    assert visits.find(headers(values[1]), VISIT_US_MAX) is None
    assert len(visits) == VISITS_MAX - 1, "what is over is forgotten"
    for odd in (b"", b"\xff=;;", b"jackalope_visit_0", b"a" * 5_000):
        assert visits.find({b"cookie": odd}, 0) is None


# The pulse.


def test_pulse_tells_what_changes() -> None:
    async def check() -> None:
        async with open_http() as house:
            async with websockets.connect(f"{house.socket_url}/api/v1/pulse") as socket:
                first = msgspec.json.decode(await socket.recv())
                assert (first["type"], first["queues"]) == ("pulse", [])
                await house.client.post("/api/v1/tasks", json={"name": "x", "queue": "q"})
                second = msgspec.json.decode(await socket.recv())
                assert second["sequence"] > first["sequence"]
                assert second["stats"]["counts"] == {"ready": 1}
                assert [queue["queue"] for queue in second["queues"]] == ["q"]
            other = f"{house.socket_url}/api/v1/pulse?namespace=other"
            async with websockets.connect(other) as socket:
                assert msgspec.json.decode(await socket.recv())["queues"] == []

    run(check())


def test_pulse_of_a_visit() -> None:
    async def check() -> None:
        async with open_http() as house:
            await make_key(house, Permission.ADMIN)
            token = await make_key(house, Permission.READ_TASKS)
            await sign_in(house, token)
            url = f"{house.socket_url}/api/v1/pulse"
            cookie = {"Cookie": "; ".join(f"{k}={v}" for k, v in house.client.cookies.items())}
            for headers, origin, status in (
                ({}, house.url, 401),
                (cookie, "http://elsewhere.test", 403),
                (cookie, None, 403),
            ):
                with pytest.raises(websockets.InvalidStatus) as refused:
                    await websockets.connect(url, additional_headers=headers, origin=origin)  # type: ignore[arg-type]
                assert refused.value.response.status_code == status
            socket = await websockets.connect(
                url,
                additional_headers=cookie,
                origin=house.url,  # type: ignore[arg-type]
            )
            assert msgspec.json.decode(await socket.recv())["type"] == "pulse"
            await house.door.client_session.ask(RevokeApiKey(key=id_of(token)))
            await socket.wait_closed()
            assert socket.close_code == 1008
            assert "sign in" in (socket.close_reason or "")

    run(check())


def test_pulse_shows_only_what_the_key_covers() -> None:
    async def check() -> None:
        async with open_http() as house:
            for queue in ("mine", "theirs"):
                await house.client.post("/api/v1/tasks", json={"name": "x", "queue": queue})
            token = await make_key(house, Permission.READ_TASKS, queues=("mine",))
            headers = {"Authorization": f"Bearer {token}"}
            url = f"{house.socket_url}/api/v1/pulse"
            async with websockets.connect(url, additional_headers=headers) as socket:
                pulse = msgspec.json.decode(await socket.recv())
            assert [queue["queue"] for queue in pulse["queues"]] == ["mine"]
            assert pulse["stats"]["counts"] == {"ready": 1}

    run(check())
