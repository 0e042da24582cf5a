"""Assignment: who gets which task, in cases where it is easy to get wrong.

One rule behind all of them: a worker is given the best task that it may have, whatever made room
for it; and a task that failed on a worker keeps away from it only while another worker exists.
"""

import pytest

from jackalope.core.commands import (
    ClaimTasks,
    DrainWorker,
    Finish,
    FinishAttempts,
    LeaveWorker,
    SubmitTasks,
)
from jackalope.core.durations import SECOND
from jackalope.core.lifecycle import State
from tests.core.driving import Driver, spec, task_id

LOW, HIGH = 10, 200


@pytest.fixture
def driver() -> Driver:
    return Driver()


# Order, by what makes room.


def test_a_worker_that_joins_takes_the_best_of_all_its_queues(driver: Driver) -> None:
    driver.submit(1, "a", priority=LOW)
    driver.submit(2, "b", priority=HIGH)
    driver.submit(3, "a", priority=HIGH)
    driver.join("w", 1, ("a", "b"), slots=3)
    assert driver.assigned() == [2, 3, 1]


def test_a_worker_that_finishes_takes_the_best(driver: Driver) -> None:
    driver.join("w", 1)
    for number, priority in enumerate((LOW, LOW, HIGH, LOW), start=1):
        driver.submit(number, priority=priority)
    driver.finish(1)
    assert driver.assigned() == [3]


def test_a_tag_with_room_again_goes_to_the_best_task_of_all_keys(driver: Driver) -> None:
    driver.limit("red", 1)
    driver.join("w1", 1)
    driver.submit(1, tags=("red",))
    driver.join("w2", 2)
    driver.submit(2, key="a", priority=LOW, tags=("red",))
    driver.submit(3, key="b", priority=HIGH, tags=("red",))
    driver.finish(1)
    assert driver.assigned() == [3]


def test_a_tag_with_room_again_goes_to_the_best_task_of_all_queues(driver: Driver) -> None:
    driver.limit("red", 1)
    driver.join("w1", 1, ("a", "b"))
    driver.submit(1, "a", tags=("red",))
    driver.join("w2", 2, ("a", "b"))
    driver.submit(2, "a", priority=LOW, tags=("red",))
    driver.submit(3, "b", priority=HIGH, tags=("red",))
    driver.finish(1)
    assert driver.assigned() == [3]


def test_a_raised_limit_lets_the_best_go_first(driver: Driver) -> None:
    driver.limit("red", 0)
    driver.join("w", 1)
    driver.submit(1, key="a", priority=LOW, tags=("red",))
    driver.submit(2, key="b", priority=HIGH, tags=("red",))
    driver.limit("red", 1)
    assert driver.assigned() == [2]


def test_a_removed_limit_lets_the_best_go_first(driver: Driver) -> None:
    driver.limit("red", 0)
    driver.join("w", 1, ("a", "b"))
    driver.submit(1, "a", priority=LOW, tags=("red",))
    driver.submit(2, "b", priority=HIGH, tags=("red",))
    driver.limit("red", -1)
    assert driver.assigned() == [2]


def test_a_resumed_queue_lets_the_best_go_first(driver: Driver) -> None:
    driver.join("w", 1)
    driver.pause_queue()
    driver.submit(1, key="a", priority=LOW)
    driver.submit(2, key="b", priority=HIGH)
    driver.resume_queue()
    assert driver.assigned() == [2]


def test_a_claim_takes_the_best(driver: Driver) -> None:
    driver.join("w", 1, slots=0)
    driver.submit(1, priority=LOW)
    driver.submit(2, priority=HIGH)
    driver.send(ClaimTasks(session=1, ref=7))
    assert driver.assigned() == [2]
    assert [given.claim for given in driver.assignments(1)] == [7]


def test_what_comes_back_at_once_waits_its_turn(driver: Driver) -> None:
    """Room that a report makes belongs to the best task, not to the one reported."""
    driver.declare(retry_base_us=0)
    driver.join("w", 1)
    driver.submit(1, priority=LOW)
    driver.submit(2, priority=HIGH)
    driver.release(1)
    assert driver.assigned() == [2]
    driver.finish(2)
    driver.submit(3, priority=HIGH)
    driver.fail(1)
    assert driver.assigned() == [3]


def test_each_of_many_tasks_in_a_command_is_the_best_when_it_is_given_out(driver: Driver) -> None:
    driver.join("w", 1, slots=2)
    driver.send(SubmitTasks(ref=0, tasks=[spec(number, priority=LOW) for number in range(1, 6)]))
    assert driver.assigned() == [1, 2]
    driver.submit(6, priority=HIGH)
    both = [Finish(task_id(number), driver.fence(number)) for number in (1, 2)]
    driver.send(FinishAttempts(session=1, attempts=both))
    assert driver.assigned() == [6, 3]


def test_ageing_counts_within_its_queue_when_several_queues_give_out_tasks(driver: Driver) -> None:
    """The first of each queue is compared with those of the others, and no later one."""
    driver.declare("a", ageing_us=SECOND)
    driver.limit("red", 0)
    driver.join("w", 1, ("a", "b"))
    driver.submit(1, "a", priority=10, tags=("red",))
    driver.tick(100 * SECOND)
    driver.submit(2, "a", priority=11, key="k", tags=("red",))
    driver.submit(3, "b", priority=5, tags=("red",))
    driver.limit("red", 1)
    assert driver.assigned() == [1]


# Who.


def test_a_task_goes_to_the_least_loaded_worker(driver: Driver) -> None:
    driver.join("w1", 1, slots=3)
    driver.submit(1)
    driver.join("w2", 2, slots=3)
    driver.submit(2)
    driver.submit(3)
    assert driver.worker(2) == "w2"
    assert driver.worker(3) == "w1"


def test_a_resumed_queue_is_spread_over_all_who_serve_it(driver: Driver) -> None:
    driver.join("w1", 1, slots=4)
    driver.join("w2", 2, ("q", "r"), slots=4)
    driver.pause_queue()
    for number in range(1, 5):
        driver.submit(number)
    driver.resume_queue()
    assert sorted(driver.worker(number) for number in range(1, 5)) == ["w1", "w1", "w2", "w2"]


def test_a_draining_worker_is_given_nothing(driver: Driver) -> None:
    driver.join("w", 1)
    driver.send(DrainWorker(worker="w"))
    driver.submit(1)
    assert driver.state(1) is State.READY
    driver.join("w", 2)
    assert driver.state(1) is State.READY
    driver.send(LeaveWorker(session=2))
    driver.join("w", 3)
    assert driver.assigned() == [1]


# Avoiding.


def failed_on_w1(driver: Driver) -> None:
    """Let task 1 fail on worker w1 while w2 exists, but is busy with task 9."""
    driver.declare(retry_base_us=0)
    driver.join("w2", 2)
    driver.submit(9)
    driver.join("w1", 1, slots=2)
    driver.submit(1)
    driver.fail(1)
    assert driver.state(1) is State.READY


def test_a_failed_task_waits_for_another_worker(driver: Driver) -> None:
    failed_on_w1(driver)
    driver.join("w3", 3)
    assert driver.worker(1) == "w3"


def test_a_failed_task_goes_back_if_the_other_worker_leaves(driver: Driver) -> None:
    failed_on_w1(driver)
    driver.send(LeaveWorker(session=2))
    assert driver.worker(1) == "w1"


def test_a_failed_task_goes_back_if_the_other_worker_drains(driver: Driver) -> None:
    failed_on_w1(driver)
    driver.send(DrainWorker(worker="w2"))
    assert driver.worker(1) == "w1"


def test_a_failed_task_goes_back_if_the_other_worker_is_given_up(driver: Driver) -> None:
    failed_on_w1(driver)
    driver.close(2)
    assert driver.state(1) is State.READY
    driver.tick(11 * SECOND)
    assert driver.worker(1) == "w1"


@pytest.mark.parametrize("session", [2, 3])
def test_a_failed_task_goes_back_if_the_other_worker_serves_another_queue(
    driver: Driver, session: int
) -> None:
    failed_on_w1(driver)
    driver.join("w2", session, ("r",))
    assert driver.worker(1) == "w1"


@pytest.mark.parametrize("session", [2, 3])
def test_a_failed_task_goes_back_if_the_other_worker_serves_another_key(
    driver: Driver, session: int
) -> None:
    failed_on_w1(driver)
    driver.join("w2", session, keys=("a",))
    assert driver.worker(1) == "w1"


def test_on_the_only_worker_a_failed_task_keeps_its_place(driver: Driver) -> None:
    driver.join("w", 1)
    driver.submit(1, priority=HIGH)
    driver.submit(2, priority=LOW)
    driver.submit(3, priority=LOW)
    driver.fail(1)
    driver.tick(5 * SECOND)
    assert driver.worker(2) == "w"
    driver.finish(2)
    assert driver.assigned() == [1]


def test_a_task_that_can_wait_does_not_hide_one_that_cannot(driver: Driver) -> None:
    """Both failed here; for the better one there is another worker, for the other one none."""
    driver.declare(retry_base_us=SECOND)
    driver.join("w2", 2, keys=("a",))
    driver.submit(9, key="a")
    driver.join("w1", 1, slots=2)
    driver.submit(1, key="a", priority=HIGH)
    driver.submit(2, key="b", priority=LOW)
    driver.fail(1)
    driver.fail(2)
    driver.submit(3)
    driver.submit(4)
    driver.tick(SECOND)
    driver.finish(3)
    assert driver.assigned() == [2]


def test_when_another_leaves_the_best_of_those_that_avoided_goes_first(driver: Driver) -> None:
    driver.declare(retry_base_us=0)
    driver.join("w2", 2, ("q", "r"))
    driver.submit(9, "r")
    driver.join("w1", 1, slots=2)
    driver.submit(1, key="a", priority=LOW)
    driver.submit(2, key="b", priority=HIGH)
    driver.fail(1)
    driver.fail(2)
    driver.join("w1", 1, slots=1)
    driver.send(LeaveWorker(session=2))
    assert driver.assigned() == [2]


def test_a_worker_that_only_claims_counts_while_it_claims(driver: Driver) -> None:
    driver.declare(retry_base_us=0)
    driver.join("w1", 1)
    driver.join("w2", 2, slots=0)
    driver.submit(1)
    driver.fail(1)
    assert driver.worker(1) == "w1"
    driver.send(ClaimTasks(session=2, ref=7, wait_us=SECOND))
    driver.fail(1)
    assert driver.worker(1) == "w2"
