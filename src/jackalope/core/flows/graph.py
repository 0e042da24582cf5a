"""The graph of a flow: what is wrong with one by itself.

Owns the checks of names, groups and edges, pure functions of what was submitted. Every problem is
found, so that a refusal lists all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from jackalope.core.commands.flows import FlowNode
from jackalope.core.limits import (
    COUNT_MAX,
    DEPENDENCIES_PER_TASK_MAX,
    FLOW_COMPENSATIONS_MAX,
    FLOW_GROUPS_MAX,
    FLOW_NODES_PER_COMMAND_MAX,
    HEADERS_BYTES_MAX,
    INLINE_BYTES_MAX,
    NAME_CHARS_MAX,
)
from jackalope.core.shapes.flow import Compensation, FlowSettings, GroupSettings
from jackalope.core.task import NO_OPTIONS, Options
from jackalope.core.tasks.submit import spec_problems
from jackalope.core.values import value_problem


def settings_problems(settings: FlowSettings, nodes: list[FlowNode]) -> list[str]:
    """List what is wrong with the settings of a flow."""
    problems = []
    if not nodes and not any(group.is_open for group in settings.groups):
        problems.append("nodes: a flow has at least one node, or an open group")
    if len(settings.groups) > FLOW_GROUPS_MAX:
        problems.append(f"groups: {len(settings.groups)}, at most {FLOW_GROUPS_MAX}")
    counts = Counter(group.name for group in settings.groups)
    for name, count in counts.items():
        if count > 1:
            problems.append(f"group {name!r}: declared {count} times")
        if not 0 < len(name) <= NAME_CHARS_MAX:
            problems.append(f"group {name[:40]!r}: must have 1 to {NAME_CHARS_MAX} characters")
    problems += [
        f"group {group.name!r}: width must be 0 to {COUNT_MAX}, got {group.width}"
        for group in settings.groups
        if not 0 <= group.width <= COUNT_MAX
    ]
    if settings.digest:
        problems.append("digest: set by the broker")
    if settings.output and all(each.node.name != settings.output for each in nodes):
        problems.append(f"output: there is no node {settings.output!r}")
    return problems


def node_problems(nodes: list[FlowNode], groups: Mapping[str, GroupSettings]) -> list[str]:
    """List what is wrong with nodes, each by itself."""
    problems = []
    if len(nodes) > FLOW_NODES_PER_COMMAND_MAX:
        problems.append(
            f"nodes: {len(nodes)}, at most {FLOW_NODES_PER_COMMAND_MAX} at once; add the rest to "
            "an open group"
        )
    undoable = sum(each.node.compensation is not None for each in nodes)
    if undoable > FLOW_COMPENSATIONS_MAX:
        problems.append(f"compensations: {undoable}, at most {FLOW_COMPENSATIONS_MAX}")
    counts = Counter(each.node.name for each in nodes)
    problems += [f"node {name!r}: there are {count}" for name, count in counts.items() if count > 1]
    for each in nodes:
        name = each.node.name
        problems += [f"node {name!r}: {problem}" for problem in _problems_of(each, groups)]
    return problems


def _problems_of(each: FlowNode, groups: Mapping[str, GroupSettings]) -> list[str]:
    node, options = each.node, each.spec.options or NO_OPTIONS
    problems = spec_problems(each.spec)
    if not 0 < len(node.name) <= NAME_CHARS_MAX:
        problems.append(f"name: must have 1 to {NAME_CHARS_MAX} characters")
    if node.group and node.group not in groups:
        problems.append(f"group: there is no group {node.group!r}")
    problems += [
        f"groups: there is no group {name!r}" for name in node.groups if name not in groups
    ]
    if len(set(node.groups)) < len(node.groups):
        problems.append("groups: each at most once")
    if len(set(each.after)) < len(each.after):
        problems.append("after: each at most once")
    if len(each.after) > DEPENDENCIES_PER_TASK_MAX:
        problems.append(
            f"after: {len(each.after)} nodes, at most {DEPENDENCIES_PER_TASK_MAX}; put them into a "
            "group, and wait for that"
        )
    if node.undoes:
        problems.append("undoes: set by the broker")
    if not 0 <= node.need <= COUNT_MAX:
        problems.append(f"need: must be 0 to {COUNT_MAX}, got {node.need}")
    elif node.need and not each.after and not node.groups:
        problems.append(f"need: {node.need} of nothing; name what it waits for")
    if node.compensation is not None:
        problems += [
            f"compensation: {problem}" for problem in _compensation_problems(node.compensation)
        ]
    return problems + _links(options)


def _links(options: Options) -> list[str]:
    """List the options that the flow decides about."""
    problems = []
    if options.parent:
        problems.append("parent: the parent of a node is its flow")
    if options.depends_on:
        problems.append("depends_on: name nodes in `after` instead")
    if options.pace is not None:
        problems.append("pace: a node of a flow has none; nothing can take its place")
    if options.same is not None or options.identity:
        problems.append("same: a node is always run by itself")
    return problems


def _compensation_problems(compensation: Compensation) -> list[str]:
    problems = []
    if not compensation.queue:
        problems.append("queue: must not be empty")
    problems += [
        f"{field}: longer than {NAME_CHARS_MAX} characters"
        for field in ("queue", "name", "key")
        if len(getattr(compensation, field)) > NAME_CHARS_MAX
    ]
    if len(compensation.payload) > INLINE_BYTES_MAX:
        size = len(compensation.payload)
        problems.append(f"payload: {size} bytes, at most {INLINE_BYTES_MAX}")
    if compensation.headers and (problem := value_problem(compensation.headers, HEADERS_BYTES_MAX)):
        problems.append(f"headers: {problem}")
    return problems


def edge_problems(nodes: list[FlowNode], groups: Mapping[str, GroupSettings]) -> list[str]:
    """List what is wrong between the nodes of a new flow: what they wait for, and cycles."""
    names = {each.node.name for each in nodes}
    sizes = Counter(each.node.group for each in nodes)
    problems = []
    for each in nodes:
        name, node = each.node.name, each.node
        problems += [
            f"node {name!r}: after: there is no node {other!r}"
            for other in each.after
            if other not in names
        ]
        closed = [group for group in node.groups if group in groups and not groups[group].is_open]
        problems += [
            f"node {name!r}: groups: group {group!r} has no node, and is not open"
            for group in closed
            if not sizes[group]
        ]
        most = len(each.after) + sum(sizes[group] for group in node.groups)
        if len(closed) == len(node.groups) and node.need > most > 0:
            problems.append(f"node {name!r}: need: {node.need} of {most}; there will be no more")
    return problems + [f"a cycle: {' -> '.join(cycle)}" for cycle in _cycles(nodes)]


def _cycles(nodes: list[FlowNode]) -> Iterable[list[str]]:
    """Yield cycles, at least one for each part of the graph that has any.

    A group is a place in the graph, behind its nodes and in front of those that wait for it.
    """
    before: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for each in nodes:
        at = ("", each.node.name)
        edges = before.setdefault(at, [])
        edges += [("", name) for name in each.after]
        edges += [("group ", name) for name in each.node.groups]
        if each.node.group:
            before.setdefault(("group ", each.node.group), []).append(at)
    done: set[tuple[str, str]] = set()
    for start, edges in before.items():
        if start in done:
            continue
        path, on_path, stack = [start], {start: 0}, [(start, iter(edges))]
        while stack:
            at, edges_left = stack[-1]
            following = next(edges_left, None)
            if following is None:
                stack.pop()
                path.pop()
                del on_path[at]
                done.add(at)
            elif following in on_path:
                cycle = [*path[on_path[following] :], following]
                yield [f"{kind}{name}" for kind, name in reversed(cycle)]
            elif following not in done and following in before:
                on_path[following] = len(path)
                path.append(following)
                stack.append((following, iter(before[following])))


def output_of(settings: FlowSettings, nodes: list[FlowNode]) -> str:
    """Return the node whose result is that of the flow; empty if there is no such node."""
    if settings.output:
        return settings.output
    awaited = {name for each in nodes for name in each.after}
    groups = {name for each in nodes for name in each.node.groups}
    if any(group.is_open and group.name not in groups for group in settings.groups):
        return ""
    sinks = [
        each.node.name
        for each in nodes
        if each.node.name not in awaited and each.node.group not in groups
    ]
    return sinks[0] if len(sinks) == 1 else ""
