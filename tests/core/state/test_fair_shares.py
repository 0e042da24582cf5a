"""Whose turn it is: shares against a count of turns, and what it costs to find out."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import cycle, islice, permutations
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from jackalope.core.state.fair_shares import Clock, FairShare, FairShares, Turn
from tests.core.driving import Driver
from tests.core.work import lines_run
from tests.profiles import PATIENCE, examples

pytestmark = PATIENCE

VALUES = ("ada", "bob", "cy", "dan", "")
values = st.sampled_from(VALUES)
WEIGHTS = st.fixed_dictionaries({value: st.sampled_from((1, 1, 2, 5)) for value in VALUES})


class Waiting:
    """Shares with tasks, of which only the number counts."""

    def __init__(self, weights: dict[str, int] | None = None) -> None:
        self.fair = FairShares(weights or {})
        self.shares: dict[str, FairShare] = {}
        self.closed: set[str] = set()

    def submit(self, value: str, count: int = 1) -> None:
        self.shares[value] = self.fair.enter(value, count)

    def drop(self, value: str, count: int = 1) -> None:
        self.fair.leave(self.shares[value], count)
        if not self.shares[value].size:
            del self.shares[value]
        if not self.shares:
            self.fair.clear()

    def open(self) -> list[str]:
        return [value for value in self.shares if value not in self.closed]

    def serve(self) -> str:
        """Give out the task that is next, and return its share."""
        value = min(self.open(), key=lambda value: self.shares[value].place)
        self.fair.serve(self.shares[value])
        self.drop(value)
        return value

    def turns(self, count: int) -> str:
        return " ".join(self.serve() or "-" for _ in range(count))


class FairMachine(RuleBasedStateMachine):
    """All that can happen to shares: no share has more turns than another that waits."""

    @initialize(weights=WEIGHTS)
    def begin(self, weights: dict[str, int]) -> None:
        self.weights = weights
        self.waiting = Waiting(weights)
        # the turns of all since each share waits without a pause
        self.turns: dict[str, Counter[str]] = {}

    @rule(value=values, count=st.sampled_from((1, 1, 2, 30)))
    def submit(self, value: str, count: int) -> None:
        self.waiting.submit(value, count)
        self.follow()

    @rule(value=values)
    def kill(self, value: str) -> None:
        if value in self.waiting.shares:
            self.waiting.drop(value)
        self.follow()

    @rule(value=values)
    def limit(self, value: str) -> None:
        self.waiting.closed ^= {value}
        self.follow()

    @rule(count=st.integers(1, 8))
    def serve(self, count: int) -> None:
        for _ in range(count):
            if self.waiting.open():
                value = self.waiting.serve()
                for turns in self.turns.values():
                    turns[value] += 1
                self.nobody_has_more_than_its_share()
                self.follow()

    def follow(self) -> None:
        """Count anew for those that wait from now on, and no longer for the others."""
        is_open = set(self.waiting.open())
        self.turns = {value: self.turns.get(value, Counter()) for value in is_open}

    def nobody_has_more_than_its_share(self) -> None:
        for value, turns in self.turns.items():
            own = self.weights[value]
            for other in VALUES:
                weight = self.weights[other]
                ahead = turns[other] / weight - turns[value] / own
                allowed = 1 / own if own == weight else 1 / own + 1 / weight
                assert ahead <= allowed + 1e-9, (value, other, turns, self.weights)

    @invariant()
    def the_idle_are_forgotten(self) -> None:
        fair = self.waiting.fair
        waiting = {share.value for share in fair.waiting()}
        assert waiting == set(self.waiting.shares)
        assert fair._weight == sum(self.weights[value] for value in waiting)
        for value, share in fair._shares.items():
            assert share.size or (share.at > fair.now and (share.at, value) in fair._idle)
        if not waiting:
            assert not fair._shares


TestFair = FairMachine.TestCase
TestFair.settings = settings(max_examples=examples(250), stateful_step_count=30)


def test_shares_take_turns() -> None:
    waiting = Waiting()
    waiting.submit("ada", 100)
    for value in ("bob", "cy"):
        waiting.submit(value, 2)
    assert waiting.turns(8) == "ada bob cy ada bob cy ada ada"


def test_a_million_tasks_delay_another_by_one_turn() -> None:
    waiting = Waiting()
    waiting.submit("ada", 1_000_000)
    assert waiting.turns(3) == "ada ada ada"
    waiting.submit("bob")
    assert waiting.turns(2) in {"ada bob", "bob ada"}


def test_the_wait_of_a_single_task_is_at_most_a_round() -> None:
    waiting = Waiting()
    for number in range(50):
        waiting.submit(str(number), 1_000)
    for _ in range(777):
        waiting.serve()
    waiting.submit("new")
    assert "new" in waiting.turns(51).split()


@pytest.mark.parametrize("weights", [{"ada": 3}, {"ada": 3, "bob": 2}, {"cy": 1_000}])
def test_weights_are_turns(weights: dict[str, int]) -> None:
    waiting = Waiting(weights)
    for value in ("ada", "bob", "cy"):
        waiting.submit(value, 100_000)
    total = sum(weights.get(value, 1) for value in ("ada", "bob", "cy"))
    counts = Counter(waiting.serve() for _ in range(10 * total))
    for value in ("ada", "bob", "cy"):
        assert abs(counts[value] - 10 * weights.get(value, 1)) <= 1


def test_idling_is_no_credit() -> None:
    waiting = Waiting()
    for value in ("ada", "bob"):
        waiting.submit(value, 500)
    waiting.closed = {"bob"}
    waiting.turns(200)
    waiting.closed = set()
    assert waiting.turns(6) == "bob ada bob ada bob ada"
    waiting.submit("cy", 500)
    assert Counter(waiting.turns(300).split()) == {"ada": 100, "bob": 100, "cy": 100}


def test_what_was_had_is_no_debt() -> None:
    """A share that had the workers to itself is served at once when another comes."""
    waiting = Waiting()
    waiting.submit("ada", 1_000)
    waiting.turns(900)
    waiting.submit("bob", 1_000)
    assert Counter(waiting.turns(20).split()) == {"ada": 10, "bob": 10}


def test_one_task_at_a_time_gains_nothing() -> None:
    """A share that always has one task waits as one with many does."""
    waiting = Waiting()
    waiting.submit("ada", 1_000)
    counts: Counter[str] = Counter()
    for _ in range(200):
        if "bob" not in waiting.shares:
            waiting.submit("bob")
        counts[waiting.serve()] += 1
    assert counts == {"ada": 100, "bob": 100}


@pytest.mark.parametrize("weight", [1, 5])
def test_ever_new_shares_starve_nobody(weight: int) -> None:
    waiting = Waiting({"ada": weight})
    waiting.submit("ada", 1_000)
    last, longest = 0, 0
    for number in range(2_000):
        waiting.submit(f"new {number}")
        if waiting.serve() == "ada":
            longest, last = max(longest, number - last), number
    assert 0 < longest < 150
    assert last > 1_850


def test_weights_change_while_shares_wait() -> None:
    waiting = Waiting()
    for value in ("ada", "bob"):
        waiting.submit(value, 1_000)
    waiting.turns(10)
    waiting.fair.weigh({"ada": 4})
    assert Counter(waiting.turns(100).split()) == {"ada": 80, "bob": 20}
    waiting.fair.weigh({})
    assert abs(Counter(waiting.turns(100).split())["ada"] - 50) <= 1


def test_members_without_shares_take_turns_too() -> None:
    """The queues of a worker have turns of the same kind, without a count of what waits."""
    clock, light, heavy = Clock(), Turn(), Turn(3)
    served: list[Turn] = []
    for _ in range(400):
        served.append(min(light, heavy, key=lambda turn: turn.place))
        clock.serve(served[-1])
    assert abs(served.count(heavy) - 300) <= 1
    for _ in range(100):
        clock.serve(heavy)
    assert min(light, heavy, key=lambda turn: turn.place) is light
    clock.serve(light)
    assert light.at > clock.now  # It goes on from the clock.


def test_the_deepest_are_listed_first() -> None:
    waiting = Waiting()
    for value, count in (("ada", 3), ("bob", 9), ("cy", 1)):
        waiting.submit(value, count)
    assert [(share.value, share.size) for share in waiting.fair.deepest(2)] == [
        ("bob", 9),
        ("ada", 3),
    ]


# In a queue.


def fair(weights: dict[str, int] | None = None, **policy: Any) -> Driver:
    """Return a core whose queue is shared out by tenants."""
    driver = Driver()
    driver.declare("q", fair_by="tenant", fair_weights=weights or {}, **policy)
    return driver


def submit(driver: Driver, tenants: str, first: int = 1, **fields: Any) -> None:
    """Submit a task of each tenant, in this order; one without a tenant is -."""
    for number, tenant in enumerate(tenants.split(), first):
        keys = {} if tenant == "-" else {"tenant": tenant}
        driver.submit(number, headers=keys, **fields)


def work(driver: Driver, slots: int = 1) -> Iterator[int]:
    """Let one worker do all there is, and yield the numbers in the order of their starts."""
    driver.join("w", 100, slots=slots)
    while given := driver.assigned():
        number = given[0]
        yield number
        driver.finish(number)


def test_a_task_without_the_key_is_in_a_share_of_its_own() -> None:
    driver = fair()
    submit(driver, "ada ada ada - - ada")
    assert list(work(driver)) == [1, 4, 2, 5, 3, 6]


def test_priority_counts_within_a_share_alone() -> None:
    driver = fair()
    submit(driver, "ada ada", priority=10)
    submit(driver, "ada", first=3, priority=200)
    submit(driver, "bob bob", first=4, priority=1)
    assert list(work(driver)) == [3, 4, 1, 5, 2]


def test_ageing_counts_within_a_share() -> None:
    driver = fair(ageing_us=100)
    driver.submit(1, headers={"tenant": "ada"}, priority=10)
    driver.now_us += 150
    driver.submit(2, headers={"tenant": "ada"}, priority=11)
    driver.submit(3, headers={"tenant": "bob"}, priority=0)
    driver.submit(4, headers={"tenant": "ada"}, priority=100)
    assert list(work(driver)) == [4, 3, 1, 2]


def test_several_slots_are_filled_in_turn() -> None:
    driver = fair()
    submit(driver, "ada ada ada ada bob cy")
    driver.join("w", 100, slots=3)
    assert driver.assigned() == [1, 5, 6]


def test_tasks_of_one_command_are_given_out_in_turn() -> None:
    driver = fair({"bob": 2})
    driver.join("w", 100, slots=5)
    driver.pause_queue()
    submit(driver, "ada ada ada ada bob bob bob cy")
    driver.resume_queue()
    assert sorted(driver.assigned()) == [1, 2, 5, 6, 8]


@pytest.mark.parametrize("names", [None, ("x",)])
@pytest.mark.parametrize("keys", [(), ("a", "b")])
def test_keys_and_names_of_workers_are_respected(
    keys: tuple[str, ...], names: tuple[str, ...] | None
) -> None:
    """What a worker does not take is passed over, and the shares take turns in the rest."""
    driver = fair()
    kinds = cycle(permutations(("a", "b", "")))
    tenants = ("ada", "ada", "ada", "bob", "ada", "bob", "cy", "ada", "cy")
    number = 0
    mine: dict[int, str] = {}
    for tenant, (key, _, _) in zip(tenants * 2, islice(kinds, 18), strict=False):
        for name in ("x", "y"):
            number += 1
            driver.submit(number, headers={"tenant": tenant}, key=key, name=name)
            if (names is None or name in names) and (not keys or key in keys):
                mine[number] = tenant
    driver.join("w", 100, slots=1, keys=keys, names=names)
    order: list[int] = []
    while given := driver.assigned():
        order.append(given[0])
        driver.finish(given[0])
    assert sorted(order) == sorted(mine)
    assert_in_turn([mine[each] for each in order])


def assert_in_turn(order: Sequence[str]) -> None:
    """Assert that of those that have tasks left, none had two more than another."""
    left = Counter(order)
    had: Counter[str] = Counter()
    for value in order:
        had[value] += 1
        left[value] -= 1
        waiting = [each for each, count in left.items() if count]
        for each in waiting:
            assert had[value] - had[each] <= 1, order


def test_a_closed_share_holds_up_no_other_and_has_no_credit() -> None:
    driver = fair()
    driver.limit("slow", 0)
    for number in range(1, 4):
        driver.submit(number, headers={"tenant": "ada"}, tags=("slow",))
    submit(driver, "bob bob bob bob bob bob", first=4)
    driver.join("w", 100, slots=1)
    for number in (4, 5, 6):
        assert driver.assigned() == [number]
        driver.finish(number)
    driver.limit("slow", 9)
    order = []
    given = [7]
    while given:
        order.append(given[0])
        driver.finish(given[0])
        given = driver.assigned()
    assert order == [7, 1, 8, 2, 9, 3]


def test_a_retry_has_the_turn_of_its_share() -> None:
    driver = fair(retry_base_us=0, prefer_other_worker=False)
    submit(driver, "ada ada bob bob")
    driver.join("w", 100, slots=1)
    assert driver.assigned() == [1]
    driver.fail(1)
    assert driver.assigned() == [3]


@pytest.mark.parametrize("kept", ["", "tenant"])
def test_the_key_changes_while_tasks_wait(kept: str) -> None:
    driver = Driver()
    driver.declare("q", fair_by=kept)
    for number in range(1, 7):
        keys = {"tenant": "ada" if number < 5 else "bob", "user": "u" if number < 3 else "v"}
        driver.submit(number, headers=keys)
    driver.declare("q", fair_by="user")
    assert {share.value: share.size for share in shares_of(driver)} == {"u": 2, "v": 4}
    driver.declare("q", fair_by="tenant")
    assert {share.value: share.size for share in shares_of(driver)} == {"ada": 4, "bob": 2}
    assert list(work(driver)) == [1, 5, 2, 6, 3, 4]


def test_without_a_key_the_order_is_as_ever() -> None:
    driver = fair()
    submit(driver, "ada ada ada bob bob")
    driver.declare("q", fair_by="")
    assert driver.core.book.namespaces["default"].queues["q"].line.fair is None
    assert list(work(driver)) == [1, 2, 3, 4, 5]


def test_weights_change_while_tasks_wait() -> None:
    driver = fair()
    submit(driver, "ada ada ada ada bob bob bob bob")
    driver.declare("q", fair_weights={"bob": 3})
    assert list(work(driver)) in ([1, 5, 6, 7, 2, 8, 3, 4], [5, 1, 6, 7, 8, 2, 3, 4])


def test_a_restart_keeps_shares_and_weights() -> None:
    driver = fair({"bob": 2})
    submit(driver, "ada ada ada bob bob bob bob")
    core = driver.replayed()
    driver.core = core
    shares = {share.value: (share.size, share.weight) for share in shares_of(driver)}
    assert shares == {"ada": (3, 1), "bob": (4, 2)}


def shares_of(driver: Driver) -> list[FairShare]:
    fair = driver.core.book.namespaces["default"].queues["q"].line.fair
    assert fair is not None
    return list(fair.waiting())


# Between queues.


@pytest.mark.parametrize(
    ("weights", "order"),
    [
        ({}, [3, 4, 1, 2]),  # The most urgent first.
        ({"q": 1}, [3, 1, 4, 2]),
        ({"q": 2}, [3, 1, 2, 4]),
        ({"r": 1, "q": 1}, [3, 1, 4, 2]),
        ({"elsewhere": 5}, [3, 4, 1, 2]),
    ],
)
def test_queues_of_a_worker_take_turns_if_one_has_a_weight(
    weights: dict[str, int], order: list[int]
) -> None:
    driver = Driver()
    for queue in ("q", "r", "elsewhere"):
        driver.declare(queue, weight=weights.get(queue, 0))
    for number in (1, 2):
        driver.submit(number, "q", priority=10)
    for number in (3, 4):
        driver.submit(number, "r", priority=20)
    driver.join("w", 100, queues=("q", "r"), slots=1)
    done = []
    while given := driver.assigned():
        done.append(given[0])
        driver.finish(given[0])
    assert done == order


def test_weights_of_queues_are_turns() -> None:
    driver = Driver(is_checked=False)
    driver.declare("q", weight=3)
    driver.declare("r", weight=1)
    for number in range(400):
        driver.submit(number + 1, "q" if number % 2 else "r")
    driver.join("w", 100, queues=("q", "r"), slots=1)
    counts: Counter[str] = Counter()
    for _ in range(100):
        [number] = driver.assigned()
        counts[driver.task(number).queue.name] += 1
        driver.finish(number)
    assert counts == {"q": 75, "r": 25}


def test_a_weight_counts_after_a_restart() -> None:
    driver = Driver()
    driver.declare("q", weight=3)
    assert list(driver.replayed().book.namespaces["default"].weighted) == ["q"]
    driver.declare("q", weight=0)
    assert not driver.replayed().book.namespaces["default"].weighted


# Cost.


def lines_a_task(shares: int, *, closed: int = 0, keys: tuple[str, ...] = ()) -> float:
    """Return what it costs a worker to finish a task among so many shares."""
    driver = Driver(is_checked=False)
    driver.declare("q", fair_by="tenant")
    driver.limit("slow", 0)
    for number in range(closed):
        driver.submit(10**6 + number, headers={"tenant": f"closed {number}"}, tags=("slow",))
        driver.submit(2 * 10**6 + number, headers={"tenant": f"other {number}"}, key="other")
    for number in range(1, 2 * shares + 1):
        driver.submit(number, headers={"tenant": str(number % shares)}, key="mine")
    driver.join("w", 1, keys=keys)

    def work() -> None:
        for _ in range(20):
            [number] = driver.assigned()
            driver.finish(number)

    work()
    return lines_run(work) / 20


def test_many_shares_do_not_slow_a_worker_down() -> None:
    assert lines_a_task(2_000) < 1.5 * lines_a_task(50)


def test_shares_that_are_closed_or_of_another_key_do_not_slow_a_worker_down() -> None:
    few = lines_a_task(50, closed=50, keys=("mine",))
    assert lines_a_task(50, closed=2_000, keys=("mine",)) < 1.5 * few
