"""Sessions: workers that come, go, fall silent and come back.

Owns who counts as alive. Theory of operation:

A worker is known by its name; a session is one connection of it. The first join of a session
reconciles both sides: what the worker reports as running and the book has as held goes on;
what only the book has is lost; what only the worker has must be dropped. Joining again in the same
session (a repeated message) settles nothing, because what was assigned since then is on its way.

Death is never guessed from how long a task takes. A closed session is given up after its grace, a
silent one after its lease, and each heartbeat or report proves life. When the broker itself was not
running for a while (a suspended machine, a clock that jumped), that time counts against no worker:
see `forgive_silence`.
"""

from __future__ import annotations

from jackalope.core.commands import (
    CancelClaim,
    ClaimTasks,
    CloseSession,
    DrainWorker,
    Heartbeat,
    Held,
    JoinWorker,
    LeaveWorker,
)
from jackalope.core.context import Context
from jackalope.core.durations import SECOND
from jackalope.core.effects import (
    Accepted,
    DrainAsked,
    Joined,
    LeaseLost,
    NothingToClaim,
    SessionReplaced,
    SignalAsked,
)
from jackalope.core.ids import TaskId
from jackalope.core.limits import (
    CLAIM_WAIT_US_MAX,
    CLAIMS_PER_WORKER_MAX,
    ITEMS_PER_COMMAND_MAX,
    KEYS_PER_WORKER_MAX,
    LEASE_US_MAX,
    LEASE_US_MIN,
    NAME_CHARS_MAX,
    NAMES_PER_WORKER_MAX,
    QUEUES_PER_WORKER_MAX,
    SHARE_CHARS_MIN,
    SLOTS_PER_WORKER_MAX,
    WORKERS_MAX,
    WORKERS_PER_SHARE_MAX,
)
from jackalope.core.namespaces import exceeded, open_queues
from jackalope.core.policy import OnRestart
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.callback import CALLBACKS_QUEUE, CALLBACKS_WORKER, OWN_QUEUE
from jackalope.core.shapes.namespace import Quota
from jackalope.core.shapes.needs import resource_problems
from jackalope.core.state.roster import Claim, Consumer, Worker
from jackalope.core.task import lease_of
from jackalope.core.tasks.assign import drain, feed, offer_shunned
from jackalope.core.tasks.attempts import lose, release
from jackalope.core.workers.fanout import free, resume_help

#: When a worker that is one too many for its namespace may ask again.
_WORKER_AGAIN_US = 10 * SECOND


def join_worker(
    ctx: Context, command: JoinWorker, consumer: Consumer | None = None, *, is_own: bool = False
) -> Refusal | None:
    """Register a worker, for the first time or again. One may be the broker itself."""
    refusal = _unfit(ctx, command, is_own=is_own)
    refusal = refusal or open_queues(ctx, command.namespace, command.queues, command.worker)
    if refusal is not None:
        return refusal
    worker = ctx.roster.workers.get((command.namespace, command.worker))
    if worker is None:
        worker = Worker(ctx.book.namespaces[command.namespace], command.worker)
        worker.joined_us = ctx.now_us
    worker.consumer = consumer
    is_repeated = worker.session == command.session
    offer_shunned(ctx, worker)
    _bind(ctx, worker, command)
    resumed, drop = ((), ()) if is_repeated else _settle(ctx, worker, command.holding)
    if not is_repeated:
        resume_help(ctx, worker, command.helps)
    # Before anything else that it is sent because it has joined.
    ctx.reply(command, Joined(resumed, drop))
    for joined in ctx.rooms.worker_joined:
        joined(ctx, worker)
    _repeat_requests(ctx, worker)
    ctx.agenda.workers[worker] = None
    offer_shunned(ctx, worker)
    return None


def heartbeat(ctx: Context, command: Heartbeat) -> Accepted | None:
    """Renew the lease of a worker; ask an unknown one to join again."""
    worker = ctx.worker_of(command)
    if isinstance(worker, Refusal):
        ctx.reply(command, worker)
        ctx.send(command.session, LeaseLost())
        return None
    if command.stats:
        worker.stats = command.stats
    return Accepted()


def claim_tasks(ctx: Context, command: ClaimTasks, worker: Worker) -> Refusal | None:
    """Add a claim: a credit beyond the worker's slots, with a time limit."""
    if not 0 < command.count <= ITEMS_PER_COMMAND_MAX:
        message = f"count: must be 1 to {ITEMS_PER_COMMAND_MAX}, got {command.count}"
        return Refusal(Code.INVALID, message)
    if len(worker.claims) >= CLAIMS_PER_WORKER_MAX:
        message = f"{len(worker.claims)} claims are open; wait for an answer to one"
        return Refusal(Code.TOO_MANY, message)
    wait_us = min(max(command.wait_us, 0), CLAIM_WAIT_US_MAX)
    worker.claims.append(Claim(command.ref, command.count, ctx.now_us + wait_us))
    feed(ctx, worker)
    expire_claims(ctx, worker)
    return None


def cancel_claim(ctx: Context, command: CancelClaim, worker: Worker) -> Accepted:
    """Withdraw the rest of a claim. Tasks assigned for it stay with the worker."""
    for claim in [claim for claim in worker.claims if claim.ref == command.claim]:
        worker.claims.remove(claim)
    expire_claims(ctx, worker)
    return Accepted()


def expire_claims_of(ctx: Context, session: int) -> None:
    worker = ctx.roster.sessions.get(session)
    if worker is not None:
        expire_claims(ctx, worker)


def expire_claims(ctx: Context, worker: Worker) -> None:
    for claim in [claim for claim in worker.claims if claim.until_us <= ctx.now_us]:
        worker.claims.remove(claim)
        ctx.reply(Heartbeat(session=worker.session, ref=claim.ref), NothingToClaim())
    ctx.roster.set_claim_timer(worker)
    worker.place()
    offer_shunned(ctx, worker)


def leave_worker(ctx: Context, _: LeaveWorker, worker: Worker) -> Accepted:
    """Unregister a worker, and release what it still holds."""
    depart(ctx, worker, "left", is_lost=False)
    return Accepted()


def close_session(ctx: Context, command: CloseSession) -> None:
    """Wait for a disconnected worker to come back."""
    for ended in ctx.rooms.session_ended:
        ended(ctx, command.session)
    worker = ctx.roster.sessions.pop(command.session, None)
    if worker is None:
        return
    ctx.roster.claims.cancel(worker.session)
    ctx.roster.deliveries.cancel(worker.session)
    worker.claims.clear()
    worker.session = 0
    worker.place()
    name = (worker.namespace.name, worker.id)
    ctx.roster.leases.cancel(name)
    if worker.grace_us:
        ctx.roster.resumes.set(name, ctx.now_us + worker.grace_us)
    else:
        depart(ctx, worker, "closed", is_lost=True)


def drain_worker(ctx: Context, command: DrainWorker) -> Accepted | Refusal:
    worker = ctx.roster.workers.get((command.namespace, command.worker))
    if worker is None:
        message = f"no worker {command.worker!r} in namespace {command.namespace!r}"
        return Refusal(Code.UNKNOWN_WORKER, message + "; list the workers")
    drain(ctx, worker)
    return Accepted()


def check_lease(ctx: Context, name: tuple[str, str]) -> None:
    """Give up a silent worker, or set the next check."""
    worker = ctx.roster.workers.get(name)
    if worker is None or not worker.session:
        return
    until_us = worker.heard_us + worker.lease_us
    if until_us > ctx.now_us:
        ctx.roster.leases.set(name, until_us)
        return
    ctx.send(worker.session, LeaseLost())
    depart(ctx, worker, "silent", is_lost=True)


def give_up_resume(ctx: Context, name: tuple[str, str], why: str = "closed") -> None:
    """Give up a worker that did not reconnect within its grace, or whose end is known."""
    worker = ctx.roster.workers.get(name)
    if worker is not None and not worker.session:
        depart(ctx, worker, why, is_lost=True)


def settle_leases(ctx: Context) -> None:
    """Settle what was leased when the broker stopped: keep it for the grace, or requeue it."""
    for namespace in ctx.book.namespaces.values():
        for held in list(namespace.leases.values()):
            for task in list(held.values()):
                policy = task.queue.policy
                if policy.on_restart is OnRestart.REQUEUE:
                    release(ctx, task, by="restart of the broker")
                else:
                    ctx.roster.orphans.set(task.id, ctx.now_us + policy.restart_grace_us)


def give_up_orphan(ctx: Context, task_id: TaskId) -> None:
    """Give up a lease that outlived a restart of the broker without its worker."""
    task = ctx.book.tasks.get(task_id)
    if task is not None and task.attempt is not None:
        name = (task.queue.namespace.name, task.attempt.worker)
        if name not in ctx.roster.workers:
            lose(ctx, task, "not reconnected after the restart of the broker")


def forgive_silence(ctx: Context, gap_us: int) -> None:
    """Extend the deadlines of workers by the time in which the broker did not run."""
    for worker in ctx.roster.workers.values():
        worker.heard_us += gap_us
    for timers in (ctx.roster.orphans, ctx.roster.resumes):
        for key, at_us in list(timers.items()):
            timers.set(key, at_us + gap_us)  # type: ignore[arg-type]


def _unfit(ctx: Context, command: JoinWorker, *, is_own: bool) -> Refusal | None:
    problems = [
        f"{what}: must be {least} to {most}, got {value}"
        for what, value, least, most in (
            ("characters of the worker's name", len(command.worker), 1, NAME_CHARS_MAX),
            ("number of queues", len(command.queues), 1, QUEUES_PER_WORKER_MAX),
            ("number of keys", len(command.keys), 0, KEYS_PER_WORKER_MAX),
            ("number of task names", len(command.names or ()), 0, NAMES_PER_WORKER_MAX),
            ("characters of the secret", len(command.secret), 0, NAME_CHARS_MAX),
            ("slots", command.slots, 0, SLOTS_PER_WORKER_MAX),
            ("lease_us", command.lease_us, LEASE_US_MIN, LEASE_US_MAX),
            ("grace_us", command.grace_us, 0, LEASE_US_MAX),
        )
        if not least <= value <= most
    ]
    problems += resource_problems(command.resources)
    problems += _share_problems(ctx, command)
    if not is_own and CALLBACKS_QUEUE in command.queues:
        problems.append(f"queue {OWN_QUEUE}")
    if not is_own and command.worker == CALLBACKS_WORKER:
        problems.append(f"worker {command.worker!r} is the broker itself; choose another name")
    if not command.session:
        problems.append("session: a worker joins over a session")
    bound = ctx.roster.sessions.get(command.session)
    if bound is not None and (bound.namespace.name, bound.id) != (
        command.namespace,
        command.worker,
    ):
        problems.append(f"session: it already belongs to worker {bound.id!r}")
    if problems:
        return Refusal(Code.INVALID, "join refused: " + "; ".join(problems))
    worker = ctx.roster.workers.get((command.namespace, command.worker))
    if worker is not None and 0 < command.generation < worker.generation:
        message = f"worker {command.worker!r} has joined over a newer connection; close this one"
        return Refusal(Code.STALE_SESSION, message)
    if worker is None and len(ctx.roster.workers) >= WORKERS_MAX:
        return Refusal(
            Code.TOO_MANY, f"there are {WORKERS_MAX} workers, the maximum; use another broker"
        )
    if worker is None and not is_own and (refusal := _too_many(ctx, command.namespace)):
        return refusal
    if command.only and not _queues_of(ctx, command).issubset(command.only):
        message = f"worker {command.worker!r} belongs to another client; choose another name"
        return Refusal(Code.FORBIDDEN, message)
    return None


def _share_problems(ctx: Context, command: JoinWorker) -> list[str]:
    """List what is wrong with the slots that a worker wants to have together with others."""
    slots, characters = command.share_slots, len(command.share)
    if not command.share:
        return ["share_slots: is for workers with a share"] if slots else []
    problems = []
    if not SHARE_CHARS_MIN <= characters <= NAME_CHARS_MAX:
        bounds = f"{SHARE_CHARS_MIN} to {NAME_CHARS_MAX}"
        problems.append(f"share: a secret of {bounds} characters, got {characters}")
    if not 1 <= slots <= SLOTS_PER_WORKER_MAX:
        problems.append(f"share_slots: must be 1 to {SLOTS_PER_WORKER_MAX}, got {slots}")
    share = ctx.roster.shares.get(command.share)
    worker = ctx.roster.workers.get((command.namespace, command.worker))
    others = [] if share is None else [each for each in share.members if each is not worker]
    if len(others) >= WORKERS_PER_SHARE_MAX:
        problems.append(f"share: {WORKERS_PER_SHARE_MAX} workers have it, the maximum")
    return problems


def _too_many(ctx: Context, name: str) -> Refusal | None:
    """Refuse one more worker than the quota of its namespace allows."""
    namespace = ctx.book.namespaces.get(name)
    if namespace is None or not namespace.settings.workers:
        return None
    here = sum(1 for each in ctx.roster.workers if each[0] == name)
    if here < namespace.settings.workers:
        return None
    return exceeded(namespace, Quota.WORKERS, here, _WORKER_AGAIN_US)


def _queues_of(ctx: Context, command: JoinWorker) -> set[str]:
    """Return the queues that a worker of this name serves, or has leases in."""
    worker = ctx.roster.workers.get((command.namespace, command.worker))
    served = set() if worker is None else set(worker.queues)
    namespace = ctx.book.namespaces.get(command.namespace)
    held = {} if namespace is None else namespace.leases.get(command.worker, {})
    return served | {task.queue.name for task in held.values()}


def _bind(ctx: Context, worker: Worker, command: JoinWorker) -> None:
    """Attach a worker to its new session, with its current settings."""
    roster = ctx.roster
    if worker.session and worker.session != command.session:
        roster.sessions.pop(worker.session, None)
        roster.claims.cancel(worker.session)
        worker.claims.clear()
        ctx.send(worker.session, SessionReplaced())
    roster.dismiss(worker)
    worker.session = command.session
    worker.generation = command.generation
    worker.slots = command.slots
    worker.is_ready = command.ready
    worker.labels, worker.resources = command.labels, command.resources
    worker.secret = command.secret
    worker.lease_us, worker.grace_us = command.lease_us, command.grace_us
    worker.heard_us = ctx.now_us
    name = (command.namespace, command.worker)
    names = None if command.names is None else frozenset(command.names)
    roster.enroll(worker, command.queues, command.keys, names)
    if worker.consumer is None:
        if worker.share is not None:
            ctx.agenda.workers.update(worker.share.members)  # They may have its slots.
        roster.leave_share(worker)
        if command.share:
            roster.join_share(worker, command.share, command.share_slots)
    roster.sessions[command.session] = worker
    roster.resumes.cancel(name)
    roster.leases.set(name, ctx.now_us + worker.lease_us)


def _settle(
    ctx: Context, worker: Worker, holding: list[Held]
) -> tuple[tuple[Held, ...], tuple[Held, ...]]:
    """Reconcile what a worker runs with the book; return what continues and what does not."""
    resumed, drop = [], []
    for held in holding:
        task = worker.held.get(held.task)
        if task is not None and lease_of(task).fence == held.fence:
            resumed.append(held)
            ctx.roster.orphans.cancel(held.task)
        else:
            drop.append(held)
    kept = {held.task for held in resumed}
    for task in [task for task_id, task in worker.held.items() if task_id not in kept]:
        lose(ctx, task, "not resumed by its worker")
    return tuple(resumed), tuple(drop)


def _repeat_requests(ctx: Context, worker: Worker) -> None:
    """Send a worker its pending signals again, in case it never received them."""
    if worker.is_draining:
        ctx.send(worker.session, DrainAsked())
    for task in worker.held.values():
        attempt = lease_of(task)
        if attempt.request is not None:
            message = SignalAsked(task.id, attempt.fence, attempt.request.signal)
            ctx.send(worker.session, message)


def depart(ctx: Context, worker: Worker, why: str, *, is_lost: bool) -> None:
    """Remove a worker first, so that nothing it held returns to it, then settle its leases."""
    ctx.roster.dismiss(worker)
    for task in list(worker.held.values()):
        if is_lost:
            lose(ctx, task, why)
        else:
            release(ctx, task)
    for mate in worker.share.members if worker.share is not None else ():
        if mate is not worker:
            ctx.agenda.workers[mate] = None
    if worker.helps > 0:
        free(ctx, worker)
    ctx.roster.remove(worker, ctx.now_us, why)
    for left in ctx.rooms.worker_left:
        left(ctx, worker)
    offer_shunned(ctx, worker)
