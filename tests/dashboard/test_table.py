"""The table of tasks: it stands still, says what tasks are about, and is worked by keyboard."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.dashboard.conftest import PATIENCE_MS, Open
from tests.dashboard.harness import House

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    house = House(tmp_path_factory.mktemp("house"), "--durability", "memory")
    try:
        house.start_worker("birch")
        yield house
    finally:
        house.close()


def test_new_rows_are_counted_and_no_row_moves(house: House, open_page: Open) -> None:
    first = house.submit("sift", "first", queue="still", held=True)
    page = open_page(f"{house.url}/#/tasks?queue=still")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(1)
    for number in range(3):
        house.submit("sift", number, queue="still", held=True)
    house.post(f"tasks/{first}/kill")
    expect(rows.locator(".badge")).to_have_text(["killed"])  # What a row shows goes on.
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Show 3 new tasks").click()
    expect(rows).to_have_count(4)
    expect(rows.last).to_contain_text("killed")
    page.get_by_label("Live").check()
    house.submit("sift", "live", queue="still", held=True)
    expect(rows).to_have_count(5)
    expect(rows.first).to_contain_text('"live"')


def test_a_row_that_leaves_the_list_keeps_its_place(house: House, open_page: Open) -> None:
    tasks = [house.submit("sift", number, queue="leaving", held=True) for number in range(3)]
    page = open_page(f"{house.url}/#/tasks?queue=leaving&state=held")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(3)
    house.post(f"tasks/{tasks[1]}/kill")
    expect(rows.nth(1)).to_have_class(re.compile("faded"))
    expect(rows).to_have_count(3)
    page.get_by_role("button", name="1 task left this list").click()
    expect(rows).to_have_count(2)


def test_rows_say_what_a_task_is_about(house: House, open_page: Open) -> None:
    house.submit("resize", "cat.png", 320, queue="images", alias="the cat")
    page = open_page(f"{house.url}/#/tasks?text=the%20cat")
    row = page.locator("tbody tr")
    expect(row).to_contain_text('"cat.png", 320')
    expect(row).to_contain_text("the cat")
    expect(row).to_contain_text(re.compile(r"\d (ms|s)"))
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("Arguments").uncheck()
    expect(row).not_to_contain_text("cat.png")
    page.reload()
    expect(row).to_be_visible()
    expect(row).not_to_contain_text("cat.png")


def test_errors_payloads_and_times_are_searched(house: House, open_page: Open) -> None:
    failed = house.submit("charge", 7, queue="payments", retries=0)
    house.wait_for(failed, "dead")
    house.submit("sift", "needle", queue="hay", held=True)
    page = open_page(f"{house.url}/#/tasks")
    rows = page.locator("tbody tr")
    search = page.get_by_label("In error or payload")
    search.fill("needle")
    search.press("Enter")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("hay")
    search.fill("CUSTOMER 7 has")
    search.press("Enter")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("payments")
    page.get_by_label("Submitted").select_option("last hour")
    expect(rows).to_have_count(1)
    assert "within=1h" in page.url
    page.get_by_label("Submitted").select_option("between…")
    page.get_by_label("To", exact=True).fill("2020-01-01T00:00:00")
    page.get_by_label("To", exact=True).press("Tab")
    expect(page.get_by_text("No task matches.")).to_be_visible()


def test_rows_are_reached_by_keyboard(house: House, open_page: Open) -> None:
    tasks = [house.submit("sift", number, queue="keyboard", held=True) for number in range(3)]
    page = open_page(f"{house.url}/#/tasks?queue=keyboard")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(3)
    for key in "jjjkx":
        page.keyboard.press(key)
    expect(rows.nth(1)).to_be_focused()
    expect(page.get_by_role("toolbar")).to_contain_text("1 task chosen")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("open the task of the row")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(rows.nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(tasks[1]))


def test_a_task_that_died_of_another_links_it(house: House, open_page: Open) -> None:
    cause = house.submit("charge", 9, queue="payments", retries=0)
    house.wait_for(cause, "dead")
    victim = house.submit("resize", "x.png", 1, queue="images", depends_on=[cause])
    house.wait_for(victim, "dead")
    page = open_page(f"{house.url}/#/task/{victim}")
    expect(page.get_by_role("region", name="Why")).to_contain_text(cause)
    page.get_by_role("link", name="Show that task").click()
    expect(page).to_have_url(re.compile(cause))
    attempts = page.get_by_role("region", name="Attempts")
    expect(attempts.locator(".gantt")).to_contain_text("ms")


def test_relatives_come_in_pages(house: House, open_page: Open) -> None:
    parent = house.submit("sift", "parent", queue="family", held=True)
    for number in range(14):
        house.submit("sift", number, queue="family", held=True, parent=parent)
    page = open_page(f"{house.url}/#/task/{parent}")
    card = page.get_by_role("region", name="Relatives")
    expect(card).to_contain_text("children: 1 to 12 of 14")
    card.get_by_role("button", name="Next").click()
    expect(card).to_contain_text("children: 13 to 14 of 14")
    expect(card.locator("svg a")).to_have_count(3)


def test_a_queue_without_a_worker_is_marked(house: House, open_page: Open) -> None:
    house.submit("sift", queue="deserted")
    page = open_page(f"{house.url}/#/queues")
    row = page.get_by_role("row").filter(has_text="deserted")
    expect(row).to_contain_text("no worker")
    expect(page.get_by_role("row").filter(has_text="images")).not_to_contain_text("no worker")


def test_answers_are_pinned_and_purged(house: House, open_page: Open) -> None:
    body = {"name": "resize", "queue": "images", "payload": "W1siYS5wbmciLCA4XSwge31d"}
    served = house.post("requests", {**body, "headers": {"content": "json"}})
    house.wait_for(served["task"], "succeeded")
    page = open_page(f"{house.url}/#/cache")
    row = page.locator("tbody tr")
    expect(row).to_contain_text("resize")
    row.get_by_role("button", name="Pin", exact=True).click()
    expect(row).to_contain_text("pinned")
    row.get_by_role("button", name="Purge").click()
    expect(page.get_by_text("No answer is kept.")).to_be_visible()
    assert house.get("cache")["answers"] == []


def test_keys_are_made_and_revoked(
    tmp_path_factory: pytest.TempPathFactory, open_page: Open
) -> None:
    house = House(tmp_path_factory.mktemp("keys"), "--durability", "memory")
    try:
        page = open_page(f"{house.url}/#/keys")
        for name, permission in (("root", "admin"), ("wall", "read_tasks")):
            page.get_by_label("Name", exact=True).fill(name)
            page.get_by_role("checkbox", name=permission, exact=True).check()
            page.get_by_role("button", name="Make").click()
            token = page.locator(".token").inner_text()
            page.get_by_role("button", name="Done").click()
            if name == "root":  # From the first key on everybody needs one.
                page.get_by_label("Token").fill(token)
                page.get_by_role("button", name="Sign in").click()
        row = page.get_by_role("row").filter(has_text="wall")
        expect(row).to_contain_text("read_tasks")
        row.get_by_role("button", name="Revoke").click()
        page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
        expect(row).to_have_count(0)
    finally:
        house.close()
