"""Signing in to a broker that has keys, and what a key may not do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from jackalope.broker.access import hash_of, id_of, new_token
from tests.dashboard.conftest import Open
from tests.doors.http.harness import Serving

ADMIN, READER, WRITER = new_token(), new_token(), new_token()
NAMES = {ADMIN: ("ada", "admin"), READER: ("rosa", "read_tasks"), WRITER: ("wim", "submit_tasks")}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("keys")
    config = folder / "jackalope.yaml"
    lines = ["auth:", "  keys:"]
    for token, (name, permission) in NAMES.items():
        key = f"id: {id_of(token)!r}, hash: {hash_of(token)}, name: {name}"
        lines.append(f"    - {{{key}, permissions: [{permission}]}}")
    config.write_text("\n".join(lines))
    serving = Serving(folder, "--config", str(config), "--durability", "memory")
    yield serving
    serving.stop()


def sign_in(page: Page, token: str) -> None:
    page.get_by_label("Token of an API key").fill(token)
    page.get_by_role("button", name="Sign in").click()


def test_wrong_token_is_refused(broker: Serving, open_page: Open) -> None:
    page = open_page(f"{broker.url}/#/tasks")
    sign_in(page, new_token())
    expect(page.get_by_role("alert")).to_contain_text("invalid token")
    sign_in(page, ADMIN)
    expect(page.locator("h1")).to_have_text("Tasks")
    expect(page.get_by_text("live", exact=True)).to_be_visible()


@pytest.mark.feature("G32")
def test_visit_outlives_a_reload_and_ends(broker: Serving, open_page: Open) -> None:
    page = open_page(f"{broker.url}/")
    sign_in(page, ADMIN)
    expect(page.get_by_text("ada")).to_be_visible()
    page.reload()
    expect(page.locator("h1")).to_have_text("Overview")
    assert page.evaluate("document.cookie") == "", "no script reads the cookie"
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token of an API key")).to_be_visible()
    assert page.evaluate("fetch('api/v1/stats').then(r => r.status)") == 401


def test_what_a_key_may_not_is_not_offered_and_refused(broker: Serving, open_page: Open) -> None:
    page = open_page(f"{broker.url}/#/submit")
    sign_in(page, ADMIN)
    page.get_by_label("Queue", exact=True).fill("q")
    page.get_by_label("Name", exact=True).fill("watched")
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.get_by_role("button", name="Kill")).to_be_visible()
    task = page.url
    page.get_by_role("button", name="Sign out").click()
    sign_in(page, READER)
    page.goto(task)
    expect(page.locator("h1")).to_contain_text("watched")
    for action in ("Kill", "Pause", "Hold"):
        expect(page.get_by_role("button", name=action)).to_have_count(0)
    expect(page.get_by_role("link", name="Submit", exact=True)).to_have_count(0)
    page.goto(f"{broker.url}/#/queues/q")
    expect(page.get_by_role("button", name="Edit")).to_have_count(0)
    task_id = Path(task).name
    killed = f"""fetch('api/v1/tasks/{task_id}/kill',
        {{method: 'POST', headers: {{'X-Jackalope-Client': 'me'}}}}).then(r => r.status)"""
    assert page.evaluate(killed) == 403
    bare = f"fetch('api/v1/tasks/{task_id}/kill', {{method: 'POST'}}).then(r => r.json())"
    assert "X-Jackalope-Client" in page.evaluate(bare)["error"]


def test_key_that_may_not_read_sees_nothing(broker: Serving, open_page: Open) -> None:
    page = open_page(f"{broker.url}/")
    sign_in(page, WRITER)
    expect(page.get_by_text("This key lacks the permission read_tasks.")).to_be_visible()
    page.get_by_role("link", name="Submit", exact=True).click()
    expect(page.locator("h1")).to_have_text("Submit a task")
