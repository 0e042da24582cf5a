"""Messages over gRPC: calls and broadcasts between programs, apart from tasks.

Owns the translation between streams and the message hub, which has the rule of who may use it.
"""

from __future__ import annotations

import asyncio

from jackalope.broker.message_hub import TO_HEAR, TO_SEND, TO_TAKE_CALLS, Seat, refuse_messages
from jackalope.broker.queries import Refused
from jackalope.core.api_key import Permission
from jackalope.core.refusals import Code, Refusal
from jackalope.doors.grpc.calls import Call
from jackalope.doors.grpc.errors import BadField, refusal_of
from jackalope.doors.grpc.outbox import Outbox, sending
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from jackalope.doors.grpc.values import Words, refusal_shown
from jackalope.wire.messages import CallStage, Interest

_STAGES = Words(pb.CallStage, CallStage)


class MessageService:
    """Messages."""

    async def call(self, call: Call, request: pb.CallRequest) -> None:
        _admit(call, TO_SEND)
        async with sending(call) as outbox:
            line = Line(outbox)
            hub = call.broker.message_hub
            seat = hub.sit(call.namespace, line)
            try:
                ref = 0 if request.no_reply else 1
                refusal = hub.call(seat, ref, request.recipient, request.body)
                if refusal is not None:
                    raise Refused(refusal)
                if ref:
                    await line.is_answered
            finally:
                hub.leave(seat)

    async def broadcast(self, call: Call, request: pb.BroadcastRequest) -> pb.BroadcastResponse:
        _admit(call, TO_SEND)
        hub = call.broker.message_hub
        sent = hub.broadcast(call.namespace, request.subject, request.sender, request.body)
        if isinstance(sent, Refusal):
            raise Refused(sent)
        return pb.BroadcastResponse(subscribers=sent)

    async def listen(self, call: Call) -> None:
        async with sending(call) as outbox:
            line = Line(outbox)
            hub = call.broker.message_hub
            seat = hub.sit(call.namespace, line)
            try:
                while (request := await call.read()) is not None:
                    try:
                        refusal = _take(call, seat, request)
                    except BadField as bad:
                        refusal = refusal_of(bad)
                    if request.ref:
                        line.answer(request.ref, refusal)
                    if outbox.is_slow():
                        await outbox.room()
            finally:
                hub.leave(seat)


def _admit(call: Call, *needs: Permission) -> None:
    refusal = refuse_messages(call.principal, needs, call.namespace)
    if refusal is not None:
        raise Refused(refusal)


def _take(call: Call, seat: Seat, request: pb.ListenRequest) -> Refusal | None:
    """Take a message of a listener; return why not, if not."""
    hub, what = call.broker.message_hub, request.WhichOneof("what")
    if what == "reply":
        stage = _STAGES.word(request.reply.stage, "reply.stage") or CallStage.RESULT
        if stage is CallStage.LOST:
            return Refusal(Code.INVALID, "only the broker reports a call as lost")
        refusal = refuse_messages(call.principal, (TO_TAKE_CALLS,), call.namespace)
        return refusal or hub.reply(seat, request.reply.call, stage, request.reply.body)
    if what is None:
        raise BadField("what", "the message says nothing")
    given = request.subscribe if what == "subscribe" else request.unsubscribe
    recipients = tuple(given.recipients)
    interests = tuple(
        Interest(each.sender or "*", each.subject or "*") for each in given.broadcasts
    )
    needs = (TO_TAKE_CALLS,) * bool(recipients) + (TO_HEAR,) * bool(interests)
    refusal = refuse_messages(call.principal, needs, call.namespace)
    if refusal is not None:
        return refusal
    if what == "subscribe":
        return hub.listen(seat, recipients, interests)
    hub.unlisten(seat, recipients, interests)
    return None


class Line:
    """One call's end of the message hub."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.is_answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def is_slow(self) -> bool:
        return self._outbox.is_slow()

    def called(self, call: int, recipient: str, body: bytes) -> None:
        called = pb.Called(call=call, recipient=recipient, body=body)
        self._put(pb.ListenResponse(called=called))

    def replied(self, _: int, stage: CallStage, body: bytes) -> None:
        self._put(pb.CallResponse(stage=_STAGES.number(stage), body=body))
        if stage is not CallStage.PENDING and not self.is_answered.done():
            self.is_answered.set_result(None)

    def heard(self, subject: str, sender: str, body: bytes, missed: int) -> None:
        heard = pb.Heard(subject=subject, sender=sender, body=body, missed=missed)
        self._put(pb.ListenResponse(heard=heard))

    def answer(self, ref: int, refusal: Refusal | None) -> None:
        shown = None if refusal is None else refusal_shown(refusal)
        self._put(pb.ListenResponse(answer=pb.ListenAnswer(ref=ref, refusal=shown)))

    def _put(self, message: pb.ListenResponse | pb.CallResponse) -> None:
        self._outbox.put(message.SerializeToString(), joins=False)
