"""Limiting: how many tasks with the same keys run at once, and how many start in a span of time."""

from jackalope.core.commands.limits import DeclareLimits, DeleteLimit
from jackalope.core.context import Deadline, Room
from jackalope.core.limiting import crowds, declarations

ROOM = Room(
    handlers={DeclareLimits: declarations.declare_limits, DeleteLimit: declarations.delete_limit},
    deadlines=(
        Deadline(lambda ctx: ctx.book.gate_changes.opening, declarations.open_gates),
        Deadline(lambda ctx: ctx.book.gate_changes.filling, declarations.forget_buckets),
    ),
    settle_rest=crowds.settle,
    recovered=declarations.recovered,
)
