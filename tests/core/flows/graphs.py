"""Flows for a core driven by hand: nodes have names, and are reported on by them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jackalope.core.commands import (
    Action,
    ActOnTasks,
    Answer,
    AnswerSignal,
    Fail,
    FailAttempts,
    Finish,
    FinishAttempts,
    Verdict,
)
from jackalope.core.commands.flows import AddNodes, FlowNode, SubmitFlow
from jackalope.core.effects import Answered
from jackalope.core.lifecycle import State
from jackalope.core.shapes.flow import (
    Compensation,
    FlowSettings,
    NodeSettings,
    compensation_id,
    node_id,
)
from jackalope.core.state.flows import settings_of
from jackalope.core.task import Body, Error, Task, lease_of
from tests.core.driving import Driver, spec, task_id

UNDO = Compensation("q", "undo")


def node(
    name: str,
    after: Iterable[str] = (),
    *,
    queue: str = "q",
    group: str = "",
    groups: Iterable[str] = (),
    need: int = 0,
    undo: Compensation | None = None,
    **fields: Any,
) -> FlowNode:
    settings = NodeSettings(name, group, tuple(groups), need, undo)
    return FlowNode(spec(0, queue, name=name, **fields), settings, tuple(after))


class FlowDriver(Driver):
    """A driver with a worker that takes whatever is ready, and flows by number."""

    def __init__(self, *, is_checked: bool = True, slots: int = 1_000) -> None:
        super().__init__(is_checked=is_checked)
        if slots:
            self.join("w", 1, slots=slots)

    def flow(
        self, number: int, *nodes: FlowNode, flow: dict[str, Any] | None = None, **settings: Any
    ) -> Answered | None:
        command = SubmitFlow(
            0, spec(number, **(flow or {})), FlowSettings(**settings), list(nodes), by="ada"
        )
        return self.send(command)

    def add(self, number: int, *nodes: FlowNode, close: tuple[str, ...] = ()) -> Answered | None:
        return self.send(AddNodes(0, task_id(number), list(nodes), close, by="ada"))

    def node(self, number: int, name: str) -> Task:
        return self.core.book.tasks[node_id(task_id(number), name)]

    def undo(self, number: int, name: str) -> Task:
        return self.core.book.tasks[compensation_id(task_id(number), name)]

    def states(self, number: int) -> dict[str, State]:
        nodes = [task for task in self.core.book.tasks.values() if task.options.node is not None]
        mine = [task for task in nodes if task.options.parent == task_id(number)]
        return {settings_of(task).name: task.state for task in mine if not _is_undo(task)}

    def done(self, task: Task, result: Body = b"") -> Answered | None:
        finish = Finish(task.id, lease_of(task).fence, result)
        return self.send(FinishAttempts(session=1, attempts=[finish]))

    def end(self, number: int, name: str, result: Body = b"") -> Answered | None:
        return self.done(self.node(number, name), result)

    def break_(self, number: int, name: str, verdict: Verdict = Verdict.DEAD) -> Answered | None:
        task = self.node(number, name)
        fail = Fail(task.id, lease_of(task).fence, Error("ValueError", "no"), verdict)
        return self.send(FailAttempts(session=1, attempts=[fail]))

    def stopped(self, task: Task) -> Answered | None:
        fence = lease_of(task).fence
        return self.send(AnswerSignal(0, task.id, fence, Answer.STOPPED, session=1))

    def act_on(self, action: Action, number: int, name: str) -> Answered | None:
        tasks = (node_id(task_id(number), name),)
        return self.send(ActOnTasks(ref=0, action=action, tasks=tasks, by="ada"))

    def given(self) -> dict[str, list[tuple[str, bytes]]]:
        """Return what the last command gave out, each with its inputs by name."""
        return {
            each.name: [
                (of.node, bytes(of.result) if isinstance(of.result, bytes) else b"blob")
                for of in each.inputs
            ]
            for each in self.assignments(1)
        }


def _is_undo(task: Task) -> bool:
    return bool(settings_of(task).undoes)
