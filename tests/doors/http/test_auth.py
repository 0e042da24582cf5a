"""Who may do what over HTTP, how often, and what every answer says to browsers."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest
import websockets

from jackalope.broker.access import Access
from jackalope.broker.config.exposure import server_context
from jackalope.broker.service import Broker
from jackalope.core.api_key import Permission
from jackalope.doors.http.app import HttpDoor, build
from jackalope.storage import Level, Storage
from tests.certificates import certificates
from tests.doors.harness import run
from tests.doors.http.harness import HttpHouse, open_http
from tests.doors.native.test_access import make_key

STATS = "/api/v1/stats"

#: One request for each permission: its method, path and body, and its status where it is permitted.
REQUESTS: dict[Permission, tuple[str, str, Any, int]] = {
    Permission.SUBMIT_TASKS: ("POST", "/api/v1/tasks", {"name": "x", "payload": ""}, 201),
    Permission.READ_TASKS: ("GET", STATS, None, 200),
    Permission.CANCEL_TASKS: ("POST", "/api/v1/tasks/actions", {"action": "kill"}, 400),
    Permission.ADMIN: ("GET", "/api/v1/keys", None, 200),
}


def bearing(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@asynccontextmanager
async def closed_house(
    *permissions: Permission, limits: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[tuple[HttpHouse, str]]:
    """Open the door of a broker that has one key, and yield its token."""
    token, key = make_key(*(permissions or (Permission.ADMIN,)), **(limits or {}))
    async with open_http(access=Access([key]), **settings) as house:
        yield house, token


# Keys.


@pytest.mark.parametrize("having", Permission)
@pytest.mark.feature("D33")
def test_a_key_permits_what_it_names_and_nothing_else(having: Permission) -> None:
    async def test() -> None:
        async with closed_house(having) as (house, token):
            for needed, (method, path, body, status) in REQUESTS.items():
                answered = await house.client.request(
                    method, path, json=body, headers=bearing(token)
                )
                if having in (needed, Permission.ADMIN):
                    assert answered.status_code in (status, 201), answered.text
                else:
                    assert answered.status_code == 403
                    told = answered.json()
                    assert (told["code"], told["reason"]) == (403, "forbidden")
                    assert str(needed) in told["error"]

    run(test())


NO_TOKENS: list[dict[str, str]] = [
    {},
    {"Authorization": ""},
    {"Authorization": "Bearer"},
    {"Authorization": "Bearer nonsense"},
    {"Authorization": "Basic dXNlcjpwYXNz"},
    {"X-API-KEY": "jk_00_" + "x" * 43},
    {"Authorization": "Bearer " + "x" * 5_000},
]


@pytest.mark.feature("D33")
def test_without_a_good_token_nobody_is_let_in() -> None:
    async def test() -> None:
        async with closed_house() as (house, _):
            for headers in NO_TOKENS:
                answered = await house.client.get(STATS, headers=headers)
                assert answered.status_code == 401
                assert answered.headers["WWW-Authenticate"].startswith("Bearer")
                assert answered.json()["reason"] == "unauthorised"
                assert "x" * 43 not in answered.text

    run(test())


def test_both_headers_bring_a_token() -> None:
    async def test() -> None:
        async with closed_house() as (house, token):
            for headers in (
                {"Authorization": f"Bearer {token}"},
                {"authorization": f"bearer {token}"},
                {"X-API-KEY": token},
                {"x-api-key": token},
            ):
                assert (await house.client.get(STATS, headers=headers)).status_code == 200

    run(test())


def test_health_needs_no_key_and_tells_strangers_little() -> None:
    async def test() -> None:
        async with closed_house() as (house, token):
            stranger = await house.client.get("/health")
            assert stranger.status_code == 200
            assert "pending_tasks" not in stranger.json()
            known = await house.client.get("/health", headers=bearing(token))
            assert "pending_tasks" in known.json()
            assert (await house.client.get("/metrics")).status_code == 401

    run(test())


def test_an_open_broker_looks_at_no_token() -> None:
    async def test() -> None:
        async with open_http() as house:
            assert (await house.client.get(STATS, headers=bearing("x"))).status_code == 200

    run(test())


def test_every_route_says_what_it_needs() -> None:
    storage = Storage.open(None, Level.MEMORY)
    routes = build(HttpDoor(Broker(storage))).routes
    storage.close()
    assert len(routes) > 30
    public = {route.path for route in routes if route.needs is None}
    assert "/" in public
    assert "/api/v1/keys" not in public


def test_keys_are_made_listed_and_revoked() -> None:
    async def test() -> None:
        async with closed_house() as (house, token):
            client, admin = house.client, bearing(token)
            wanted = {"name": "ci", "permissions": ["submit_tasks"], "queues": ["images"]}
            made = await client.post("/api/v1/keys", json=wanted, headers=admin)
            assert made.status_code == 201
            given, key_id = made.json()["token"], made.json()["id"]
            listed = await client.get("/api/v1/keys", headers=admin)
            assert [key["name"] for key in listed.json()["keys"]] == ["ada", "ci"]
            assert given.split("_", 2)[2] not in listed.text
            assert "hash" not in listed.text

            submit = {"name": "x", "payload": "", "queue": "images"}
            path = "/api/v1/tasks"
            assert (await client.post(path, json=submit, headers=bearing(given))).is_success
            submit["queue"] = "sounds"
            other = await client.post(path, json=submit, headers=bearing(given))
            assert other.status_code == 403

            own = listed.json()["keys"][0]["id"]
            assert (await client.delete(f"/api/v1/keys/{own}", headers=admin)).status_code == 409
            revoked = await client.delete(f"/api/v1/keys/{key_id}", headers=admin)
            assert revoked.status_code == 204
            again = await client.delete(f"/api/v1/keys/{key_id}", headers=admin)
            assert (again.status_code, again.json()["reason"]) == (404, "unknown_api_key")
            late = await client.post(path, json=submit, headers=bearing(given))
            assert late.status_code == 401

    run(test())


NO_KEYS: list[dict[str, Any]] = [
    {},
    {"name": "x"},
    {"name": "x", "permissions": []},
    {"name": "x", "permissions": ["everything"]},
    {"name": "", "permissions": ["work"]},
    {"name": "x" * 257, "permissions": ["work"]},
    {"name": "x", "permissions": ["work"], "expires_at": "2001-01-01T00:00:00Z"},
    {"name": "x", "permissions": ["work"], "queues": [""]},
    {"name": "x", "permissions": ["work"], "secret": "mine"},
]


def test_keys_that_cannot_be_are_refused() -> None:
    async def test() -> None:
        async with closed_house() as (house, token):
            for wanted in NO_KEYS:
                made = await house.client.post("/api/v1/keys", json=wanted, headers=bearing(token))
                assert made.status_code in (400, 409)

    run(test())


def test_a_key_with_limits_makes_no_keys() -> None:
    """They could have more rights than itself."""

    async def test() -> None:
        for limits in ({"queues": ("images",)}, {"namespace": "default"}):
            async with closed_house(limits=limits) as (house, token):
                wanted = {"name": "x", "permissions": ["admin"]}
                client, headers = house.client, bearing(token)
                made = await client.post("/api/v1/keys", json=wanted, headers=headers)
                assert made.status_code == 403
                # Those of a whole namespace are seen by who administers it.
                seen = 200 if "namespace" in limits else 403
                assert (await client.get("/api/v1/keys", headers=headers)).status_code == seen

    run(test())


def test_a_key_of_some_queues_sees_no_others() -> None:
    async def test() -> None:
        everything, all_key = make_key(Permission.ADMIN)
        token, key = make_key(Permission.ADMIN, queues=("images",))
        async with open_http(access=Access([all_key, key])) as house:
            client, ids = house.client, {}
            for queue in ("images", "sounds"):
                submit = {"name": "x", "payload": "", "queue": queue}
                made = await client.post("/api/v1/tasks", json=submit, headers=bearing(everything))
                ids[queue] = made.json()["id"]
            headers = bearing(token)
            listed = (await client.get("/api/v1/tasks", headers=headers)).text
            assert ids["images"] in listed
            assert ids["sounds"] not in listed
            hidden = f"/api/v1/tasks/{ids['sounds']}"
            never = "/api/v1/tasks/01890000-0000-7000-8000-000000000000"
            for suffix in ("", "/payload", "/result", "/history", "/explain"):
                one = await client.get(hidden + suffix, headers=headers)
                other = await client.get(never + suffix, headers=headers)
                assert one.status_code == other.status_code == 404
            assert (await client.delete(hidden, headers=headers)).status_code == 404
            queues = (await client.get("/api/v1/queues", headers=headers)).text
            assert "sounds" not in queues
            for path in ("/api/v1/queues/sounds", "/api/v1/queues/silence"):
                assert (await client.get(path, headers=headers)).status_code == 404
            paused = await client.post("/api/v1/queues/sounds/pause", headers=headers)
            assert paused.status_code == 403

    run(test())


def test_a_key_of_one_namespace_is_let_into_no_other() -> None:
    async def test() -> None:
        async with closed_house(limits={"namespace": "team"}) as (house, token):
            headers = bearing(token)
            assert (await house.client.get(STATS, headers=headers)).status_code == 403
            headers["X-Jackalope-Namespace"] = "team"
            assert (await house.client.get(STATS, headers=headers)).status_code == 200

    run(test())


# Rates.


@pytest.mark.feature("D35")
def test_too_many_requests_are_told_when_to_come_again() -> None:
    async def test() -> None:
        async with closed_house(rate_per_s=1, rate_burst=200) as (house, token):
            headers = bearing(token)
            answers = [await house.client.get(STATS, headers=headers)]
            assert answers[0].headers["X-RateLimit-Limit"] == "200"
            assert answers[0].headers["X-RateLimit-Remaining"] == "199"
            limits = httpx.Limits(max_connections=20)
            async with httpx.AsyncClient(base_url=house.url, limits=limits) as client:
                answers += await asyncio.gather(
                    *(client.get(STATS, headers=headers) for _ in range(300))
                )
            refused = [answer for answer in answers if answer.status_code == 429]
            served = [answer for answer in answers if answer.status_code == 200]
            assert len(refused) + len(served) == 301
            assert len(served) >= 200
            assert refused
            told = refused[-1]
            assert told.headers["Retry-After"] == "1"
            assert told.headers["X-RateLimit-Remaining"] == "0"
            assert int(told.headers["X-RateLimit-Reset"]) >= 1
            assert told.json()["reason"] == "rate_limited"
            assert 0 < told.json()["retry_after_s"] <= 1

    run(test())


def test_one_key_does_not_use_up_what_another_has() -> None:
    async def test() -> None:
        (first, one), (second, other) = make_key(Permission.ADMIN), make_key(Permission.ADMIN)
        access = Access([one, other])
        async with open_http(access=access, rate_per_s=1, rate_burst=2) as house:
            statuses = [
                (await house.client.get(STATS, headers=bearing(first))).status_code
                for _ in range(4)
            ]
            assert statuses == [200, 200, 429, 429]
            again = await house.client.get(STATS, headers=bearing(second))
            assert again.status_code == 200
            # Strangers have buckets by their address.
            statuses = [(await house.client.get(STATS)).status_code for _ in range(3)]
            assert statuses == [401, 401, 429]

    run(test())


def test_an_open_broker_does_not_count() -> None:
    async def test() -> None:
        async with open_http(rate_per_s=1, rate_burst=1) as house:
            for _ in range(5):
                answered = await house.client.get(STATS)
                assert answered.status_code == 200
                assert "X-RateLimit-Limit" not in answered.headers

    run(test())


def test_the_clients_of_gridlike_know_no_rate() -> None:
    """Those who come without a key are counted all the same, and told in GridLike's words."""

    async def test() -> None:
        async with closed_house(rate_per_s=1, rate_burst=2) as (house, token):
            for path in ("/api/jobs", "/api/batches", "/api/workers"):
                for _ in range(5):
                    answered = await house.client.get(path, headers=bearing(token))
                    assert answered.status_code == 200
            strangers = [await house.client.get("/api/jobs") for _ in range(3)]
            assert [answered.status_code for answered in strangers] == [401, 401, 429]
            assert list(strangers[-1].json()) == ["problem"]
            assert strangers[-1].headers["retry-after"] == "1"

    run(test())


# Browsers.


def test_every_answer_has_its_headers() -> None:
    async def test() -> None:
        async with closed_house() as (house, token):
            for path in (STATS, "/health", "/nowhere", "/api/docs"):
                for headers in ({}, bearing(token)):
                    told = (await house.client.get(path, headers=headers)).headers
                    assert told["X-Content-Type-Options"] == "nosniff"
                    assert told["X-Frame-Options"] == "DENY"
                    assert told["Referrer-Policy"] == "no-referrer"
                    assert "server" not in told

    run(test())


CALLS: list[tuple[dict[str, str], int]] = [
    ({}, 200),
    ({"Host": "localhost"}, 200),
    ({"Host": "LOCALHOST:7421"}, 200),
    ({"Host": "[::1]:7421"}, 200),
    ({"Host": "broker.lan:7421"}, 200),
    ({"Host": "evil.example:7421"}, 403),
    ({"Host": "127.0.0.1.evil.example"}, 403),
    ({"Host": "[::1"}, 403),
    ({"Origin": "https://pages.example"}, 200),
    ({"Origin": "https://evil.example"}, 403),
    ({"Origin": "null"}, 403),
]


def test_a_page_of_somewhere_else_cannot_use_an_open_broker() -> None:
    async def test() -> None:
        origins = ("https://pages.example",)
        async with open_http(cors_origins=origins, hosts=("broker.lan",)) as house:
            for headers, status in CALLS:
                assert (await house.client.get(STATS, headers=headers)).status_code == status
                same = {"Origin": house.url}
                assert (await house.client.get(STATS, headers=same)).status_code == 200

    run(test())


def test_a_page_of_somewhere_else_cannot_open_a_websocket() -> None:
    async def test() -> None:
        async with open_http() as house:
            url = f"{house.socket_url}/api/v1/events"
            with pytest.raises(websockets.InvalidStatus) as refused:
                async with websockets.connect(url, origin="https://evil.example"):  # type: ignore[arg-type]
                    pass
            assert refused.value.response.status_code == 403

    run(test())


@pytest.mark.parametrize("path", ["/api/v1/events", "/api/v1/pulse", "/ws/updates"])
def test_a_websocket_needs_a_key_as_well(path: str) -> None:
    async def test() -> None:
        async with closed_house(Permission.SUBMIT_TASKS) as (house, token):
            for headers, status in (({}, 401), (bearing("wrong"), 401), (bearing(token), 403)):
                with pytest.raises(websockets.InvalidStatus) as refused:
                    await websockets.connect(house.socket_url + path, additional_headers=headers)
                told = refused.value.response
                assert told.status_code == status
                assert msgspec.json.decode(told.body or b"")["code"] == status
                assert ("www-authenticate" in told.headers) is (status == 401)
        async with closed_house(Permission.READ_TASKS) as (house, token):
            url, headers = house.socket_url + path, bearing(token)
            async with websockets.connect(url, additional_headers=headers) as socket:
                await (await socket.ping())

    run(test())


@pytest.mark.parametrize(
    ("version", "hosts", "status"),
    [
        ("1.1", ["localhost"], 200),
        ("1.1", [], 400),
        ("1.1", ["localhost", "localhost"], 400),
        ("1.1", ["localhost", "evil.example"], 400),
        ("1.0", [], 200),
        ("1.0", ["localhost", "localhost"], 400),
    ],
)
def test_a_request_names_its_host_once(version: str, hosts: list[str], status: int) -> None:
    async def test() -> None:
        async with open_http() as house:
            for upgrade in ("", "connection: upgrade\r\nupgrade: websocket\r\n"):
                head = f"GET {STATS} HTTP/{version}\r\n" + upgrade
                head += "".join(f"host: {host}\r\n" for host in hosts)
                reader, writer = await asyncio.open_connection("127.0.0.1", house.door.port)
                writer.write(f"{head}\r\n".encode())
                answered = int((await reader.readline()).split()[1])
                assert answered == status or (upgrade and status == 200), answered
                writer.close()

    run(test())


def test_other_origins_may_call_as_far_as_configured() -> None:
    asked = {
        "Origin": "https://pages.example",
        "Access-Control-Request-Method": "GET",
        "Access-Control-Request-Headers": "authorization",
    }

    async def test() -> None:
        async with closed_house(cors_origins=("https://pages.example",)) as (house, token):
            before = await house.client.options(STATS, headers=asked)
            assert before.is_success
            allowed = "access-control-allow-origin"
            assert before.headers[allowed] == "https://pages.example"
            headers = bearing(token) | {"Origin": "https://pages.example"}
            answered = await house.client.get(STATS, headers=headers)
            assert answered.headers[allowed] == "https://pages.example"
            refused = await house.client.get(STATS, headers={"Origin": "https://pages.example"})
            assert (refused.status_code, allowed in refused.headers) == (401, True)
            other = await house.client.options(
                STATS, headers=asked | {"Origin": "https://e.example"}
            )
            assert allowed not in other.headers
        async with closed_house() as (house, _):
            nobody = await house.client.options(STATS, headers=asked)
            assert allowed not in nobody.headers

    run(test())


# Proxies.


@pytest.mark.feature("G34")
def test_a_prefix_may_be_left_on() -> None:
    async def test() -> None:
        async with open_http(prefix="/jackalope") as house:
            for path in (STATS, f"/jackalope{STATS}", "/jackalope/api/jobs"):
                assert (await house.client.get(path)).status_code == 200
            assert (await house.client.get(f"/jackalopes{STATS}")).status_code == 404

    run(test())


@pytest.mark.feature("G34")
def test_forwarded_headers_count_only_from_proxies_that_are_trusted() -> None:
    forwarded = {"X-Forwarded-For": "203.0.113.7"}

    async def bursts(**settings: Any) -> list[int]:
        async with closed_house(rate_per_s=1, rate_burst=1, **settings) as (house, _):
            # Strangers are counted by address: whoever has another one has another bucket.
            first = await house.client.get(STATS, headers={"X-Forwarded-For": "203.0.113.6"})
            second = await house.client.get(STATS, headers=forwarded)
            return [first.status_code, second.status_code]

    async def test() -> None:
        assert await bursts() == [401, 429]
        assert await bursts(trusted_proxies=("192.0.2.1",)) == [401, 429]
        assert await bursts(trusted_proxies=("127.0.0.1",)) == [401, 401]

    run(test())


# TLS.


@pytest.mark.feature("D34")
def test_https() -> None:
    made = certificates()

    async def test() -> None:
        async with open_http(tls=server_context(made.config)) as house:
            url = house.url.replace("http://", "https://")
            trusting = ssl.create_default_context(cafile=made.ca)
            async with httpx.AsyncClient(base_url=url, verify=trusting) as client:
                assert (await client.get(STATS)).status_code == 200
            async with httpx.AsyncClient(base_url=url) as client:
                with pytest.raises(httpx.ConnectError):
                    await client.get(STATS)
            with pytest.raises(httpx.HTTPError):
                await house.client.get(STATS)

    run(test())
