"""What goes out to one peer: effects as frames, in their order, none larger than agreed.

Owns the way from effects to frames. A body that is a blob must be loaded first; what was said after
it waits for it, so that a signal never overtakes the assignment it is about.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from jackalope.core.effects import (
    Answered,
    Assignment,
    DrainAsked,
    Effect,
    LeaseLost,
    NothingToClaim,
    Reply,
    SessionReplaced,
    SignalAsked,
    TaskEnded,
)
from jackalope.core.refusals import Refusal
from jackalope.core.task import BlobRef
from jackalope.wire.messages import (
    Ack,
    Assign,
    Ended,
    Message,
    Nack,
    Notice,
    SignalAsk,
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

#: Reads the bytes of a blob; None if that cannot be done.
Load = Callable[[BlobRef], Awaitable[bytes | None]]


class Outgoing:
    """Turns effects into frames.

    Attributes:
        body_bytes_max: the largest body that fits into a frame of its own.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        self.body_bytes_max = frame_bytes_max - _OVERHEAD_BYTES
        self._waiting: list[Effect] = []
        self._is_loading = False
        self._frames: list[bytes] = []
        self._tasks: list[Any] = []
        self._bytes = 0

    def add(self, effects: list[Effect], gather: Callable[[Reply], Reply | None]) -> BlobRef | None:
        """Take effects up to the first whose body is a blob, and return that blob."""
        self._waiting += effects
        if self._is_loading:
            return None
        for number, effect in enumerate(self._waiting):
            ref = _blob_of(effect)
            if ref is not None and ref.size <= self.body_bytes_max:
                self._waiting = self._waiting[number:]
                self._is_loading = True
                return ref
            self._add(effect, gather)
        self._waiting = []
        return None

    def loaded(self, body: bytes) -> Effect:
        """Put the bytes of the blob that was asked for into the effect that waits for them."""
        self._is_loading = False
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
        self._is_loading = False
        return self._waiting.pop(0)

    def take(self) -> bytes:
        """Return the frames that are ready."""
        self._end_list()
        frames, self._frames = self._frames, []
        return b"".join(frames)

    def _add(self, effect: Effect, gather: Callable[[Reply], Reply | None]) -> None:
        if isinstance(effect, Reply):
            reply = gather(effect)
            if reply is not None:
                self._add_frame(answer(reply.ref, reply.body))
            return
        message = effect.message
        if isinstance(message, Assignment):
            self._add_task(message, message.payload)
        elif isinstance(message, TaskEnded):
            self._add_task(message, message.result)
        elif isinstance(message, SignalAsked):
            self._add_frame(SignalAsk(message.task, message.fence, message.signal))
        else:
            self._add_frame(_NOTICES[type(message)])

    def _add_task(self, task: Assignment | TaskEnded, body: bytes | BlobRef) -> None:
        """Add a task to the list that is being made, or begin another if it does not fit."""
        is_plain = isinstance(task, TaskEnded) or not task.options.headers
        size = len(body) if isinstance(body, bytes) else 0
        size += _PLAIN_OVERHEAD_BYTES if is_plain else _OVERHEAD_BYTES
        is_other = bool(self._tasks) and type(self._tasks[0]) is not type(task)
        if is_other or self._bytes + size > self.body_bytes_max // 2:
            self._end_list()
        self._tasks.append(task)
        self._bytes += size

    def _add_frame(self, message: Message) -> None:
        self._end_list()
        self._frames.append(codec.encode(message))

    def _end_list(self) -> None:
        if self._tasks:
            is_work = isinstance(self._tasks[0], Assignment)
            self._frames.append(
                codec.encode(Assign(self._tasks) if is_work else Ended(self._tasks))
            )
            self._tasks, self._bytes = [], 0


def answer(ref: int, body: Answered) -> Message:
    """Put the answer to a request into a message."""
    if isinstance(body, Refusal):
        return Nack(ref, body.code, body.message, body.retry_after_us)
    if isinstance(body, NothingToClaim):
        return Nack(ref, "nothing_to_claim", "no task came in time")
    return Ack(ref, body)


def _blob_of(effect: Effect) -> BlobRef | None:
    if isinstance(effect, Reply):
        return None
    message = effect.message
    if isinstance(message, Assignment) and isinstance(message.payload, BlobRef):
        return message.payload
    if isinstance(message, TaskEnded) and isinstance(message.result, BlobRef):
        return message.result
    return None
