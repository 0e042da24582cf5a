"""The shape of a function: what it takes and what it returns, as its annotations say.

Owns the check of a call against the signature, and the way from encoded arguments to arguments of
the declared types. Knows nothing of names, queues or results on their way.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from itertools import chain, repeat
from typing import Any, Optional, get_type_hints

import msgspec

from jackalope.link.errors import ConfigError
from jackalope.tasks.values import (
    DEFAULT_CONTENT,
    Content,
    Decode,
    DecodeFailed,
    RawCall,
    decoder,
)

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)

_PlainCall = tuple[list[Any], dict[str, Any]]


class Shape:
    """What a function takes and returns.

    Attributes:
        returns: the type of the result.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._signature = inspect.signature(function)
        hints = self._hints = _hints(function)
        self.returns = hints.get("return", Any)
        parameters = list(self._signature.parameters.values())
        self._kinds = {parameter.name: _kind(parameter, hints) for parameter in parameters}
        self._positional = [p.name for p in parameters if p.kind in _POSITIONAL]
        self._named = [p.name for p in parameters if p.kind in _NAMED]
        self._rest = next((p.name for p in parameters if p.kind is Parameter.VAR_POSITIONAL), "")
        self._rest_named = next((p.name for p in parameters if p.kind is Parameter.VAR_KEYWORD), "")
        needed = [p for p in parameters if p.default is Parameter.empty]
        self._args_max = sys.maxsize if self._rest else len(self._positional)
        self._args_min = sum(p.kind in _POSITIONAL for p in needed)
        if any(p.kind is Parameter.KEYWORD_ONLY for p in needed):
            self._args_min = sys.maxsize  # No call without keywords will do.
        self._readers: dict[str, _Reader] = {}

    def takes(self, kind: type) -> bool:
        """Tell whether the first argument is declared to be of a type."""
        return bool(self._positional) and self._hints.get(self._positional[0]) is kind

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Refuse a call that the function does not take.

        Raises:
            TypeError: as Python would say it.
        """
        if kwargs or not self._args_min <= len(args) <= self._args_max:
            self._signature.bind(*args, **kwargs)

    def place(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Put the arguments of a call in their places, so that equal calls look alike.

        Raises:
            TypeError: as Python would say it.
        """
        bound = self._signature.bind(*args, **kwargs)
        return bound.args, bound.kwargs

    def read(self, payload: bytes, content: Content) -> tuple[list[Any], dict[str, Any]]:
        """Decode the arguments of a call into the declared types.

        Raises:
            DecodeFailed: they do not fit; the message names the first that does not.
        """
        reader = self._readers.get(content)
        if reader is None:
            reader = self._readers[content] = self._make_reader(content)
        args, kwargs = reader.read(payload)
        try:
            self.check(args, kwargs)
        except TypeError as error:
            raise DecodeFailed(str(error)) from None
        return args, kwargs

    def kind_of_first(self) -> Any:
        """Return the type of the first argument.

        Raises:
            ConfigError: the function takes none by place.
        """
        name = self._positional[0] if self._positional else self._rest
        if not name:
            raise ConfigError("it takes no argument by place, so it cannot be called with an item")
        return self._kinds[name]

    def read_named(self, data: bytes) -> dict[str, Any]:
        """Decode arguments by name, all but the first, into the declared types.

        Raises:
            DecodeFailed: they do not fit; the message names the first that does not.
        """
        try:
            raw = msgspec.msgpack.decode(data, type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, ValueError) as error:
            raise DecodeFailed(f"the fixed arguments are none: {error}") from None
        reader = self._readers.get(DEFAULT_CONTENT)
        if reader is None:
            reader = self._readers[DEFAULT_CONTENT] = self._make_reader(DEFAULT_CONTENT)
        named: dict[str, Any] = {}
        for name, value in raw.items():
            try:
                named[name] = reader.named.get(name, reader.rest_named)(value)
            except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
                raise DecodeFailed(f"argument {name!r}: {error}") from None
        try:
            self.check((None,), named)
        except TypeError as error:
            raise DecodeFailed(str(error)) from None
        return named

    def _make_reader(self, content: Content) -> _Reader:
        def read(name: str) -> tuple[str, Decode]:
            return name, decoder(content, self._kinds.get(name, Any))

        is_plain = all(kind is Any for kind in self._kinds.values())
        return _Reader(
            decoder(content, _PlainCall if is_plain else RawCall),
            is_plain,
            [read(name) for name in self._positional],
            read(self._rest),
            dict(map(read, self._named)),
            read(self._rest_named)[1],
        )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Decodes calls of one function from one content."""

    read_call: Decode
    is_plain: bool
    positional: list[tuple[str, Decode]]
    rest: tuple[str, Decode]
    named: dict[str, Decode]
    rest_named: Decode

    def read(self, payload: bytes) -> tuple[list[Any], dict[str, Any]]:
        """Decode one call."""
        if not payload:
            return [], {}
        try:
            args, kwargs = self.read_call(payload)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise DecodeFailed(f"the payload is no call: {error}") from None
        if self.is_plain:
            return args, kwargs
        name = ""
        try:
            places = chain(self.positional, repeat(self.rest))
            for at, (place, raw) in enumerate(zip(places, args, strict=False)):
                name, read = place
                args[at] = read(raw)
            for name, raw in kwargs.items():
                kwargs[name] = self.named.get(name, self.rest_named)(raw)
        except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
            raise DecodeFailed(f"argument {name!r}: {error}") from None
        return args, kwargs


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations; none if they name what does not exist at run time."""
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError):
        return {}


def _kind(parameter: Parameter, hints: Mapping[str, Any]) -> Any:
    kind = hints.get(parameter.name, Any)
    if parameter.default is None and kind is not Any:
        return Optional[kind]  # noqa: UP045  `width: int = None` is written often, and meant so
    return kind
