"""Dead letters: publish tasks that a queue could not complete to another exchange.

A queue may name an exchange for them. The task is published there, in the same batch, with the
headers `x-death`, which counts its deaths by queue and reason with the latest first, and
`x-first-death-reason`, `-queue` and `-exchange`: as RabbitMQ writes them since 3.10. A task that
would go round in a circle without anybody having rejected it is dropped, as there.
"""

from __future__ import annotations

from jackalope.core.amqp.publish import enter, priority_in, routes, successor_in
from jackalope.core.context import Context
from jackalope.core.lifecycle import Reason
from jackalope.core.shapes.envelope import Death, dead_letter_of, envelope_of
from jackalope.core.shapes.exchange import dead_letter_exchange, is_request, requests_queue
from jackalope.core.state.queue import Queue
from jackalope.core.task import Envelope, Task, TaskSpec

#: RabbitMQ's word for each reason. A worker of another door that fails has rejected the task.
REASONS = {
    Reason.REJECTED: "rejected",
    Reason.FAILED: "rejected",
    Reason.EXPIRED: "expired",
    Reason.DISPLACED: "maxlen",
    Reason.INTERRUPTED: "delivery_limit",
    Reason.CRASHED: "delivery_limit",
}


def has_dead_letters(task: Task) -> bool:
    traits = task.queue.traits
    if traits is not None and traits.dead_letter_exchange is not None:
        return True
    return task.envelope is not None and is_request(task.queue.name, task.envelope)


def dead_letter(ctx: Context, task: Task, reason: Reason) -> None:
    if reason in REASONS:
        envelope = task.envelope or envelope_of(task)
        spec = TaskSpec(task.id, task.queue.name, task.name, "", task.priority, task.payload)
        _send(ctx, task.queue, spec, envelope, REASONS[reason])


def dead_letter_refused(ctx: Context, queue: Queue, spec: TaskSpec, envelope: Envelope) -> None:
    """Dead-letter a task that a full queue refused."""
    _send(ctx, queue, spec, envelope, REASONS[Reason.DISPLACED])


def _send(ctx: Context, queue: Queue, spec: TaskSpec, envelope: Envelope, reason: str) -> None:
    traits = queue.traits
    if traits is not None and traits.dead_letter_exchange is not None:
        _publish(ctx, queue, spec, envelope, reason=reason, exchange=traits.dead_letter_exchange)
    if is_request(queue.name, envelope) and isinstance(spec.payload, bytes):
        # For those who watch a pool: the caller has an answer of its own.
        _publish(
            ctx, queue, spec, envelope, reason=reason, exchange=dead_letter_exchange(queue.name)
        )


def _publish(
    ctx: Context, queue: Queue, spec: TaskSpec, envelope: Envelope, *, reason: str, exchange: str
) -> None:
    namespace, traits = queue.namespace, queue.traits
    if exchange not in namespace.topology.exchanges:
        return
    # To those who know a pool as osrdyne's, a request was in the queue of its key.
    is_asked = is_request(queue.name, envelope)
    place = requests_queue(queue.name, envelope.key) if is_asked else queue.name
    key = None if traits is None else traits.dead_letter_key
    dead = dead_letter_of(envelope, Death(place, reason), ctx.now_us, exchange, key)
    if dead is None:
        return
    moved, known = dead.envelope, dead.headline
    moved = Envelope(ctx.book.share(moved.exchange), ctx.book.share(moved.key), moved.properties)
    for name, place_key in routes(namespace, exchange, moved.key, moved.properties):
        target = namespace.queues[name]
        places = {name} if target.pool is None else {name, requests_queue(name, place_key)}
        if reason != "rejected" and any(_is_cycle(each, dead.deaths) for each in places):
            continue
        is_volatile = not known.is_persistent or target.is_volatile()
        following = TaskSpec(
            successor_in(ctx, spec.id, target, is_volatile=is_volatile),
            name,
            spec.name,
            place_key,
            priority_in(target, known.priority),
            spec.payload,
        )
        enter(ctx, target, following, moved, by="dead letter")


def _is_cycle(queue: str, deaths: list[Death]) -> bool:
    """Return whether a task was in this queue before and was not rejected since."""
    for place, death in enumerate(deaths):
        if death.queue == queue:
            return all(each.reason != "rejected" for each in deaths[: place + 1])
    return False
