"""Middleware: code around every submit and every attempt of an application.

Owns the hooks, their order, and what happens when one of them fails. Sentry, sessions of databases
and tenants are typical uses. Runs wherever the task runs: on the loop, in a thread, in a process of
its own, or under a virtual broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import msgspec

from jackalope.core.ids import id_text
from jackalope.core.task import NO_OPTIONS, TaskSpec
from jackalope.tasks.dependencies import (
    Dependency,
    Overrides,
    Section,
    Wraps,
    run_section,
    with_dependencies,
)

if TYPE_CHECKING:
    from jackalope.tasks.context import Running


class Submission:
    """A task that is about to be submitted, as a hook sees it."""

    __slots__ = ("_spec", "headers")

    def __init__(self, spec: TaskSpec) -> None:
        self._spec = spec
        #: what travels with the task, and what `current().headers` shows; may be changed
        self.headers: dict[str, Any] = dict((spec.options or NO_OPTIONS).headers)

    @property
    def id(self) -> str:
        """The id that the task will have."""
        return id_text(self._spec.id)

    @property
    def name(self) -> str:
        """The name of its function."""
        return self._spec.name

    @property
    def queue(self) -> str:
        """The queue that it goes to."""
        return self._spec.queue

    @property
    def key(self) -> str:
        """The key that it is for."""
        return self._spec.key

    @property
    def priority(self) -> int:
        """Its priority."""
        return self._spec.priority

    def apply(self) -> None:
        """Let the task have the headers as they are now."""
        options = self._spec.options or NO_OPTIONS
        if self.headers != options.headers:
            self._spec.options = msgspec.structs.replace(options, headers=self.headers)


class Middleware:
    """Hooks around submits and attempts. Override those you need; each may be `async`.

        class Tenancy(Middleware):
            def around_submit(self, submission):
                submission.headers["tenant"] = tenant.get()

            def around_run(self, task):
                tenant.set(task.headers["tenant"])

    The first one that was added is the outermost. A plain hook of a coroutine runs on its loop, so
    that it must not block; a coroutine as the hook of a plain function runs on a loop of its own.
    """

    def around_submit(self, submission: Submission) -> Any:
        """Run before a task is submitted, and after `yield`, if there is one, when it is accepted.

        What the broker refuses is raised at the `yield`. In a bulk submit the second half of every
        task runs when all are accepted.
        """

    def around_run(self, task: Running) -> Any:
        """Run before an attempt, and after `yield`, if there is one, when it has ended.

        What the task raised is raised at the `yield`, and so is what stops it from outside. Raising
        something else there replaces the failure; swallowing it changes nothing.
        """

    def on_success(self, task: Running, result: Any) -> Any:
        """Run when the function has returned. What this raises is a failure of the attempt."""

    def on_failure(self, task: Running, error: Exception) -> Any:
        """Run when an attempt has failed, and the task is not tried again."""

    def on_retry(self, task: Running, error: Exception) -> Any:
        """Run when an attempt has failed, and the task is tried again."""


def overriding(middleware: Iterable[Middleware], name: str) -> list[Callable[..., Any]]:
    """Return the hooks of one name that do something."""
    base = getattr(Middleware, name)
    return [
        getattr(each, name)
        for each in middleware
        if getattr(type(each), name, base) is not base or name in vars(each)
    ]


class HookedRun:
    """One attempt with the hooks around it."""

    def __init__(
        self,
        middleware: Sequence[Middleware],
        dependencies: Mapping[str, Dependency],
        overrides: Overrides,
        *,
        task: Running,
        is_retried: Callable[[Exception], bool],
        is_async: bool,
    ) -> None:
        self._middleware = middleware
        self._dependencies = dependencies
        self._overrides = overrides
        self._task = task
        self._is_retried = is_retried
        self._is_async = is_async
        self._section = Section(is_async=is_async)

    def run(self, call: Callable[..., Any]) -> Any:
        """Call the function, which takes its dependencies by name; a coroutine if it is async."""
        return run_section(self._run(call), is_async=self._is_async)

    async def _run(self, call: Callable[..., Any]) -> Any:
        section = self._section
        wraps, value, error = Wraps(section), None, None
        try:
            try:
                for hook in overriding(self._middleware, "around_run"):
                    await wraps.enter(hook(self._task))
                value = await with_dependencies(
                    section, call, self._dependencies, self._overrides, is_async=self._is_async
                )
                for hook in overriding(self._middleware, "on_success"):
                    await section.call(hook, self._task, value)
            except BaseException as raised:  # noqa: BLE001  raised again after the hooks
                error = raised
                if isinstance(raised, Exception):
                    await self._tell(raised)
            error = await wraps.exit(error)
        finally:
            section.close()
        if error is not None:
            raise error
        return value

    async def _tell(self, error: Exception) -> None:
        """Run the hooks of a failure. One that fails itself is logged, and changes nothing."""
        name = "on_retry" if self._is_retried(error) else "on_failure"
        for hook in overriding(self._middleware, name):
            try:
                await self._section.call(hook, self._task, error)
            except Exception:
                self._task.log.exception("a hook failed", hook=name)


class HookedSubmit:
    """One submit, or a bulk of them, with the hooks around it: for `async with`."""

    def __init__(
        self,
        middleware: Sequence[Middleware],
        check: Callable[[object], dict[str, Any]],
        *,
        is_async: bool = True,
    ) -> None:
        self._hooks = overriding(middleware, "around_submit")
        self._check = check
        self._wraps = Wraps(Section(is_async=is_async))

    async def begin(self, spec: TaskSpec) -> None:
        """Run the first half of the hooks of a task, and let it have the headers that they set."""
        submission = Submission(spec)
        for hook in self._hooks:
            await self._wraps.enter(hook(submission))
        submission.headers = self._check(submission.headers)
        submission.apply()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        other = await self._wraps.exit(error)
        if other is not None and other is not error:
            raise other
