"""Rate limits of doors: buckets that fill, for each API key."""

import pytest

from jackalope.broker.access import ANYONE, Principal
from jackalope.core.api_key import ApiKey, Permission
from jackalope.core.refusals import Code
from jackalope.doors.rates import BUCKETS_MAX, Rates


def test_a_bucket_fills_at_its_rate() -> None:
    rates = Rates(10, 5)
    shares = [rates.take("ada", 100.0) for _ in range(6)]
    assert [share.remaining for share in shares if share] == [4, 3, 2, 1, 0, 0]
    last = shares[-1]
    assert last is not None
    assert last.wait_s == pytest.approx(0.1)
    assert last.reset_s == pytest.approx(0.5)
    after = [rates.take("ada", 100.11), rates.take("ada", 100.11)]
    assert [share.wait_s > 0 for share in after if share] == [False, True]
    full = rates.take("ada", 200.0)
    assert full is not None
    assert full.remaining == 4


def test_buckets_are_bounded() -> None:
    rates = Rates(10, 5)
    for number in range(BUCKETS_MAX + 1):
        rates.take(f"key {number}", 1.0)
    assert len(rates._buckets) == BUCKETS_MAX
    assert Rates(0, 5).take("ada", 1.0) is None


def test_a_key_that_asks_too_often_is_told_when_to_ask_again() -> None:
    rates = Rates(1, 2)
    one, other = (
        Principal(ApiKey(id=name, hash="", name=name, permissions=(Permission.ADMIN,)))
        for name in ("one", "other")
    )
    assert [rates.refuse(one) for _ in range(2)] == [None, None]
    refusal = rates.refuse(one)
    assert refusal is not None
    assert (refusal.code, 0 < refusal.retry_after_us <= 1_000_000) == (Code.RATE_LIMITED, True)
    assert "the burst size is 2" in refusal.message
    assert rates.refuse(other) is None
    # Without keys there is no limit.
    assert [rates.refuse(ANYONE) for _ in range(5)] == [None] * 5
