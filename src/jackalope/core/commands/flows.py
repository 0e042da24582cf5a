"""Commands about flows: submit a graph of tasks at once, and add to one that runs."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from jackalope.core.api_key import Permission
from jackalope.core.commands.base import Limited, Scope
from jackalope.core.ids import TaskId
from jackalope.core.shapes.flow import FlowSettings, NodeSettings
from jackalope.core.task import TaskSpec


class FlowNode(msgspec.Struct, array_like=True, gc=False):
    """A node: the task, what makes it a node, and the nodes that it waits for by name.

    The id of the task is derived from the flow and the name of the node, whatever is given.
    """

    spec: TaskSpec
    node: NodeSettings
    after: tuple[str, ...] = ()


class SubmitFlow(Limited, array_like=True):
    """Submit a flow with its nodes: all of it, or nothing.

    `flow` is the task that stands for the whole. Saying the same again is harmless.
    """

    needs = (Permission.SUBMIT_TASKS,)
    scope = Scope.QUEUES

    ref: int
    flow: TaskSpec
    settings: FlowSettings
    nodes: list[FlowNode]

    def touches(self) -> Iterable[str]:
        return {self.flow.queue, *_queues(self.nodes)}


class AddNodes(Limited, array_like=True):
    """Add nodes to the open groups of a flow, and close groups after that: all of it, or nothing.

    If `only` is set, a flow in another queue is treated as nonexistent.
    """

    needs = (Permission.SUBMIT_TASKS,)
    scope = Scope.QUEUES

    ref: int
    flow: TaskId
    nodes: list[FlowNode] = msgspec.field(default_factory=list)
    close: tuple[str, ...] = ()

    def touches(self) -> Iterable[str]:
        return _queues(self.nodes)


AnyFlow = SubmitFlow | AddNodes


def specs_in(command: AnyFlow) -> list[TaskSpec]:
    """Return the tasks in a command, the flow itself included."""
    specs = [each.spec for each in command.nodes]
    return [command.flow, *specs] if isinstance(command, SubmitFlow) else specs


def _queues(nodes: list[FlowNode]) -> set[str]:
    queues = set()
    for each in nodes:
        queues.add(each.spec.queue)
        if each.node.compensation is not None:
            queues.add(each.node.compensation.queue)
    return queues
