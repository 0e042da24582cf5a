"""Paces: how tasks that are submitted too close to each other are spread over time.

Owns what a user writes for `pace`, and how the key of a task follows from its arguments. What the
broker makes of it is not known here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any

from jackalope.client import option_checks
from jackalope.client.option_checks import Seconds, one_of
from jackalope.core.limits import NAME_CHARS_MAX
from jackalope.core.shapes.pace import Pace, Pacing, pace_problems
from jackalope.errors import ConfigError, kind_of
from jackalope.tasks.serialization import encode_value

#: What tells tasks of one name apart: names of arguments, or a text of your own.
Key = str | Iterable[str]

#: How many arguments a key may name.
_ARGUMENTS_MAX = 255


@dataclass(frozen=True, slots=True)
class Debounce:
    """Run when no more have come for a while, with the latest arguments."""

    quiet: Seconds  # for how long no more may come
    at_most: Seconds | None = None  # how long after the first it runs at the latest
    key: Key = ()  # which arguments tell tasks apart; none if all are of one kind


@dataclass(frozen=True, slots=True)
class Throttle:
    """Accept one in a span of time."""

    per: Seconds  # the span, from when one was accepted
    key: Key = ()  # which arguments tell tasks apart; none if all are of one kind
    # do not raise `Rejected` for what is too much, but return the handle of the one accepted
    drop: bool = False


@dataclass(frozen=True, slots=True)
class Replace:
    """Take the place of one that is queued, with the latest arguments."""

    key: Key = ()  # which arguments tell tasks apart; none if all are of one kind


@dataclass(frozen=True, slots=True)
class Paced:
    """A pace that was checked."""

    pace: Pace  # as the wire takes it, with a key of text
    by: tuple[str, ...] = ()  # the arguments of which the key is made, if it is

    def of_call(self, function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> Pace:
        """Return the pace of a call, with a key made of its arguments."""
        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.apply_defaults()
        named = {**bound.arguments, **bound.kwargs}
        return self.with_key([named.get(name) for name in self.by])

    def with_key(self, values: list[Any]) -> Pace:
        """Return the pace with a key made of these values."""
        key = encode_value("json", values, is_canonical=True).decode()
        if len(key) > NAME_CHARS_MAX:
            key = sha256(key.encode()).hexdigest()
        old = self.pace
        return Pace(old.how, key, old.span_us, old.at_most_us, old.drops)


def check_pace(value: object) -> Paced:
    """Return a pace as the wire takes it. Raises `ConfigError` with all that is wrong."""
    if not isinstance(value, Debounce | Throttle | Replace):
        raise ConfigError(f"must be a Debounce, Throttle or Replace, not {kind_of(value)}")
    problems: list[str] = []

    def checked(name: str, check: Callable[[Any], Any], given: object, otherwise: Any) -> Any:
        try:
            return one_of(name, check, given)
        except ConfigError as error:
            problems.append(str(error))
            return otherwise

    key = checked("key", _key, value.key, "")
    by, text = (key, "") if isinstance(key, tuple) else ((), key)
    if isinstance(value, Debounce):
        quiet_us = checked("quiet", _span_us, value.quiet, 1)
        at_most = value.at_most
        at_most_us = 0 if at_most is None else checked("at_most", _span_us, at_most, 0)
        pace = Pace(Pacing.DEBOUNCE, text, quiet_us, at_most_us)
    elif isinstance(value, Throttle):
        drops = checked("drop", option_checks.flag, value.drop, False)
        pace = Pace(Pacing.THROTTLE, text, checked("per", _span_us, value.per, 1), drops=drops)
    else:
        pace = Pace(Pacing.REPLACE, text)
    problems += [] if problems else pace_problems(pace)
    if problems:
        raise ConfigError("; ".join(problems))
    return Paced(pace, by)


def pace_conflicts(choices: Mapping[str, Any]) -> list[str]:
    """List the choices that cannot go with the pace."""
    pace = choices.get("pace")
    if pace is None:
        return []
    others = ["same"] if choices.get("same", "run") != "run" else []
    if not isinstance(pace, Throttle):
        others += [name for name in ("alias", "parent", "depends_on") if choices.get(name)]
    if isinstance(pace, Debounce):
        others += [name for name in ("delay", "run_at") if choices.get(name)]
    how = type(pace).__name__.lower()
    return [f"{name}: cannot go with {how}; choose one of them" for name in others]


def unknown_arguments(function: Callable[..., Any] | None, choices: Mapping[str, Any]) -> list[str]:
    """List the arguments in the key of a pace that a function does not have."""
    key = getattr(choices.get("pace"), "key", ())
    if isinstance(key, str) or not isinstance(key, Iterable):
        return []
    if function is None:
        return ["pace: key: must be text where no arguments are known"] if [*key] else []
    parameters = inspect.signature(function).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return []
    known = ", ".join(parameters) or "none"
    unknown = [name for name in key if name not in parameters]
    return [f"pace: key: no argument {name!r}; there are {known}" for name in unknown]


def _key(value: object) -> str | tuple[str, ...]:
    if isinstance(value, str):
        return option_checks.text(value)
    named = partial(option_checks.several, check=option_checks.name, what="names of arguments")
    return named(value, most=_ARGUMENTS_MAX)


def _span_us(value: object) -> int:
    span_us = option_checks.duration_us(value)
    if not span_us:
        raise ConfigError("must be more than 0")
    return span_us
