"""A real browser that looks at a real broker."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from jackalope.doors.http.dashboard import FOLDER, INDEX

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

#: What is still missing after this long does not come any more.
PATIENCE_MS = 15_000

Open = Callable[..., Page]


# Of the package: while it lives, its loop runs in this thread, where other tests start their own.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    if not (FOLDER / INDEX).exists():
        pytest.skip("the dashboard is not built; `make dashboard` does it, and needs npm")
    if CHROMIUM is None:
        pytest.skip("no Chromium here; `make setup` installs Debian's, as root")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Return a function that opens a page; what the browser complains about fails the test."""
    complaints: list[str] = []
    contexts = []

    def open_it(url: str, **options: object) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 860}, **options})  # type: ignore[arg-type]
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        home = url.partition("/#")[0]
        page.on("request", lambda r: _note_foreign(r.url, home, complaints))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: _note_error(message, complaints))
        page.goto(url)
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert complaints == []


def _note_error(message: ConsoleMessage, complaints: list[str]) -> None:
    # That a request was refused, or found nobody, is for the page to tell.
    if message.type == "error" and not message.text.startswith(("Failed to load", "WebSocket")):
        complaints.append(message.text)


def _note_foreign(url: str, home: str, complaints: list[str]) -> None:
    if not url.startswith((home, home.replace("http", "ws", 1), "blob:")):
        complaints.append(f"asked {url}")
