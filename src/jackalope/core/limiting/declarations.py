"""Declarations: limits are created, changed and deleted, and their gates open in time.

Owns which limits are accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jackalope.core.commands.limits import DeclareLimits, DeleteLimit
from jackalope.core.context import Context
from jackalope.core.effects import Accepted
from jackalope.core.limits import LIMITS_PER_NAMESPACE_MAX
from jackalope.core.namespaces import no_namespace
from jackalope.core.records import FLOW_CONTROL_LEVEL
from jackalope.core.records.limits import BucketsFilled, LimitDeleted, LimitSet
from jackalope.core.refusals import Code, Refusal
from jackalope.core.settings import change
from jackalope.core.shapes.limit import Limit, LimitSettings, limit_problems
from jackalope.core.state.gates import gate_name


def declare_limits(ctx: Context, command: DeclareLimits) -> Accepted | Refusal:
    known = _limits(ctx, command.namespace)
    wanted: dict[str, LimitSettings] = {}
    problems = []
    for name, changes in command.limits.items():
        old = known[name].settings if name in known else LimitSettings()
        settings = _settings(name, old, changes)
        if isinstance(settings, list):
            where = f"{name}: " if len(command.limits) > 1 else ""
            problems += [where + problem for problem in settings]
        else:
            wanted[name] = settings
    if problems:
        return Refusal(Code.INVALID, "limits not changed. " + "; ".join(problems))
    if len(known.keys() | wanted.keys()) > LIMITS_PER_NAMESPACE_MAX:
        message = f"{len(known)} limits, at most {LIMITS_PER_NAMESPACE_MAX}; delete one first"
        return Refusal(Code.TOO_MANY, message)
    refusal = _too_old(ctx) or no_namespace(ctx, command.namespace)
    if refusal is not None:
        return refusal
    for name, settings in wanted.items():
        if name not in known or known[name].settings != settings:
            ctx.record(LimitSet(ctx.now_us, command.namespace, name, settings, command.by))
    return Accepted(len(wanted))


def delete_limit(ctx: Context, command: DeleteLimit) -> Accepted:
    """Delete a limit; one that is not there is gone already."""
    if command.name in _limits(ctx, command.namespace):
        ctx.record(LimitDeleted(ctx.now_us, command.namespace, command.name, command.by))
    return Accepted()


def open_gates(ctx: Context, due: Iterator[tuple[str, str]]) -> None:
    """Let tasks start whose tokens have come, or whose gate a worker had closed until now."""
    for namespace, text in due:
        ctx.book.namespaces[namespace].gates.look(gate_name(text), ctx.book.tasks)
    ctx.offer_opened()


def forget_buckets(ctx: Context, due: Iterator[tuple[str, str]]) -> None:
    """Forget buckets that are full."""
    filled: dict[str, list[str]] = {}
    for namespace, text in due:
        filled.setdefault(namespace, []).append(text)
    for namespace, texts in filled.items():
        ctx.record(BucketsFilled(ctx.now_us, namespace, tuple(texts)))


def recovered(ctx: Context) -> None:
    """Forget buckets of a time that is still to come: the clock was set back."""
    for namespace in ctx.book.namespaces.values():
        ahead = [
            gate.text()
            for gate in namespace.gates.gates.values()
            if gate.bucket is not None and gate.bucket.at_us > ctx.now_us
        ]
        if ahead:
            ctx.record(BucketsFilled(ctx.now_us, namespace.name, tuple(ahead)))


def _too_old(ctx: Context) -> Refusal | None:
    """Refuse what a member of the cluster could not read."""
    if ctx.level >= FLOW_CONTROL_LEVEL:
        return None
    message = f"limits by key need level {FLOW_CONTROL_LEVEL} of the log, which is at {ctx.level}"
    return Refusal(Code.INVALID, message + "; run `jackalope cluster upgrade`")


def _limits(ctx: Context, namespace: str) -> dict[str, Limit]:
    found = ctx.book.namespaces.get(namespace)
    return {} if found is None else found.gates.limits


def _settings(
    name: str, old: LimitSettings, changes: Mapping[str, object]
) -> LimitSettings | list[str]:
    settings = change(old, changes, "a limit")
    if isinstance(settings, list):
        return settings
    return limit_problems(name, settings) or settings
