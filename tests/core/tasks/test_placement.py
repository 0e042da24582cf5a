"""Placement: tasks with needs and workers with resources and labels, case by case."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from jackalope.core.commands import (
    Action,
    CancelClaim,
    ClaimTasks,
    DrainWorker,
    Finish,
    FinishAttempts,
    LeaveWorker,
    SubmitTasks,
)
from jackalope.core.durations import SECOND
from jackalope.core.effects import Answered
from jackalope.core.explain import Why, explain
from jackalope.core.lifecycle import State
from jackalope.core.limits import (
    AMOUNT_MAX,
    NAME_CHARS_MAX,
    NEEDS_PER_TASK_MAX,
    RESERVATIONS_MAX,
    RESOURCES_PER_WORKER_MAX,
    STICKY_VALUES_MAX,
    TAG_CHARS_MAX,
)
from jackalope.core.records import FLOW_CONTROL_LEVEL, AttemptAssigned, AttemptFinished
from jackalope.core.refusals import Code
from jackalope.core.shapes.needs import (
    ONE,
    Needs,
    amount_of,
    format_amount,
    is_size,
    needs_problems,
    parse_amount,
    policy_needs_problems,
    read_labels,
    read_needs,
)
from jackalope.core.state.roster import Worker
from tests.core.driving import Driver, assert_accepted, assert_refused, refusal_in, spec, task_id

LOW, HIGH = 10, 200


@pytest.fixture
def driver() -> Driver:
    return Driver()


def needs(**wanted: Any) -> Needs:
    """Return needs as a user writes them, with `prefer`, `avoid` and `sticky` among them."""
    problems: list[str] = []
    prefer = read_labels(wanted.pop("prefer", {}), problems, "prefer")
    avoid = read_labels(wanted.pop("avoid", {}), problems, "avoid")
    sticky = wanted.pop("sticky", "")
    read = read_needs(wanted, problems)
    assert not problems
    return Needs(read.resources, read.labels, prefer, avoid, sticky)


def join(
    driver: Driver, worker: str, session: int, *, slots: int = 10, **resources: Any
) -> Answered | None:
    labels = resources.pop("labels", {})
    amounts = {name: parse_amount(amount) for name, amount in resources.items()}
    return driver.join(worker, session, slots=slots, resources=amounts, labels=labels)


def why(driver: Driver, number: int) -> list[tuple[Why, str]]:
    causes = explain(driver.core, driver.task(number)).causes
    return [(cause.why, cause.text) for cause in causes]


def running(driver: Driver, *numbers: int) -> list[str]:
    return [driver.worker(number) for number in numbers]


# Resources.


def test_a_worker_is_given_no_more_than_it_has(driver: Driver) -> None:
    join(driver, "w", 1, gpu=2)
    for number in (1, 2, 3):
        driver.submit(number, needs=needs(gpu=1))
    assert [driver.state(number) for number in (1, 2, 3)] == [
        State.ASSIGNED,
        State.ASSIGNED,
        State.READY,
    ]
    driver.finish(1)
    assert driver.assigned() == [3]
    assert driver.core.book.namespaces["default"].used == {"w": {"gpu": 2 * ONE}}


def test_what_nobody_can_take_stands_in_nobodys_way(driver: Driver) -> None:
    join(driver, "w", 1, gpu=1)
    driver.submit(1, needs=needs(gpu=8))
    driver.submit(2, needs=needs(gpu=1))
    assert driver.assigned() == [2]
    driver.submit(3)
    assert driver.assigned() == [3]
    [(cause, text)] = why(driver, 1)
    assert cause is Why.NEEDS_UNMET
    assert text == (
        "needs gpu=8; no worker can ever run it: the nearest of queue 'q', 'w', lacks 7 gpu"
    )
    join(driver, "large", 2, gpu=8)
    assert driver.assigned() == [1]


def test_a_worker_without_resources_takes_no_task_that_needs_some(driver: Driver) -> None:
    driver.join("w", 1, slots=10)
    driver.submit(1, needs=needs(gpu=1))
    assert driver.assigned() == []
    driver.submit(2)
    assert driver.assigned() == [2]


@pytest.mark.parametrize("end", ["finish", "fail", "release", "leave", "silent"])
def test_every_end_of_a_lease_gives_back_what_it_took(driver: Driver, end: str) -> None:
    driver.declare(retry_base_us=0, retries=9)
    join(driver, "w", 1, gpu=1)
    driver.submit(1, needs=needs(gpu=1))
    driver.start(1)
    used = driver.core.book.namespaces["default"].used
    assert used == {"w": {"gpu": ONE}}
    ends: dict[str, Callable[[], object]] = {
        "finish": lambda: driver.finish(1),
        "fail": lambda: (driver.pause_queue(), driver.fail(1)),
        "release": lambda: (driver.pause_queue(), driver.release(1)),
        "leave": lambda: driver.send(LeaveWorker(session=1)),
        "silent": lambda: driver.tick(100_000 * SECOND),
    }
    ends[end]()
    assert used == {}


def test_a_lease_takes_its_resources_over_a_restart(driver: Driver) -> None:
    join(driver, "w", 1, gpu=2, mem="8GiB")
    driver.submit(1, needs=needs(gpu=1, mem="6GiB"))
    again = driver.replayed()
    assert again.book.namespaces["default"].used == {"w": {"gpu": ONE, "mem": 6 * 2**30 * ONE}}


def test_small_tasks_fill_the_gaps(driver: Driver) -> None:
    join(driver, "a", 1, gpu=4)
    join(driver, "b", 2, gpu=4)
    driver.submit(1, needs=needs(gpu=2))
    driver.submit(2, needs=needs(gpu=1))
    driver.submit(3, needs=needs(gpu=1))
    assert running(driver, 1, 2, 3) == ["a", "a", "a"]
    driver.submit(4, needs=needs(gpu=4))
    assert running(driver, 4) == ["b"]


def test_a_task_goes_to_a_worker_without_what_it_has_no_use_for(driver: Driver) -> None:
    join(driver, "a", 1, gpu=1, cpu=8)
    join(driver, "b", 2, cpu=64)
    driver.submit(1, needs=needs(cpu=2))
    assert running(driver, 1) == ["b"]
    driver.submit(2, needs=needs(cpu=2, gpu=1))
    assert running(driver, 2) == ["a"]


def test_parts_of_one_are_exact(driver: Driver) -> None:
    join(driver, "w", 1, cpu=1)
    for number in range(1, 12):
        driver.submit(number, needs=needs(cpu=0.1))
    assert driver.state(10) is State.ASSIGNED
    assert driver.state(11) is State.READY


# The large and the small.


def test_the_small_do_not_starve_the_large(driver: Driver) -> None:
    join(driver, "w", 1, gpu=4)
    for number in range(1, 5):
        driver.submit(number, needs=needs(gpu=1))
    driver.submit(5, needs=needs(gpu=4))
    for number in range(6, 20):
        driver.submit(number, needs=needs(gpu=1))
    [(cause, text), *_] = why(driver, 5)
    assert (cause, text) == (
        Why.RESOURCES_BUSY,
        "fits worker 'w' once 4 gpu more is free (reserved)",
    )
    for number in (1, 2, 3):
        driver.finish(number)
        assert driver.assigned() == []
    assert why(driver, 6)[0] == (
        Why.RESOURCES_BUSY,
        "worker 'w' is kept free for a larger task that comes before it",
    )
    driver.finish(4)
    assert driver.assigned() == [5]
    driver.finish(5)
    assert driver.assigned() == [6, 7, 8, 9]


def test_what_comes_before_the_large_goes_first(driver: Driver) -> None:
    join(driver, "w", 1, gpu=2)
    driver.submit(1, needs=needs(gpu=1))
    driver.submit(2, needs=needs(gpu=2))
    driver.submit(3, needs=needs(gpu=1), priority=HIGH)
    assert driver.assigned() == [3]


def test_what_uses_nothing_of_it_does_not_wait_for_the_large(driver: Driver) -> None:
    join(driver, "w", 1, gpu=2, cpu=8)
    driver.submit(1, needs=needs(gpu=1))
    driver.submit(2, needs=needs(gpu=2, cpu=4))
    driver.submit(3, needs=needs(cpu=4))
    assert driver.assigned() == [3]
    driver.submit(4, needs=needs(cpu=1))  # It would take what the large one needs.
    assert driver.assigned() == []
    driver.submit(5)
    assert driver.assigned() == [5]


def test_one_worker_is_kept_free_and_others_go_on(driver: Driver) -> None:
    join(driver, "a", 1, gpu=2)
    join(driver, "b", 2, gpu=2)
    driver.submit(1, needs=needs(gpu=1))
    driver.submit(2, needs=needs(gpu=1))
    driver.submit(3, needs=needs(gpu=1))
    driver.submit(4, needs=needs(gpu=2))  # One is left of b, none of a.
    driver.submit(5, needs=needs(gpu=1))
    assert driver.assigned() == []
    driver.finish(1)
    assert (driver.assigned(), running(driver, 5)) == ([5], ["a"])
    driver.finish(3)
    assert (driver.assigned(), running(driver, 4)) == ([4], ["b"])


@pytest.mark.parametrize("how", ["kill", "pause", "queue", "drain", "leave", "close"])
def test_a_worker_is_kept_free_no_longer_than_need_be(driver: Driver, how: str) -> None:
    driver.declare("large")
    driver.join("w", 1, ("q", "large"), slots=9, resources={"gpu": 2 * ONE})
    driver.submit(1, needs=needs(gpu=1))
    driver.submit(2, "large", needs=needs(gpu=2))
    driver.submit(3, needs=needs(gpu=1))
    assert driver.state(3) is State.READY
    assert next(iter(driver.core.roster.reserved.values())).id == "w"
    steps: dict[str, Callable[[], object]] = {
        "kill": lambda: driver.act(Action.KILL, 2),
        "pause": lambda: driver.act(Action.PAUSE, 2),
        "queue": lambda: driver.pause_queue("large"),
        "drain": lambda: driver.send(DrainWorker(worker="w")),
        "leave": lambda: driver.send(LeaveWorker(session=1)),
        "close": lambda: driver.close(1),
    }
    steps[how]()
    if how in ("kill", "pause", "queue"):
        assert driver.assigned() == [3]
    driver.join("other", 2, ("q", "large"), slots=9, resources={"gpu": 2 * ONE})
    if how == "leave":
        assert driver.assigned() == [1]  # It comes before the large one.
        driver.finish(1)
    if how in ("drain", "leave", "close"):
        assert driver.assigned() == [2]
    assert all(it.id != "w" for it in driver.core.roster.reserved.values())


def test_a_claim_gets_what_fits(driver: Driver) -> None:
    join(driver, "w", 1, slots=0, gpu=2)
    driver.submit(1, needs=needs(gpu=4))
    driver.submit(2, needs=needs(gpu=1))
    driver.submit(3, needs=needs(gpu=2))
    driver.send(ClaimTasks(ref=7, session=1, count=3, wait_us=SECOND))
    assert driver.assigned() == [2]
    driver.submit(4, needs=needs(gpu=1))
    assert driver.assigned() == []  # It is kept for 3.
    driver.finish(2)
    assert driver.assigned() == [3]
    driver.send(CancelClaim(session=1, claim=7))
    driver.finish(3)
    assert driver.assigned() == []


# Labels.


def test_a_task_goes_to_a_worker_with_its_labels(driver: Driver) -> None:
    join(driver, "a", 1, labels={"arch": "amd64"})
    driver.submit(1, needs=needs(arch="arm64"))
    text = (
        "needs arch=arm64; no worker can ever run it: "
        "the nearest of queue 'q', 'a', lacks the label arch=arm64"
    )
    assert why(driver, 1) == [(Why.NEEDS_UNMET, text)]
    join(driver, "b", 2, labels={"arch": "arm64"})
    assert running(driver, 1) == ["b"]
    driver.submit(2, needs=needs(arch=["arm64", "amd64"], zone="x"))
    assert driver.assigned() == []
    [(_, text)] = why(driver, 2)
    assert text.endswith("'a', lacks the label zone=x")


def test_all_needs_must_be_met_by_one_worker(driver: Driver) -> None:
    join(driver, "a", 1, gpu=1)
    join(driver, "b", 2, labels={"arch": "arm64"})
    driver.submit(1, needs=needs(gpu=1, arch="arm64"))
    text = (
        "needs gpu=1, arch=arm64; no worker can ever run it: "
        "the nearest of queue 'q', 'a', lacks the label arch=arm64"
    )
    assert why(driver, 1) == [(Why.NEEDS_UNMET, text)]


def test_the_nearest_worker_lacks_the_fewest_needs_and_then_the_least(driver: Driver) -> None:
    join(driver, "a", 1, gpu=1, mem=1)
    join(driver, "b", 2, gpu=4, mem=8, labels={"arch": "amd64"})
    join(driver, "c", 3, gpu=3, mem=16, labels={"arch": "arm64"})
    join(driver, "d", 4, gpu=2, mem=16, labels={"arch": "arm64"})
    driver.submit(1, needs=needs(gpu=4, mem=16, arch="arm64"))
    [(_, text)] = why(driver, 1)
    assert text.endswith("the nearest of queue 'q', 'c', lacks 1 gpu")
    driver.submit(2, needs=needs(gpu=8, mem=32, arch="riscv"))
    [(_, text)] = why(driver, 2)
    assert text.endswith("'c', lacks 5 gpu, 16 mem, the label arch=riscv")


def test_a_task_goes_first_to_workers_that_it_prefers(driver: Driver) -> None:
    for session, zone in enumerate("xyx", 1):
        join(driver, f"w{session}", session, slots=1, labels={"zone": zone})
    driver.submit(1, needs=needs(prefer={"zone": "y"}))
    driver.submit(2, needs=needs(prefer={"zone": "y"}))
    assert running(driver, 1, 2) == ["w2", "w1"]


def test_a_task_waits_for_a_worker_that_it_need_not_avoid(driver: Driver) -> None:
    join(driver, "spot", 1, labels={"tier": "spot"})
    join(driver, "fixed", 2, slots=1)
    driver.submit(1)
    driver.submit(2)
    steady = needs(avoid={"tier": "spot"})
    assert "fixed" in running(driver, 1, 2)
    driver.submit(3, needs=steady)
    assert driver.assigned() == []
    assert why(driver, 3)[0] == (
        Why.AVOIDS_WORKER,
        "avoids worker 'spot' by its labels; waits for another",
    )
    driver.send(LeaveWorker(session=2))
    assert 3 in driver.assigned()
    assert running(driver, 3) == ["spot"]  # Rather there than nowhere.


def test_a_failed_task_comes_back_if_no_other_worker_could_ever_run_it(driver: Driver) -> None:
    driver.declare(retry_base_us=0, retry_jitter=0.0)
    join(driver, "a", 1, gpu=1)
    join(driver, "b", 2)
    driver.submit(1, needs=needs(gpu=1))
    driver.fail(1)
    assert running(driver, 1) == ["a"]
    join(driver, "c", 3, gpu=1)
    driver.fail(1)
    assert running(driver, 1) == ["c"]


# Sticky tasks.


def test_a_sticky_task_goes_where_the_last_one_was(driver: Driver) -> None:
    join(driver, "a", 1, slots=2)
    join(driver, "b", 2, slots=2)
    driver.submit(1, needs=needs(sticky="ada"))
    driver.finish(1)
    driver.submit(2, needs=needs(sticky="ada"))
    driver.submit(3, needs=needs(sticky="ada"))
    assert running(driver, 2, 3) == ["a", "a"]
    driver.submit(4, needs=needs(sticky="ada"))  # There is no room, so it goes on elsewhere.
    driver.finish(2)
    driver.submit(5, needs=needs(sticky="ada"))
    assert running(driver, 4, 5) == ["b", "b"]


# What is given with the queue.


def test_the_policy_gives_needs_to_tasks_that_have_none(driver: Driver) -> None:
    driver.declare(needs={"gpu": 1, "arch": "arm64"})
    join(driver, "w", 1, gpu=2, labels={"arch": "arm64"})
    driver.submit(1)
    driver.submit(2, needs=needs(cpu=1))
    assert driver.task(1).options.needs == needs(gpu=1, arch="arm64")
    assert driver.state(2) is State.READY
    driver.declare(needs={})
    assert_accepted(driver.submit(1))  # The same task again, whatever the policy is by now.
    driver.submit(3)
    assert driver.task(3).options.needs is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"gpu": -1}, "gpu: must be 0"),
        ({"gpu": 0}, "gpu: must be more than 0"),
        ({"": 1}, "a name must have"),
        ({"mem": True}, "got `bool`"),
        ({"gpu": 0.0001}, "gpu: must be more than 0"),
        ({"arch": []}, "1 to 32 values"),
    ],
)
def test_a_policy_with_bad_needs_is_refused(
    driver: Driver, given: dict[str, Any], said: str
) -> None:
    refusal = refusal_in(driver.declare(needs=given))
    assert refusal is not None
    assert refusal.code is Code.INVALID
    assert said in refusal.message
    assert driver.records == []


def test_all_that_is_wrong_is_listed() -> None:
    wrong = Needs(
        (("gpu", -1), ("gpu", 1), ("", 1)),
        (("arch", ()),),
        (("zone", ("x" * (NAME_CHARS_MAX + 1),)),),
        (),
        "x" * (NAME_CHARS_MAX + 1),
    )
    assert len(needs_problems(wrong)) == 6
    assert len(policy_needs_problems({"a": "1", "b": -1, "c": [1], "d": 1})) == 2


def test_needs_wait_for_a_cluster_that_knows_them(driver: Driver) -> None:
    driver.core.level = FLOW_CONTROL_LEVEL - 1
    refusal = refusal_in(driver.submit(1, needs=needs(gpu=1)))
    assert refusal is not None
    assert "cluster upgrade" in refusal.message
    refusal = refusal_in(driver.declare(needs={"gpu": 1}))
    assert refusal is not None
    assert "cluster upgrade" in refusal.message
    assert_accepted(driver.submit(2))


# Amounts.


@pytest.mark.parametrize(
    ("written", "thousandths", "shown"),
    [
        (1, ONE, "1"),
        (0.5, 500, "500m"),
        ("500m", 500, "500m"),
        ("1.5", 1_500, "1500m"),
        ("64GiB", 64 * 2**30 * ONE, "64GiB"),
        ("64Gi", 64 * 2**30 * ONE, "64GiB"),
        ("2k", 2_000 * ONE, "2000"),
        ("3MB", 3_000_000 * ONE, "3000000"),
        ("1.5GiB", 3 * 2**29 * ONE, "1536MiB"),
        (2.0**50, 2**50 * ONE, "1PiB"),
        ("0", 0, "0"),
    ],
)
def test_amounts_are_written_and_shown(written: object, thousandths: int, shown: str) -> None:
    assert parse_amount(written) == thousandths
    assert format_amount(thousandths) == shown
    assert parse_amount(format_amount(thousandths)) == thousandths
    assert parse_amount(amount_of(thousandths)) == thousandths


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("", "must be a number"),
        ("-1", "must be a number"),
        (-1, "must be 0"),
        (float("nan"), "must be 0"),
        (float("inf"), "must be 0"),
        (True, "must be a number"),
        (None, "must be a number"),
        ("5XB", "unknown unit 'XB'"),
        ("1gib", "unknown unit 'gib'"),
        ("0.5m", "finer than a thousandth"),
        ("99999999999PiB", "must be 0"),
    ],
)
def test_what_is_no_amount_is_refused(written: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_amount(written)


def test_texts_without_a_unit_are_labels() -> None:
    assert [is_size(text) for text in ("8GiB", "500m", "3.11", "arm64", "8 GiB", "m")] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]


# Limits.


def test_needs_per_task_max(driver: Driver) -> None:
    many = {f"r{number}": 1 for number in range(NEEDS_PER_TASK_MAX + 1)}
    answer = driver.submit(1, needs=needs(**many))
    assert_refused(driver, answer, Code.INVALID, NEEDS_PER_TASK_MAX)
    values = [str(number) for number in range(NEEDS_PER_TASK_MAX + 1)]
    answer = driver.submit(1, needs=needs(arch=values))
    assert_refused(driver, answer, Code.INVALID, NEEDS_PER_TASK_MAX)
    many.popitem()
    assert_accepted(driver.submit(1, needs=needs(**many)))
    assert_accepted(driver.submit(2, needs=needs(arch=values[1:])))


def test_resources_per_worker_max(driver: Driver) -> None:
    many = {f"r{number}": 1 for number in range(RESOURCES_PER_WORKER_MAX + 1)}
    answer = join(driver, "w", 1, **many)
    assert_refused(driver, answer, Code.INVALID, RESOURCES_PER_WORKER_MAX)
    many.popitem()
    assert_accepted(join(driver, "w", 1, **many))
    long = {"x" * (TAG_CHARS_MAX + 1): 1}
    assert_refused(driver, join(driver, "v", 2, **long), Code.INVALID, TAG_CHARS_MAX)


def test_amount_max(driver: Driver) -> None:
    for amount in (AMOUNT_MAX + 1, -1):
        answer = driver.join("w", 1, resources={"mem": amount})
        assert_refused(driver, answer, Code.INVALID, AMOUNT_MAX // ONE)
        answer = driver.submit(1, needs=Needs((("mem", amount),)))
        assert_refused(driver, answer, Code.INVALID, AMOUNT_MAX // ONE)
    assert_accepted(driver.join("w", 1, resources={"mem": AMOUNT_MAX}))
    assert_accepted(driver.submit(1, needs=Needs((("mem", AMOUNT_MAX),))))
    assert driver.assigned() == [1]


def test_reservations_max(driver: Driver) -> None:
    count = RESERVATIONS_MAX + 1
    for number in range(1, count + 1):
        join(driver, f"w{number}", number, gpu=2)
        driver.submit(number, needs=needs(gpu=2))
    for number in range(1, count + 1):
        driver.submit(count + number, needs=needs(gpu=2), name=f"large{number}")
    reserved = driver.core.roster.reserved
    assert len(reserved) == RESERVATIONS_MAX
    last = next(iter(driver.core.roster.unreserved))
    assert last.task_name == f"large{count}"
    [taken] = [name for name in reserved if name.task_name == "large1"]
    driver.finish(next(n for n in range(1, count + 1) if driver.worker(n) == reserved[taken].id))
    assert driver.assigned() == [count + 1]
    assert last in driver.core.roster.reserved


def test_sticky_values_max(driver: Driver) -> None:
    join(driver, "w", 1)
    sticky = driver.core.roster.sticky
    sticky |= {("default", "q", str(number)): "w" for number in range(STICKY_VALUES_MAX)}
    driver.submit(1, needs=needs(sticky="0"))
    assert len(sticky) == STICKY_VALUES_MAX
    driver.submit(2, needs=needs(sticky="another"))
    assert len(sticky) == STICKY_VALUES_MAX
    assert next(name[2] for name in sticky) == "2"  # The least recently used is forgotten.
    assert [name[2] for name in sticky][-2:] == ["0", "another"]


# Against a naive packer.


class Packer:
    """Judges a core by what its records say, with sums over everything each time."""

    def __init__(self, driver: Driver, seed: int) -> None:
        self.driver, self.random = driver, random.Random(seed)
        self.totals: dict[str, dict[str, int]] = {}
        self.running: dict[int, tuple[str, Needs]] = {}
        self.asked: dict[int, Needs] = {}
        self.ended: set[int] = set()

    def step(self) -> None:
        number = len(self.asked) + 1
        act = self.random.random()
        if act < 0.5:
            asked = self.some_needs()
            self.asked[number] = asked
            self.driver.submit(number, needs=asked, priority=self.random.choice((LOW, HIGH)))
        elif self.running:
            self.end(self.random.choice(sorted(self.running)))
        else:
            return
        self.judge()

    def some_needs(self) -> Needs:
        wanted: dict[str, Any] = {"gpu": self.random.choice((1, 1, 1, 2, 4))}
        if self.random.random() < 0.3:
            wanted["mem"] = f"{self.random.randint(1, 8)}GiB"
        if self.random.random() < 0.2:
            wanted["zone"] = self.random.choice(("x", "y"))
        return needs(**wanted)

    def end(self, number: int) -> None:
        session = self.driver.core.roster.workers["default", self.driver.worker(number)].session
        finish = Finish(task_id(number), self.driver.fence(number))
        self.driver.send(FinishAttempts(session=session, attempts=[finish]))

    def judge(self) -> None:
        """Check after every single record that nobody has more than it can have."""
        for record in self.driver.records:
            if isinstance(record, AttemptFinished):
                number = int.from_bytes(record.task[:6], "big")
                del self.running[number]
                self.ended.add(number)
            if isinstance(record, AttemptAssigned):
                number = int.from_bytes(record.task[:6], "big")
                self.running[number] = (record.worker, self.asked[number])
                sums: dict[str, int] = {}
                for worker, held in self.running.values():
                    for name, amount in held.resources if worker == record.worker else ():
                        sums[name] = sums.get(name, 0) + amount
                has = self.totals[record.worker]
                assert all(amount <= has.get(name, 0) for name, amount in sums.items())


@pytest.mark.parametrize("seed", range(12))
def test_nobody_ever_has_more_than_it_can_have(seed: int) -> None:
    driver = Driver()
    packer = Packer(driver, seed)
    for number in range(1, 5):
        amounts = {"gpu": 4 * ONE, "mem": number * 4 * 2**30 * ONE}
        packer.totals[f"w{number}"] = amounts
        labels = {"zone": "xy"[number % 2]}
        driver.join(f"w{number}", number, slots=20, resources=amounts, labels=labels)
    for _ in range(150):
        packer.step()
    while packer.running:
        packer.end(min(packer.running))
        packer.judge()
    assert packer.ended == set(packer.asked)
    assert driver.core.book.namespaces["default"].used == {}
    assert not driver.core.roster.reserved or not any(
        lane.size for lane in driver.core.roster.reserved
    )


@pytest.mark.parametrize("seed", range(8))
def test_a_large_task_starts_when_what_its_worker_held_has_ended(seed: int) -> None:
    """However many small ones come after it: within as many ends as there were tasks running."""
    driver, chance = Driver(), random.Random(seed)
    for number in (1, 2, 3):
        join(driver, f"w{number}", number, slots=50, gpu=8)
    for number in range(1, 25):
        driver.submit(number, needs=needs(gpu=1))
    driver.submit(1000, needs=needs(gpu=8))
    lane = driver.task(1000).lane
    assert lane is not None
    kept: Worker = driver.core.roster.reserved[lane]
    ends, next_number = 0, 25
    live = list(range(1, 25))
    ahead = {number for number in live if driver.worker(number) == kept.id}
    while driver.state(1000) is State.READY:
        driver.send(SubmitTasks(ref=0, tasks=[spec(n, needs=needs(gpu=1)) for n in (next_number,)]))
        next_number += 1
        ending = chance.choice(live)
        live.remove(ending)
        ends += ending in ahead
        driver.finish(ending)
        live += [number for number in driver.assigned() if number != 1000]
    assert ends == len(ahead)
    assert driver.worker(1000) == kept.id
