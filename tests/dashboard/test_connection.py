"""A broker that goes away and comes back, before the eyes of the page."""

from __future__ import annotations

import signal
from pathlib import Path

from playwright.sync_api import expect

from jackalope.broker.access import hash_of, id_of, new_token
from tests.dashboard.conftest import Open
from tests.dashboard.harness import House


def test_a_shortage_is_shown_and_goes_away(tmp_path: Path, open_page: Open) -> None:
    """The pages say what `/health/ready` says: no new task is taken in."""
    file = tmp_path / "jackalope.yaml"
    file.write_text("data: {free_bytes_min: 1000000000000000}\n")
    house = House(tmp_path, "--config", str(file))
    try:
        ready = house.client.get("/health/ready")
        assert ready.status_code == 503
        page = open_page(f"{house.url}/")
        alert = page.get_by_role("alert").filter(has_text="New tasks are refused")
        expect(alert).to_contain_text("free disk space is")
        page.goto(f"{house.url}/#/cluster")
        node = page.get_by_role("region", name="This node")
        expect(node).to_contain_text("degraded")
        expect(node).to_contain_text("free disk space is")
        house.broker.stop()
        file.write_text("data: {free_bytes_min: 0}\n")
        house.restart_broker()
        expect(node).to_contain_text("healthy")
        page.goto(f"{house.url}/")
        expect(page.locator(".tile").first).to_be_visible()
        expect(alert).to_have_count(0)
    finally:
        house.close()


def test_loss_is_told_and_mended(tmp_path: Path, open_page: Open) -> None:
    house = House(tmp_path)
    try:
        house.submit_many(3, "kept", "q")
        page = open_page(f"{house.url}/")
        queued = page.locator(".tile").filter(has_text="Queued").locator(".tile-value")
        expect(queued).to_have_text("3")
        page.evaluate("window.isTheSame = true")
        house.broker.stop(signal.SIGKILL)
        banner = page.locator(".banner")
        expect(banner).to_contain_text("The connection to the broker is lost")
        expect(queued).to_have_text("3")
        house.restart_broker()
        house.submit_many(2, "later", "q")
        expect(banner).to_have_count(0)
        expect(queued).to_have_text("5")
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        assert page.evaluate("window.isTheSame") is True
    finally:
        house.close()


def test_visit_that_the_broker_forgot_leads_to_the_door(tmp_path: Path, open_page: Open) -> None:
    """Visits live in memory: after a restart one signs in again, and is not left with an error."""
    config = tmp_path / "jackalope.yaml"
    token = new_token()
    key = f"id: {id_of(token)!r}, hash: {hash_of(token)}, name: ada, permissions: [admin]"
    config.write_text(f"auth:\n  keys:\n    - {{{key}}}\n")
    house = House(tmp_path, "--config", str(config))
    try:
        page = open_page(f"{house.url}/")
        page.get_by_label("Token of an API key").fill(token)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        house.broker.stop()
        house.restart_broker()
        expect(page.get_by_label("Token of an API key")).to_be_visible()
    finally:
        house.close()
