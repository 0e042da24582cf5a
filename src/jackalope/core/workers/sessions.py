"""Sessions: workers that come, go, fall silent and come back.

Owns who counts as alive. Theory of operation:

A worker is known by its name; a session is one connection of it. The first join of a session
reconciles both sides: what the worker reports as running and the book has as held goes on;
what only the book has is lost; what only the worker has must be dropped. Joining again in the same
session (a repeated message) settles nothing, because what was assigned since then is on its way.

Death is never guessed from how long a task takes. A closed session is given up after its grace, a
silent one after its lease, and each heartbeat or report proves life. When the broker itself was not
running for a while (a suspended machine, a clock that jumped), that time counts against no worker:
see `Core.handle`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jackalope.core.admin.queues import open_queues
from jackalope.core.commands import (
    CancelClaim,
    ClaimTasks,
    CloseSession,
    DrainWorker,
    Heartbeat,
    Held,
    JoinWorker,
    LeaveWorker,
    Recover,
)
from jackalope.core.durations import NEVER
from jackalope.core.effects import (
    Accepted,
    DeliveryTimedOut,
    DrainAsked,
    Joined,
    LeaseLost,
    NothingToClaim,
    SendToSession,
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
    SLOTS_PER_WORKER_MAX,
    WORKERS_MAX,
)
from jackalope.core.policy import OnRestart
from jackalope.core.pools.lifecycle import abandon, adopt, recall_pools, replace_stalled
from jackalope.core.refusals import Code, Refusal
from jackalope.core.state.roster import Claim, Consumer, Worker
from jackalope.core.task import lease_of
from jackalope.core.tasks.assign import drain, feed, offer_shunned
from jackalope.core.tasks.attempts import lose, release
from jackalope.core.workers.fanout import forget_session, free, resume_help

if TYPE_CHECKING:
    from jackalope.core.core import Core


def join_worker(core: Core, command: JoinWorker, consumer: Consumer | None = None) -> None:
    """Let a worker in, for the first time or again."""
    refusal = _unfit(core, command)
    if refusal is not None:
        core.reply(command, refusal)
        return
    refusal = open_queues(core, command.namespace, command.queues, command.worker)
    if refusal is not None:
        core.reply(command, refusal)
        return
    worker = core.roster.workers.get((command.namespace, command.worker))
    if worker is None:
        worker = Worker(core.book.namespaces[command.namespace], command.worker)
        worker.joined_us = core.now_us
    worker.consumer = consumer
    is_repeated = worker.session == command.session
    offer_shunned(core, worker)
    _bind(core, worker, command)
    resumed, drop = ((), ()) if is_repeated else _settle(core, worker, command.holding)
    if not is_repeated:
        resume_help(core, worker, command.helps)
    core.reply(command, Joined(resumed, drop))
    adopt(core, worker)
    _repeat_requests(core, worker)
    core.hungry[worker] = None
    offer_shunned(core, worker)


def heartbeat(core: Core, command: Heartbeat) -> None:
    """Record that a worker is alive; ask one that is not known any more to join again."""
    worker = core.worker_of(command)
    if worker is None:
        core.effects.append(SendToSession(command.session, LeaseLost()))
        return
    if command.stats:
        worker.stats = command.stats
    core.reply(command, Accepted())


def claim_tasks(core: Core, command: ClaimTasks) -> None:
    """Give a worker a credit beyond its slots, for a while."""
    worker = core.worker_of(command)
    if worker is None:
        return
    if not 0 < command.count <= ITEMS_PER_COMMAND_MAX:
        message = f"count: must be 1 to {ITEMS_PER_COMMAND_MAX}, got {command.count}"
        core.reply(command, Refusal(Code.INVALID, message))
        return
    if len(worker.claims) >= CLAIMS_PER_WORKER_MAX:
        message = f"{len(worker.claims)} claims are open; wait for an answer to one"
        core.reply(command, Refusal(Code.TOO_MANY, message))
        return
    wait_us = min(max(command.wait_us, 0), CLAIM_WAIT_US_MAX)
    worker.claims.append(Claim(command.ref, command.count, core.now_us + wait_us))
    feed(core, worker)
    expire_claims(core, worker)


def cancel_claim(core: Core, command: CancelClaim) -> None:
    """Take back what is left of a credit. What was given for it already stays with the worker."""
    worker = core.worker_of(command)
    if worker is None:
        return
    for claim in [claim for claim in worker.claims if claim.ref == command.claim]:
        worker.claims.remove(claim)
    expire_claims(core, worker)
    core.reply(command, Accepted())


def expire_claims(core: Core, worker: Worker) -> None:
    """Answer the claims of a worker whose time is over."""
    for claim in [claim for claim in worker.claims if claim.until_us <= core.now_us]:
        worker.claims.remove(claim)
        core.reply(Heartbeat(session=worker.session, ref=claim.ref), NothingToClaim())
    core.set_claim_timer(worker)
    if worker.crew is not None:
        worker.crew.place(worker)
    offer_shunned(core, worker)


def leave_worker(core: Core, command: LeaveWorker) -> None:
    """Let a worker go, and take back what it still holds."""
    worker = core.worker_of(command)
    if worker is None:
        return
    _depart(core, worker, "left", is_lost=False)
    core.reply(command, Accepted())


def close_session(core: Core, command: CloseSession) -> None:
    """Wait for a worker whose connection is gone to come back."""
    core.watches.forget_session(command.session)
    core.pools.forget_session(command.session)
    core.waiting.pop(command.session, None)
    for name in core.owned.pop(command.session, ()):
        core.deserted[name] = None
    if core.fanouts:
        forget_session(core, command.session)
    worker = core.roster.sessions.pop(command.session, None)
    if worker is None:
        return
    core.roster.claims.cancel(worker.session)
    core.roster.deliveries.cancel(worker.session)
    worker.claims.clear()
    worker.session = 0
    if worker.crew is not None:
        worker.crew.place(worker)
    name = (worker.namespace.name, worker.id)
    core.roster.leases.cancel(name)
    if worker.grace_us:
        core.roster.resumes.set(name, core.now_us + worker.grace_us)
    else:
        _depart(core, worker, "closed", is_lost=True)


def drain_worker(core: Core, command: DrainWorker) -> None:
    """Give a worker nothing more, and notify it."""
    worker = core.roster.workers.get((command.namespace, command.worker))
    if worker is None:
        message = f"no worker {command.worker!r} in namespace {command.namespace!r}"
        core.reply(command, Refusal(Code.UNKNOWN_WORKER, message + "; list the workers"))
        return
    drain(core, worker)
    core.reply(command, Accepted())


def check_lease(core: Core, name: tuple[str, str]) -> None:
    """Give a silent worker up, or look again when its lease would be over."""
    worker = core.roster.workers.get(name)
    if worker is None or not worker.session:
        return
    until_us = worker.heard_us + worker.lease_us
    if until_us > core.now_us:
        core.roster.leases.set(name, until_us)
        return
    core.effects.append(SendToSession(worker.session, LeaseLost()))
    _depart(core, worker, "silent", is_lost=True)


def check_deliveries(core: Core, session: int) -> None:
    """Give up a consumer that has held a task for too long, or look again when it would have."""
    worker = core.roster.sessions.get(session)
    if worker is None:
        return
    ends = [
        (lease_of(task).assigned_us + timeout_us, timeout_us, task.id)
        for task in worker.held.values()
        if (timeout_us := task.options.timeout_us or task.queue.policy.timeout_us)
    ]
    until_us, timeout_us, task_id = min(ends, default=(NEVER, 0, b""))
    if until_us > core.now_us:
        if ends:
            core.roster.deliveries.set(session, until_us)
        return
    core.effects.append(SendToSession(session, DeliveryTimedOut(TaskId(task_id), timeout_us)))
    replace_stalled(core, worker)
    _depart(core, worker, "delivery timed out", is_lost=True)


def give_up_resume(core: Core, name: tuple[str, str], why: str = "closed") -> None:
    """Give up a worker that did not come back within its grace, or whose end is known."""
    worker = core.roster.workers.get(name)
    if worker is not None and not worker.session:
        _depart(core, worker, why, is_lost=True)


def recover(core: Core, command: Recover) -> None:
    """Settle what was leased when the broker stopped: keep it for the grace, or put it back."""
    for namespace in core.book.namespaces.values():
        for held in list(namespace.leases.values()):
            for task in list(held.values()):
                policy = task.queue.policy
                if policy.on_restart is OnRestart.REQUEUE:
                    release(core, task, by="restart of the broker")
                else:
                    core.roster.orphans.set(task.id, core.now_us + policy.restart_grace_us)
        for queue in namespace.queues.values():
            core.watch_idle(queue)
    recall_pools(core)
    core.reply(command, Accepted())


def forgive_silence(core: Core, gap_us: int) -> None:
    """Extend the deadlines of workers by the time in which the broker did not run."""
    for worker in core.roster.workers.values():
        worker.heard_us += gap_us
    for timers in (core.roster.orphans, core.roster.resumes):
        for key, at_us in list(timers.items()):
            timers.set(key, at_us + gap_us)  # type: ignore[arg-type]


def _unfit(core: Core, command: JoinWorker) -> Refusal | None:
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
    if not command.session:
        problems.append("session: a worker joins over a session")
    bound = core.roster.sessions.get(command.session)
    if bound is not None and (bound.namespace.name, bound.id) != (
        command.namespace,
        command.worker,
    ):
        problems.append(f"session: it already belongs to worker {bound.id!r}")
    if problems:
        return Refusal(Code.INVALID, "worker not let in. " + "; ".join(problems))
    worker = core.roster.workers.get((command.namespace, command.worker))
    if worker is not None and 0 < command.generation < worker.generation:
        message = f"worker {command.worker!r} has joined over a later connection; drop this one"
        return Refusal(Code.STALE_SESSION, message)
    if worker is None and len(core.roster.workers) >= WORKERS_MAX:
        return Refusal(Code.TOO_MANY, f"there are {WORKERS_MAX} workers; try another broker")
    if command.only and not _queues_of(core, command).issubset(command.only):
        message = f"worker {command.worker!r} is somebody else's; choose another name"
        return Refusal(Code.FORBIDDEN, message)
    return None


def _queues_of(core: Core, command: JoinWorker) -> set[str]:
    """Return the queues that a worker of this name serves, or has leases of."""
    worker = core.roster.workers.get((command.namespace, command.worker))
    served = set() if worker is None else set(worker.queues)
    namespace = core.book.namespaces.get(command.namespace)
    held = {} if namespace is None else namespace.leases.get(command.worker, {})
    return served | {task.queue.name for task in held.values()}


def _bind(core: Core, worker: Worker, command: JoinWorker) -> None:
    """Tie a worker to its new session and to what it reports about itself."""
    roster = core.roster
    if worker.session and worker.session != command.session:
        roster.sessions.pop(worker.session, None)
        roster.claims.cancel(worker.session)
        worker.claims.clear()
        core.effects.append(SendToSession(worker.session, SessionReplaced()))
    roster.dismiss(worker)
    worker.session = command.session
    worker.generation = command.generation
    worker.slots = command.slots
    worker.is_ready = command.ready
    worker.labels = command.labels
    worker.secret = command.secret
    worker.lease_us, worker.grace_us = command.lease_us, command.grace_us
    worker.heard_us = core.now_us
    name = (command.namespace, command.worker)
    names = None if command.names is None else frozenset(command.names)
    roster.enroll(worker, command.queues, command.keys, names)
    roster.sessions[command.session] = worker
    roster.resumes.cancel(name)
    roster.leases.set(name, core.now_us + worker.lease_us)


def _settle(
    core: Core, worker: Worker, holding: list[Held]
) -> tuple[tuple[Held, ...], tuple[Held, ...]]:
    """Compare what a worker runs with the book, and return what goes on and what not."""
    resumed, drop = [], []
    for held in holding:
        task = worker.held.get(held.task)
        if task is not None and lease_of(task).fence == held.fence:
            resumed.append(held)
            core.roster.orphans.cancel(held.task)
        else:
            drop.append(held)
    kept = {held.task for held in resumed}
    for task in [task for task_id, task in worker.held.items() if task_id not in kept]:
        lose(core, task, "joined again without it")
    return tuple(resumed), tuple(drop)


def _repeat_requests(core: Core, worker: Worker) -> None:
    """Send a worker its pending requests again, in case it never received them."""
    if worker.is_draining:
        core.effects.append(SendToSession(worker.session, DrainAsked()))
    for task in worker.held.values():
        attempt = lease_of(task)
        if attempt.request is not None:
            message = SignalAsked(task.id, attempt.fence, attempt.request.signal)
            core.effects.append(SendToSession(worker.session, message))


def _depart(core: Core, worker: Worker, why: str, *, is_lost: bool) -> None:
    """Take a worker out first, so that nothing it held can come back to it, then settle that."""
    core.roster.dismiss(worker)
    for task in list(worker.held.values()):
        if is_lost:
            lose(core, task, why)
        else:
            release(core, task)
    if worker.consumer is not None:
        core.deserted[worker.namespace.name, worker.queues[0]] = None
    for mate in worker.share.members if worker.share is not None else ():
        if mate is not worker:
            core.hungry[mate] = None
    if worker.helps > 0:
        free(core, worker)
    core.roster.remove(worker, core.now_us, why)
    abandon(core, worker)
    offer_shunned(core, worker)
