"""Tasks over gRPC: submitted, shown, waited for, watched and acted on."""

from __future__ import annotations

import asyncio

import msgspec

from jackalope.broker import queries
from jackalope.broker.client_session import Feed, of_kind
from jackalope.broker.queries import About, Refused, task_and_bodies
from jackalope.core.commands import ActOnTasks, SendEvent, WatchTasks
from jackalope.core.durations import NEVER, SECOND
from jackalope.core.effects import Accepted, Acted, Message, TaskEnded, TaskProgressed
from jackalope.core.ids import TaskId, id_text
from jackalope.core.lifecycle import ENDED
from jackalope.core.refusals import Code, Refusal
from jackalope.core.task import Body
from jackalope.doors.grpc.calls import Call
from jackalope.doors.grpc.errors import BadField
from jackalope.doors.grpc.logs import read_logs
from jackalope.doors.grpc.outbox import Outbox, Streamed, sending
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from jackalope.doors.grpc.submits import prepare, stream_tasks, submit
from jackalope.doors.grpc.task_messages import (
    ACTIONS,
    STATES,
    ended_shown,
    filter_of,
    progress_shown,
    served_by,
    served_shown,
    small,
    task_shown,
    terms_of,
)
from jackalope.doors.grpc.values import (
    from_duration,
    from_value,
    id_of,
    ids_of,
    maybe_id,
    refusal_shown,
    refused_shown,
    to_struct,
    to_time,
)
from jackalope.storage.ports import Sort
from jackalope.wire.views import TaskView

_PAGE_DEFAULT = 100

_ORDERS: dict[int, Sort] = {
    pb.TASK_ORDER_UNSPECIFIED: Sort.CREATED_LAST,
    pb.TASK_ORDER_CREATED_DESC: Sort.CREATED_LAST,
    pb.TASK_ORDER_CREATED: Sort.CREATED,
    pb.TASK_ORDER_PRIORITY_DESC: Sort.PRIORITY_LAST,
    pb.TASK_ORDER_PRIORITY: Sort.PRIORITY,
    pb.TASK_ORDER_ENDED_DESC: Sort.ENDED_LAST,
    pb.TASK_ORDER_ENDED: Sort.ENDED,
}

#: How long a feed waits for an event before it looks again whether it is over.
_FEED_S = 3_600.0

_SHUTTING_DOWN = Refusal(Code.OVERLOADED, "the broker is shutting down; connect again", SECOND)


class TaskService:
    """Tasks."""

    # Submitting.

    async def submit_task(self, call: Call, request: pb.SubmitTaskRequest) -> pb.SubmitTaskResponse:
        if not request.HasField("task"):
            raise BadField("task", "must be set")
        specs = await prepare(call, [request.task], "task")
        accepted = await submit(call, specs, request.parent_fence)
        if accepted.refused:
            raise Refused(accepted.refused[0][1])
        served = served_by(accepted).get(0)
        if served is None:
            return pb.SubmitTaskResponse(id=id_text(specs[0].id))
        return pb.SubmitTaskResponse(id=id_text(served.task), served=served_shown(served))

    async def submit_tasks(
        self, call: Call, request: pb.SubmitTasksRequest
    ) -> pb.SubmitTasksResponse:
        specs = await prepare(call, request.tasks)
        accepted = await submit(call, specs, request.parent_fence)
        refused, served = dict(accepted.refused), served_by(accepted)
        outcomes = []
        for index, spec in enumerate(specs):
            outcome = pb.SubmitOutcome(id=id_text(spec.id))
            if index in refused:
                outcome.refusal.CopyFrom(refusal_shown(refused[index]))
            elif index in served:
                outcome.id = id_text(served[index].task)
                outcome.served.CopyFrom(served_shown(served[index]))
            outcomes.append(outcome)
        return pb.SubmitTasksResponse(outcomes=outcomes, accepted=accepted.count)

    async def stream_tasks(self, call: Call) -> None:
        await stream_tasks(call)

    # Showing.

    async def get_task(self, call: Call, request: pb.GetTaskRequest) -> pb.GetTaskResponse:
        if request.WhichOneof("which") is None:
            raise BadField("id", "set id or alias")
        about = About(id=maybe_id(request.id, "id"), alias=request.alias)
        view, bodies = await task_and_bodies(call.broker, call.namespace, about)
        wanted = (request.include_payload, request.include_result)
        payload, result = (
            small(body) if is_wanted else None
            for body, is_wanted in zip(bodies, wanted, strict=True)
        )
        view = msgspec.structs.replace(view, payload=payload, result=result)
        return pb.GetTaskResponse(task=task_shown(view))

    async def list_tasks(self, call: Call, request: pb.ListTasksRequest) -> pb.ListTasksResponse:
        sort = _ORDERS.get(request.order)
        if sort is None:
            raise BadField("order", f"unknown value {request.order}")
        about = About(
            sort=str(sort),
            limit=request.page_size or _PAGE_DEFAULT,
            cursor=request.page_token,
            total=request.include_total,
            **msgspec.structs.asdict(filter_of(request.filter)),
        )
        page = await call.view(queries.tasks, about)
        tasks = [task_shown(view) for view in page.tasks]
        return pb.ListTasksResponse(tasks=tasks, next_page_token=page.cursor, total=page.total)

    async def explain_task(
        self, call: Call, request: pb.ExplainTaskRequest
    ) -> pb.ExplainTaskResponse:
        view = await call.view(queries.explain, About(id=id_of(request.id, "id")))
        causes = [
            pb.Cause(why=each.why, text=each.text, facts=to_struct(each.facts))
            for each in view.causes
        ]
        return pb.ExplainTaskResponse(
            id=id_text(view.task), state=STATES.number(view.state), causes=causes
        )

    async def get_task_history(
        self, call: Call, request: pb.GetTaskHistoryRequest
    ) -> pb.GetTaskHistoryResponse:
        entries = await call.view(queries.history, About(id=id_of(request.id, "id")))
        return pb.GetTaskHistoryResponse(
            entries=[
                pb.HistoryEntry(
                    at=to_time(each.at_us), what=each.what, by=each.by, detail=each.detail
                )
                for each in entries
            ]
        )

    # Waiting.

    async def wait_task(self, call: Call, request: pb.WaitTaskRequest) -> pb.WaitTaskResponse:
        about = About(id=id_of(request.id, "id"))
        wait_us = from_duration(request, "timeout", NEVER)
        wait_s = None if wait_us >= NEVER else wait_us / SECOND
        view, bodies = await _after_waiting(call, about, wait_s)
        view = msgspec.structs.replace(view, result=small(bodies[1]))
        return pb.WaitTaskResponse(task=task_shown(view), ended=view.state in ENDED)

    async def watch_tasks(self, call: Call, request: pb.WatchTasksRequest) -> None:
        ids = ids_of(request.ids, "ids")
        async with sending(call) as outbox:
            watch = Watch(call, outbox, ids)
            try:
                await watch.run(progress=request.progress)
            finally:
                watch.done()

    async def read_logs(self, call: Call, request: pb.ReadLogsRequest) -> None:
        await read_logs(call, request)

    async def watch_events(self, call: Call, request: pb.WatchEventsRequest) -> None:
        task = maybe_id(request.task_id, "task_id")
        with Feed(call.broker, call.door.feeds, call.namespace) as feed:
            feed.listen((request.queue, task))
            await call.send(pb.WatchEventsResponse())
            while not feed.is_over:
                happened, missed = await feed.next(_FEED_S)
                if happened or missed:
                    events = [
                        pb.TaskEvent(
                            at=to_time(each.at_us),
                            what=each.what,
                            task_id=id_text(each.task),
                            queue=each.queue,
                            state=STATES.number(each.state),
                            by=each.by,
                            detail=each.detail,
                        )
                        for each in happened
                    ]
                    await call.send(pb.WatchEventsResponse(events=events, missed=missed))
        raise Refused(_SHUTTING_DOWN)

    # Acting.

    async def act_on_tasks(
        self, call: Call, request: pb.ActOnTasksRequest
    ) -> pb.ActOnTasksResponse:
        if not request.ids and not request.HasField("filter"):
            raise BadField("ids", "set ids or filter")
        command = ActOnTasks(
            ref=0,
            action=ACTIONS.required(request.action, "action"),
            tasks=ids_of(request.ids, "ids"),
            filter=filter_of(request.filter) if request.HasField("filter") else None,
            dry_run=request.dry_run,
            terms=terms_of(request.terms) if request.HasField("terms") else None,
        )
        acted = of_kind(await call.ask(command), Acted)
        return pb.ActOnTasksResponse(
            changed=acted.changed,
            requested=acted.requested,
            refused=[
                pb.RefusedTask(id=id_text(task), refusal=refusal_shown(why))
                for task, why in acted.refused
            ],
            more=acted.more,
        )

    async def send_event(self, call: Call, request: pb.SendEventRequest) -> pb.SendEventResponse:
        data = request.data
        if request.HasField("value"):
            data = msgspec.msgpack.encode(from_value(request.value, "value"))
        command = SendEvent(task=id_of(request.id, "id"), event=request.event, data=data)
        await call.ask(command)
        return pb.SendEventResponse()


async def _after_waiting(
    call: Call, about: About, wait_s: float | None
) -> tuple[TaskView, tuple[Body, Body]]:
    found = await task_and_bodies(call.broker, call.namespace, about)
    if found[0].state in ENDED or wait_s == 0:
        return found
    session = call.door.client_session
    ended = await session.ended(call.namespace, about.id, wait_s, call.principal)
    try:
        return await task_and_bodies(call.broker, call.namespace, about)
    except Refused:
        if ended is None:
            raise
        # Its policy keeps nothing: what the end reported is all there is.
        view = msgspec.structs.replace(found[0], state=ended.state, reason=ended.reason)
        return view, (b"", ended.result)


class Watch(Streamed):
    """The session of one call that watches tasks."""

    def __init__(self, call: Call, outbox: Outbox, ids: tuple[TaskId, ...]) -> None:
        super().__init__(call.broker, call.principal)
        self._call = call
        self._outbox = outbox
        self._ids = ids
        self._left = set(ids)
        self._is_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, *, progress: bool) -> None:
        self.open()
        command = WatchTasks(
            ref=0, tasks=self._ids, progress=progress, namespace=self._call.namespace
        )
        accepted = of_kind(await self.ask(command), Accepted)
        for item in refused_shown(accepted.refused):
            self._put(pb.WatchTasksResponse(refused=item))
            self._left.discard(self._ids[item.index])
        if self._left:
            await self._is_over

    def on_message(self, message: Message) -> None:
        if isinstance(message, TaskEnded):
            self._put(pb.WatchTasksResponse(ended=ended_shown(message)))
            self._left.discard(message.task)
            if not self._left and not self._is_over.done():
                self._is_over.set_result(None)
        elif isinstance(message, TaskProgressed):
            shown = pb.TaskProgress(id=id_text(message.task), progress=progress_shown(message))
            self._put(pb.WatchTasksResponse(progress=shown))

    def _put(self, response: pb.WatchTasksResponse) -> None:
        self._outbox.put(response.SerializeToString(), joins=False)
