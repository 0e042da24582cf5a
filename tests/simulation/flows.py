"""Flows in a simulated world: a client that submits and pesters them, and what must hold.

The checker counts by itself what has ended, from the records alone, and so knows for each node
whether it may go on and what it must get: a join goes on once, when its policy allows, with the
results of those that it waited for.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from jackalope.core.commands import Action, ActOnTasks, Command
from jackalope.core.commands.flows import AddNodes, FlowNode, SubmitFlow
from jackalope.core.durations import MILLISECOND, SECOND
from jackalope.core.effects import Accepted, Assignment, Effect, Reply, SendToSession
from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.lifecycle import ENDED, State
from jackalope.core.records import AttemptAssigned, TaskMoved, TaskRevived, TaskSubmitted
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.flow import (
    Compensation,
    FlowSettings,
    GroupSettings,
    NodeSettings,
    OnFailure,
    node_id,
)
from jackalope.core.state.flows import flow_state
from jackalope.core.task import OnDependency, Options, Task, TaskSpec
from tests.simulation.checker import Checker, demand
from tests.simulation.client import NAMES, QUEUES
from tests.simulation.node import Node
from tests.simulation.world import Link, World

_FLOWS = 12
_QUEUES = [name for name in QUEUES if name != "shared"]


class SimFlows:
    """A client that has flows."""

    def __init__(self, world: World, node: Node, seed: int, flows: int = _FLOWS) -> None:
        self.name = "flows"
        self.world = world
        self.node = node
        self.link: Link | None = None
        self.outbox: dict[int, Command] = {}
        self.is_tidying = False
        self.known: list[TaskId] = []
        self._left = flows
        self._rng = random.Random(seed)
        self._refs = 0
        self._added = 0
        world.after(SECOND, self._live)

    def _live(self) -> None:
        world, rng = self.world, self._rng
        world.after(rng.randrange(100 * MILLISECOND, 4 * SECOND), self._live)
        if self.link is None:
            self.link = self.node.connect(self)
        for command in list(self.outbox.values()):
            self._send(command)
        if self.is_tidying:
            if not self.outbox:
                self._close_all()
        elif self._left and rng.random() < 0.5:
            self._left -= 1
            self._ask(self._flow())
        elif self.known:
            self._pester(rng.choice(self.known))

    def _pester(self, flow: TaskId) -> None:
        rng, chance = self._rng, self._rng.random()
        if chance < 0.4:
            self._ask(self._more(flow))
        elif chance < 0.5:
            self._ask(AddNodes(0, flow, [], (rng.choice(("late", "wide")),)))
        else:
            actions = [Action.KILL, Action.PAUSE, Action.PLAY, Action.PLAY, Action.RETRY]
            whom = flow if rng.random() < 0.6 else node_id(flow, f"n{rng.randrange(8)}")
            self._ask(ActOnTasks(ref=0, action=rng.choice(actions), tasks=(whom,), by=self.name))

    def tidy(self) -> None:
        """Let go of everything, so that the world can come to an end."""
        self.is_tidying, self.outbox = True, {}
        self._close_all()

    def _close_all(self) -> None:
        book = self.node.checker.shadow.book
        for task in book.tasks.values():
            if task.options.flow is None or task.state in ENDED:
                continue
            groups = flow_state(task).groups
            if close := tuple(name for name, group in groups.items() if group.is_open):
                self._ask(AddNodes(0, task.id, [], close))
            if task.state is State.PAUSED:
                self._ask(ActOnTasks(ref=0, action=Action.PLAY, tasks=(task.id,), by=self.name))

    def _flow(self) -> SubmitFlow:
        rng = self._rng
        nodes = [self._node(f"n{number}", number) for number in range(rng.randrange(1, 8))]
        nodes += [self._member(f"m{number}") for number in range(rng.randrange(1, 6))]
        need = rng.choice((0, 0, 1, 2))
        join = NodeSettings("join", groups=("wide", "late"), need=min(need, len(nodes)))
        nodes.append(FlowNode(self._spec(), join))
        nodes.append(FlowNode(self._spec(), NodeSettings("last"), ("join", "n0")))
        rng.shuffle(nodes)
        settings = FlowSettings(
            rng.choice(list(OnFailure)),
            groups=(GroupSettings("wide", rng.randrange(4)), GroupSettings("late", 2, True)),
        )
        deadline_us = self.node.clock_us() + rng.randrange(20, 200) * SECOND
        options = Options(expires_at_us=deadline_us) if rng.random() < 0.1 else None
        task = TaskSpec(self.world.new_id(), rng.choice(_QUEUES), "flow", options=options)
        return SubmitFlow(0, task, settings, nodes, by=self.name)

    def _node(self, name: str, number: int) -> FlowNode:
        rng = self._rng
        after = tuple(f"n{each}" for each in range(number) if rng.random() < 0.3)
        undo = Compensation("plain", NAMES[0]) if rng.random() < 0.3 else None
        need = rng.choice((0, 0, 0, 1)) if after else 0
        return FlowNode(self._spec(), NodeSettings(name, need=need, compensation=undo), after)

    def _member(self, name: str, group: str = "wide") -> FlowNode:
        return FlowNode(self._spec(), NodeSettings(name, group))

    def _more(self, flow: TaskId) -> AddNodes:
        rng = self._rng
        self._added += 1
        first = self._member(f"late{self._added}", "late")
        nodes = [first, self._member(f"later{self._added}", "late")]
        nodes[1].after = (f"late{self._added}",) if rng.random() < 0.5 else ("n0",)
        close = ("late",) if rng.random() < 0.4 else ()
        return AddNodes(0, flow, nodes, close, by=self.name)

    def _spec(self) -> TaskSpec:
        rng = self._rng
        run = rng.choice((OnDependency.DEAD, OnDependency.DEAD, OnDependency.RUN))
        options = Options(on_dependency=run, held=rng.random() < 0.05)
        return TaskSpec(NO_TASK, rng.choice(_QUEUES), rng.choice(NAMES), options=options)

    def _ask(self, command: Command) -> None:
        self._refs += 1
        command.ref = self._refs
        self.outbox[command.ref] = command
        self._send(command)

    def _send(self, command: Command) -> None:
        if self.link is not None:
            self.link.up(command)

    def hear(self, link: Link, effect: Effect) -> None:
        if link is not self.link or not isinstance(effect, Reply):
            return
        body = effect.body
        if isinstance(body, Refusal) and body.code in (Code.STORAGE_FAILED, Code.QUEUE_FULL):
            return
        command = self.outbox.pop(effect.ref, None)
        if isinstance(command, SubmitFlow):
            demand(isinstance(body, Accepted), "a flow that is sound is accepted", body)
            nodes = [node_id(command.flow.id, each.node.name) for each in command.nodes]
            self.node.checker.on_accepted([command.flow.id, *nodes])
            self.known.append(command.flow.id)

    def cut_off(self, link: Link) -> None:
        if link is self.link:
            self.link = None


class FlowChecker(Checker):
    """A checker that knows the graphs, and counts what has ended by itself."""

    def __init__(self) -> None:
        super().__init__()
        self._flows: dict[TaskId, dict[TaskId, NodeSettings]] = {}
        self._going: set[TaskId] = set()  # nodes that went on, and were not retried since
        self._told: dict[TaskId, int] = {}
        self._checks[TaskRevived] = self._on_revived
        self._checks[AttemptAssigned] = self._on_assigned

    def _on_submitted(self, record: TaskSubmitted) -> None:
        super()._on_submitted(record)
        options, task_id = record.spec.options, record.spec.id
        self._going.discard(task_id)
        if options is None or options.node is None or options.node.undoes:
            return
        self._flows.setdefault(options.parent, {})[task_id] = options.node
        if record.state in (State.READY, State.SCHEDULED):
            demand(not options.depends_on and not options.node.groups, "it waits", record)
            self._go(task_id)

    def _on_moved(self, record: TaskMoved) -> None:
        task = self.shadow.book.tasks.get(record.task)
        if task is not None and task.options.flow is not None and record.to in ENDED:
            self._check_end(task, record.to)
        super()._on_moved(record)
        if task is None or task.options.node is None or task.options.node.undoes:
            return
        is_first = record.task not in self._going
        if record.to in (State.READY, State.SCHEDULED) and is_first:
            self._check_allowed(task)
            self._go(record.task)
            self.counts["NodeReleased"] += 1

    def _go(self, task_id: TaskId) -> None:
        demand(task_id not in self._going, "a node goes on once", task_id)
        self._going.add(task_id)
        task = self.shadow.book.tasks.get(task_id)
        if task is None or task.options.node is None or not task.options.node.group:
            return  # One that is submitted so has a group of any width.
        name, flow = task.options.node.group, self.shadow.book.tasks[task.options.parent]
        settings = flow.options.flow
        mates = self._flows[flow.id].items()
        going = [each for each, node in mates if node.group == name and each in self._going]
        count = sum(each not in self.ended for each in going)
        widths = [] if settings is None else settings.groups
        width = next(group.width for group in widths if group.name == name)
        demand(not width or count <= width, "a group is as wide as it may be", task, count)

    def _on_revived(self, record: TaskRevived) -> None:
        super()._on_revived(record)
        options = record.row.options
        self._going.discard(record.row.id)
        if options.node is not None:
            is_live = options.parent not in self.ended
            demand(is_live, "a node that is retried has a flow that goes on", record)
        if options.flow is not None:
            self.counts["FlowRevived"] += 1

    def _on_assigned(self, record: AttemptAssigned) -> None:
        super()._on_assigned(record)
        task = self.shadow.book.tasks[record.task]
        if task.options.node is not None and not task.options.node.undoes:
            demand(record.task in self._going, "only what may go on is given out", record)

    def _awaited(self, task: Task) -> Iterator[TaskId]:
        """Yield what a node waits for, as it was submitted until now."""
        yield from task.options.depends_on
        node = task.options.node
        for other, settings in self._flows.get(task.options.parent, {}).items():
            if node is not None and settings.group and settings.group in node.groups:
                yield other

    def _check_allowed(self, task: Task) -> None:
        node = task.options.node
        states = [self.ended.get(each) for each in self._awaited(task)]
        if node is None:
            return
        well = sum(state is State.SUCCEEDED for state in states)
        if node.need and well >= node.need:
            return
        groups = flow_state(self.shadow.book.tasks[task.options.parent]).groups
        is_open = any(groups[name].is_open for name in node.groups)
        is_whole = None not in states and not is_open
        if task.options.on_dependency is OnDependency.RUN:
            demand(is_whole, "a join goes on when all have ended", task, states)
        else:
            is_well = is_whole and well == len(states) and not node.need
            demand(is_well, "a join goes on when its policy allows", task, states)

    def _check_end(self, flow: Task, to: State) -> None:
        nodes = self._flows.get(flow.id, {})
        live = [each for each in nodes if each not in self.ended and each not in self.purged]
        demand(not live, "a flow ends after its nodes", flow, live)
        if to is State.SUCCEEDED:
            undone = [
                each
                for each in self.shadow.book.tasks.values()
                if each.options.parent == flow.id and each.options.node is not None
            ]
            is_undone = any(each.options.node and each.options.node.undoes for each in undone)
            demand(not is_undone, "what succeeds is not compensated", flow)
        self.counts[f"Flow {to}"] += 1

    def on_effect(self, effect: Effect) -> None:
        """Check that a node gets what those left that it waited for."""
        if isinstance(effect, SendToSession) and isinstance(effect.message, Assignment):
            self._check_inputs(effect.message)
        super().on_effect(effect)

    def _check_inputs(self, given: Assignment) -> None:
        node = given.options.node
        task = self.shadow.book.tasks.get(given.task)
        if node is None or task is None:
            return
        for each in given.inputs:
            if each.state is State.SUCCEEDED:
                result = self.results.get(each.task)
                demand(each.result == result, "an input is what the node left", each, result)
        if node.undoes:
            demand([each.node for each in given.inputs] == [node.undoes], "one is undone", given)
            return
        self.counts["Inputs"] += len(given.inputs)
        well = sum(each.state is State.SUCCEEDED for each in given.inputs)
        if node.need and well >= node.need:
            return
        have = {each.task for each in given.inputs}
        wanted = set(self._awaited(task))
        demand(have == wanted, "a join has the inputs of all", given, wanted)
