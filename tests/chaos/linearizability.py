"""Linearizability: whether one order explains what clients and workers saw of a task.

Owns the model of a task and the search. Tasks do not touch each other here, so each has its own
history of some operations, and the search over their orders is short (Wing and Gong, with Lowe's
memory of what was tried). An operation without an answer may have happened at any time after its
call, or not at all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.chaos.history import NEVER, Op

#: What a task is: a phase, and the last fence that a worker had, or of the result.
State = tuple[str, int]
ABSENT: State = ("absent", 0)
OPEN = "open"
STOPPING = "stopping"  # open, and a worker was asked to stop
_OPEN_STATES = frozenset({"held", "waiting", "scheduled", "ready", "assigned", "running", "paused"})


def step(state: State, op: Op) -> Iterator[State]:
    """Yield what a task can be after an operation; nothing if it cannot have been answered so.

    Between being ready and running a task goes to and fro by itself, whenever a lease is given or
    lost, so both are `open` here; and one that was asked to stop can be killed any time later.
    """
    phase, fence = state
    match op.kind:
        case "submit":  # The same id again is the same task.
            is_new = phase == "absent" and not op.outcome.startswith("refused")
            yield (OPEN, 0) if is_new else state
        case "start":  # A worker has heard of a lease: it is newer than any before.
            if phase == OPEN and int(op.value) > fence:
                yield OPEN, int(op.value)
        case "finish":  # Only the last lease can finish.
            if phase == OPEN and int(op.value) == fence:
                yield "succeeded", fence
        case "kill":
            yield from _kill(state, op.outcome)
        case "read":
            seen = OPEN if op.outcome in _OPEN_STATES else op.outcome
            if seen == phase and (not op.value or int(op.value) == fence):
                yield state
        case _:
            raise AssertionError(op)


def _kill(state: State, outcome: str) -> Iterator[State]:
    """Yield what a kill leaves.

    A client that loses its connection asks again, and may hear that the task has ended because of
    what it asked the first time. A worker that was asked to stop may do so whenever it likes.
    """
    phase, fence = state
    if phase == "absent":
        if outcome in {"absent", ""}:
            yield state
    elif phase == OPEN:
        if outcome in {"killed", "refused", ""}:
            yield "killed", fence
        if outcome in {"asked", ""}:
            yield STOPPING, fence
    elif outcome in {"refused", ""}:
        yield state


def check(ops: list[Op]) -> bool:
    """Return whether one order of the operations of a task explains all answers."""
    ops = sorted(ops, key=lambda op: op.call)
    everything = sum(1 << index for index, op in enumerate(ops) if op.back != NEVER)
    seen: set[tuple[int, State]] = set()
    todo: list[tuple[int, State]] = [(0, ABSENT)]
    while todo:
        done, state = todo.pop()
        if done & everything == everything:
            return True
        if (done, state) in seen:
            continue
        seen.add((done, state))
        # Whoever was called before the first answer that is due may be next.
        due = min(op.back for index, op in enumerate(ops) if not done >> index & 1)
        for index, op in enumerate(ops):
            if op.call > due:
                break
            if not done >> index & 1:
                todo += [(done | 1 << index, after) for after in _after(state, op)]
    return False


def _after(state: State, op: Op) -> Iterator[State]:
    phase, fence = state
    if phase != STOPPING:
        yield from step(state, op)
        return
    for after in step((OPEN, fence), op):
        yield (STOPPING, after[1]) if after[0] == OPEN else after
    yield from step(("killed", fence), op)


def violations(ops: Iterable[Op]) -> dict[str, list[Op]]:
    """Return the tasks whose history nothing explains, with that history."""
    tasks: dict[str, list[Op]] = defaultdict(list)
    for op in ops:
        if op.kind != "publish":
            tasks[op.task].append(op)
    return {task: history for task, history in tasks.items() if not check(history)}
