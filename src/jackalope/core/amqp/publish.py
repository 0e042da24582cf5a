"""Publishing: from an exchange to the queues, one task in each.

Owns the way of a message into a queue: which ones it leads to, whether there is room, and what goes
to make room. All tasks of a message are recorded in one batch, so that a confirmation covers all
of them.
"""

from __future__ import annotations

from typing import Any

from jackalope.core.commands.amqp import Publication, PublishMessages
from jackalope.core.context import Context
from jackalope.core.effects import Published
from jackalope.core.ids import TaskId, is_volatile, successor_id, volatile_id
from jackalope.core.lifecycle import State
from jackalope.core.namespaces import open_namespace, room_for
from jackalope.core.pools.lifecycle import stir, unclaimed
from jackalope.core.records import TaskSubmitted
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.callback import CALLBACKS_QUEUE
from jackalope.core.shapes.envelope import copies, headers_of, without_blind_copies
from jackalope.core.shapes.exchange import (
    DEFAULT_EXCHANGE,
    GENERATED,
    QUEUE_NAME_BYTES_MAX,
    REPLY_TO,
    Overflow,
    can_be_queue,
    is_request,
)
from jackalope.core.shapes.problems import Problem, refuse
from jackalope.core.state.queue import Namespace, Queue
from jackalope.core.state.topology import Place
from jackalope.core.task import PRIORITY_DEFAULT, Body, Envelope, TaskSpec, size_of
from jackalope.core.tasks.assign import serve
from jackalope.core.tasks.submit import begin, trim


def publish_messages(ctx: Context, command: PublishMessages) -> Published | Refusal:
    """Route messages in order, until one fails."""
    namespace = open_namespace(ctx, command.namespace)
    if isinstance(namespace, Refusal):
        return namespace
    unrouted: list[int] = []
    refused: list[int] = []
    failed = None
    arrivals = Arrivals(ctx, command.by)
    for index, message in enumerate(command.messages):
        places = _places_of(namespace, command, message)
        if isinstance(places, Refusal):
            failed = (index, places)
            _drop_blobs(ctx, command.messages[index:])
            break
        is_heard = message.exchange in namespace.topology.activities
        if is_heard:
            arrivals.settle()
            hear(ctx, namespace, message, command.session)
        if not places:
            ctx.book.drop_blob(message.blob or b"")
            if message.mandatory and not is_heard:
                unrouted.append(index)
        elif not _publish(ctx, namespace, message, places, arrivals):
            refused.append(index)
    arrivals.settle()
    over = tuple(arrivals.refusals)
    return Published(len(command.messages), tuple(unrouted), tuple(refused), failed, over)


def _drop_blobs(ctx: Context, messages: list[Publication]) -> None:
    for message in messages:
        ctx.book.drop_blob(message.blob or b"")


def _places_of(
    namespace: Namespace, command: PublishMessages, message: Publication
) -> list[Place] | Refusal:
    if message.exchange == DEFAULT_EXCHANGE and b"CC" not in message.properties:
        places = [(message.key, "")] if message.key in namespace.queues else []
    else:
        exchange = namespace.topology.exchanges.get(message.exchange)
        if exchange is None:
            return refuse(Problem.NO_EXCHANGE, message.exchange, namespace.name)
        if exchange.internal:
            return refuse(Problem.INTERNAL_EXCHANGE, exchange.name, namespace.name)
        if b"CC" in message.properties and (refusal := _bad_copies(namespace, message)):
            return refusal
        places = list(routes(namespace, message.exchange, message.key, message.properties))
        if any(key and not can_be_queue(queue, key) for queue, key in places):
            text = "the key is too long: the queue of its requests would have a name of more than"
            return Refusal(Code.INVALID, f"{text} {QUEUE_NAME_BYTES_MAX} bytes")
    reached = {queue for queue, _ in places}
    if message.exchange in namespace.topology.activities:
        reached.add(namespace.topology.activities[message.exchange])
    if command.only and not (_is_covered(reached, command.only) or _is_reply(message, reached)):
        return Refusal(Code.FORBIDDEN, "the API key does not cover all queues of this message")
    return places


def _is_covered(reached: set[str], queues: tuple[str, ...]) -> bool:
    """Return whether a message is routed to some of these queues and to no others.

    An unroutable message is refused as well: the difference would reveal which queues exist.
    """
    return bool(reached) and reached.issubset(queues)


def _is_reply(message: Publication, reached: set[str]) -> bool:
    """Return whether a message goes to a queue with a server-generated name.

    Only a client that received the name knows it, like an address for direct replies.
    """
    if message.exchange != DEFAULT_EXCHANGE or not reached.issubset({message.key}):
        return False
    return message.key.startswith((GENERATED, REPLY_TO))


def routes(namespace: Namespace, exchange: str, key: str, raw: bytes) -> dict[Place, None]:
    """Return the destinations of a message, by its routing key and those of CC and BCC."""

    def headers() -> dict[str, Any]:
        return headers_of(raw)

    keys = [key]
    if b"CC" in raw:
        present = headers()
        keys += [*copies(present.get("CC")), *copies(present.get("BCC"))]
    places: dict[Place, None] = {}
    for each in keys:
        places |= namespace.topology.route(exchange, each, headers, namespace.queues)
    for place in [place for place in places if place[0] == CALLBACKS_QUEUE]:
        del places[place]  # It takes no messages.
    return places


def _bad_copies(namespace: Namespace, message: Publication) -> Refusal | None:
    """Refuse a message whose CC or BCC header is not a list of routing keys."""
    headers = headers_of(message.properties)
    for name in ("CC", "BCC"):
        if not isinstance(value := headers.get(name, []), list):
            return refuse(
                Problem.BAD_COPIES, message.exchange, namespace.name, argument=name, value=value
            )
    return None


def _publish(
    ctx: Context,
    namespace: Namespace,
    message: Publication,
    places: list[Place],
    arrivals: Arrivals,
) -> bool:
    """Put a message into its queues, and return whether all of them accepted it."""
    raw = message.properties
    if b"BCC" in raw:
        raw = without_blind_copies(raw)
    envelope = Envelope(ctx.book.share(message.exchange), ctx.book.share(message.key), raw)
    is_taken, is_blob_taken, task_id = True, False, message.id
    for name, key in places:
        queue = namespace.queues[name]
        is_volatile = not message.persistent or queue.is_volatile()
        body: Body = message.body if is_volatile or message.blob is None else message.blob
        spec = TaskSpec(
            volatile_id(task_id) if is_volatile else task_id,
            name,
            message.name,
            key,
            priority_in(queue, message.priority),
            body,
        )
        is_allowed = not namespace.has_quotas or arrivals.are_allowed(queue, size_of(body))
        if is_allowed and arrivals.add(queue, spec, envelope, message.expires_us):
            is_blob_taken |= not is_volatile
        else:
            is_taken = False
        task_id = successor_id(message.id, name + key)
    if message.blob is not None and not is_blob_taken:
        ctx.book.drop_blob(message.blob)
    return is_taken


def priority_in(queue: Queue, priority: int) -> int:
    """Return the effective priority of a message in a queue; 0 if the queue has no priorities."""
    most = 0 if queue.traits is None else queue.traits.priority_max
    return min(priority, most) if most else PRIORITY_DEFAULT


def enter(ctx: Context, queue: Queue, spec: TaskSpec, envelope: Envelope, by: str) -> None:
    """Put a task into a queue, if it is accepted."""
    arrivals = Arrivals(ctx, by)
    arrivals.add(queue, spec, envelope)
    arrivals.settle()


class Arrivals:
    """Tasks on their way into queues. Those of one queue that follow each other begin together."""

    def __init__(self, ctx: Context, by: str) -> None:
        self._ctx = ctx
        self._by = by
        self.refusals: list[Refusal] = []  # what the quotas of the namespace refused
        self._queue: Queue | None = None  # the queue of those that have not begun yet
        self._records: list[TaskSubmitted] = []

    def add(self, queue: Queue, spec: TaskSpec, envelope: Envelope, expires_us: int = -1) -> bool:
        """Put a task into a queue, and return whether it is accepted."""
        if queue is not self._queue:
            self.settle()
            self._queue = queue
        elif self._records and is_volatile(spec.id) != is_volatile(self._records[-1].spec.id):
            self.settle()  # Time goes on behind volatile tasks.
        if _is_limited(queue):
            self.settle()  # They count.
            if not _make_room(self._ctx, queue, spec, envelope):
                return False
        policy, now_us = queue.policy, self._ctx.now_us
        lives_us = policy.time_to_live_us
        if expires_us >= 0:
            # One without any time still goes to a consumer that waits for it.
            lives_us = min(lives_us or expires_us, expires_us) or 1
        self._records.append(
            TaskSubmitted(
                now_us,
                queue.namespace.name,
                spec,
                State.HELD if policy.held else State.READY,
                self._by,
                0,
                now_us + lives_us if lives_us else 0,
                (),
                envelope,
            )
        )
        return True

    def are_allowed(self, queue: Queue, size: int) -> bool:
        """Return whether the quotas of the namespace allow one more of this size."""
        self.settle()  # They count.
        room, refusal = room_for(self._ctx, queue, (size,))
        if not room:
            serve(self._ctx)  # What came just now may not have to wait.
            room, refusal = room_for(self._ctx, queue, (size,))
        if not room and refusal is not None:
            self.refusals.append(refusal)
        return bool(room)

    def settle(self) -> None:
        """Let everything begin that has not begun yet."""
        if self._queue is not None and self._records:
            begin(self._ctx, self._queue, self._records)
            self._records = []


def _is_limited(queue: Queue) -> bool:
    return queue.room() != (None, 0)


def _make_room(ctx: Context, queue: Queue, spec: TaskSpec, envelope: Envelope) -> bool:
    """Return whether a limited queue accepts a task, displacing older ones if it drops its head."""
    traits = queue.traits
    if traits is not None and traits.overflow is Overflow.DROP_HEAD:
        ctx.agenda.add(trim, queue)
        return True
    if not _is_full(queue, spec.payload):
        return True
    serve(ctx)  # What came just now may not have to wait.
    if not _is_full(queue, spec.payload):
        return True
    is_told = traits is not None and traits.overflow is Overflow.REJECT_DEAD_LETTER
    if is_told or is_request(queue.name, envelope):
        ctx.agenda.add(enter, (queue, spec, envelope))
    return False


def _is_full(queue: Queue, body: Body) -> bool:
    length_max, bytes_max = queue.room()
    is_heavy = bytes_max and queue.ready_bytes + size_of(body) > bytes_max
    return bool((length_max is not None and queue.depth >= length_max) or is_heavy)


def successor_in(ctx: Context, task_id: TaskId, queue: Queue, *, is_volatile: bool) -> TaskId:
    """Return the id of what follows a task in a queue.

    It may be in use: by the copy of the same message in another queue, or by what followed the task
    when it died before. Then it is the id of what would follow that one.
    """
    following = successor_id(task_id, queue.name)
    following = volatile_id(following) if is_volatile else following
    if following in ctx.book.tasks:
        return successor_in(ctx, following, queue, is_volatile=is_volatile)
    return following


# Activity: what the workers of a pool report over AMQP, in osrdyne's manner.

STARTED, READY = "started", "ready"


def hear(ctx: Context, namespace: Namespace, message: Publication, session: int) -> None:
    """Process a worker report that was published over a session."""
    pool = ctx.pools.by_name.get((namespace.name, namespace.topology.activities[message.exchange]))
    if pool is None:
        return
    headers = headers_of(message.properties)
    event, worker = (_text(headers.get(name, "")) for name in ("x-event", "x-worker-id"))
    group = pool.groups.get(message.key)
    launch = ctx.pools.launches.get((namespace.name, worker))
    if launch is None and group is not None and not worker:
        launch = unclaimed(group, session, ctx.pools)
    if launch is not None and launch.group.pool is pool and event in (STARTED, READY):
        launch.has_joined = True
        launch.is_loaded = event == READY
        if session:
            ctx.pools.speakers[session] = (launch, bool(worker))
    if group is not None:
        stir(ctx, group)


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
