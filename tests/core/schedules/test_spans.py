"""Spans: what a schedule remembers for ever of the slots that fired."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from jackalope.core.limits import SPANS_PER_SCHEDULE_MAX
from jackalope.core.shapes.schedule import DEFAULT_SCHEDULE, Schedule, Span, with_slot

#: Slots are numbers here, and schedules fire at multiples of one: that stands for their settings.
SLOTS = st.lists(st.tuples(st.integers(1, 60), st.sampled_from((1, 2, 3, 5))), max_size=60)


def schedule_with(spans: tuple[Span, ...]) -> Schedule:
    return Schedule("default", "s", DEFAULT_SCHEDULE, "", 0, 0, 0, spans=spans)


@given(SLOTS)
def test_a_slot_that_fired_is_never_forgotten(fired: list[tuple[int, int]]) -> None:
    """By whatever settings, in whatever order, and however often."""
    spans: tuple[Span, ...] = ()
    slots: set[int] = set()
    for number, every in fired:
        slot_us = number * every
        spans = with_slot(spans, slot_us, slot_us + every)
        slots.add(slot_us)
        schedule = schedule_with(spans)
        assert all(schedule.has_fired(each) for each in slots)
        assert [*spans] == sorted(spans, key=lambda span: span.first_us)
        assert all(a.last_us < b.first_us for a, b in pairwise(spans))


@given(st.sets(st.integers(1, 100), max_size=60), st.sampled_from((1, 3)))
def test_of_one_schedule_nothing_else_has_fired(numbers: set[int], every: int) -> None:
    """As long as its settings stay, and there are not too many spans, it remembers exactly."""
    spans: tuple[Span, ...] = ()
    for number in sorted(numbers, key=lambda number: number % 7):
        spans = with_slot(spans, number * every, (number + 1) * every)
    assert len(spans) <= SPANS_PER_SCHEDULE_MAX
    schedule = schedule_with(spans)
    assert {n for n in range(1, 101) if schedule.has_fired(n * every)} == numbers
    # Neighbours are one span.
    assert len(spans) == sum(number - 1 not in numbers for number in numbers)


def test_the_last_slot_of_all_is_remembered() -> None:
    spans = with_slot(with_slot((), 10, 20), 20, 0)
    assert spans == (Span(10, 20, 0),)
    assert schedule_with(spans).has_fired(20)
    assert not schedule_with(spans).has_fired(21)
