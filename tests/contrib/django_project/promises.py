"""What Django's documentation promises of tasks and their backends, one function each.

The sentences are in our words, in the order of the pages: `topics/tasks`, `ref/tasks`, and the
signals. A promise is kept with a worker that serves, or without one.
"""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import import_module
from threading import Thread
from typing import Any

from django.core import checks
from django.utils import timezone

from jackalope.contrib.django.api import PACKAGE
from jackalope.contrib.django.backend import JackalopeBackend
from tests.contrib.django_project import tasks

WAIT_S = 60.0

_package: Any = import_module(PACKAGE)
_exceptions: Any = import_module(f"{PACKAGE}.exceptions")
_signals: Any = import_module(f"{PACKAGE}.signals")
backend: Any = _package.default_task_backend
backends: Any = _package.task_backends
Status: Any = _package.TaskResultStatus
#: The backport has their older names.
_END = "" if PACKAGE == "django.tasks" else "Error"
InvalidTask: Any = getattr(_exceptions, f"InvalidTask{_END}")
InvalidBackend: Any = getattr(_exceptions, f"InvalidTaskBackend{_END}")

Promise = Callable[[], None]

#: The promises that are kept before a worker serves, and while one does.
WAITING: dict[str, Promise] = {}
SERVED: dict[str, Promise] = {}


def promise(sentence: str, table: dict[str, Promise] = SERVED) -> Callable[[Promise], Promise]:
    def enter(check: Promise) -> Promise:
        assert sentence not in table
        table[sentence] = check
        return check

    return enter


def finished(result: Any) -> Any:
    deadline = time.monotonic() + WAIT_S
    while not result.is_finished:
        assert time.monotonic() < deadline, result
        time.sleep(0.02)
        result.refresh()
    return result


def raises(kind: type[BaseException], call: Any, *args: Any, **kwargs: Any) -> BaseException:
    try:
        call(*args, **kwargs)
    except kind as error:
        return error
    raise AssertionError(f"{kind} was not raised")


def tried_again_now(result: Any, failures: int) -> None:
    """Wait until a task has failed so often, and do not wait until it is due again."""
    deadline = time.monotonic() + WAIT_S
    while view_of(result).failures < failures:
        assert time.monotonic() < deadline, result
        time.sleep(0.02)
    backend.app.sync(backend.app.handle(result.id).retry())


def view_of(result: Any) -> Any:
    return backend.app.sync(backend.app.find(result.id))


def stored() -> int:
    return len(list(backend.app.sync.iterate(backend.app.tasks())))


# Before a worker serves.


@promise("A backend is named by its path in TASKS, and found in `task_backends`", WAITING)
def _() -> None:
    assert isinstance(backends["default"], JackalopeBackend)
    assert backend.alias == "default"
    raises(InvalidBackend, lambda: backends["none"])


@promise("A decorator makes a Task, whose choices are those of its arguments", WAITING)
def _() -> None:
    assert (tasks.fail.priority, tasks.fail.queue_name) == (10, "mail")
    assert (tasks.count.backend, tasks.count.name) == ("outbox", "count")


@promise("`using` makes another task, and leaves the first as it is", WAITING)
def _() -> None:
    assert tasks.add.using(priority=10).priority == 10
    assert tasks.add.priority == 0


@promise("`enqueue` returns a result that is READY, with its arguments", WAITING)
def _() -> None:
    result = tasks.add.enqueue(2, b=3)
    assert (result.status, result.backend) == (Status.READY, "default")
    assert (result.args, result.kwargs) == ([2], {"b": 3})
    assert (result.task, result.attempts, result.errors) == (tasks.add, 0, [])
    assert result.enqueued_at is not None
    assert (result.started_at, result.finished_at, result.last_attempted_at) == (None,) * 3
    assert not result.is_finished


@promise(
    "Arguments must be JSON: others are refused with TypeError, and nothing is queued", WAITING
)
def _() -> None:
    before = stored()
    raises(TypeError, tasks.add.enqueue, object())
    raises(TypeError, tasks.add.enqueue, datetime.now(UTC))
    assert stored() == before


@promise("Arguments are what is left of them after JSON: tuples are lists", WAITING)
def _() -> None:
    assert tasks.add.enqueue((1, 2)).args == [[1, 2]]


@promise("An id is a text of less than 64 characters, unlike any other", WAITING)
def _() -> None:
    ids = {tasks.add.enqueue(1).id for _ in range(10)}
    assert len(ids) == 10
    assert all(isinstance(each, str) and len(each) < 64 for each in ids)


@promise("The features of a backend are in its flags", WAITING)
def _() -> None:
    for flag in ("defer", "async_task", "get_result", "priority"):
        assert getattr(backend, f"supports_{flag}")


@promise("A priority is from -100 to 100, and a task that has another is invalid", WAITING)
def _() -> None:
    for priority in (-101, 101, 1.5):
        raises(InvalidTask, tasks.add.using, priority=priority)
    found = [view_of(tasks.add.using(priority=each).enqueue(1)).priority for each in (-100, 0, 100)]
    assert found == sorted(set(found))


@promise("A queue that is not among QUEUES is invalid", WAITING)
def _() -> None:
    raises(InvalidTask, tasks.add.using, queue_name="unknown")


@promise("A naive time is invalid where USE_TZ is set", WAITING)
def _() -> None:
    raises(InvalidTask, tasks.add.using, run_after=timezone.now().replace(tzinfo=None))


@promise("A function that is not at the level of a module is invalid", WAITING)
def _() -> None:
    raises(InvalidTask, _package.task, lambda: None)


@promise("A task that takes the context has it as its first argument, or is invalid", WAITING)
def _() -> None:
    raises(InvalidTask, _package.task(takes_context=True), tasks.add.func)


@promise("`run_after` is the earliest time at which a task is run", WAITING)
def _() -> None:
    after = timezone.now() + timedelta(hours=1)
    late = tasks.add.using(run_after=after).enqueue(1)
    view = view_of(late)
    assert view.state == "scheduled"
    assert abs(view.due_us / 1e6 - after.timestamp()) < 0.001
    assert backend.get_result(late.id).task.run_after == after


@promise("A result has the task that was enqueued, with the choices of `using`", WAITING)
def _() -> None:
    chosen = tasks.add.using(priority=-7, queue_name="mail", backend="default")
    assert backend.get_result(chosen.enqueue(1).id).task == chosen
    other = tasks.add.using(backend="retried").enqueue(1)
    assert backends["retried"].get_result(other.id).task.backend == "retried"


@promise("`task_enqueued` is sent with the result, by the class of the backend", WAITING)
def _() -> None:
    told: list[Any] = []

    def hear(sender: Any, task_result: Any, **_: Any) -> None:
        told.append((sender, task_result.id, task_result.status))

    _signals.task_enqueued.connect(hear)
    result = tasks.add.enqueue(1)
    _signals.task_enqueued.disconnect(hear)
    assert told == [(JackalopeBackend, result.id, Status.READY)]


@promise("A result that is not there raises TaskResultDoesNotExist", WAITING)
def _() -> None:
    for unknown in ("0" * 32, "no id"):
        raises(_exceptions.TaskResultDoesNotExist, backend.get_result, unknown)


@promise("`manage.py check` names what is wrong with a backend", WAITING)
def _() -> None:
    assert not checks.run_checks()
    wrong = {"OPTIONS": {"ADRESS": "x", "OUTBOX": "none", "ADDRESS": "http:"}}
    assert len(list(JackalopeBackend("x", wrong).check())) == 3


@promise("A backend for each thread: all share a connection", WAITING)
def _() -> None:
    found: list[Any] = []
    threads = [Thread(target=lambda: found.append(backends["default"].app)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert {id(each) for each in found} == {id(backend.app)}


# While a worker serves.


@promise("Higher priorities are run sooner")
def _() -> None:
    blocks = [tasks.nap.enqueue(0.5) for _ in range(2)]
    low, high = (tasks.add.using(priority=each).enqueue(1) for each in (-50, 50))
    for result in (*blocks, low, high):
        finished(result)
    assert high.started_at < low.started_at


@promise("A result does not change until it is refreshed, and then has what came of the task")
def _() -> None:
    result = tasks.add.enqueue(2, b=3)
    other = finished(backend.get_result(result.id))
    assert result.status == Status.READY
    result.refresh()
    assert (result.status, result.return_value) == (Status.SUCCESSFUL, 5)
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert result.last_attempted_at == result.started_at
    assert (result.attempts, result.errors) == (1, [])
    assert result == other


@promise("A result is found by its id from elsewhere, with its arguments")
def _() -> None:
    result = finished(tasks.add.enqueue(2, b=3))
    for again in (tasks.add.get_result(result.id), backend.get_result(result.id)):
        assert (again.return_value, again.args, again.kwargs) == (5, [2], {"b": 3})
        assert again.worker_ids == result.worker_ids


@promise("A result of another task is a mismatch")
def _() -> None:
    result = tasks.add.enqueue(1)
    raises(_exceptions.TaskResultMismatch, tasks.add_async.get_result, result.id)


@promise("A value is not there before the end, nor after a failure: ValueError")
def _() -> None:
    raises(ValueError, lambda: tasks.add.enqueue(1).return_value)
    raises(ValueError, lambda: finished(tasks.fail.enqueue("x")).return_value)


@promise("A failure is FAILED, with the class and the traceback of the error")
def _() -> None:
    failed = finished(tasks.fail.enqueue("as told"))
    assert (failed.status, failed.attempts) == (Status.FAILED, 1)
    (error,) = failed.errors
    assert error.exception_class is ValueError
    assert error.traceback.startswith("Traceback (most recent call last)")
    assert "as told" in error.traceback
    assert (failed.task.priority, failed.task.queue_name) == (10, "mail")


@promise("A task that was unable to start is FAILED, with the error")
def _() -> None:
    failed = finished(tasks.add.enqueue(no_such="argument"))
    assert failed.status == Status.FAILED
    assert failed.errors[0].exception_class is TypeError
    gone = finished(tasks.leave.enqueue())
    assert (gone.status, gone.errors[0].exception_class) == (Status.FAILED, SystemExit)


@promise("Errors are those of each execution, and attempts are counted")
def _() -> None:
    result = tasks.fail_twice.enqueue()
    for failures in (1, 2):
        tried_again_now(result, failures)
    finished(result)
    assert (result.status, result.return_value, result.attempts) == (Status.SUCCESSFUL, 3, 3)
    assert [each.exception_class for each in result.errors] == [KeyError, LookupError]
    assert result.started_at < result.last_attempted_at <= result.finished_at
    assert len(result.worker_ids) == 3
    assert all(result.worker_ids)


@promise("A value that JSON has no form for is a failure")
def _() -> None:
    odd = finished(tasks.odd.enqueue())
    assert (odd.status, odd.errors[0].exception_class) == (Status.FAILED, TypeError)


@promise("A coroutine can be a task")
def _() -> None:
    assert finished(tasks.add_async.enqueue(1)).return_value == 2


@promise("The context has the result that runs, and the attempt from 1")
def _() -> None:
    result = finished(tasks.tell.using(priority=3, queue_name="mail").enqueue("hello"))
    (worker,) = result.worker_ids
    choices = [3, "mail", "default", "RUNNING"]
    assert result.return_value == [result.id, 1, "hello", worker, choices]


@promise("Every method has an async variant, prefixed with `a`")
def _() -> None:
    async def check() -> None:
        result = await tasks.add.aenqueue(4)
        deadline = time.monotonic() + WAIT_S
        while not result.is_finished:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
            await result.arefresh()
        for again in (result, await tasks.add.aget_result(result.id)):
            assert again.return_value == 5
        assert (await backend.aget_result(result.id)).return_value == 5
        for unknown in ("0" * 32, "no id"):
            try:
                await backend.aget_result(unknown)
            except _exceptions.TaskResultDoesNotExist:
                continue
            raise AssertionError(unknown)

    asyncio.run(check())


@promise("`task_started` and `task_finished` are sent where a task runs, with its state")
def _() -> None:
    good, bad = finished(tasks.add.enqueue(1)), finished(tasks.fail.enqueue("heard"))
    heard = finished(tasks.heard.enqueue([good.id, bad.id])).return_value
    ((worker,),) = {tuple(good.worker_ids), tuple(bad.worker_ids)}
    names = ("started", "RUNNING"), ("finished", "SUCCESSFUL"), ("finished", "FAILED")
    started, succeeded, failed = ([*each, worker] for each in names)
    assert heard == {
        good.id: [[*started, ""], [*succeeded, ""]],
        bad.id: [[*started, ""], [*failed, "Traceback (most recent call last):"]],
    }


@promise("A task can be pickled, and is the same")
def _() -> None:
    if PACKAGE == "django.tasks":  # The backport's cannot.
        assert pickle.loads(pickle.dumps(tasks.add)) == tasks.add  # noqa: S301
