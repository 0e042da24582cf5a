"""The driver of the native door: messages of `jackalope.wire` over a socket."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from typing import Any, ClassVar

import msgspec

from jackalope.core.commands import (
    Action,
    ActOnTasks,
    Answer,
    AnswerSignal,
    ClaimTasks,
    Fail,
    Finish,
    Held,
    JoinWorker,
    RecordStep,
    ReportProgress,
    StartAttempts,
    SubmitTasks,
    Suspend,
    WatchTasks,
)
from jackalope.core.effects import SignalAsked
from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.shapes.callback import Callback
from jackalope.core.task import Error, Options, TaskSpec
from jackalope.wire.messages import Assign, Ended, Hello, Manage, Nack, Query, Result, Welcome
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
from tests.doors.harness import Peer


class NativeDriver:
    """A peer, and another one for each worker: a session has one worker at most."""

    door: ClassVar[str] = "native"

    def __init__(self, ports: Ports, token: str = "") -> None:
        self._ports = ports
        self._token = token
        self._peer: Peer | None = None
        self._peers: list[Peer] = []

    async def connect(self, name: str = "conformance") -> Peer:
        peer = await Peer.connect(self._ports.native)
        self._peers.append(peer)
        await peer.send(Hello(name=name, token=self._token))
        answer = await peer.wait_for(lambda message: isinstance(message, Welcome | Nack))
        if isinstance(answer, Nack):
            raise _refused(answer)
        return peer

    async def ask(self, message: Any) -> Any:
        if self._peer is None:
            self._peer = await self.connect()
        return await ask(self._peer, message)

    async def submit(self, *tasks: NewTask) -> list[Refused | None]:
        specs = [
            TaskSpec(
                task.id, task.queue, task.name, "", task.priority, task.payload, _options_of(task)
            )
            for task in tasks
        ]
        return await self.submit_specs(specs)

    async def submit_specs(self, specs: list[TaskSpec]) -> list[Refused | None]:
        body = await self.ask(SubmitTasks(0, specs))
        refused = {index: _item(refusal) for index, refusal in body["refused"]}
        return [refused.get(index) for index in range(len(specs))]

    async def task(self, task: TaskId) -> Shown:
        return _shown(await self.ask(Query(0, "task", {"id": task})))

    async def wait(self, task: TaskId, timeout_s: float) -> Shown:
        body = await self.ask(WatchTasks(0, (task,)))
        if body["refused"]:
            raise _item(body["refused"][0][1])
        assert self._peer is not None
        try:
            async with asyncio.timeout(timeout_s):
                await self._peer.expect(Ended, lambda message: message.tasks[0].task == task)
        except TimeoutError:
            pass
        return await self.task(task)

    async def result(self, task: TaskId) -> bytes:
        view = await self.ask(Query(0, "task", {"id": task, "bodies": True}))
        return bytes(view.get("result", b""))

    async def tasks(self, queue: str, limit: int, cursor: str = "") -> Page:
        about = {"queue": queue, "limit": limit, "cursor": cursor, "total": not cursor}
        page = await self.ask(Query(0, "tasks", about))
        return Page([_shown(view) for view in page["tasks"]], page["cursor"], page["total"])

    async def explain(self, task: TaskId) -> list[str]:
        view = await self.ask(Query(0, "explain", {"id": task}))
        return [cause["why"] for cause in view["causes"]]

    async def kill(self, task: TaskId) -> str:
        acted = await self.ask(ActOnTasks(0, Action.KILL, (task,)))
        if acted["refused"]:
            raise _item(acted["refused"][0][1])
        return "requested" if acted["requested"] else "changed"

    async def purge(self, task: TaskId) -> None:
        assert (await self.ask(ActOnTasks(0, Action.PURGE, (task,))))["changed"] == 1

    async def manage(self, what: str, **about: Any) -> Any:
        return await self.ask(Manage(0, what, about))

    async def send_event(self, task: TaskId, event: str, value: object) -> None:
        data = msgspec.msgpack.encode(value)
        await self.manage("send_event", task=task, event=event, data=data)

    async def declare_schedule(
        self, name: str, *, every_s: float | None = None, **settings: str
    ) -> None:
        every = {} if every_s is None else {"every_us": round(every_s * 1e6)}
        await self.manage("declare_schedule", name=name, changes={**settings, **every})

    async def schedule(self, name: str) -> ShownSchedule:
        view = await self.ask(Query(0, "schedule", {"name": name}))
        settings = view["settings"]
        return ShownSchedule(
            view["name"],
            view["state"],
            settings["queue"],
            settings["task"],
            settings["every_us"],
            settings["cron"],
            settings["overlap"],
            view["next_us"],
            view["fired"],
            tuple(view["upcoming"]),
            tuple((TaskId(run["task"]), run["how"]) for run in view["runs"]),
        )

    async def schedules(self, text: str, limit: int, cursor: str = "") -> tuple[list[str], str]:
        about = {"text": text, "limit": limit, "cursor": cursor}
        page = await self.ask(Query(0, "schedules", about))
        return [each["name"] for each in page["schedules"]], page["cursor"]

    async def act_on_schedule(self, name: str, action: str) -> None:
        await self.manage(f"{action}_schedule", name=name)

    async def trigger(self, name: str, task: TaskId) -> TaskId:
        body = await self.manage("trigger_schedule", name=name, task=task)
        return TaskId(body["tasks"][0]) if body["tasks"] else task

    async def backfill(
        self, name: str, since_us: int, until_us: int, *, again: bool = False
    ) -> Filled:
        about = {"name": name, "since_us": since_us, "until_us": until_us, "again": again}
        body = await self.manage("backfill_schedule", **about)
        tasks = [TaskId(task) for task in body["tasks"]]
        return Filled(tasks, body["known"], body["forgotten"])

    async def declare(self, queue: str, **policy: int) -> None:
        await self.ask(Manage(0, "declare_queue", {"queue": queue, "changes": policy}))

    async def declare_ends(self, queue: str, ends: Ends) -> None:
        await self.manage("declare_queue", queue=queue, changes=asdict(ends))

    async def ends(self, queue: str) -> Ends:
        (view,) = await self.ask(Query(0, "queues", {"queue": queue}))
        return Ends(view["policy"].get("callbacks", []), view["policy"].get("triggers", []))

    async def worker(
        self, name: str, queue: str, lease_s: float = 30, holding: tuple[Attempt, ...] = ()
    ) -> NativeWorker:
        worker = NativeWorker(self, name, queue, lease_s)
        assert await worker.join(*holding) == ({held.fence for held in holding}, set())
        return worker

    async def close(self) -> None:
        for peer in self._peers:
            peer.close()


class NativeWorker:
    """A session that has joined with no slots, and claims."""

    def __init__(self, driver: NativeDriver, name: str, queue: str, lease_s: float) -> None:
        self._driver = driver
        self._name, self._queue, self._lease_us = name, queue, int(lease_s * 1_000_000)

    async def join(self, *holding: Attempt) -> tuple[set[int], set[int]]:
        self._peer = await self._driver.connect(self._name)
        held = [Held(attempt.task, attempt.fence) for attempt in holding]
        command = JoinWorker(
            0,
            self._name,
            (self._queue,),
            slots=0,
            holding=held,
            lease_us=self._lease_us,
            generation=time.time_ns() // 1_000,
        )
        joined = await ask(self._peer, command)
        resumed, dropped = ({fence for _, fence in joined[key]} for key in ("resumed", "drop"))
        return resumed, dropped

    async def claim(self, wait_s: float = 5) -> Attempt | None:
        claim = ClaimTasks(1_000_000, 1, int(wait_s * 1_000_000))
        await self._peer.send(claim)
        answer = await self._peer.wait_for(
            lambda message: (
                isinstance(message, Assign)
                or (isinstance(message, Nack) and message.ref == claim.ref)
            )
        )
        if isinstance(answer, Nack):
            if answer.code == "nothing_to_claim":
                return None
            raise _refused(answer)
        assert isinstance(answer, Assign)
        (given,) = answer.assignments
        await ask_one(self._peer, StartAttempts(0, [Held(given.task, given.fence)]))
        assert isinstance(given.payload, bytes)
        steps = tuple(DoneStep(each.name, each.result, each.is_late) for each in given.steps)
        return Attempt(given.task, given.fence, given.name, given.payload, given.attempt, steps)

    async def finish(self, attempt: Attempt, result: bytes = b"") -> None:
        finished = [Finish(attempt.task, attempt.fence, result)]
        await ask_one(self._peer, Result(0, finished))

    async def fail(self, attempt: Attempt, kind: str, message: str) -> None:
        failed = [Fail(attempt.task, attempt.fence, Error(kind, message))]
        await ask_one(self._peer, Result(0, [], failed))

    async def release(self, attempt: Attempt) -> None:
        await ask_one(self._peer, Result(0, [], [], [Held(attempt.task, attempt.fence)]))

    async def progress(self, attempt: Attempt, percent: float, note: str) -> None:
        await ask_one(self._peer, ReportProgress(0, attempt.task, attempt.fence, percent, note))

    async def step(self, attempt: Attempt, index: int, name: str, result: bytes) -> None:
        held = (attempt.task, attempt.fence)
        await ask(self._peer, RecordStep(0, *held, index, name, result, 1_000))

    async def suspend(
        self, attempt: Attempt, index: int, name: str, after_s: float = 0, event: str = ""
    ) -> DoneStep | None:
        after_us = round(after_s * 1e6)
        suspend = Suspend(0, attempt.task, attempt.fence, index, name, after_us, event)
        body = await ask(self._peer, suspend)
        if body.get("is_suspended"):
            return None
        return DoneStep(name, body["result"], body["is_late"])

    async def signal(self) -> tuple[TaskId, str]:
        asked = await self._peer.expect(SignalAsked)
        return asked.task, asked.signal

    async def stopped(self, attempt: Attempt) -> None:
        await ask_one(self._peer, AnswerSignal(0, attempt.task, attempt.fence, Answer.STOPPED))


async def ask(peer: Peer, message: Any) -> Any:
    answer = await peer.ask(message)
    if isinstance(answer, Nack):
        raise _refused(answer)
    return answer.body


async def ask_one(peer: Peer, message: Any) -> None:
    """Send a request about one item, which may be refused in the list of its answer."""
    body = await ask(peer, message)
    if body["refused"]:
        raise _item(body["refused"][0][1])


def _refused(nack: Nack) -> Refused:
    return Refused(nack.code, nack.message, nack.retry_after_us / 1_000_000)


def _item(refusal: dict[str, Any]) -> Refused:
    return Refused(refusal["code"], refusal["message"], refusal["retry_after_us"] / 1_000_000)


def _options_of(task: NewTask) -> Options | None:
    if not task.callbacks:
        return None
    return Options(callbacks=msgspec.convert(task.callbacks, tuple[Callback, ...]))


def _shown(view: dict[str, Any]) -> Shown:
    error, progress = view.get("error") or {}, view.get("progress") or {}
    return Shown(
        TaskId(view["id"]),
        view["queue"],
        view["name"],
        view["state"],
        view.get("priority", 0),
        view.get("attempts", 0),
        view.get("failures", 0),
        view.get("crashes", 0),
        view.get("interruptions", 0),
        view.get("reason") or "",
        (error.get("type", ""), error.get("message", "")),
        progress.get("percent"),
        progress.get("note", ""),
        tuple(step["name"] for step in view.get("steps", ())),
        view.get("waits_for", ""),
        tuple(
            (each["url"], tuple(each.get("on", ())), TaskId(each.get("task", NO_TASK)))
            for each in view.get("callbacks", ())
        ),
    )
