"""GridLike on the page: jobs under their keys, workers under the names of their machines."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect
from websockets.sync.client import ClientConnection, connect

from tests.dashboard.conftest import Open
from tests.dashboard.harness import House


@pytest.fixture
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    house = House(tmp_path_factory.mktemp("house"), "--durability", "memory")
    try:
        yield house
    finally:
        house.close()


def submit(house: House, **fields: str) -> str:
    """Submit a job, and return its id."""
    answer = house.client.post(
        "/api/jobs/submit",
        data={"priority": "immediate", **fields},
        files={"payload": ("job.bin", b"payload")},
    )
    assert answer.status_code == 202, answer.text
    job_id: str = answer.json()["id"]
    return job_id


def take(socket: ClientConnection) -> None:
    """Register, say ready, and take a job."""
    hello = {"code": 0, "name": "the blue machine", "id": "4f2c9d", "token": ""}
    socket.send(json.dumps(hello))
    assert json.loads(socket.recv()) == {"code": 2}
    socket.send(json.dumps({"code": 1, "status": 1}))
    assert socket.recv() == b"payload"


@pytest.mark.feature("G33")
def test_jobs_and_workers_are_shown_by_their_names(house: House, open_page: Open) -> None:
    submit(house, key="frame/17")
    job_id = submit(house)
    page = open_page(f"{house.url}/#/tasks")
    rows = page.locator("tbody tr")
    expect(rows.filter(has_text="frame/17")).to_have_count(1)
    expect(rows.filter(has_text=job_id)).to_have_count(1)
    page.evaluate("window.isTheSame = true")
    with connect(f"{house.url.replace('http', 'ws', 1)}/api/worker") as socket:
        take(socket)
        row = rows.filter(has_text="frame/17")
        expect(row).to_contain_text("running")
        expect(row).to_contain_text("the blue machine")
        row.get_by_role("link", name="frame/17").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("frame/17")
        page.goto(f"{house.url}/#/workers")
        card = page.get_by_role("region", name="Worker 4f2c9d")
        expect(card.get_by_role("heading")).to_contain_text("the blue machine 4f2c9d")
        expect(card).to_contain_text("frame/17")
        socket.send(b"result")
        assert json.loads(socket.recv()) == {"code": 2}
        expect(card).to_contain_text("1 succeeded")
        page.goto(f"{house.url}/#/batches/jobs")
        expect(page.get_by_role("progressbar", name="1 of 2 ended")).to_be_visible()
    assert page.evaluate("window.isTheSame") is True
