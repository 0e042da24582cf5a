"""Lifetimes: queues that are deleted with their owner, or after a time without use.

Owns who takes tasks of a queue, and until when an unused one stays.
"""

from __future__ import annotations

from jackalope.core.context import Context
from jackalope.core.state.queue import Queue
from jackalope.core.state.roster import Worker
from jackalope.core.state.timers import Timers


class Lifetimes:
    """Deadlines of unused queues, by namespace and name."""

    def __init__(self) -> None:
        # the queues that are one session's alone, by session
        self.owned: dict[int, dict[tuple[str, str], None]] = {}
        self.idle: Timers[tuple[str, str]] = Timers()  # when unused queues are deleted


def consumers_of(ctx: Context, queue: Queue, key: str | None = None) -> list[Worker]:
    """Return the workers that take tasks of a queue or of a key of it, from any door."""
    return [
        worker
        for crew in ctx.roster.crews(queue.namespace.name, queue.name)
        if key is None or crew.serves(key)
        for worker in crew.members.values()
        if worker.slots
    ]


def watch_idle(ctx: Context, queue: Queue) -> None:
    """Set the deadline at which an unused queue is deleted."""
    if queue.traits is None or not queue.traits.expires_us:
        return
    name, idle = (queue.namespace.name, queue.name), ctx.own(Lifetimes).idle
    if consumers_of(ctx, queue):
        idle.cancel(name)
    else:
        idle.set(name, ctx.now_us + queue.traits.expires_us)


def watch_all(ctx: Context) -> None:
    """Set the deadlines of all queues after recovery."""
    for namespace in ctx.book.namespaces.values():
        for queue in namespace.queues.values():
            watch_idle(ctx, queue)
