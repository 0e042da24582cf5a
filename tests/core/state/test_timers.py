"""Timers against a dict: the earliest of what is set, whatever was moved and cancelled."""

from itertools import islice

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jackalope.core.state.timers import Timers
from tests.profiles import PATIENCE, examples

pytestmark = PATIENCE

STALE_ENTRIES_MAX = 1_024

keys = st.integers(1, 8)
times = st.integers(1, 20)


class TimersMachine(RuleBasedStateMachine):
    """Set, move, cancel and pop, compared with the plainest thing that does the same."""

    def __init__(self) -> None:
        super().__init__()
        self.timers: Timers[int] = Timers()
        self.model: dict[int, int] = {}

    @rule(key=keys, at_us=times)
    def set(self, key: int, at_us: int) -> None:
        self.timers.set(key, at_us)
        self.model[key] = at_us

    @rule(key=keys)
    def cancel(self, key: int) -> None:
        self.timers.cancel(key)
        self.model.pop(key, None)

    @rule(now_us=times)
    def pop_due(self, now_us: int) -> None:
        due = sorted((at_us, key) for key, at_us in self.model.items() if at_us <= now_us)
        assert list(self.timers.pop_due(now_us)) == [key for _, key in due]
        for _, key in due:
            del self.model[key]

    @rule(now_us=times)
    def pop_one(self, now_us: int) -> None:
        due = sorted((at_us, key) for key, at_us in self.model.items() if at_us <= now_us)
        popped = next(self.timers.pop_due(now_us), None)
        assert popped == (due[0][1] if due else None)
        if popped is not None:
            del self.model[popped]

    @invariant()
    def agrees(self) -> None:
        assert dict(self.timers.items()) == self.model
        assert len(self.timers) == len(self.model)
        assert all((key in self.timers) == (key in self.model) for key in range(10))
        assert self.timers.next_us() == min(self.model.values(), default=None)


TestTimers = TimersMachine.TestCase
TestTimers.settings = settings(max_examples=examples(100), stateful_step_count=40)


def test_a_deadline_set_while_popping_is_seen_if_it_is_due() -> None:
    timers: Timers[int] = Timers()
    timers.set(1, 5)
    popped = []
    for key in timers.pop_due(10):
        popped.append(key)
        if key < 3:
            timers.set(key + 1, 10)
        else:
            timers.set(key + 1, 11)
    assert popped == [1, 2, 3]
    assert timers.next_us() == 11


def test_what_is_not_popped_stays() -> None:
    timers: Timers[int] = Timers()
    for key in range(10):
        timers.set(key, key)
    assert list(islice(timers.pop_due(9), 4)) == [0, 1, 2, 3]
    assert len(timers) == 6
    assert list(timers.pop_due(9)) == [4, 5, 6, 7, 8, 9]


def heap_size(timers: Timers[int]) -> int:
    return len(timers.heap)


def test_moving_a_deadline_for_ever_keeps_the_heap_small() -> None:
    timers: Timers[int] = Timers()
    for at_us in range(20_000):
        timers.set(1, at_us)
        assert heap_size(timers) <= 2 * len(timers) + STALE_ENTRIES_MAX
    assert list(timers.pop_due(20_000)) == [1]


def test_setting_and_cancelling_for_ever_keeps_the_heap_small() -> None:
    timers: Timers[int] = Timers()
    for key in range(20_000):
        timers.set(key, 10**9 - key)
        timers.cancel(key)
        assert heap_size(timers) <= 2 * (len(timers) + 1) + STALE_ENTRIES_MAX
    assert timers.next_us() is None
    assert heap_size(timers) == 0
