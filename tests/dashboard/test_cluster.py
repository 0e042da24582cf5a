"""The page of a cluster, in a real browser, with real nodes."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from jackalope.broker.access import hash_of, id_of, new_token
from tests.cluster.brokers import Brokers, running, until
from tests.cluster.pairs import Pair, started, trouble
from tests.dashboard.conftest import Open

pytestmark = pytest.mark.timeout(300)

WAIT_MS = 60_000


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with running(tmp_path_factory.mktemp("nodes")) as brokers:
        brokers.leader()
        yield brokers


def test_members_log_and_leaders(brokers: Brokers, open_page: Open) -> None:
    leader = brokers.leader()
    page = open_page(f"http://{leader.address('http')}/")
    page.get_by_role("navigation").get_by_role("link", name="Cluster").click()
    expect(page.locator("h1")).to_have_text("Cluster")
    expect(page.get_by_text(f"test: {leader.name} leads")).to_be_visible()
    rows = page.get_by_role("row")
    expect(rows).to_have_count(4)
    expect(rows.filter(has_text="leading")).to_have_count(1)
    expect(rows.filter(has_text="following")).to_have_count(2, timeout=WAIT_MS)
    expect(page.get_by_role("status").filter(has_text="healthy")).to_be_visible(timeout=WAIT_MS)
    expect(page.get_by_role("region", name="Log")).to_contain_text("nats-server")
    expect(page.get_by_role("region", name="Leaders")).to_contain_text(leader.name)

    lost = next(each for each in brokers.all if each is not leader)
    lost.kill()
    gone = rows.filter(has_text="unreachable")
    expect(gone).to_contain_text(lost.name, timeout=WAIT_MS)
    expect(
        page.get_by_role("alert").filter(has_text=f"{lost.name} does not answer")
    ).to_be_visible()
    page.set_viewport_size({"width": 390, "height": 800})
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) <= 0


def test_a_standby_shows_how_far_it_is_behind(tmp_path: Path, open_page: Open) -> None:
    with started(Pair(tmp_path)) as pair:
        page = open_page(f"http://{pair.standby.address('http')}/#/cluster")
        expect(page.locator("h1")).to_have_text("Cluster")
        rows = page.get_by_role("row")
        expect(rows).to_have_count(3, timeout=WAIT_MS)
        expect(rows.filter(has_text="leading")).to_contain_text("primary")
        expect(rows.filter(has_text="standby")).to_have_count(1)
        expect(page.get_by_role("status").filter(has_text="healthy")).to_be_visible()
        pair.primary.kill()
        until(lambda: "nothing was heard" in trouble(pair.standby), pair.both)
        gone = page.get_by_role("alert").filter(has_text="the primary is not followed")
        expect(gone).to_be_visible(timeout=WAIT_MS)
        expect(rows.filter(has_text="unreachable")).to_contain_text("primary")


def test_a_visitor_stays_signed_in_when_the_leader_is_killed(
    tmp_path: Path, open_page: Open
) -> None:
    token = new_token()
    key = {"id": id_of(token), "hash": hash_of(token), "name": "ada", "permissions": ["admin"]}
    with running(tmp_path, auth={"keys": [key]}) as brokers:
        leader = brokers.leader()
        follower = brokers.follower()
        until(lambda: follower.get("/health/ready")[0] == 200, brokers.all)
        page = open_page(f"http://{follower.address('http')}/")
        page.get_by_label("Token of an API key").fill(token)
        page.get_by_role("button", name="Sign in").click()
        live = page.get_by_text("live", exact=True)
        expect(live).to_be_visible(timeout=WAIT_MS)
        page.evaluate("window.isTheSame = true")
        leader.kill()
        brokers.leader()
        answer = httpx.post(
            f"http://{follower.address('http')}/api/v1/tasks",
            json={"queue": "afterwards", "name": "t"},
            headers={"Authorization": f"Bearer {token}"},
            timeout=30,
        )
        assert answer.status_code == 201
        page.get_by_role("navigation").get_by_role("link", name="Queues").click()
        # The next leader tells of it, over a WebSocket that the page has opened again.
        expect(page.get_by_role("link", name="afterwards")).to_be_visible(timeout=WAIT_MS)
        expect(live).to_be_visible(timeout=WAIT_MS)
        expect(page.get_by_label("Token of an API key")).to_have_count(0)
        assert page.evaluate("window.isTheSame") is True
