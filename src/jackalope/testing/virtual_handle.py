"""A task of a virtual broker, as a test holds it.

Looks at the core directly and lets no time pass; the broker runs what is to run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from jackalope.broker.queries import About, Refused
from jackalope.client.flows.flow import Assembled
from jackalope.client.flows.parts import Step
from jackalope.core.commands import Action
from jackalope.core.durations import SECOND
from jackalope.core.explain import Explanation, explain, history
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import State
from jackalope.core.limits import LOG_LINES_READ_MAX
from jackalope.core.shapes.flow import node_id
from jackalope.core.shapes.task_log import LogLineView
from jackalope.core.task import HistoryEntry
from jackalope.core.task import Task as CoreTask
from jackalope.errors import Rejected, TaskFailed
from jackalope.tasks.definition import TaskDefinition

if TYPE_CHECKING:
    from jackalope.testing.virtual_broker import VirtualBroker

R = TypeVar("R")
S = TypeVar("S")


class VirtualHandle(Generic[R]):
    """A task of a virtual broker."""

    def __init__(self, broker: VirtualBroker, task_id: TaskId, definition: TaskDefinition) -> None:
        self._broker = broker
        self._definition = definition
        self.id = task_id

    @property
    def state(self) -> State:
        """Where the task stands."""
        return self._task.state

    @property
    def failures(self) -> int:
        """How often it failed."""
        return self._task.failures

    @property
    def crashes(self) -> int:
        """How often it lost its worker."""
        return self._task.crashes

    @property
    def attempts(self) -> int:
        """How often it was given to a worker."""
        return self._task.attempts

    @property
    def due_in(self) -> float:
        """In how many seconds a scheduled task is due."""
        return (self._task.due_us - self._broker.now_us) / SECOND

    def result(self) -> R:
        """Return the result.

        Raises:
            TaskFailed: it ended without one.
            LookupError: it has not ended; `explain` says why.
        """
        task, outcome = self._task, self._task.outcome
        if task.state is State.SUCCEEDED and outcome is not None:
            value: R = self._definition.result(self._broker.load(outcome.result))
            return value
        if task.state in (State.DEAD, State.KILLED) and outcome is not None:
            raise TaskFailed(task.id, task.state, outcome.reason, outcome.error)
        causes = "; ".join(cause.text for cause in self.explain().causes)
        raise LookupError(f"task {self.id.hex()} is {task.state}: {causes}")

    def explain(self) -> Explanation:
        """Say why the task is as it is."""
        return explain(self._broker.core, self._task)

    def history(self) -> list[HistoryEntry]:
        """Return what happened to it."""
        return history(self._task)

    def logs(self, *, attempt: int = 0, level: str = "", text: str = "") -> list[LogLineView]:
        """Return what it has printed and logged, oldest first: of an attempt, a level, with a text.

        Raises:
            Rejected: an argument is wrong.
        """
        about = About(attempt=attempt, level=level, text=text, limit=LOG_LINES_READ_MAX)
        try:
            return self._broker.log_page(self.id, about).lines
        except Refused as refused:
            raise Rejected(refused.refusal.code, refused.refusal.message) from None

    def signal(self, event: str, data: object = None) -> None:
        """Send it an event.

        Raises:
            Rejected: it has ended.
        """
        self._broker.signal(self.id, event, data)

    def act(self, action: Action | str) -> None:
        """Hold, play, pause, kill, retry or purge it.

        Raises:
            Rejected: its state does not allow that.
        """
        self._broker.act(Action(action), self.id)

    @property
    def _task(self) -> CoreTask:
        return self._broker.core.book.tasks[self.id]


class VirtualFlow(VirtualHandle[R]):
    """A flow of a virtual broker."""

    def __init__(self, broker: VirtualBroker, made: Assembled) -> None:
        output = made.output
        definition = output.task.definition if isinstance(output, Step) else _ANY
        super().__init__(broker, made.command.flow.id, definition)
        self._made = made

    @overload
    def node(self, node: Step[S]) -> VirtualHandle[S]: ...

    @overload
    def node(self, node: str) -> VirtualHandle[Any]: ...

    def node(self, node: Step[S] | str) -> VirtualHandle[Any]:
        """Return a node: that of a step, or by its name.

        Raises:
            LookupError: the flow has no such node.
        """
        names = {name: step for step, name in self._made.names.items()}
        name = node if isinstance(node, str) else self._made.names[node]
        definition = names[name].task.definition
        return VirtualHandle(self._broker, node_id(self.id, name), definition)

    @property
    def states(self) -> dict[str, State]:
        """The states of its nodes, by name."""
        return {name: self.node(name).state for name in self._made.names.values()}


def _nothing() -> Any: ...


_ANY = TaskDefinition(_nothing, name="flow")
