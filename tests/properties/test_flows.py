"""Flows against a naive model: random graphs, ends, kills and retries; nothing may differ."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jackalope.core.commands import (
    Action,
    ActOnTasks,
    Answer,
    AnswerSignal,
    Fail,
    FailAttempts,
    Finish,
    FinishAttempts,
    Held,
    StartAttempts,
    Verdict,
)
from jackalope.core.commands.flows import AddNodes, FlowNode, SubmitFlow
from jackalope.core.effects import Accepted, Acted
from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.lifecycle import State
from jackalope.core.refusals import Refusal
from jackalope.core.shapes.flow import FlowSettings, GroupSettings, NodeSettings, OnFailure, node_id
from jackalope.core.state.flows import flow_state
from jackalope.core.task import Error, OnDependency, Options, Task, TaskSpec, lease_of
from tests.core.driving import Driver, refusal_in, snapshot_of, task_id
from tests.profiles import PATIENCE, examples
from tests.properties.flow_model import (
    DEAD,
    KILLED,
    OVER,
    SUCCEEDED,
    UNDER_WAY,
    WAITING,
    FlowModel,
    Group,
    Node,
)

pytestmark = PATIENCE

FLOW = task_id(1)
SESSION = 7
#: More nodes would not find more.
ENOUGH = 14

_WORDS = {
    State.WAITING: WAITING,
    State.READY: UNDER_WAY,
    State.ASSIGNED: UNDER_WAY,
    State.RUNNING: UNDER_WAY,
    State.SUCCEEDED: SUCCEEDED,
    State.DEAD: DEAD,
    State.KILLED: KILLED,
}

picks = st.integers(0, 1_000)
needs = st.sampled_from((0, 0, 0, 1, 2))
masks = st.integers(0, 2**6 - 1)


class Flows(RuleBasedStateMachine):
    """One flow, with a worker that takes all there is."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver()
        self.driver.declare("q", retries=0)
        self.driver.join("w", SESSION, slots=100)
        self.added = 0

    @initialize(
        nodes=st.lists(st.tuples(masks, needs, st.booleans()), min_size=1, max_size=5),
        members=st.lists(masks, min_size=1, max_size=4),
        join=st.tuples(needs, st.booleans()),
        width=st.integers(0, 2),
        is_open=st.booleans(),
        is_fast=st.booleans(),
    )
    def submit(
        self,
        *,
        nodes: list[tuple[int, int, bool]],
        members: list[int],
        join: tuple[int, bool],
        width: int,
        is_open: bool,
        is_fast: bool,
    ) -> None:
        made: list[Node] = []
        for number, (mask, need, collects) in enumerate(nodes):
            after = tuple(f"n{each}" for each in range(number) if mask >> each & 1)
            made.append(Node(f"n{number}", after, need=min(need, len(after)), collects=collects))
        for number, mask in enumerate(members):
            after = tuple(f"n{each}" for each in range(len(nodes)) if mask >> each & 1)
            made.append(Node(f"m{number}", after, "wide"))
        need, collects = join
        made.append(
            Node("join", ("n0",), groups=("wide",), need=min(need, len(members)), collects=collects)
        )
        made.append(Node("last", ("join",)))
        self.model = FlowModel(is_fast, {"wide": Group(width, is_open)})
        on_failure = OnFailure.FAIL_FAST if is_fast else OnFailure.CONTINUE
        group = GroupSettings("wide", width, is_open)
        command = SubmitFlow(
            0,
            TaskSpec(FLOW, "q", "flow"),
            FlowSettings(on_failure, groups=(group,)),
            [_asked(node) for node in made],
        )
        answer = self.driver.send(command)
        assert isinstance(answer, Accepted), answer
        self.model.add(*made)
        self._go_on()

    # What workers and people do.

    @rule(pick=picks)
    def finish(self, pick: int) -> None:
        if node := self._pick(pick, UNDER_WAY):
            task = self._task(node)
            finish = Finish(task.id, lease_of(task).fence, node.name.encode())
            self.driver.send(FinishAttempts(session=SESSION, attempts=[finish]))
            self.model.end(node.name, SUCCEEDED)
            self._go_on()

    @rule(pick=picks)
    def fail(self, pick: int) -> None:
        node = self._pick(pick, UNDER_WAY)
        if node is None:
            return
        task = self._task(node)
        fence = lease_of(task).fence
        if node.is_asked:
            self.driver.send(AnswerSignal(0, task.id, fence, Answer.STOPPED, session=SESSION))
            self.model.end(node.name, KILLED)
        else:
            failed = [Fail(task.id, fence, Error("ValueError", "no"), Verdict.RETRY)]
            self.driver.send(FailAttempts(session=SESSION, attempts=failed))
            self.model.end(node.name, DEAD)
        self._go_on()

    @rule(pick=picks)
    def kill_a_node(self, pick: int) -> None:
        node = self._pick(pick, WAITING, UNDER_WAY)
        if node is not None:
            self._act(Action.KILL, self._task(node).id)
            self.model.kill(node.name)
            self._go_on()

    @rule(is_sure=st.sampled_from((False, False, False, True)))
    def kill_the_flow(self, is_sure: bool) -> None:
        if is_sure and self.model.state not in OVER:
            self._act(Action.KILL, FLOW)
            self.model.stop(KILLED)
            self._go_on()

    @rule(pick=picks)
    def retry_a_node(self, pick: int) -> None:
        node = self._pick(pick, DEAD, KILLED)
        if node is not None:
            self._retry(self._task(node).id, node.name)

    @precondition(lambda self: self.model.state in (DEAD, KILLED))
    @rule()
    def retry_the_flow(self) -> None:
        self._retry(FLOW, "")

    def _retry(self, task: TaskId, name: str) -> None:
        answer = self._act(Action.RETRY, task)
        refusal = refusal_in(answer)
        if not self.model.can_retry():
            assert refusal is not None
            return
        if refusal is not None:  # Only what was killed while it waited for a group has lost some.
            assert "came after it was killed" in refusal.message, refusal
            assert any(node.state == KILLED and node.groups for node in self.model.nodes.values())
            return
        self.model.retry(name)
        self._go_on()

    # Open groups.

    @rule(pick=picks, is_after=st.booleans())
    def add(self, pick: int, is_after: bool) -> None:
        if len(self.model.nodes) >= ENOUGH:
            return
        self.added += 1
        # What is added behind a failure falls at once, by whichever rule comes first.
        sound = [
            name
            for name, node in self.model.nodes.items()
            if name.startswith("n") and not (self.model.is_fast and node.state in (DEAD, KILLED))
        ]
        after = (sound[pick % len(sound)],) if is_after and sound else ()
        first = Node(f"a{self.added}", after, "wide")
        second = Node(f"b{self.added}", (first.name,), "wide")
        answer = self.driver.send(AddNodes(0, FLOW, [_asked(first), _asked(second)]))
        if self._is_open():
            assert isinstance(answer, Accepted), answer
            self.model.add(first, second)
            self._go_on()
        else:
            assert isinstance(answer, Refusal)
            assert self.driver.records == []

    @rule()
    def close(self) -> None:
        if self._is_open():
            answer = self.driver.send(AddNodes(0, FLOW, [], ("wide",)))
            assert isinstance(answer, Accepted), answer
            self.model.close("wide")
            self._go_on()

    def _is_open(self) -> bool:
        model = self.model
        return model.groups["wide"].is_open and model.state not in OVER and not model.ends

    # What must be so.

    def _go_on(self) -> None:
        """Take from the core which nodes of a narrow group go on, and start what is given out."""
        model, group = self.model, self.model.groups["wide"]
        members = [node for node in model.nodes.values() if node.group == "wide"]
        able = [node for node in members if node.state == WAITING and model.can_go(node)]
        if group.width and able and not model.ends:
            going = [node for node in able if self._is_under_way(node)]
            room = group.width - sum(node.state == UNDER_WAY for node in members)
            assert len(going) == min(max(room, 0), len(able)), (going, able, room)
            for node in going:
                model.release(node)
        held = [
            Held(task.id, lease_of(task).fence)
            for task in self.driver.core.book.tasks.values()
            if task.state is State.ASSIGNED
        ]
        if held:
            self.driver.send(StartAttempts(ref=0, session=SESSION, attempts=held))

    @invariant()
    def nothing_differs(self) -> None:
        found = {name: _WORDS[self._task(node).state] for name, node in self.model.nodes.items()}
        assert found == {name: node.state for name, node in self.model.nodes.items()}
        flow = self.driver.core.book.tasks[FLOW]
        assert _WORDS[flow.state] == self.model.state
        counts, states = flow_state(flow), list(found.values())
        assert (counts.total, counts.succeeded) == (len(states), states.count(SUCCEEDED))
        assert (counts.dead, counts.killed) == (states.count(DEAD), states.count(KILLED))
        for node in self.model.nodes.values():
            task = self._task(node)
            if task.state is State.RUNNING:
                is_asked = lease_of(task).request is not None
                assert is_asked == node.is_asked, node

    def teardown(self) -> None:
        assert snapshot_of(self.driver.replayed()) == self.driver.snapshot()

    def _task(self, node: Node) -> Task:
        return self.driver.core.book.tasks[node_id(FLOW, node.name)]

    def _is_under_way(self, node: Node) -> bool:
        return _WORDS[self._task(node).state] == UNDER_WAY

    def _pick(self, pick: int, *states: str) -> Node | None:
        nodes = [node for node in self.model.nodes.values() if node.state in states]
        return nodes[pick % len(nodes)] if nodes else None

    def _act(self, action: Action, task: TaskId) -> Any:
        answer = self.driver.send(ActOnTasks(ref=0, action=action, tasks=(task,), by="ada"))
        assert isinstance(answer, Acted | Refusal), answer
        return answer


def _asked(node: Node) -> FlowNode:
    options = Options(on_dependency=OnDependency.RUN) if node.collects else None
    spec = TaskSpec(NO_TASK, "q", "work", options=options)
    return FlowNode(spec, NodeSettings(node.name, node.group, node.groups, node.need), node.after)


TestFlows = Flows.TestCase
TestFlows.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
