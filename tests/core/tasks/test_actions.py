"""Actions beside the table: families, requests, and refusals that leave nothing behind."""

from collections.abc import Callable

import pytest

from jackalope.core.commands import Action, Answer, SubmitTasks
from jackalope.core.durations import SECOND
from jackalope.core.effects import Acted, Answered, Joined
from jackalope.core.lifecycle import ENDED, State
from jackalope.core.refusals import Code
from jackalope.core.task import Signal, Stage
from tests.core.driving import Driver, refusal_in, spec, task_id
from tests.core.routes import ROUTES, Route, arrive


@pytest.fixture
def driver() -> Driver:
    return Driver()


def signal_of(driver: Driver, number: int) -> Signal | None:
    attempt = driver.task(number).attempt
    return attempt.request.signal if attempt and attempt.request else None


# Families.

UNFINISHED = [route for state in State if state not in ENDED for route in ROUTES[state]]


@pytest.mark.parametrize("route", UNFINISHED)
def test_killing_a_parent_kills_its_children_in_whatever_state_it_is(route: Route) -> None:
    driver = arrive(route)
    driver.submit(11, parent=task_id(1))
    driver.submit(12, parent=task_id(1), held=True)
    driver.submit(13, parent=task_id(11))
    driver.submit(14)
    driver.act(Action.KILL, 1)
    assert [driver.state(number) for number in (11, 12, 13)] == [State.KILLED] * 3
    assert driver.state(14) is State.READY


@pytest.mark.parametrize("is_parent_leased", [True, False])
def test_children_that_run_are_asked_to_stop(driver: Driver, is_parent_leased: bool) -> None:
    driver.submit(1, "parents")
    if is_parent_leased:
        driver.join("p", 2, ("parents",))
    driver.join("w", 1)
    driver.submit(11, parent=task_id(1))
    answer = driver.act(Action.KILL, 1)
    assert answer == (Acted(requested=1) if is_parent_leased else Acted(changed=1))
    assert signal_of(driver, 11) is Signal.KILL


def test_the_children_of_a_task_that_ended_belong_to_its_own_parent(driver: Driver) -> None:
    driver.join("w", 1, slots=9)
    driver.submit(1)
    driver.submit(2, parent=task_id(1))
    driver.submit(3, parent=task_id(2), held=True)
    driver.finish(2)
    assert driver.state(3) is State.HELD
    driver.act(Action.KILL, 1)
    assert driver.state(3) is State.KILLED


def test_a_child_that_lives_again_belongs_to_who_lives(driver: Driver) -> None:
    driver.submit(1)
    driver.submit(2, parent=task_id(1), held=True)
    driver.submit(3, parent=task_id(2), held=True)
    for number in (3, 2, 1):
        driver.act(Action.KILL, number)
    driver.act(Action.RETRY, 3)
    assert driver.state(3) is State.READY


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 1, 3), (1, 3, 2)])
def test_a_family_can_be_revived_in_any_order(driver: Driver, order: tuple[int, ...]) -> None:
    driver.submit(1)
    driver.submit(2, parent=task_id(1))
    driver.submit(3, parent=task_id(2))
    driver.act(Action.KILL, 1, 2, 3)
    for number in order:
        driver.act(Action.RETRY, number)
    assert [driver.state(number) for number in (1, 2, 3)] == [State.READY] * 3


# Requests.


@pytest.fixture
def running(driver: Driver) -> Driver:
    driver.declare(timeout_us=SECOND)
    driver.join("w", 1)
    driver.submit(1)
    driver.start(1)
    return driver


def test_a_kill_takes_the_place_of_a_pause_and_not_the_other_way_round(running: Driver) -> None:
    for action, expected in (
        (Action.PAUSE, Signal.PAUSE),
        (Action.KILL, Signal.KILL),
        (Action.PAUSE, Signal.KILL),
    ):
        running.act(action, 1)
        assert signal_of(running, 1) is expected


def test_a_signal_only_goes_forward(running: Driver) -> None:
    running.act(Action.KILL, 1)
    stages = []
    for answer in (Answer.ACKNOWLEDGED, Answer.DELIVERED, Answer.REFUSED, Answer.ACKNOWLEDGED):
        running.answer(1, answer)
        attempt = running.task(1).attempt
        assert attempt is not None
        assert attempt.request is not None
        stages.append(attempt.request.stage)
    assert stages == [Stage.ACKNOWLEDGED, Stage.ACKNOWLEDGED, Stage.REFUSED, Stage.REFUSED]


def test_what_was_refused_can_be_asked_again(running: Driver) -> None:
    running.act(Action.KILL, 1)
    running.answer(1, Answer.REFUSED)
    running.act(Action.KILL, 1)
    attempt = running.task(1).attempt
    assert attempt is not None
    assert attempt.request is not None
    assert attempt.request.stage is Stage.REQUESTED


def test_a_timeout_asks_the_worker_once(running: Driver) -> None:
    running.tick(SECOND)
    assert signal_of(running, 1) is Signal.TIMEOUT
    running.tick(SECOND)
    assert running.records == []
    running.answer(1, Answer.STOPPED)
    assert running.state(1) is State.SCHEDULED
    assert running.task(1).failures == 1


# Refusals.


def refused_submit(driver: Driver) -> Answered | None:
    return driver.submit(1, "new", depends_on=(task_id(9),))


def refused_join(driver: Driver) -> Answered | None:
    return driver.join("w", 1, ("new", "x" * 300))


def refused_child(driver: Driver) -> Answered | None:
    return driver.send(SubmitTasks(ref=0, tasks=[spec(1, "new", parent=task_id(9))]))


@pytest.mark.parametrize("attempt", [refused_submit, refused_join, refused_child])
def test_a_refusal_leaves_nothing_behind(
    driver: Driver, attempt: Callable[[Driver], Answered | None]
) -> None:
    before = driver.snapshot()
    assert refusal_in(attempt(driver)) is not None
    assert driver.records == []
    assert driver.snapshot() == before


def test_a_session_belongs_to_one_worker(driver: Driver) -> None:
    assert isinstance(driver.join("w1", 1), Joined)
    refusal = refusal_in(driver.join("w2", 1))
    assert refusal is not None
    assert refusal.code is Code.INVALID
