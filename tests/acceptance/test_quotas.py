"""The use of quotas over a broker that is killed and started again."""

from __future__ import annotations

import math
import signal
import time
from base64 import b64decode
from pathlib import Path
from typing import Any

import httpx

from tests.doors.http.harness import Serving

NAMESPACE = {"X-Jackalope-Namespace": "acme"}
SUBMITTED = 50
TASK = {"name": "x", "queue": "q", "payload": "y" * 100}


def test_quotas_are_as_they_were_after_a_kill(tmp_path: Path) -> None:
    serving = Serving(tmp_path)
    quotas = {
        "tasks_queued": 60,
        "bytes_stored": 100_000,
        "submits_per_second": 1,
        "submits_burst": 1_000,
        "api_keys": 3,
    }
    with httpx.Client(base_url=serving.url) as client:
        answer = client.put("/api/v1/namespaces/acme", json={"settings": quotas})
        assert answer.status_code == 200, answer.text
        for _ in range(SUBMITTED):
            assert client.post("/api/v1/tasks", json=TASK, headers=NAMESPACE).status_code < 300
        before, began = _used(client), time.monotonic()
    serving.stop(signal.SIGKILL)
    again = Serving(tmp_path)
    try:
        with httpx.Client(base_url=again.url) as client:
            after, took_s = _used(client), time.monotonic() - began
            refusals = [
                client.post("/api/v1/tasks", json=TASK, headers=NAMESPACE) for _ in "x" * 11
            ]
    finally:
        again.stop()
    tokens = before.pop("submits_per_second"), after.pop("submits_per_second")
    assert after == before
    size = len(b64decode(TASK["payload"]))
    assert (after["tasks_queued"], after["bytes_stored"]) == (SUBMITTED, SUBMITTED * size)
    # A second gives back one token, and no more.
    assert tokens[0] - math.ceil(took_s) - 1 <= tokens[1] <= tokens[0]
    assert [answer.status_code for answer in refusals][-2:] == [201, 429]


def _used(client: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/api/v1/namespaces/acme").json()["used"]
    return found
