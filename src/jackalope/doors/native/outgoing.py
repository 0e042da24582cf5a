"""Outgoing frames of one peer: effects in their order, no frame larger than agreed.

Owns the way from effects to frames. A body that is a blob must be loaded first; later effects wait
for it, so that a signal never overtakes the assignment it is about.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from jackalope.core.effects import (
    Accepted,
    Answered,
    Assignment,
    DrainAsked,
    Effect,
    HelpAsked,
    HelpRecalled,
    LeaseLost,
    NothingToClaim,
    Reply,
    SessionReplaced,
    TaskEnded,
)
from jackalope.core.refusals import QuotaRefusal, Refusal
from jackalope.core.task import BlobRef
from jackalope.wire.messages import (
    Ack,
    AnyMessage,
    Assign,
    Ended,
    Message,
    Nack,
    Notice,
    broker_codec,
)

codec = broker_codec()

#: What a task takes in a frame beside its bodies, generously: headers are the largest part.
_OVERHEAD_BYTES = 20 * 1024
_PLAIN_OVERHEAD_BYTES = 512

_NOTICES: dict[type, Notice] = {
    DrainAsked: Notice("drain"),
    SessionReplaced: Notice("replaced"),
    LeaseLost: Notice("lease_lost"),
}


class Outgoing:
    """Turns effects into frames."""

    def __init__(self, frame_bytes_max: int) -> None:
        # the largest body that fits into a frame of its own
        self.body_bytes_max = frame_bytes_max - _OVERHEAD_BYTES
        self.is_fetching = False  # the peer fetches payloads that do not
        self._waiting: list[Effect] = []
        self.is_loading = False  # an effect waits for its body, and others behind it
        self._frames: list[bytes] = []
        # The list of tasks that is being made: of one kind, and no longer than half a frame.
        self._tasks: list[Any] = []
        self._kind: type | None = None
        self._bytes = 0
        self._list_bytes_max = self.body_bytes_max // 2

    def add(self, effects: list[Effect], gather: Callable[[Reply], Reply | None]) -> BlobRef | None:
        """Take effects up to the first whose body is a blob, and return that blob."""
        self._waiting += effects
        if self.is_loading:
            return None
        for number, effect in enumerate(self._waiting):
            if isinstance(effect, Reply):
                self._add_reply(gather(effect))
                continue
            message = effect.message
            if type(message) is Assignment:
                body = message.payload
                size = _OVERHEAD_BYTES if message.options.headers else _PLAIN_OVERHEAD_BYTES
            elif type(message) is TaskEnded:
                body, size = message.result, _PLAIN_OVERHEAD_BYTES
            else:
                self._add_other(message)
                continue
            if isinstance(body, bytes):
                size += len(body)
            elif body.size <= self.body_bytes_max or not (
                self.is_fetching or type(message) is TaskEnded
            ):
                self._waiting = self._waiting[number:]
                self.is_loading = True
                return body
            if self._bytes + size > self._list_bytes_max or type(message) is not self._kind:
                self._end_list()
                self._kind = type(message)
            self._tasks.append(message)
            self._bytes += size
        self._waiting = []
        return None

    def loaded(self, body: bytes) -> Effect:
        """Put the bytes of the blob that was asked for into the effect that waits for them."""
        self.is_loading = False
        effect = self._waiting[0]
        if isinstance(effect, Reply):
            return effect
        message = effect.message
        if isinstance(message, Assignment):
            whole: Any = msgspec.structs.replace(message, payload=body)
        else:
            whole = msgspec.structs.replace(message, result=body)
        self._waiting[0] = msgspec.structs.replace(effect, message=whole)
        return self._waiting[0]

    def drop(self) -> Effect:
        """Give up the effect that waits for its blob, and return it."""
        self.is_loading = False
        return self._waiting.pop(0)

    def take(self) -> bytes:
        """Return the frames that are ready."""
        self._end_list()
        frames, self._frames = self._frames, []
        return b"".join(frames)

    def _add_reply(self, reply: Reply | None) -> None:
        if reply is not None:
            self._add_frame(answer(reply.ref, reply.body))

    def _add_other(self, message: Any) -> None:
        """Add what is no task, and therefore rare."""
        if isinstance(message, HelpRecalled):
            message = HelpAsked(message.fence)
        self._add_frame(_NOTICES.get(type(message), message))

    def _add_frame(self, message: AnyMessage) -> None:
        self._end_list()
        self._frames.append(codec.encode(message))

    def _end_list(self) -> None:
        if self._tasks:
            is_work = self._kind is Assignment
            self._frames.append(
                codec.encode(Assign(self._tasks) if is_work else Ended(self._tasks))
            )
            self._tasks, self._bytes = [], 0


def answer(ref: int, body: Answered) -> Message:
    """Put the answer to a request into a message."""
    if type(body) is Accepted:
        return Ack(ref, body)
    if isinstance(body, QuotaRefusal):
        told = (body.retry_after_us, body.quota, body.limit, body.used)
        return Nack(ref, body.code, body.message, *told)
    if isinstance(body, Refusal):
        return Nack(ref, body.code, body.message, body.retry_after_us)
    if isinstance(body, NothingToClaim):
        return Nack(ref, "nothing_to_claim", "no task within the time limit")
    return Ack(ref, body)
