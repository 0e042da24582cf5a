"""Task lives, driven through the core or the engine as doors would drive them.

Tasks arrive as a door makes them: decoded from bytes, so that nothing is shared by accident.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import msgspec

from jackalope.core import Core
from jackalope.core.commands import (
    AnyCommand,
    DeclareQueue,
    Finish,
    FinishAttempts,
    Held,
    JoinWorker,
    StartAttempts,
    SubmitTasks,
)
from jackalope.core.durations import SECOND
from jackalope.core.effects import Assignment, Effect, SendToSession
from jackalope.core.ids import TaskId
from jackalope.core.task import TaskSpec

BATCH = 100
BEGIN_US = 1_800_000_000 * SECOND

_PAYLOAD = b"p" * 100
_WORKER = 1
_CLIENT = 2

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[TaskSpec]).decode


class Source:
    """Makes tasks with fresh time-ordered ids, encoded beforehand: making them is not measured."""

    def __init__(self) -> None:
        self._numbers = count()

    def frames(self, tasks: int) -> list[bytes]:
        """Return encoded batches with this many tasks in all."""
        return [
            _encode([self._spec() for _ in range(min(BATCH, tasks - begin))])
            for begin in range(0, tasks, BATCH)
        ]

    def _spec(self) -> TaskSpec:
        number = next(self._numbers)
        millis = BEGIN_US // 1000 + number // 50
        task_id = (millis << 80 | 0x7 << 76 | 0b10 << 62 | number).to_bytes(16, "big")
        return TaskSpec(TaskId(task_id), "queue", "bench.noop", payload=_PAYLOAD)


def open_queue() -> AnyCommand:
    """Declare a queue that takes any number of tasks."""
    return DeclareQueue(queue="queue", changes={"depth_limit": 0})


def join(slots: int = BATCH) -> AnyCommand:
    """Let one worker join."""
    return JoinWorker(session=_WORKER, ref=1, worker="worker", queues=("queue",), slots=slots)


def submit(frame: bytes) -> AnyCommand:
    """Decode and submit a batch."""
    return SubmitTasks(session=_CLIENT, ref=1, tasks=_decode(frame), by="bench")


def reports(effects: list[Effect]) -> Iterator[tuple[AnyCommand, AnyCommand]]:
    """Return what the worker says about what it was given: that it began, and that it finished."""
    given = [
        effect.message
        for effect in effects
        if type(effect) is SendToSession and type(effect.message) is Assignment
    ]
    if given:
        yield (
            StartAttempts(session=_WORKER, ref=1, attempts=[Held(a.task, a.fence) for a in given]),
            FinishAttempts(
                session=_WORKER, ref=1, attempts=[Finish(a.task, a.fence, b"ok") for a in given]
            ),
        )


def fill(core: Core, frames: list[bytes]) -> None:
    """Put tasks into a core, where they stay ready."""
    for frame in frames:
        core.handle(BEGIN_US, submit(frame))
        core.book.stored(core.book.take_changes())
