"""Settings: how the fields of a struct are written, checked, changed and shown.

Owns what all settings have in common: those of the configuration, of launchers, the policies of
queues and the settings of pools. A field whose name ends in `_us` is a duration: its key has no
`_us`, and its value is a number of seconds or a text such as "30s". What a value may be is in the
annotation of its field. A problem names what is wrong and what would be right.

Knows none of the settings themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_type_hints

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from jackalope.core.durations import DAY, FOREVER, NEVER, SECOND, format_duration, parse_duration
from jackalope.core.limits import COUNT_MAX, TIME_US_MAX

S = TypeVar("S", bound=Struct)


class Bounds(NamedTuple):
    """The valid values of a field: a range of numbers or lengths, or a set of words.

    Unlike `Meta` it is checked where a value is given, and not where a struct is decoded: what is
    stored can be read again, whatever the bounds are by then.
    """

    least: float = 0
    most: float = 0
    words: tuple[str, ...] = ()


Duration = Annotated[int, Bounds(0, TIME_US_MAX)]
Count = Annotated[int, Bounds(0, COUNT_MAX)]


class Field(NamedTuple):
    """A field with its key, type and bounds."""

    name: str  # in the struct
    hint: Any  # its type, with its bounds as `Meta`
    words: tuple[str, ...] = ()  # what it may be, if not all of its type


@lru_cache
def keys_of(shape: type[Struct]) -> dict[str, Field]:
    """Return the fields of a struct by their keys."""
    hints = get_type_hints(shape, include_extras=True)
    return {name.removesuffix("_us"): _field(name, hints[name]) for name in shape.__struct_fields__}


def _field(name: str, hint: Any) -> Field:
    bounds = next((each for each in _metadata(hint) if isinstance(each, Bounds)), None)
    if bounds is None:
        return Field(name, hint)
    kind = _kind(hint)
    if bounds.words:
        return Field(name, kind, bounds.words)
    if kind is str:
        least = int(bounds.least) or None
        return Field(name, Annotated[str, Meta(min_length=least, max_length=int(bounds.most))])
    return Field(name, Annotated[kind, Meta(ge=bounds.least, le=bounds.most)])


def _kind(hint: Any) -> Any:
    return hint.__origin__ if _metadata(hint) else hint


def _metadata(hint: Any) -> tuple[Any, ...]:
    return getattr(hint, "__metadata__", ())


# Reading.


def find_field(shape: type[Struct], key: str, owner: str = "", also: Iterable[str] = ()) -> Field:
    """Return the field of a key; raises `ValueError` if there is none.

    `owner` names the settings in the message, `also` are other valid keys.
    """
    fields = keys_of(shape)
    if key not in fields:
        raise ValueError(unknown(key, [*fields, *also], owner))
    return fields[key]


def read(field: Field, value: Any, *, is_text: bool = False) -> Any:
    """Validate and convert a value; raises `ValueError` with what would be valid."""
    if is_text and _kind(field.hint) == tuple[str, ...]:
        value = [part.strip() for part in str(value).split(",") if part.strip()]
    if is_text and _kind(field.hint) == dict[str, int]:
        value = _pairs(str(value))
    if field.name.endswith("_us"):
        return _convert(field, parse_duration(value), say=format_duration)
    if (
        is_text
        and isinstance(value, str)
        and value[:1] in {"[", "{"}
        and _kind(field.hint) is not str
    ):
        try:
            return _convert(field, msgspec.json.decode(value))
        except msgspec.DecodeError:
            what = "list" if value[:1] == "[" else "map"
            raise ValueError(f"is no {what} in JSON: {value}") from None
    return _convert(field, value, is_text=is_text)


def _pairs(text: str) -> dict[str, str]:
    """Return the map that is written as name=value,name=value."""
    pairs = [part.strip().rpartition("=") for part in text.split(",") if part.strip()]
    if wrong := next((value for name, equals, value in pairs if not equals), None):
        raise ValueError(f"must be written as name=number,name=number, got {wrong!r}")
    return {name.strip(): value.strip() for name, _, value in pairs}


def read_all(shape: type[S], given: Mapping[str, Any], where: str = "") -> S:
    """Make a struct of given values; raises `ValueError` that lists every problem by its key."""
    problems, values = [], {}
    for key, value in given.items():
        try:
            field = find_field(shape, key)
            values[field.name] = read(field, value)
        except ValueError as error:
            problems.append(f"{where}{key}: {error}")
    problems += [
        f"{where}{each.name.removesuffix('_us')}: required"
        for each in msgspec.structs.fields(shape)
        if each.required and each.name.removesuffix("_us") not in given
    ]
    if problems:
        raise ValueError("; ".join(problems))
    return shape(**values)


def change(value: S, changes: Mapping[str, object], owner: str) -> S | list[str]:
    """Return a struct with some fields changed, or the list of all problems.

    `changes` are values by field name, as the struct holds them. `owner` names the settings in
    messages.
    """
    fields = {field.name: field for field in keys_of(type(value)).values()}
    problems, taken = [], {}
    for name, given in changes.items():
        if name not in fields:
            problems.append(f"{name}: unknown; {owner} has {', '.join(fields)}")
            continue
        try:
            say = format_duration if name.endswith("_us") else str
            taken[name] = _convert(fields[name], given, say=say)
        except ValueError as error:
            problems.append(f"{name}: {error}")
    return problems or msgspec.structs.replace(value, **taken)


def _convert(
    field: Field, value: Any, *, is_text: bool = False, say: Callable[[Any], str] = str
) -> Any:
    try:
        converted = msgspec.convert(value, field.hint, strict=not is_text)
    except msgspec.ValidationError as error:
        value = _number_in(value, field) if is_text else value
        raise ValueError(_plain_words(field, value, error, say)) from None
    if field.words and converted not in field.words:
        raise ValueError(one_of(value, field.words))
    return converted


def _plain_words(field: Field, value: Any, error: Exception, say: Callable[[Any], str]) -> str:
    kind = _kind(field.hint)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return one_of(value, field.words or [str(member.value) for member in kind])
    meta = next((each for each in _metadata(field.hint) if isinstance(each, Meta)), Meta())
    if meta.extra:
        return "must be a string"  # It may be a secret: do not repeat it.
    if value in ("", [], ()) and meta.min_length:
        return "must not be empty"
    if kind in (int, float) and _is_number(value, kind):
        return f"must be {_bounds(meta, say)}, got {say(value)}"
    if kind is str and isinstance(value, str):
        return _text_problem(value, meta)
    return f"must be {_KINDS[kind]}, got {value!r}" if kind in _KINDS else _place_first(error)


_KINDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a string",
    tuple[str, ...]: "a list of strings",
    dict[str, int]: "a map of names to whole numbers",
}


def _text_problem(text: str, meta: Meta) -> str:
    if meta.max_length is not None and len(text) > meta.max_length:
        return f"must have {meta.min_length or 0} to {meta.max_length} characters, got {len(text)}"
    return f"must match {meta.pattern}, got {text!r}"


def _bounds(meta: Meta, say: Callable[[Any], str]) -> str:
    if meta.gt is not None:
        return f"more than {say(meta.gt)}"
    if meta.le is None:
        return f"at least {say(meta.ge)}"
    # Of the longest time that can be stored, whole days are enough to know.
    most = int(TIME_US_MAX) // DAY * DAY if meta.le == TIME_US_MAX else meta.le
    return f"{say(meta.ge)} to {say(most)}"


def _number_in(text: Any, field: Field) -> Any:
    """Return the number that a text stands for, so that its bounds can be checked."""
    try:
        kind = _kind(field.hint)
        return msgspec.convert(text, kind, strict=False) if kind in (int, float) else text
    except msgspec.ValidationError:
        return text


def _is_number(value: Any, kind: Any) -> bool:
    is_fit = isinstance(value, int) if kind is int else isinstance(value, int | float)
    return is_fit and not isinstance(value, bool)


def _place_first(error: Exception) -> str:
    """Put the path of a nested problem before the problem."""
    text, _, place = str(error).partition(" - at `$")
    key = place.rstrip("`").lstrip(".")
    return f"{key}: {text}" if key else text


def one_of(value: Any, words: Iterable[str]) -> str:
    """Describe a value that is not one of the valid words."""
    known = list(words)
    return f"must be {' or '.join(known)}, got {value!r}{did_you_mean(value, known)}"


def unknown(name: str, known: Iterable[str], owner: str = "") -> str:
    """Describe an unknown key, with the closest one or all valid ones."""
    names = list(known)
    suggestion = did_you_mean(name, names)
    where = f"{owner} has" if owner else "there are"
    return f"unknown key{suggestion}" if suggestion else f"unknown key; {where} {_list(names)}"


def _list(names: list[str]) -> str:
    return ", ".join(names) or "nothing else"


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """Return a suggestion for an unknown name; empty if none is close."""
    close = get_close_matches(str(name).lower(), list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def as_data(value: Any) -> Any:
    """Return a value as commands carry it: lists of structs as lists of maps."""
    has_structs = isinstance(value, tuple) and any(isinstance(each, Struct) for each in value)
    return msgspec.to_builtins(value) if has_structs else value


# Showing.


def plain(name: str, value: Any) -> Any:
    """Format the value of a field as it would be written in a file."""
    if name.endswith("_us"):
        return format_duration(value)
    if isinstance(value, tuple):
        return list(as_data(value))
    return value.value if isinstance(value, Enum) else value


def shown(value: Struct) -> dict[str, Any]:
    """Return the fields of a struct by their keys, formatted as in a file."""
    fields = msgspec.structs.asdict(value)
    return {name.removesuffix("_us"): plain(name, each) for name, each in fields.items()}


# As JSON.

_TEXT = "([0-9]{1,6}(us|ms|s|m|h|d)){1,4}"
_SECONDS = Annotated[float, Meta(ge=0, le=10**12)]

#: A duration as a person writes it: seconds, or a text.
DURATION = _SECONDS | Annotated[str, Meta(pattern=f"^{_TEXT}$")]
_UP_TO_FOREVER = _SECONDS | Annotated[str, Meta(pattern=f"^({_TEXT}|{FOREVER})$")]


def given(shape: type[Struct], name: str, module: str) -> Any:
    """Define the JSON struct of a partial change: every key of a struct, all optional."""
    fields = [(key, _written(field) | UnsetType, UNSET) for key, field in keys_of(shape).items()]
    return msgspec.defstruct(name, fields, forbid_unknown_fields=True, frozen=True, module=module)


def _written(field: Field) -> Any:
    if field.words:
        return Literal[tuple(map(str, field.words))]
    if field.name.endswith("_us"):
        return _UP_TO_FOREVER if _metadata(field.hint)[0].le == NEVER else DURATION
    return field.hint


def taken(shape: type[Struct], wanted: Struct) -> dict[str, object]:
    """Return the values of a struct made by `given`, as input for `change`, which checks them."""
    changes: dict[str, object] = {}
    for key, value in msgspec.structs.asdict(wanted).items():
        if value is UNSET:
            continue
        name = keys_of(shape)[key].name
        if name.endswith("_us"):
            is_text = isinstance(value, str)
            value = parse_duration(value) if is_text else round(value * SECOND)  # noqa: PLW2901
        changes[name] = as_data(value)
    return changes
