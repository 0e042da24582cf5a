"""The driver of the REST API: plain HTTP with JSON."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from typing import Any, ClassVar

import httpx

from jackalope.core.ids import TaskId, as_task_id, id_text
from tests.conformance.broker import Ports
from tests.conformance.driver import Attempt, NewTask, Page, Refused, Shown

#: How long to look for a signal, which a worker over HTTP gets with the answer to a heartbeat.
_PATIENCE_S = 20.0


class RestDriver:
    """An HTTP client; workers share it, because no request depends on its connection."""

    door: ClassVar[str] = "rest"

    def __init__(self, ports: Ports, token: str = "") -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"http://127.0.0.1:{ports.http}/api/v1"
        self.client = httpx.AsyncClient(base_url=url, headers=headers, timeout=30)

    async def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        answer = await self.client.request(method, path, **more)
        if answer.is_error:
            raise _refused(answer.json())
        return answer

    async def submit(self, *tasks: NewTask) -> list[Refused | None]:
        asked = [
            {
                "task_id": id_text(task.id),
                "queue": task.queue,
                "task_type": task.name,
                "payload": b64encode(task.payload).decode(),
                "priority": task.priority,
            }
            for task in tasks
        ]
        if len(tasks) == 1:
            try:
                await self.ask("POST", "/tasks", json=asked[0])
            except Refused as refused:
                return [refused]
            return [None]
        answer = await self.ask("POST", "/tasks/batch", json={"tasks": asked})
        errors = [each["error"] for each in answer.json()["tasks"]]
        return [_refused(error) if error else None for error in errors]

    async def task(self, task: TaskId) -> Shown:
        return _shown((await self.ask("GET", f"/tasks/{id_text(task)}")).json())

    async def wait(self, task: TaskId, timeout_s: float) -> Shown:
        query = {"wait": timeout_s}
        return _shown((await self.ask("GET", f"/tasks/{id_text(task)}/wait", params=query)).json())

    async def result(self, task: TaskId) -> bytes:
        return (await self.ask("GET", f"/tasks/{id_text(task)}/result")).content

    async def tasks(self, queue: str, limit: int, cursor: str = "") -> Page:
        query: dict[str, Any] = {"queue": queue, "limit": limit, "cursor": cursor}
        page = (await self.ask("GET", "/tasks", params=query)).json()
        return Page([_shown(each) for each in page["tasks"]], page["cursor"] or "", page["total"])

    async def explain(self, task: TaskId) -> list[str]:
        answer = await self.ask("GET", f"/tasks/{id_text(task)}/explain")
        return [cause["why"] for cause in answer.json()["causes"]]

    async def kill(self, task: TaskId) -> str:
        answer = await self.ask("POST", f"/tasks/{id_text(task)}/kill")
        return str(answer.json()["outcome"])

    async def declare(self, queue: str, **policy: int) -> None:
        await self.ask("PUT", f"/queues/{queue}", json={"policy": policy})

    async def worker(
        self, name: str, queue: str, lease_s: float = 30, holding: tuple[Attempt, ...] = ()
    ) -> RestWorker:
        worker = RestWorker(self, name, queue, lease_s)
        assert await worker.join(*holding) == ({held.fence for held in holding}, set())
        return worker

    async def close(self) -> None:
        await self.client.aclose()


class RestWorker:
    """A name in requests: the door keeps the session."""

    def __init__(self, driver: RestDriver, name: str, queue: str, lease_s: float) -> None:
        self._ask = driver.ask
        self._name = name
        self._terms = {"queues": [queue], "lease_seconds": lease_s}

    async def join(self, *holding: Attempt) -> tuple[set[int], set[int]]:
        held = [{"task_id": id_text(each.task), "fence": each.fence} for each in holding]
        asked = self._terms | {"holding": held}
        joined = (await self._ask("POST", f"/workers/{self._name}/join", json=asked)).json()
        resumed, dropped = (
            {each["fence"] for each in joined[key]} for key in ("resumed", "dropped")
        )
        return resumed, dropped

    async def claim(self, wait_s: float = 5) -> Attempt | None:
        asked = self._terms | {"wait": wait_s}
        answer = await self._ask("POST", f"/workers/{self._name}/claim", json=asked)
        for task in answer.json()["tasks"]:
            payload = task["payload"]
            if payload is None:
                where = {"worker": self._name, "fence": task["fence"]}
                path = f"/attempts/{task['task_id']}/payload"
                body = (await self._ask("GET", path, params=where)).content
            else:
                body = b64decode(payload)
            return Attempt(
                _task_id(task["task_id"]), task["fence"], task["task_type"], body, task["attempt"]
            )
        return None

    async def _report(self, attempt: Attempt, what: str, **more: Any) -> None:
        where = {"worker": self._name, "fence": attempt.fence}
        path = f"/attempts/{id_text(attempt.task)}/{what}"
        await self._ask("POST", path, params=where, **more)

    async def finish(self, attempt: Attempt, result: bytes = b"") -> None:
        await self._report(attempt, "finish", content=result)

    async def fail(self, attempt: Attempt, kind: str, message: str) -> None:
        await self._report(attempt, "fail", json={"type": kind, "message": message})

    async def release(self, attempt: Attempt) -> None:
        await self._report(attempt, "release")

    async def progress(self, attempt: Attempt, percent: float, note: str) -> None:
        await self._report(attempt, "progress", json={"percent": percent, "note": note})

    async def signal(self) -> tuple[TaskId, str]:
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                path = f"/workers/{self._name}/heartbeat"
                for asked in (await self._ask("POST", path, json={})).json()["signals"]:
                    return _task_id(asked["task_id"]), asked["signal"]

    async def stopped(self, attempt: Attempt) -> None:
        await self._report(attempt, "signal", json={"answer": "stopped"})


def _task_id(text: str) -> TaskId:
    found = as_task_id(text)
    assert found is not None, text
    return found


def _refused(body: dict[str, Any]) -> Refused:
    return Refused(body["reason"], body["error"], body.get("retry_after_s") or 0)


def _shown(task: dict[str, Any]) -> Shown:
    failure, progress = task["failure"] or {}, task["progress"] or {}
    return Shown(
        _task_id(task["task_id"]),
        task["queue"],
        task["task_type"],
        task["state"],
        task["priority"],
        task["attempts"],
        task["retry_count"],
        task["crashes"],
        task["interruptions"],
        task["reason"] or "",
        (failure.get("type") or "", failure.get("message") or ""),
        progress.get("percent"),
        progress.get("note") or "",
    )
