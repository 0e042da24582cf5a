"""The line that a request leaves in the log, and what is not in it."""

import json
from pathlib import Path
from typing import Any

import httpx

from tests.doors.http.harness import Serving

SECRET = "tops3cret"  # noqa: S105  a stand-in for one


def lines_of(log: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log.splitlines()]
    return [line for line in lines if line["message"] == "request"]


def test_requests_are_logged_at_level_debug_without_secrets(tmp_path: Path) -> None:
    serving = Serving(tmp_path, "--log-level", "debug", "--log-format", "json")
    headers = {
        "authorization": f"Bearer {SECRET}",
        "x-api-key": SECRET,
        "cookie": f"session={SECRET}",
    }
    url = serving.url
    with httpx.Client(headers=headers) as client:
        assert client.get(f"{url}/api/v1/stats?namespace={SECRET}").status_code == 200
        assert client.get(f"{url}/nowhere", params={"token": SECRET}).status_code == 404
        body = {"name": "q", "payload": "dG9wczNjcmV0"}
        assert client.post(f"{url}/api/v1/tasks", json=body).status_code == 201
    code, log = serving.stop()
    assert code == 0, log
    assert SECRET not in log
    assert "dG9wczNjcmV0" not in log
    lines = lines_of(log)
    assert [(line["method"], line["path"], line["status"]) for line in lines] == [
        ("GET", "/api/v1/stats", 200),
        ("GET", "/nowhere", 404),
        ("POST", "/api/v1/tasks", 201),
    ]
    for line in lines:
        assert line["component"] == "http"
        assert line["level"] == "debug"
        assert line["timestamp"]
        assert 0 < line["seconds"] < 10


def test_requests_are_not_logged_otherwise(serving: Serving) -> None:
    assert httpx.get(f"{serving.url}/api/v1/stats").status_code == 200
    _, log = serving.stop()
    assert "/api/v1/stats" not in log
