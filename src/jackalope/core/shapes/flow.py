"""Flows: graphs of tasks, the words for them, and what is kept of one while it runs.

Owns the shapes. A flow is a task that no worker runs; its nodes are tasks whose parent it is. What
follows from the end of a node is the matter of `core.flows` and `core.state.flows`.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import Any

import msgspec

from jackalope.core.ids import ID_BYTES, TaskId, is_time_ordered
from jackalope.core.lifecycle import Reason, State
from jackalope.core.shapes.body import Body, Error

#: What an input takes beside its result and its error.
INPUT_BYTES_MIN = 64

#: The place of the first member of a group among the inputs: behind what was named one by one.
MEMBERS_FROM = 1_000_000


class OnFailure(StrEnum):
    """What a flow does when a node fails and no other node takes care of that.

    `continue`: nodes that do not depend on the failed one go on, and the flow is dead at the end.
    `fail_fast`: everything that has not ended is killed.
    """

    CONTINUE = "continue"
    FAIL_FAST = "fail_fast"


class GroupSettings(msgspec.Struct, frozen=True, array_like=True):
    """A group of nodes, which others can wait for as a whole."""

    name: str
    width: int = 0  # how many of its nodes may be under way at once; 0 for any number
    is_open: bool = False  # whether nodes can be added until it is closed


class FlowSettings(msgspec.Struct, frozen=True, array_like=True):
    """What holds for a flow as a whole."""

    on_failure: OnFailure = OnFailure.CONTINUE
    # the node whose result is that of the flow; empty for the only one that no other waits for
    output: str = ""
    groups: tuple[GroupSettings, ...] = ()
    digest: bytes = b""  # of all that was submitted; set by the broker


class Compensation(msgspec.Struct, frozen=True, array_like=True):
    """The task that undoes what a node did, should the flow fail."""

    queue: str
    name: str
    key: str = ""
    payload: bytes = b""
    headers: dict[str, Any] = {}


class NodeSettings(msgspec.Struct, frozen=True, array_like=True):
    """What makes a task a node of a flow."""

    name: str  # unique in the flow
    group: str = ""  # the group that it belongs to
    groups: tuple[str, ...] = ()  # the groups that it waits for
    need: int = 0  # how much of what it waits for must succeed; 0 for all
    compensation: Compensation | None = None  # what undoes it
    undoes: str = ""  # of a compensation, the node that it undoes; set by the broker


class Input(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a node left for those that waited for it."""

    node: str
    task: TaskId
    state: State
    result: Body = b""
    error: Error | None = None
    group: str = ""  # the group that it was waited for as a member of


#: An input with its place among the others.
Arrival = tuple[int, Input]


class Undo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A compensation that is due if the flow fails, with what the node left."""

    compensation: Compensation
    of: Input


class Ends(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How a flow ends that is being stopped."""

    to: State
    reason: Reason | None = None
    by: str = ""
    detail: str = ""


class GroupState(msgspec.Struct, array_like=True, gc=False):
    """How far a group is."""

    total: int = 0
    succeeded: int = 0
    failed: int = 0  # ended without success
    released: int = 0  # under way: no longer waiting, and not ended
    is_open: bool = False
    is_met: bool = False  # a node that waited for it went on before its end


class FlowState(msgspec.Struct, array_like=True, tag="flow", gc=False):
    """How far a flow is."""

    total: int = 0
    succeeded: int = 0
    dead: int = 0
    killed: int = 0
    groups: dict[str, GroupState] = {}
    # By ids in hex: digests of states take no other keys.
    failures: dict[str, str] = {}  # the failures that no node took care of, and why
    fallen: dict[str, bool] = {}  # the nodes that ended without success; whether by a kill
    undo: list[Undo] = []  # the compensations that are due if it fails, the first node first
    ends: Ends | None = None  # set while it is being stopped
    result: Body = b""  # what the output node left
    undoing: int = 0  # compensations that have not ended
    undone: int = 0  # compensations that were submitted
    undone_badly: int = 0  # those of them that did not succeed

    def unfinished(self) -> int:
        """Return how many nodes have not ended."""
        return self.total - self.succeeded - self.dead - self.killed

    def fallen_ids(self) -> list[TaskId]:
        """Return the nodes that ended without success."""
        return [TaskId(bytes.fromhex(each)) for each in self.fallen]

    def failure(self) -> str:
        """Return why it fails; empty if it does not."""
        return next(iter(self.failures.values()), "")


class NodeState(msgspec.Struct, array_like=True, tag="node", gc=False):
    """How far a node is with what it waits for."""

    index: int = 0  # its place among the nodes of its flow
    inputs: list[Arrival] = []  # in the order in which they came
    size: int = 0  # what they take
    succeeded: int = 0
    failed: int = 0
    is_released: bool = False  # it waits for nothing any more
    is_spare: bool = False  # a node that waited for it went on without

    def in_order(self) -> tuple[Input, ...]:
        """Return the inputs: first what is named one by one, then members of groups."""
        return tuple(each for _, each in sorted(self.inputs, key=_place))


def _place(arrival: Arrival) -> int:
    return arrival[0]


def copy_of_state(state: FlowState | NodeState) -> FlowState | NodeState:
    """Return a state that shares nothing mutable with another."""
    if isinstance(state, NodeState):
        return msgspec.structs.replace(state, inputs=list(state.inputs))
    return msgspec.structs.replace(
        state,
        groups={name: msgspec.structs.replace(each) for name, each in state.groups.items()},
        failures=dict(state.failures),
        fallen=dict(state.fallen),
        undo=list(state.undo),
    )


def bodies_in(state: FlowState | NodeState) -> list[Body]:
    """Return the bodies that a flow or a node keeps of others."""
    if isinstance(state, NodeState):
        return [each.result for _, each in state.inputs]
    return [state.result, *(each.of.result for each in state.undo)]


def node_id(flow: TaskId, node: str) -> TaskId:
    """Derive the id of a node: the same flow and name give the same id.

    It has the time of the flow if that has one, so that it sorts next to it.
    """
    return _derived(flow, b"node", node)


def compensation_id(flow: TaskId, node: str) -> TaskId:
    """Derive the id of the task that undoes a node."""
    return _derived(flow, b"undo", node)


def _derived(flow: TaskId, what: bytes, node: str) -> TaskId:
    digest = blake2b(what + flow + node.encode(), digest_size=ID_BYTES).digest()
    version = 0x70 if is_time_ordered(flow) else 0x40
    return TaskId(
        flow[:6]
        + bytes((version | digest[6] & 0x0F, digest[7], 0x80 | digest[8] & 0x3F))
        + digest[9:]
    )
