"""Readings add up."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackalope.broker.telemetry.meter import Histogram, Reading

sizes = st.lists(st.integers(0, 2**62), max_size=50)


def spread_of(numbers: list[int]) -> Histogram:
    spread = Histogram()
    for number in numbers:
        spread.count(number)
    return spread


@given(sizes)
def test_every_number_is_in_the_bucket_below_whose_bound_it_is(numbers: list[int]) -> None:
    spread = spread_of(numbers)
    assert spread.number() == len(numbers)
    assert spread.total == sum(numbers)
    for bucket in range(64):
        assert sum(spread.buckets[: bucket + 1]) == sum(number < 2**bucket for number in numbers)


@given(sizes, sizes)
def test_adding_is_counting_all(some: list[int], others: list[int]) -> None:
    spread = spread_of(some)
    spread.add(spread_of(others))
    assert spread == spread_of(some + others)


@given(st.lists(st.integers(1, 2**40), min_size=1, max_size=50), st.floats(0.01, 1.0))
def test_quantile_is_right_to_a_factor_of_two(numbers: list[int], part: float) -> None:
    spread, ranked = spread_of(numbers), sorted(numbers)
    place = next(n for n in range(1, len(ranked) + 1) if n >= part * len(ranked))
    true = ranked[place - 1]
    assert true / 2 <= spread.quantile(part) <= true * 2


def test_negative_numbers_count_as_none() -> None:
    spread = spread_of([-5])
    assert (spread.number(), spread.total, spread.buckets[0]) == (1, 0, 1)


def test_empty_spread_says_zero() -> None:
    assert (Histogram().mean(), Histogram().quantile(0.99)) == (0, 0)


def test_time_goes_on_and_queues_stand_beside_each_other() -> None:
    morning = Reading(submitted=2, depth=5, reasons={"failed": 1})
    morning.follow(Reading(submitted=3, depth=1, reasons={"failed": 1, "expired": 2}))
    assert (morning.submitted, morning.depth) == (5, 1)
    assert morning.reasons == {"failed": 2, "expired": 2}
    morning.join(Reading(submitted=1, depth=4, workers=2))
    assert (morning.submitted, morning.depth, morning.workers) == (6, 5, 2)


@pytest.mark.parametrize("field", Reading.__struct_fields__)
def test_no_field_is_forgotten_when_adding(field: str) -> None:
    """A field that is added later must be added up as well."""
    values: dict[str, Any] = {"reasons": {"failed": 3}, "served": {"hit": 3}}
    shape = type(getattr(Reading(), field))
    value = values.get(field, 3 if shape is int else spread_of([3]))
    whole = Reading()
    whole.join(Reading(**{field: value}))
    assert getattr(whole, field) == value
