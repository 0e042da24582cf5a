"""A number that the journal cannot hold would stop the node when the batch is encoded."""

from __future__ import annotations

from typing import Any

import pytest

from jackalope.core.durations import SECOND
from jackalope.core.lifecycle import State
from tests.core.driving import Driver
from tests.core.test_limits import TOO_BIG


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.mark.parametrize("value", TOO_BIG)
@pytest.mark.parametrize("field", ["run_at_us", "expires_at_us", "timeout_us"])
def test_times_of_a_task_fit_into_the_journal(driver: Driver, field: str, value: int) -> None:
    driver.declare(time_to_live_us=SECOND)
    fields: dict[str, Any] = {field: value}
    driver.submit(1, **fields)


@pytest.mark.parametrize("value", TOO_BIG)
def test_a_retry_asked_for_in_the_far_future_fits_into_the_journal(
    driver: Driver, value: int
) -> None:
    driver.join("w", 1)
    driver.submit(1)
    driver.fail(1, retry_after_us=value)
    assert driver.state(1) is State.SCHEDULED


@pytest.mark.parametrize("value", TOO_BIG)
@pytest.mark.parametrize("field", ["time_to_live_us", "retries", "depth_limit", "batch_size"])
def test_numbers_of_a_policy_fit_into_the_journal(driver: Driver, field: str, value: int) -> None:
    changes: dict[str, Any] = {field: value}
    driver.declare(**changes)
    driver.submit(1)
