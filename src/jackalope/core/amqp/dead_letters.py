"""Dead letters: publish tasks that a queue could not complete to another exchange.

A queue may name an exchange for them. The task is published there, in the same batch, with the
headers `x-death`, which counts its deaths by queue and reason with the latest first, and
`x-first-death-reason`, `-queue` and `-exchange`: as RabbitMQ writes them since 3.10. A task that
would go round in a circle without anybody having rejected it is dropped, as there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jackalope.core.amqp import properties
from jackalope.core.amqp.envelope import letter_of
from jackalope.core.amqp.properties import BadProperties, Raw, long_number, long_string
from jackalope.core.amqp.publish import copies, enter, priority_in, routes, successor_in
from jackalope.core.durations import SECOND
from jackalope.core.lifecycle import Reason
from jackalope.core.limits import COUNT_MAX
from jackalope.core.shapes.exchange import dead_letter_exchange, is_request, requests_queue
from jackalope.core.task import Envelope, TaskSpec

if TYPE_CHECKING:
    from jackalope.core.core import Core
    from jackalope.core.state.queue import Queue
    from jackalope.core.task import Task

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
    """Return whether a task that dies goes anywhere."""
    traits = task.queue.traits
    if traits is not None and traits.dead_letter_exchange is not None:
        return True
    return task.letter is not None and is_request(task.queue.name, task.letter)


def dead_letter(core: Core, task: Task, reason: Reason) -> None:
    """Publish a dead task to the dead-letter exchange of its queue."""
    if reason in REASONS:
        letter = task.letter or letter_of(task)
        spec = TaskSpec(task.id, task.queue.name, task.name, "", task.priority, task.payload)
        _send(core, task.queue, spec, letter, REASONS[reason])


def dead_letter_refused(core: Core, queue: Queue, spec: TaskSpec, letter: Envelope) -> None:
    """Publish a task that a full queue did not take to the queue's dead-letter exchange."""
    _send(core, queue, spec, letter, REASONS[Reason.DISPLACED])


def _send(core: Core, queue: Queue, spec: TaskSpec, letter: Envelope, reason: str) -> None:
    traits = queue.traits
    if traits is not None and traits.dead_letter_exchange is not None:
        _publish(core, queue, spec, letter, reason=reason, exchange=traits.dead_letter_exchange)
    if is_request(queue.name, letter) and isinstance(spec.payload, bytes):
        # For those who watch a pool: the caller has an answer of its own.
        _publish(
            core, queue, spec, letter, reason=reason, exchange=dead_letter_exchange(queue.name)
        )


def _publish(
    core: Core, queue: Queue, spec: TaskSpec, letter: Envelope, *, reason: str, exchange: str
) -> None:
    namespace, traits = queue.namespace, queue.traits
    if exchange not in namespace.topology.exchanges:
        return
    try:
        raw = properties.split(letter.properties)
        headers = properties.headers_of(raw)
        # To those who know a pool as osrdyne's, a request was in the queue of its key.
        is_asked = is_request(queue.name, letter)
        place = requests_queue(queue.name, letter.key) if is_asked else queue.name
        deaths = _with_death(headers, _new_death(core.now_us, raw, letter, place, reason))
    except BadProperties:
        return
    key = letter.key
    if traits is not None and traits.dead_letter_key is not None:
        key = traits.dead_letter_key
        headers.pop("CC", None)
    raw.pop(properties.EXPIRATION, None)
    properties.put_headers(raw, dict(sorted(headers.items())))
    moved = Envelope(core.book.share(exchange), core.book.share(key), properties.join(raw))
    known = properties.headline(moved.properties, is_checked=True)
    for name, place_key in routes(namespace, exchange, key, moved.properties):
        target = namespace.queues[name]
        places = {name} if target.pool is None else {name, requests_queue(name, place_key)}
        if reason != "rejected" and any(_is_cycle(each, deaths) for each in places):
            continue
        is_volatile = not known.is_persistent or target.is_volatile()
        following = TaskSpec(
            successor_in(spec.id, target, is_volatile=is_volatile),
            name,
            spec.name,
            place_key,
            priority_in(target, known.priority),
            spec.payload,
        )
        enter(core, target, following, moved, by="dead letter")


Death = dict[str, bytes]


def _with_death(headers: dict[str, bytes], new: Death) -> list[Death]:
    """Write a death into headers, and return all deaths, the latest first."""
    array = headers.get("x-death", b"")
    tables = properties.items(array[5:]) if array[:1] == b"A" else []
    deaths = [properties.entries(table[5:]) for table in tables if table[:1] == b"F"]
    if not deaths:
        for what in ("reason", "queue", "exchange"):
            headers[f"x-first-death-{what}"] = new[what]
    same = [each for each in deaths if all(each.get(k) == new[k] for k in ("queue", "reason"))]
    others = [each for each in deaths if each not in same]
    death = {**same[0], "count": long_number(_count(same[0]) + 1)} if same else new
    deaths = [death, *others]
    headers["x-death"] = properties.array_of([properties.table_of(each) for each in deaths])
    return deaths


def _new_death(at_us: int, raw: Raw, letter: Envelope, queue: str, reason: str) -> Death:
    headers = properties.headers_of(raw)
    also = copies(properties.value(headers["CC"])) if "CC" in headers else []
    death = {
        "count": long_number(1),
        "reason": long_string(reason),
        "queue": long_string(queue),
        "time": properties.timestamp(at_us // SECOND),
        "exchange": long_string(letter.exchange),
        "routing-keys": properties.array_of([long_string(key) for key in (letter.key, *also)]),
    }
    if properties.EXPIRATION in raw:
        death["original-expiration"] = long_string(properties.text(raw, properties.EXPIRATION))
    return death


def _count(death: Death) -> int:
    count = properties.value(death.get("count", long_number(0)))
    return min(count, COUNT_MAX) if isinstance(count, int) else 0


def _is_cycle(queue: str, deaths: list[Death]) -> bool:
    """Return whether a task was in a queue before, and was not rejected since."""
    name, rejected = long_string(queue), long_string("rejected")
    for place, death in enumerate(deaths):
        if death.get("queue") == name:
            return all(each.get("reason") != rejected for each in deaths[: place + 1])
    return False
