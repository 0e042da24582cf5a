"""Commands about namespaces: creating, changing and deleting them.

Owns which settings are accepted, and what goes with a namespace.

A namespace is deleted in one command, so that all of it goes in one batch of records or nothing.
Its workers leave first, and its tasks are killed. What follows from that (dependents, flows,
callbacks) is settled as ever, and killed in its turn; only when nothing is left to settle do the
queues go, and the namespace with them.
"""

from __future__ import annotations

from jackalope.core.amqp.queue_removal import drop_queue, drop_tasks
from jackalope.core.commands import DeletePool
from jackalope.core.commands.namespaces import DeclareNamespace, DeleteNamespace
from jackalope.core.commands.schedules import DeleteSchedule
from jackalope.core.context import Context
from jackalope.core.effects import ConsumerCancelled, DrainAsked, NamespaceGone, NamespaceSet
from jackalope.core.limits import TASKS_PER_NAMESPACE_KILLED_MAX
from jackalope.core.namespaces import no_namespace, unknown_namespace
from jackalope.core.records import SINCE, ApiKeyRevoked, NamespaceDeclared, NamespaceDeleted
from jackalope.core.refusals import Code, Refusal
from jackalope.core.settings import change
from jackalope.core.shapes.namespace import DEFAULT_SETTINGS, OF_THE_BROKER, NamespaceSettings
from jackalope.core.state.queue import Namespace
from jackalope.core.state.roster import Worker
from jackalope.core.workers.sessions import depart


def declare_namespace(ctx: Context, command: DeclareNamespace) -> NamespaceSet | Refusal:
    known = ctx.book.namespaces.get(command.name)
    before = DEFAULT_SETTINGS if known is None else known.settings
    settings = change(before, command.changes, "a namespace")
    problems = settings if isinstance(settings, list) else _problems(settings, command)
    if isinstance(settings, list) or problems:
        return Refusal(Code.INVALID, "namespace not changed. " + "; ".join(problems))
    refusal = _not_permitted(command, before, settings) or too_old(ctx)
    refusal = refusal or no_namespace(ctx, command.name)
    if refusal is not None:
        return refusal
    if known is None or not known.is_declared or settings != before:
        ctx.record(NamespaceDeclared(ctx.now_us, command.name, settings, command.by))
        for queue in ctx.book.namespaces[command.name].queues.values():
            ctx.agenda.offer_queue(queue)  # More attempts may be under way now.
    return NamespaceSet(settings)


def delete_namespace(ctx: Context, command: DeleteNamespace) -> NamespaceGone | Refusal:
    namespace = ctx.book.namespaces.get(command.name)
    if namespace is None:
        return unknown_namespace(command.name)
    workers = _workers(ctx, namespace)
    unfinished = sum(queue.unfinished() for queue in namespace.queues.values())
    refusal = too_old(ctx) or _in_use(namespace, command, unfinished, len(workers))
    if refusal is not None:
        return refusal
    for worker in workers:
        if worker.session:
            ctx.send(worker.session, ConsumerCancelled() if worker.consumer else DrainAsked())
        depart(ctx, worker, "namespace deleted", is_lost=False)
    for queue in list(namespace.queues.values()):
        if queue.pool is not None:
            ctx.decide(DeletePool(namespace=namespace.name, queue=queue.name, by=command.by))
    for schedule in list(namespace.schedules):
        ctx.decide(DeleteSchedule(namespace=namespace.name, name=schedule, by=command.by))
    for key in [key for key in ctx.book.api_keys.values() if key.namespace == namespace.name]:
        ctx.record(ApiKeyRevoked(ctx.now_us, key.id, command.by))
    ctx.agenda.add(delete_namespace, (namespace, command.by))
    return NamespaceGone(unfinished)


def settle(ctx: Context) -> None:
    """Delete namespaces of which nothing is left that has to be settled."""
    agenda = ctx.agenda
    for namespace, by in agenda.take(delete_namespace):
        queues = list(namespace.queues.values())
        left = [queue for queue in queues if queue.unfinished()]
        for queue in left:
            drop_tasks(ctx, queue, by)
        if left or agenda.lanes or agenda.workers or agenda.ended or agenda.rest:
            agenda.add(delete_namespace, (namespace, by))
            continue
        for queue in queues:
            drop_queue(ctx, queue, by)
        ctx.record(NamespaceDeleted(ctx.now_us, namespace.name, by))


def too_old(ctx: Context) -> Refusal | None:
    """Refuse a change while other nodes of the cluster could not read its record."""
    level = SINCE[NamespaceDeclared]
    if ctx.level >= level:
        return None
    message = (
        f"settings of namespaces need level {level} of the log, which is at level {ctx.level}; "
        "run `jackalope cluster upgrade` when all members have this version"
    )
    return Refusal(Code.WRONG_STATE, message)


def _problems(settings: NamespaceSettings, command: DeclareNamespace) -> list[str]:
    if settings.submits_burst and not settings.submits_per_second:
        return ["submits_burst: goes with submits_per_second; set that as well"]
    if any(not char.isprintable() for char in command.name):
        return ["name: must have printable characters only"]
    return []


def _not_permitted(
    command: DeclareNamespace, before: NamespaceSettings, after: NamespaceSettings
) -> Refusal | None:
    """Refuse a tenant who changes its own bounds."""
    if not command.within:
        return None
    changed = [each for each in OF_THE_BROKER if getattr(before, each) != getattr(after, each)]
    if not changed:
        return None
    message = f"{', '.join(sorted(changed))}: only who administers the broker changes these"
    return Refusal(Code.FORBIDDEN, message)


def _in_use(
    namespace: Namespace, command: DeleteNamespace, unfinished: int, workers: int
) -> Refusal | None:
    if unfinished > TASKS_PER_NAMESPACE_KILLED_MAX:
        message = (
            f"namespace {namespace.name!r} has {unfinished} unfinished tasks, and at most "
            f"{TASKS_PER_NAMESPACE_KILLED_MAX} are killed with it; kill some by a filter first"
        )
        return Refusal(Code.NAMESPACE_NOT_EMPTY, message)
    if command.force or not (unfinished or workers):
        return None
    message = (
        f"namespace {namespace.name!r} has {unfinished} unfinished tasks and {workers} workers; "
        "end them first, or force it, which kills the tasks"
    )
    return Refusal(Code.NAMESPACE_NOT_EMPTY, message)


def _workers(ctx: Context, namespace: Namespace) -> list[Worker]:
    return [each for each in ctx.roster.workers.values() if each.namespace is namespace]
