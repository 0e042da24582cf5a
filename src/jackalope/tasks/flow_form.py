"""The form of a flow in JSON, for those who do not write it in Python.

Owns the fields, and how they become commands: arguments are a call in JSON, and the results that
they refer to are edges. Whether the graph is sound is decided by the core.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from jackalope.core.commands.flows import AddNodes, FlowNode, SubmitFlow
from jackalope.core.durations import HOUR, SECOND
from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.limits import (
    COUNT_MAX,
    FLOW_GROUPS_MAX,
    FLOW_NODES_PER_COMMAND_MAX,
    NAME_CHARS_MAX,
    TAG_CHARS_MAX,
    TAGS_PER_TASK_MAX,
    TIME_US_MAX,
)
from jackalope.core.shapes.callback import Callback
from jackalope.core.shapes.flow import (
    Compensation,
    FlowSettings,
    GroupSettings,
    NodeSettings,
    OnFailure,
)
from jackalope.core.task import (
    NO_OPTIONS,
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    OnDependency,
    Options,
    Retry,
    TaskSpec,
)
from jackalope.errors import ConfigError
from jackalope.tasks.references import Reference, read_plain
from jackalope.tasks.serialization import CONTENT_HEADER

#: Where nodes go that name no queue, in a flow that names none.
QUEUE_DEFAULT = "default"

#: What a node's own number of retries means beside that number.
_RETRY_BASE_US = 5 * SECOND
_RETRY_FACTOR = 2.0
_RETRY_CAP_US = HOUR

_UUID = "^[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}$"
_BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"

_Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]
_MaybeName = Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
_Tags = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=TAG_CHARS_MAX)], ...],
    Meta(max_length=TAGS_PER_TASK_MAX),
]
_Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
_Seconds = Annotated[float, Meta(ge=0, le=TIME_US_MAX / SECOND)]
_Payload = Annotated[
    bytes, Meta(description="The payload, in base64.", extra_json_schema={"pattern": _BASE64})
]
_Args = Annotated[
    list[Any] | None,
    Meta(
        description='Arguments by place; `{"$result": "node"}` stands for the result of a node, '
        '`{"$results": "group"}` for the list of those of a group.'
    ),
]
_Kwargs = Annotated[dict[str, Any] | None, Meta(description="Arguments by name, likewise.")]


def _about(text: str) -> Meta:
    return Meta(description=text)


class CompensationForm(msgspec.Struct, forbid_unknown_fields=True):
    """The task that undoes a node. What it can refer to is the result of that node."""

    name: Annotated[_Name, _about("The name of the task to run.")]
    queue: Annotated[_Name | None, _about("The queue; by default that of the node.")] = None
    key: _MaybeName = ""
    payload: _Payload = b""
    args: _Args = None
    kwargs: _Kwargs = None
    headers: dict[str, Any] = {}


class NodeForm(msgspec.Struct, forbid_unknown_fields=True):
    """A node of a flow: a task, and what it waits for. It has arguments or a payload."""

    node: Annotated[_Name, _about("Its name in the flow.")]
    name: Annotated[_Name, _about("The name of the task to run.")]
    payload: _Payload = b""
    args: _Args = None
    kwargs: _Kwargs = None
    after: Annotated[
        tuple[_Name, ...],
        _about("Nodes that must end before; those whose results are arguments need not be named."),
    ] = ()
    group: Annotated[_MaybeName, _about("The group that it is a member of.")] = ""
    groups: Annotated[tuple[_Name, ...], _about("Groups that must end before.")] = ()
    need: Annotated[_Count, _about("How many of all these must succeed; 0 for all.")] = 0
    collect: Annotated[bool, _about("Run also when some of them failed.")] = False
    compensation: CompensationForm | None = None
    queue: Annotated[_Name | None, _about("The queue; by default that of the flow.")] = None
    key: Annotated[_MaybeName, _about("Only workers that serve this key run it.")] = ""
    priority: Annotated[int, Meta(ge=0, le=PRIORITY_MAX)] = PRIORITY_DEFAULT
    tags: _Tags = ()
    headers: Annotated[dict[str, Any], _about("Free-form data that is passed to the worker.")] = {}
    timeout_seconds: Annotated[_Seconds | None, _about("The time limit of an attempt.")] = None
    retries: Annotated[_Count | None, _about("How many failures are retried.")] = None

    def to_node(self, queue: str) -> FlowNode:
        """Return the node as the core takes it.

        Raises:
            ConfigError: it has arguments and a payload.
        """
        after, groups = dict.fromkeys(self.after), dict.fromkeys(self.groups)
        for reference in _references((self.args, self.kwargs)):
            after.update(dict.fromkeys((reference.node,) if reference.node else reference.nodes))
            if reference.group:
                groups[reference.group] = None
        spec = self._spec(queue)
        node = NodeSettings(
            self.node,
            group=self.group,
            groups=tuple(groups),
            need=self.need,
            compensation=self._compensation(spec.queue),
        )
        return FlowNode(spec, node, tuple(after))

    def _spec(self, queue: str) -> TaskSpec:
        payload, headers = _call(self.node, self)
        retries = self.retries
        options = Options(
            headers=headers,
            tags=self.tags,
            timeout_us=round((self.timeout_seconds or 0) * SECOND),
            retry=None
            if retries is None
            else Retry(retries, _RETRY_BASE_US, _RETRY_FACTOR, _RETRY_CAP_US),
            on_dependency=OnDependency.RUN if self.collect else OnDependency.DEAD,
        )
        return TaskSpec(
            NO_TASK,
            self.queue or queue,
            self.name,
            self.key,
            self.priority,
            payload,
            None if options == NO_OPTIONS else options,
        )

    def _compensation(self, queue: str) -> Compensation | None:
        undo = self.compensation
        if undo is None:
            return None
        payload, headers = _call(f"{self.node}: compensation", undo)
        return Compensation(undo.queue or queue, undo.name, undo.key, payload, headers)


class GroupForm(msgspec.Struct, forbid_unknown_fields=True):
    """A group of nodes."""

    name: _Name
    width: Annotated[_Count, _about("How many of its nodes may run at once; 0 for all.")] = 0
    is_open: Annotated[bool, _about("It accepts nodes until it is closed.")] = False


class FlowForm(msgspec.Struct, forbid_unknown_fields=True):
    """A flow: a graph of tasks that is accepted as a whole or not at all."""

    name: Annotated[_Name, _about("Its name, for people.")]
    nodes: Annotated[list[NodeForm], Meta(max_length=FLOW_NODES_PER_COMMAND_MAX)]
    groups: Annotated[list[GroupForm], Meta(max_length=FLOW_GROUPS_MAX)] = []
    on_failure: Annotated[
        OnFailure, _about("What nodes do that do not depend on one that failed.")
    ] = OnFailure.CONTINUE
    output: Annotated[_MaybeName, _about("The node whose result is the flow's.")] = ""
    queue: Annotated[_Name | None, _about("The queue that it is listed under.")] = None
    deadline_seconds: Annotated[_Seconds | None, _about("It is ended after this time.")] = None
    id: Annotated[
        Annotated[str, Meta(pattern=_UUID)] | None,
        _about("Its id, which makes the submit idempotent."),
    ] = None
    alias: Annotated[_MaybeName, _about("An alias, unique in the namespace.")] = ""
    tags: _Tags = ()
    headers: Annotated[dict[str, Any], _about("Your own data.")] = {}
    callbacks: Annotated[
        tuple[Callback, ...], _about("Where the end is posted, and which ends; by default all.")
    ] = ()

    def command(self, flow_id: TaskId, now_us: int) -> SubmitFlow:
        """Return what submits the flow.

        Raises:
            ConfigError: it cannot be; every problem is listed.
        """
        own = (node.queue for node in self.nodes)
        queue = self.queue or next((each for each in own if each), QUEUE_DEFAULT)
        expires_us = 0
        if self.deadline_seconds is not None:
            expires_us = now_us + round(self.deadline_seconds * SECOND)
        options = Options(
            alias=self.alias,
            headers=self.headers,
            tags=self.tags,
            expires_at_us=expires_us,
            callbacks=self.callbacks,
        )
        spec = TaskSpec(
            flow_id, queue, self.name, options=None if options == NO_OPTIONS else options
        )
        groups = tuple(GroupSettings(each.name, each.width, each.is_open) for each in self.groups)
        settings = FlowSettings(self.on_failure, self.output, groups)
        nodes = _nodes(self.nodes, queue)
        return SubmitFlow(ref=0, flow=spec, settings=settings, nodes=nodes)


class NodesForm(msgspec.Struct, forbid_unknown_fields=True):
    """Nodes for open groups of a flow, and groups to close after that."""

    nodes: Annotated[list[NodeForm], Meta(max_length=FLOW_NODES_PER_COMMAND_MAX)] = []
    close: Annotated[tuple[_Name, ...], Meta(max_length=FLOW_GROUPS_MAX)] = ()

    def command(self, flow_id: TaskId) -> AddNodes:
        """Return what adds the nodes.

        Raises:
            ConfigError: they cannot be; every problem is listed.
        """
        nodes = _nodes(self.nodes, QUEUE_DEFAULT)
        return AddNodes(ref=0, flow=flow_id, nodes=nodes, close=self.close)


def _nodes(forms: list[NodeForm], queue: str) -> list[FlowNode]:
    nodes, problems = [], []
    for form in forms:
        try:
            nodes.append(form.to_node(queue))
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("; ".join(problems))
    return nodes


def _call(name: str, form: NodeForm | CompensationForm) -> tuple[bytes, dict[str, Any]]:
    """Return a payload and headers: arguments are a call in JSON."""
    if form.args is None and form.kwargs is None:
        return form.payload, form.headers
    if form.payload:
        raise ConfigError(f"{name}: arguments and payload exclude each other")
    payload = msgspec.json.encode((form.args or [], form.kwargs or {}))
    return payload, {**form.headers, CONTENT_HEADER: "json"}


def _references(value: Any) -> Iterator[Reference]:
    """Yield the references in arguments."""
    found = read_plain(value)
    if found is not None:
        yield found
    elif isinstance(value, dict):
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _references(each)
