"""Pictures of every page for the documentation: `python -m tests.dashboard.screenshots`.

A real broker with a worker, and work of each kind, looked at in light and in dark.
"""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.dashboard.conftest import CHROMIUM
from tests.dashboard.harness import House
from tests.dashboard.tasks import png

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "figures"
_VIEW = {"width": 1120, "height": 720}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        house = House(Path(folder), "--durability", "memory")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            house.start_worker("birch", *_GPUS)
            house.start_worker("maple", "--resource", "mem=16GiB", "--label", "tier=spot")
            house.start_worker("willow")
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
    path.write_bytes(_shrunk(page, page.screenshot()))
    print(f"{path.name}: {path.stat().st_size // 1024} KiB")


def _shrunk(page: Page, picture: bytes) -> bytes:
    """Return a picture a fifth smaller: rows of plain colours pack better without a filter."""
    dots = base64.b64decode(page.evaluate(_DOTS, base64.b64encode(picture).decode()))
    plain = bytearray(len(dots) // 4 * 3)
    for colour in range(3):
        plain[colour::3] = dots[colour::4]
    width, row = _VIEW["width"], _VIEW["width"] * 3
    rows = b"".join(b"\0" + plain[at : at + row] for at in range(0, len(plain), row))
    return png(width, len(plain) // row, rows)


_DOTS = """async (picture) => {
    const bytes = Uint8Array.from(atob(picture), (each) => each.charCodeAt(0));
    const bitmap = await createImageBitmap(new Blob([bytes]));
    const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
    context.drawImage(bitmap, 0, 0);
    const dots = context.getImageData(0, 0, bitmap.width, bitmap.height).data;
    let text = "";
    for (let at = 0; at < dots.length; at += 4096)
        text += String.fromCharCode(...dots.subarray(at, at + 4096));
    return btoa(text);
}"""


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
    house.submit("report", str(house.gate), queue="reports", needs={"gpu": 1, "mem": "24GiB"})
    house.post("queues/reports", {"policy": {"fair_by": "tenant"}}, method="PUT")
    house.post("key-limits/reports-by-tenant", _BY_TENANT, method="PUT")
    house.post("key-limits/resize-by-host", _BY_HOST, method="PUT")
    for tenant, number in _REPORTS.items():
        for _ in range(number):
            house.submit("report", str(house.gate), queue="reports", keys={"tenant": tenant})
    for number in range(9):
        house.submit("resize", f"{number}.png", 64, queue="images", keys={"host": "cdn.example"})
    wide = {"needs": {"gpu": 2, "zone": "a"}, "prefer": {"disk": "ssd"}, "avoid": {"tier": "spot"}}
    large = house.submit("report", str(house.gate), queue="reports", **wide, sticky="customer-17")
    for name, settings in _TENANTS.items():
        house.post(f"namespaces/{name}", {"settings": settings}, method="PUT")
        task = {"name": "archive", "queue": "cold"}
        house.post(f"tasks/batch?namespace={name}", {"tasks": [task] * 840})
    asked = {"name": "resize", "queue": "images", "payload": "W1siYS5wbmciLCA4XSwge31d"}
    for _ in range(3):
        house.post("requests", {**asked, "headers": {"content": "json"}})
    house.wait_for(flow, "succeeded")
    return {
        "tasks": "tasks",
        "task": f"task/{running}",
        "placement": f"task/{large}",
        "queues": "queues",
        "queue": "queues/reports",
        "batches": "batches",
        "limits": "limits",
        "workers": "workers",
        "schedules": "schedules",
        "flows": "flows",
        "flow": f"flows/{flow}",
        "pools": "pools",
        "cache": "cache",
        "dead": "dead",
        "namespaces": "namespaces",
        "keys": "keys",
        "audit": "audit",
        "submit": "submit",
        "overview": "overview",  # Last: its charts have something to show by then.
    }


_GPUS = (
    *("--resource", "gpu=2", "--resource", "mem=64GiB", "--concurrency", "8"),
    *("--label", "zone=a", "--label", "disk=ssd"),
)

_BY_TENANT = {"queue": "reports", "keys": ["tenant"], "concurrency": 2}

_BY_HOST = {"task": "resize", "keys": ["host"], "rate": 20, "per": "1h", "burst": 3}

_REPORTS = {"acme": 24, "zenith": 9, "initech": 4, "hooli": 2, "umbrella": 1}

_TENANTS = {
    "acme": {
        "description": "The shop of ACME",
        "tasks_queued": 1_000,
        "bytes_stored": 1 << 30,
        "submits_per_second": 500,
        "workers": 20,
        "api_keys": 5,
    },
    "zenith": {"description": "On trial until the end of the year", "tasks_queued": 10_000},
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
