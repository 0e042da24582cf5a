"""Pools: which workers should run for which key."""

from jackalope.core.commands import ActOnGroup, DeclarePool, DeletePool, FollowPools, ReportLaunches
from jackalope.core.context import Deadline, Room, each
from jackalope.core.pools import launches, lifecycle

ROOM = Room(
    handlers={
        DeclarePool: lifecycle.declare_pool,
        DeletePool: lifecycle.delete_pool,
        ActOnGroup: lifecycle.act_on_group,
        FollowPools: launches.follow_pools,
        ReportLaunches: launches.report_launches,
    },
    deadlines=(Deadline(lambda ctx: ctx.pools.timers, each(lifecycle.look_at_due)),),
    settle_rest=lifecycle.settle,
    before_assign=lifecycle.notice,
    session_ended=lambda ctx, session: ctx.pools.forget_session(session),
    worker_joined=lifecycle.adopt,
    worker_left=lifecycle.abandon,
    recovered=lifecycle.recall_pools,
)
