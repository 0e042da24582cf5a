"""Verbs of flows, and how their nodes and groups are written.

A node is `name`, then in this order what it has: `@group` that it belongs to, `>a+b+@group` that it
waits for, `?2` of which must succeed (`?*` for whatever ends), `~task` that undoes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from jackalope.core.commands.flows import AddNodes, FlowNode, SubmitFlow
from jackalope.core.ids import NO_TASK
from jackalope.core.shapes.flow import (
    Compensation,
    FlowSettings,
    GroupSettings,
    NodeSettings,
    OnFailure,
)
from jackalope.core.task import OnDependency, Options, TaskSpec
from tests.scenarios.language import Order, ScriptError

if TYPE_CHECKING:
    from tests.scenarios.stage import Stage

_NODE = re.compile(r"([\w-]+)(?:@(\w+))?(?:>([\w@+-]+))?(?:\?(\d+|\*))?(?:~(\w+))?")
_GROUP = re.compile(r"(\w+)(?::(\d+))?(\+?)")


def flow(stage: Stage, order: Order) -> list[str]:
    task, queue = stage.task(order.word("a flow")), order.text("queue")
    options = Options(expires_at_us=stage.moment(order, "expires_in"))
    settings = FlowSettings(
        OnFailure(order.text("on_failure", "continue")),
        order.text("output"),
        tuple(map(_group, order.list("groups"))),
    )
    nodes = [_node(text, queue) for text in order.list("nodes")]
    spec = TaskSpec(task, queue, order.text("name"), options=options)
    return stage.send(SubmitFlow(0, spec, settings, nodes, **stage.actor(order)))


def add(stage: Stage, order: Order) -> list[str]:
    task, queue = stage.task(order.word("a flow")), order.text("queue")
    nodes = [_node(text, queue) for text in order.list("nodes")]
    return stage.send(AddNodes(0, task, nodes, order.list("close"), **stage.actor(order)))


def _node(text: str, queue: str) -> FlowNode:
    found = _NODE.fullmatch(text)
    if found is None:
        raise ScriptError(f"{text!r} is not a node")
    name, group, after, need, undo = (part or "" for part in found.groups())
    waits = after.split("+") if after else []
    settings = NodeSettings(
        name,
        group,
        tuple(each[1:] for each in waits if each.startswith("@")),
        int(need) if need.isdigit() else 0,
        Compensation(queue, undo) if undo else None,
    )
    on_dependency = OnDependency.RUN if need == "*" else OnDependency.DEAD
    spec = TaskSpec(NO_TASK, queue, options=Options(on_dependency=on_dependency))
    return FlowNode(spec, settings, tuple(each for each in waits if not each.startswith("@")))


def _group(text: str) -> GroupSettings:
    found = _GROUP.fullmatch(text)
    if found is None:
        raise ScriptError(f"{text!r} is not a group: name, :width, + if it is open")
    name, width, is_open = found.groups()
    return GroupSettings(name, int(width or 0), bool(is_open))


FLOWING: dict[str, Callable[[Stage, Order], list[str]]] = {"flow": flow, "add": add}
