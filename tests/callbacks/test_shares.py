"""How many deliveries one receiver may hold, and for how long."""

from contextlib import ExitStack
from math import inf

import pytest

from jackalope.callbacks.posting import Failed
from jackalope.callbacks.shares import BEYOND_S, Shares

ONE, OTHER = "http://one.example/a", "http://other.example/a"


def fail(shares: Shares, url: str, kind: str) -> None:
    with pytest.raises(Failed, match="as told"), shares.delivery(url):
        raise Failed(kind, "as told")


@pytest.mark.parametrize(("slots", "share"), [(1, 1), (3, 1), (4, 1), (8, 2), (32, 8), (1000, 250)])
def test_a_quarter_of_the_slots_has_the_whole_time(slots: int, share: int) -> None:
    shares = Shares(slots)
    with ExitStack() as under_way:
        given = [under_way.enter_context(shares.delivery(ONE)) for _ in range(share + 1)]
        assert given == [inf] * share + [BEYOND_S]
        with shares.delivery(OTHER) as other, shares.delivery("HTTP://ONE.example/b") as same:
            assert (other, same) == (inf, BEYOND_S)


def test_beyond_its_share_nothing_waits_for_a_receiver_that_hangs() -> None:
    shares = Shares(8)
    with shares.delivery(ONE), shares.delivery(ONE):
        fail(shares, ONE, "Timeout")
        with pytest.raises(Failed, match=r"one\.example hangs: 2 others wait") as caught:
            shares.delivery(ONE).__enter__()
        assert (caught.value.kind, caught.value.is_final) == ("Timeout", False)
        with shares.delivery(OTHER) as other:
            assert other == inf
    with shares.delivery(ONE) as at_most_s:
        assert at_most_s == inf


@pytest.mark.parametrize("kind", ["Refused", "Unavailable", "ConnectionFailed", ""])
def test_a_receiver_that_answers_hangs_no_longer(kind: str) -> None:
    shares = Shares(8)
    first = shares.delivery(ONE)
    first.__enter__()
    with shares.delivery(ONE):
        fail(shares, ONE, "Timeout")
        failed = Failed(kind, "x") if kind else None
        assert not first.__exit__(Failed if failed else None, failed, None)
        with shares.delivery(ONE), shares.delivery(ONE) as beyond:
            assert beyond == BEYOND_S


def test_nothing_is_kept_of_receivers_that_nobody_waits_for() -> None:
    shares = Shares(8)
    for number in range(100):
        fail(shares, f"http://{number}.example/", "Timeout")
        with pytest.raises(KeyError), shares.delivery(f"http://{number}.example/"):
            raise KeyError
    assert (shares._under_way, shares._hanging) == ({}, set())
