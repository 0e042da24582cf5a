"""The task backend: Django's tasks as tasks of a broker.

Owns how one is told as the other: priority, deferral, states, errors. A task of Django travels with
its dotted path, so that a worker runs whatever can be imported.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import msgspec
from asgiref.sync import sync_to_async
from django.core import checks
from django.db import close_old_connections, connections
from django.utils import timezone
from django.utils.module_loading import import_string

from jackalope.client.app import Jackalope
from jackalope.client.task import Task as JackalopeTask
from jackalope.contrib import outbox
from jackalope.contrib.django.api import (
    BaseTaskBackend,
    ResultDoesNotExist,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from jackalope.core.ids import id_text
from jackalope.core.lifecycle import State
from jackalope.core.refusals import Code
from jackalope.core.task import PRIORITY_DEFAULT, TaskSpec
from jackalope.errors import ConfigError, JackalopeError, Rejected
from jackalope.task_ids import to_task_id
from jackalope.tasks.context import current
from jackalope.wire.views import TaskView

#: What tasks of Django are called at the broker.
NAME = "django.task"

#: Every option of the backend, and what it means.
OPTIONS = {
    "ADDRESS": "where the broker is",
    "TOKEN": "what proves who we are",
    "RETRIES": "how many failures are tried again; 0 if not said",
    "TIMEOUT": "how many seconds an attempt may run",
    "OUTBOX": "the alias of the database whose outbox takes tasks, so that they go with its "
    "transactions; None for sending them at once",
}

_STATUSES = {
    State.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    State.DEAD: TaskResultStatus.FAILED,
    State.KILLED: TaskResultStatus.FAILED,
    State.RUNNING: TaskResultStatus.RUNNING,
}


class JackalopeBackend(BaseTaskBackend):
    """Sends tasks to a broker, at once or with the transaction."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.outbox: str | None = self.options.get("OUTBOX")

    @cached_property
    def app(self) -> Jackalope:
        """The application whose only task runs those of Django."""
        address = self.options.get("ADDRESS", "jackalope://localhost:7420")
        app = Jackalope(address, token=self.options.get("TOKEN"))
        app.task(
            name=NAME,
            content="json",
            retries=self.options.get("RETRIES", 0),
            timeout=self.options.get("TIMEOUT", 0),
        )(execute)
        return app

    @cached_property
    def _task(self) -> JackalopeTask[..., Any]:
        options = {"retries": self.options.get("RETRIES", 0)}
        if self.options.get("TIMEOUT"):
            options["timeout"] = self.options["TIMEOUT"]
        return JackalopeTask(self.app, self.app.functions[NAME], options)  # type: ignore[arg-type]

    # Enqueueing.

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Queue a task; it is durable at the broker, or in the transaction, when this returns."""
        result, chosen = self._begin(task, args, kwargs)
        call = self._call(result)
        if self.outbox is not None:
            outbox.submit(connections[self.outbox], chosen, *call)
        else:
            self.app.sync(chosen.submit(*call))
        return self._enqueued(result)

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Do the same without blocking the loop."""
        if self.outbox is not None:  # A connection of Django belongs to its thread.
            return await sync_to_async(self.enqueue, thread_sensitive=True)(task, args, kwargs)
        result, chosen = self._begin(task, args, kwargs)
        await chosen.submit(*self._call(result))
        return self._enqueued(result)

    def _begin(self, task: Any, args: Any, kwargs: Any) -> tuple[Any, JackalopeTask[..., Any]]:
        self.validate_task(task)
        choices: dict[str, Any] = {
            "queue": task.queue_name,
            "priority": PRIORITY_DEFAULT + task.priority,
            "tags": [task.module_path[-100:]],
        }
        if task.run_after is not None:
            moment = task.run_after
            choices["run_at"] = moment if timezone.is_aware(moment) else timezone.make_aware(moment)
        chosen = self._task.options(**choices)
        spec_id = chosen.prepare("", "", [], {}).id
        result = self._result(task, spec_id, args, kwargs)
        return result, chosen.options(id=spec_id)

    def _call(self, result: Any) -> tuple[Any, ...]:
        return (result.task.module_path, self.alias, result.args, result.kwargs)

    def _enqueued(self, result: Any) -> Any:
        _set(result, enqueued_at=timezone.now())
        task_enqueued.send(type(self), task_result=result)
        return result

    def _result(self, task: Any, task_id: bytes, args: Any, kwargs: Any) -> Any:
        return TaskResult(
            task=task,
            id=id_text(task_id),
            status=TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )

    # Results.

    def get_result(self, result_id: str) -> Any:
        """Return a result by its id, from any process.

        Raises:
            TaskResultDoesNotExist: there is none, or it is no longer kept.
        """
        try:
            view, workers = self.app.sync(self._find(result_id))
        except (Rejected, ConfigError) as error:
            return self._unsent(result_id, error)
        return self._from_view(view, workers)

    async def aget_result(self, result_id: str) -> Any:
        """Do the same without blocking the loop."""
        try:
            view, workers = await self._find(result_id)
        except (Rejected, ConfigError) as error:
            return await sync_to_async(self._unsent, thread_sensitive=True)(result_id, error)
        return self._from_view(view, workers)

    async def _find(self, result_id: str) -> tuple[TaskView, list[str]]:
        task_id = to_task_id(result_id)
        view = await self.app.find(task_id, with_bodies=True)
        if view.name != NAME:
            raise ConfigError(f"{result_id} is no task of Django")
        history = await self.app.handle(task_id).history()
        return view, [entry.by for entry in history if entry.what == "start"]

    def _unsent(self, result_id: str, error: JackalopeError) -> Any:
        """Return the result of a task that waits in the outbox."""
        if isinstance(error, Rejected) and error.code != Code.UNKNOWN_TASK:
            raise error
        if self.outbox is not None:
            with connections[self.outbox].cursor() as cursor:
                select = f"SELECT body FROM {outbox.TABLE} WHERE task = %s"  # noqa: S608  a constant
                cursor.execute(select, [result_id])
                row = cursor.fetchone()
            if row is not None:
                spec = msgspec.msgpack.decode(bytes(row[0]), type=TaskSpec)
                return self._from_call(spec.id, spec.queue, spec.priority, spec.payload)
        raise ResultDoesNotExist(result_id)

    def _from_call(self, task_id: bytes, queue: str, priority: int, payload: Any) -> Any:
        (path, _, args, kwargs), _ = self.app.functions[NAME].arguments(payload)
        task = import_string(path)
        chosen = task.using(queue_name=queue, priority=priority - PRIORITY_DEFAULT)
        return self._result(chosen, task_id, args, kwargs)

    def _from_view(self, view: TaskView, workers: list[str]) -> Any:
        result = self._from_call(view.id, view.queue, view.priority, view.payload or b"")
        status = _STATUSES.get(view.state, TaskResultStatus.READY)
        started = _moment(view.started_us)
        _set(
            result,
            status=status,
            enqueued_at=_moment(view.created_us),
            started_at=started,
            last_attempted_at=started,
            finished_at=_moment(view.ended_us),
            worker_ids=workers,
        )
        if view.error is not None:
            kind = view.error.type if "." in view.error.type else f"builtins.{view.error.type}"
            trace = view.error.trace or view.error.message
            _set(result, errors=[TaskError(exception_class_path=kind, traceback=trace)])
        if status == TaskResultStatus.SUCCESSFUL:
            _set(result, _return_value=msgspec.json.decode(view.result or b"null"))
        return result

    def check(self, **kwargs: Any) -> Iterable[Any]:
        """List what is wrong with the settings."""
        found = list(super().check(**kwargs)) + [
            checks.Error(f"{each}: unknown option of {self.alias}; there are {', '.join(OPTIONS)}")
            for each in self.options
            if each not in OPTIONS
        ]
        if self.outbox is not None and self.outbox not in connections:
            found.append(checks.Error(f"OUTBOX: there is no database {self.outbox!r}"))
        try:
            self.app  # noqa: B018  made, or refused, at the first look
        except ConfigError as error:
            found.append(checks.Error(f"{self.alias}: {error}"))
        return found


def execute(path: str, backend: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Run a task of Django, in a thread of a worker."""
    owner, running = task_backends[backend], current()
    task = import_string(path)
    result = owner._result(task, running.id, args, kwargs)  # noqa: SLF001  its own module
    now = timezone.now()
    _set(result, status=TaskResultStatus.RUNNING, started_at=now, last_attempted_at=now)
    result.worker_ids.extend([""] * running.attempt)
    close_old_connections()
    task_started.send(type(owner), task_result=result)
    try:
        context = (TaskContext(task_result=result),) if task.takes_context else ()
        value = normalize_json(task.call(*context, *args, **kwargs))
    except Exception as error:
        kind = f"{type(error).__module__}.{type(error).__qualname__}"
        _set(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
        result.errors.append(TaskError(exception_class_path=kind, traceback=str(error)))
        task_finished.send(type(owner), task_result=result)
        raise
    else:
        _set(
            result,
            status=TaskResultStatus.SUCCESSFUL,
            finished_at=timezone.now(),
            _return_value=value,
        )
        task_finished.send(type(owner), task_result=result)
        return value
    finally:
        close_old_connections()


def _set(result: Any, **values: Any) -> None:
    """Change a result, which is frozen for its users."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


def _moment(at_us: int) -> datetime | None:
    return datetime.fromtimestamp(at_us / 1_000_000, UTC) if at_us else None
