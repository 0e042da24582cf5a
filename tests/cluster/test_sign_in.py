"""Browsers that have signed in to a node stay signed in when the leader changes."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect
from websockets.typing import Origin

from jackalope.broker.access import hash_of, id_of, new_token
from jackalope.broker.cluster.peer_link import PeerGone
from tests.cluster.brokers import Brokers, Process, running, until

pytestmark = pytest.mark.timeout(300)

TOKEN = new_token()
KEY = {"id": id_of(TOKEN), "hash": hash_of(TOKEN), "name": "ada", "permissions": ["admin"]}
PROOF = {"X-Jackalope-Client": "test"}
SESSION = "/api/v1/session"


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    folder = tmp_path_factory.mktemp("nodes")
    with running(folder, auth={"keys": [KEY]}) as brokers:
        brokers.leader()
        yield brokers


class Browser:
    """Keeps cookies, as a browser does: for the host, whatever the port."""

    def __init__(self) -> None:
        self.cookies = httpx.Cookies()

    def ask(self, node: Process, method: str, path: str, **more: Any) -> httpx.Response:
        url = f"http://{node.address('http')}{path}"
        more["headers"] = PROOF | more.get("headers", {})
        with httpx.Client(cookies=self.cookies, timeout=10) as client:
            answer = client.request(method, url, **more)
            self.cookies = client.cookies
        return answer

    def name_at(self, node: Process) -> str:
        """Return as who the browser is known at a node; nothing if it is not."""
        with suppress(httpx.TransportError):
            answer = self.ask(node, "GET", SESSION)
            if answer.status_code == 200:
                return str(answer.json()["name"] or "")
        return ""

    def pulse(self, node: Process) -> dict[str, Any]:
        """Return the first message of the dashboard's WebSocket."""
        place = node.address("http")
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        with connect(
            f"ws://{place}/api/v1/pulse",
            additional_headers=headers,
            origin=Origin(f"http://{place}"),
        ) as socket:
            return dict(json.loads(socket.recv(timeout=30)))


def withdrawn_at(node: Process) -> set[bytes]:
    """Return the digests of the cookies that a node knows to be signed out."""
    with suppress(PeerGone):
        return {digest for digest, _ in node.status().withdrawn}
    return set()


def test_a_browser_stays_signed_in_when_the_leader_is_killed(whole: Brokers) -> None:
    leader, follower = whole.leader(), whole.follower()
    browser = Browser()
    assert browser.name_at(follower) == ""
    assert browser.ask(follower, "POST", SESSION, json={"token": TOKEN}).status_code == 200
    assert [browser.name_at(each) for each in whole.all] == ["ada"] * 3
    leader.kill()
    until(lambda: browser.name_at(follower) == "ada", whole.all)
    next_leader = whole.leader()
    assert next_leader is not leader
    assert browser.name_at(next_leader) == "ada"
    task = browser.ask(follower, "POST", "/api/v1/tasks", json={"queue": "q", "name": "t"})
    assert task.status_code == 201, task.text
    assert browser.pulse(follower)["type"] == "pulse"


def test_a_browser_that_signed_out_stays_out_when_the_leader_is_killed(whole: Brokers) -> None:
    until(lambda: all(each.get("/health/ready")[0] == 200 for each in whole.all), whole.all)
    leader, follower = whole.leader(), whole.follower()
    browser, thief = Browser(), Browser()
    browser.ask(follower, "POST", SESSION, json={"token": TOKEN})
    thief.cookies = httpx.Cookies(browser.cookies)
    assert thief.name_at(follower) == "ada"
    assert browser.ask(follower, "DELETE", SESSION).status_code == 204
    assert not browser.cookies
    assert thief.name_at(follower) == ""
    digests = withdrawn_at(leader)
    assert digests
    until(lambda: all(digests <= withdrawn_at(each) for each in whole.all), whole.all)
    leader.kill()
    until(lambda: browser.ask(follower, "GET", SESSION).status_code == 200, whole.all)
    assert thief.name_at(follower) == ""
    assert thief.ask(follower, "GET", "/api/v1/stats").status_code == 401
    leader.start()  # It hears of it from the others.
    until(lambda: digests <= withdrawn_at(leader), whole.all)
