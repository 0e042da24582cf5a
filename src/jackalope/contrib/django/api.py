"""Django's own tasks, or their backport: whichever is there."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

#: The package: `django.tasks` of Django 6, else `django_tasks`.
PACKAGE = "django.tasks" if find_spec("django.tasks") else "django_tasks"

_base: Any = import_module(f"{PACKAGE}.base")
_signals: Any = import_module(f"{PACKAGE}.signals")
_exceptions: Any = import_module(f"{PACKAGE}.exceptions")

BaseTaskBackend: Any = import_module(f"{PACKAGE}.backends.base").BaseTaskBackend
Task: Any = _base.Task
TaskContext: Any = _base.TaskContext
TaskError: Any = _base.TaskError
TaskResult: Any = _base.TaskResult
TaskResultStatus: Any = _base.TaskResultStatus
ResultDoesNotExist: Any = _exceptions.TaskResultDoesNotExist
task_enqueued: Any = _signals.task_enqueued
task_started: Any = _signals.task_started
task_finished: Any = _signals.task_finished
task_backends: Any = import_module(PACKAGE).task_backends
_JSON = "django.utils.json" if PACKAGE == "django.tasks" else "django_tasks.utils"
normalize_json: Any = import_module(_JSON).normalize_json
