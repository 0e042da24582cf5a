"""Opening queues in the manner of AMQP: making them, or finding them as they were declared.

Owns the checks of a declaration, and which queues belong to which session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jackalope.core.arguments import (
    QUORUM,
    argument_problem,
    different_argument,
    queue_terms,
    rule_of,
    type_of,
    type_problem,
)
from jackalope.core.consumers import consumers_of
from jackalope.core.declarations import no_room, open_namespace
from jackalope.core.effects import QueueOpened
from jackalope.core.exchanges import (
    absent_queue,
    exclusive_to_another,
    locked,
    no_queue,
    not_equivalent,
    not_permitted,
    queue_of_pool,
    told,
)
from jackalope.core.messaging import OpenQueue
from jackalope.core.pool_names import requests_queue
from jackalope.core.records import QueueDeclared
from jackalope.core.refusals import Code, Refusal
from jackalope.core.topology import AppliesTo, Traits

if TYPE_CHECKING:
    from jackalope.core.broker import Core
    from jackalope.core.queue import Namespace, Queue


def open_queue(core: Core, command: OpenQueue) -> None:
    """Make a queue, or compare it with the one that is there."""
    queue = _open(core, command) if command.key is None else _open_key(core, command, command.key)
    if isinstance(queue, Refusal):
        core.reply(command, queue)
        return
    core.watch_idle(queue)
    name, ready, key = queue.name, queue.line.size, command.key
    if key is not None:
        name = requests_queue(name, key)
        ready = sum(lane.size for lane in queue.line.of_key(key))
    core.reply(command, QueueOpened(name, ready, len(consumers_of(core, queue, key))))


def _open_key(core: Core, command: OpenQueue, key: str) -> Queue | Refusal:
    """Find the requests of a key, which are there because their pool is."""
    queue = core.book.queue(command.namespace, command.queue)
    name = requests_queue(command.queue, key)
    if queue is None or queue.pool is None:
        return no_queue(name, command.namespace)
    where = f"queue '{name}' in namespace '{command.namespace}'"
    for what in ("durable", "exclusive", "auto_delete"):
        if getattr(command, what) and not command.passive:
            return not_equivalent(what, where, True, False)
    if command.arguments and not command.passive:
        argument, value = next(iter(command.arguments.items()))
        return not_equivalent(argument, where, value, None)
    return queue


def _open(core: Core, command: OpenQueue) -> Queue | Refusal:
    world = open_namespace(core, command.namespace)
    if isinstance(world, Refusal):
        return world
    queue = world.queues.get(command.queue)
    if queue is not None:
        refusal = locked(queue, command.owner)
        if refusal is None and not command.passive:
            refusal = _different(queue, command)
        return refusal or queue
    if command.passive:
        return absent_queue(core, world.name, command.queue)
    if not command.may_make:
        return not_permitted("queue", command.queue)
    return _unfit(core, command) or _make(core, world, command)


def _make(core: Core, world: Namespace, command: OpenQueue) -> Queue:
    wanted = Traits(
        durable=command.durable,
        auto_delete=command.auto_delete,
        owner=command.owner if command.exclusive else 0,
        arguments=command.arguments,
    )
    rule = rule_of(world.topology.rules.values(), command.queue, AppliesTo.QUEUES)
    policy, traits = queue_terms(wanted, rule)
    record = QueueDeclared(core.now_us, world.name, command.queue, policy, command.by, traits)
    core.record(record)
    if traits.owner:
        core.owned.setdefault(traits.owner, {})[world.name, command.queue] = None
    return world.queues[command.queue]


def _unfit(core: Core, command: OpenQueue) -> Refusal | None:
    refusal = no_room(core, command.namespace, command.queue)
    if refusal is not None:
        return refusal
    if command.queue.startswith("amq.") and not command.generated:
        message = f"queue name '{command.queue}' contains reserved prefix 'amq.*'"
        return Refusal(Code.FORBIDDEN, message)
    where = f"queue '{command.queue}' in namespace '{command.namespace}'"
    world = core.book.namespaces.get(command.namespace)
    if world is not None and (pool := world.topology.reserved.get(command.queue)):
        return queue_of_pool(command.queue, command.namespace, pool)
    arguments = command.arguments
    problem = argument_problem(arguments, where) or type_problem(arguments, where)
    if problem := problem or _not_of_quorum(command, where):
        return Refusal(Code.NOT_EQUIVALENT, problem)
    return None


def _not_of_quorum(command: OpenQueue, where: str) -> str:
    """Return what a quorum queue cannot be, and this one is to be; empty if nothing is."""
    if type_of(command.arguments) != QUORUM:
        return ""
    for what, is_so in (
        ("auto-delete", command.auto_delete),
        ("exclusive-owner", command.exclusive),
        ("non-durable", not command.durable),
    ):
        if is_so:
            return f"invalid property '{what}' for {where}"
    return ""


def _different(queue: Queue, command: OpenQueue) -> Refusal | None:
    """Refuse to find a queue as something that it is not."""
    before = queue.traits or Traits()
    if command.exclusive != (before.owner > 0):
        return exclusive_to_another(queue)
    for what, now, then in (
        # An exclusive queue goes with its connection, whatever it was declared as.
        ("durable", command.durable or command.exclusive, before.durable or command.exclusive),
        ("auto_delete", command.auto_delete, before.auto_delete),
    ):
        if now != then:
            return not_equivalent(what, f"queue {told(queue)}", now, then)
    if problem := argument_problem(command.arguments, f"queue {told(queue)}"):
        return Refusal(Code.NOT_EQUIVALENT, problem)
    arguments: dict[str, Any] = before.arguments
    if name := different_argument(arguments, command.arguments):
        return not_equivalent(
            name, f"queue {told(queue)}", command.arguments.get(name), arguments.get(name)
        )
    return None
