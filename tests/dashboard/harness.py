"""A broker with its HTTP door, workers in processes of their own, and a client that asks both."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from tests.acceptance.harness import wait_until
from tests.doors.http.harness import Serving

_APP = "tests.dashboard.tasks:app"
_QUEUES = "images,reports,payments"


class House:
    """A broker that a browser can look at.

    Attributes:
        gate: a file; tasks that wait for it end when it is there.
    """

    def __init__(self, folder: Path, *flags: str, http_port: int = 0, port: int = 0) -> None:
        self._folder = folder
        self._flags = flags
        self.gate = folder / "gate"
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.broker = Serving(folder, *flags, http_port=http_port, port=port)
        self.client = httpx.Client(base_url=self.broker.url, timeout=30)

    @property
    def url(self) -> str:
        return self.broker.url

    def start_worker(self, name: str, *more: str) -> None:
        """Start a worker, and return when the broker knows it."""
        environment = {
            **os.environ,
            "JACKALOPE_BROKER": f"jackalope://127.0.0.1:{self.broker.port}",
        }
        options = ["--queues", _QUEUES, "--concurrency", "4", "--name", name, *more]
        with (self._folder / f"{name}.out").open("ab") as output:
            self.workers[name] = subprocess.Popen(
                [sys.executable, "-m", "jackalope", "worker", _APP, *options],
                env=environment,
                stdout=output,
                stderr=output,
            )
        wait_until(lambda: name in {each["worker"] for each in self.get("workers")}, name)

    def restart_broker(self) -> None:
        """Start the broker again where it was."""
        self.broker = Serving(
            self._folder, *self._flags, http_port=self.broker.http_port, port=self.broker.port
        )

    def get(self, path: str, **parameters: Any) -> Any:
        response = self.client.get(f"/api/v1/{path}", params=parameters)
        response.raise_for_status()
        return response.json()

    def post(self, path: str, body: object = None, method: str = "POST") -> Any:
        response = self.client.request(method, f"/api/v1/{path}", json=body)
        assert response.is_success, response.text
        return response.json()

    def submit(self, name: str, *arguments: object, queue: str, **options: Any) -> str:
        """Submit a task as a client of another language would, and return its id."""
        body = {"name": name, "queue": queue, **encoded([list(arguments), {}]), **options}
        task_id: str = self.post("tasks", body)["id"]
        return task_id

    def submit_many(self, number: int, name: str, queue: str, **options: Any) -> None:
        task = {"name": name, "queue": queue, **options}
        for at in range(0, number, 10_000):
            self.post("tasks/batch", {"tasks": [task] * min(10_000, number - at)})

    def send_event(self, task_id: str, event: str, data: object) -> None:
        path = f"/api/v1/tasks/{task_id}/events/{event}"
        self.client.post(path, json={"data": data}).raise_for_status()

    def wait_for(self, task_id: str, state: str) -> None:
        wait_until(lambda: self.get(f"tasks/{task_id}")["state"] == state, f"{task_id} {state}")

    def close(self) -> None:
        for worker in self.workers.values():
            worker.kill()
            worker.wait()
        self.client.close()
        self.broker.stop()


def encoded(value: object) -> dict[str, Any]:
    """Return a payload of JSON, and the header that says so."""
    payload = base64.b64encode(json.dumps(value).encode()).decode()
    return {"payload": payload, "headers": {"content": "json"}}
