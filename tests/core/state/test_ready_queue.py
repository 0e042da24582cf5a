"""Who is next: lanes against a sorted list, and what it costs to find out."""

from collections.abc import Iterator
from copy import copy

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import State
from jackalope.core.policy import Policy
from jackalope.core.state.queue import Namespace, Queue
from jackalope.core.state.ready_queue import PLAIN, Lane
from jackalope.core.task import Options, Task
from tests.core.driving import Driver, task_id
from tests.core.work import lines_run
from tests.profiles import PATIENCE, examples

pytestmark = PATIENCE

#: How many entries that no longer count a lane or a line may keep beside as many live ones.
STALE_ENTRIES_MAX = 64

TAGS = ("red", "blue")
WORKERS = ("", "w1", "w2")
SERVED = ((), ("",), ("a",), ("a", "b"))

workers = st.sampled_from(("", "", *WORKERS))
numbers = st.integers(0, 30)

NAMES = (None, frozenset[str](), frozenset({"x"}), frozenset({"", "y"}))

#: Priority, key, tags, whom to avoid and name. Most tasks ask for nothing and meet in one lane.
plain = st.tuples(st.just(10), st.just(""), st.just(()), st.just(""), st.sampled_from(("", "x")))
fancy = st.tuples(
    st.sampled_from((10, 9, 255)),
    st.sampled_from(("", "a", "b")),
    st.sampled_from(((), ("red",), ("blue",), ("red", "blue", "red"))),
    workers,
    st.sampled_from(("", "x", "y")),
)
wishes = plain | plain | fancy


class World:
    """One queue of one namespace, with tasks put into its line by hand."""

    def __init__(self, ageing_us: int = 0) -> None:
        self.namespace = Namespace("n")
        self.queue = Queue(self.namespace, "q", Policy(ageing_us=ageing_us))
        self.namespace.queues["q"] = self.queue
        self.tasks: dict[TaskId, Task] = {}
        self.rank = 0

    def next_rank(self, wait: int = 1) -> int:
        self.rank += wait
        return self.rank

    def add(  # noqa: PLR0917
        self,
        priority: int = 150,
        key: str = "",
        tags: tuple[str, ...] = (),
        avoid: str = "",
        name: str = "",
        wait: int = 1,
    ) -> Task:
        task = Task(
            task_id(len(self.tasks) + 1),
            self.queue,
            name,
            key,
            priority,
            b"",
            Options(tags=tags),
            State.READY,
            "",
            0,
            1,
            rank=self.next_rank(wait),
            avoid=avoid,
        )
        self.tasks[task.id] = task
        self.line_up(task)
        return task

    def replace(self, task: Task) -> Task:
        """Let a task be gone, and a new one have its id."""
        new = copy(task)
        new.rank = self.next_rank()
        self.tasks[new.id] = new
        self.line_up(new)
        return new

    def line_up(self, task: Task) -> None:
        task.state = State.READY
        self.namespace.line_up(self.queue, (task,), self.tasks)

    def step_out(self, task: Task) -> None:
        task.state = State.PAUSED
        self.namespace.step_out(self.queue, (task,), self.tasks)

    def best(
        self, keys: tuple[str, ...] = (), shunned: str = "", names: frozenset[str] | None = None
    ) -> Task | None:
        """Return the best task of these names, as assignment finds it: others are set apart."""
        while True:
            task = self.queue.line.best(keys, lambda lane: lane.avoid == shunned, self.tasks, names)
            if task is None or names is None or task.name in names:
                return task
            assert task.lane is not None
            assert task.lane.task_name is None
            self.namespace.set_apart(task, self.tasks)

    def drain(self) -> Iterator[int]:
        """Yield the numbers of the tasks, best first, and take them out."""
        while (task := self.best()) is not None:
            self.step_out(task)
            yield int.from_bytes(task.id[:6], "big")


class LineMachine(RuleBasedStateMachine):
    """All that can happen to a line, compared with sorting everything."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.leased: list[Task] = []

    def pick(self, number: int, *states: State) -> Task | None:
        chosen = [task for task in self.world.tasks.values() if task.state in states]
        return chosen[number % len(chosen)] if chosen else None

    @rule(wish=wishes, count=st.integers(1, 3), wait=st.sampled_from((1, 1, 50, 900)))
    def submit(
        self, wish: tuple[int, str, tuple[str, ...], str, str], count: int, wait: int
    ) -> None:
        for _ in range(count):
            self.world.add(*wish, wait)

    @rule(number=numbers)
    def pause(self, number: int) -> None:
        task = self.pick(number, State.READY)
        if task is not None:
            self.world.step_out(task)

    @rule(number=numbers, drop=st.sampled_from((0, 0, 1)), avoid=workers, is_new=st.booleans())
    def come_back(self, number: int, drop: int, avoid: str, is_new: bool) -> None:
        """Line up again with the old rank: played, released, or retried a little lower.

        Or submit a new task with the id of one that is gone.
        """
        self.pause(number)
        task = self.pick(number, State.PAUSED)
        if task is None:
            return
        task.priority = max(0, task.priority - drop)
        task.avoid = avoid
        if is_new:
            self.world.replace(task)
        else:
            self.world.line_up(task)

    @rule(keys=st.sampled_from(SERVED), shunned=workers, names=st.sampled_from(NAMES))
    def assign(self, keys: tuple[str, ...], shunned: str, names: frozenset[str] | None) -> None:
        task, first = self.world.best(keys, shunned, names), self.first(keys, shunned, names)
        assert (task is None) == (first is None)
        if task is not None and first is not None:
            assert self.order(task) == self.order(first)
        if task is not None:
            self.world.step_out(task)
            task.state = State.ASSIGNED
            self.world.namespace.leases.setdefault("w", {})[task.id] = task
            self.world.namespace.gates.hold(task, self.world.tasks)
            self.leased.append(task)

    @precondition(lambda self: self.leased)
    @rule(number=numbers)
    def give_back(self, number: int) -> None:
        task = self.leased.pop(number % len(self.leased))
        del self.world.namespace.leases["w"][task.id]
        self.world.namespace.gates.free(task, self.world.tasks)
        task.state = State.PAUSED

    @rule(tag=st.sampled_from(TAGS), limit=st.integers(-1, 2))
    def limit(self, tag: str, limit: int) -> None:
        self.world.namespace.limit_tag(tag, limit, self.world.tasks)

    @rule(ageing_us=st.sampled_from((0, 1, 100)))
    def age(self, ageing_us: int) -> None:
        queue = self.world.queue
        queue.policy = msgspec.structs.replace(queue.policy, ageing_us=ageing_us)
        queue.line.reorder(self.world.tasks)

    @invariant()
    def best_is_first_of_all(self) -> None:
        for keys in SERVED:
            for shunned in WORKERS:
                best, first = self.world.best(keys, shunned), self.first(keys, shunned)
                assert (best is None) == (first is None)
                if best is not None and first is not None:
                    assert self.order(best) == self.order(first)

    @invariant()
    def counts_agree(self) -> None:
        line = self.world.queue.line
        ready = [task for task in self.world.tasks.values() if task.state is State.READY]
        assert line.size == len(ready)
        assert {lane.name for lane in line.lanes.values() if lane.size} <= set(line.lanes)
        for lane in line.lanes.values():
            assert lane.size == sum(task.lane is lane for task in ready)

    def teardown(self) -> None:
        """Give everything out: what stands wrong behind the head comes to light."""
        for _ in self.world.tasks:
            self.assign((), "", None)
            self.best_is_first_of_all()

    def first(
        self, keys: tuple[str, ...], shunned: str, names: frozenset[str] | None = None
    ) -> Task | None:
        """Find the best task the slow way."""
        world = self.world.namespace
        in_flight = [tag for task in self.leased for tag in set(task.options.tags)]
        candidates = [
            task
            for task in self.world.tasks.values()
            if task.state is State.READY
            and (not keys or task.key in keys)
            and not (shunned and task.avoid == shunned)
            and (names is None or task.name in names)
            and all(
                in_flight.count(tag) < world.gates.tags[tag]
                for tag in task.options.tags
                if tag in world.gates.tags
            )
        ]
        return min(candidates, key=self.order, default=None)

    def order(self, task: Task) -> tuple[int, int]:
        """Return less for the task that goes first. With ageing two may be equal."""
        ageing_us = self.world.queue.policy.ageing_us
        if ageing_us:
            return task.rank - task.priority * ageing_us, 0
        return -task.priority, task.rank


TestLine = LineMachine.TestCase
TestLine.settings = settings(max_examples=examples(250), stateful_step_count=30)


# Order, in examples.


@pytest.mark.feature("D2", "D42")
def test_priority_then_age() -> None:
    world = World()
    for priority in (10, 255, 10, 0, 255):
        world.add(priority)
    assert list(world.drain()) == [2, 5, 1, 3, 4]


def test_a_task_that_comes_back_takes_its_old_place() -> None:
    world = World()
    first, *_ = [world.add() for _ in range(3)]
    world.step_out(first)
    world.add()
    world.line_up(first)
    assert list(world.drain()) == [1, 2, 3, 4]


def test_a_new_task_with_an_old_id_does_not_take_the_old_place() -> None:
    world = World()
    _, second, _ = [world.add() for _ in range(3)]
    world.step_out(second)
    world.replace(second)
    assert list(world.drain()) == [1, 3, 2]


def test_a_span_of_waiting_outweighs_a_step_of_priority() -> None:
    world = World(ageing_us=100)
    world.add(priority=10)
    world.add(priority=11, wait=99)
    world.add(priority=12, wait=102)
    world.add(priority=255, wait=1)
    assert list(world.drain()) == [4, 2, 1, 3]


def test_turning_ageing_on_is_heeded_by_what_lines_up_later() -> None:
    """The order of lanes is noted while there is one lane, and must be true for the second."""
    world = World()
    old = world.add(priority=10)
    world.queue.line.reorder(world.tasks)
    world.step_out(old)
    world.add(priority=200)
    world.add(priority=10, key="a")
    assert list(world.drain()) == [2, 3]


def test_a_full_tag_holds_up_its_own_tasks_and_no_others() -> None:
    world = World()
    world.namespace.limit_tag("red", 0, world.tasks)
    world.add(priority=255, tags=("red",))
    world.add(priority=1)
    assert list(world.drain()) == [2]
    world.namespace.limit_tag("red", 1, world.tasks)
    assert list(world.drain()) == [1]


def test_a_lane_lists_its_tasks_in_order() -> None:
    """`explain` counts by it how many go before a task."""
    world = World()
    made = [world.add() for _ in range(4)]
    world.step_out(made[2])
    world.line_up(made[2])
    urgent = world.add(priority=200)
    lane = world.queue.line.plain
    assert list(lane.ordered(world.tasks)) == [urgent, *made]
    assert set(lane) == set(world.tasks)


# Bounds.


@pytest.mark.parametrize("kept", [0, 1, 200])
def test_stale_entries_of_a_lane_are_bounded(kept: int) -> None:
    world = World()
    for _ in range(kept):
        world.add(priority=0)
    task = world.add(priority=100)
    for step in range(5_000):
        world.step_out(task)
        task.priority = step % 200 + 1
        if step % 3 == 0:
            task.rank = world.next_rank()
        world.line_up(task)
        lane = world.queue.line.plain
        assert len(list(lane)) <= 2 * (lane.size + 1) + STALE_ENTRIES_MAX
    assert world.best() is task


def test_stale_heads_of_a_line_are_bounded() -> None:
    world = World()
    anchors = [world.add(priority=0, key=str(number)) for number in range(20)]
    for step in range(5_000):
        task = world.add(priority=1 + step % 255, key=str(step % 20))
        world.step_out(task)
        del world.tasks[task.id]
        line = world.queue.line
        assert len(line._any._heads) <= 2 * (len(line.lanes) + 1) + STALE_ENTRIES_MAX
    assert world.best() is anchors[0]


def test_lanes_go_with_their_tasks() -> None:
    world = World()
    for number in range(50):
        task = world.add(key=str(number), tags=("red",), avoid="w1")
        world.step_out(task)
    assert list(world.queue.line.lanes) == [PLAIN]
    assert world.queue.line.lanes[PLAIN] is world.queue.line.plain
    assert isinstance(world.queue.line.plain, Lane)


# Cost.


def lines_a_task(lanes: int) -> float:
    """Return what it costs a worker of any key to finish a task among so many lanes."""
    driver = Driver(is_checked=False)
    driver.join("w", 1)
    for number in range(1, lanes + 1):
        driver.submit(number, key=str(number))

    def work() -> None:
        for number in range(1, 21):
            driver.finish(number)

    return lines_run(work) / 20


@pytest.mark.feature("D42")
def test_many_lanes_do_not_slow_a_worker_down() -> None:
    assert lines_a_task(lanes=2_000) < 2 * lines_a_task(lanes=50)


def lines_a_submit(lanes: int) -> float:
    """Return what it costs to submit a task while so many lanes are closed by their tags."""
    driver = Driver(is_checked=False)
    driver.limit("red", 0)
    for number in range(lanes):
        driver.submit(number, key=str(number), tags=("red",))

    def work() -> None:
        for number in range(20):
            driver.submit(lanes + number, key=f"new {number}", tags=("red",))

    return lines_run(work) / 20


def test_many_closed_lanes_do_not_slow_a_submit_down() -> None:
    assert lines_a_submit(lanes=2_000) < 2 * lines_a_submit(lanes=50)
