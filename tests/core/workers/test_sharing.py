"""A process that is a worker in several namespaces: slots together, and tasks in turns."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from jackalope.core.commands import Held, JoinWorker, SubmitTasks
from jackalope.core.commands.namespaces import DeclareNamespace
from jackalope.core.durations import DAY, MINUTE
from jackalope.core.effects import Answered
from jackalope.core.lifecycle import State
from jackalope.core.limits import SHARE_CHARS_MIN, SLOTS_PER_WORKER_MAX, WORKERS_PER_SHARE_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.needs import Needs
from jackalope.core.state.roster import Share
from tests.core.driving import Driver, spec

SHARE = "a secret of the process"


class Tenants(Driver):
    """A core with a process that works for several namespaces."""

    def join_in(
        self, namespace: str, session: int, slots: int = 4, *, worker: str = "w", **fields: Any
    ) -> Answered | None:
        given: dict[str, Any] = {"share": SHARE, "share_slots": slots, **fields}
        join = JoinWorker(
            0, worker, ("q",), slots=slots, session=session, namespace=namespace, lease_us=DAY
        )
        for name, value in given.items():
            setattr(join, name, value)
        return self.send(join)

    def submit_in(self, namespace: str, first: int, count: int = 1, **fields: Any) -> None:
        tasks = [spec(number, **fields) for number in range(first, first + count)]
        self.send(SubmitTasks(ref=0, tasks=tasks, by="ada", namespace=namespace))

    def weigh(self, namespace: str, weight: int) -> None:
        self.send(DeclareNamespace(name=namespace, changes={"weight": weight}))

    def running(self) -> dict[str, list[int]]:
        """Return the tasks that are with the process, by namespace."""
        book, share = self.core.book, self.share()
        found: dict[str, list[int]] = {}
        for worker in share.members:
            held = [int.from_bytes(each[:6], "big") for each in worker.held]
            found[worker.namespace.name] = sorted(held)
        assert all(each in book.namespaces for each in found)
        return found

    def share(self) -> Share:
        return self.core.roster.shares[SHARE]

    def turns(self, count: int) -> Counter[str]:
        """End one task after the other, and count whose tasks took their places."""
        had: Counter[str] = Counter()
        for _ in range(count):
            self.finish(min(number for some in self.running().values() for number in some))
            assert len(self.assigned()) == 1
            [started] = self.assigned()
            had[self.task(started).queue.namespace.name] += 1
        return had


@pytest.fixture
def tenants() -> Tenants:
    driver = Tenants()
    for number, namespace in enumerate("abc", 1):
        driver.join_in(namespace, number)
    return driver


def test_slots_are_one_number(tenants: Tenants) -> None:
    tenants.submit_in("a", 1, 3)
    tenants.submit_in("b", 11, 3)
    assert tenants.running() == {"a": [1, 2, 3], "b": [11], "c": []}
    tenants.submit_in("c", 21)
    assert tenants.running()["c"] == []
    tenants.finish(1)
    assert sum(map(len, tenants.running().values())) == 4


def test_namespaces_take_turns_by_their_weights(tenants: Tenants) -> None:
    tenants.weigh("a", 3)
    tenants.submit_in("a", 1, 200)
    tenants.submit_in("b", 1001, 200)
    tenants.submit_in("c", 2001, 200)
    tenants.turns(10)
    had = tenants.turns(100)
    assert had == {"a": 60, "b": 20, "c": 20}


def test_weights_are_changed_live(tenants: Tenants) -> None:
    tenants.submit_in("a", 1, 200)
    tenants.submit_in("b", 1001, 200)
    tenants.turns(10)
    assert tenants.turns(20) == {"a": 10, "b": 10}
    tenants.weigh("b", 4)
    tenants.turns(5)
    assert tenants.turns(50) == {"a": 10, "b": 40}


def test_one_task_waits_for_one_turn_of_the_others(tenants: Tenants) -> None:
    tenants.submit_in("a", 1, 500)
    tenants.submit_in("b", 1001, 500)
    tenants.turns(100)
    tenants.submit_in("c", 2001)
    tenants.turns(1)
    assert tenants.state(2001) is State.ASSIGNED


def test_who_was_idle_has_no_credit(tenants: Tenants) -> None:
    tenants.submit_in("a", 1, 500)
    tenants.turns(200)
    tenants.submit_in("b", 1001, 100)
    had = tenants.turns(20)
    assert abs(had["a"] - had["b"]) <= 2


def test_priorities_are_a_namespace_s_own(tenants: Tenants) -> None:
    tenants.submit_in("a", 1, 50, priority=100)
    tenants.submit_in("b", 1001, 50)
    tenants.turns(10)
    assert tenants.turns(20) == {"a": 10, "b": 10}


def test_what_an_end_makes_ready_waits_for_its_turn(tenants: Tenants) -> None:
    """A task that waited for the one that ended does not take its slot."""
    tenants.submit_in("a", 1, 4)
    tenants.submit_in("a", 5, depends_on=(spec(1).id,))
    tenants.submit_in("b", 1001, 3)
    tenants.finish(1)
    assert tenants.assigned() == [1001]
    assert tenants.state(5) is State.READY


def test_a_lost_member_frees_its_slots(tenants: Tenants) -> None:
    tenants.submit_in("a", 1, 4)
    tenants.submit_in("b", 1001, 4)
    tenants.close(1)
    assert sum(map(len, tenants.running().values())) == 4, "they may come back"
    tenants.tick(MINUTE)
    assert tenants.running() == {"b": [1001, 1002, 1003, 1004], "c": []}
    tenants.close(2)
    tenants.close(3)
    tenants.tick(MINUTE)
    assert tenants.core.roster.shares == {}


def test_the_least_loaded_process_gets_the_task(tenants: Tenants) -> None:
    """The load is that of the process, not of its part in one namespace."""
    tenants.submit_in("b", 1001, 3)
    tenants.join_in("a", 9, worker="idle", share="another secret of its own")
    tenants.submit_in("a", 1)
    assert tenants.worker(1) == "idle"


def test_resources_are_shared_too(tenants: Tenants) -> None:
    for number, namespace in enumerate("abc", 1):
        tenants.join_in(namespace, number, resources={"gpu": 2_000})
    needs = Needs(resources=(("gpu", 1_000),))
    tenants.submit_in("a", 1, needs=needs)
    tenants.submit_in("b", 1001, needs=needs)
    assert tenants.running() == {"a": [1], "b": [1001], "c": []}
    tenants.submit_in("c", 2001, needs=Needs(resources=(("gpu", 2_000),)))
    tenants.submit_in("b", 1002, needs=needs, priority=100)
    # It is kept free for the large one, also from tasks of another namespace.
    tenants.finish(1)
    assert tenants.running() == {"a": [], "b": [1001], "c": []}
    tenants.finish(1001)
    assert tenants.running() == {"a": [], "b": [], "c": [2001]}
    tenants.finish(2001)
    assert tenants.running() == {"a": [], "b": [1002], "c": []}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"share": "x" * (SHARE_CHARS_MIN - 1)}, f"share: a secret of {SHARE_CHARS_MIN}"),
        ({"share": "x" * 257}, "to 256 characters, got 257"),
        ({"share_slots": 0}, "share_slots: must be 1"),
        ({"share_slots": SLOTS_PER_WORKER_MAX + 1}, f"to {SLOTS_PER_WORKER_MAX}"),
        ({"share": ""}, "share_slots: is for workers with a share"),
    ],
)
def test_bad_shares_are_refused(fields: dict[str, Any], problem: str) -> None:
    driver = Tenants()
    answer = driver.join_in("a", 1, **fields)
    assert isinstance(answer, Refusal)
    assert answer.code is Code.INVALID
    assert problem in answer.message
    assert driver.core.roster.shares == {}


def test_share_chars_min() -> None:
    assert not isinstance(Tenants().join_in("a", 1, share="x" * SHARE_CHARS_MIN), Refusal)


def test_workers_per_share_max() -> None:
    driver = Tenants(is_checked=False)
    for number in range(1, WORKERS_PER_SHARE_MAX + 1):
        assert not isinstance(driver.join_in(f"n{number}", number), Refusal)
    refused = driver.join_in("one more", WORKERS_PER_SHARE_MAX + 1)
    assert isinstance(refused, Refusal)
    assert str(WORKERS_PER_SHARE_MAX) in refused.message
    assert not isinstance(driver.join_in("n1", 1), Refusal), "a member may join again"


def test_who_leaves_a_share_takes_its_load_along(tenants: Tenants) -> None:
    tenants.submit_in("a", 1, 4)
    tenants.submit_in("b", 1001, 4)
    held = [Held(tenants.task(number).id, tenants.fence(number)) for number in range(1, 5)]
    tenants.join_in("a", 11, share="", share_slots=0, holding=held)
    assert tenants.running() == {"b": [1001, 1002, 1003, 1004], "c": []}


def test_a_worker_leaves_its_share(tenants: Tenants) -> None:
    tenants.join_in("a", 1, share="", share_slots=0)
    tenants.submit_in("a", 1, 4)
    tenants.submit_in("b", 1001, 4)
    assert tenants.running() == {"b": [1001, 1002, 1003, 1004], "c": []}
    assert tenants.state(4) is State.ASSIGNED


@pytest.mark.parametrize("seed", range(20))
def test_never_more_than_slots_and_never_idle(seed: int) -> None:
    """By chance: no more run than slots are there, and none is free while a task waits."""
    chance, driver = random.Random(seed), Tenants()
    names = "abcd"
    for number, namespace in enumerate(names, 1):
        driver.join_in(namespace, number, slots=3)
    waiting, next_number = 0, 1
    for _ in range(120):
        running = [each for some in driver.running().values() for each in some]
        act = chance.random()
        if act < 0.45 or not running:
            driver.submit_in(chance.choice(names), next_number, count := chance.randint(1, 3))
            next_number += count
        elif act < 0.9:
            getattr(driver, chance.choice(["finish", "fail", "release"]))(chance.choice(running))
        else:
            index = chance.randrange(len(names))
            driver.close(index + 1)
            driver.tick(MINUTE) if chance.random() < 0.5 else None
            driver.join_in(names[index], index + 1, slots=3)
        busy = sum(map(len, driver.running().values()))
        states = Counter(task.state for task in driver.core.book.tasks.values())
        waiting = states[State.READY]
        assert busy <= 3
        assert busy == 3 or not waiting
