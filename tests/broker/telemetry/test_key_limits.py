"""What is counted at limits by key."""

from jackalope.broker.telemetry.key_limits import LIMITS_MAX, OTHERS, LimitName, LimitReading
from jackalope.core.commands import Action, Fail, FailAttempts, Verdict
from jackalope.core.commands.limits import DeclareLimits, DeleteLimit
from jackalope.core.durations import SECOND
from jackalope.core.task import Error, lease_of
from tests.broker.telemetry.metered import Metered
from tests.core.driving import task_id


def declare(driver: Metered, **limits: dict[str, object]) -> None:
    driver.send(DeclareLimits(limits=limits))


def limits_of(driver: Metered) -> dict[LimitName, LimitReading]:
    driver.meter.settle()
    return driver.meter.limits.take(driver.core.book.namespaces)


def only(driver: Metered, name: str = "l") -> tuple[int, int, int, int]:
    each = limits_of(driver)["default", name]
    return each.in_flight, each.waiting, each.throttled, each.cancelled


def throttle(driver: Metered, number: int, key: str) -> None:
    fence = lease_of(driver.task(number)).fence
    fail = Fail(task_id(number), fence, Error("E"), Verdict.THROTTLED, SECOND, key=key)
    driver.send(FailAttempts(ref=1, attempts=[fail], session=1))


def test_slots_and_what_waits_are_added_up_over_all_values() -> None:
    driver = Metered()
    declare(driver, l={"keys": ["user"], "concurrency": 1}, idle={"keys": ["host"], "rate": 1})
    driver.join("w1", 1, slots=9)
    for number, user in enumerate("aaabbc", start=1):
        driver.submit(number, keys={"user": user})
    assert only(driver) == (3, 3, 0, 0)
    assert only(driver, "idle") == (0, 0, 0, 0)
    driver.start(6)
    driver.finish(6)
    assert only(driver) == (2, 3, 0, 0)


def test_throttled_attempts_count_for_the_limits_that_they_close() -> None:
    driver = Metered()
    declare(driver, l={"keys": ["user"], "concurrency": 9}, all={"concurrency": 9})
    driver.join("w1", 1, slots=9)
    driver.submit(1, keys={"user": "a"})
    driver.submit(2, keys={"user": "a"})
    throttle(driver, 1, "user")
    assert only(driver)[2] == 1
    assert only(driver, "all")[2] == 0
    throttle(driver, 2, "all")
    assert (only(driver)[2], only(driver, "all")[2]) == (1, 1)


def test_what_a_limit_cancels_counts_and_what_a_client_kills_does_not() -> None:
    driver = Metered()
    declare(driver, l={"keys": ["user"], "concurrency": 1, "on_full": "cancel_newest"})
    driver.join("w1", 1, slots=9)
    for number in (1, 2, 3):
        driver.submit(number, keys={"user": "a"})
    assert only(driver) == (1, 0, 0, 2)
    driver.act(Action.KILL, 1)
    assert only(driver)[3] == 2
    declare(driver, l={"on_full": "cancel_running"})
    driver.submit(4, keys={"user": "b"})
    driver.submit(5, keys={"user": "b"})
    assert only(driver)[3] == 3  # It is asked to stop.


def test_limits_beyond_the_bound_are_counted_together_and_a_deleted_one_makes_room() -> None:
    driver = Metered()
    many: dict[str, dict[str, object]] = {
        f"l{number:03}": {"keys": ["user"], "concurrency": 5} for number in range(LIMITS_MAX + 2)
    }
    driver.send(DeclareLimits(limits=many))
    driver.join("w1", 1, slots=9)
    driver.submit(1, keys={"user": "a"})
    shown = limits_of(driver)
    assert len(shown) == LIMITS_MAX + 1
    assert shown[OTHERS].in_flight == 2
    assert shown["default", "l000"].in_flight == 1
    for name in ("l000", "l001", "l002"):
        driver.send(DeleteLimit(name=name))
    shown = limits_of(driver)
    assert ("default", "l000") not in shown
    assert len(shown) == LIMITS_MAX
    assert sum(each.in_flight for each in shown.values()) == LIMITS_MAX - 1
