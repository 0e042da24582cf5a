"""A request that is part of a trace."""

from typing import Any

import pytest

from tests.doors.harness import run
from tests.doors.http.harness import HttpHouse, open_http

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"


async def headers_of(house: HttpHouse, sent: dict[str, str], **more: Any) -> dict[str, Any]:
    """Submit a task with these HTTP headers, and return the headers of the task."""
    body = {"name": "q", "payload": "", **more}
    answer = await house.client.post("/api/v1/tasks", json=body, headers=sent)
    assert answer.status_code == 201, answer.text
    shown = await house.client.get(f"/api/v1/tasks/{answer.json()['id']}")
    found: dict[str, Any] = shown.json().get("headers") or {}
    return found


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ({}, {}),
        ({"traceparent": PARENT}, {"traceparent": PARENT}),
        (
            {"traceparent": PARENT, "tracestate": "a=1"},
            {"traceparent": PARENT, "tracestate": "a=1"},
        ),
        ({"traceparent": PARENT, "tracestate": "a" * 513}, {"traceparent": PARENT}),
        ({"tracestate": "a=1"}, {}),
        ({"traceparent": PARENT.upper()}, {}),
        ({"traceparent": PARENT + "-more"}, {}),
        ({"traceparent": "nonsense"}, {}),
    ],
)
def test_task_belongs_to_the_trace_of_its_request(
    sent: dict[str, str], kept: dict[str, str]
) -> None:
    async def check() -> None:
        async with open_http() as house:
            assert await headers_of(house, sent) == kept

    run(check())


def test_headers_of_the_task_count_first() -> None:
    async def check() -> None:
        async with open_http() as house:
            own = {"traceparent": OTHER, "mine": "1"}
            assert await headers_of(house, {"traceparent": PARENT}, headers=own) == own

    run(check())


def test_request_that_is_tried_again_within_another_span() -> None:
    async def check() -> None:
        async with open_http() as house:
            task = {"id": "01890a5d-ac96-774b-bcce-b302099a8057"}
            for parent in (PARENT, OTHER):
                found = await headers_of(house, {"traceparent": parent}, **task)
                assert found == {"traceparent": PARENT}

    run(check())
