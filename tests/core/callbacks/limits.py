"""The limits of callbacks, at the limit and one past it. `tests.core.test_limits` runs them."""

from __future__ import annotations

import msgspec

from jackalope.core.commands import DeclareQueue
from jackalope.core.effects import Answered, Declared
from jackalope.core.limits import (
    CALLBACK_ERROR_CHARS_MAX,
    CALLBACK_RESULT_BYTES_MAX,
    CALLBACK_URL_CHARS_MAX,
    CALLBACKS_MAX,
    TRIGGERS_PER_QUEUE_MAX,
)
from jackalope.core.refusals import Code
from jackalope.core.shapes.callback import Callback, Notice, Trigger
from tests.core.callbacks.notices import SESSION, URL, die, finish, notices
from tests.core.driving import Driver, assert_accepted, assert_refused

__all__ = [
    "test_callback_error_chars_max",
    "test_callback_result_bytes_max",
    "test_callback_url_chars_max",
    "test_callbacks_max",
    "test_triggers_per_queue_max",
]


def _declare(driver: Driver, **changes: object) -> Answered | None:
    given = {name: msgspec.to_builtins(value) for name, value in changes.items()}
    return driver.send(DeclareQueue(queue="q", changes=given))


def test_callbacks_max(driver: Driver) -> None:
    most = tuple(Callback(f"{URL}{number}") for number in range(CALLBACKS_MAX))
    more = (*most, Callback(URL))
    assert_accepted(driver.submit(1, callbacks=most))
    assert_refused(driver, driver.submit(2, callbacks=more), Code.INVALID, CALLBACKS_MAX)
    assert isinstance(_declare(driver, callbacks=most), Declared)
    assert_refused(driver, _declare(driver, callbacks=more), Code.INVALID, CALLBACKS_MAX)


def test_callback_url_chars_max(driver: Driver) -> None:
    longest = URL + "x" * (CALLBACK_URL_CHARS_MAX - len(URL))
    assert_accepted(driver.submit(1, callbacks=(Callback(longest),)))
    longer = driver.submit(2, callbacks=(Callback(longest + "x"),))
    assert_refused(driver, longer, Code.INVALID, CALLBACK_URL_CHARS_MAX)


def test_triggers_per_queue_max(driver: Driver) -> None:
    most = tuple(Trigger(f"to{number}") for number in range(TRIGGERS_PER_QUEUE_MAX))
    assert isinstance(_declare(driver, triggers=most), Declared)
    more = _declare(driver, triggers=(*most, Trigger("x")))
    assert_refused(driver, more, Code.INVALID, TRIGGERS_PER_QUEUE_MAX)


def _told(driver: Driver, number: int, result: bytes) -> Notice:
    driver.submit(number, callbacks=(Callback(URL),))
    finish(driver, number, result=result)
    return notices(driver)[-1]


def test_callback_result_bytes_max(driver: Driver) -> None:
    driver.join("w", SESSION)
    largest = b"x" * CALLBACK_RESULT_BYTES_MAX
    assert _told(driver, 1, largest).result == largest
    told = _told(driver, 2, largest + b"x")
    assert told.result is None
    assert told.result_size == CALLBACK_RESULT_BYTES_MAX + 1


def test_callback_error_chars_max(driver: Driver) -> None:
    driver.join("w", SESSION)
    for number, more in ((1, 0), (2, 1)):
        driver.submit(number, callbacks=(Callback(URL),))
        die(driver, number, "m" * (CALLBACK_ERROR_CHARS_MAX + more))
        assert notices(driver)[-1].error_message == "m" * CALLBACK_ERROR_CHARS_MAX
