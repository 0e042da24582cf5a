"""The driver of the gRPC door: the generated stubs, over a channel."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Iterable
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from grpc_status import rpc_status

from jackalope.core.ids import NO_TASK, TaskId, as_task_id, id_text
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from jackalope.doors.grpc.stubs import jackalope_pb2_grpc as stubs
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

T = TypeVar("T")

_PATIENCE_S = 20.0


class GrpcDriver:
    """A channel, and a stream for each worker."""

    door: ClassVar[str] = "grpc"

    def __init__(self, ports: Ports, token: str = "") -> None:
        self.metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{ports.grpc}")
        self._tasks = stubs.TaskServiceStub(self._channel)
        self._queues = stubs.QueueServiceStub(self._channel)
        self._schedules = stubs.ScheduleServiceStub(self._channel)
        self.blobs = stubs.BlobServiceStub(self._channel)
        self.workers = stubs.WorkerServiceStub(self._channel)
        self._streams: list[GrpcWorker] = []

    async def call(self, method: Any, request: Any) -> Any:
        return await _answer(method(request, metadata=self.metadata, timeout=30))

    async def submit(self, *tasks: NewTask) -> list[Refused | None]:
        specs = [
            pb.TaskSpec(
                id=id_text(task.id), queue=task.queue, name=task.name, priority=task.priority
            )
            for task in tasks
        ]
        for spec, task in zip(specs, tasks, strict=True):
            spec.payload = task.payload
            spec.callbacks.extend(_callbacks(task.callbacks))
        if len(specs) == 1:
            try:
                await self.call(self._tasks.SubmitTask, pb.SubmitTaskRequest(task=specs[0]))
            except Refused as refused:
                return [refused]
            return [None]
        answer = await self.call(self._tasks.SubmitTasks, pb.SubmitTasksRequest(tasks=specs))
        return [
            _refused(each.refusal) if each.HasField("refusal") else None for each in answer.outcomes
        ]

    async def task(self, task: TaskId) -> Shown:
        answer = await self.call(self._tasks.GetTask, pb.GetTaskRequest(id=id_text(task)))
        return _shown(answer.task)

    async def wait(self, task: TaskId, timeout_s: float) -> Shown:
        request = pb.WaitTaskRequest(id=id_text(task), timeout=_duration(timeout_s))
        return _shown((await self.call(self._tasks.WaitTask, request)).task)

    async def result(self, task: TaskId) -> bytes:
        return await self.download(pb.DownloadBlobRequest(task_id=id_text(task)))

    async def download(self, request: pb.DownloadBlobRequest) -> bytes:
        async def read() -> bytes:
            parts = self.blobs.DownloadBlob(request, metadata=self.metadata, timeout=30)
            return b"".join([part.data async for part in parts])

        return await _answer(read())

    async def upload(self, body: bytes) -> str:
        async def parts() -> AsyncIterator[pb.UploadBlobRequest]:
            for at in range(0, len(body), 256 * 1024):
                yield pb.UploadBlobRequest(data=body[at : at + 256 * 1024])

        answer = await self.call(self.blobs.UploadBlob, parts())
        return str(answer.upload)

    async def tasks(self, queue: str, limit: int, cursor: str = "") -> Page:
        request = pb.ListTasksRequest(
            filter=pb.TaskFilter(queue=queue),
            page_size=limit,
            page_token=cursor,
            include_total=not cursor,
        )
        page = await self.call(self._tasks.ListTasks, request)
        total = page.total if page.HasField("total") else None
        return Page([_shown(each) for each in page.tasks], page.next_page_token, total)

    async def explain(self, task: TaskId) -> list[str]:
        request = pb.ExplainTaskRequest(id=id_text(task))
        return [cause.why for cause in (await self.call(self._tasks.ExplainTask, request)).causes]

    async def kill(self, task: TaskId) -> str:
        request = pb.ActOnTasksRequest(action=pb.TASK_ACTION_KILL, ids=[id_text(task)])
        acted = await self.call(self._tasks.ActOnTasks, request)
        for each in acted.refused:
            raise _refused(each.refusal)
        return "requested" if acted.requested else "changed"

    async def purge(self, task: TaskId) -> None:
        request = pb.ActOnTasksRequest(action=pb.TASK_ACTION_PURGE, ids=[id_text(task)])
        assert (await self.call(self._tasks.ActOnTasks, request)).changed == 1

    async def send_event(self, task: TaskId, event: str, value: Any) -> None:
        request = pb.SendEventRequest(id=id_text(task), event=event)
        request.value.CopyFrom(ParseDict(value, Value()))
        await self.call(self._tasks.SendEvent, request)

    async def declare_schedule(
        self, name: str, *, every_s: float | None = None, **settings: str
    ) -> None:
        if "overlap" in settings:
            settings["overlap"] = f"OVERLAP_{settings['overlap'].upper()}"
        fields: dict[str, Any] = dict(settings)
        request = pb.DeclareScheduleRequest(name=name, settings=pb.ScheduleSettings(**fields))
        if every_s is not None:
            request.settings.every.CopyFrom(_duration(every_s))
        await self.call(self._schedules.DeclareSchedule, request)

    async def schedule(self, name: str) -> ShownSchedule:
        request = pb.GetScheduleRequest(name=name)
        shown = (await self.call(self._schedules.GetSchedule, request)).schedule
        settings = shown.settings
        return ShownSchedule(
            shown.name,
            _word(pb.ScheduleState, shown.state, "SCHEDULE_STATE_"),
            settings.queue,
            settings.task,
            settings.every.ToMicroseconds(),
            settings.cron,
            _word(pb.Overlap, settings.overlap, "OVERLAP_"),
            shown.next_at.ToMicroseconds(),
            shown.fired,
            tuple(each.ToMicroseconds() for each in shown.upcoming),
            tuple(
                (_task_id(run.task_id), _word(pb.RunKind, run.how, "RUN_KIND_"))
                for run in shown.runs
            ),
        )

    async def schedules(self, text: str, limit: int, cursor: str = "") -> tuple[list[str], str]:
        request = pb.ListSchedulesRequest(text=text, page_size=limit, page_token=cursor)
        page = await self.call(self._schedules.ListSchedules, request)
        return [each.name for each in page.schedules], page.next_page_token

    async def act_on_schedule(self, name: str, action: str) -> None:
        method = getattr(self._schedules, f"{action.title()}Schedule")
        await self.call(method, getattr(pb, f"{action.title()}ScheduleRequest")(name=name))

    async def trigger(self, name: str, task: TaskId) -> TaskId:
        request = pb.TriggerScheduleRequest(name=name, task_id=id_text(task))
        return _task_id((await self.call(self._schedules.TriggerSchedule, request)).task_id)

    async def backfill(
        self, name: str, since_us: int, until_us: int, *, again: bool = False
    ) -> Filled:
        request = pb.BackfillScheduleRequest(
            name=name, since=_time(since_us), until=_time(until_us), again=again
        )
        done = await self.call(self._schedules.BackfillSchedule, request)
        forgotten = [slot.ToMicroseconds() for slot in done.forgotten]
        return Filled([_task_id(task) for task in done.task_ids], done.known, forgotten)

    async def declare(self, queue: str, **policy: int) -> None:
        request = pb.DeclareQueueRequest(queue=queue)
        for name, value in policy.items():
            setattr(request.policy, name, value)
        await self.call(self._queues.DeclareQueue, request)

    async def declare_ends(self, queue: str, ends: Ends) -> None:
        request = pb.DeclareQueueRequest(queue=queue)
        request.policy.callbacks.callbacks.extend(_callbacks(ends.callbacks))
        for each in ends.triggers:
            words: dict[str, Any] = {"on": _names(each.get("on", ()), "END_")}
            words |= {"payload": f"TRIGGER_PAYLOAD_{each.get('payload', 'result').upper()}"}
            request.policy.triggers.triggers.append(ParseDict(each | words, pb.Trigger()))
        request.policy.callbacks.SetInParent()
        request.policy.triggers.SetInParent()
        await self.call(self._queues.DeclareQueue, request)

    async def ends(self, queue: str) -> Ends:
        answer = await self.call(self._queues.GetQueue, pb.GetQueueRequest(queue=queue))
        policy = answer.queue.policy
        return Ends(
            [
                {"url": url, "on": list(on)} if on else {"url": url}
                for url, on, _ in map(_callback_shown, policy.callbacks.callbacks)
            ],
            [_trigger_shown(each) for each in policy.triggers.triggers],
        )

    async def worker(
        self, name: str, queue: str, lease_s: float = 30, holding: tuple[Attempt, ...] = ()
    ) -> GrpcWorker:
        worker = GrpcWorker(self, name, queue, lease_s)
        self._streams.append(worker)
        assert await worker.join(*holding) == ({held.fence for held in holding}, set())
        return worker

    async def close(self) -> None:
        for worker in self._streams:
            worker.cancel()
        await self._channel.close()


class GrpcWorker:
    """A stream that has joined with no slots, and claims."""

    def __init__(self, driver: GrpcDriver, name: str, queue: str, lease_s: float) -> None:
        self._driver = driver
        self._name, self._queue, self._lease_s = name, queue, lease_s
        self._ref = 0
        self._stream: Any = None
        self._assigned: list[pb.Assignment] = []
        self._signals: list[pb.SignalAsked] = []
        self._answers: dict[int, pb.Answer] = {}

    def cancel(self) -> None:
        if self._stream is not None:
            self._stream.cancel()

    async def join(self, *holding: Attempt) -> tuple[set[int], set[int]]:
        self.cancel()
        self._stream = self._driver.workers.Work(metadata=self._driver.metadata)
        join = pb.Join(
            worker=self._name,
            queues=[self._queue],
            slots=0,
            lease=_duration(self._lease_s),
            generation=time.time_ns() // 1_000,
            holding=[_held(each) for each in holding],
        )
        answer = await self._ask(pb.WorkRequest(join=join))
        self._session = answer.joined.session
        resumed = {each.fence for each in answer.joined.resumed}
        return resumed, {each.fence for each in answer.joined.drop}

    async def _send(self, message: pb.WorkRequest) -> int:
        self._ref += 1
        message.ref = self._ref
        await self._stream.write(message)
        return self._ref

    async def _ask(self, message: pb.WorkRequest) -> pb.Answer:
        """Send a message, and return its answer; raise the refusal of all or of its only item."""

        async def asking() -> pb.Answer:
            ref = await self._send(message)
            async with asyncio.timeout(_PATIENCE_S):
                while ref not in self._answers:
                    await self._read()
            return self._answers.pop(ref)

        answer = await _answer(asking())
        if answer.HasField("refusal"):
            raise _refused(answer.refusal)
        for item in answer.accepted.refused:
            raise _refused(item.refusal)
        return answer

    async def _read(self) -> None:
        message = await self._stream.read()
        if message is grpc.aio.EOF:
            raise AssertionError(f"the stream is over: {await self._stream.details()}")
        self._answers |= {answer.ref: answer for answer in message.answers}
        self._assigned += message.assignments
        self._signals += message.signals

    async def claim(self, wait_s: float = 5) -> Attempt | None:
        claim = pb.ClaimTasks(count=1, wait=_duration(wait_s))
        ref = await self._send(pb.WorkRequest(claim=claim))
        async with asyncio.timeout(wait_s + _PATIENCE_S):
            while not self._assigned and ref not in self._answers:
                await self._read()
        if not self._assigned:
            assert self._answers.pop(ref).HasField("claim_over")
            return None
        given = self._assigned.pop(0)
        start = pb.StartAttempts(attempts=[pb.Attempt(task_id=given.task_id, fence=given.fence)])
        await self._ask(pb.WorkRequest(start=start))
        payload = given.payload
        if given.is_large:
            request = pb.DownloadBlobRequest(
                task_id=given.task_id,
                kind=pb.BODY_KIND_PAYLOAD,
                fence=given.fence,
                session=self._session,
            )
            payload = await self._driver.download(request)
        task = _task_id(given.task_id)
        steps = tuple(DoneStep(each.name, each.result, each.is_late) for each in given.steps)
        return Attempt(task, given.fence, given.name, payload, given.attempt, steps)

    async def _results(self, **results: Any) -> None:
        await self._ask(pb.WorkRequest(results=pb.ReportResults(**results)))

    async def finish(self, attempt: Attempt, result: bytes = b"") -> None:
        finish = pb.Finish(task_id=id_text(attempt.task), fence=attempt.fence)
        if len(result) > 64 * 1024:
            finish.result_upload = await self._driver.upload(result)
        else:
            finish.result = result
        await self._results(finished=[finish])

    async def fail(self, attempt: Attempt, kind: str, message: str) -> None:
        error = pb.TaskError(type=kind, message=message)
        task = id_text(attempt.task)
        await self._results(failed=[pb.Fail(task_id=task, fence=attempt.fence, error=error)])

    async def release(self, attempt: Attempt) -> None:
        await self._results(released=[_held(attempt)])

    async def progress(self, attempt: Attempt, percent: float, note: str) -> None:
        progress = pb.ReportProgress(
            task_id=id_text(attempt.task), fence=attempt.fence, percent=percent, note=note
        )
        await self._ask(pb.WorkRequest(progress=progress))

    async def step(self, attempt: Attempt, index: int, name: str, result: bytes) -> None:
        step = pb.RecordStep(
            task_id=id_text(attempt.task),
            fence=attempt.fence,
            index=index,
            name=name,
            result=result,
            took=timedelta(milliseconds=1),
        )
        await self._ask(pb.WorkRequest(step=step))

    async def suspend(
        self, attempt: Attempt, index: int, name: str, after_s: float = 0, event: str = ""
    ) -> DoneStep | None:
        suspend = pb.Suspend(
            task_id=id_text(attempt.task), fence=attempt.fence, index=index, name=name, event=event
        )
        if after_s:
            suspend.after.CopyFrom(_duration(after_s))
        answer = await self._ask(pb.WorkRequest(suspend=suspend))
        if answer.HasField("suspended"):
            return None
        return DoneStep(name, answer.step_done.result, answer.step_done.is_late)

    async def signal(self) -> tuple[TaskId, str]:
        async with asyncio.timeout(_PATIENCE_S):
            while not self._signals:
                await self._read()
        asked = self._signals.pop(0)
        return _task_id(asked.task_id), _word(pb.Signal, asked.signal, "SIGNAL_")

    async def stopped(self, attempt: Attempt) -> None:
        answer = pb.AnswerSignal(
            task_id=id_text(attempt.task), fence=attempt.fence, answer=pb.SIGNAL_ANSWER_STOPPED
        )
        await self._ask(pb.WorkRequest(signal=answer))


async def _answer(call: Awaitable[T]) -> T:
    """Await a call, and raise what the details of its error say."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise _told(error) from error


def _told(error: grpc.aio.AioRpcError) -> Refused:
    status = rpc_status.from_call(error)
    assert status is not None, error
    info, retry = ErrorInfo(), RetryInfo()
    for detail in status.details:
        detail.Unpack(info)
        detail.Unpack(retry)
    assert info.domain == "jackalope", error
    delay = retry.retry_delay.ToTimedelta().total_seconds()
    return Refused(info.reason.lower(), status.message, delay)


def _refused(refusal: pb.Refusal) -> Refused:
    code = _word(pb.RefusalCode, refusal.code, "REFUSAL_CODE_")
    delay = refusal.retry_after.ToTimedelta().total_seconds()
    return Refused(code, refusal.message, delay)


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromTimedelta(timedelta(seconds=seconds))
    return duration


def _time(at_us: int) -> Timestamp:
    shown = Timestamp()
    shown.FromMicroseconds(at_us)
    return shown


def _held(attempt: Attempt) -> pb.Attempt:
    return pb.Attempt(task_id=id_text(attempt.task), fence=attempt.fence)


def _task_id(text: str) -> TaskId:
    found = as_task_id(text)
    assert found is not None, text
    return found


def _word(enum: Any, value: int, prefix: str) -> str:
    """Return a value of an enum as the other doors write it; the unspecified one is empty."""
    return str(enum.Name(value)).removeprefix(prefix).lower() if value else ""


def _callbacks(callbacks: Iterable[dict[str, Any]]) -> list[pb.Callback]:
    return [
        pb.Callback(url=each["url"], on=_names(each.get("on", ()), "CALLBACK_ON_"))
        for each in callbacks
    ]


def _names(words: Iterable[str], prefix: str) -> list[Any]:
    return [f"{prefix}{word.upper()}" for word in words]


def _callback_shown(callback: pb.Callback) -> tuple[str, tuple[str, ...], TaskId]:
    on = tuple(_word(pb.CallbackOn, each, "CALLBACK_ON_") for each in callback.on)
    return callback.url, on, _task_id(callback.task_id) if callback.task_id else NO_TASK


def _trigger_shown(trigger: pb.Trigger) -> dict[str, Any]:
    """Return a trigger as the other doors show it: without what has its default."""
    on = [_word(pb.End, each, "END_") for each in trigger.on]
    shown = {
        "queue": trigger.queue,
        "on": on if on != ["succeeded"] else None,
        "name": trigger.name,
        "key": trigger.key,
        "priority": trigger.priority if trigger.HasField("priority") else None,
        "payload": _word(pb.TriggerPayload, trigger.payload, "TRIGGER_PAYLOAD_"),
    }
    if shown["payload"] == "result":
        del shown["payload"]
    return {name: value for name, value in shown.items() if value or value == 0}


def _shown(task: pb.Task) -> Shown:
    has_percent = task.HasField("progress") and task.progress.HasField("percent")
    return Shown(
        _task_id(task.id),
        task.queue,
        task.name,
        _word(pb.TaskState, task.state, "TASK_STATE_"),
        task.priority,
        task.attempts,
        task.failures,
        task.crashes,
        task.interruptions,
        _word(pb.DeathReason, task.reason, "DEATH_REASON_"),
        (task.error.type, task.error.message),
        task.progress.percent if has_percent else None,
        task.progress.note,
        tuple(step.name for step in task.steps),
        task.waits_for,
        tuple(map(_callback_shown, task.callbacks)),
    )
