"""Tasks as a user of Django writes them."""

import sys
import time
from importlib import import_module
from typing import Any

from django.contrib.auth.models import User

from jackalope.contrib.django.api import PACKAGE
from jackalope.tasks.context import current

task: Any = import_module(PACKAGE).task
_signals: Any = import_module(f"{PACKAGE}.signals")


@task
def add(a: int, b: int = 1) -> int:
    return a + b


@task(queue_name="mail", priority=10)
def fail(why: str) -> None:
    raise ValueError(why)


@task
async def add_async(a: int) -> int:
    return a + 1


@task(takes_context=True)
def tell(context: Any, word: str) -> list[Any]:
    seen = context.task_result
    choices = [seen.task.priority, seen.task.queue_name, seen.backend, seen.status]
    return [seen.id, context.attempt, word, seen.worker_ids[-1], choices]


@task(backend="retried")
def fail_twice() -> int:
    attempt = current().attempt
    if attempt < 3:
        raise (KeyError if attempt == 1 else LookupError)(f"attempt {attempt}")
    return attempt


@task
def nap(seconds: float) -> None:
    time.sleep(seconds)


#: What the signals have said in this process, by the id of a result.
_heard: dict[str, list[list[str]]] = {}


def _hear(what: str, task_result: Any) -> None:
    errors = [each.traceback.splitlines()[0] for each in task_result.errors] or [""]
    entry = [what, str(task_result.status), task_result.worker_ids[-1], *errors]
    _heard.setdefault(task_result.id, []).append(entry)


def _hear_started(task_result: Any, **_: Any) -> None:
    _hear("started", task_result)


def _hear_finished(task_result: Any, **_: Any) -> None:
    _hear("finished", task_result)


_signals.task_started.connect(_hear_started)
_signals.task_finished.connect(_hear_finished)


@task
def heard(ids: list[str]) -> dict[str, list[list[str]]]:
    return {each: _heard[each] for each in ids}


@task
def leave() -> None:
    sys.exit("gone")


@task(backend="outbox")
def count(name: str) -> int:
    return int(User.objects.filter(username=name).count())


@task
def odd() -> object:
    return object()
