"""Histories of one task: those that one order explains, and those that none does."""

from __future__ import annotations

import pytest

from tests.chaos.history import NEVER, Op, to_edn
from tests.chaos.linearizability import check

ASKED = Op("c", "submit", "t", 10, 20, "ok")
IN_DOUBT = Op("c", "submit", "t", 10)


def read(call: int, back: int, outcome: str, fence: str = "") -> Op:
    return Op("r", "read", "t", call, back, outcome, fence)


def start(back: int, fence: int) -> Op:
    return Op("w", "start", "t", 0, back, "ok", str(fence))


def finish(call: int, fence: int) -> Op:
    return Op("w", "finish", "t", call, value=str(fence))


def kill(call: int, back: int, outcome: str) -> Op:
    return Op("k", "kill", "t", call, back, outcome)


@pytest.mark.parametrize(
    "ops",
    [
        [],
        [ASKED, read(30, 40, "ready")],
        [ASKED, read(5, 15, "absent")],  # before it, or while
        [ASKED, read(12, 18, "absent"), read(12, 18, "ready")],
        [IN_DOUBT, read(30, 40, "absent"), read(50, 60, "ready")],  # done late
        [IN_DOUBT, read(30, 40, "absent")],  # or never
        [ASKED, start(30, 1), finish(40, 1), read(50, 60, "succeeded", "1")],
        [ASKED, start(30, 1), finish(40, 1), read(50, 60, "running")],  # told late
        [ASKED, start(30, 1), start(50, 2), finish(60, 2), read(70, 80, "succeeded", "2")],
        [
            ASKED,
            start(30, 1),
            finish(90, 1),
            start(50, 2),
            finish(60, 2),
            read(70, 80, "succeeded"),
        ],
        [ASKED, kill(30, 40, "killed"), read(50, 60, "killed")],
        [ASKED, kill(30, 40, "refused"), read(50, 60, "killed")],  # asked twice by the client
        [ASKED, start(30, 1), kill(40, 50, "asked"), read(60, 70, "running")],
        [ASKED, start(30, 1), kill(40, 50, "asked"), read(60, 70, "killed")],
        [ASKED, start(30, 1), kill(40, 50, "asked"), finish(60, 1), read(70, 80, "succeeded")],
        [ASKED, kill(30, NEVER, ""), read(40, 50, "ready"), read(60, 70, "killed")],
        [IN_DOUBT, kill(30, 40, "absent"), read(50, 60, "ready")],
    ],
)
def test_one_order_explains(ops: list[Op]) -> None:
    assert check(ops)


@pytest.mark.parametrize(
    "ops",
    [
        [ASKED, read(30, 40, "absent")],  # lost
        [ASKED, read(12, 13, "ready"), read(14, 15, "absent")],  # a stale read, while it is stored
        [IN_DOUBT, read(30, 40, "ready"), read(50, 60, "absent")],  # there, and gone
        [read(30, 40, "ready")],  # from nowhere
        [ASKED, start(30, 1), finish(40, 1), read(50, 60, "succeeded"), read(70, 80, "running")],
        [ASKED, read(30, 40, "succeeded")],  # nobody has done it
        [ASKED, start(30, 1), finish(40, 1), read(50, 60, "succeeded", "2")],
        [ASKED, start(30, 1), start(40, 1)],  # one lease, two workers
        # The worker with the older lease finishes.
        [ASKED, start(30, 1), start(50, 2), finish(60, 1), read(70, 80, "succeeded", "1")],
        [ASKED, kill(30, 40, "killed"), read(50, 60, "ready")],
        [
            *(ASKED, start(25, 1), kill(30, 40, "killed"), finish(45, 1)),
            read(50, 60, "succeeded", "1"),
        ],
        [ASKED, kill(30, 40, "absent")],
        [ASKED, kill(30, 40, "asked"), read(50, 60, "killed"), read(70, 80, "ready")],
        [Op("c", "submit", "t", 10, 20, "refused queue_full"), read(30, 40, "ready")],
    ],
)
def test_no_order_explains(ops: list[Op]) -> None:
    assert not check(ops)


def test_a_history_as_jepsen_reads_it() -> None:
    ops = [ASKED, read(15, 30, "ready"), kill(40, NEVER, ""), read(50, 60, "ready")]
    assert list(to_edn(ops)) == [
        '{:process 0, :type :invoke, :f :submit, :value ["t" ""], :time 10}',
        '{:process 1, :type :invoke, :f :read, :value ["t" ""], :time 15}',
        '{:process 0, :type :ok, :f :submit, :value ["t" "ok"], :time 20}',
        '{:process 1, :type :ok, :f :read, :value ["t" "ready"], :time 30}',
        '{:process 0, :type :invoke, :f :kill, :value ["t" ""], :time 40}',
        '{:process 1, :type :invoke, :f :read, :value ["t" ""], :time 50}',
        '{:process 1, :type :ok, :f :read, :value ["t" "ready"], :time 60}',
    ]
