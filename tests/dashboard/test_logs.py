"""The log of a task on its page, in a real browser."""

from __future__ import annotations

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


def test_log_grows_is_searched_and_does_no_harm(house: House, open_page: Open) -> None:
    task = house.submit("chat", str(house.gate), queue="reports")
    page = open_page(f"{house.url}/#/task/{task}")
    log = page.get_by_role("region", name="Log")
    lines = log.locator(".log-line")
    expect(log.locator(".log-mark")).to_have_text(["Attempt 1", "Attempt 2"])
    expect(log.get_by_role("status")).to_have_text("live")
    expect(lines.filter(has_text="no card for customer 17")).to_have_class("log-line log-error")
    harmless = lines.filter(has_text="<script>").first.locator(".log-text")
    expect(harmless).to_have_text("red <script>document.title = 'hacked'</script>")
    assert "hacked" not in page.title()

    log.get_by_role("searchbox").fill("SCALES")
    expect(lines).to_have_count(2)
    log.get_by_role("searchbox").fill("")
    log.get_by_label("Level").select_option("error")
    expect(lines).to_have_count(1)
    log.get_by_label("Level").select_option("trace")
    log.get_by_label("Attempt").select_option("2")
    expect(lines).to_have_count(22)

    log.get_by_role("button", name="Pause").click()
    expect(log.get_by_role("status")).to_have_text("paused")
    log.get_by_role("button", name="Follow").click()
    house.gate.touch()
    expect(lines.last).to_contain_text("all orders are packed")
    expect(log.get_by_role("status")).to_have_text("23 lines")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_log_fits_a_narrow_screen(house: House, open_page: Open, scheme: str) -> None:
    house.gate.touch()
    task = house.submit("chat", str(house.gate), queue="reports")
    house.wait_for(task, "succeeded")
    page = open_page(
        f"{house.url}/#/task/{task}", viewport={"width": 390, "height": 800}, color_scheme=scheme
    )
    log = page.get_by_role("region", name="Log")
    expect(log.get_by_role("status")).to_have_text("46 lines")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_task_that_printed_nothing_says_so(house: House, open_page: Open) -> None:
    task = house.submit("resize", "cat.png", 320, queue="images")
    house.wait_for(task, "succeeded")
    page = open_page(f"{house.url}/#/task/{task}")
    expect(page.get_by_role("region", name="Log")).to_contain_text("It printed and logged nothing.")
