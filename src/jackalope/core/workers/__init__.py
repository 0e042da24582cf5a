"""Workers: how they join, fall silent and come back, and how they help each other."""

from jackalope.core.commands import (
    CancelClaim,
    ClaimTasks,
    CloseSession,
    DrainWorker,
    EndHelp,
    Heartbeat,
    JoinWorker,
    LeaveWorker,
    RequestHelpers,
)
from jackalope.core.context import Deadline, Room, each
from jackalope.core.workers import fanout, sessions

ROOM = Room(
    handlers={
        JoinWorker: sessions.join_worker,
        Heartbeat: sessions.heartbeat,
        CloseSession: sessions.close_session,
        DrainWorker: sessions.drain_worker,
        RequestHelpers: fanout.request_helpers,
    },
    reports={
        ClaimTasks: sessions.claim_tasks,
        CancelClaim: sessions.cancel_claim,
        LeaveWorker: sessions.leave_worker,
        EndHelp: fanout.end_help,
    },
    deadlines=(
        Deadline(lambda ctx: ctx.roster.leases, each(sessions.check_lease)),
        Deadline(lambda ctx: ctx.roster.resumes, each(sessions.give_up_resume)),
        Deadline(lambda ctx: ctx.roster.claims, each(sessions.expire_claims_of)),
        Deadline(lambda ctx: ctx.roster.orphans, each(sessions.give_up_orphan)),
    ),
    before_assign=fanout.lend,
    session_ended=fanout.forget_session,
    recovered=sessions.settle_leases,
    stalled=sessions.forgive_silence,
)
