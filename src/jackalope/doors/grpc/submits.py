"""Submits over gRPC: one call, or a stream of messages that are acknowledged once durable.

Owns the way of tasks from messages into the core: ids for those without one, large payloads into
the blob store first, the trace of the call. Nothing is stored for a caller that may not submit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from jackalope.broker.body_streams import store_payload
from jackalope.broker.client_session import of_kind
from jackalope.broker.queries import Refused
from jackalope.core.api_key import Permission
from jackalope.core.commands import SubmitTasks
from jackalope.core.durations import SECOND
from jackalope.core.effects import Accepted, Answered, Effect, Reply
from jackalope.core.ids import TaskId, id_texts
from jackalope.core.limits import INLINE_BYTES_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.core.task import TRACE_PARENT, TRACE_STATE, BlobRef, Body, TaskSpec
from jackalope.doors.grpc.calls import Call
from jackalope.doors.grpc.errors import BadField, refusal_of
from jackalope.doors.grpc.outbox import Outbox, Pace, Streamed, sending
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from jackalope.doors.grpc.task_bytes import Taken, TaskReader, Unreadable
from jackalope.doors.grpc.task_messages import served_by, served_shown, spec_of
from jackalope.doors.grpc.values import fence_of, refusal_shown, refused_shown
from jackalope.doors.traces import carry_trace
from jackalope.storage import StorageFault

#: How many tasks of one stream a turn takes.
TASKS_PER_TURN_MAX = 5_000


async def prepare(call: Call, tasks: Sequence[pb.TaskSpec], path: str = "tasks") -> list[TaskSpec]:
    """Return tasks as the core takes them; raises `BadField` or `Refused`."""
    make_id = _admit(call, len(tasks))
    specs, uploads = [], {}
    for number, task in enumerate(tasks):
        try:
            spec = spec_of(task, make_id)
        except BadField as bad:
            raise bad.below(path if path == "task" else f"{path}[{number}]") from None
        specs.append(spec)
        if task.payload_upload:
            uploads[number] = task.payload_upload
    await _complete(call, specs, uploads)
    return specs


def _admit(call: Call, count: int) -> Callable[[], TaskId]:
    """Return what makes ids for tasks that have none, if the broker takes so many tasks now."""
    refusal = call.broker.admit(count)
    if refusal is not None:
        raise Refused(refusal)
    return partial(call.door.ids.next, call.broker.now_us())


async def _complete(call: Call, specs: list[TaskSpec], uploads: Mapping[int, str]) -> None:
    """Add the trace of the call, and put large payloads where they belong."""
    carry_trace(specs, call.header(TRACE_PARENT), call.header(TRACE_STATE))
    if uploads or any(_is_large(spec.payload) for spec in specs):
        await _take_large(call, specs, uploads)


def _is_large(payload: Body) -> bool:
    return not isinstance(payload, bytes) or len(payload) > INLINE_BYTES_MAX


async def _take_large(call: Call, specs: list[TaskSpec], uploads: Mapping[int, str]) -> None:
    refusal = call.principal.refuse_any((Permission.SUBMIT_TASKS,), call.namespace)
    if refusal is not None:
        raise Refused(refusal)
    for number, spec in enumerate(specs):
        if number in uploads:
            if spec.payload:
                raise BadField("payload_upload", "excludes payload; set one of them")
            spec.payload = call.door.uploads.claim(uploads[number], call.principal)
        await store_payload(call.broker.blobs, spec)


async def submit(call: Call, specs: list[TaskSpec], fence: int) -> Accepted:
    """Submit tasks, and let go of the blobs of those that were refused."""
    command = SubmitTasks(ref=0, tasks=specs, fence=fence_of(fence, "parent"))
    accepted = of_kind(await call.ask(command, len(specs)), Accepted)
    _let_go(call, specs, accepted)
    return accepted


def _let_go(call: Call, specs: Sequence[TaskSpec], accepted: Accepted) -> None:
    for index, _ in accepted.refused:
        payload = specs[index].payload
        if isinstance(payload, BlobRef):
            call.broker.blobs.doubt(payload)


# The stream.


async def stream_tasks(call: Call) -> None:
    """Take tasks for as long as the client sends some, then acknowledge the rest."""
    async with sending(call) as outbox:
        stream = SubmitStream(call, outbox)
        try:
            await stream.run()
        finally:
            stream.done()


class SubmitStream(Streamed):
    """The session of one stream of submits."""

    def __init__(self, call: Call, outbox: Outbox) -> None:
        super().__init__(call.broker, call.principal)
        self._call = call
        self._outbox = outbox
        self._pace = Pace(call.broker, TASKS_PER_TURN_MAX)
        self._reader = TaskReader()
        self._open: dict[int, Taken] = {}

    async def run(self) -> None:
        self.open()
        while (data := await self._call.read_bytes()) is not None:
            taken = self._reader.open(data)
            try:
                self._call.count()
                self._reader.read(taken, _admit(self._call, len(taken.tasks)))
                await _complete(self._call, taken.specs, taken.uploads)
                self._submit(taken)
            except Unreadable:
                raise
            except BadField as bad:
                self._refuse_one(taken, refusal_of(bad))
            except Refused as refused:
                self._refuse_one(taken, refused.refusal)
            except StorageFault as fault:
                self._refuse_one(taken, Refusal(Code.STORAGE_FAILED, str(fault), SECOND))
            await self._pace.step(len(taken.tasks) or 1)
            if self._outbox.is_slow():
                await self._outbox.room()
        while self._open:
            await self._pace.step(TASKS_PER_TURN_MAX)

    def _submit(self, taken: Taken) -> None:
        ref, call = next(self._refs), self._call
        command = SubmitTasks(
            ref=ref,
            tasks=taken.specs,
            fence=fence_of(taken.parent_fence, "parent"),
            session=self.session,
            namespace=call.namespace,
            by=call.by,
        )
        refusal = self.broker.post(command, call.principal, len(taken.specs))
        if refusal is not None:
            raise Refused(refusal)
        taken.tasks.clear()  # The bytes are of no use any more.
        self._open[ref] = taken

    def _refuse_one(self, taken: Taken, refusal: Refusal) -> None:
        ack = pb.SubmitAck(ref=taken.ref, refusal=refusal_shown(refusal))
        self._outbox.put(pb.StreamTasksResponse(acks=[ack]).SerializeToString())

    # The broker's side.

    def deliver(self, effects: list[Effect]) -> None:
        acks = [self._ack(each.ref, each.body) for each in effects if isinstance(each, Reply)]
        if acks:
            self._outbox.put(pb.StreamTasksResponse(acks=acks).SerializeToString())

    def _ack(self, ref: int, body: Answered) -> pb.SubmitAck:
        taken = self._open.pop(ref)
        specs = taken.specs
        if isinstance(body, Refusal):
            return pb.SubmitAck(ref=taken.ref, refusal=refusal_shown(body))
        accepted = of_kind(body, Accepted)
        ack = pb.SubmitAck(
            ref=taken.ref,
            accepted=accepted.count,
            ids=() if taken.has_ids else id_texts([spec.id for spec in specs]),
        )
        if accepted.refused:
            ack.refused.extend(refused_shown(accepted.refused))
            _let_go(self._call, specs, accepted)
        for index, served in served_by(accepted).items():
            ack.served.append(pb.ServedItem(index=index, served=served_shown(served)))
        return ack
