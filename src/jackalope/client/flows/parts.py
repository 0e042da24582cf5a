"""Parts of a flow: steps, and how they are put together.

Owns what `>>`, `chain`, `group` and `result` mean: which step runs after which, and which argument
is what another step returns. Nothing is sent here; a `Flow` makes nodes of the steps (`assembly`).

A step is an object with an identity: `a >> b` notes at `b` that it comes after `a`, and what is
written in several lines is one graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, Self, TypeVar, Unpack, cast

from jackalope.client import option_checks
from jackalope.client.option_checks import one_of
from jackalope.client.submit_options import Choices
from jackalope.core.limits import COUNT_MAX
from jackalope.errors import ConfigError, kind_of
from jackalope.tasks.references import Pending, Reference

if TYPE_CHECKING:
    from jackalope.client.task import Task

R = TypeVar("R")
S = TypeVar("S")
R_co = TypeVar("R_co", covariant=True)

#: What a step may not choose: the flow does, or it makes no sense for a node.
NOT_OF_STEPS = frozenset(
    {
        "depends_on",
        "id",
        "on_dependency",
        "parent",
        "result_timeout",
        "same",
        "submit_timeout",
        "version",
        "wait_for_room",
    }
)


class StepChoices(Choices, total=False):
    """What can be chosen for a step of a flow; of `Choices`, what concerns one task by itself."""

    name: str  # its name in the flow; made from the function's name if not chosen
    # run also when a predecessor has failed: its result is then a `NodeError`. The failure is not
    # the flow's.
    collect: bool
    # how many of the predecessors must succeed: a number, or `any` for one; all if not chosen
    need: int | Literal["any"]


class Part(ABC, Generic[R_co]):
    """Some steps of a flow, which come to one result."""

    @property
    def result(self) -> R_co:
        """What it returns, to be used as an argument of another step, also in lists and dicts.

        For type checkers the value itself. A step that uses it runs after this part.
        """
        return cast("R_co", self.value())

    def __rshift__(self, other: Part[S]) -> Chain[S]:
        """Run another part after this one.

        Its first steps get the result of this one as their first argument by place, unless they
        have one there already, or take none.
        """
        if not isinstance(other, Part):
            raise ConfigError(f"a step is followed by a step, a group or a chain, not {other!r}")
        for head in other.heads():
            head.follow(self)
        return Chain([self, other])

    # For this package.

    @abstractmethod
    def heads(self) -> list[Step[Any]]:
        """Return the steps that come first."""

    @abstractmethod
    def end(self) -> Step[Any] | Group[Any]:
        """Return what comes last."""

    @abstractmethod
    def value(self) -> Any:
        """Return what stands for its result among arguments."""


class Step(Part[R_co]):
    """One task of a flow: a function with its arguments. Made by `Task.step`."""

    def __init__(self, task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.task = task  # the task, with its choices
        self.args = args
        self.kwargs = kwargs
        self.name = ""  # its name in the flow, if one was chosen
        self.is_collecting = False  # it runs also after failures
        self.need = 0  # how many predecessors must succeed; 0 for all
        self.input: Part[Any] | None = None  # what its first argument is
        self.before: list[Part[Any]] = []  # what must have ended, without a value
        self.followers: list[Step[Any]] = []  # what follows it
        self.group: Group[Any] | None = None  # the group that it is a member of
        self.compensation: Step[Any] | None = None  # what undoes it

    def __repr__(self) -> str:
        return f"<Step {self.name or self.task.name}>"

    def options(self, **choices: Unpack[StepChoices]) -> Self:
        """Choose something for this step: `merge.step().options(collect=True, priority=200)`.

        Raises:
            ConfigError: a choice cannot be used.
        """
        given: dict[str, Any] = dict(choices)
        if "name" in given:
            self.name = one_of("name", option_checks.name, given.pop("name"))
        if "collect" in given:
            self.is_collecting = one_of("collect", option_checks.flag, given.pop("collect"))
        if "need" in given:
            self.need = _need(given.pop("need"))
        if unfit := sorted(NOT_OF_STEPS & set(given)):
            raise ConfigError(f"{', '.join(unfit)}: not for a step of a flow")
        if given:
            self.task = self.task.options(**cast("Choices", given))
        return self

    def after(self, *parts: Part[Any]) -> Self:
        """Run this step after others, and pass it nothing."""
        for part in parts:
            self._come_after(part)
            self.before.append(part)
        return self

    def compensate_with(self, step: Step[Any]) -> Self:
        """Undo this step with another, if it has succeeded and the flow does not.

        The other gets the result of this one as its first argument by place, unless it has one.
        """
        if not isinstance(step, Step):
            raise ConfigError(f"compensate_with: a step, not {kind_of(step)}")
        if step.group is not None or step.followers or step.before or step.input is not None:
            raise ConfigError("compensate_with: a step of its own, which is not part of the graph")
        self.compensation = step
        if step.is_open():
            step.input = self
        return self

    # For this package.

    def is_open(self) -> bool:
        """Return whether its first parameter by place has no argument yet."""
        first = self.task.definition.shape.first_open
        return bool(first) and not self.args and self.input is None and first not in self.kwargs

    def follow(self, part: Part[Any]) -> None:
        """Run after a part, and take its result if there is a place for it."""
        self._come_after(part)
        if self.is_open():
            self.input = part
        else:
            self.before.append(part)

    def _come_after(self, part: Part[Any]) -> None:
        if not isinstance(part, Part):
            raise ConfigError(f"a step runs after steps, groups and chains, not {part!r}")
        part.end().followers.append(self)

    def heads(self) -> list[Step[Any]]:
        """Return the step itself."""
        return [self]

    def end(self) -> Step[Any]:
        """Return the step itself."""
        return self

    def value(self) -> Any:
        """Return a reference to its result."""
        return OneResult(self)


class Chain(Part[R_co]):
    """Parts one after the other. Made by `>>` and `chain`."""

    def __init__(self, parts: list[Part[Any]]) -> None:
        self.parts = parts

    def heads(self) -> list[Step[Any]]:
        """Return the first steps of its first part."""
        return self.parts[0].heads()

    def end(self) -> Step[Any] | Group[Any]:
        """Return the end of its last part."""
        return self.parts[-1].end()

    def value(self) -> Any:
        """Return what stands for the result of its last part."""
        return self.parts[-1].value()


class Group(Part[list[R]]):
    """Parts that run at the same time. Made by `group` and `Task.steps`."""

    def __init__(
        self,
        members: Iterable[Part[R]],
        *,
        name: str = "",
        width: int = 0,
        open: bool = False,  # noqa: A002
    ) -> None:
        self.members = list(members)
        self.name = one_of("name", option_checks.text, name)  # its name in the flow, if chosen
        self.width = one_of("width", _width, width)  # how many run at once; 0 for all
        self.is_open = one_of("open", option_checks.flag, open)  # takes nodes until it is closed
        self.followers: list[Step[Any]] = []
        for member in self.members:
            if not isinstance(member, Part):
                raise ConfigError(f"a group consists of steps, chains and groups, not {member!r}")
        if self.is_flat():
            for step in self.counted():
                if step.group is not None:
                    raise ConfigError(f"{step!r} is in two groups; make a step for each")
                step.group = self
        elif self.width or self.is_open:
            raise ConfigError("width and open: for a group of steps or chains, not of groups")

    def __len__(self) -> int:
        return len(self.members)

    def is_flat(self) -> bool:
        """Return whether each member ends with a step, so that the broker can count them."""
        return all(isinstance(member.end(), Step) for member in self.members)

    def is_counted_by_ends(self) -> bool:
        """Return whether the nodes that the broker counts are those with the results."""
        return self.is_flat() and not (
            self.width and any(isinstance(member, Chain) for member in self.members)
        )

    def counted(self) -> Iterator[Step[Any]]:
        """Yield the steps that the broker counts: the ends, or all of them if few may run."""
        for member in self.members:
            if self.width and isinstance(member, Chain):
                yield from steps_of(member)
            else:
                end = member.end()
                if isinstance(end, Step):
                    yield end

    def heads(self) -> list[Step[Any]]:
        """Return the first steps of all members."""
        return [head for member in self.members for head in member.heads()]

    def end(self) -> Group[R]:
        """Return the group itself."""
        return self

    def value(self) -> Any:
        """Return what stands for the list of the results of its members."""
        if self.is_counted_by_ends():
            return GroupResults(self)
        return [member.value() for member in self.members]


def steps_of(part: Part[Any]) -> Iterator[Step[Any]]:
    """Yield the steps of a part, in their order."""
    if isinstance(part, Step):
        yield part
    elif isinstance(part, Chain):
        for each in part.parts:
            yield from steps_of(each)
    elif isinstance(part, Group):
        for each in part.members:
            yield from steps_of(each)


def chain(*parts: Part[Any]) -> Chain[Any]:
    """Run parts one after the other, as `a >> b >> c` does.

    Raises:
        ConfigError: there are none, or one is none.
    """
    if not parts:
        raise ConfigError("chain: needs at least one step")
    whole: Chain[Any] = Chain(list(parts[:1]))
    for part in parts[1:]:
        whole = whole >> part
    return whole


def group(
    *members: Part[R] | Iterable[Part[R]],
    name: str = "",
    width: int = 0,
    open: bool = False,  # noqa: A002  as the user reads it
) -> Group[R]:
    """Run parts at the same time: `group(a, b, c) >> join` gives `join` the list of their results.

    Args:
        members: steps, chains and groups, or iterables of them.
        name: its name in the flow; needed to add steps from elsewhere.
        width: how many of its steps may run at once; 0 for all.
        open: accept more steps with `FlowHandle.add`, until it is closed.

    Raises:
        ConfigError: a member is none, or is in another group.
    """
    parts: list[Any] = []
    for member in members:
        if isinstance(member, Part) or not isinstance(member, Iterable):
            parts.append(member)
        else:
            parts.extend(member)
    return Group(parts, name=name, width=width, open=open)


def _need(value: object) -> int:
    if value == "any":
        return 1
    return one_of("need", lambda given: option_checks.whole(given, least=1, most=COUNT_MAX), value)


def _width(value: object) -> int:
    return option_checks.whole(value, least=0, most=COUNT_MAX)


# References: what stands for results while the arguments of a flow are encoded.


class Scope(Protocol):
    """The flow that is being put together."""

    def refer_to_step(self, step: Step[Any]) -> Reference:
        """Note that the step that is being encoded uses the result of another."""

    def refer_to_group(self, group: Group[Any]) -> Reference:
        """Note that it uses the results of a group."""


scope: ContextVar[Scope | None] = ContextVar("jackalope_flow_scope", default=None)


def _scope() -> Scope:
    found = scope.get()
    if found is None:
        raise TypeError("the result of a step can be an argument of a step of a flow only")
    return found


class OneResult(Pending):
    """Stands for the result of a step."""

    def __init__(self, step: Step[Any]) -> None:
        self._step = step

    def reference(self) -> Reference:
        """Return what is sent in its place."""
        return _scope().refer_to_step(self._step)


class GroupResults(Pending):
    """Stands for the list of the results of a group."""

    def __init__(self, group: Group[Any]) -> None:
        self._group = group

    def reference(self) -> Reference:
        """Return what is sent in its place."""
        return _scope().refer_to_group(self._group)
