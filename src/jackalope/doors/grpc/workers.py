"""Workers over gRPC: one stream is one session of a worker.

Owns the translation of a worker's messages into commands, and of what the broker has for the worker
into messages. When the stream ends, whatever the reason, the session is closed: the worker may join
again within its grace, with the fences of what it still runs.

Theory of operation: a command has the ref that its message has, so that its reply finds the way
back, and an assignment for a claim names it. Refs of our own, for joins and for messages that
become several commands, are above all refs of workers.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from itertools import count
from typing import Any

from jackalope.broker import queries
from jackalope.broker.local_session import LocalWorker
from jackalope.broker.queries import Refused
from jackalope.core.api_key import Permission
from jackalope.core.commands import (
    Answer,
    AnswerSignal,
    AnyCommand,
    CancelClaim,
    ClaimTasks,
    DrainWorker,
    Fail,
    FailAttempts,
    Finish,
    FinishAttempts,
    Heartbeat,
    JoinWorker,
    LeaveWorker,
    RecordStep,
    ReleaseAttempts,
    ReportProgress,
    StartAttempts,
    Suspend,
    Verdict,
)
from jackalope.core.durations import SECOND
from jackalope.core.effects import (
    Accepted,
    Answered,
    Assignment,
    Effect,
    Joined,
    NothingToClaim,
    Reply,
    SignalAsked,
    StepDone,
    Suspended,
)
from jackalope.core.ids import id_text
from jackalope.core.limits import COUNT_MAX, INLINE_BYTES_MAX, TIME_US_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.envelope import headers_shown
from jackalope.core.shapes.task_log import LogsKept
from jackalope.core.task import BlobRef, Body, Error, size_of
from jackalope.doors.gathering import Gathering
from jackalope.doors.grpc.calls import Call
from jackalope.doors.grpc.errors import BadField, refusal_of
from jackalope.doors.grpc.logs import lines_of
from jackalope.doors.grpc.outbox import Outbox, Pace, Streamed, sending
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from jackalope.doors.grpc.task_messages import SIGNALS, input_shown, resources_of
from jackalope.doors.grpc.values import (
    Words,
    attempts_shown,
    fence_of,
    from_duration,
    held_of,
    id_of,
    refusal_shown,
    refused_shown,
    to_duration,
    to_struct,
    to_time,
)
from jackalope.storage import StorageFault

#: How many messages of one worker a turn takes.
MESSAGES_PER_TURN_MAX = 256

#: How many numbers a worker may report about itself with a heartbeat.
STATS_MAX = 64

_OWN_REFS = 2**62
_LEASE_US = 30 * SECOND
_GRACE_US = 10 * SECOND

_VERDICTS = Words(pb.Verdict, Verdict)
_ANSWERS = Words(pb.SignalAnswer, Answer)


class WorkerService:
    """Workers."""

    async def work(self, call: Call) -> None:
        async with sending(call) as outbox:
            stream = WorkStream(call, outbox)
            call.door.workers[stream.secret] = stream
            try:
                await stream.run()
            finally:
                del call.door.workers[stream.secret]
                stream.done()

    async def beat(self, call: Call, request: pb.BeatRequest) -> pb.BeatResponse:
        stream = call.door.workers.get(request.session)
        if stream is not None:
            stream.heartbeat()
        return pb.BeatResponse(alive=stream is not None)

    async def list_workers(self, call: Call, _: pb.ListWorkersRequest) -> pb.ListWorkersResponse:
        views = await call.view(queries.workers)
        return pb.ListWorkersResponse(
            workers=[
                pb.Worker(
                    state=f"WORKER_STATE_{view.state.upper()}",
                    joined_at=to_time(view.joined_us),
                    heard_at=to_time(view.heard_us),
                    gone_at=to_time(view.gone_us),
                    **{name: getattr(view, name) for name in _AS_THEY_ARE},
                )
                for view in views
            ]
        )

    async def drain_worker(
        self, call: Call, request: pb.DrainWorkerRequest
    ) -> pb.DrainWorkerResponse:
        await call.ask(DrainWorker(worker=request.worker))
        return pb.DrainWorkerResponse()


#: The fields of a worker that are the same in the view.
_AS_THEY_ARE: tuple[Any, ...] = (
    *("worker", "queues", "keys", "slots", "load", "labels", "stats", "why_gone"),
    *("succeeded", "failed", "resources", "used"),
)


class WorkStream(Streamed, LocalWorker):
    """The session of one stream."""

    def __init__(self, call: Call, outbox: Outbox) -> None:
        super().__init__(call.broker, call.principal)
        self.secret = secrets.token_urlsafe(16)  # names the session to other calls of the worker
        self._call = call
        self._outbox = outbox
        self._refs = count(_OWN_REFS)
        self._pace = Pace(call.broker, MESSAGES_PER_TURN_MAX)
        self._joins: dict[int, tuple[int, int]] = {}  # by our ref: the worker's, and the lease
        self._gatherings: dict[int, Gathering] = {}
        self._has_joined = False  # has sent a join
        self._is_registered = False  # and the broker has taken it

    async def run(self) -> None:
        self.open()
        while (request := await self._call.read()) is not None:
            what = request.WhichOneof("what")
            if not self._has_joined and what != "join":
                raise BadField("what", "the first message of a worker must be join")
            if request.ref >= _OWN_REFS:
                raise BadField("ref", f"must be below {_OWN_REFS}")
            if what == "leave":
                await self._leave(request.ref)
                return
            try:
                await self._take(what, request)
            except BadField as bad:
                self._answer(request.ref, refusal_of(bad))
            except Refused as refused:
                self._answer(request.ref, refused.refusal)
            except StorageFault as fault:
                text = f"nothing was changed: {fault}"
                self._answer(request.ref, Refusal(Code.STORAGE_FAILED, text, SECOND))
            await self._pace.step()
            if self._outbox.is_slow():
                await self._outbox.room()

    async def _take(self, what: str | None, request: pb.WorkRequest) -> None:
        if what == "join":
            self._join(request.ref, request.join)
        elif what == "results":
            await self._report(request.ref, request.results)
        elif what == "logs":
            self._keep(request.ref, request.logs)
        elif what is None:
            raise BadField("what", "the message says nothing")
        else:
            command = _COMMANDS[what](getattr(request, what))
            command.ref = request.ref
            self._send_on(command)

    def _send_on(self, command: AnyCommand) -> None:
        """Post a command whose reply, if one is wanted, goes to the worker."""
        command.session = self.session
        refusal = self.broker.post(command, self._call.principal)
        if refusal is not None:
            raise Refused(refusal)

    def _join(self, ref: int, join: pb.Join) -> None:
        own = next(self._refs)
        command = join_of(join)
        command.namespace, command.by = self._call.namespace, self._call.by
        command.ref = own
        self._joins[own] = (ref, command.lease_us)
        self._has_joined = True
        try:
            self._send_on(command)
        except Refused as refused:
            self._on_join(own, refused.refusal)

    async def _leave(self, ref: int) -> None:
        self._answer(ref, await self.ask(LeaveWorker()))

    def _keep(self, ref: int, written: pb.WriteLogs) -> None:
        """Keep lines of an attempt, and answer when they are stored."""

        def told(kept: LogsKept) -> None:
            shown = pb.Answer(ref=ref)
            shown.logs_kept.kept, shown.logs_kept.dropped = kept.kept, kept.dropped
            shown.logs_kept.SetInParent()
            self._outbox.put(pb.WorkResponse(answers=[shown]).SerializeToString())

        held = (id_of(written.task_id, "logs.task_id"), fence_of(written.fence, "logs"))
        lines = lines_of(written, self.broker.now_us())
        last = min(written.last, COUNT_MAX)
        refusal = self._call.principal.refuse(Permission.WORK) or self.broker.logs.take(
            self.session, held, lines, last, told if ref else None
        )
        if refusal is not None:
            raise Refused(refusal)

    # Results.

    async def _report(self, ref: int, results: pb.ReportResults) -> None:
        finished = []
        for number, each in enumerate(results.finished):
            path = f"results.finished[{number}]"
            held = (id_of(each.task_id, f"{path}.task_id"), fence_of(each.fence, path))
            finished.append(Finish(*held, await self._result(each, path)))
        failed = [
            _fail_of(each, f"results.failed[{number}]")
            for number, each in enumerate(results.failed)
        ]
        released = held_of(results.released, "results.released")
        parts: list[AnyCommand] = []
        if finished or not (failed or released):
            parts.append(FinishAttempts(attempts=finished))
        if failed:
            parts.append(FailAttempts(attempts=failed))
        if released:
            parts.append(ReleaseAttempts(attempts=released))
        if len(parts) == 1 or not ref:
            for command in parts:
                command.ref = ref
                self._send_on(command)
            return
        sizes = [len(each) for each in (finished, failed, released) if each]
        gathering = Gathering(ref, sizes)
        for command in parts:
            command.ref = next(self._refs)
            self._send_on(command)
            self._gatherings[command.ref] = gathering

    async def _result(self, finish: pb.Finish, path: str) -> Body:
        """Return a result as the core takes it: what is large goes to the blob store first."""
        if finish.result_upload:
            if finish.result:
                raise BadField(f"{path}.result_upload", "excludes result; set one of them")
            return self._call.door.uploads.claim(finish.result_upload, self._call.principal)
        result = finish.result
        if len(result) <= INLINE_BYTES_MAX:
            return result
        refusal = self._call.principal.refuse_any((Permission.WORK,), self._call.namespace)
        if refusal is not None:
            raise Refused(refusal)
        blobs = self.broker.blobs
        return await blobs.off_loop(lambda: blobs.write([result]))

    # The broker's side.

    def deliver(self, effects: list[Effect]) -> None:
        for effect in effects:
            if not isinstance(effect, Reply):
                self.on_message(effect.message)
            elif effect.ref < _OWN_REFS:
                self._answer(effect.ref, effect.body)
            elif effect.ref in self._joins:
                self._on_join(effect.ref, effect.body)
            elif effect.ref in self._gatherings:
                gathering = self._gatherings.pop(effect.ref)
                body = gathering.take(effect.body)
                if body is not None:
                    self._answer(gathering.ref, body)
            else:
                self._resolve(effect.ref, effect.body)

    def _on_join(self, own: int, body: Answered) -> None:
        ref, lease_us = self._joins.pop(own)
        if isinstance(body, Refusal) and not self._is_registered:
            self._outbox.end(body)  # Without its join the stream is of no use.
            return
        shown = pb.Answer(ref=ref)
        if isinstance(body, Joined):
            self._is_registered = True
            shown.joined.resumed.extend(attempts_shown(body.resumed))
            shown.joined.drop.extend(attempts_shown(body.drop))
            shown.joined.session = self.secret
            shown.joined.lease.CopyFrom(to_duration(lease_us))
        elif isinstance(body, Refusal):
            shown.refusal.CopyFrom(refusal_shown(body))
        self._outbox.put(pb.WorkResponse(answers=[shown]).SerializeToString())

    def _answer(self, ref: int, body: Answered) -> None:
        if not ref:
            return
        shown = pb.Answer(ref=ref)
        if isinstance(body, Refusal):
            shown.refusal.CopyFrom(refusal_shown(body))
        elif isinstance(body, NothingToClaim):
            shown.claim_over.SetInParent()
        elif isinstance(body, Accepted):
            shown.accepted.count = body.count
            shown.accepted.refused.extend(refused_shown(body.refused))
        elif isinstance(body, StepDone):
            shown.step_done.result, shown.step_done.is_late = body.result, body.is_late
            shown.step_done.SetInParent()
        elif isinstance(body, Suspended):
            shown.suspended.SetInParent()
        else:
            shown.accepted.SetInParent()
        self._outbox.put(pb.WorkResponse(answers=[shown]).SerializeToString())

    def on_assignment(self, given: Assignment) -> None:
        response = pb.WorkResponse(assignments=[_assignment_shown(given)])
        self._outbox.put(response.SerializeToString())

    def on_signal(self, asked: SignalAsked) -> None:
        shown = pb.SignalAsked(
            task_id=id_text(asked.task), fence=asked.fence, signal=SIGNALS.number(asked.signal)
        )
        self._outbox.put(pb.WorkResponse(signals=[shown]).SerializeToString())
        self.answer_signal(asked, Answer.DELIVERED)

    def on_drain(self) -> None:
        self._outbox.put(pb.WorkResponse(drain=True).SerializeToString())

    def on_lease_lost(self) -> None:
        self._outbox.put(pb.WorkResponse(lease_lost=True).SerializeToString(), joins=False)

    def on_replaced(self) -> None:
        message = "the worker has joined over another stream"
        self._outbox.end(Refusal(Code.STALE_SESSION, message))


def _assignment_shown(given: Assignment) -> pb.Assignment:
    payload, options = given.payload, given.options
    shown = pb.Assignment(
        task_id=id_text(given.task),
        fence=given.fence,
        queue=given.queue,
        name=given.name,
        key=given.key,
        payload=payload if isinstance(payload, bytes) else b"",
        payload_size=size_of(payload),
        is_large=isinstance(payload, BlobRef),
        attempt=given.attempt,
        claim=given.claim,
    )
    if given.timeout_us:
        shown.timeout.CopyFrom(to_duration(given.timeout_us))
    if options.tags:
        shown.tags.extend(options.tags)
    if options.headers or given.envelope is not None:
        headers = to_struct(headers_shown(options.headers, given.envelope))
        if headers is not None:
            shown.headers.CopyFrom(headers)
    for step in given.steps:
        shown.steps.add(index=step.index, name=step.name, result=step.result, is_late=step.is_late)
    if given.inputs:
        shown.inputs.extend(map(input_shown, given.inputs))
    return shown


# Messages as commands.


def join_of(join: pb.Join) -> JoinWorker:
    try:
        lease_us = from_duration(join, "lease", _LEASE_US)
        grace_us = from_duration(join, "grace", _GRACE_US)
    except BadField as bad:
        raise bad.below("join") from None
    if join.generation > TIME_US_MAX:
        raise BadField("join.generation", f"must be at most {TIME_US_MAX}")
    return JoinWorker(
        ref=0,
        worker=join.worker,
        queues=tuple(join.queues),
        keys=tuple(join.keys),
        slots=join.slots if join.HasField("slots") else 1,
        labels=dict(join.labels),
        holding=held_of(join.holding, "join.holding"),
        lease_us=lease_us,
        grace_us=grace_us,
        generation=join.generation,
        ready=not join.not_ready,
        names=tuple(join.names.names) if join.HasField("names") else None,
        resources=resources_of(join.resources, "join.resources"),
    )


def _fail_of(fail: pb.Fail, path: str) -> Fail:
    try:
        retry_after_us = from_duration(fail, "retry_after")
    except BadField as bad:
        raise bad.below(path) from None
    error = fail.error
    return Fail(
        id_of(fail.task_id, f"{path}.task_id"),
        fence_of(fail.fence, path),
        Error(error.type or "Failure", error.message, error.trace),
        _VERDICTS.word(fail.verdict, f"{path}.verdict") or Verdict.RETRY,
        retry_after_us,
        fail.crashed,
        fail.key,
    )


def _start_of(start: pb.StartAttempts) -> AnyCommand:
    return StartAttempts(ref=0, attempts=held_of(start.attempts, "start.attempts"))


def _progress_of(told: pb.ReportProgress) -> AnyCommand:
    return ReportProgress(
        ref=0,
        task=id_of(told.task_id, "progress.task_id"),
        fence=fence_of(told.fence, "progress"),
        percent=told.percent if told.HasField("percent") else None,
        note=told.note,
    )


def _beat_of(beat: pb.Heartbeat) -> AnyCommand:
    if len(beat.stats) > STATS_MAX:
        raise BadField("heartbeat.stats", f"at most {STATS_MAX} numbers")
    return Heartbeat(stats=dict(beat.stats))


def _signal_of(told: pb.AnswerSignal) -> AnyCommand:
    return AnswerSignal(
        ref=0,
        task=id_of(told.task_id, "signal.task_id"),
        fence=fence_of(told.fence, "signal"),
        answer=_ANSWERS.required(told.answer, "signal.answer"),
        detail=told.detail,
    )


def _claim_of(claim: pb.ClaimTasks) -> AnyCommand:
    try:
        wait_us = from_duration(claim, "wait")
    except BadField as bad:
        raise bad.below("claim") from None
    return ClaimTasks(ref=0, count=claim.count or 1, wait_us=wait_us)


def _cancel_of(cancel: pb.CancelClaim) -> AnyCommand:
    return CancelClaim(claim=fence_of(cancel.claim, "cancel_claim"))


def _step_of(step: pb.RecordStep) -> AnyCommand:
    return RecordStep(
        ref=0,
        task=id_of(step.task_id, "step.task_id"),
        fence=fence_of(step.fence, "step"),
        index=step.index,
        name=step.name,
        result=step.result,
        took_us=_duration_of(step, "took", "step"),
    )


def _suspend_of(asked: pb.Suspend) -> AnyCommand:
    return Suspend(
        ref=0,
        task=id_of(asked.task_id, "suspend.task_id"),
        fence=fence_of(asked.fence, "suspend"),
        index=asked.index,
        name=asked.name,
        after_us=_duration_of(asked, "after", "suspend"),
        event=asked.event,
    )


def _duration_of(message: Any, field: str, path: str) -> int:
    try:
        return min(from_duration(message, field), TIME_US_MAX)
    except BadField as bad:
        raise bad.below(path) from None


_COMMANDS: dict[str, Callable[[Any], AnyCommand]] = {
    "start": _start_of,
    "progress": _progress_of,
    "heartbeat": _beat_of,
    "signal": _signal_of,
    "claim": _claim_of,
    "cancel_claim": _cancel_of,
    "step": _step_of,
    "suspend": _suspend_of,
}
