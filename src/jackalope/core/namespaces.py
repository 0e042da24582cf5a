"""Namespaces: queues that are created by being named, and what is deleted with its last use.

Owns the room that there is for namespaces and queues. What is merely used, and not declared, leaves
room for what is. An exchange may go with its last binding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jackalope.core.context import Context
from jackalope.core.limits import NAME_CHARS_MAX, NAMESPACES_MAX, QUEUES_PER_NAMESPACE_MAX
from jackalope.core.policy import Policy
from jackalope.core.records import ExchangeDeleted, QueueDeclared, Unbound
from jackalope.core.refusals import Code, QuotaRefusal, Refusal
from jackalope.core.shapes.exchange import Binding
from jackalope.core.shapes.namespace import Quota
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
            # Not how many there are: they are of all namespaces.
            message = (
                f"{ctx.queues_by_use_max} queues come into being by use; declare {name!r} first"
            )
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
        message = (
            f"{ctx.namespaces_by_use_max} namespaces come into being by use; create {name!r} first"
        )
        return Refusal(Code.TOO_MANY, f"{message}, or raise limits.namespaces_by_use")
    return None


def unknown_namespace(name: str) -> Refusal:
    return Refusal(Code.UNKNOWN_NAMESPACE, f"no namespace {name!r}; list the namespaces")


# Quotas: what a namespace may have, and do, so much of.


def take_within(
    ctx: Context,
    queue: Queue,
    sizes: Sequence[int],
    take: Callable[[slice], Sequence[Refusal | None]],
    serve: Callable[[Context], None],
) -> Sequence[Refusal | None]:
    """Accept as many tasks, by the bytes of their payloads, as the quotas allow.

    Args:
        ctx: the state.
        queue: where they are to wait.
        sizes: of each of them.
        take: accepts some of them, and returns an answer for each, or nothing.
        serve: assigns what was accepted, which may not have to wait.

    Returns:
        An answer for each of them; nothing if all are accepted.
    """
    answers: list[Refusal | None] = []
    while len(answers) < len(sizes):
        taken = len(answers)
        room, refusal = room_for(ctx, queue, sizes[taken:])
        if not room and refusal is not None:
            serve(ctx)
            room, refusal = room_for(ctx, queue, sizes[taken:])
        if not room and isinstance(refusal, QuotaRefusal) and refusal.quota == Quota.BYTES_STORED:
            answers.append(refusal)  # A smaller one behind it may fit.
            continue
        if not room:
            return [*answers, *[refusal] * (len(sizes) - taken)]
        answers += take(slice(taken, taken + room)) or [None] * room
    return answers if any(answers) else ()


def room_for(
    ctx: Context, queue: Queue, sizes: Sequence[int], *, is_whole: bool = False
) -> tuple[int, Refusal | None]:
    """Return how many of the next tasks, by the bytes of their payloads, the quotas allow.

    With the refusal of the first that is not, if there is one. `is_whole` if they come together or
    not at all.
    """
    namespace, now_us = queue.namespace, ctx.now_us
    settings, count, refusal = namespace.settings, len(sizes), None
    if settings.tasks_queued and namespace.depth + count > settings.tasks_queued:
        over = namespace.depth + count - settings.tasks_queued
        wait_us = queue.retry_after_us(over, now_us)
        count = max(0, settings.tasks_queued - namespace.depth)
        refusal = exceeded(namespace, Quota.TASKS_QUEUED, namespace.depth, wait_us)
    if settings.submits_per_second:
        tokens = namespace.bucket_now.tokens(settings, now_us)
        if tokens < count:
            wanted = count if is_whole else 1
            wait_us = namespace.bucket_now.wait_us(settings, now_us, wanted)
            used = max(0, settings.burst() - tokens)
            count, refusal = tokens, exceeded(namespace, Quota.SUBMITS_PER_SECOND, used, wait_us)
    if namespace.bytes_stored is not None:
        stored = namespace.bytes_stored
        for number, size in enumerate(sizes[:count]):
            stored += size
            if stored > settings.bytes_stored:
                wait_us = queue.retry_after_us(1, now_us) if size <= settings.bytes_stored else 0
                used = namespace.bytes_stored
                return number, exceeded(namespace, Quota.BYTES_STORED, used, wait_us)
    return count, refusal


def exceeded(namespace: Namespace, quota: Quota, used: int, retry_after_us: int = 0) -> Refusal:
    """Refuse what would be more than a quota allows."""
    limit: int = getattr(namespace.settings, quota)
    message = (
        f"namespace {namespace.name!r} has used {used} of its {limit} {_WORDS[quota]}; "
        "try again later, or have the quota raised"
    )
    if quota is Quota.SUBMITS_PER_SECOND:
        burst = namespace.settings.burst()
        message = (
            f"namespace {namespace.name!r} may submit {limit} tasks a second and {burst} at once; "
            "submit more slowly, or have the quota raised"
        )
    return QuotaRefusal(
        Code.QUOTA_EXCEEDED, message, retry_after_us, quota=quota, limit=limit, used=used
    )


_WORDS = {
    Quota.TASKS_QUEUED: "waiting tasks",
    Quota.BYTES_STORED: "bytes of unfinished tasks",
    Quota.WORKERS: "workers",
    Quota.API_KEYS: "API keys",
    Quota.SUBMITS_PER_SECOND: "submits a second",
}


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
