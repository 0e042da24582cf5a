"""What a test does in a process of its own, where Django is set up: `python -m ... SCENARIO`."""

import asyncio
import inspect
import sys
import time
from datetime import timedelta
from typing import Any

import django

django.setup()

from django.contrib.auth.models import User  # noqa: E402
from django.core import checks  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import transaction  # noqa: E402
from django.test import Client  # noqa: E402
from django.utils import timezone  # noqa: E402
from django_tasks import TaskResultStatus, default_task_backend, task_backends  # noqa: E402
from django_tasks.exceptions import InvalidTaskError, TaskResultDoesNotExist, TaskResultMismatch  # noqa: E402
from django_tasks.signals import task_enqueued  # noqa: E402

from jackalope.contrib.django.backend import JackalopeBackend  # noqa: E402
from jackalope.contrib.django.models import OutboxRow  # noqa: E402
from tests.contrib.django_project import tasks  # noqa: E402

WAIT_S = 60.0


def finished(result: Any) -> Any:
    deadline = time.monotonic() + WAIT_S
    while not result.is_finished:
        assert time.monotonic() < deadline, result
        time.sleep(0.05)
        result.refresh()
    return result


def raises(kind: type[BaseException], call: Any, *args: Any, **kwargs: Any) -> BaseException:
    try:
        call(*args, **kwargs)
    except kind as error:
        return error
    raise AssertionError(f"{kind} was not raised")


def results() -> None:
    """Results, errors, context, async tasks and signals, with a worker that runs."""
    told: list[str] = []
    task_enqueued.connect(lambda task_result, **_: told.append(task_result.id), weak=False)
    result = tasks.add.enqueue(2, b=3)
    assert (result.status, result.backend, told) == (TaskResultStatus.READY, "default", [result.id])
    assert result.enqueued_at is not None
    assert (result.args, result.kwargs) == ([2], {"b": 3})
    raises(ValueError, lambda: result.return_value)
    finished(result)
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, 5)
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert result.attempts == 1
    assert result.worker_ids[0]
    again = tasks.add.get_result(result.id)
    assert (again.return_value, again.args, again.kwargs, again.errors) == (5, [2], {"b": 3}, [])
    raises(TaskResultMismatch, tasks.add_async.get_result, result.id)
    raises(TaskResultDoesNotExist, default_task_backend.get_result, "0" * 32)
    raises(TaskResultDoesNotExist, default_task_backend.get_result, "no id")
    failed = finished(tasks.fail.enqueue("as told"))
    assert (failed.status, failed.attempts) == (TaskResultStatus.FAILED, 1)
    (error,) = failed.errors
    assert error.exception_class is ValueError
    assert "as told" in error.traceback
    raises(ValueError, lambda: failed.return_value)
    assert (failed.task.priority, failed.task.queue_name) == (10, "mail")
    assert finished(tasks.add_async.enqueue(1)).return_value == 2
    told_result = finished(tasks.tell.enqueue("hello"))
    assert told_result.return_value == [told_result.id, 1, "hello"]
    assert finished(tasks.odd.enqueue()).status == TaskResultStatus.FAILED
    raises(TypeError, tasks.add.enqueue, object())


async def asynchronous() -> None:
    result = await tasks.add.aenqueue(4)
    deadline = time.monotonic() + WAIT_S
    while not result.is_finished:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
        await result.arefresh()
    assert result.return_value == 5
    assert (await tasks.add.aget_result(result.id)).return_value == 5


def choices() -> None:
    """Priority, deferral and validation, without a worker."""
    backend = default_task_backend
    flags = ("defer", "async_task", "get_result", "priority")
    assert all(getattr(backend, f"supports_{flag}") for flag in flags)
    late = tasks.add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(1)
    views = {}
    for priority in (-100, 0, 100):
        result = tasks.add.using(priority=priority).enqueue(1)
        views[priority] = backend.app.sync(backend.app.find(result.id)).priority
        assert backend.get_result(result.id).task.priority == priority
    assert views[-100] < views[0] < views[100]
    view = backend.app.sync(backend.app.find(late.id))
    assert view.state == "scheduled"
    assert 3500e6 < view.due_us - view.created_us < 3601e6
    raises(InvalidTaskError, tasks.add.using, priority=101)
    raises(InvalidTaskError, tasks.add.using, queue_name="unknown")
    naive = timezone.now().replace(tzinfo=None)
    raises(InvalidTaskError, tasks.add.using, run_after=naive)
    assert not checks.run_checks()
    wrong = JackalopeBackend(
        "x", {"OPTIONS": {"ADRESS": "x", "OUTBOX": "none", "ADDRESS": "http:"}}
    )
    assert len(list(wrong.check())) == 3


def transactional() -> None:
    """Tasks go with the transaction, and the relay moves them."""
    with transaction.atomic():
        tasks.count.enqueue("nobody")
        transaction.set_rollback(True)
    assert OutboxRow.objects.count() == 0
    with transaction.atomic():
        User.objects.create_user("ada")
        result = tasks.count.enqueue("ada")
    assert OutboxRow.objects.count() == 1
    assert task_backends["outbox"].get_result(result.id).status == TaskResultStatus.READY
    call_command("jackalope_relay", "--backend", "outbox", "--once")
    assert OutboxRow.objects.count() == 0
    assert finished(result).return_value == 1


def admin() -> None:
    """The outbox in the admin."""
    User.objects.create_superuser("root", password="root")  # noqa: S106
    with transaction.atomic():
        result = tasks.count.enqueue("x")
    OutboxRow.objects.update(error="refused for a test")
    client = Client(HTTP_HOST="localhost")
    assert client.login(username="root", password="root")  # noqa: S106
    page = client.get("/admin/jackalope/outboxrow/").content.decode()
    assert result.id in page
    assert "refused for a test" in page
    row = OutboxRow.objects.get()
    client.post(
        "/admin/jackalope/outboxrow/", {"action": "move_again", "_selected_action": [row.pk]}
    )
    assert OutboxRow.objects.get().error == ""
    assert client.get("/admin/jackalope/outboxrow/add/").status_code == 403


if __name__ == "__main__":
    scenario = globals()[sys.argv[1]]
    if inspect.iscoroutinefunction(scenario):
        asyncio.run(scenario())
    else:
        scenario()
