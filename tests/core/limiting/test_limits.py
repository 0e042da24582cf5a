"""Limits by key: bounds of what is accepted, each at the limit and one past it."""

from __future__ import annotations

import msgspec
import pytest

from jackalope.broker.views.limits import key_limit_views
from jackalope.core import Core
from jackalope.core.commands import Fail, FailAttempts, Verdict
from jackalope.core.commands.limits import DeclareLimits, DeleteLimit
from jackalope.core.durations import SECOND
from jackalope.core.effects import Accepted
from jackalope.core.limits import (
    CLOSED_US_MAX,
    GATES_SHOWN_MAX,
    KEYS_PER_LIMIT_MAX,
    LIMITS_PER_NAMESPACE_MAX,
    RATE_MAX,
    TIME_US_MAX,
)
from jackalope.core.records import FLOW_CONTROL_LEVEL
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.limit import PERIOD_US_MAX, LimitSettings, full_bucket
from jackalope.core.task import Error, lease_of
from tests.core.driving import NOW_US, Driver, task_id


def declare(driver: Driver, name: str = "l", **changes: object) -> str:
    """Declare a limit, and return why it was refused; empty if it was not."""
    answer = driver.send(DeclareLimits(limits={name: changes}))
    if isinstance(answer, Refusal):
        assert driver.records == []
        return f"{answer.code}: {answer.message}"
    assert answer == Accepted(1)
    return ""


def test_limits_per_namespace_max() -> None:
    driver = Driver()
    many: dict[str, dict[str, object]] = {
        str(number): {"concurrency": 1} for number in range(LIMITS_PER_NAMESPACE_MAX)
    }
    assert driver.send(DeclareLimits(limits=many)) == Accepted(LIMITS_PER_NAMESPACE_MAX)
    assert declare(driver, "0", concurrency=2) == ""
    assert str(Code.TOO_MANY) in declare(driver, "one more", concurrency=1)


def test_keys_per_limit_max() -> None:
    driver = Driver()
    keys = [f"k{number}" for number in range(KEYS_PER_LIMIT_MAX + 1)]
    assert declare(driver, keys=keys[1:]) == ""
    assert str(KEYS_PER_LIMIT_MAX) in declare(driver, keys=keys)


def test_rate_max() -> None:
    driver = Driver()
    assert declare(driver, rate=RATE_MAX, burst=RATE_MAX, per_us=PERIOD_US_MAX) == ""
    assert declare(driver, rate=RATE_MAX + 1).count("rate: must be") == 1
    assert declare(driver, rate=1, burst=RATE_MAX + 1).count("burst: must be") == 1
    assert declare(driver, rate=1, per_us=PERIOD_US_MAX + 1).count("per_us: must be") == 1
    # The fullest bucket fits into what is stored.
    bucket = full_bucket(LimitSettings(rate=1, burst=RATE_MAX, per_us=PERIOD_US_MAX), NOW_US)
    assert msgspec.json.decode(msgspec.json.encode(bucket), type=type(bucket)) == bucket
    assert bucket.units < 2**63


@pytest.mark.parametrize("others", [{"queue": "other"}, {"task": "other"}])
def test_tasks_that_a_limit_is_not_for_stay_in_line(others: dict[str, object]) -> None:
    """To take 100,000 tasks out of line and put them back stops a broker for seconds."""
    driver = Driver()
    declare(driver, keys=["k"], concurrency=1)
    driver.submit(1, keys={"k": "a"})
    lane = driver.task(1).lane
    for bound in (1, 2):
        assert declare(driver, "others", concurrency=bound, **others) == ""
    driver.send(DeleteLimit(name="others"))
    assert driver.task(1).lane is lane
    assert declare(driver, "own", concurrency=1) == ""
    assert driver.task(1).lane is not lane


def test_gates_shown_max() -> None:
    driver = Driver()
    declare(driver, keys=["k"], concurrency=1)
    for number in range(1, GATES_SHOWN_MAX + 2):
        driver.submit(number, keys={"k": str(number)})
    driver.submit(GATES_SHOWN_MAX + 2, keys={"k": "1"})
    [view] = key_limit_views(driver.core.book, "default", NOW_US)
    assert (view.gate_count, view.waiting) == (GATES_SHOWN_MAX + 1, GATES_SHOWN_MAX + 2)
    assert len(view.gates) == GATES_SHOWN_MAX
    assert (view.gates[0].values, view.gates[0].waiting) == (("1",), 2)


@pytest.mark.parametrize("after_us", [CLOSED_US_MAX, CLOSED_US_MAX + 1, TIME_US_MAX])
def test_closed_us_max(after_us: int) -> None:
    driver = Driver()
    declare(driver, keys=["k"])
    driver.join("w1", 1)
    driver.submit(1, keys={"k": "a"})
    fence = lease_of(driver.task(1)).fence
    fail = Fail(task_id(1), fence, Error("E"), Verdict.THROTTLED, after_us, key="k")
    driver.send(FailAttempts(ref=1, attempts=[fail], session=1))
    [gate] = driver.core.book.namespace("default").gates.gates.values()
    assert gate.bucket is not None
    assert gate.bucket.until_us == NOW_US + CLOSED_US_MAX


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        ("40", 40),
        ("39.2", 40),
        ("1e1", 10),
        ("100", 100),
        ("101", 100),
        ("10000000000", 100),
        ("inf", 100),
        ("nan", 1),
        ("0", 1),
        ("-7", 1),
        ("many", 1),
        ("", 1),
    ],
)
def test_a_task_takes_as_many_tokens_as_its_key_says(value: str, tokens: int) -> None:
    """Of more than a full bucket it takes all, and one if the value is no number."""
    driver = Driver()
    driver.join("w1", 1)
    assert declare(driver, rate=100, per_us=SECOND, cost_key="n") == ""
    driver.submit(1, keys={"n": value})
    [gate] = driver.core.book.namespace("default").gates.gates.values()
    assert gate.bucket is not None
    assert gate.bucket.units == (100 - tokens) * SECOND


@pytest.mark.parametrize(
    ("name", "changes", "problems"),
    [
        ("", {}, ["name: "]),
        ("x" * 257, {}, ["name: "]),
        ("l", {}, ["give concurrency, rate, or both"]),
        ("l", {"rate": 0, "concurrency": -1}, ["give concurrency, rate, or both"]),
        ("l", {"keys": [""]}, ["keys: must have 1"]),
        ("l", {"rate": 1, "cost_key": "\0"}, ["cost_key: must have"]),
        ("l", {"concurrency": "two", "rate": -1}, ["concurrency: must be", "rate: must be"]),
        ("l", {"per_us": 0, "cost": 0}, ["per_us: must be 1us to 31d, got 0s", "cost: must be"]),
        ("l", {"rate": 2, "burst": 1, "cost": 2}, ["cost: 2 is more than"]),
        ("l", {"on_full": "cancel_newest"}, ["on_full: "]),
        ("l", {"on_full": "cancel_newest", "concurrency": 0}, ["on_full: "]),
    ],
)
def test_bad_limits_are_refused(name: str, changes: dict[str, object], problems: list[str]) -> None:
    refused = declare(Driver(), name, **changes)
    assert all(problem in refused for problem in problems), refused


def test_all_limits_are_declared_or_none() -> None:
    driver = Driver()
    limits: dict[str, dict[str, object]] = {"a": {"concurrency": 1}, "b": {"rate": -1}}
    answer = driver.send(DeclareLimits(limits=limits))
    assert isinstance(answer, Refusal)
    assert "b: rate: " in answer.message
    assert driver.records == []


def test_limits_wait_for_the_members_of_a_cluster() -> None:
    driver = Driver()
    driver.core.level = FLOW_CONTROL_LEVEL - 1
    assert "cluster upgrade" in declare(driver, concurrency=1)


def test_the_same_limit_again_changes_nothing() -> None:
    driver = Driver()
    declare(driver, concurrency=1, keys=["k"])
    assert declare(driver, concurrency=1, keys=["k"]) == ""
    assert driver.records == []


def test_a_bucket_of_a_time_to_come_is_forgotten_when_the_clock_is_set_back() -> None:
    settings = LimitSettings(rate=1, per_us=SECOND)
    bucket = full_bucket(settings, NOW_US)
    bucket.refill(settings, NOW_US - SECOND)
    assert bucket.at_us == NOW_US


@pytest.mark.parametrize("is_throttled", [False, True])
def test_a_limit_of_time_holds_after_a_restart_from_stored_rows(is_throttled: bool) -> None:
    """No lease is left that could tell of it: only the bucket is stored."""
    driver = Driver()
    declare(driver, keys=["k"], rate=0 if is_throttled else 1, per_us=60 * SECOND)
    driver.join("w1", 1, slots=9)
    driver.submit(1, keys={"k": "a"})
    fence = lease_of(driver.task(1)).fence
    if is_throttled:
        fail = Fail(task_id(1), fence, Error("E"), Verdict.THROTTLED, 60 * SECOND, key="k")
        driver.send(FailAttempts(ref=1, attempts=[fail], session=1))
    else:
        driver.submit(2, keys={"k": "a"})
        driver.finish(1)
    changes = driver.core.book.snapshot()
    driver.core = Core()
    driver.core.book.restore(changes.counters, changes.entities, changes.tasks)
    driver.join("w2", 2, slots=9)
    assert driver.assigned() == []
    driver.tick(60 * SECOND)
    assert driver.assigned() == [1 if is_throttled else 2]


def test_what_comes_in_time_for_a_token_does_not_pass_what_waits_for_it() -> None:
    """The token has come, and the broker gets to know of the time by a submit."""
    driver = Driver()
    declare(driver, "all", rate=1, per_us=10 * SECOND)
    declare(driver, "each", keys=["k"], concurrency=5)
    driver.join("w1", 1, slots=9)
    for number in (1, 2):
        driver.submit(number, keys={"k": str(number)})
    driver.now_us += 10 * SECOND
    driver.submit(3, keys={"k": "3"})
    assert driver.assigned() == []
    driver.tick()
    assert driver.assigned() == [2]
