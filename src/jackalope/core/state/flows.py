"""Flows in the book: what records mean for nodes and their flows, and how far a node is.

A part of `apply`, and questions about its outcome; it decides nothing. The end of a node counts in
its flow and its group, and leaves an input with each node that waits for it, by the very record
that ends it: what waits needs no task that has left memory, and a join is a counter that no crash
can lose.

A node that waits is told of each of its predecessors, also when it can no longer succeed: it ends
after the last of them, with all their results, so that it can be retried.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

import msgspec

from jackalope.core.assertions import BrokenInvariant
from jackalope.core.lifecycle import State
from jackalope.core.limits import FLOW_INPUT_BYTES_MAX
from jackalope.core.shapes.body import BlobRef, Error
from jackalope.core.shapes.flow import (
    INPUT_BYTES_MIN,
    MEMBERS_FROM,
    Arrival,
    Ends,
    FlowState,
    GroupState,
    Input,
    NodeSettings,
    NodeState,
    Undo,
)
from jackalope.core.task import OnDependency, Task

if TYPE_CHECKING:
    from jackalope.core.records import FlowFailed, FlowStopped, GroupsClosed, InputsChanged
    from jackalope.core.state.book import Book

#: How the history of a node names what was done to its flow, and to the node because of that.
WITH_FLOW = "with its flow"

#: Under way, once it is in one of these.
_RELEASED = frozenset({State.READY, State.SCHEDULED})


# Reading.


class Prospect(Enum):
    """What can become of a node that waits."""

    WAIT = auto()  # something that it waits for has not ended
    GO = auto()
    VAIN = auto()  # all has ended, and not enough of it well


def flow_state(task: Task) -> FlowState:
    """Return the state of a flow; it must be one."""
    if not isinstance(task.flow, FlowState):
        raise BrokenInvariant(f"task {task.id.hex()} is no flow")
    return task.flow


def node_state(task: Task) -> NodeState:
    """Return the state of a node; it must be one."""
    if not isinstance(task.flow, NodeState):
        raise BrokenInvariant(f"task {task.id.hex()} is no node")
    return task.flow


def settings_of(task: Task) -> NodeSettings:
    """Return what makes a task a node; it must be one."""
    if task.options.node is None:
        raise BrokenInvariant(f"task {task.id.hex()} is no node")
    return task.options.node


def flow_of(book: Book, task: Task) -> Task:
    """Return the flow of a node that has not ended."""
    return book.tasks[task.options.parent]


def awaited(flow: FlowState, task: Task) -> tuple[int, bool]:
    """Return how much a node waits for, and whether that may become more."""
    total, is_open = len(task.options.depends_on), False
    for name in settings_of(task).groups:
        group = flow.groups[name]
        total += group.total
        is_open = is_open or group.is_open
    return total, is_open


def prospect(flow: FlowState, task: Task) -> Prospect:
    """Return what can become of a node, by all that has ended until now."""
    state, need = node_state(task), settings_of(task).need
    if need and state.succeeded >= need:
        return Prospect.GO
    total, is_open = awaited(flow, task)
    if (is_open and flow.ends is None) or state.succeeded + state.failed < total:
        return Prospect.WAIT
    is_well = not state.failed and not need
    return Prospect.GO if is_well or _collects(task) else Prospect.VAIN


def tolerates(flow: FlowState, task: Task) -> bool:
    """Return whether a node can go on although something that it waits for has failed."""
    if _collects(task):
        return True
    total, is_open = awaited(flow, task)
    need = settings_of(task).need
    return bool(need) and (is_open or total - node_state(task).failed >= need)


def has_room(flow: Task, task: Task) -> bool:
    """Return whether the group of a node lets one more go on."""
    name, settings = settings_of(task).group, flow.options.flow
    if not name or settings is None:
        return True
    width = next(group.width for group in settings.groups if group.name == name)
    return not width or flow_state(flow).groups[name].released < width


def is_held_back(book: Book, task: Task) -> State | None:
    """Return where a node goes in place of back into the line; None if its flow goes on."""
    if not isinstance(task.flow, NodeState) or settings_of(task).undoes:
        return None
    flow = flow_of(book, task)
    if flow_state(flow).ends is not None:
        return State.KILLED
    return State.PAUSED if flow.state is State.PAUSED else None


def _collects(task: Task) -> bool:
    return task.options.on_dependency is OnDependency.RUN


# Applying.


def begin(book: Book, task: Task) -> None:
    """Let a task that was just submitted be a flow, or a node of one."""
    if task.options.flow is not None:
        groups = {each.name: GroupState(is_open=each.is_open) for each in task.options.flow.groups}
        task.flow = FlowState(groups=groups, failures={}, fallen={}, undo=[])
        return
    flow, node = flow_of(book, task), settings_of(task)
    state = flow_state(flow)
    if node.undoes:
        undo = state.undo.pop()
        task.flow = NodeState(inputs=[(0, undo.of)], size=_size(undo.of), is_released=True)
        state.undoing += 1
        state.undone += 1
    else:
        task.flow = NodeState(index=state.total, inputs=[])
        state.total += 1
        if node.group:
            state.groups[node.group].total += 1
        settle(book, task)
    book.mark((flow,))


def settle(book: Book, task: Task) -> None:
    """Let a node that is under way wait for nothing any more."""
    state, node = node_state(task), settings_of(task)
    if task.state not in _RELEASED or state.is_released:
        return
    state.is_released = True
    flow = flow_of(book, task)
    groups = flow_state(flow).groups
    if node.group:
        groups[node.group].released += 1
    for dependency in task.waiting_for or ():
        book.leave_dependency(task, dependency)
        other = book.tasks[dependency]
        node_state(other).is_spare = True
        book.mark((other,))
    task.waiting_for = None
    for name in node.groups:
        book.leave_group(task, name)
        group = groups[name]
        group.is_met = group.is_met or group.succeeded + group.failed < group.total
    book.mark((flow,))


def end(book: Book, task: Task) -> None:
    """Count the end of a node in its flow, and leave an input with those that wait for its group.

    Those that wait for itself have theirs already.
    """
    node = task.options.node
    if node is None:
        return
    flow, state = flow_of(book, task), node_state(task)
    counts, is_well = flow_state(flow), task.state is State.SUCCEEDED
    book.mark((flow,))
    if node.undoes:
        counts.undoing -= 1
        counts.undone_badly += not is_well
        return
    if node.group:
        group = counts.groups[node.group]
        group.released -= state.is_released
        group.succeeded += is_well
        group.failed += not is_well
        for waiting in book.joiners.get((flow.id, node.group), ()):
            arrive(book, book.tasks[waiting], task, MEMBERS_FROM + state.index)
    if is_well:
        counts.succeeded += 1
        state.inputs, state.size = [], 0
        if node.compensation is not None:
            counts.undo.append(Undo(node.compensation, input_of(task)))
        if flow.options.flow is not None and flow.options.flow.output == node.name:
            counts.result = task.outcome.result if task.outcome is not None else b""
    else:
        is_killed = task.state is State.KILLED
        counts.killed += is_killed
        counts.dead += not is_killed
        counts.fallen[task.id.hex()] = is_killed


def arrive(book: Book, task: Task, ended: Task, place: int) -> None:
    """Give a node the input of one that has ended."""
    _take(node_state(task), place, input_of(ended))
    book.mark((task,))


def _take(state: NodeState, place: int, each: Input) -> None:
    if each.group and place < MEMBERS_FROM:
        each = msgspec.structs.replace(each, group="")  # It is waited for by its own name.
    if state.size > FLOW_INPUT_BYTES_MAX:  # It does not run; nothing more need be kept for it.
        each = Input(each.node, each.task, each.state, group=each.group)
    state.inputs.append((place, each))
    state.size += _size(each)
    state.succeeded += each.state is State.SUCCEEDED
    state.failed += each.state is not State.SUCCEEDED


def filled(state: NodeState, inputs: list[Arrival]) -> NodeState:
    """Let a node have just these inputs."""
    state.inputs, state.size, state.succeeded, state.failed = [], 0, 0, 0
    for place, each in inputs:
        _take(state, place, each)
    return state


def input_of(task: Task) -> Input:
    """Return what an ended node leaves."""
    node, outcome = settings_of(task), task.outcome
    name, group = node.name, node.group
    if outcome is None:
        return Input(name, task.id, task.state, group=group)
    error = outcome.error
    if error is not None:
        error = Error(error.type, error.message)  # A trace is for people, who find it at the node.
    return Input(name, task.id, task.state, outcome.result, error, group)


def _size(each: Input) -> int:
    size = INPUT_BYTES_MIN + len(each.node)
    if each.error is not None:
        size += len(each.error.type) + len(each.error.message)
    return size if isinstance(each.result, BlobRef) else size + len(each.result)


def revived(book: Book, task: Task) -> None:
    """Take back what the end of a node counted for, now that it is retried."""
    node = task.options.node
    if node is None or node.undoes:
        return
    flow = flow_of(book, task)
    counts = flow_state(flow)
    counts.failures.pop(task.id.hex(), None)
    is_killed = counts.fallen.pop(task.id.hex())
    counts.killed -= is_killed
    counts.dead -= not is_killed
    if node.group:
        counts.groups[node.group].failed -= 1
    book.mark((flow,))


def inputs_changed(book: Book, record: InputsChanged) -> None:
    task = book.tasks[record.task]
    state = node_state(task)
    for place, each in record.given:
        _take(state, place, each)
    taken = set(record.withdrawn)
    if taken:
        kept = [(place, each) for place, each in state.inputs if each.task not in taken]
        filled(state, kept)
        for dependency in task.options.depends_on:
            if dependency in taken:
                book.join_dependency(task, dependency)
    book.mark((task,))


def groups_closed(book: Book, record: GroupsClosed) -> None:
    flow = book.tasks[record.task]
    for name in record.groups:
        flow_state(flow).groups[name].is_open = False
    book.note(flow, record.at_us, "close", record.by, ", ".join(record.groups))


def flow_failed(book: Book, record: FlowFailed) -> None:
    flow = book.tasks[record.task]
    flow_state(flow).failures[record.node.hex()] = record.detail
    book.note(flow, record.at_us, "failure", "", record.detail)


def flow_stopped(book: Book, record: FlowStopped) -> None:
    flow = book.tasks[record.task]
    flow_state(flow).ends = Ends(record.to, record.reason, record.by, record.detail)
    if flow.expires_us:
        book.expiry.cancel(flow.id)
        flow.expires_us = 0  # Its deadline has no further meaning.
    book.note(flow, record.at_us, "stop", record.by, record.detail)
