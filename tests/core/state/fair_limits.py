"""The limits of fair shares, at the limit and one past it. `tests.core.test_limits` runs them."""

from jackalope.core.effects import Answered, Declared
from jackalope.core.limits import FAIR_SHARES_SHOWN_MAX, FAIR_WEIGHT_MAX, FAIR_WEIGHTS_PER_QUEUE_MAX
from tests.core.driving import Driver, refusal_in

__all__ = ["test_fair_shares_shown_max", "test_fair_weight_max", "test_fair_weights_per_queue_max"]


def refused(answer: Answered | None) -> str:
    refusal = refusal_in(answer)
    assert refusal is not None
    return refusal.message


def test_fair_weight_max(driver: Driver) -> None:
    assert isinstance(driver.declare("q", weight=FAIR_WEIGHT_MAX), Declared)
    weights = {"a": FAIR_WEIGHT_MAX}
    assert isinstance(driver.declare("q", fair_by="tenant", fair_weights=weights), Declared)
    past = driver.declare("q", weight=FAIR_WEIGHT_MAX + 1)
    assert f"must be 0 to {FAIR_WEIGHT_MAX}" in refused(past)
    weights = {"a": FAIR_WEIGHT_MAX + 1}
    answer = driver.declare("q", fair_by="tenant", fair_weights=weights)
    assert f"must be 1 to {FAIR_WEIGHT_MAX}" in refused(answer)


def test_fair_weights_per_queue_max(driver: Driver) -> None:
    weights = {str(number): 2 for number in range(FAIR_WEIGHTS_PER_QUEUE_MAX)}
    assert isinstance(driver.declare("q", fair_by="tenant", fair_weights=weights), Declared)
    answer = driver.declare("q", fair_weights={**weights, "one more": 2})
    assert f"at most {FAIR_WEIGHTS_PER_QUEUE_MAX}" in refused(answer)


def test_fair_shares_shown_max(crowd: Driver) -> None:
    """A view lists those with the most tasks; the rest is counted."""
    crowd.declare("q", fair_by="tenant")
    for number in range(FAIR_SHARES_SHOWN_MAX + 1):
        crowd.submit(number, headers={"tenant": f"t{number}"})
    fair = crowd.core.book.namespaces["default"].queues["q"].line.fair
    assert fair is not None
    assert fair.count == FAIR_SHARES_SHOWN_MAX + 1
    assert len(fair.deepest(FAIR_SHARES_SHOWN_MAX)) == FAIR_SHARES_SHOWN_MAX
