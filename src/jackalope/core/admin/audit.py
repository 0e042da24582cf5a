"""The audit log: note what administrators do.

Owns when an act is noted: in the batch of records in which it is done, with its outcome. What comes
to nothing because of its sender's rights is noted by the broker, without a command.
"""

from __future__ import annotations

import msgspec

from jackalope.core.commands.namespaces import NoteAct
from jackalope.core.context import Context, Missing
from jackalope.core.effects import Accepted, Answered
from jackalope.core.records import SINCE, ActNoted, is_lasting
from jackalope.core.refusals import Refusal
from jackalope.core.values import unfit


def note_act(ctx: Context, command: NoteAct) -> Answered | None:
    """Do what the act is about, and note how it went."""
    act, inner = command.act, command.command
    answer: Answered | None = Accepted()
    if inner is not None:
        before = len(ctx.records)
        inner.session, inner.ref = command.session, command.ref
        answer = unfit(inner) or ctx.decide(inner)
        if isinstance(answer, Refusal):
            act = msgspec.structs.replace(act, outcome=str(answer.code))
        elif not any(map(is_lasting, ctx.records[before:])) and not ctx.agenda.rest:
            return answer  # It was so already.
    if ctx.level >= SINCE[ActNoted]:
        ctx.record(ActNoted(ctx.now_us, act))
    return answer


def missing(ctx: Context, command: NoteAct) -> Missing:
    """Return what of storage the command of an act needs."""
    inner = command.command
    look = None if inner is None else ctx.rooms.missing.get(type(inner))
    return Missing("") if look is None else look(ctx, inner)
