"""The table over a hundred thousand tasks."""

from __future__ import annotations

import time
from pathlib import Path

from playwright.sync_api import Route, expect

from tests.dashboard.conftest import Open
from tests.dashboard.harness import House

#: From a click until the answer is to be seen. It takes a tenth of that on an idle machine.
QUICK_S = 5.0


def test_hundred_thousand_tasks(tmp_path: Path, open_page: Open) -> None:
    house = House(tmp_path, "--durability", "memory")
    try:
        house.post("queues/deep", {"policy": {"depth_limit": 0}}, "PUT")
        house.submit_many(99_999, "hay", "deep")
        house.submit("needle", queue="deep")
        page = open_page(f"{house.url}/#/tasks")
        status = page.locator(".pager [role=status]")
        expect(status).to_have_text("1 to 50 of 100,000", timeout=30_000)
        begin = time.monotonic()
        page.get_by_label("Search").fill("needl")
        expect(status).to_have_text("1 to 1 of 1")
        page.get_by_role("button", name="Clear").click()
        expect(status).to_have_text("1 to 50 of 100,000", timeout=30_000)
        page.get_by_role("button", name="Next").click()
        expect(status).to_have_text("51 to 100 of 100,000")
        held: list[Route] = []

        def hold(route: Route) -> None:
            held.append(route)

        page.route("**/api/v1/tasks?*", hold)
        page.get_by_role("button", name="Priority").click()
        # Rows that are about to go cannot be chosen: what is acted on is what is seen.
        everything = page.get_by_label("Choose all on this page")
        expect(everything).to_be_disabled()
        for request in held:
            request.continue_()
        page.unroute("**/api/v1/tasks?*")
        expect(status).to_have_text("1 to 50 of 100,000", timeout=30_000)
        assert time.monotonic() - begin < 4 * QUICK_S
        # Only what is to be seen is there to be drawn.
        assert page.locator("tbody tr").count() == 50
        everything.check()
        page.get_by_role("button", name="Choose all 100,000 that match").click()
        page.get_by_role("button", name="Hold", exact=True).click()
        expect(page.get_by_role("dialog")).to_contain_text("This concerns")
        page.get_by_role("dialog").get_by_role("button", name="Hold").click()
        done = page.locator(".notice").filter(has_text="Hold: 100,000 tasks changed")
        expect(done).to_be_visible(timeout=60_000)
        assert house.get("tasks", state="held")["total"] == 100_000
    finally:
        house.close()
