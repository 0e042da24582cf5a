"""The limits of a body and of the steps of a task, at the limit and one past it."""

import pytest

from jackalope.core.effects import StepDone
from jackalope.core.lifecycle import State
from jackalope.core.limits import (
    EVENTS_PER_TASK_MAX,
    INLINE_BYTES_MAX,
    STEPS_BYTES_MAX,
    STEPS_PER_TASK_MAX,
)
from jackalope.core.refusals import Code
from jackalope.core.task import BlobRef
from tests.core.driving import Driver, assert_accepted, assert_refused


@pytest.fixture
def driver() -> Driver:
    return Driver()


def test_inline_bytes_max(driver: Driver) -> None:
    assert_accepted(driver.submit(1, payload=bytes(INLINE_BYTES_MAX)))
    too_large = driver.submit(2, payload=bytes(INLINE_BYTES_MAX + 1))
    assert_refused(driver, too_large, Code.TOO_LARGE, INLINE_BYTES_MAX)
    assert_accepted(driver.submit(3, payload=BlobRef("blob", INLINE_BYTES_MAX + 1)))
    driver.join("w", 1)
    too_large = driver.finish(1, bytes(INLINE_BYTES_MAX + 1))
    assert_refused(driver, too_large, Code.TOO_LARGE, INLINE_BYTES_MAX)
    assert driver.state(1) is State.ASSIGNED
    assert_accepted(driver.finish(1, bytes(INLINE_BYTES_MAX)))


def test_steps_per_task_max(driver: Driver) -> None:
    driver.submit(1)
    driver.join("w", 1)
    last = STEPS_PER_TASK_MAX - 1
    assert_accepted(driver.step(1, last, "last"))
    too_many = driver.step(1, last + 1, "one more")
    assert_refused(driver, too_many, Code.TOO_MANY, STEPS_PER_TASK_MAX)
    too_many = driver.suspend(1, last + 1, "one more", after_us=1)
    assert_refused(driver, too_many, Code.TOO_MANY, STEPS_PER_TASK_MAX)


def test_steps_bytes_max(driver: Driver) -> None:
    driver.submit(1)
    driver.join("w", 1)
    whole = STEPS_BYTES_MAX // INLINE_BYTES_MAX
    for index in range(whole):
        assert_accepted(driver.step(1, index, "large", bytes(INLINE_BYTES_MAX)))
    too_large = driver.step(1, whole, "more", b"x")
    assert_refused(driver, too_large, Code.TOO_LARGE, STEPS_BYTES_MAX)
    assert_refused(driver, driver.send_event(1, "e", b"x"), Code.TOO_LARGE, STEPS_BYTES_MAX)
    assert_accepted(driver.step(1, whole, "nothing"))


def test_events_per_task_max(driver: Driver) -> None:
    driver.submit(1)
    for _ in range(EVENTS_PER_TASK_MAX):
        assert_accepted(driver.send_event(1, "approved"))
    too_many = driver.send_event(1, "approved")
    assert_refused(driver, too_many, Code.TOO_MANY, EVENTS_PER_TASK_MAX)
    driver.join("w", 1)
    assert driver.suspend(1, 0, "wait", event="approved") == StepDone()
    assert_accepted(driver.send_event(1, "approved"))
