"""The comparison with the last release: what it calls better, and what it calls noise."""

from bench.compare import spread, verdict


def test_less_time_is_better() -> None:
    assert verdict([20, 22, 21], [10, 11, 10.5], is_more_better=False) == "  2.00 [2.00-2.00]"


def test_more_tasks_are_better() -> None:
    assert verdict([100, 100], [150, 250], is_more_better=True) == "  2.00 [1.75-2.25]"


def test_a_ratio_around_one_is_noise() -> None:
    assert verdict([10, 10, 10], [9, 10, 11], is_more_better=True).startswith("~ 1.00")


def test_rounds_are_compared_with_each_other() -> None:
    """A machine that is half as fast in one round is so for both trees."""
    assert verdict([10, 20], [5, 10], is_more_better=False) == "  2.00 [2.00-2.00]"


def test_what_could_not_be_measured() -> None:
    assert verdict([], [10], is_more_better=True) == "-"
    assert spread([]) == "-"
    assert spread([12.345]) == "12.3"
    assert spread([1, 2, 3]) == "2.0 [1.5-2.5]"
