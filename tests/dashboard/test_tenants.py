"""Limits by key, namespaces, the audit log, resources: what tenants share, and who gets what."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.dashboard.conftest import PATIENCE_MS, Open
from tests.dashboard.harness import House

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    house = House(tmp_path_factory.mktemp("house"), "--durability", "memory")
    try:
        resources = ("--resource", "gpu=2", "--resource", "mem=64GiB", "--label", "zone=a")
        house.start_worker("birch", *resources)
        yield house
    finally:
        house.close()


def card_of(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name=name, exact=True)


def press(where: Page | Locator, name: str) -> None:
    where.get_by_role("button", name=name, exact=True).click()


def fact(card: Locator, name: str) -> Locator:
    return card.locator(".fact").filter(has_text=name).locator("dd")


def test_limit_by_key_is_made_changed_and_deleted(house: House, open_page: Open) -> None:
    page = open_page(f"{house.url}/#/limits")
    press(page, "New limit by key")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("per-user")
    dialog.get_by_label("Queue").fill("reports")
    dialog.get_by_label("Keys").fill("user, host")
    dialog.get_by_label("At once").fill("1")
    press(dialog, "Create")
    card = card_of(page, "per-user")
    expect(card).to_contain_text("each user and host by itself: at most 1 at once.")
    gate = house.gate.with_name("limited")
    for user in ("ada", "ada", "ada", "bob"):
        keys = {"user": user, "host": "a"}
        house.submit("report", str(gate), queue="reports", keys=keys)
    expect(fact(card, "Running")).to_have_text("2")
    expect(fact(card, "Waiting")).to_have_text("2")
    busiest = card.get_by_role("row").nth(1)
    expect(busiest.get_by_role("cell")).to_have_text(["ada", "a", "", "1 of 1", "2", "-"])
    press(card, "Change")
    dialog.get_by_label("At once").fill("2")
    press(dialog, "Save 1 change")
    expect(busiest).to_contain_text("2 of 2")
    settings = house.get("key-limits/per-user")["settings"]
    assert (settings["concurrency"], settings["keys"]) == (2, ["user", "host"])
    card.get_by_role("link", name="Ready tasks").click()
    expect(page.locator("tbody tr .badge")).to_have_text(["ready"])
    page.locator("tbody .task-link").first.click()
    why = card_of(page, "Why")
    expect(why).to_contain_text("per-user")
    why.get_by_role("link", name="Show the limits").click()
    press(card, "Delete")
    expect(dialog).to_contain_text("1 waiting tasks of 2 values")
    press(dialog, "Delete")
    expect(card).to_have_count(0)
    assert house.get("key-limits")["key_limits"] == []
    gate.touch()


def test_rate_limit_says_when_it_opens(house: House, open_page: Open) -> None:
    rate = {"task": "resize", "keys": ["host"], "rate": 1, "per": "1h"}
    house.post("key-limits/slow", rate, "PUT")
    for number in range(3):
        house.submit("resize", f"{number}.png", 8, queue="images", keys={"host": "b"})
    card = card_of(open_page(f"{house.url}/#/limits"), "slow")
    expect(card).to_contain_text("1 in 1h")
    expect(fact(card, "Opens")).to_have_text(re.compile("^in 59 m$"))
    house.client.delete("/api/v1/key-limits/slow").raise_for_status()
    expect(card).to_have_count(0)


def test_namespace_is_made_changed_and_deleted(house: House, open_page: Open) -> None:
    page = open_page(f"{house.url}/#/namespaces")
    press(page, "New namespace")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("acme")
    dialog.get_by_label("Tasks that wait").fill("4")
    press(dialog, "Create")
    card = card_of(page, "acme")
    house.post("tasks/batch?namespace=acme", {"tasks": [{"name": "t", "queue": "q"}] * 3})
    bar = card.get_by_role("progressbar", name="Tasks that wait: 3 of 4")
    expect(bar).to_have_attribute("aria-valuenow", "75")
    press(card, "Change")
    dialog.get_by_label("Description").fill("The shop")
    dialog.get_by_label("Workers").fill("20")
    press(dialog, "Save 2 changes")
    expect(card).to_contain_text("The shop")
    expect(card).to_contain_text("0 of 20")
    # The menu knows it, and the page shows what is in it.
    press(card, "Show it")
    expect(page.get_by_label("Namespace")).to_have_value("acme")
    page.goto(f"{house.url}/#/tasks")
    expect(page.locator("tbody tr")).to_have_count(3)
    page.goto(f"{house.url}/#/namespaces")
    press(card, "Delete")
    expect(dialog).to_contain_text("1 queue, with the results and the history")
    expect(dialog).to_contain_text("3 tasks that wait and 0 tasks that run are killed")
    go = dialog.get_by_role("button", name="Kill its tasks and delete it")
    expect(go).to_be_disabled()
    dialog.get_by_label("Its name").fill("acme")
    go.click()
    expect(card).to_have_count(0)
    expect(page.get_by_label("Namespace")).to_have_count(0)
    assert [each["name"] for each in house.get("namespaces")["namespaces"]] == ["default"]


def test_audit_log_is_filtered_paged_and_exported(house: House, open_page: Open) -> None:
    for number in range(55):
        path, headers = f"/api/v1/limits/tag-{number}", {"X-Jackalope-Client": f"ada-{number % 2}"}
        house.client.put(path, json={"limit": 1}, headers=headers).raise_for_status()
    page = open_page(f"{house.url}/#/audit?what=limit_tag")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(50)
    expect(rows.first).to_contain_text("tag tag-54 limit=1")
    press(page, "Next")
    expect(rows).to_have_count(5)
    expect(page.get_by_role("status").filter(has_text="Page 2")).to_be_visible()
    press(page, "Previous")
    expect(rows).to_have_count(50)
    page.get_by_label("Who").fill("ada-1")
    page.get_by_label("Who").press("Enter")
    expect(rows).to_have_count(27)
    assert "by=ada-1" in page.url
    with page.expect_download() as download:
        page.get_by_role("link", name="Export").click()
    lines = download.value.path().read_text().splitlines()
    assert [json.loads(line)["about"] for line in lines[:2]] == [
        "tag tag-1 limit=1",
        "tag tag-3 limit=1",
    ]
    assert len(lines) == 27
    # Between two times: up to the day before, there was nothing.
    page.get_by_label("When").select_option("between")
    page.get_by_label("To", exact=True).fill("2001-01-01T00:00:00")
    page.get_by_label("To", exact=True).press("Enter")
    expect(page.get_by_text("No act matches.")).to_be_visible()
    press(page, "Clear")
    expect(rows).to_have_count(50)
    for number in range(55):
        house.client.delete(f"/api/v1/limits/tag-{number}").raise_for_status()


def test_worker_shows_what_is_used_of_what_it_has(house: House, open_page: Open) -> None:
    gate = house.gate.with_name("placed")
    needs = {"gpu": 2, "mem": "24GiB", "zone": "a"}
    small = house.submit("report", str(gate), queue="reports", needs=needs)
    house.wait_for(small, "running")
    page = open_page(f"{house.url}/#/workers")
    card = page.get_by_role("region", name="Worker birch")
    gpu = card.get_by_role("progressbar", name="gpu: 2 of 2")
    expect(gpu).to_have_attribute("aria-valuenow", "100")
    expect(card).to_contain_text("24 GiB of 64 GiB")
    expect(card.get_by_label("Labels")).to_have_text("zone a")
    wanted = {"needs": {"gpu": 1}, "prefer": {"zone": "b"}, "avoid": {"tier": ["spot", "old"]}}
    task = house.submit("report", str(gate), queue="reports", **wanted, sticky="customer-17")
    page.goto(f"{house.url}/#/task/{task}")
    expect(card_of(page, "Why")).to_contain_text("fits worker 'birch' once 1 gpu more is free")
    facts = card_of(page, "Facts")
    expect(fact(facts, "Needs")).to_have_text("gpu 1")
    expect(fact(facts, "Prefers workers")).to_have_text("zone b")
    expect(fact(facts, "Avoids workers")).to_have_text("tier old or spot")
    expect(fact(facts, "Same worker as")).to_have_text("customer-17")
    gate.touch()
    house.wait_for(task, "succeeded")


def test_queue_shows_its_largest_shares(house: House, open_page: Open) -> None:
    policy = {"fair_by": "tenant", "fair_weights": {"acme": 5}, "needs": {"gpu": 1}}
    house.post("queues/shared", {"policy": policy}, "PUT")
    for tenant, number in (("acme", 8), ("zenith", 2)):
        house.submit_many(number, "send", "shared", keys={"tenant": tenant})
    page = open_page(f"{house.url}/#/queues/shared")
    rows = card_of(page, "Shares by tenant").locator("tbody tr")
    expect(rows.nth(0).get_by_role("cell")).to_have_text(["acme", "", "8", "5"])
    expect(rows.nth(1).get_by_role("cell")).to_have_text(["zenith", "", "2", "1"])
    expect(rows.nth(1).get_by_role("progressbar")).to_have_attribute("aria-valuenow", "25")
    expect(card_of(page, "Policy")).to_contain_text('"acme":5')
