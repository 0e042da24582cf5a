"""Fit: submitted tasks that do not fit the contract of their name.

Owns what is said about them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jackalope.core.effects import Served
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.contract import OnMisfit
from jackalope.core.state.queue import Queue
from jackalope.core.task import TaskSpec

#: What is said about one task: why not, by which it is served, what is doubtful, or nothing.
Answer = Refusal | Served | str | None

_OFF, _REFUSE = OnMisfit.OFF, OnMisfit.REFUSE


def misfits_of(
    queue: Queue, specs: Sequence[TaskSpec], *, are_nodes: bool = False
) -> dict[int, str]:
    """Return what is wrong with tasks of a queue that do not fit, by index."""
    contracts, found = queue.contracts, {}
    if queue.policy.on_misfit is _OFF:
        return {}
    for index, spec in enumerate(specs):
        known = contracts.get(spec.name)
        if known is not None and (
            problem := known.misfit(spec.payload, spec.options, is_node=are_nodes)
        ):
            found[index] = f"the call does not fit {spec.name!r}: {problem}"
    return found


def is_refused(queue: Queue) -> bool:
    """Return whether a task that does not fit is refused, and not only warned about."""
    return queue.policy.on_misfit is _REFUSE


def submit_checked(
    queue: Queue, specs: list[TaskSpec], submit: Callable[[list[TaskSpec]], Sequence[Answer]]
) -> Sequence[Answer]:
    """Submit tasks, but refuse those that do not fit what their names take, or warn about them.

    Returns:
        An answer for each of them; nothing if all are accepted.
    """
    misfits = misfits_of(queue, specs)
    if not misfits:
        return submit(specs)
    if not is_refused(queue):
        answers = submit(specs) or [None] * len(specs)
        return [
            misfits[index] if index in misfits and answer is None else answer
            for index, answer in enumerate(answers)
        ]
    fitting = [spec for index, spec in enumerate(specs) if index not in misfits]
    rest = iter((fitting and submit(fitting)) or [None] * len(fitting))
    return [
        _refusal(queue, spec, misfits[index]) if index in misfits else next(rest)
        for index, spec in enumerate(specs)
    ]


def _refusal(queue: Queue, spec: TaskSpec, problem: str) -> Refusal:
    hint = f"see `jackalope tasks describe {spec.name}`, or set on_misfit of queue {queue.name!r}"
    return Refusal(Code.INVALID, f"task not accepted. {problem}; {hint}")
