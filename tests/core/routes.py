"""Ways to bring task 1 into each state, through commands alone.

Task 2 is one that task 1 may wait for. The worker of task 1 speaks over session 1, that of task 2
over session 2.
"""

from collections.abc import Callable
from typing import Any

from jackalope.core.commands import Action, Answer, Verdict
from jackalope.core.durations import HOUR, SECOND
from jackalope.core.lifecycle import Reason, State
from tests.core.driving import NOW_US, Driver, task_id

#: Task 1 expires then, if it has not begun.
EXPIRES_US = NOW_US + HOUR

Route = Callable[[Driver], None]


def submitted(driver: Driver, **fields: Any) -> None:
    driver.submit(1, expires_at_us=EXPIRES_US, **fields)


def leased(driver: Driver, **fields: Any) -> None:
    driver.join("w", 1, slots=1, grace_us=0)
    submitted(driver, **fields)


def running(driver: Driver, **fields: Any) -> None:
    leased(driver, **fields)
    driver.start(1)


def with_dependency(driver: Driver, **fields: Any) -> None:
    driver.join("helper", 2, ("others",))
    driver.submit(2, "others")
    submitted(driver, depends_on=(task_id(2),), **fields)


def held_on_submit(driver: Driver) -> None:
    submitted(driver, held=True)


def held_while_ready(driver: Driver) -> None:
    submitted(driver)
    driver.act(Action.HOLD, 1)


def held_with_dependency(driver: Driver) -> None:
    with_dependency(driver, held=True)


def held_until_a_time(driver: Driver) -> None:
    submitted(driver, held=True, run_at_us=NOW_US + 60 * SECOND)


def waiting(driver: Driver) -> None:
    with_dependency(driver)


def waiting_then_scheduled(driver: Driver) -> None:
    with_dependency(driver, run_at_us=NOW_US + 60 * SECOND)


def scheduled_on_submit(driver: Driver) -> None:
    submitted(driver, run_at_us=NOW_US + 60 * SECOND)


def scheduled_for_retry(driver: Driver) -> None:
    running(driver)
    driver.fail(1)


def ready_on_submit(driver: Driver) -> None:
    submitted(driver)


def ready_after_release(driver: Driver) -> None:
    leased(driver)
    driver.pause_queue()
    driver.release(1)


def ready_after_loss(driver: Driver) -> None:
    running(driver)
    driver.close(1)
    driver.join("w", 1, slots=0)


def assigned(driver: Driver) -> None:
    leased(driver)


def assigned_again(driver: Driver) -> None:
    leased(driver)
    driver.release(1)


def paused_while_ready(driver: Driver) -> None:
    submitted(driver)
    driver.act(Action.PAUSE, 1)


def paused_with_dependency(driver: Driver) -> None:
    with_dependency(driver)
    driver.act(Action.PAUSE, 1)


def paused_until_a_time(driver: Driver) -> None:
    scheduled_on_submit(driver)
    driver.act(Action.PAUSE, 1)


def paused_by_signal(driver: Driver) -> None:
    running(driver)
    driver.act(Action.PAUSE, 1)
    driver.answer(1, Answer.STOPPED)


def paused_by_loss(driver: Driver) -> None:
    driver.declare(on_lost="pause")
    running(driver)
    driver.close(1)


def succeeded(driver: Driver) -> None:
    running(driver)
    driver.finish(1)


def dead_failed(driver: Driver) -> None:
    running(driver)
    driver.fail(1, Verdict.DEAD)


def dead_rejected(driver: Driver) -> None:
    running(driver)
    driver.fail(1, Verdict.REJECT)


def dead_crashed(driver: Driver) -> None:
    driver.declare(crash_limit=1)
    running(driver)
    driver.close(1)


def dead_interrupted(driver: Driver) -> None:
    driver.declare(interruption_limit=1)
    leased(driver)
    driver.release(1)


def dead_expired(driver: Driver) -> None:
    driver.submit(1, expires_at_us=NOW_US + SECOND)
    driver.tick(2 * SECOND)


def dead_dependency(driver: Driver) -> None:
    with_dependency(driver)
    driver.fail(2, Verdict.DEAD)


def killed_while_ready(driver: Driver) -> None:
    submitted(driver)
    driver.act(Action.KILL, 1)


def killed_by_signal(driver: Driver) -> None:
    running(driver)
    driver.act(Action.KILL, 1)
    driver.answer(1, Answer.STOPPED)


ROUTES: dict[State, list[Route]] = {
    State.HELD: [held_on_submit, held_while_ready, held_with_dependency, held_until_a_time],
    State.WAITING: [waiting, waiting_then_scheduled],
    State.SCHEDULED: [scheduled_on_submit, scheduled_for_retry],
    State.READY: [ready_on_submit, ready_after_release, ready_after_loss],
    State.ASSIGNED: [assigned, assigned_again],
    State.RUNNING: [running],
    State.PAUSED: [
        paused_while_ready,
        paused_with_dependency,
        paused_until_a_time,
        paused_by_signal,
        paused_by_loss,
    ],
    State.SUCCEEDED: [succeeded],
    State.DEAD: [
        dead_failed,
        dead_rejected,
        dead_crashed,
        dead_interrupted,
        dead_expired,
        dead_dependency,
    ],
    State.KILLED: [killed_while_ready, killed_by_signal],
}

REASONS: dict[Route, Reason] = {
    dead_failed: Reason.FAILED,
    dead_rejected: Reason.REJECTED,
    dead_crashed: Reason.CRASHED,
    dead_interrupted: Reason.INTERRUPTED,
    dead_expired: Reason.EXPIRED,
    dead_dependency: Reason.DEPENDENCY,
}


def arrive(route: Route) -> Driver:
    """Run a route, pause the queue behind it, and see to it that a worker can report."""
    driver = Driver()
    route(driver)
    driver.pause_queue()
    if 1 not in driver.core.roster.sessions:
        driver.join("w", 1, slots=0)
    return driver
