"""What follows from the ends of tasks, in scripts: callbacks and triggers as they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from jackalope.core.commands import DEFAULT_NAMESPACE
from jackalope.core.commands.callbacks import ServeCallbacks
from jackalope.core.shapes.callback import (
    CALLBACKS_WORKER,
    Callback,
    CallbackOn,
    End,
    Trigger,
    TriggerPayload,
)

if TYPE_CHECKING:
    from tests.scenarios.language import Order
    from tests.scenarios.stage import Stage


def read_callbacks(texts: tuple[str, ...]) -> tuple[Callback, ...]:
    """Read callbacks: `url`, or `dead+killed@url` for some ends."""
    found = []
    for text in texts:
        ends, _, url = text.partition("@")
        is_whole = "://" in ends
        on = () if is_whole else tuple(map(CallbackOn, _words(ends)))
        found.append(Callback(text if is_whole else url, on))
    return tuple(found)


def read_triggers(texts: tuple[str, ...]) -> tuple[Trigger, ...]:
    """Read triggers: `queue`, `queue:dead+killed`, `queue:dead:event`, `queue:dead:event:name`."""
    found = []
    for text in texts:
        queue, ends, payload, name = (*text.split(":"), "", "", "")[:4]
        on = tuple(map(End, _words(ends))) or (End.SUCCEEDED,)
        found.append(Trigger(queue, on, name, payload=TriggerPayload(payload or "result")))
    return tuple(found)


def tell_following(value: object) -> str:
    """Write a callback or a trigger as it is read."""
    if isinstance(value, Callback):
        ends = "+".join(value.on)
        return f"{ends}@{value.url}" if ends else value.url
    if isinstance(value, Trigger):
        told = [value.queue, "+".join(value.on), str(value.payload), value.name]
        return ":".join(told).rstrip(":")
    return str(value)


def _words(text: str) -> list[str]:
    return text.split("+") if text else []


def read_following(order: Order) -> dict[str, object]:
    """Read the callbacks, triggers and weights of a policy, as a command has them."""
    given: dict[str, tuple[object, ...]] = {
        "callbacks": read_callbacks(order.list("callbacks")),
        "triggers": read_triggers(order.list("triggers")),
    }
    lists = {name: msgspec.to_builtins(value) for name, value in given.items() if value}
    weights = order.text("fair_weights", "unset")
    if weights == "unset":
        return lists
    pairs = (each.split(":") for each in weights.split(",") if each)
    return {**lists, "fair_weights": {value: int(weight) for value, weight in pairs}}


def serve_callbacks(stage: Stage, order: Order) -> list[str]:
    session, slots = stage.session(CALLBACKS_WORKER), order.number("slots", 1)
    namespace = order.text("namespace", DEFAULT_NAMESPACE)
    return stage.send(ServeCallbacks(session=session, namespace=namespace, slots=slots))


FOLLOWING: dict[str, Callable[[Stage, Order], list[str]]] = {"serve-callbacks": serve_callbacks}
