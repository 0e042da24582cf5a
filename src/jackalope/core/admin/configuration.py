"""Configuration: declare queues, pools and limits together, all of them or none.

Owns the dry run: the declarations are handled by a core with the same queues and limits, which is
then discarded. So they are checked by the same rules by which they are carried out, in their
order, and a refused one leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from jackalope.core.effects import Accepted, Reply
from jackalope.core.refusals import Refusal
from jackalope.core.state.changes import Counters, LimitRow

if TYPE_CHECKING:
    from jackalope.core.commands import AnyCommand, DeclareAll
    from jackalope.core.commands.base import Command
    from jackalope.core.core import Core


def declare_all(core: Core, command: DeclareAll) -> None:
    """Carry out every declaration, or none and report which are refused."""
    refused = refusals_of(core, command.declarations)
    if not refused:
        for declaration in command.declarations:
            core.carry_out(declaration)
    count = 0 if refused else len(command.declarations)
    core.reply(command, Accepted(count, tuple(refused)))


def refusals_of(core: Core, declarations: Iterable[Command]) -> list[tuple[int, Refusal]]:
    """Return which declarations would be refused, by their places, and why. Changes nothing."""
    trial = _trial_of(core)
    refused: list[tuple[int, Refusal]] = []
    for place, declaration in enumerate(declarations):
        declaration.session, declaration.ref = 0, 1
        _, effects = trial.handle(core.now_us, cast("AnyCommand", declaration))
        declaration.ref = 0
        replies = (effect.body for effect in effects if isinstance(effect, Reply))
        refused += [(place, body) for body in replies if isinstance(body, Refusal)]
    return refused


def _trial_of(core: Core) -> Core:
    """Return a core with the queues, limits and launchers of another one, and no task."""
    trial = type(core)()
    trial.default_policy = core.default_policy
    trial.pools.launchers = core.pools.launchers
    namespaces = core.book.namespaces.values()
    trial.book.restore(
        Counters(),
        [queue.to_row() for namespace in namespaces for queue in namespace.queues.values()],
        [
            LimitRow(namespace.name, tag, limit)
            for namespace in namespaces
            for tag, limit in namespace.limits.items()
        ],
        [],
    )
    return trial
