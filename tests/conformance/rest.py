"""The driver of the REST API: plain HTTP with JSON."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import httpx

from jackalope.core.durations import parse_duration
from jackalope.core.ids import NO_TASK, TaskId, as_task_id, id_text
from tests.conformance.broker import Ports
from tests.conformance.driver import (
    Attempt,
    DoneStep,
    Ends,
    Filled,
    NewTask,
    Page,
    Refused,
    Shown,
    ShownSchedule,
)

#: How long to look for a signal, which a worker over HTTP gets with the answer to a heartbeat.
_PATIENCE_S = 20.0

_EPOCH = datetime.fromtimestamp(0, UTC)


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
                "id": id_text(task.id),
                "queue": task.queue,
                "name": task.name,
                "payload": b64encode(task.payload).decode(),
                "priority": task.priority,
                "callbacks": task.callbacks,
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

    async def purge(self, task: TaskId) -> None:
        await self.ask("POST", f"/tasks/{id_text(task)}/purge")

    async def send_event(self, task: TaskId, event: str, value: object) -> None:
        await self.ask("POST", f"/tasks/{id_text(task)}/events/{event}", json={"data": value})

    async def declare_schedule(
        self, name: str, *, every_s: float | None = None, **settings: str
    ) -> None:
        every = {} if every_s is None else {"every": every_s}
        await self.ask("PUT", f"/schedules/{name}", json={**settings, **every})

    async def schedule(self, name: str) -> ShownSchedule:
        view = (await self.ask("GET", f"/schedules/{name}")).json()
        settings = view["settings"]
        return ShownSchedule(
            view["name"],
            view["state"],
            settings["queue"],
            settings["task"],
            parse_duration(settings["every"]),
            settings["cron"],
            settings["overlap"],
            _us(view["next_at"]),
            view["fired"],
            tuple(map(_us, view["upcoming"])),
            tuple((_task_id(run["task"]), run["how"]) for run in view["runs"]),
        )

    async def schedules(self, text: str, limit: int, cursor: str = "") -> tuple[list[str], str]:
        query: dict[str, Any] = {"text": text, "limit": limit, "cursor": cursor}
        page = (await self.ask("GET", "/schedules", params=query)).json()
        return [each["name"] for each in page["schedules"]], page["cursor"] or ""

    async def act_on_schedule(self, name: str, action: str) -> None:
        if action == "delete":
            await self.ask("DELETE", f"/schedules/{name}")
        else:
            await self.ask("POST", f"/schedules/{name}/{action}")

    async def trigger(self, name: str, task: TaskId) -> TaskId:
        asked = {"task": id_text(task)}
        done = (await self.ask("POST", f"/schedules/{name}/trigger", json=asked)).json()
        return _task_id(done["tasks"][0]) if done["tasks"] else task

    async def backfill(
        self, name: str, since_us: int, until_us: int, *, again: bool = False
    ) -> Filled:
        asked = {"since": _time(since_us), "until": _time(until_us), "again": again}
        done = (await self.ask("POST", f"/schedules/{name}/backfill", json=asked)).json()
        tasks = [_task_id(task) for task in done["tasks"]]
        return Filled(tasks, done["known"], [_us(slot) for slot in done["forgotten"]])

    async def declare(self, queue: str, **policy: int) -> None:
        await self.ask("PUT", f"/queues/{queue}", json={"policy": policy})

    async def declare_ends(self, queue: str, ends: Ends) -> None:
        await self.ask("PUT", f"/queues/{queue}", json={"policy": asdict(ends)})

    async def ends(self, queue: str) -> Ends:
        policy = (await self.ask("GET", f"/queues/{queue}")).json()["policy"]
        return Ends(policy["callbacks"], policy["triggers"])

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
        held = [{"task": id_text(each.task), "fence": each.fence} for each in holding]
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
                path = f"/attempts/{task['task']}/payload"
                body = (await self._ask("GET", path, params=where)).content
            else:
                body = b64decode(payload)
            steps = tuple(
                DoneStep(each["name"], b64decode(each["result"]), each["is_late"])
                for each in task["steps"]
            )
            known = (_task_id(task["task"]), task["fence"], task["name"])
            return Attempt(*known, body, task["attempt"], steps)
        return None

    async def _report(self, attempt: Attempt, what: str, **more: Any) -> Any:
        where = {"worker": self._name, "fence": attempt.fence}
        path = f"/attempts/{id_text(attempt.task)}/{what}"
        return (await self._ask("POST", path, params=where, **more)).json()

    async def finish(self, attempt: Attempt, result: bytes = b"") -> None:
        await self._report(attempt, "finish", content=result)

    async def fail(self, attempt: Attempt, kind: str, message: str) -> None:
        await self._report(attempt, "fail", json={"type": kind, "message": message})

    async def release(self, attempt: Attempt) -> None:
        await self._report(attempt, "release")

    async def progress(self, attempt: Attempt, percent: float, note: str) -> None:
        await self._report(attempt, "progress", json={"percent": percent, "note": note})

    async def step(self, attempt: Attempt, index: int, name: str, result: bytes) -> None:
        told = {"index": index, "name": name, "result": b64encode(result).decode()}
        await self._report(attempt, "step", json=told | {"took_seconds": 0.001})

    async def suspend(
        self, attempt: Attempt, index: int, name: str, after_s: float = 0, event: str = ""
    ) -> DoneStep | None:
        told = {"index": index, "name": name, "after_seconds": after_s, "event": event}
        answer = await self._report(attempt, "suspend", json=told)
        if answer["suspended"]:
            return None
        return DoneStep(name, b64decode(answer["result"]), answer["is_late"])

    async def signal(self) -> tuple[TaskId, str]:
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                path = f"/workers/{self._name}/heartbeat"
                for asked in (await self._ask("POST", path, json={})).json()["signals"]:
                    return _task_id(asked["task"]), asked["signal"]

    async def stopped(self, attempt: Attempt) -> None:
        await self._report(attempt, "signal", json={"answer": "stopped"})


def _task_id(text: str) -> TaskId:
    found = as_task_id(text)
    assert found is not None, text
    return found


def _us(text: str | None) -> int:
    """Return a time in microseconds; 0 for none."""
    if text is None:
        return 0
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)


def _time(at_us: int) -> str:
    return (_EPOCH + timedelta(microseconds=at_us)).isoformat()


def _refused(body: dict[str, Any]) -> Refused:
    return Refused(body["reason"], body["error"], body.get("retry_after_s") or 0)


def _shown(task: dict[str, Any]) -> Shown:
    error, progress = task["error"] or {}, task["progress"] or {}
    return Shown(
        _task_id(task["id"]),
        task["queue"],
        task["name"],
        task["state"],
        task["priority"],
        task["attempts"],
        task["failures"],
        task["crashes"],
        task["interruptions"],
        task["reason"] or "",
        (error.get("type") or "", error.get("message") or ""),
        progress.get("percent"),
        progress.get("note") or "",
        tuple(step["name"] for step in task["steps"]),
        task["waits_for"] or "",
        tuple(
            (each["url"], tuple(each["on"]), _task_id(each["task"]) if each["task"] else NO_TASK)
            for each in task["callbacks"]
        ),
    )
