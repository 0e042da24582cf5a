"""The pages of flows, with a live broker and a worker."""

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


def node(name: str, task: str = "resize", **more: object) -> dict[str, object]:
    arguments = [f"{name}.png", 8] if task == "resize" else [7]
    queue = "images" if task == "resize" else "payments"
    return {"node": name, "name": task, "args": arguments, "queue": queue, **more}


def submit(house: House, name: str, *nodes: dict[str, object], **more: object) -> str:
    body = {"name": name, "queue": "images", "nodes": list(nodes), **more}
    flow: str = house.post("flows", body)["id"]
    return flow


def test_a_flow_has_progress_a_graph_and_bars(house: House, open_page: Open) -> None:
    flow = submit(
        house,
        "album",
        node("fetch"),
        node("left", after=["fetch"], group="halves"),
        node("right", after=["fetch"], group="halves"),
        node("join", groups=["halves"]),
        groups=[{"name": "halves"}],
    )
    house.wait_for(flow, "succeeded")
    page = open_page(f"{house.url}/#/flows")
    row = page.get_by_role("row").filter(has_text="album")
    expect(row).to_contain_text("4 of 4")
    row.get_by_role("link", name="album").click()
    expect(page.locator("h1")).to_contain_text("album")
    graph = page.get_by_role("region", name="Graph")
    expect(graph.locator("svg a")).to_have_count(4)
    expect(graph.locator("path.edge")).to_have_count(4)
    expect(page.get_by_role("region", name="Facts")).to_contain_text("2 of 2 nodes")
    bars = page.get_by_role("region", name="Attempts")
    expect(bars.locator(".gantt-row")).to_have_count(5)
    expect(bars).to_contain_text(re.compile(r"\d ms"))
    graph.get_by_role("link", name="join: succeeded").click()
    expect(page.locator("h1")).to_contain_text("resize")


def test_a_flow_that_failed_says_why_and_is_retried(house: House, open_page: Open) -> None:
    charge = node("charge", "charge", retries=0)
    flow = submit(house, "order", charge, node("ship", after=["charge"]))
    house.wait_for(flow, "dead")
    page = open_page(f"{house.url}/#/flows/{flow}")
    expect(page.get_by_role("region", name="Facts")).to_contain_text("has no card")
    expect(page.get_by_role("link", name="ship: dead")).to_be_visible()
    attempts = page.get_by_role("region", name="Attempts").locator(".gantt-line span")
    expect(attempts).to_have_count(1)
    page.get_by_role("button", name="Retry").click()
    expect(attempts).to_have_count(2)
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
