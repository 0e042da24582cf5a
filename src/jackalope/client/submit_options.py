"""Submit options: how a task is to be submitted, as users write it and as the wire carries it.

Owns the options that `@app.task`, `Task.options` and `Jackalope.submit` take, and their translation
into the fields of a task. Durations are seconds or `timedelta`, moments are `datetime`s that know
their time zone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Literal, TypedDict, cast

import msgspec

from jackalope.client import option_checks
from jackalope.client.keys import Keys, check_keys, unknown_keys
from jackalope.client.needs import check_labels, check_needs, join_needs
from jackalope.client.option_checks import Seconds
from jackalope.client.paces import (
    Debounce,
    Paced,
    Replace,
    Throttle,
    check_pace,
    pace_conflicts,
    unknown_arguments,
)
from jackalope.core.durations import SECOND
from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.limits import (
    CALLBACK_URL_CHARS_MAX,
    CALLBACKS_MAX,
    COUNT_MAX,
    DEPENDENCIES_PER_TASK_MAX,
    KEY_NAME_CHARS_MAX,
    TAG_CHARS_MAX,
    TAGS_PER_TASK_MAX,
)
from jackalope.core.policy import DEFAULT_POLICY
from jackalope.core.shapes.callback import Callback
from jackalope.core.shapes.needs import Needs
from jackalope.core.shapes.request import Same, identity_of
from jackalope.core.task import (
    NO_OPTIONS,
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    OnDependency,
    Options,
    Retry,
    TaskSpec,
)
from jackalope.errors import ConfigError
from jackalope.task_ids import to_task_id

#: Stands for "as the application says" where None means "no limit".
UNSET = -1.0


class SubmitChoices(TypedDict, total=False):
    """What can be chosen for a submit. All of it may be left out."""

    priority: int  # 0 to 255, higher first; 150 if not chosen
    key: str  # only workers that serve this key of the queue get the task
    tags: Iterable[str]  # labels whose number in flight can be limited
    # values such as its user or tenant, by which limits and shares go: names of arguments that are
    # sent as keys, or a map of values
    keys: str | Iterable[str] | Mapping[str, Any]
    # what it takes of its worker while it runs, by name: numbers and sizes such as "8GiB" of
    # resources, and texts, or lists of texts of which one will do, that are the worker's labels
    needs: Mapping[str, int | float | str | Iterable[str]]
    prefer: Mapping[str, str | Iterable[str]]  # labels of workers that it goes to first
    # labels of workers that it goes to only if no other could ever run it
    avoid: Mapping[str, str | Iterable[str]]
    # an argument: the next task of the queue with the same value goes to the same worker, if that
    # has room
    sticky: str
    alias: str  # a name for the task, unique in the namespace while the task exists
    headers: Mapping[str, Any]  # your own data, handed to the worker untouched
    delay: Seconds  # do not start before this much time has passed
    run_at: datetime  # do not start before this moment
    expires: Seconds | datetime  # dead if not begun within this time, or by this moment
    timeout: Seconds  # how long an attempt may run
    retries: int  # how many failures are tried again, in place of the queue's retry settings
    retry_delay: Seconds  # wait before the first retry; 5 s if only other retry settings are chosen
    retry_factor: float  # each further wait is this many times longer; 2 likewise
    retry_delay_max: Seconds  # no wait is longer; 1 h likewise
    depends_on: Iterable[object]  # tasks that must end first: handles or ids
    # what to do when one of them does not succeed: `dead` or `run`
    on_dependency: Literal["dead", "run"]
    # the task that this one belongs to: killing it kills this one. Inside a running task,
    # `parent=current()`.
    parent: object
    held: bool  # wait to be played
    # what to do if another task asks for the same: `run` each, share one that is under way
    # (`unique`), keep the answer as well (`cached`), or run again (`refresh`)
    same: Literal["run", "unique", "cached", "refresh"]
    # the version of the code, a part of what a request asks for; if not chosen, a fingerprint of
    # the function
    version: str
    # what to do if many tasks of one kind are submitted: run one when no more come (`Debounce`),
    # accept one in a span of time (`Throttle`), or replace the one that is queued (`Replace`)
    pace: Debounce | Throttle | Replace
    # where its end is posted: a URL for every end, or `Callback(url, on=("dead",))`; or several
    callback: str | Callback | Iterable[str | Callback]
    # the task's id, to make a submit repeatable across processes. One is made if not chosen.
    id: object
    # when the queue is full or the broker overloaded, wait and submit again, rather than raise
    # `Rejected`
    wait_for_room: bool
    # how many seconds the broker's answer may take; None for as long as it takes
    submit_timeout: Seconds | None
    # how long `run` and `request` wait for the result; None, as if not chosen, for as long as it
    # takes
    result_timeout: Seconds | None


class Choices(SubmitChoices, total=False):
    """What can be chosen for a task."""

    queue: str  # where the task goes


@dataclass(frozen=True, slots=True)
class Plan:
    """Choices, checked and translated once, for any number of tasks."""

    queue: str
    name: str
    key: str
    priority: int
    options: Options | None  # the rare fields of the task, but for times that count from the submit
    delay_us: int  # added to the time of the submit
    expires_us: int  # the same
    fence: int  # proves the right of a running parent
    id: TaskId
    wait_for_room: bool
    submit_timeout_s: float | None
    result_timeout_s: float | None
    paced: Paced | None = None  # the pace, if its key follows from the arguments
    keys: Keys | None = None  # the keys, if some follow from the arguments
    sticky: Keys | None = None  # the argument that the task is sticky by

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

    def equip(
        self, spec: TaskSpec, function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]
    ) -> TaskSpec:
        """Give a task what follows from its arguments: its keys, and the key of its pace."""
        if self.paced is not None:
            pace = self.paced.of_call(function, args, kwargs)
            spec.options = msgspec.structs.replace(spec.options or NO_OPTIONS, pace=pace)
        return self.give_keys(spec, function, args, kwargs)

    def give_keys(
        self, spec: TaskSpec, function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]
    ) -> TaskSpec:
        """Give a task the keys, and what it is sticky by, that follow from its arguments."""
        if self.keys is not None and (keys := self.keys.of_call(function, args, kwargs)):
            spec.options = msgspec.structs.replace(spec.options or NO_OPTIONS, keys=keys)
        if self.sticky is not None:
            value = "/".join(self.sticky.of_call(function, args, kwargs).values())
            options = spec.options or NO_OPTIONS
            needs = msgspec.structs.replace(options.needs or Needs(), sticky=value)
            spec.options = msgspec.structs.replace(options, needs=needs)
        return spec

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
    choices: Choices,
    *,
    name: str = "",
    headers: Mapping[str, str] | None = None,
    function: Callable[..., Any] | None = None,
) -> Plan:
    """Check choices and translate them.

    Args:
        choices: what the user chose.
        name: the name of the task's function.
        headers: what the library adds to the headers.
        function: the task's function, of whose arguments the key of a pace may be made.

    Raises:
        ConfigError: some choice cannot be used; every problem is listed.
    """
    further = unknown_arguments(function, choices)
    given = check_choices(choices, _CHECKS, further)
    keys: Keys = given.get("keys", Keys({}))
    sticky: Keys | None = given.get("sticky")
    unknown = unknown_keys(function, sticky.by, "sticky") if sticky is not None else []
    if unknown := unknown_keys(function, keys.by) + unknown:
        raise ConfigError("; ".join(unknown))
    expires = given.get("expires", 0)
    is_moment = isinstance(choices.get("expires"), datetime)
    paced: Paced | None = given.get("pace")
    options = Options(
        alias=given.get("alias", ""),
        headers={**given.get("headers", {}), **(headers or {})},
        tags=given.get("tags", ()),
        run_at_us=given.get("run_at", 0),
        expires_at_us=expires if is_moment else 0,
        timeout_us=given.get("timeout", 0),
        retry=_retry(given),
        depends_on=given.get("depends_on", ()),
        on_dependency=OnDependency(given.get("on_dependency", "dead")),
        parent=given.get("parent", NO_TASK),
        held=given.get("held", False),
        same=Same(given["same"]) if "same" in given else None,
        version=given.get("version", ""),
        pace=None if paced is None else paced.pace,
        callbacks=given.get("callback", ()),
        keys=dict(keys.values),
        needs=join_needs(given),
    )
    return Plan(
        queue=given.get("queue", "default"),
        name=name,
        key=given.get("key", ""),
        priority=given.get("priority", PRIORITY_DEFAULT),
        options=None if options == NO_OPTIONS else options,
        delay_us=given.get("delay", 0),
        expires_us=0 if is_moment else expires,
        fence=_fence(choices.get("parent")),
        id=given.get("id", NO_TASK),
        wait_for_room=given.get("wait_for_room", False),
        submit_timeout_s=given.get("submit_timeout", UNSET),
        result_timeout_s=given.get("result_timeout"),
        paced=paced if paced is not None and paced.by else None,
        keys=keys if keys.by else None,
        sticky=sticky,
    )


#: Checks a value, and returns it as the wire takes it.
Check = Callable[[Any], Any]


def check_choices(
    choices: Mapping[str, Any], known: Mapping[str, Check], further: Iterable[str] = ()
) -> dict[str, Any]:
    """Check choices one by one, and return them as the wire takes them.

    Raises:
        ConfigError: some choice cannot be used; every problem is listed, with those that were
            found before.
    """
    given, problems = {}, [*further]
    for name, value in choices.items():
        check = known.get(name)
        if check is None:
            problems.append(f"{name}: unknown; there are {', '.join(sorted(known))}")
            continue
        try:
            given[name] = check(value)
        except ConfigError as error:
            problems.append(f"{name}: {error}")
    if "delay" in choices and "run_at" in choices:
        problems.append("delay and run_at: choose one of them")
    problems += pace_conflicts(choices)
    if problems:
        raise ConfigError("; ".join(problems))
    return given


def keep_choices(choices: Choices) -> Choices:
    """Return choices that can be read more than once, whatever they were given as."""
    kept = cast("dict[str, Any]", {**choices})
    for name in ("tags", "depends_on", "callback", "keys"):
        if isinstance(kept.get(name), Iterator):
            kept[name] = tuple(kept[name])
    return cast("Choices", kept)


def _tag(value: object) -> str:
    tag = option_checks.text(value, TAG_CHARS_MAX, chars_min=1)
    if "\0" in tag:
        raise ConfigError("a tag must not contain NUL")
    return tag


def _sticky(value: object) -> Keys:
    return check_keys((option_checks.text(value, KEY_NAME_CHARS_MAX, chars_min=1),))


def _run_at(value: object) -> int:
    if not isinstance(value, datetime):
        raise ConfigError("a datetime; for a time from now use delay")
    return option_checks.moment_us(value)


def _expires(value: object) -> int:
    is_moment = isinstance(value, datetime)
    return option_checks.moment_us(value) if is_moment else option_checks.duration_us(value)


def _time_s(value: object) -> float | None:
    return None if value is None else option_checks.duration_us(value) / SECOND


def _callbacks(value: object) -> tuple[Callback, ...]:
    several = (value,) if isinstance(value, str | Callback) else value
    return option_checks.several(several, check=_callback, what="URLs", most=CALLBACKS_MAX)


def _callback(value: object) -> Callback:
    if isinstance(value, Callback):
        try:
            return msgspec.convert(msgspec.to_builtins(value), Callback)
        except msgspec.ValidationError as error:
            raise ConfigError(str(error)) from None
    return Callback(option_checks.text(value, CALLBACK_URL_CHARS_MAX, chars_min=1))


#: Every option of a submit, and what it may be.
_CHECKS: dict[str, Check] = {
    "priority": partial(option_checks.whole, least=0, most=PRIORITY_MAX),
    "queue": option_checks.name,
    "key": option_checks.text,
    "tags": partial(option_checks.several, check=_tag, what="strings", most=TAGS_PER_TASK_MAX),
    "keys": check_keys,
    "needs": check_needs,
    "prefer": check_labels,
    "avoid": check_labels,
    "sticky": _sticky,
    "alias": option_checks.text,
    "headers": option_checks.headers,
    "delay": option_checks.duration_us,
    "run_at": _run_at,
    "expires": _expires,
    "timeout": option_checks.duration_us,
    "retries": partial(option_checks.whole, least=0, most=COUNT_MAX),
    "retry_delay": option_checks.duration_us,
    "retry_factor": partial(option_checks.number, least=1.0, most=100.0),
    "retry_delay_max": option_checks.duration_us,
    "depends_on": partial(
        option_checks.several, check=to_task_id, what="tasks", most=DEPENDENCIES_PER_TASK_MAX
    ),
    "on_dependency": partial(option_checks.word, words=tuple(OnDependency)),
    "parent": option_checks.task,
    "held": option_checks.flag,
    "same": partial(option_checks.word, words=tuple(Same)),
    "version": option_checks.text,
    "pace": check_pace,
    "callback": _callbacks,
    "id": option_checks.task,
    "wait_for_room": option_checks.flag,
    "submit_timeout": _time_s,
    "result_timeout": _time_s,
}


def _retry(given: Mapping[str, Any]) -> Retry | None:
    if not any(name.startswith("retr") for name in given):
        return None
    default = DEFAULT_POLICY
    return Retry(
        retries=given.get("retries", default.retries),
        base_us=given.get("retry_delay", default.retry_base_us),
        factor=given.get("retry_factor", default.retry_factor),
        cap_us=given.get("retry_delay_max", default.retry_cap_us),
    )


def _fence(parent: object) -> int:
    """Return the fence of a parent that is running here; another parent proves nothing."""
    fence = getattr(parent, "fence", 0)
    return fence if isinstance(fence, int) and 0 <= fence < 2**63 else 0
