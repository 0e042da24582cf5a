"""Helping: workers that are idle help the task of another with its fan-out.

Owns who helps whom. Volatile, as workers are: an owner asks again after a lost connection, and a
helper reports whom it helps when it joins. The core knows neither the items nor their progress:
they go from worker to worker.

Theory of operation. The owner of a fan-out asks for up to so many helpers. It proves by the fence
that it runs the task, and that it is the worker by its session, or over another one by the secret
with which the worker joined: fences are small numbers, and can be guessed. A helper is a worker
that serves the queue of what it is to run, which may be another than the task's, and has a free
slot; it helps one owner at a time, and the slot is taken while it does.
Free workers are asked before they are given tasks, for the fan-out with the fewest helpers first.
If no worker is free, and another fan-out has at least two helpers more, one of those is reclaimed.

A fan-out is over when its owner reports it, or when the session that asked is closed. Helpers are
not notified: their connection to the owner ends, and each reports itself when it is free. So a slot
is never assigned twice, and a helper that falls silent is given up as the worker that it is.

Between two commands this always holds: no fan-out lacks a helper while a worker that it may have
has a slot free.
"""

from __future__ import annotations

from collections.abc import Iterable
from hmac import compare_digest

from jackalope.core.assertions import must
from jackalope.core.commands import EndHelp, RequestHelpers
from jackalope.core.context import Context
from jackalope.core.durations import SECOND
from jackalope.core.effects import (
    Accepted,
    Answered,
    HelpAsked,
    HelperFailed,
    HelpersPromised,
    HelpRecalled,
)
from jackalope.core.limits import FANOUTS_MAX, HELPERS_PER_FANOUT_MAX, NAME_CHARS_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.core.state.roster import Fanout, Worker
from jackalope.core.task import Task


def request_helpers(ctx: Context, command: RequestHelpers) -> Answered:
    """Register a fan-out, or change how many helpers it requests; 0 ends it."""
    task = ctx.book.tasks.get(command.task)
    attempt = None if task is None else task.attempt
    if task is None or attempt is None or not _is_lease(command, task):
        message = f"fence {command.fence} is not the lease of task {command.task.hex()}"
        return Refusal(Code.STALE_FENCE, message + "; stop working on it")
    refusal = _not_holder(ctx, command, attempt.worker) or _unfit(ctx, command)
    if refusal is not None:
        return refusal
    fanout = ctx.fanouts.get(command.fence)
    if not command.count:
        ctx.fanouts.pop(command.fence, None)
        return Accepted()
    is_new = fanout is None
    if fanout is None:
        fanout = Fanout(task, attempt.worker, command.fence, command.token)
        ctx.fanouts[command.fence] = fanout
    fanout.session, fanout.wanted = command.session, command.count
    fanout.function, fanout.where, fanout.seal = command.function, command.where, command.seal
    fanout.queue = command.queue or task.queue.name
    fanout.key = task.key if fanout.queue == task.queue.name else ""
    if is_new:
        # After a restart of the broker the helpers may be back before their owner asks again.
        for worker in ctx.roster.workers.values():
            if worker.helps == command.fence:
                _take_on(fanout, worker)
    ctx.agenda.add(lend, fanout)
    return HelpersPromised(fanout.token)


def _is_lease(command: RequestHelpers, task: Task) -> bool:
    """Return whether a request names the current lease of a task that its sender may see."""
    queue = task.queue
    return (
        task.attempt is not None
        and task.attempt.fence == command.fence
        and queue.namespace.name == command.namespace
        and (not command.only or queue.name in command.only)
    )


def _not_holder(ctx: Context, command: RequestHelpers, worker: str) -> Refusal | None:
    """Refuse a request that does not come from the worker that holds the task."""
    holder = ctx.roster.workers.get((command.namespace, worker))
    if holder is None:
        message = f"worker {worker!r} has not rejoined; request helpers after it has"
        return Refusal(Code.UNKNOWN_SESSION, message, SECOND)
    is_own = holder.session == command.session
    proof, secret = command.secret.encode(), holder.secret.encode()
    if is_own or (secret and compare_digest(proof, secret)):
        return None
    message = f"worker {worker!r} holds task {command.task.hex()}; only it may request helpers"
    return Refusal(Code.FORBIDDEN, message + ", or with the secret with which it joined")


def end_help(ctx: Context, command: EndHelp, worker: Worker) -> Accepted:
    """Release a helper that reports that it has finished."""
    if worker.helps == command.fence:
        fanout = ctx.fanouts.get(command.fence)
        if fanout is not None and command.why:
            fanout.shunned.add(worker.id)
            failed = HelperFailed(fanout.task.id, fanout.fence, worker.id, command.why)
            ctx.send(fanout.session, failed)
        free(ctx, worker)
    return Accepted()


def free(ctx: Context, worker: Worker) -> None:
    """Release a worker's slot, and let another take its place as a helper."""
    fanout = ctx.fanouts.get(worker.helps)
    if fanout is not None:
        fanout.helpers.pop(worker.id, None)
    worker.helps = 0
    if worker.crew is not None:
        worker.crew.place(worker, worker.room())
        ctx.agenda.workers[worker] = None
    _seek(ctx)


def _seek(ctx: Context) -> None:
    """Consider every worker for fan-outs that lack helpers."""
    if ctx.fanouts:
        ctx.agenda.add(lend, None)


def resume_help(ctx: Context, worker: Worker, fence: int) -> None:
    """Restore what a worker that rejoins reports about helping."""
    fanout = ctx.fanouts.get(worker.helps)
    if fanout is not None:
        fanout.helpers.pop(worker.id, None)
    worker.helps = fence
    fanout = ctx.fanouts.get(fence)
    if fanout is not None:
        _take_on(fanout, worker)
    _seek(ctx)


def _take_on(fanout: Fanout, worker: Worker) -> None:
    """Count a worker that reports helping; clear the report if it cannot have been asked."""
    if worker.namespace is fanout.task.queue.namespace and fanout.queue in worker.queues:
        fanout.helpers[worker.id] = worker
    else:
        worker.helps = 0


def forget_session(ctx: Context, session: int) -> None:
    """End the fan-outs of a closed session."""
    for fanout in [fanout for fanout in ctx.fanouts.values() if fanout.session == session]:
        del ctx.fanouts[fanout.fence]


def lend(ctx: Context) -> None:
    """Ask free workers to help: all of them if a fan-out is new."""
    is_new = bool(ctx.agenda.rest and ctx.agenda.take(lend))
    if not (is_new or ctx.fanouts):
        return
    idle: Iterable[Worker] = ctx.roster.workers.values() if is_new else ctx.agenda.workers
    free_ones = [worker for worker in idle if _can_help(worker)]
    if not free_ones and not is_new:
        return
    for fanout in [fanout for fanout in ctx.fanouts.values() if not _is_alive(fanout)]:
        del ctx.fanouts[fanout.fence]
    wanting = [fanout for fanout in ctx.fanouts.values() if fanout.missing > 0]
    if not wanting:
        return
    for worker in sorted(free_ones, key=lambda worker: len(worker.held)):
        fitting = [fanout for fanout in wanting if fanout.may_have(worker)]
        if fitting:
            poorest = min(fitting, key=lambda fanout: len(fanout.helpers))
            _ask(ctx, poorest, worker)
            if poorest.missing <= 0:
                wanting.remove(poorest)
    if is_new and wanting:
        _call_back(ctx, wanting)


def _is_alive(fanout: Fanout) -> bool:
    """Return whether the attempt still has its lease. Checked late, so that ends stay cheap."""
    attempt = fanout.task.attempt
    return attempt is not None and attempt.fence == fanout.fence


def _can_help(worker: Worker) -> bool:
    return worker.has_room() and worker.helps == 0 and len(worker.held) < worker.slots


def _ask(ctx: Context, fanout: Fanout, worker: Worker) -> None:
    must(worker.helps == 0, "a worker helps one owner at a time", worker.id)
    worker.helps = fanout.fence
    fanout.helpers[worker.id] = worker
    task = fanout.task
    ctx.send(
        worker.session,
        HelpAsked(
            fence=fanout.fence,
            task=task.id,
            queue=task.queue.name,
            function=fanout.function,
            where=fanout.where,
            token=fanout.token,
            seal=fanout.seal,
        ),
    )
    worker.place()


def _call_back(ctx: Context, wanting: list[Fanout]) -> None:
    """Reclaim one helper from a fan-out that has at least two more than the neediest one."""
    richest = max(ctx.fanouts.values(), key=lambda fanout: len(fanout.helpers))
    if len(richest.helpers) < 2:
        return
    called = set()
    for fanout in ctx.fanouts.values():
        if fanout.awaits is not None:
            worker, fence = fanout.awaits
            if worker.helps == fence and worker.session:
                called.add(worker.id)
            else:
                fanout.awaits = None
    for fanout in sorted(wanting, key=lambda fanout: len(fanout.helpers)):
        if len(richest.helpers) < len(fanout.helpers) + 2:
            return
        for worker in richest.helpers.values() if fanout.awaits is None else ():
            if worker.session and worker.id not in called and fanout.may_have(worker):
                fanout.awaits = (worker, richest.fence)
                message = HelpRecalled(richest.fence)
                ctx.send(worker.session, message)
                return


def _unfit(ctx: Context, command: RequestHelpers) -> Refusal | None:
    if not 0 <= command.count <= HELPERS_PER_FANOUT_MAX:
        message = f"count: must be 0 to {HELPERS_PER_FANOUT_MAX}, got {command.count}"
        return Refusal(Code.INVALID, message)
    problems = [
        f"{name}: longer than {NAME_CHARS_MAX} characters"
        for name in ("function", "where", "seal", "queue", "secret")
        if len(getattr(command, name)) > NAME_CHARS_MAX
    ]
    if command.count and not command.where:
        problems.append("where: must not be empty")
    if problems:
        return Refusal(Code.INVALID, "no helpers. " + "; ".join(problems))
    if command.count and len(ctx.fanouts) >= FANOUTS_MAX and command.fence not in ctx.fanouts:
        return Refusal(
            Code.TOO_MANY, f"there are {FANOUTS_MAX} fan-outs, the maximum; try again later"
        )
    return None
