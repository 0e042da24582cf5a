"""Keys: named values of a task that are taken from its arguments, such as its user or its tenant.

Owns what a user writes for `keys`, and how the keys of a task follow from a call. What the broker
uses them for is not known here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from jackalope.client import option_checks
from jackalope.core.limits import KEY_NAME_CHARS_MAX, KEYS_PER_TASK_MAX
from jackalope.core.shapes.keys import key_problems, text_of
from jackalope.errors import ConfigError
from jackalope.tasks.references import Pending
from jackalope.tasks.serialization import to_plain


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys that were checked: those with a value, and the arguments that are the others."""

    values: Mapping[str, str]
    by: tuple[str, ...] = ()

    def of_call(
        self, function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]
    ) -> dict[str, str]:
        """Return the keys of a call; an argument that is None, or not known yet, gives none."""
        bound = inspect.signature(function).bind_partial(*args, **kwargs)
        bound.apply_defaults()
        named = {**bound.arguments, **bound.kwargs}
        found = {name: _text(_find(name, named)) for name in self.by}
        return {**{name: text for name, text in found.items() if text}, **self.values}


def check_keys(value: object) -> Keys:
    """Return keys as the wire takes them: a map of values, or the names of arguments.

    Raises:
        ConfigError: with all that is wrong.
    """
    if isinstance(value, Mapping):
        values = {name: _text(each) for name, each in value.items()}
        if not all(isinstance(name, str) for name in values):
            raise ConfigError("the names of keys must be text")
        problems = key_problems(values)
        if problems:
            raise ConfigError("; ".join(problem.removeprefix("keys: ") for problem in problems))
        return Keys({name: text for name, text in values.items() if text})
    named = (value,) if isinstance(value, str) else value
    name = partial(option_checks.text, chars_max=KEY_NAME_CHARS_MAX, chars_min=1)
    by = option_checks.several(named, check=name, what="names of arguments", most=KEYS_PER_TASK_MAX)
    return Keys({}, by)


def unknown_keys(
    function: Callable[..., Any] | None, names: Iterable[str], what: str = "keys"
) -> list[str]:
    """List the keys that name no argument of a function."""
    if function is None:
        return [f"{what}: give values, as a map, where no arguments are known"] if [*names] else []
    parameters = inspect.signature(function).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return []
    known = ", ".join(parameters) or "none"
    return [
        f"{what}: no argument {name!r}; there are {known}"
        for name in names
        if name not in parameters and name.partition(".")[0] not in parameters
    ]


def _find(name: str, named: Mapping[str, Any]) -> Any:
    """Return an argument, or what a dotted name finds in one."""
    if name in named:
        return named[name]
    first, _, rest = name.partition(".")
    value = named.get(first)
    for part in rest.split(".") if rest else ():
        value = value.get(part) if isinstance(value, Mapping) else getattr(value, part, None)
    return value


def _text(value: Any) -> str:
    if isinstance(value, Pending):
        return ""
    try:
        return text_of(msgspec.to_builtins(value, enc_hook=to_plain))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return ""
