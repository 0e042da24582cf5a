"""Limits: how many tasks with the same keys run at once, and how many start in a span of time.

Owns what a user writes for a limit, and the client's side of the commands about them. How a broker
counts is not known here. A part of `Jackalope`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import msgspec

from jackalope.client import option_checks
from jackalope.client.admin import Administration
from jackalope.client.option_checks import Seconds, one_of
from jackalope.core.durations import parse_duration
from jackalope.core.limits import LIMITS_PER_NAMESPACE_MAX
from jackalope.core.settings import change
from jackalope.core.shapes.limit import UNBOUNDED, LimitSettings, limit_problems
from jackalope.errors import ConfigError, kind_of
from jackalope.wire.views import KeyLimitView


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A bound on how many tasks run at once, on how many start in a span of time, or on both.

    @app.task(queue="mail", limits=[Limit(key="user", concurrency=2)])
    def send(user: int, text: str) -> None: ...
    """

    concurrency: int | None = None  # how many run at once; None for any number
    rate: int = 0  # how many start in each period, or how many tokens come; 0 for any number
    per: Seconds | str = 1  # the period of the rate: seconds, a timedelta, or a text such as "1m"
    # the keys by whose values tasks are counted apart: arguments of the task, or its `keys`. None
    # for one count of all.
    key: str | Iterable[str] | None = None
    burst: int = 0  # how many tokens are saved up at most; 0 for as many as the rate
    cost: int | str = 1  # how many tokens a task takes, or the key whose value that is
    # what happens to tasks while as many run as may: they wait, or what comes is killed, or takes
    # the place of the oldest that waits, or of the one that runs
    on_full: Literal["wait", "cancel_newest", "cancel_oldest", "cancel_running"] = "wait"
    name: str = ""  # what it is called; on a task, the name of the task and the keys if left out

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys by whose values tasks are counted apart."""
        return (self.key,) if isinstance(self.key, str) else tuple(self.key or ())

    def settings(self, *, queue: str = "", task: str = "") -> dict[str, Any]:
        """Return all settings, as a broker takes them, for the tasks of a queue or of a name.

        Raises:
            ConfigError: with all that is wrong.
        """
        by_key = isinstance(self.cost, str)
        one_of("name", option_checks.text, self.name)
        one_of("key", _keys, (self.key,) if isinstance(self.key, str) else self.key)
        if by_key:
            one_of("cost", _key, self.cost)
        wanted = {
            "queue": queue,
            "task": task,
            "keys": list(self.keys),
            "concurrency": UNBOUNDED if self.concurrency is None else self.concurrency,
            "rate": self.rate,
            "per_us": one_of("per", _period_us, self.per),
            "burst": self.burst,
            "cost": 1 if by_key else self.cost,
            "cost_key": self.cost if by_key else "",
            "on_full": self.on_full,
        }
        checked = change(LimitSettings(), wanted, "a limit")
        problems = (
            checked if isinstance(checked, list) else limit_problems(self.name or "?", checked)
        )
        if not problems and self.concurrency is None and not self.rate:
            problems = ["give concurrency, rate, or both"]
        if problems:
            raise ConfigError("; ".join(problems).replace("per_us:", "per:"))
        settings: dict[str, Any] = msgspec.to_builtins(checked)
        return settings

    def name_for(self, task: str) -> str:
        """Return what it is called on a task."""
        return self.name or ":".join((task, *self.keys))


def check_limits(value: object) -> tuple[Limit, ...]:
    """Return the limits of a task. Raises `ConfigError` with what is wrong."""
    several = (value,) if isinstance(value, Limit) else value
    return option_checks.several(several, _checked, "limits", LIMITS_PER_NAMESPACE_MAX)


def limits_of(task: str, limits: Iterable[Limit]) -> dict[str, dict[str, Any]]:
    """Return the limits of a task by name, as workers declare them.

    Raises:
        ConfigError: two of them have the same name.
    """
    named: dict[str, dict[str, Any]] = {}
    for limit in limits:
        name = limit.name_for(task)
        if name in named:
            raise ConfigError(f"limits: two are called {name}; give one a name=")
        named[name] = limit.settings(task=task)
    return named


def argument_keys(limits: Iterable[Limit]) -> tuple[str, ...]:
    """Return the keys that limits go by, each once."""
    costs = ((limit.cost,) if isinstance(limit.cost, str) else () for limit in limits)
    named = [name for limit in limits for name in limit.keys]
    return tuple(dict.fromkeys([*named, *(name for cost in costs for name in cost)]))


def _checked(value: object) -> Limit:
    if not isinstance(value, Limit):
        raise ConfigError(f"each must be a Limit, not {kind_of(value)}")
    value.settings()
    return value


_key = option_checks.name
_keys = partial(option_checks.several, check=_key, what="keys", most=100)


def _period_us(value: object) -> int:
    try:
        return parse_duration(value) if isinstance(value, str) else option_checks.duration_us(value)
    except ValueError as error:
        raise ConfigError(str(error)) from None


class Limiting(Administration):
    """Limits by key of a broker. Those of tags are `Administration.limits`."""

    # every limit of a task that was defined with `@app.task(limits=...)`, as workers declare them
    limited: dict[str, dict[str, Any]]

    async def key_limits(self) -> list[KeyLimitView]:
        """Return the limits by key of the namespace: how much is used, and when they let go."""
        return await self.query("key_limits", {}, list[KeyLimitView])

    async def declare_limit(
        self, name: str, limit: Limit, *, queue: str = "", task: str = ""
    ) -> None:
        """Create a limit, or replace the settings of the one of this name.

            await app.declare_limit("per-user", Limit(key="user", rate=100, per="1m"), queue="mail")

        Args:
            name: its name in the namespace.
            limit: what it allows.
            queue: only tasks of this queue; empty for all.
            task: only tasks of this name; empty for any.

        Raises:
            ConfigError: the limit cannot be; every problem is listed.
            Rejected: the broker does not accept it, or the API key does not permit it.
        """
        if not isinstance(limit, Limit):
            raise ConfigError(f"limit: must be a Limit, not {kind_of(limit)}")
        name = one_of("name", option_checks.name, name)
        settings = limit.settings(queue=queue, task=task)
        await self.manage("declare_limits", {"limits": {name: settings}})

    async def declare_limits(self) -> None:
        """Declare the limits of all tasks of the application, as its workers do when they start.

        Raises:
            Rejected: the broker does not accept one of them, or the API key does not permit it.
        """
        if self.limited:
            await self.manage("declare_limits", {"limits": self.limited})

    async def delete_limit(self, name: str) -> None:
        """Delete a limit by key; what waits for it alone can start. Repeating this is harmless."""
        await self.manage("delete_limit", {"name": one_of("name", option_checks.name, name)})
