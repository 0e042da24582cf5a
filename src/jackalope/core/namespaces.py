"""Namespaces: queues that are created by being named, and what is deleted with its last use.

Owns the room that there is for namespaces and queues. What is merely used, and not declared, leaves
room for what is. An exchange may go with its last binding.
"""

from __future__ import annotations

from jackalope.core.context import Context
from jackalope.core.limits import NAME_CHARS_MAX, NAMESPACES_MAX, QUEUES_PER_NAMESPACE_MAX
from jackalope.core.policy import Policy
from jackalope.core.records import ExchangeDeleted, QueueDeclared, Unbound
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.exchange import Binding
from jackalope.core.state.changes import is_volatile_binding
from jackalope.core.state.queue import Namespace, Queue


def open_queue(
    ctx: Context, namespace: str, name: str, by: str, policy: Policy | None = None
) -> Queue | Refusal:
    """Return a queue; create it with this policy, or the default one, if it does not exist."""
    there = ctx.book.namespaces.get(namespace)
    if there is not None and name in there.queues:
        return there.queues[name]
    refusal = no_room(ctx, namespace, name, is_used=policy is None)
    if refusal is not None:
        return refusal
    policy = policy or ctx.default_policy
    ctx.record(QueueDeclared(ctx.now_us, namespace, name, policy, by))
    return ctx.book.namespaces[namespace].queues[name]


def not_kept(queue: Queue) -> Refusal:
    """Refuse to put into a volatile queue, or to let depend on it, what outlives a restart."""
    message = (
        f"queue {queue.name!r} is not durable, and goes with a restart or with its connection; "
        "declare it as durable, use another one, or publish messages to it"
    )
    return Refusal(Code.INVALID, message)


def open_namespace(ctx: Context, name: str) -> Namespace | Refusal:
    """Return a namespace; create it if it does not exist. An empty one is not recorded."""
    found = ctx.book.namespaces.get(name)
    return found or no_namespace(ctx, name, is_used=True) or ctx.book.namespace(name)


def open_queues(
    ctx: Context, namespace: str, names: tuple[str, ...], by: str, *, is_used: bool = True
) -> Refusal | None:
    """Create the queues that do not exist yet: all of them, or none and return a refusal."""
    book = ctx.book
    new = [name for name in dict.fromkeys(names) if book.queue(namespace, name) is None]
    for name in new:
        refusal = no_room(ctx, namespace, name, len(new), is_used=is_used)
        if refusal is not None:
            return refusal
    for name in new:
        ctx.record(QueueDeclared(ctx.now_us, namespace, name, ctx.default_policy, by))
    return None


def no_room(
    ctx: Context, namespace: str, name: str, count: int = 1, *, is_used: bool = False
) -> Refusal | None:
    """Refuse new queues if a name is invalid or a limit is reached.

    Queues that are only used leave room for those that are declared.
    """
    if not 0 < len(name) <= NAME_CHARS_MAX:
        message = f"queue: must have 1 to {NAME_CHARS_MAX} characters, got {len(name)}"
        return Refusal(Code.INVALID, message)
    refusal = no_namespace(ctx, namespace, is_used=is_used)
    if refusal is not None:
        return refusal
    if is_used:
        there = sum(len(each.queues) for each in ctx.book.namespaces.values())
        if there + count > ctx.queues_by_use_max:
            message = f"there are {there} queues; declare queue {name!r} before it is used"
            return Refusal(Code.TOO_MANY, f"{message}, or raise limits.queues_by_use")
    ns = ctx.book.namespaces.get(namespace)
    if ns is not None and len(ns.queues) + count > QUEUES_PER_NAMESPACE_MAX:
        message = f"namespace {namespace!r} has {len(ns.queues)} queues; delete one first"
        return Refusal(Code.TOO_MANY, message)
    return None


def no_namespace(ctx: Context, name: str, *, is_used: bool = False) -> Refusal | None:
    """Refuse a new namespace if its name is invalid or a limit is reached."""
    if not 0 < len(name) <= NAME_CHARS_MAX:
        message = f"namespace: must have 1 to {NAME_CHARS_MAX} characters, got {len(name)}"
        return Refusal(Code.INVALID, message)
    there = len(ctx.book.namespaces)
    if name in ctx.book.namespaces:
        return None
    if there >= NAMESPACES_MAX:
        return Refusal(Code.TOO_MANY, f"there are {NAMESPACES_MAX} namespaces; use one of them")
    if is_used and there >= ctx.namespaces_by_use_max:
        message = f"there are {there} namespaces; declare a queue in namespace {name!r} first"
        return Refusal(Code.TOO_MANY, f"{message}, or raise limits.namespaces_by_use")
    return None


def drop_exchange(ctx: Context, namespace: Namespace, name: str, by: str = "") -> None:
    """Delete an exchange and its bindings."""
    bindings = [
        *namespace.topology.from_source(name),
        *namespace.topology.to_target(name, is_exchange=True),
    ]
    is_volatile = not namespace.topology.exchanges[name].durable
    sources = []
    for binding in dict.fromkeys(each.name() for each in bindings):
        found = namespace.topology.bindings[binding]
        ctx.record(
            Unbound(ctx.now_us, namespace.name, found, is_volatile_binding(namespace, found))
        )
        sources.append(found.source)
    ctx.record(ExchangeDeleted(ctx.now_us, namespace.name, name, by, is_volatile))
    for source in dict.fromkeys(sources):
        drop_unused(ctx, namespace, source)


def drop_unused(ctx: Context, namespace: Namespace, name: str) -> None:
    """Delete an auto-delete exchange that lost its last binding."""
    exchange = namespace.topology.exchanges.get(name)
    if exchange is None or not exchange.auto_delete:
        return
    if next(namespace.topology.from_source(name), None) is None:
        drop_exchange(ctx, namespace, name)


def unbind_one(ctx: Context, namespace: Namespace, binding: Binding) -> None:
    """Remove a binding, and its auto-delete exchange if that was the last one."""
    is_volatile = is_volatile_binding(namespace, binding)
    ctx.record(Unbound(ctx.now_us, namespace.name, binding, is_volatile))
    drop_unused(ctx, namespace, binding.source)
