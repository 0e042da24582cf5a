"""Fan-outs over real workers: what they bring, and what survives whom."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jackalope import Jackalope, TaskFailed
from tests.worker.fanout.harness import (
    WAIT_S,
    House,
    helpers_of,
    living_in,
    run,
    submit,
    until,
    wait_for_workers,
)


class Place:
    """A house with an owner and helpers, and a client of it."""

    def __init__(self, house: House, app: Jackalope) -> None:
        self.house = house
        self.app = app

    def populate(self, helpers: int) -> None:
        self.house.start_owner()
        for number in range(helpers):
            self.house.start_worker(f"helper-{number}")
        wait_for_workers(self.app, helpers + 1)

    def pid(self, name: str) -> int:
        return self.house.workers[name].pid


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    house = House(tmp_path)
    with living_in(house) as app:
        yield Place(house, app)


def meeting(folder: Path, wanted: int = 2) -> dict[str, object]:
    """Return choices by which an item ends only when so many processes compute."""
    return {"fixed": {"folder": str(folder), "wanted": wanted}}


@pytest.mark.parametrize("how", ["fan_out", "fan_out_plainly", "fan_out_isolated"])
def test_owners_of_every_kind_are_helped(place: Place, tmp_path: Path, how: str) -> None:
    place.populate(1)
    owner, helper = place.pid("owner"), place.pid("helper-0")
    numbers, pids, _ = run(place.app, how, "meet", 20, meeting(tmp_path / "meeting"))
    assert numbers == list(range(20))
    assert helper in pids
    assert len(pids) == 2
    assert (owner in pids) == (how != "fan_out_isolated")
    until(lambda: not helpers_of(place.app), "the helper is free again")


def test_functions_of_every_kind_are_helped_with(place: Place, tmp_path: Path) -> None:
    place.populate(1)
    owner, helper = place.pid("owner"), place.pid("helper-0")
    choices = meeting(tmp_path / "on a loop")
    numbers, pids, _ = run(place.app, "fan_out", "meet_on_a_loop", 2_000, choices)
    assert (numbers, set(pids)) == (list(range(2_000)), {owner, helper})
    choices = meeting(tmp_path / "isolated") | {"local": 1}
    numbers, pids, _ = run(place.app, "fan_out", "meet_isolated", 100, choices)
    assert numbers == list(range(100))
    assert len(pids) == 2
    assert not {owner, helper} & set(pids), "each in a process of its own"
    numbers, pids, _ = run(place.app, "fan_out", "busy", 100, {"local": 0})
    assert (numbers, pids) == (list(range(100)), [helper])
    numbers, _, _ = run(place.app, "fan_out", "busy", 300, {"ordered": False})
    assert sorted(numbers) == list(range(300))


def test_a_hundred_thousand_items_over_four_workers(place: Place) -> None:
    place.populate(3)
    numbers, _, by_broker = run(place.app, "fan_out", "plain", 100_000, {})
    assert numbers == list(range(100_000))
    assert by_broker == ""


@pytest.mark.feature("J17", "J34", "J35")
def test_a_worker_alone_does_it_all(place: Place) -> None:
    place.populate(0)
    numbers, pids, _ = run(place.app, "fan_out", "plain", 1_000, {})
    assert (numbers, pids) == (list(range(1_000)), [place.pid("owner")])
    assert run(place.app, "move_points", 50) == [[n + 2, -n + 5] for n in range(50)]
    is_right, ahead = run(place.app, "stream", 2_000)
    assert is_right
    assert ahead <= 70_000


@pytest.mark.feature("J33")
def test_each_round_has_its_own_arguments(place: Place, tmp_path: Path) -> None:
    place.populate(1)
    points = run(place.app, "move_in_rounds", 400, 20, str(tmp_path / "meeting"))
    assert points == [[n + 20, -n + sum(range(20))] for n in range(400)]


def test_items_that_fail(place: Place) -> None:
    place.populate(0)
    collected = run(place.app, "complain", 20, {"on_error": "collect", "retries": 2})
    kind = "jackalope.Reject"
    bad = {3: "ValueError", 13: "ValueError", 7: kind, 17: kind}
    assert collected == [[n, bad[n]] if n in bad else n for n in range(20)]
    with pytest.raises(TaskFailed, match="item 3: ValueError: 3 is not to my taste"):
        run(place.app, "complain", 20, {})
    with pytest.raises(TaskFailed, match="unexpected keyword argument 'x'"):
        run(place.app, "complain", 20, {"fixed": {"x": 1}})


@pytest.mark.feature("J15")
def test_helpers_that_die_lose_nothing(place: Place, tmp_path: Path) -> None:
    place.populate(2)
    handle = submit(place.app, "fan_out", "busy", 4_000, {}, str(tmp_path / "begun"))
    until((tmp_path / "begun").exists, "the fan-out is under way")
    chance = random.Random(7)
    for name in ("helper-0", "helper-1", "helper-0"):
        until(lambda: helpers_of(place.app), "somebody helps")
        time.sleep(chance.uniform(0, 0.2))
        place.house.kill(place.house.workers[name])
        place.house.start_worker(name)
    numbers, pids, _ = place.app.sync(handle.result(WAIT_S))
    assert numbers == list(range(4_000))
    assert place.pid("owner") in pids


@pytest.mark.feature("J16")
def test_a_frozen_helper_holds_nobody_up(place: Place, tmp_path: Path) -> None:
    place.populate(1)
    handle = submit(place.app, "fan_out", "busy", 1_500, {}, str(tmp_path / "begun"))
    until((tmp_path / "begun").exists, "the fan-out is under way")
    until(lambda: helpers_of(place.app), "somebody helps")
    os.kill(place.pid("helper-0"), signal.SIGSTOP)
    numbers, _, _ = place.app.sync(handle.result(WAIT_S))
    assert numbers == list(range(1_500))
    os.kill(place.pid("helper-0"), signal.SIGCONT)
    until(lambda: not helpers_of(place.app), "the helper is free again")


def test_a_helper_that_holds_its_interpreter_still_counts(place: Place, tmp_path: Path) -> None:
    place.populate(1)
    assert run(place.app, "hold_back", 4.0, str(tmp_path / "meeting")) == 3


def test_an_owner_that_dies_is_tried_again_and_its_helpers_are_free(
    place: Place, tmp_path: Path
) -> None:
    place.populate(1)
    place.house.start_owner("owner-2")
    wait_for_workers(place.app, 3)
    handle = submit(place.app, "fan_out_again", "busy", 1_000, str(tmp_path), retries=3)
    first = tmp_path / "attempt-1"
    until(lambda: first.exists() and first.read_text(), "the first attempt runs")
    os.kill(int(first.read_text()), signal.SIGKILL)
    total, attempt = place.app.sync(handle.result(WAIT_S))
    assert (total, attempt) == (sum(range(1_000)), 2)
    until(lambda: not helpers_of(place.app), "the helper is free again")


def test_a_broker_that_dies_holds_nobody_up(place: Place, tmp_path: Path) -> None:
    place.populate(1)
    handle = submit(place.app, "fan_out", "busy", 1_500, {}, str(tmp_path / "begun"))
    until((tmp_path / "begun").exists, "the fan-out is under way")
    until(lambda: helpers_of(place.app), "somebody helps")
    place.house.kill(place.house.broker)
    place.house.start_broker()
    numbers, pids, _ = place.app.sync(handle.result(WAIT_S))
    assert numbers == list(range(1_500))
    assert place.pid("owner") in pids
    until(lambda: not helpers_of(place.app), "the helper is free again")


def test_an_item_that_kills_helpers_fails_alone(place: Place, tmp_path: Path) -> None:
    place.populate(3)
    handle = submit(place.app, "face_danger", 200, str(tmp_path / "meeting"))

    def restart_the_dead() -> bool:
        for name, process in list(place.house.workers.items()):
            if process.poll() is not None:
                place.house.start_worker(name)
        return place.app.sync(handle.status()).state in ("succeeded", "dead")

    until(restart_the_dead, "the end")
    results = place.app.sync(handle.result(WAIT_S))
    rest = [number for number in range(200) if number != 13]
    assert [result for result in results if not isinstance(result, list)][:13] == rest[:13]
    assert results[13] in (13, [13, "HelperLost"])  # The owner survives it, if it gets it.
    assert results[14:] == list(range(14, 200))


def test_items_go_through_the_broker_where_nobody_can_connect(place: Place) -> None:
    place.house.start_owner("owner", "--fanout-advertise", "127.0.0.2")
    place.house.start_worker("helper-0")
    wait_for_workers(place.app, 2)
    handle = submit(place.app, "fan_out", "busy", 700, {"local": 0})
    numbers, pids, by_broker = place.app.sync(handle.result(WAIT_S))
    assert numbers == list(range(700))
    assert place.pid("helper-0") in pids
    assert by_broker.startswith("unreachable: 127.0.0.2")
    assert "items go through the broker" in place.house.log("owner")


def test_progress_is_told(place: Place) -> None:
    place.populate(1)
    handle = submit(place.app, "fan_out", "busy", 1_500, {})
    steps = list(place.app.sync.iterate(handle.progress()))
    assert any(" of 1500 items, " in step.note and " helper" in step.note for step in steps)
    percents = [step.percent for step in steps]
    assert percents == sorted(percents)
