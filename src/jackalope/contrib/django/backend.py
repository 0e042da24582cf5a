"""The task backend: Django's tasks as tasks of a broker.

Owns how one is told as the other: priority, deferral, states, errors. A task of Django travels with
its dotted path, so that a worker runs whatever can be imported.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cached_property
from threading import Lock
from traceback import format_exception
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
from jackalope.errors import ConfigError, JackalopeError, Rejected, TaskFailed
from jackalope.task_ids import to_task_id
from jackalope.tasks.context import current
from jackalope.wire.views import HistoryEntryView, TaskView

#: What tasks of Django are called at the broker.
NAME = "django.task"

#: Headers of a task, for what of its choices the broker has no use, or may change.
PRIORITY_HEADER = "django.priority"
RUN_AFTER_HEADER = "django.run_after"

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

#: The applications of this process, by their options. Django makes a backend for each thread, and
#: for each request where there is a loop; they share a connection.
_apps: dict[tuple[Any, ...], Jackalope] = {}
_apps_lock = Lock()

#: The class of errors that are no class of Python.
_FAILED = f"{TaskFailed.__module__}.{TaskFailed.__qualname__}"

#: What this process is called as a worker, if it is one.
_worker_name = ""


def serve_as(name: str) -> None:
    """Say what this process is called as a worker, for the results of the tasks that it runs."""
    global _worker_name  # noqa: PLW0603  one worker is one process
    _worker_name = name


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
        token, retries = self.options.get("TOKEN"), self.options.get("RETRIES", 0)
        options = (address, token, retries, self.options.get("TIMEOUT", 0))
        with _apps_lock:
            if options not in _apps:
                app = Jackalope(address, token=token)
                app.task(name=NAME, content="json", retries=retries, timeout=options[-1])(execute)
                _apps[options] = app
            return _apps[options]

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
        headers: dict[str, Any] = {PRIORITY_HEADER: task.priority}
        choices: dict[str, Any] = {
            "queue": task.queue_name,
            "priority": PRIORITY_DEFAULT + task.priority,
            "tags": [task.module_path[-100:]],
            "headers": headers,
        }
        if task.run_after is not None:
            moment = task.run_after
            choices["run_at"] = moment if timezone.is_aware(moment) else timezone.make_aware(moment)
            headers[RUN_AFTER_HEADER] = moment.isoformat()
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
            view, history = self.app.sync(self._find(result_id))
        except (Rejected, ConfigError) as error:
            return self._unsent(result_id, error)
        return self._from_view(view, history)

    async def aget_result(self, result_id: str) -> Any:
        """Do the same without blocking the loop."""
        try:
            view, history = await self._find(result_id)
        except (Rejected, ConfigError) as error:
            return await sync_to_async(self._unsent, thread_sensitive=True)(result_id, error)
        return self._from_view(view, history)

    async def _find(self, result_id: str) -> tuple[TaskView, list[HistoryEntryView]]:
        task_id = to_task_id(result_id)
        view = await self.app.find(task_id, with_bodies=True)
        if view.name != NAME:
            raise ConfigError(f"{result_id} is no task of Django")
        return view, await self.app.handle(task_id).history()

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
                headers = spec.options.headers if spec.options else {}
                return self._from_call(spec.id, spec.queue, headers, spec.payload)
        raise ResultDoesNotExist(result_id)

    def _from_call(self, task_id: bytes, queue: str, headers: dict[str, Any], payload: Any) -> Any:
        (path, _, args, kwargs), _ = self.app.functions[NAME].arguments(payload)
        return self._result(self.task_of(path, queue, headers), task_id, args, kwargs)

    def task_of(self, path: str, queue: str, headers: dict[str, Any]) -> Any:
        """Return a task as it was enqueued: with the choices of that time."""
        task, run_after = import_string(path), headers.get(RUN_AFTER_HEADER)
        return task.using(
            backend=self.alias,
            queue_name=queue,
            priority=headers.get(PRIORITY_HEADER),
            run_after=datetime.fromisoformat(run_after) if run_after else None,
        )

    def _from_view(self, view: TaskView, history: list[HistoryEntryView]) -> Any:
        result = self._from_call(view.id, view.queue, view.headers, view.payload or b"")
        status = _STATUSES.get(view.state, TaskResultStatus.READY)
        starts = [entry for entry in history if entry.what == "start"]
        first, last = (starts[0].at_us, starts[-1].at_us) if starts else (view.started_us,) * 2
        _set(
            result,
            status=status,
            enqueued_at=_moment(view.created_us),
            started_at=_moment(first),
            last_attempted_at=_moment(last),
            finished_at=_moment(view.ended_us),
            worker_ids=[entry.by for entry in starts],
            errors=_errors(view, history),
        )
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
    task = owner.task_of(path, running.queue, running.headers)
    result = owner._result(task, running.id, args, kwargs)  # noqa: SLF001  its own module
    now = timezone.now()
    _set(result, status=TaskResultStatus.RUNNING, started_at=now, last_attempted_at=now)
    # Who ran earlier attempts is known to the broker alone.
    result.worker_ids.extend([""] * (running.attempt - 1) + [_worker_name])
    close_old_connections()
    task_started.send(type(owner), task_result=result)
    try:
        context = (TaskContext(task_result=result),) if task.takes_context else ()
        value = normalize_json(task.call(*context, *args, **kwargs))
    except (Exception, SystemExit) as error:
        kind = f"{type(error).__module__}.{type(error).__qualname__}"
        trace = "".join(format_exception(error))
        _set(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
        result.errors.append(TaskError(exception_class_path=kind, traceback=trace))
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


def _errors(view: TaskView, history: list[HistoryEntryView]) -> list[Any]:
    """Return the error of each attempt that failed; of the last one with its traceback."""
    entries = [entry.detail for entry in history if entry.what == "fail"]
    found = [(detail.partition(": ")[0], detail) for detail in entries]
    if view.error is not None:
        if found and found[-1][0] == view.error.type:
            found.pop()
        found.append((view.error.type, view.error.trace or view.error.message))
    return [TaskError(exception_class_path=_path(kind), traceback=text) for kind, text in found]


def _path(kind: str) -> str:
    """Return where the class of an error is. What is no class is a word of the broker."""
    if "." in kind:
        return kind
    return f"builtins.{kind}" if hasattr(builtins, kind) else _FAILED


def _set(result: Any, **values: Any) -> None:
    """Change a result, which is frozen for its users."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


def _moment(at_us: int) -> datetime | None:
    return datetime.fromtimestamp(at_us / 1_000_000, UTC) if at_us else None
