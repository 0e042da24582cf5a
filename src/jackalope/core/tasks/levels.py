"""Levels: what a submit must not have while a member of the cluster is too old to read it.

Owns the refusals. Which level brought what is told in `records`.
"""

from __future__ import annotations

from jackalope.core.context import Context
from jackalope.core.records import CALLBACKS_LEVEL, FLOW_CONTROL_LEVEL
from jackalope.core.refusals import Code, Refusal
from jackalope.core.task import Options


def too_old_for_callbacks(ctx: Context) -> Refusal | None:
    """Refuse what a member of the cluster could not read."""
    if ctx.level >= CALLBACKS_LEVEL:
        return None
    message = f"callbacks and triggers need level {CALLBACKS_LEVEL} of the log, which is at "
    return Refusal(Code.INVALID, f"{message}{ctx.level}; run `jackalope cluster upgrade`")


def too_old_for_limits(ctx: Context) -> Refusal | None:
    """Refuse what a member of the cluster could not read."""
    if ctx.level >= FLOW_CONTROL_LEVEL:
        return None
    message = (
        f"keys, limits by key and needs have level {FLOW_CONTROL_LEVEL} of the log, which is at "
    )
    return Refusal(Code.INVALID, f"{message}{ctx.level}; run `jackalope cluster upgrade`")


def too_old_for_options(ctx: Context, options: Options) -> Refusal | None:
    """Refuse options that a member of the cluster could not read."""
    if ctx.level >= FLOW_CONTROL_LEVEL or not (options.keys or options.needs):
        return None
    return too_old_for_limits(ctx)
