"""Configuration: declare queues, pools and limits together, all of them or none.

Owns the dry run: the declarations are decided about in a context with the same queues and limits,
which is then discarded. So they are checked by the same rules by which they are carried out, in
their order, and a refused one leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterable

from jackalope.core.commands import DeclareAll
from jackalope.core.commands.base import Command
from jackalope.core.context import Context
from jackalope.core.effects import Accepted
from jackalope.core.refusals import Refusal
from jackalope.core.state.changes import Counters, to_entity
from jackalope.core.values import unfit


def declare_all(ctx: Context, command: DeclareAll) -> Accepted:
    """Apply all declarations, or none and return the refusals."""
    refused = refusals_of(ctx, command.declarations)
    if refused:
        return Accepted(0, tuple(refused))
    for declaration in command.declarations:
        ctx.decide(declaration)
    return Accepted(len(command.declarations))


def refusals_of(ctx: Context, declarations: Iterable[Command]) -> list[tuple[int, Refusal]]:
    """Return the declarations that would be refused, by index. Changes nothing."""
    trial = _trial_of(ctx)
    answers = [unfit(declaration) or trial.decide(declaration) for declaration in declarations]
    return [(place, each) for place, each in enumerate(answers) if isinstance(each, Refusal)]


def _trial_of(ctx: Context) -> Context:
    """Return a context with the same queues, limits and launchers, and no tasks."""
    trial = Context(ctx.rooms)
    trial.now_us, trial.level = ctx.now_us, ctx.level
    trial.default_policy = ctx.default_policy
    trial.pools.launchers = ctx.pools.launchers
    entities = []
    for namespace in ctx.book.namespaces.values():
        queues, gates = namespace.queues.values(), namespace.gates
        entities += [to_entity(*queue.entity, queue.to_row()) for queue in queues]
        entities += [to_entity("limit", namespace.name, *each) for each in gates.tags.items()]
        entities += [to_entity("key_limit", namespace.name, *each) for each in gates.limits.items()]
    trial.book.restore(Counters(), entities, [])
    return trial
