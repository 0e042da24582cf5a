"""Pictures of every page for the documentation: `python -m tests.dashboard.screenshots`.

A real broker with a worker, and work of each kind, looked at in light and in dark.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.dashboard.conftest import CHROMIUM
from tests.dashboard.harness import House

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "figures"
_VIEW = {"width": 1120, "height": 720}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        house = House(Path(folder), "--durability", "memory")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            house.start_worker("birch")
            house.start_worker("maple")
            pages = _fill(house)
            for theme in ("light", "dark"):
                page = browser.new_context(viewport=_VIEW, color_scheme=theme).new_page()  # type: ignore[arg-type]
                for name, address in pages.items():
                    _take(page, house, address, FOLDER / f"dashboard-{name}-{theme}.png")
        finally:
            browser.close()
            house.close()


def _take(page: Page, house: House, address: str, path: Path) -> None:
    page.goto(f"{house.url}/#/{address}")
    page.reload()
    page.locator("h1").wait_for()
    page.wait_for_timeout(2_500)  # The charts are drawn when the first figures are there.
    page.screenshot(path=path)
    print(f"{path.name}: {path.stat().st_size // 1024} KiB")


def _fill(house: House) -> dict[str, str]:
    """Submit work of each kind; return the address of each page."""
    for number in range(40):
        house.submit("resize", f"photo-{number:03}.jpg", 320, queue="images")
    for number in range(3):
        house.submit("charge", number, queue="payments", retries=0)
    house.submit_many(12, "archive", "cold", priority=90)
    running = house.submit("report", str(house.gate), queue="reports", tags=["nightly"])
    for number in range(4):
        house.submit("resize", f"page-{number}.png", 800, queue="images", parent=running)
    house.submit("resize", "cover.png", 1200, queue="images", depends_on=[running])
    flow = house.post("flows", _flow())["id"]
    house.post("schedules/nightly", _NIGHTLY, method="PUT")
    house.post("limits/nightly", {"limit": 2}, method="PUT")
    asked = {"name": "resize", "queue": "images", "payload": "W1siYS5wbmciLCA4XSwge31d"}
    for _ in range(3):
        house.post("requests", {**asked, "headers": {"content": "json"}})
    house.wait_for(flow, "succeeded")
    return {
        "overview": "overview",
        "tasks": "tasks",
        "task": f"task/{running}",
        "queues": "queues",
        "queue": "queues/images",
        "batches": "batches",
        "limits": "limits",
        "workers": "workers",
        "schedules": "schedules",
        "flows": "flows",
        "flow": f"flows/{flow}",
        "pools": "pools",
        "cache": "cache",
        "dead": "dead",
        "keys": "keys",
        "submit": "submit",
    }


_NIGHTLY = {"queue": "cold", "task": "archive", "cron": "0 3 * * *", "zone": "Europe/Berlin"}


def _flow() -> dict[str, object]:
    def node(name: str, **more: object) -> dict[str, object]:
        return {"node": name, "name": "resize", "args": [f"{name}.png", 64], **more}

    return {
        "name": "album",
        "queue": "images",
        "nodes": [
            node("fetch"),
            *(node(f"thumbnail {number}", after=["fetch"]) for number in range(1, 4)),
            node("contact sheet", after=[f"thumbnail {number}" for number in range(1, 4)]),
            node("publish", after=["contact sheet"]),
        ],
    }


if __name__ == "__main__":
    main()
