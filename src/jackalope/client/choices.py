"""Choices: how a task is to be submitted, in the words of a user, and in those of the wire.

Owns the options that `@app.task`, `Task.options` and `Jackalope.submit` take, and their translation
into the fields of a task. Durations are seconds or `timedelta`, moments are `datetime`s that know
their time zone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, cast

import msgspec

from jackalope.core.durations import SECOND
from jackalope.core.identity import Same, identity_of
from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.policy import DEFAULT_POLICY
from jackalope.core.task import (
    NO_OPTIONS,
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    OnDependency,
    Options,
    Retry,
    TaskSpec,
)
from jackalope.link.errors import ConfigError
from jackalope.link.ids import to_task_id

Seconds = float | timedelta

#: Stands for "as the application says" where None means "no limit".
UNSET = -1.0


class SubmitChoices(TypedDict, total=False):
    """What can be chosen for a submit. All of it may be left out.

    Attributes:
        priority: 0 to 255, higher first; 150 if not chosen.
        key: only workers that serve this key of the queue get the task.
        tags: labels whose number in flight can be limited.
        alias: a name for the task, unique in the namespace while the task exists.
        headers: your own data, handed to the worker untouched.
        delay: do not start before this much time has passed.
        run_at: do not start before this moment.
        expires: dead if not begun within this time, or by this moment.
        timeout: how long an attempt may run.
        retries: how many failures are tried again, in place of the queue's retry settings.
        retry_delay: wait before the first retry; 5 s if only other retry settings are chosen.
        retry_factor: each further wait is this many times longer; 2 likewise.
        retry_delay_max: no wait is longer; 1 h likewise.
        depends_on: tasks that must end first: handles or ids.
        on_dependency: what to do when one of them does not succeed: `dead` or `run`.
        parent: the task that this one belongs to: killing it kills this one. Inside a running
            task, `parent=current()`.
        held: wait to be played.
        same: what to do if another task asks for the same: `run` each, share one that is under way
            (`unique`), keep the answer as well (`cached`), or run again (`refresh`).
        version: the version of the code, a part of what a request asks for; if not chosen, a
            fingerprint of the function.
        id: the task's id, to make a submit repeatable across processes. One is made if not chosen.
        wait_for_room: when the queue is full or the broker overloaded, wait and submit again,
            rather than raise `Rejected`.
        submit_timeout: how many seconds the broker's answer may take; None for as long as it takes.
    """

    priority: int
    key: str
    tags: Iterable[str]
    alias: str
    headers: Mapping[str, Any]
    delay: Seconds
    run_at: datetime
    expires: Seconds | datetime
    timeout: Seconds
    retries: int
    retry_delay: Seconds
    retry_factor: float
    retry_delay_max: Seconds
    depends_on: Iterable[object]
    on_dependency: Literal["dead", "run"]
    parent: object
    held: bool
    same: Literal["run", "unique", "cached", "refresh"]
    version: str
    id: object
    wait_for_room: bool
    submit_timeout: float | None


class Choices(SubmitChoices, total=False):
    """What can be chosen for a task.

    Attributes:
        queue: where the task goes.
    """

    queue: str


NAMES = frozenset(Choices.__annotations__)


@dataclass(frozen=True, slots=True)
class Plan:
    """Choices, checked and translated once, for any number of tasks.

    Attributes:
        options: the rare fields of the task, but for times that count from the submit.
        delay_us: added to the time of the submit.
        expires_us: the same.
        fence: proves the right of a running parent.
    """

    queue: str
    name: str
    key: str
    priority: int
    options: Options | None
    delay_us: int
    expires_us: int
    fence: int
    id: TaskId
    wait_for_room: bool
    submit_timeout_s: float | None

    def options_now(self) -> Options | None:
        """Return the rare fields of a task that is submitted now."""
        if not self.delay_us and not self.expires_us:
            return self.options
        now_us = time.time_ns() // 1_000
        options = self.options or NO_OPTIONS
        if self.delay_us:
            options = msgspec.structs.replace(options, run_at_us=now_us + self.delay_us)
        if self.expires_us:
            options = msgspec.structs.replace(options, expires_at_us=now_us + self.expires_us)
        return options

    def spec(self, task_id: TaskId, payload: bytes) -> TaskSpec:
        """Make a task of this plan."""
        options = self.options_now()
        return TaskSpec(task_id, self.queue, self.name, self.key, self.priority, payload, options)

    @property
    def is_request(self) -> bool:
        """Tell whether tasks of this plan say that they are requests."""
        return self.options is not None and self.options.same not in (None, Same.RUN)

    def request(self, task_id: TaskId, payload: bytes, version: str) -> TaskSpec:
        """Make a request of this plan: cached, unless it says otherwise.

        Args:
            task_id: the task's id.
            payload: the arguments, in their canonical encoding.
            version: the version of the code, if the plan has none.
        """
        options = self.options_now() or NO_OPTIONS
        same, version = options.same or Same.CACHED, options.version or version
        identity = b""
        if same is not Same.RUN:
            identity = identity_of(self.queue, self.name, self.key, version, payload)
        options = msgspec.structs.replace(options, same=same, version=version, identity=identity)
        return TaskSpec(task_id, self.queue, self.name, self.key, self.priority, payload, options)


def make_plan(
    choices: Choices, *, name: str = "", headers: Mapping[str, str] | None = None
) -> Plan:
    """Check choices and translate them.

    Args:
        choices: what the user chose.
        name: the name of the task's function.
        headers: what the library adds to the headers.

    Raises:
        ConfigError: some choice cannot be used; every problem is listed.
    """
    problems = [
        f"{unknown}: unknown; there are {', '.join(sorted(NAMES))}"
        for unknown in sorted(set(choices) - NAMES)
    ]
    problems += _problems(choices)
    if problems:
        raise ConfigError("; ".join(problems))
    expires = choices.get("expires", 0)
    options = Options(
        alias=choices.get("alias", ""),
        headers={**(choices.get("headers") or {}), **(headers or {})},
        tags=tuple(choices.get("tags") or ()),
        run_at_us=_moment_us(choices["run_at"]) if "run_at" in choices else 0,
        expires_at_us=_moment_us(expires) if isinstance(expires, datetime) else 0,
        timeout_us=to_us(choices.get("timeout", 0)),
        retry=_retry(choices),
        depends_on=tuple(to_task_id(task) for task in choices.get("depends_on") or ()),
        on_dependency=OnDependency(choices.get("on_dependency", "dead")),
        parent=to_task_id(choices["parent"]) if choices.get("parent") else NO_TASK,
        held=choices.get("held", False),
        same=Same(choices["same"]) if choices.get("same") else None,
        version=choices.get("version", ""),
    )
    return Plan(
        queue=choices.get("queue", "default"),
        name=name,
        key=choices.get("key", ""),
        priority=choices.get("priority", PRIORITY_DEFAULT),
        options=None if options == NO_OPTIONS else options,
        delay_us=to_us(choices.get("delay", 0)),
        expires_us=0 if isinstance(expires, datetime) else to_us(expires),
        fence=_fence(choices.get("parent")),
        id=to_task_id(choices["id"]) if choices.get("id") else NO_TASK,
        wait_for_room=choices.get("wait_for_room", False),
        submit_timeout_s=choices.get("submit_timeout", UNSET),
    )


def to_us(duration: Seconds) -> int:
    """Turn a duration into microseconds."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    return round(seconds * SECOND)


#: The choices that are one of a few words.
_WORDS: dict[str, tuple[str, ...]] = {"on_dependency": ("dead", "run"), "same": tuple(Same)}


def _problems(choices: Choices) -> list[str]:
    """List what the translation cannot express. The broker checks the rest."""
    problems = []
    if "delay" in choices and "run_at" in choices:
        problems.append("delay and run_at: choose one of them")
    values = cast("Mapping[str, Any]", choices)
    for name in ("run_at", "expires"):
        value = values.get(name)
        if isinstance(value, datetime) and value.tzinfo is None:
            problems.append(f"{name}: {value} does not say its time zone; use datetime.now(UTC)")
    if "run_at" in choices and not isinstance(values["run_at"], datetime):
        problems.append("run_at: a datetime; for a time from now use delay")
    for name in ("delay", "expires", "timeout", "retry_delay", "retry_delay_max"):
        value = values.get(name, 0)
        if not isinstance(value, datetime) and to_us(value) < 0:
            problems.append(f"{name}: must not be negative, got {value}")
    if not 0 <= choices.get("priority", 0) <= PRIORITY_MAX:
        problems.append(f"priority: 0 to {PRIORITY_MAX}, got {choices['priority']}")
    if isinstance(choices.get("tags"), str):
        problems.append("tags: several strings, not one")
    problems += [
        f"{name}: {' or '.join(words)}, not {values[name]!r}"
        for name, words in _WORDS.items()
        if name in values and values[name] not in words
    ]
    return problems


def _retry(choices: Choices) -> Retry | None:
    if not any(name.startswith("retr") for name in choices):
        return None
    default = DEFAULT_POLICY
    return Retry(
        retries=choices.get("retries", default.retries),
        base_us=to_us(choices.get("retry_delay", default.retry_base_us / SECOND)),
        factor=choices.get("retry_factor", default.retry_factor),
        cap_us=to_us(choices.get("retry_delay_max", default.retry_cap_us / SECOND)),
    )


def _fence(parent: object) -> int:
    """Return the fence of a parent that is running here; another parent proves nothing."""
    fence = getattr(parent, "fence", 0)
    return fence if isinstance(fence, int) else 0


def _moment_us(moment: datetime) -> int:
    return round(moment.timestamp() * SECOND)
