"""What a driven core has submitted to its own queue, and ends with what they bring."""

from jackalope.core.commands import Fail, FailAttempts, Finish, FinishAttempts, Verdict
from jackalope.core.records import TaskSubmitted
from jackalope.core.shapes.callback import CALLBACKS_QUEUE, Notice, decode_notice
from jackalope.core.task import Body, Error, lease_of
from tests.core.driving import Driver, task_id

URL = "https://hooks.example/"

#: Of the worker that these tests have.
SESSION = 1


def notices(driver: Driver) -> list[Notice]:
    """Return the callbacks that the last command has submitted."""
    specs = [record.spec for record in driver.records if isinstance(record, TaskSubmitted)]
    payloads = [spec.payload for spec in specs if spec.queue == CALLBACKS_QUEUE]
    return [decode_notice(payload) for payload in payloads if isinstance(payload, bytes)]


def finish(driver: Driver, *numbers: int, result: Body = b"") -> None:
    """Let tasks succeed, in one report."""
    done = [Finish(task_id(each), _fence(driver, each), result) for each in numbers]
    driver.send(FinishAttempts(session=SESSION, attempts=done))


def die(driver: Driver, number: int, message: str = "no") -> None:
    """Let a task fail for good."""
    error = Error("Oh", message)
    failed = Fail(task_id(number), _fence(driver, number), error, Verdict.DEAD)
    driver.send(FailAttempts(session=SESSION, attempts=[failed]))


def _fence(driver: Driver, number: int) -> int:
    return lease_of(driver.core.book.tasks[task_id(number)]).fence
