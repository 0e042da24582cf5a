"""Calls: whether the arguments in a payload fit what a task takes.

Owns how a payload is compared with a contract. A payload is a pair of the arguments by place and
those by name. Nearly all fit, so the common ones are only decoded once, into the types that the
contract asks for; what does not pass there is looked at piece by piece, for the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from types import GenericAlias
from typing import Any, Literal

import msgspec

from jackalope.core.shapes.contract import CallContent, Contract, Parameter, ParameterKind, Schema
from jackalope.core.shapes.json_schema import problem_of

#: The header of a task that names how its arguments are encoded.
CONTENT_HEADER = "content"

#: The keys of an object in JSON that stands for results of other nodes of a flow.
_REFERENCES = frozenset({"$result", "$results"})

_BY_PLACE = (ParameterKind.ANY, ParameterKind.PLACE)
_BY_NAME = (ParameterKind.ANY, ParameterKind.NAME)

#: MessagePack: a pair, and an array of up to 15 elements, less their number.
_PAIR = 0x92
_SHORT_ARRAY = 0x90
_SHORT_ARRAY_MAX = 15

_Decode = Callable[[bytes], Any]
_Call = tuple[list[Any], dict[str, Any]]
_decoders: dict[str, _Decode] = {
    CallContent.MSGPACK: msgspec.msgpack.Decoder().decode,
    CallContent.JSON: msgspec.json.Decoder().decode,
}


class CallCheck:
    """Compares calls with one contract."""

    __slots__ = ("_by_head", "contract")

    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        # decoders of calls, by the head of the array of arguments by place; made for the first call
        self._by_head: dict[int, _Decode] | None = None

    def problems(
        self, payload: bytes, headers: Mapping[str, Any], *, is_node: bool = False
    ) -> list[str]:
        """List why a call does not fit; nothing if it does.

        Args:
            payload: the call.
            headers: of the task, which may name how it is encoded.
            is_node: of a task of a flow, values may stand for results of others.
        """
        content = headers.get(CONTENT_HEADER) if headers else None
        if content is None:
            content = self.contract.content
            if self._by_head is None:
                self._by_head = _quick_decoders(self.contract)
            if len(payload) > 1 and payload[0] == _PAIR:
                decode = self._by_head.get(payload[1])
                if decode is not None and _passes(decode, payload):
                    return []
        decode = _decoders.get(content) if isinstance(content, str) else None
        return [] if decode is None else self._look(decode, payload, is_node=is_node)

    def _look(self, decode: _Decode, payload: bytes, *, is_node: bool) -> list[str]:
        try:
            args, kwargs = msgspec.convert(decode(payload), _Call) if payload else ([], {})
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            form = "a list of arguments and a map of arguments by name"
            return [f"the payload is not a call, which is {form}: {error}"]
        placed, problems = self._bind(args, kwargs)
        is_open = _stands_for_another if is_node else _is_foreign
        for parameter, name, value in placed:
            problem = problem_of(value, parameter.schema, self.contract.definitions, is_open)
            if problem:
                problems.append(f"argument {name!r}: {problem}")
        return problems

    def _bind(
        self, args: list[Any], kwargs: dict[str, Any]
    ) -> tuple[list[tuple[Parameter, str, Any]], list[str]]:
        """Return each argument with its parameter and its name, and what cannot be placed."""
        parameters = self.contract.parameters
        by_place = [each for each in parameters if each.kind in _BY_PLACE]
        by_name = {each.name: each for each in parameters if each.kind in _BY_NAME}
        rest = {each.kind: each for each in parameters}
        placed = [
            (parameter, parameter.name, value)
            for parameter, value in zip(by_place, args, strict=False)
        ]
        # One by place alone leaves its name to those that take any.
        taken = {each.name for each, *_ in placed if each.kind is ParameterKind.ANY}
        given = {each.name for each, *_ in placed}
        problems = []
        further = args[len(by_place) :]
        if further and (taker := rest.get(ParameterKind.REST)) is not None:
            placed += [(taker, taker.name, value) for value in further]
        elif further:
            problems.append(f"{len(args)} arguments by place, at most {len(by_place)}")
        for name, value in kwargs.items():
            parameter = by_name.get(name) or rest.get(ParameterKind.REST_NAMED)
            if name in taken:
                problems.append(f"argument {name!r}: given by place and by name")
            elif parameter is None:
                names = ", ".join(each.name for each in parameters) or "no arguments"
                problems.append(f"argument {name!r}: unknown; it takes {names}")
            else:
                placed.append((parameter, name, value))
                given.add(parameter.name)
        missing = [each.name for each in parameters if each.required and each.name not in given]
        problems += [f"argument {name!r}: missing" for name in missing]
        return placed, problems


def _passes(decode: _Decode, payload: bytes) -> bool:
    try:
        decode(payload)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return True


def _is_foreign(value: object) -> bool:
    return isinstance(value, msgspec.msgpack.Ext)


def _stands_for_another(value: object) -> bool:
    """Return whether a value may be a reference to what other nodes of a flow return."""
    return _is_foreign(value) or (isinstance(value, dict) and not _REFERENCES.isdisjoint(value))


def _quick_decoders(contract: Contract) -> dict[int, _Decode]:
    """Return decoders of calls into what the contract asks for, where its types are plain.

    There is one for each number of arguments by place; the others are then given by name.
    """
    parameters = contract.parameters
    by_place = [each for each in parameters if each.kind in _BY_PLACE]
    by_name = [each for each in parameters if each.kind is ParameterKind.NAME]
    is_plain = contract.content is CallContent.MSGPACK and len(by_place) <= _SHORT_ARRAY_MAX
    if not is_plain or len(by_place) + len(by_name) < len(parameters):
        return {}
    types = {each.name: type_of(each.schema) for each in parameters}
    if None in types.values():
        return {}
    decoders: dict[int, _Decode] = {}
    for count in range(len(by_place) + 1):
        left = by_place[count:]
        if any(each.required and each.kind is ParameterKind.PLACE for each in left):
            continue
        named = [each for each in left if each.kind is ParameterKind.ANY] + by_name
        placed: Any = GenericAlias(tuple, tuple(types[each.name] for each in by_place[:count]))
        try:
            call: Any = GenericAlias(tuple, (placed, _names_of(named, types)))
            decoders[_SHORT_ARRAY + count] = msgspec.msgpack.Decoder(call).decode
        except (TypeError, ValueError):
            return {}  # Such as a choice between types that look alike.
    return decoders


def _names_of(parameters: Sequence[Parameter], types: Mapping[str, Any]) -> type[msgspec.Struct]:
    """Return the type of the arguments by name: those that are needed, and no others."""
    parameters = sorted(parameters, key=lambda each: not each.required)
    fields: list[Any] = []
    for index, each in enumerate(parameters):
        field = (f"field_{index}", types[each.name])
        fields.append(field if each.required else (*field, None))
    rename = {f"field_{index}": each.name for index, each in enumerate(parameters)}
    return msgspec.defstruct("Names", fields, forbid_unknown_fields=True, rename=rename)


_TYPES: dict[object, Any] = {
    "integer": int,
    "number": float,
    "string": str,
    "boolean": bool,
    "null": type(None),
}
_NOTES = frozenset({"title", "description", "default", "examples"})


def type_of(schema: Schema) -> Any:
    """Return the type that a plain schema stands for; None if it asks for more."""
    asked = schema.keys() - _NOTES
    if not asked:
        return Any
    kind = schema.get("type")
    if asked == {"type"} and isinstance(kind, str):
        plain: dict[object, Any] = {**_TYPES, "array": list, "object": dict}
        return plain.get(kind)
    if asked == {"type", "items"} and kind == "array" and isinstance(schema["items"], dict):
        inner = type_of(schema["items"])
        return None if inner is None else list[inner]  # type: ignore[valid-type]
    values = schema.get("enum")
    if asked == {"enum"} and isinstance(values, list | tuple) and values:
        is_plain = all(type(each) in (str, int) for each in values)
        return Literal[tuple(values)] if is_plain else None
    choices = schema.get("anyOf")
    if asked == {"anyOf"} and isinstance(choices, list | tuple):
        types = [type_of(each) if isinstance(each, dict) else None for each in choices]
        return None if None in types or not types else reduce(or_, types)
    return None
