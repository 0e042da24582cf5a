"""JSON Schema: whether a value is what a schema describes.

Owns the part of JSON Schema that follows from Python's annotations. What it does not know it lets
pass, as it does patterns, which could take for ever: a value that passes may still be refused by
the worker, but one that does not pass would certainly be.

A schema comes from a worker, so it is not trusted: it takes a bounded number of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

_STEPS_MAX = 10_000
_DEPTH_MAX = 150
_SHOWN_CHARS = 40

_REF = "#/$defs/"


def problem_of(
    value: object,
    schema: Mapping[str, Any],
    definitions: Mapping[str, Any],
    is_open: Callable[[object], bool] = lambda _: False,
) -> str:
    """Return what is wrong with a value; empty if it fits.

    Args:
        value: as it was decoded, from JSON or MessagePack.
        schema: what it must be.
        definitions: what the schema refers to.
        is_open: whether a value stands for another, which is not known yet.
    """
    try:
        return _Check(definitions, is_open).problem(value, schema, "")
    except _Exhausted:
        return ""


class _Exhausted(Exception):
    """The schema takes too many steps to be checked."""


class _Check:
    def __init__(self, definitions: Mapping[str, Any], is_open: Callable[[object], bool]) -> None:
        self._definitions = definitions
        self._is_open = is_open
        self._steps = self._depth = 0

    def problem(self, value: object, schema: object, path: str) -> str:
        self._steps += 1
        self._depth += 1
        if self._steps > _STEPS_MAX or self._depth > _DEPTH_MAX:
            raise _Exhausted
        found = self._problem(value, schema, path)
        self._depth -= 1
        return found

    def _problem(self, value: object, schema: object, path: str) -> str:
        if schema is False:
            return _at(path, "nothing may be given here")
        if not isinstance(schema, Mapping) or not schema or self._is_open(value):
            return ""
        ref = schema.get("$ref")
        if isinstance(ref, str):
            return self.problem(value, self._definitions.get(ref.removeprefix(_REF)), path)
        for key in ("anyOf", "oneOf"):
            if isinstance(choices := schema.get(key), list | tuple):
                return self._problem_of_choices(value, choices, path)
        return (
            _problem_of_type(value, schema, path)
            or _problem_of_choice(value, schema, path)
            or _problem_of_bounds(value, schema, path)
            or self._problem_inside(value, schema, path)
        )

    def _problem_of_choices(self, value: object, choices: Any, path: str) -> str:
        problems = []
        for choice in choices:
            problem = self.problem(value, choice, path)
            if not problem:
                return ""
            problems.append(problem)
        kinds = [_named_type(choice) for choice in choices]
        if len(problems) == 1:
            return problems[0]
        return _at(path, f"expected {' or '.join(dict.fromkeys(kinds))}, got {_shown(value)}")

    def _problem_inside(self, value: object, schema: Mapping[str, Any], path: str) -> str:
        if isinstance(value, dict):
            return self._problem_of_map(value, schema, path)
        if isinstance(value, list | tuple):
            return self._problem_of_list(value, schema, path)
        return ""

    def _problem_of_map(self, value: dict[Any, Any], schema: Mapping[str, Any], path: str) -> str:
        properties = schema.get("properties")
        known: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
        required = schema.get("required")
        for name in required if isinstance(required, list | tuple) else ():
            if name not in value:
                return _at(path, f"lacks {name!r}")
        further = schema.get("additionalProperties", True)
        for name, each in value.items():
            inside = f"{path}.{name}"
            if name in known:
                problem = self.problem(each, known[name], inside)
            elif further is False:
                problem = _at(path, f"takes no {name!r}")
            else:
                problem = self.problem(each, further, inside)
            if problem:
                return problem
        return ""

    def _problem_of_list(self, value: Any, schema: Mapping[str, Any], path: str) -> str:
        first = schema.get("prefixItems")
        placed = list(first) if isinstance(first, list | tuple) else []
        items = schema.get("items", True)
        for index, each in enumerate(value):
            wanted = placed[index] if index < len(placed) else items
            if problem := self.problem(each, wanted, f"{path}[{index}]"):
                return problem
        return ""


def _problem_of_type(value: object, schema: Mapping[str, Any], path: str) -> str:
    wanted = schema.get("type")
    kinds = [wanted] if isinstance(wanted, str) else wanted
    if not isinstance(kinds, list | tuple) or any(_is_a(value, kind, schema) for kind in kinds):
        return ""
    return _at(path, f"expected {' or '.join(map(str, kinds))}, got {_shown(value)}")


def _is_a(value: object, kind: object, schema: Mapping[str, Any]) -> bool:
    """Return whether a value can be read as a type of JSON, which has fewer than MessagePack."""
    if kind not in _KINDS:
        return True
    if isinstance(value, bool) or kind == "boolean":
        return isinstance(value, bool) and kind == "boolean"
    if isinstance(value, int | float):
        is_written = kind == "string" and "format" in schema  # Such as a decimal.
        is_whole = kind == "integer" and (isinstance(value, int) or value.is_integer())
        return is_written or is_whole or kind == "number"
    found = next((name for name, types in _JSON_TYPES if isinstance(value, types)), "string")
    return kind == found  # Bytes, times and extensions are texts in JSON.


_JSON_TYPES: tuple[tuple[str, Any], ...] = (
    ("object", dict),
    ("array", list | tuple),
    ("null", type(None)),
)
_KINDS = frozenset({"boolean", "integer", "number", "string", "object", "array", "null"})


def _problem_of_choice(value: object, schema: Mapping[str, Any], path: str) -> str:
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if not isinstance(choices, list | tuple) or value in choices:
        return ""
    told = " or ".join(map(_shown, choices))
    return _at(path, f"expected {told}, got {_shown(value)}")


#: Keyword, what of a value it is about, whether that is within the bound, and how it is told.
_BOUNDS: tuple[tuple[str, type | tuple[type, ...], Callable[[Any, Any], bool], str], ...] = (
    ("minimum", (int, float), lambda value, bound: value >= bound, "at least"),
    ("maximum", (int, float), lambda value, bound: value <= bound, "at most"),
    ("exclusiveMinimum", (int, float), lambda value, bound: value > bound, "more than"),
    ("exclusiveMaximum", (int, float), lambda value, bound: value < bound, "less than"),
    ("minLength", str, lambda value, bound: len(value) >= bound, "a length of at least"),
    ("maxLength", str, lambda value, bound: len(value) <= bound, "a length of at most"),
    (
        "minItems",
        (list, tuple),
        lambda value, bound: len(value) >= bound,
        "at least so many items:",
    ),
    ("maxItems", (list, tuple), lambda value, bound: len(value) <= bound, "at most so many items:"),
)


def _problem_of_bounds(value: object, schema: Mapping[str, Any], path: str) -> str:
    for keyword, kinds, is_within, told in _BOUNDS:
        bound = schema.get(keyword)
        if (
            bound is not None
            and isinstance(bound, int | float)
            and isinstance(value, kinds)
            and not isinstance(value, bool)
            and not is_within(value, bound)
        ):
            return _at(path, f"expected {told} {bound}, got {_shown(value)}")
    return ""


def _named_type(schema: object) -> str:
    if not isinstance(schema, Mapping):
        return "anything"
    if isinstance(ref := schema.get("$ref"), str):
        return ref.removeprefix(_REF)
    return str(schema.get("type") or "another value")


def _at(path: str, problem: str) -> str:
    return f"{path.removeprefix('.')}: {problem}" if path else problem


def _shown(value: object) -> str:
    """Write a value in a few characters, with its type where that is not plain."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
