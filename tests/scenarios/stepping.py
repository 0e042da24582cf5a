"""Verbs of steps: recorded, waited at, and ended by events."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from jackalope.core.commands import RecordStep, SendEvent, Suspend
from tests.scenarios.language import Order

if TYPE_CHECKING:
    from tests.scenarios.stage import Stage


def step(stage: Stage, order: Order) -> list[str]:
    [held], session = stage.attempts(order)
    index, name = int(order.word("which step")), order.word("its name")
    result = order.text("result").encode()
    return stage.send(RecordStep(0, held.task, held.fence, index, name, result, session=session))


def suspend(stage: Stage, order: Order) -> list[str]:
    [held], session = stage.attempts(order)
    index, name = int(order.word("which step")), order.word("its name")
    after_us, event = order.duration_us("after"), order.text("event")
    return stage.send(
        Suspend(0, held.task, held.fence, index, name, after_us, event, session=session)
    )


def signal(stage: Stage, order: Order) -> list[str]:
    task, event = stage.task(order.word("a task")), order.word("an event")
    data, only = order.text("data").encode(), order.list("only")
    return stage.send(SendEvent(task=task, event=event, data=data, only=only, **stage.actor(order)))


STEPPING: dict[str, Callable[[Stage, Order], list[str]]] = {
    "step": step,
    "suspend": suspend,
    "signal": signal,
}
