"""A survey of a code base that uses Celery: what of it becomes what, read from its source.

Owns the table of what maps to what. Reads files, and neither imports nor changes them, so that it
sees what is written and not what happens: a task that is called through another name is not found.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

#: How many files are read at most.
FILES_MAX = 20_000

_BY_HAND = "by hand: "


class Finding(msgspec.Struct, frozen=True):
    """One place, what it is, and what it becomes."""

    file: str
    line: int
    what: str
    becomes: str

    @property
    def is_by_hand(self) -> bool:
        """It has no counterpart that could be put in its place."""
        return self.becomes.startswith(_BY_HAND)


#: Options of a task's decorator.
_OPTIONS = {
    "name": "name=",
    "bind": "current() in place of self",
    "max_retries": "retries=",
    "default_retry_delay": "retry_delay=",
    "autoretry_for": "retry_on= (every exception is tried again unless that is said)",
    "dont_autoretry_for": "never_retry=",
    "retry_backoff": "retry_delay= and retry_factor=; waits grow by default",
    "retry_backoff_max": "retry_delay_max=",
    "retry_jitter": "retry_jitter of the queue's policy; on by default",
    "retry_kwargs": "retries=",
    "time_limit": "timeout=, with isolation='process' to be sure of it",
    "soft_time_limit": "soft_timeout=",
    "queue": "queue=",
    "priority": "priority=, 0 to 255, higher first",
    "expires": "expires=",
    "ignore_result": "retention of the queue's policy",
    "acks_late": "nothing: a task is done when it has ended",
    "acks_on_failure_or_timeout": "nothing: a failed task is tried again or dead",
    "reject_on_worker_lost": "nothing: on_lost of the queue's policy",
    "track_started": "nothing: states are exact",
    "serializer": "content=: msgpack, json or bytes; never pickle",
    "rate_limit": _BY_HAND + "a limit of a tag: `jackalope limits`",
    "base": _BY_HAND + "a Middleware, or Depends",
    "pydantic": "annotations: arguments are checked against them",
}

#: Options of `apply_async`.
_CALL_OPTIONS = {
    "countdown": "delay=",
    "eta": "run_at=",
    "expires": "expires=",
    "queue": "queue=",
    "priority": "priority=, 0 to 255, higher first",
    "task_id": "id=, a UUID",
    "headers": "headers=",
    "retry": "nothing: a client reconnects by itself",
    "link": "a Flow: task.step(...) >> next.step(...)",
    "link_error": "a task with depends_on=[handle] and on_dependency='run'",
    "serializer": "content= of the task",
    "args": "the arguments of submit",
    "kwargs": "the arguments of submit",
    "time_limit": "timeout=",
    "soft_time_limit": "soft_timeout= of the task",
    "ignore_result": "retention of the queue's policy",
    "routing_key": "queue= or key=",
    "exchange": _BY_HAND + "queue=",
}

#: Calls of methods.
_METHODS = {
    "delay": "submit(...): await it, or app.sync(task.submit(...))",
    "apply_async": "options(...).submit(...)",
    "apply": "a direct call: task(...)",
    "send_task": "app.submit(queue, payload, name=...)",
    "add_periodic_task": "@app.schedule above @app.task",
    "update_state": "current().progress(percent, note)",
    "revoke": "handle.cancel() or handle.kill()",
    "autodiscover_tasks": "nothing: import the modules where the application is made",
    "config_from_object": _BY_HAND + "arguments of Jackalope(...), options of `jackalope worker`",
    "s": "task.step(...) of a Flow",
    "si": "task.step(...).after(other) of a Flow",
    "signature": "task.step(...) of a Flow",
    "chunks": "submit_many, or helpers of one task",
    "starmap": "submit_many",
}

#: Names of Celery that are imported and called.
_CALLS = {
    "Celery": "Jackalope(address)",
    "chain": "Flow(name, a.step(...) >> b.step(...))",
    "group": "group(...) of a Flow, or submit_many and gather(handles)",
    "chord": "Flow(name, group(...) >> join.step())",
    "signature": "task.step(...) of a Flow",
    "crontab": "a cron expression: @app.schedule('0 3 * * *', tz=...)",
    "schedule": "@app.schedule(every=...)",
    "AsyncResult": "app.handle(id, returns=...)",
    "GroupResult": "a list of handles: gather, as_completed",
    "Retry": "RetryLater",
    "Ignore": _BY_HAND + "return, or raise Reject",
    "Reject": "Reject",
    "SoftTimeLimitExceeded": "SoftTimeout",
    "MaxRetriesExceededError": "a dead task: on_failure of a Middleware",
}

_DECORATORS = {"task", "shared_task", "periodic_task"}

#: Settings that are assigned as attributes or names.
_SETTINGS = {
    "beat_schedule": "@app.schedule above each task; the broker has the clock, there is no beat",
    "CELERY_BEAT_SCHEDULE": "@app.schedule above each task; the broker has the clock",
    "CELERYBEAT_SCHEDULE": "@app.schedule above each task; the broker has the clock",
    "task_routes": "queue= of each task",
    "CELERY_TASK_ROUTES": "queue= of each task",
    "broker_url": "the address of Jackalope(...)",
    "CELERY_BROKER_URL": "the address of Jackalope(...)",
    "result_backend": "nothing: the broker keeps results",
    "CELERY_RESULT_BACKEND": "nothing: the broker keeps results",
    "task_always_eager": "virtual_broker, or embedded(), in tests",
    "CELERY_TASK_ALWAYS_EAGER": "virtual_broker, or embedded(), in tests",
    "task_acks_late": "nothing: a task is done when it has ended",
    "worker_prefetch_multiplier": "--prefetch of `jackalope worker`; none by default",
}


def survey(folder: Path) -> tuple[list[Finding], list[str]]:
    """Return what a folder, or a file, has of Celery, and the files that could not be read."""
    findings: list[Finding] = []
    unread: list[str] = []
    for path in _files(folder):
        try:
            source = path.read_text(encoding="utf-8")
            tree = ast.parse(source)
        except (OSError, SyntaxError, ValueError) as error:
            unread.append(f"{path}: {error}")
            continue
        shown = str(path.relative_to(folder)) if folder.is_dir() else str(path)
        visitor = _Visitor(shown, uses_celery="celery" in source.lower())
        visitor.visit(tree)
        findings += visitor.findings
    return sorted(findings, key=lambda each: (each.file, each.line, each.what)), unread


def _files(folder: Path) -> Iterator[Path]:
    if folder.is_file():
        yield folder
        return
    count = 0
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith((".", "__pycache__", "node_modules"))
            and not (Path(where) / name / "pyvenv.cfg").exists()
        )
        for name in sorted(names):
            if name.endswith(".py"):
                count += 1
                if count > FILES_MAX:
                    return
                yield Path(where) / name


class _Visitor(ast.NodeVisitor):
    """Collects the findings of one file."""

    def __init__(self, file: str, *, uses_celery: bool) -> None:
        self._file = file
        self._uses_celery = uses_celery
        self._imported: dict[str, str] = {}
        self.findings: list[Finding] = []

    def _add(self, node: ast.AST, what: str, becomes: str) -> None:
        line = getattr(node, "lineno", 0)
        self.findings.append(Finding(self._file, line, what, becomes))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if module.partition(".")[0] != "celery":
            return
        for alias in node.names:
            self._imported[alias.asname or alias.name] = alias.name
            if module == "celery.signals":
                self._add(node, f"signal {alias.name}", "a hook of a Middleware, or @app.on_start")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for decorator in node.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            name = _last(call.func if call else decorator)
            if self._uses_celery and name in _DECORATORS:
                self._add(decorator, f"@{name} on {node.name}", "@app.task")
                for option in call.keywords if call else ():
                    becomes = _OPTIONS.get(option.arg or "", _BY_HAND + "see the documentation")
                    self._add(option, f"option {option.arg} of {node.name}", becomes)
        for child in node.body:
            self.visit(child)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        name = _last(node.func)
        if isinstance(node.func, ast.Name):
            known = self._imported.get(name)
            if known in _CALLS:
                self._add(node, f"{known}(...)", _CALLS[known])
        elif name == "retry" and _root(node.func) == "self":
            self._add(node, "self.retry(...)", "raise RetryLater(after=seconds)")
        elif name in _METHODS and self._is_of_celery(name):
            self._add(node, f".{name}(...)", _METHODS[name])
            if name == "apply_async":
                for option in node.keywords:
                    becomes = _CALL_OPTIONS.get(option.arg or "", _BY_HAND + "see Choices")
                    self._add(option, f"option {option.arg} of apply_async", becomes)

    def _is_of_celery(self, name: str) -> bool:
        """Names that others use as well count where the file speaks of Celery."""
        return name in ("delay", "apply_async") or self._uses_celery

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            name = _last(target)
            if name in _SETTINGS and (self._uses_celery or name.startswith("CELERY")):
                self._add(node, f"setting {name}", _SETTINGS[name])


def _last(node: ast.AST) -> str:
    """Return the last name of `a.b.c`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
