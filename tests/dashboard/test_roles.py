"""What each role is offered: all that its key permits, and nothing that would be refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Request, Response, expect

from jackalope.broker.access import hash_of, id_of, new_token
from jackalope.core.api_key import ROLES, Role
from tests.acceptance.harness import wait_until
from tests.dashboard.conftest import PATIENCE_MS, Open
from tests.dashboard.harness import House

expect.set_options(timeout=PATIENCE_MS)

ADMIN = new_token()
QUEUES = "[images, reports, payments, cold, keyed, unborn]"

#: Roles of the whole broker, an administrator of a namespace, and one of some queues.
KEYS = {
    **{str(role): f"permissions: [{', '.join(ROLES[role])}]" for role in Role},
    "tenant": "permissions: [admin], namespace: default",
    "warden": f"permissions: [admin], queues: {QUEUES}",
}
TOKENS = {name: ADMIN if name == "admin" else new_token() for name in KEYS}

#: What each may do: submit, cancel, administer queues, a namespace, the broker.
READ, SUBMIT, CANCEL, QUEUE, NAMESPACE, BROKER = range(6)
MAY = {
    "read": {READ},
    "submit": {READ, SUBMIT},
    "work": {READ, SUBMIT},
    "operate": {READ, SUBMIT, CANCEL},
    "admin": {READ, SUBMIT, CANCEL, QUEUE, NAMESPACE, BROKER},
    "tenant": {READ, SUBMIT, CANCEL, QUEUE, NAMESPACE},
    "warden": {READ, SUBMIT, CANCEL, QUEUE},
}

#: By page: a text that is there for all, and what it offers to whom.
OFFERED = {
    "tasks": ("watched", {"Submit a task": SUBMIT}),
    "task/{task}": (
        "watched",
        {"Kill": CANCEL, "Pause": CANCEL, "Hold": CANCEL, "Submit again…": SUBMIT},
    ),
    "queues": ("images", {"New queue": QUEUE, "Pause": QUEUE}),
    "queues/cold": ("Oldest ready", {"Pause": QUEUE, "Delete": QUEUE, "Edit": QUEUE}),
    "limits": (
        "by-user",
        {
            "New limit by key": NAMESPACE,
            "Change": NAMESPACE,
            "Delete": NAMESPACE,
            "Remove": NAMESPACE,
            "Set": NAMESPACE,
        },
    ),
    "workers": ("4 slots", {"Drain": NAMESPACE}),
    "schedules": ("0 3 * * *", {"Trigger": SUBMIT, "Pause": CANCEL, "Delete": CANCEL}),
    "flows/{flow}": ("album", {"Kill": CANCEL, "Pause": CANCEL}),
    "pools": ("groups up", {"Pin": QUEUE, "Start": QUEUE}),
    "cache": ("resize", {"Purge all": CANCEL, "Pin": CANCEL, "Purge": CANCEL}),
    "dead": (
        "customer 1",
        {"Retry all": CANCEL, "Delete all": CANCEL, "Retry": CANCEL, "Delete": CANCEL},
    ),
    "namespaces": ("default", {"New namespace": BROKER, "Change": NAMESPACE, "Delete": BROKER}),
    "keys": ("configured", {"Make": NAMESPACE}),
    "audit": ("limit tag", {"Export": NAMESPACE}),
    "submit": ("Or a file", {"Submit": SUBMIT}),
}

#: Pages that are for some only, and so is their place in the menu.
PAGES = {
    "Namespaces": {"read", "submit", "work", "operate", "admin", "tenant"},
    "Keys": {"admin", "tenant"},
    "Audit": {"admin", "tenant"},
    "Submit": MAY.keys() - {"read"},
}


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    lines = ["auth:", "  keys:"]
    for name, rights in KEYS.items():
        token = TOKENS[name]
        key = f"id: {id_of(token)!r}, hash: {hash_of(token)}, name: {name}"
        lines.append(f"    - {{{key}, {rights}}}")
    config = tmp_path / "jackalope.yaml"
    config.write_text("\n".join(lines))
    monkeypatch.setenv("JACKALOPE_TOKEN", ADMIN)
    house = House(tmp_path, "--config", str(config), "--durability", "memory")
    try:
        house.client.headers["Authorization"] = f"Bearer {ADMIN}"
        house.start_worker("birch")
        yield house
    finally:
        house.close()


def fill(house: House) -> dict[str, str]:
    """Make something of every kind; return the ids that stand in addresses."""
    task = house.submit("watched", queue="cold")
    node = {"node": "first", "name": "watched", "args": []}
    flow = house.post("flows", {"name": "album", "queue": "cold", "nodes": [node]})["id"]
    house.post("limits/rare", {"limit": 2}, "PUT")
    house.post("key-limits/by-user", {"keys": ["user"], "concurrency": 1}, "PUT")
    daily = {"queue": "cold", "task": "archive", "cron": "0 3 * * *"}
    house.post("schedules/nightly", daily, "PUT")
    house.post("pools/keyed", {"groups_max": 7}, "PUT")
    house.submit("model", queue="keyed", key="paris")
    asked = {"name": "resize", "queue": "images", "payload": "W1siYS5wbmciLCA4XSwge31d"}
    house.post("requests", {**asked, "headers": {"content": "json"}})
    wait_until(lambda: bool(house.get("cache")["answers"]), "an answer")
    dead = house.submit("charge", 1, queue="payments", retries=0)
    house.wait_for(dead, "dead")
    return {"task": task, "flow": flow}


def sign_in(page: Page, role: str) -> None:
    page.get_by_label("Token of an API key").fill(TOKENS[role])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("live", exact=True)).to_be_visible()


def named(name: str) -> re.Pattern[str]:
    return re.compile(f"^{re.escape(name)}$")


@pytest.mark.parametrize("role", MAY)
def test_role_is_offered_what_it_may_do_and_nothing_is_refused(
    role: str, house: House, open_page: Open
) -> None:
    ids = fill(house)
    page = open_page(f"{house.url}/")
    sign_in(page, role)
    refused: list[str] = []
    under_way: set[Request] = set()

    def note(response: Response) -> None:
        under_way.discard(response.request)
        if response.status in (401, 403):
            refused.append(f"{page.url}: {response.request.method} {response.url}")

    page.on("request", lambda request: under_way.add(request))  # noqa: PLW0108  of C
    page.on("requestfailed", lambda request: under_way.discard(request))  # noqa: PLW0108
    page.on("response", note)
    menu = page.get_by_role("navigation", name="Pages").first
    for label, roles in PAGES.items():
        entry = menu.get_by_role("link", name=label, exact=True)
        expect(entry).to_have_count(1 if role in roles else 0)
    for where, (marker, offers) in OFFERED.items():
        if role not in PAGES.get(where.capitalize(), {role}):
            continue
        address = f"{house.url}/#/{where.format(**ids)}"
        page.goto(address)
        expect(page.locator("main")).to_contain_text(marker)
        for name, needed in offers.items():
            offered = page.locator("main button, main a.button").filter(has_text=named(name))
            count = offered.count()
            assert (count > 0) == (needed in MAY[role]), f"{where}: {name}: {count}"
    # Whatever there is to press, the broker does not refuse it for the rights of the key.
    for where in OFFERED:
        if role in PAGES.get(where.capitalize(), {role}):
            press_all(page, f"{house.url}/#/{where.format(**ids)}", under_way)
    assert refused == []


def press_all(page: Page, address: str, under_way: set[Request]) -> None:
    """Press every button of a page, and what a dialog has to confirm it."""
    page.goto(address)
    settle(page, under_way)
    names = dict.fromkeys(page.locator("main button:enabled").all_inner_texts())
    for name in filter(None, names):
        page.goto(address)
        settle(page, under_way)
        found = page.locator("main button:enabled").filter(has_text=named(name))
        if not found.count():
            continue  # It went with what was pressed before.
        found.first.click()
        settle(page, under_way)
        dialog = page.get_by_role("dialog")
        if dialog.count():
            for field in dialog.get_by_label(re.compile("^(Name|Its name.*)$")).all():
                if field.evaluate("field => field.tagName") == "INPUT":
                    field.fill("default" if "Its name" in dialog.inner_text() else "made")
            sure = dialog.locator("button:enabled").last
            sure.click()
            settle(page, under_way)
            if dialog.count():
                page.keyboard.press("Escape")
                expect(dialog).to_have_count(0)
        settle(page, under_way)


def settle(page: Page, under_way: set[Request]) -> None:
    """Wait until every request is answered. What a click asks for, it asks for at once."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    while any("/api/" in request.url for request in under_way):
        page.wait_for_timeout(5)
