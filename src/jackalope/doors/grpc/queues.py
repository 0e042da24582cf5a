"""Queues over gRPC: their policies, pauses and batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.struct_pb2 import Struct

from jackalope.broker import queries
from jackalope.broker.client_session import of_kind
from jackalope.broker.queries import About, Refused
from jackalope.core.commands import DeclareQueue, DeleteQueue, PauseQueue, ResumeQueue
from jackalope.core.effects import Declared
from jackalope.core.limits import TIME_US_MAX
from jackalope.core.policy import Done, OnLost, OnRestart, Policy
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.callback import End, Trigger, TriggerPayload
from jackalope.core.shapes.contract import OnMisfit
from jackalope.doors.grpc.calls import Call
from jackalope.doors.grpc.errors import BadField
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from jackalope.doors.grpc.task_messages import SAME, callbacks_of, callbacks_shown, counts_shown
from jackalope.doors.grpc.values import Words, changes_in, from_struct, shown_as, to_struct, to_time
from jackalope.wire.views import BatchView, QueueView

_PAGE_DEFAULT = 100

#: The fields of a policy that are words.
_WORDS: dict[str, Words[Any]] = {
    "on_lost": Words(pb.OnLost, OnLost),
    "on_restart": Words(pb.OnRestart, OnRestart),
    "done": Words(pb.Done, Done),
    "on_misfit": Words(pb.OnMisfit, OnMisfit),
    "same": SAME,
}


_END = Words(pb.End, End)
_TRIGGER_PAYLOAD = Words(pb.TriggerPayload, TriggerPayload)

#: The fields that are words or lists: how they come in. Each list has a message of its own, so that
#: one can be set to nothing.
_IN: dict[str, Callable[[pb.QueuePolicy], object]] = {
    **{key: words.reader(key) for key, words in _WORDS.items()},
    "callbacks": lambda policy: callbacks_of(policy.callbacks.callbacks),
    "triggers": lambda policy: tuple(map(_trigger_of, enumerate(policy.triggers.triggers))),
    "fair_weights": lambda policy: dict(policy.fair_weights.weights),
    "needs": lambda policy: from_struct(policy.needs, "needs"),
}

#: And how they go out.
_OUT: dict[str, Callable[[Any], Any]] = {
    **{key: words.number for key, words in _WORDS.items()},
    "callbacks": lambda callbacks: pb.Callbacks(callbacks=callbacks_shown(callbacks)),
    "triggers": lambda triggers: pb.Triggers(triggers=map(_trigger_shown, triggers)),
    "fair_weights": lambda weights: pb.FairWeights(weights=weights),
    "needs": lambda needs: to_struct(needs) or Struct(),
}


def changes_of(policy: pb.QueuePolicy) -> dict[str, object]:
    """Return the fields that are set, as the core takes them."""
    try:
        return changes_in(policy, Policy, _IN)
    except BadField as bad:
        raise bad.below("policy") from None


def _trigger_of(numbered: tuple[int, pb.Trigger]) -> Trigger:
    number, given = numbered
    where = f"triggers[{number}]"
    payload = _TRIGGER_PAYLOAD.word(given.payload, f"{where}.payload")
    return Trigger(
        given.queue,
        _END.each(given.on, f"{where}.on") or (End.SUCCEEDED,),
        given.name,
        given.key,
        given.priority if given.HasField("priority") else None,
        payload or TriggerPayload.RESULT,
    )


def _trigger_shown(trigger: Trigger) -> pb.Trigger:
    return pb.Trigger(
        queue=trigger.queue,
        on=map(_END.number, trigger.on),
        name=trigger.name,
        key=trigger.key,
        priority=trigger.priority,
        payload=_TRIGGER_PAYLOAD.number(trigger.payload),
    )


def policy_shown(policy: Policy) -> pb.QueuePolicy:
    return shown_as(pb.QueuePolicy, policy, _OUT)


def _queue_shown(view: QueueView) -> pb.Queue:
    return pb.Queue(
        queue=view.queue,
        counts=counts_shown(view.counts),
        depth=view.depth,
        workers=view.workers,
        policy=policy_shown(view.policy),
        paused_by=view.paused_by,
        oldest_ready_at=to_time(view.oldest_ready_us),
        share_count=view.share_count,
        shares=[
            pb.Share(share=each.share, ready=each.ready, weight=each.weight) for each in view.shares
        ],
    )


class QueueService:
    """Queues."""

    async def list_queues(self, call: Call, _: pb.ListQueuesRequest) -> pb.ListQueuesResponse:
        views = await call.view(queries.queues)
        return pb.ListQueuesResponse(queues=map(_queue_shown, views))

    async def get_queue(self, call: Call, request: pb.GetQueueRequest) -> pb.GetQueueResponse:
        views = await call.view(queries.queues, About(queue=request.queue))
        if not request.queue or not views:
            message = f"no queue {request.queue!r}; list the queues"
            raise Refused(Refusal(Code.UNKNOWN_QUEUE, message))
        return pb.GetQueueResponse(queue=_queue_shown(views[0]))

    async def declare_queue(
        self, call: Call, request: pb.DeclareQueueRequest
    ) -> pb.DeclareQueueResponse:
        command = DeclareQueue(
            queue=request.queue, changes=changes_of(request.policy), preset=request.preset
        )
        declared = of_kind(await call.ask(command), Declared)
        return pb.DeclareQueueResponse(policy=policy_shown(declared.policy))

    async def delete_queue(
        self, call: Call, request: pb.DeleteQueueRequest
    ) -> pb.DeleteQueueResponse:
        await call.ask(DeleteQueue(queue=request.queue))
        return pb.DeleteQueueResponse()

    async def pause_queue(self, call: Call, request: pb.PauseQueueRequest) -> pb.PauseQueueResponse:
        await call.ask(PauseQueue(queue=request.queue))
        return pb.PauseQueueResponse()

    async def resume_queue(
        self, call: Call, request: pb.ResumeQueueRequest
    ) -> pb.ResumeQueueResponse:
        await call.ask(ResumeQueue(queue=request.queue))
        return pb.ResumeQueueResponse()


class BatchService:
    """Batches of queues."""

    async def list_batches(
        self, call: Call, request: pb.ListBatchesRequest
    ) -> pb.ListBatchesResponse:
        token = request.page_token
        if token and not (token.isascii() and token.isdecimal() and int(token) <= TIME_US_MAX):
            raise BadField("page_token", "must be that of the page before")
        about = About(
            queue=request.queue, limit=request.page_size or _PAGE_DEFAULT, before=int(token or 0)
        )
        views = await call.view(queries.batches, about)
        is_last = len(views) < min(about.limit, queries.PAGE_ROWS_MAX) or views[-1].number <= 1
        return pb.ListBatchesResponse(
            batches=map(_batch_shown, views),
            next_page_token="" if is_last else str(views[-1].number),
        )

    async def get_batch(self, call: Call, request: pb.GetBatchRequest) -> pb.GetBatchResponse:
        views = []
        if 0 < request.number < TIME_US_MAX:
            about = About(queue=request.queue, limit=1, before=request.number + 1)
            views = await call.view(queries.batches, about)
        if not views or views[0].number != request.number:
            message = f"queue {request.queue!r} has no batch {request.number}"
            raise Refused(Refusal(Code.UNKNOWN_QUEUE, message))
        return pb.GetBatchResponse(batch=_batch_shown(views[0]))


def _batch_shown(view: BatchView) -> pb.Batch:
    return pb.Batch(
        queue=view.queue, number=view.number, counts=counts_shown(view.counts), is_full=view.is_full
    )
