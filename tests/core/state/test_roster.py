"""Crews: the least loaded worker, found without looking at all of them."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jackalope.core.lifecycle import State
from jackalope.core.policy import Policy
from jackalope.core.state.queue import Namespace, Queue
from jackalope.core.state.roster import Claim, Crew, Roster, Worker
from jackalope.core.task import NO_OPTIONS, Task
from tests.core.driving import Driver, task_id
from tests.core.work import lines_run
from tests.profiles import PATIENCE, examples

pytestmark = PATIENCE

NAMES = ("w1", "w2", "w3", "w4")
SLOTS_MAX = 3

names = st.sampled_from(NAMES)


def some_task(number: int) -> Task:
    queue = Queue(Namespace("n"), "q", Policy())
    return Task(task_id(number), queue, "", "", 0, b"", NO_OPTIONS, State.ASSIGNED, "", 0, 1)


class CrewMachine(RuleBasedStateMachine):
    """Workers whose load and room change, each change told to the crew."""

    def __init__(self) -> None:
        super().__init__()
        self.crew = Crew(("n", ("q",), (), 0, None))
        self.workers: dict[str, Worker] = {}
        self.waiting: list[str] = []
        for session, name in enumerate(NAMES, start=1):
            worker = Worker(Namespace("n"), name)
            worker.session, worker.slots, worker.crew = session, SLOTS_MAX, self.crew
            self.workers[name] = self.crew.members[name] = worker
            self.told(name)

    def told(self, name: str) -> None:
        """Tell the crew, and remember who has had the present load for longest."""
        before = self.workers[name].load
        self.crew.place(self.workers[name], self.workers[name].room())
        if self.workers[name].load != before:
            self.waiting = [each for each in self.waiting if each != name] + [name]

    @rule(name=names, number=st.integers(1, 4))
    def take(self, name: str, number: int) -> None:
        self.workers[name].held[task_id(number)] = some_task(number)
        self.told(name)

    @rule(name=names, number=st.integers(1, 4))
    def give_back(self, name: str, number: int) -> None:
        self.workers[name].held.pop(task_id(number), None)
        self.told(name)

    @rule(name=names)
    def drain(self, name: str) -> None:
        self.workers[name].is_draining ^= True
        self.told(name)

    @rule(name=names)
    def claim(self, name: str) -> None:
        claims = self.workers[name].claims
        if claims:
            claims.pop()
        else:
            claims.append(Claim(1, 1, 1))
        self.told(name)

    @rule(name=names)
    def fall_silent(self, name: str) -> None:
        worker = self.workers[name]
        worker.session = 0 if worker.session else 1
        self.told(name)

    @invariant()
    def least_loaded_has_room_and_the_least(self) -> None:
        for shunned in ("", *NAMES):
            found = self.crew.least_loaded(shunned)
            assert (found.id if found else None) == self.expected(shunned)

    def expected(self, shunned: str) -> str | None:
        able = [
            name
            for name in self.waiting
            if name != shunned
            and self.workers[name].session
            and not self.workers[name].is_draining
            and (len(self.workers[name].held) < SLOTS_MAX or self.workers[name].claims)
        ]
        return min(able, key=lambda name: len(self.workers[name].held), default=None)


TestCrew = CrewMachine.TestCase
TestCrew.settings = settings(max_examples=examples(60), stateful_step_count=40)


def test_tasks_are_spread_evenly() -> None:
    driver = Driver()
    for session in range(1, 6):
        driver.join(f"w{session}", session, slots=100)
    for number in range(1, 52):
        driver.submit(number)
        loads = [len(worker.held) for worker in driver.core.roster.workers.values()]
        assert max(loads) - min(loads) <= 1


def test_among_equals_the_one_that_has_waited_longest_is_next() -> None:
    driver = Driver()
    for session in range(1, 4):
        driver.join(f"w{session}", session)
    for number in range(1, 4):
        driver.submit(number)
    assert [driver.worker(number) for number in range(1, 4)] == ["w1", "w2", "w3"]
    for number in (2, 3, 1):
        driver.finish(number)
    for number in range(4, 7):
        driver.submit(number)
    assert [driver.worker(number) for number in range(4, 7)] == ["w2", "w3", "w1"]


def test_the_least_loaded_of_several_crews_is_found() -> None:
    driver = Driver()
    driver.join("any", 1, slots=9)
    driver.join("keyed", 2, keys=("a", "b"), slots=9)
    driver.join("wide", 3, ("q", "r"), slots=9)
    for number in range(1, 10):
        driver.submit(number, key="a")
    loads = [len(worker.held) for worker in driver.core.roster.workers.values()]
    assert loads == [3, 3, 3]


@pytest.mark.parametrize(
    ("keys", "key", "serves"),
    [
        ((), "", True),
        ((), "a", True),
        (("a",), "a", True),
        (("a",), "b", False),
        (("a",), "", False),
        (("", "a"), "", True),
    ],
)
def test_a_crew_serves_its_keys_or_all(keys: tuple[str, ...], key: str, serves: bool) -> None:
    assert Crew(("n", ("q",), keys, 0, None)).serves(key) == serves
    driver = Driver()
    driver.join("w", 1, keys=keys)
    driver.submit(1, key=key)
    assert driver.assigned() == ([1] if serves else [])


def test_who_says_the_same_in_another_order_is_of_the_same_crew() -> None:
    roster, world = Roster(), Namespace("n")
    for name, queues in (("w1", ("a", "b")), ("w2", ("b", "a", "b"))):
        roster.enroll(Worker(world, name), queues, ())
    assert len(roster.crews("n", "a")) == len(roster.crews("n", "b")) == 1
    (crew,) = roster.crews("n", "a")
    assert list(crew.members) == ["w1", "w2"]


def test_a_crew_goes_with_its_last_worker() -> None:
    driver = Driver()
    driver.join("w1", 1, ("a", "b"))
    driver.join("w2", 2, ("b",))
    driver.join("w1", 1, ("c",))
    roster = driver.core.roster
    assert {queue for _, queue in roster.serving} == {"b", "c"}
    assert not roster.crews("default", "a")
    assert len(roster.crews("default", "b")) == 1


def lines_a_submit(workers: int) -> float:
    driver = Driver(is_checked=False)
    for session in range(1, workers + 1):
        driver.join(f"w{session}", session)

    def work() -> None:
        for number in range(1, 21):
            driver.submit(number)

    return lines_run(work) / 20


def test_many_workers_do_not_slow_an_assignment_down() -> None:
    assert lines_a_submit(workers=1_000) < 1.5 * lines_a_submit(workers=30)
