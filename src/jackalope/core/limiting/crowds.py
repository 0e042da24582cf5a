"""Crowds: the outcome of tasks that do not wait for a limit.

Owns which task gives way when more have come than may run: the one that came, the one that waits,
or the one that runs. What runs is asked to stop, and what came waits until it has.
"""

from __future__ import annotations

from jackalope.core.context import Context
from jackalope.core.lifecycle import Event
from jackalope.core.shapes.limit import BY_LIMIT, OnFull
from jackalope.core.state.gates import Gate
from jackalope.core.task import Task, lease_of
from jackalope.core.tasks.actions import kill


def settle(ctx: Context) -> None:
    """Let tasks give way at the gates that got some."""
    for gate in dict.fromkeys(ctx.agenda.take(Gate)):
        _thin_out(ctx, gate)


def _thin_out(ctx: Context, gate: Gate) -> None:
    on_full = gate.settings.on_full
    excess = gate.use + gate.queued() - gate.settings.concurrency
    if on_full is OnFull.WAIT or excess <= 0:
        return
    queued = sorted(_queued(ctx, gate), key=lambda task: task.rank)
    if on_full is OnFull.CANCEL_NEWEST:
        leaving = queued[-excess:]
    elif on_full is OnFull.CANCEL_OLDEST:
        leaving = queued[: excess - 1]  # The newest one waits.
    else:
        running = _running(ctx, gate)
        leaving = [*queued[: max(0, excess - len(running))], *running[:excess]]
    by = BY_LIMIT + gate.name[0]
    for task in leaving:
        if ctx.act(task, Event.KILL, by) is None:
            kill(ctx, task, by, _why(gate))


def _queued(ctx: Context, gate: Gate) -> list[Task]:
    tasks = ctx.book.tasks
    found = (tasks.get(task_id) for lane in gate.lanes for task_id in set(lane))
    return [task for task in found if task is not None and task.lane in gate.lanes]


def _running(ctx: Context, gate: Gate) -> list[Task]:
    """Return the tasks that hold a slot of a gate, the oldest first."""
    namespace = next(iter(gate.lanes)).queue.namespace
    held = namespace.gates.held.items()
    running = [ctx.book.tasks[task_id] for task_id, gates in held if gate in gates]
    return sorted(running, key=lambda task: lease_of(task).fence)


def _why(gate: Gate) -> str:
    """Say why a task had to give way."""
    settings = gate.settings
    named = ", ".join(
        f"{key}={value}" for key, value in zip(settings.keys, gate.name[1:], strict=True)
    )
    of = f" for {named}" if named else ""
    return f"{settings.on_full}: at most {settings.concurrency} run at once{of}"
