"""Assembly: steps become nodes that a broker takes.

Owns the names of nodes and groups, the order in which they are sent, and which edges follow from
which arguments. Whether the graph is sound is decided by the broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import msgspec

from jackalope.client.flows.parts import Group, Part, Step, scope, steps_of
from jackalope.core.commands.flows import FlowNode
from jackalope.core.ids import NO_TASK
from jackalope.core.limits import NAME_CHARS_MAX
from jackalope.core.shapes.flow import Compensation, GroupSettings, NodeSettings
from jackalope.core.task import NO_OPTIONS, OnDependency, TaskSpec
from jackalope.errors import ConfigError
from jackalope.tasks.context import running
from jackalope.tasks.references import Reference
from jackalope.tasks.serialization import DEFAULT_CONTENT, Content, EncodeFailed

_DIGEST_BYTES = 6


class Assembly:
    """A flow that is being put together: its steps in the order in which they were found."""

    def __init__(self, known: Assembly | None = None, into: str = "") -> None:
        """Begin a flow, or more steps of one that was submitted.

        Args:
            known: the flow as it was submitted.
            into: the open group that the further steps are for. They are named by what they do, so
                that adding them twice adds them once.
        """
        self.names: dict[Step[Any], str] = {}  # of the steps that are nodes; empty if not yet known
        self.groups: dict[Group[Any], str] = {}
        self.seen: dict[str, int] = {}  # how often each content was named
        if known is not None:
            self.names |= known.names
            self.groups |= known.groups
            self.seen |= known.seen
        self._known = frozenset(self.names)
        self._into = into
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}
        self._found: list[Step[Any]] = []
        self._edges: dict[Step[Any], _Edges] = {}
        self._payloads: dict[Step[Any], bytes] = {}
        self._awaited: set[Group[Any]] = set()
        self._current: Step[Any] | None = None
        self._compensated: Step[Any] | None = None

    def add(self, parts: Iterable[Part[Any]]) -> None:
        """Take in parts, and all that they are connected with.

        Raises:
            ConfigError: a step cannot be called so, or two have one name.
            EncodeFailed: an argument cannot be sent.
        """
        for part in parts:
            if not isinstance(part, Part):
                raise ConfigError(f"a flow consists of steps, chains and groups, not {part!r}")
            if isinstance(part, Group):
                self._find_group(part)
            for step in steps_of(part):
                self._find(step)
        at = 0
        # Encoding may find more: steps that are referred to and were not named otherwise.
        while at < len(self._found):
            step = self._found[at]
            if step not in self._payloads:
                self._encode(step)
            at += 1

    def nodes(self) -> list[FlowNode]:
        """Return the nodes that were not known before."""
        return [self._node(step) for step in self._found]

    def name_of(self, step: Step[Any]) -> str:
        """Return the name of a step; one that is named by what it does is encoded for that."""
        name = self.names[step]
        if name:
            return name
        if step in self._edges and step not in self._payloads:
            raise ConfigError(f"{step!r} waits for itself")
        self._encode(step)
        payload, made = self._payloads[step], _base_name(step)
        adder = running.get()  # Two tasks that add the same add two; two attempts of one do not.
        content = f"{step.task.name} {step.task.plan.queue} ".encode() + payload
        content += b"" if adder is None else adder.id
        base = f"{made}-{blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()}"
        number = self.seen[base] = self.seen.get(base, 0) + 1
        name = self.names[step] = base if number == 1 else f"{base}-{number}"
        return name

    def group_settings(self) -> tuple[GroupSettings, ...]:
        """Return the groups that the broker must know."""
        return tuple(
            GroupSettings(name, width=group.width, is_open=group.is_open)
            for group, name in self.groups.items()
            if self._is_declared(group)
        )

    def content_of(self, step: Step[Any]) -> Content:
        """Return how the values of a step are encoded."""
        return step.task.definition.content

    # References, while arguments are encoded.

    def refer_to_step(self, step: Step[Any]) -> Reference:
        """Note that the current step uses the result of another."""
        if self._compensated is not None:
            if step is not self._compensated:
                raise ConfigError(f"a compensation of {self._compensated!r} has its result alone")
        else:
            self._find(step)
            self._edge().after[step] = None
        return Reference(node=self.name_of(step), content=self._content([step]))

    def refer_to_group(self, group: Group[Any]) -> Reference:
        """Note that the current step uses the results of a group."""
        if self._compensated is not None:
            raise ConfigError(f"a compensation of {self._compensated!r} has its result alone")
        self._await(group)
        ends = [end for end in (member.end() for member in group.members) if isinstance(end, Step)]
        return Reference(group=self.groups[group], content=self._content(ends))

    def _content(self, steps: list[Step[Any]]) -> str:
        """Return how results are encoded, if not as the values of the step that uses them."""
        contents = {self.content_of(step) for step in steps}
        if len(contents) > 1:
            raise ConfigError(f"a list of results of several contents: {', '.join(contents)}")
        own = DEFAULT_CONTENT if self._current is None else self.content_of(self._current)
        return next((each for each in contents if each != own), "")

    # Finding.

    def _find(self, step: Step[Any]) -> None:
        """Give a step and all that it is connected with a name, and a place in the order."""
        waiting = [step]
        while waiting:
            each = waiting.pop()
            if each in self.names:
                continue
            by_content = self._into and not each.name
            self.names[each] = "" if by_content else self._name(each.name, _base_name(each))
            self._found.append(each)
            if each.group is not None:
                self._find_group(each.group)
            near: list[Step[Any]] = list(each.followers)
            for part in (each.input, *each.before):
                if isinstance(part, Group):
                    self._find_group(part)
                if part is not None:
                    near[:0] = steps_of(part)
            waiting += reversed(near)

    def _find_group(self, group: Group[Any]) -> None:
        if group in self.groups:
            return
        self.groups[group] = self._name(group.name, "group", is_group=True)
        for member in group.members:
            if isinstance(member, Group):
                self._find_group(member)
            for step in steps_of(member):
                self._find(step)
        for step in group.followers:
            self._find(step)

    def _name(self, chosen: str, made: str, *, is_group: bool = False) -> str:
        key = "group " if is_group else ""
        if chosen:
            if key + chosen in self._taken:
                raise ConfigError(f"two {'groups' if is_group else 'steps'} are called {chosen!r}")
            self._taken.add(key + chosen)
            return chosen
        number = self._counts.get(key + made, 0)
        while True:
            number += 1
            name = made if number == 1 else f"{made}-{number}"
            if key + name not in self._taken:
                break
        self._counts[key + made] = number
        self._taken.add(key + name)
        return name

    # Encoding.

    def _encode(self, step: Step[Any]) -> None:
        self._edges[step] = _Edges()
        self._payloads[step] = self._payload(step)
        before, self._current = self._current, step
        for part in step.before:
            self._wait_for(part)
        self._current = before

    def _payload(self, step: Step[Any]) -> bytes:
        """Encode the arguments of a step; its edges are found on the way."""
        args = step.args if step.input is None else (step.input.value(), *step.args)
        before, self._current = self._current, step
        token = scope.set(self)
        try:
            definition = step.task.definition
            if definition.content == "bytes" and step.input is not None:
                # Its payload is what its only predecessor returns, as it is.
                definition.shape.check(args, step.kwargs)
                self._wait_for(step.input)
                return b""
            return step.task.payload_of(args, step.kwargs)
        except TypeError as error:
            if isinstance(error.__cause__, ConfigError):
                raise error.__cause__ from None
            if isinstance(error, EncodeFailed):
                raise
            raise ConfigError(f"{self.names.get(step, step.task.name)}: {error}") from None
        finally:
            scope.reset(token)
            self._current = before

    def _wait_for(self, part: Part[Any]) -> None:
        """Note that the current step runs after a part."""
        end = part.end()
        if isinstance(end, Step):
            if self._compensated is None:
                self._find(end)
                self._edge().after[end] = None
        elif end.is_counted_by_ends():
            self._await(end)
        else:
            for member in end.members:
                self._wait_for(member)

    def _await(self, group: Group[Any]) -> None:
        self._find_group(group)
        self._awaited.add(group)
        self._edge().groups[group] = None

    def _edge(self) -> _Edges:
        if self._current is None or self._current not in self._edges:
            raise ConfigError("the result of a step can be an argument of a step of a flow only")
        return self._edges[self._current]

    def _is_declared(self, group: Group[Any]) -> bool:
        return bool(group in self._awaited or group.width or group.is_open or group.name)

    # Nodes.

    def _node(self, step: Step[Any]) -> FlowNode:
        edges = self._edges[step]
        in_group = self._into
        if not in_group and step.group is not None and self._is_declared(step.group):
            in_group = self.groups[step.group]
        node = NodeSettings(
            self.name_of(step),
            group=in_group,
            groups=tuple(self.groups[group] for group in edges.groups),
            need=step.need,
            compensation=self._compensation(step),
        )
        spec = self._spec(step, self._payloads[step])
        return FlowNode(spec, node, tuple(self.name_of(each) for each in edges.after))

    def _spec(self, step: Step[Any], payload: bytes) -> TaskSpec:
        plan, function = step.task.plan, step.task.definition.function
        spec = plan.give_keys(plan.spec(NO_TASK, payload), function, step.args, step.kwargs)
        options = spec.options or NO_OPTIONS
        if options.same is not None or options.version:
            options = msgspec.structs.replace(options, same=None, version="")
        if step.is_collecting:
            options = msgspec.structs.replace(options, on_dependency=OnDependency.RUN)
        return msgspec.structs.replace(spec, options=None if options == NO_OPTIONS else options)

    def _compensation(self, step: Step[Any]) -> Compensation | None:
        undo = step.compensation
        if undo is None:
            return None
        self._compensated = step
        try:
            payload = self._payload(undo)
        finally:
            self._compensated = None
        spec = self._spec(undo, payload)
        headers = {} if spec.options is None else dict(spec.options.headers)
        return Compensation(spec.queue, spec.name, spec.key, payload, headers)


def _base_name(step: Step[Any]) -> str:
    name: str = step.task.definition.function.__name__
    return name[: NAME_CHARS_MAX // 2]


class _Edges:
    """What a step waits for."""

    __slots__ = ("after", "groups")

    def __init__(self) -> None:
        self.after: dict[Step[Any], None] = {}
        self.groups: dict[Group[Any], None] = {}
