"""The form of a task, made of what its workers say that it takes."""

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


def test_form_asks_for_the_arguments_of_the_task(house: House, open_page: Open) -> None:
    page = open_page(f"{house.url}/#/submit?queue=images")
    page.get_by_label("Name").fill("resize")
    expect(page.locator(".signature")).to_contain_text("resize(path: string, width: integer)")
    page.get_by_label("path *").fill("cat.png")
    page.get_by_label("width *").fill("64")
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.locator("body")).to_contain_text("succeeded")
    [task] = house.get("tasks", name="resize")["tasks"]
    assert (task["state"], task["queue"]) == ("succeeded", "images")


def test_payload_by_hand_that_does_not_fit_is_refused(house: House, open_page: Open) -> None:
    page = open_page(f"{house.url}/#/submit?queue=images")
    page.get_by_label("Name").fill("resize")
    page.get_by_role("button", name="Write the payload by hand").click()
    page.get_by_label("Payload").fill('[["cat.png", "wide"], {}]')
    page.get_by_role("button", name="Submit", exact=True).click()
    problem = page.get_by_text("argument 'width': expected integer")
    expect(problem).to_be_visible()
    page.get_by_role("button", name="Fill in the arguments").click()
    expect(page.get_by_label("width *")).to_be_visible()
