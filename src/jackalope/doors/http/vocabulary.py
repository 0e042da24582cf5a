"""Whose words requests and answers use: ours, or those of the published task queue design.

Owns the aliases, and the choice between them and our words. An answer has the words of one, never
of both. The choice holds for one request: the header `X-Jackalope-Names` or the parameter `names`
makes it; else a body or query that has aliases and none of the words they stand for is answered in
aliases; else the setting `http.names` decides.

Routes read and write our words alone. What they read is renamed before it is checked, what they
write is renamed before it is encoded; both cost nothing where no alias is involved.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_type_hints

import msgspec

from jackalope.broker.config.schema import Names
from jackalope.doors.http.errors import Rejected

if TYPE_CHECKING:
    from jackalope.doors.http.request import Connection

HEADER = "x-jackalope-names"
PARAMETER = "names"

_names: ContextVar[Names] = ContextVar("names", default=Names.JACKALOPE)
_is_said: ContextVar[bool] = ContextVar("is_said", default=False)


# The choice.


def choose(connection: Connection) -> None:
    """Choose the words for what follows in this request."""
    said, where = connection.header(HEADER), HEADER
    if not said and connection.scope["query_string"]:
        said, where = connection.query.get(PARAMETER, ""), PARAMETER
    _is_said.set(bool(said))
    if said:
        _names.set(read(said, where))
    else:
        # The management API has no such setting, and none of its answers asks.
        _names.set(getattr(connection.app.owner, "names", Names.JACKALOPE))


def use(names: Names) -> None:
    """Choose the words of a route that has its own."""
    _names.set(names)


def names() -> Names:
    """Return the words that were chosen."""
    return _names.get()


def read(text: str, where: str) -> Names:
    """Read a choice.

    Raises:
        Rejected: there is no such choice.
    """
    try:
        return Names(text)
    except ValueError:
        known = " or ".join(Names)
        raise Rejected(400, f"{where}: must be {known}, got {text[:50]!r}") from None


# The aliases.


class Alias(NamedTuple):
    """What one shape is called and has in the published design."""

    names: Mapping[str, str]  # our fields, and what they are called there
    added: Mapping[str, Callable[[Any], Any]]  # what it has besides, made of our answer
    without: Collection[str]  # our fields that it does not have, because `added` has them
    only: Collection[str]  # fields that are read and belong to it alone


_ALIASES: dict[type[msgspec.Struct], Alias] = {}


def alias(
    shape: type[msgspec.Struct],
    *,
    names: Mapping[str, str] = {},
    added: Mapping[str, Callable[[Any], Any]] = {},
    without: Collection[str] = (),
    only: Collection[str] = (),
) -> None:
    """Declare the aliases of a shape that is read or shown."""
    _ALIASES[shape] = Alias(names, added, without, only)


def aliases() -> Mapping[type[msgspec.Struct], Alias]:
    """Return all that is declared."""
    return _ALIASES


def translated(answer: Any) -> Any:
    """Return an answer in the words that were chosen."""
    return answer if _names.get() is Names.JACKALOPE else _renamed(answer)


def _renamed(value: Any) -> Any:
    if isinstance(value, list | tuple):
        items = [_renamed(each) for each in value]
        is_same = all(one is other for one, other in zip(items, value, strict=True))
        return value if is_same else items
    if not isinstance(value, msgspec.Struct):
        return value
    fields = {name: getattr(value, name) for name in value.__struct_fields__}
    fields = {name: each for name, each in fields.items() if each is not msgspec.UNSET}
    shown = {name: _renamed(each) for name, each in fields.items()}
    known = _ALIASES.get(type(value))
    if known is None and all(shown[name] is fields[name] for name in fields):
        return value
    names, added, without, _ = known or Alias({}, {}, (), ())
    config, renamed = value.__struct_config__, dict[str, Any]()
    if config.tag_field is not None:
        renamed[config.tag_field] = config.tag
    renamed |= {names.get(name, name): shown[name] for name in shown if name not in without}
    return renamed | {name: make(value) for name, make in added.items()}


# Reading.


class _Reading(NamedTuple):
    """How the aliases in a shape and in what it contains are read."""

    names: Mapping[str, str]  # aliases, and what we call them
    only: Collection[str]  # fields that only the published design has
    inner: Mapping[str, _Reading]


@cache
def _reading_of(shape: type[msgspec.Struct]) -> _Reading | None:
    """Return how to read a shape; None if there is no alias in it."""
    known = _ALIASES.get(shape) or Alias({}, {}, (), ())
    names = {theirs: ours for ours, theirs in known.names.items()}
    inner = {}
    for name, hint in get_type_hints(shape).items():
        for struct in _structs_in(hint):
            if reading := _reading_of(struct):
                inner[name] = reading
    has_aliases = names or known.only or inner
    return _Reading(names, known.only, inner) if has_aliases else None


def _structs_in(hint: Any) -> list[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return [hint]
    return [struct for each in get_args(hint) for struct in _structs_in(each)]


def in_our_words(given: Any, shape: Any, *, may_choose: bool = True) -> Any:
    """Return a body or query that may have aliases in our words.

    If it has aliases alone, and the request has not said otherwise, so has the answer; unless it
    may not choose that, because it is a part of a longer exchange.

    Raises:
        Rejected: it says two things in two words.
    """
    reading = _reading_of(shape) if _structs_in(shape) == [shape] else None
    if reading is None:
        return given
    used: set[Names] = set()
    plain = _read(given, reading, used)
    if may_choose and used == {Names.TASK_QUEUE} and not _is_said.get():
        _names.set(Names.TASK_QUEUE)
    return plain


def problem_in(text: str, shape: Any) -> str:
    """Return what is wrong with a body or query in the words that were chosen for the answer."""
    reading = _reading_of(shape) if _structs_in(shape) == [shape] else None
    if reading is None or _names.get() is Names.JACKALOPE:
        return text
    for part in (reading, *reading.inner.values()):
        for theirs, ours in part.names.items():
            text = re.sub(rf"(?<=[.`]){ours}(?=[`.\[])", theirs, text)
    return text


def _read(value: Any, reading: _Reading, used: set[Names]) -> Any:
    if isinstance(value, list):
        return [_read(each, reading, used) for each in value]
    if not isinstance(value, dict):
        return value
    plain: dict[str, Any] = {}
    for name, each in value.items():
        ours = reading.names.get(name, name)
        if ours != name or name in reading.only:
            used.add(Names.TASK_QUEUE)
        elif name in reading.names.values():
            used.add(Names.JACKALOPE)
        inner = reading.inner.get(ours)
        read = each if inner is None else _read(each, inner, used)
        if ours in plain and plain[ours] != read:
            theirs = next(other for other in reading.names if reading.names[other] == ours)
            message = f"{ours} and {theirs} are the same field, and differ; give one of them"
            raise Rejected(400, message)
        plain[ours] = read
    return plain
