"""The latency benchmark: its marks fit the product, and its stages account for all of the time."""

import pytest

from bench.latency.marks import PLACES, Mark, Marks
from bench.latency.stages import Track, of_round_trip, of_submit

CLIENT, WORKER = 1, 2

TURN = ("decoded", "posted", "turn", "core", "decided", "sync", "synced")


def turn(begin: int) -> list[Mark]:
    return [Mark(what, begin + at) for at, what in enumerate(TURN)]


@pytest.mark.parametrize("role", PLACES)
def test_every_place_exists(role: str) -> None:
    marks = Marks()
    marks.look_for(role)
    assert marks.missing == []


def test_a_submit() -> None:
    tracks = {
        "client": Track([Mark("write", 110), Mark("read", 190)]),
        "broker": Track(
            [
                Mark("read", 120, CLIENT),
                *turn(130),
                Mark("deliver", 150),
                Mark("write", 160, CLIENT),
                # Of the request before and after it.
                Mark("read", 20, CLIENT),
                Mark("synced", 300),
            ]
        ),
    }
    stages = of_submit(100, 200, tracks)
    assert stages is not None
    assert sum(stages.values()) == 100
    assert stages["client: encode"] == 10
    assert stages["broker: sync"] == 1
    assert stages["write, wire, wake the client"] == 30


def test_a_round_trip_whose_beginning_is_reported_before_its_end() -> None:
    tracks = {
        "client": Track([Mark("write", 110), Mark("read", 160), Mark("read", 390)]),
        "broker": Track(
            [
                Mark("read", 120, CLIENT),
                *turn(130),
                Mark("write", 140, CLIENT),
                Mark("write", 150, WORKER),
                Mark("read", 220, WORKER),  # that the attempt began
                Mark("read", 300, WORKER),
                *turn(310),
                Mark("write", 350, CLIENT),
                Mark("write", 360, WORKER),
            ]
        ),
        "worker": Track(
            [
                Mark("read", 170),
                Mark("assigned", 180),
                Mark("write", 210),
                Mark("called", 230),
                Mark("ended", 240),
                Mark("write", 280),
            ]
        ),
    }
    stages = of_round_trip(100, 400, tracks)
    assert stages is not None
    assert sum(stages.values()) == 300
    assert stages["worker: hand back, encode"] == 40
    assert stages["write, wire, wake the broker again"] == 20
    assert stages["finish: result to its frame"] == 350 - 316


def test_a_stage_whose_mark_is_missing_counts_with_the_next() -> None:
    tracks = {
        "client": Track([Mark("write", 110), Mark("read", 190)]),
        "broker": Track([Mark("read", 120, CLIENT), Mark("write", 160, CLIENT)]),
    }
    assert of_submit(100, 200, tracks) == {
        "client: encode": 10,
        "write, wire, wake the broker": 10,
        "broker: make the frame": 40,
        "write, wire, wake the client": 30,
        "client: decode, resolve": 10,
    }


def test_a_submit_without_marks() -> None:
    assert of_submit(0, 1, {"client": Track([]), "broker": Track([])}) is None
