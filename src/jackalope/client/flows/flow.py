"""Flows: graphs of tasks that are submitted at once, and how their submitter holds them.

Owns the submit of a flow and of nodes for its open groups. A flow is itself a task, which no worker
runs, so its handle is one of a task and more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar, Unpack, cast, overload

from jackalope.client import option_checks
from jackalope.client.flows.assembly import Assembly
from jackalope.client.flows.parts import Group, Part, Step, steps_of
from jackalope.client.handle import Handle, gather
from jackalope.client.option_checks import Seconds, one_of
from jackalope.client.submit_options import Choices, make_plan
from jackalope.core.commands.flows import AddNodes, SubmitFlow
from jackalope.core.ids import TaskId
from jackalope.core.shapes.callback import Callback
from jackalope.core.shapes.flow import FlowSettings, OnFailure, node_id
from jackalope.errors import ConfigError
from jackalope.task_ids import new_task_id
from jackalope.tasks.serialization import DEFAULT_CONTENT, decode_value
from jackalope.wire.views import FlowView

if TYPE_CHECKING:
    from jackalope.client.app import Jackalope

R = TypeVar("R")
S = TypeVar("S")
R_co = TypeVar("R_co", covariant=True)


class FlowChoices(TypedDict, total=False):
    """What can be chosen for a flow."""

    queue: str  # the queue that it is listed under; that of its first step if not chosen
    # what an unfinished node does when another has failed: `continue` if it does not depend on that
    # one, or `fail_fast`: it is killed
    on_failure: Literal["continue", "fail_fast"]
    # killed if not done within this time, or by this moment
    deadline: Seconds | datetime
    alias: str  # a name for the flow, unique in the namespace while the flow exists
    tags: Iterable[str]  # labels of the flow itself
    headers: Mapping[str, Any]  # your own data
    # where its end is posted: a URL for every end, or `Callback(url, on=("dead",))`; or several
    callback: str | Callback | Iterable[str | Callback]
    id: object  # the flow's id, to make a submit repeatable across processes
    # when a queue is full or the broker overloaded, wait and submit again, rather than raise
    wait_for_room: bool
    # how many seconds the broker's answer may take; None for as long as it takes
    submit_timeout: Seconds | None


class Flow(Generic[R_co]):
    """A graph of tasks that is submitted at once.

        flow = Flow("thumbnails", resize.step("cat.png", width=320) >> publish.step())
        handle = await flow.submit()
        print(await handle.result(timeout=60))

    Its result is that of its last step. If it ends with a group, it is the list of the group's.
    """

    @overload
    def __init__(self, name: str, part: Part[R_co], /, **choices: Unpack[FlowChoices]) -> None: ...

    @overload
    def __init__(self: Flow[Any], name: str, /, **choices: Unpack[FlowChoices]) -> None: ...

    @overload
    def __init__(
        self: Flow[Any],
        name: str,
        part: Part[Any],
        other: Part[Any],
        /,
        *parts: Part[Any],
        **choices: Unpack[FlowChoices],
    ) -> None: ...

    def __init__(self, name: str, /, *parts: Part[Any], **choices: Unpack[FlowChoices]) -> None:
        """Put a flow together. Nothing is sent yet.

        Args:
            name: its name, for people; many flows may have it.
            parts: its steps, with all that they are connected with.
            choices: see `FlowChoices`.

        Raises:
            ConfigError: a choice cannot be used.
        """
        self.name = one_of("name", option_checks.name, name)  # its name, for people
        self.parts = list(parts)
        given: dict[str, Any] = dict(choices)
        words = tuple(OnFailure)
        chosen = given.pop("on_failure", OnFailure.CONTINUE)
        self._on_failure = OnFailure(
            one_of("on_failure", partial(option_checks.word, words=words), chosen)
        )
        if unknown := sorted(set(given) - set(FlowChoices.__annotations__)):
            known = ", ".join(sorted(FlowChoices.__annotations__))
            raise ConfigError(f"{', '.join(unknown)}: unknown; there are {known}")
        if "deadline" in given:
            given["expires"] = given.pop("deadline")
        self._choices = cast("Choices", given)
        self._plan = make_plan(self._choices, name=self.name)

    def __repr__(self) -> str:
        return f"<Flow {self.name}>"

    def add(self, *parts: Part[Any]) -> None:
        """Add steps to a flow that is not submitted yet."""
        self.parts += parts

    async def submit(self) -> FlowHandle[R_co]:
        """Submit the flow, all of it or nothing; it is durable with the broker when this returns.

        Raises:
            ConfigError: it has no steps, or they cannot be put together.
            EncodeFailed: an argument cannot be sent.
            Rejected: the broker did not accept it; every problem is listed.
            Timeout: no answer came in time.
        """
        made = self.assemble()
        app = next(iter(made.names)).task.app
        handle: FlowHandle[R_co] = FlowHandle(app, made.command.flow.id, made.output, made.assembly)
        await app.session().submit_flow(
            made.command,
            wait_for_room=self._plan.wait_for_room,
            timeout_s=app.timeout_of(self._plan.submit_timeout_s),
        )
        return handle

    async def run(self, timeout: Seconds | None = None) -> R_co:  # noqa: ASYNC109
        """Submit the flow, wait for its end, and return its result."""
        return await (await self.submit()).result(timeout)

    def assemble(self) -> Assembled:
        """Return the flow as a broker takes it, which `submit` sends.

        Raises:
            ConfigError: it has no steps, or they cannot be put together.
            EncodeFailed: an argument cannot be sent.
        """
        assembly = Assembly()
        assembly.add(self.parts)
        if not assembly.names:
            raise ConfigError(f"flow {self.name!r} has no steps")
        output = self.parts[0].end() if len(self.parts) == 1 else None
        name = assembly.names[output] if isinstance(output, Step) else ""
        settings = FlowSettings(self._on_failure, name, assembly.group_settings())
        first = next(iter(assembly.names))
        spec = self._plan.spec(self._plan.id or new_task_id(), b"")
        if "queue" not in self._choices:
            spec.queue = first.task.plan.queue
        command = SubmitFlow(ref=0, flow=spec, settings=settings, nodes=assembly.nodes())
        return Assembled(command, output, assembly)


@dataclass(frozen=True, slots=True)
class Assembled:
    """A flow that can be submitted."""

    command: SubmitFlow  # what submits it
    output: Step[Any] | Group[Any] | None  # what has its result
    assembly: Assembly

    @property
    def names(self) -> dict[Step[Any], str]:
        """The names of its nodes."""
        return self.assembly.names


class FlowHandle(Handle[R_co]):
    """A flow that was submitted: a task whose children are its nodes."""

    __slots__ = ("_assembly", "_output")

    def __init__(
        self,
        app: Jackalope,
        flow_id: TaskId,
        output: Part[Any] | None = None,
        assembly: Assembly | None = None,
    ) -> None:
        super().__init__(app, flow_id, _decoder_of(output))
        self._output = output
        self._assembly = assembly or Assembly()

    async def result(self, timeout: Seconds | None = None) -> R_co:  # noqa: ASYNC109
        """Wait for the flow to end, and return its result.

        Raises:
            TaskFailed: it ended without success; the error names the node that failed.
            Timeout: it has not ended in time. It goes on.
            Rejected: the broker does not know the flow (any more).
        """
        result = await super().result(timeout)
        if isinstance(self._output, Group):
            return cast("R_co", await self._results_of(self._output))
        return result

    async def _results_of(self, part: Part[Any]) -> Any:
        """Return what a part returned, from its nodes."""
        end = part.end()
        if isinstance(end, Step):
            return await self.node(end).result()
        if all(isinstance(member.end(), Step) for member in end.members):
            return await gather([self.node(cast("Step[Any]", m.end())) for m in end.members])
        return [await self._results_of(member) for member in end.members]

    @overload
    def node(self, node: Step[S]) -> Handle[S]: ...

    @overload
    def node(self, node: str) -> Handle[Any]: ...

    def node(self, node: Step[S] | str) -> Handle[Any]:
        """Return the handle of a node: of a step of this flow, or by its name.

        Raises:
            ConfigError: it is a step of another flow.
        """
        if isinstance(node, str):
            return self.app.handle(node_id(self.id, node))
        name = self._assembly.names.get(node)
        if name is None:
            raise ConfigError(f"{node!r} is not a step of this flow")
        return Handle(self.app, node_id(self.id, name), node.task.definition.result)

    @property
    def names(self) -> dict[Step[Any], str]:
        """The names of the steps that were submitted or added here."""
        return dict(self._assembly.names)

    async def view(self) -> FlowView:
        """Return the flow with its nodes, edges and groups, and how far it has come."""
        return await self.app.query("flow", {"id": self.id}, FlowView)

    # Open groups.

    async def add(self, group: Group[S] | str, *parts: Part[S]) -> list[Handle[S]]:
        """Add steps to an open group, all of them or none.

        A step without a name is named by what it does and, within a running task, by that task: an
        attempt that is repeated adds nothing twice. Equal steps that are added here are counted. Of
        a chain, every step is in the group.

        Raises:
            Rejected: the group is closed or unknown, or the flow has ended.
            ConfigError: they cannot be put together.
        """
        assembly = Assembly(self._assembly, self._name_of(group))
        assembly.add(parts)
        nodes = assembly.nodes()
        await self.app.session().submit_flow(
            AddNodes(ref=0, flow=self.id, nodes=nodes), timeout_s=self.app.timeout_s
        )
        if isinstance(group, Group):
            group.members += parts
        self._assembly = assembly
        return [self.node(step) for part in parts for step in steps_of(part)]

    async def close(self, *groups: Group[Any] | str) -> None:
        """Close open groups: what waits for them goes on when their nodes have ended.

        Raises:
            Rejected: there is no such group.
        """
        names = tuple(map(self._name_of, groups))
        await self.app.session().submit_flow(
            AddNodes(ref=0, flow=self.id, nodes=[], close=names), timeout_s=self.app.timeout_s
        )

    def _name_of(self, group: Group[Any] | str) -> str:
        if isinstance(group, str):
            return group
        name = self._assembly.groups.get(group)
        if name is None:
            raise ConfigError("the group is not of this flow; name it, and use the name")
        return name


def _decoder_of(output: Part[Any] | None) -> Callable[[bytes], Any]:
    if isinstance(output, Step):
        decode: Callable[[bytes], Any] = output.task.definition.result
        return decode
    return partial(decode_value, DEFAULT_CONTENT)
