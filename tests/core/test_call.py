"""Calls compared with contracts: in one go and piece by piece, always with the same outcome."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackalope.core.shapes.call import CallCheck
from jackalope.core.shapes.contract import (
    Contract,
    Parameter,
    ParameterKind,
    arguments_schema,
    signature,
)
from jackalope.core.shapes.json_schema import problem_of

TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
ITEM = {
    "type": "object",
    "properties": {"sku": TEXT, "count": {"type": "integer", "minimum": 1}},
    "required": ["sku"],
}
ORDER = Contract(
    parameters=(
        Parameter("path", ParameterKind.PLACE, TEXT, required=True),
        Parameter("width", ParameterKind.ANY, NUMBER, default=320),
        Parameter("mode", ParameterKind.NAME, {"enum": ["fit", "fill"]}, default="fit"),
    )
)
REST = Contract(
    parameters=(
        Parameter("first", schema=TEXT, required=True),
        Parameter("args", ParameterKind.REST, NUMBER),
        Parameter("named", ParameterKind.REST_NAMED, {"$ref": "#/$defs/Item"}),
    ),
    definitions={"Item": ITEM},
)


def problems(contract: Contract, *args: Any, **kwargs: Any) -> list[str]:
    return CallCheck(contract).problems(msgspec.msgpack.encode((args, kwargs)), {})


@pytest.mark.parametrize(
    ("args", "kwargs", "told"),
    [
        (("a",), {}, []),
        (("a", 3), {"mode": "fill"}, []),
        (("a",), {"width": 3.0}, []),
        ((), {}, ["'path': missing"]),
        ((), {"path": "a"}, ["'path': unknown", "'path': missing"]),
        (("a", 3, 4), {}, ["3 arguments by place, at most 2"]),
        (("a", 3), {"width": 4}, ["'width': given by place and by name"]),
        ((1,), {"mode": "odd"}, ["'path': expected string, got 1", '"fit" or "fill", got "odd"']),
        (("a",), {"width": None}, ["'width': expected integer, got null"]),
        (("a",), {"width": True}, ["'width': expected integer, got true"]),
    ],
)
def test_calls_by_place_and_by_name(
    args: tuple[Any, ...], kwargs: dict[str, Any], told: list[str]
) -> None:
    found = problems(ORDER, *args, **kwargs)
    assert len(found) == len(told)
    assert all(part in problem for part, problem in zip(told, found, strict=True))


def test_further_arguments_and_definitions() -> None:
    assert problems(REST, "a", 1, 2, x={"sku": "s"}) == []
    [wrong] = problems(REST, "a", 1, "2")
    assert wrong == "argument 'args': expected integer, got \"2\""
    [lacking] = problems(REST, "a", x={"count": 2})
    assert lacking == "argument 'x': lacks 'sku'"
    [low] = problems(REST, "a", x={"sku": "s", "count": 0})
    assert low == "argument 'x': count: expected at least 1, got 0"


@pytest.mark.parametrize("payload", [b"\xc1", b"\x01", b"\x92\x90", b"\x91\x90", b"\x92\x80\x90"])
def test_what_is_no_call_is_told(payload: bytes) -> None:
    [problem] = CallCheck(ORDER).problems(payload, {})
    assert problem.startswith("the payload is not a call")


def test_an_empty_payload_is_a_call_without_arguments() -> None:
    assert CallCheck(ORDER).problems(b"", {}) == ["argument 'path': missing"]
    assert CallCheck(Contract()).problems(b"", {}) == []


def test_times_and_bytes_fit_where_json_has_text() -> None:
    moment = {"type": "string", "format": "date-time"}
    contract = Contract(parameters=(Parameter("at", schema=moment, required=True),))
    stamp = msgspec.msgpack.decode(b"\xd6\xff\0\0\0\0")
    assert problems(contract, stamp) == []
    assert problems(contract, "2030-01-01T00:00:00Z") == []
    assert problems(contract, [1]) != []


def test_a_schema_that_goes_in_circles_ends() -> None:
    loop = {"A": {"$ref": "#/$defs/A"}}
    assert problem_of(1, {"$ref": "#/$defs/A"}, loop) == ""
    wide = {"W": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/W"}}] * 9}}
    value: Any = 1
    for _ in range(30):
        value = [value]
    problem_of(value, {"$ref": "#/$defs/W"}, wide)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": 7},
        {"anyOf": 3},
        {"properties": [], "required": 5},
        {"items": False, "prefixItems": "no"},
        {"minimum": "low", "enum": 3},
        {"$ref": 9},
        {"$ref": "#/elsewhere"},
    ],
)
def test_schemas_that_make_no_sense_are_no_error(schema: dict[str, Any]) -> None:
    for value in ("a", 1, [1], {"a": 1}, None):
        problem_of(value, schema, {})


_values = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.floats(-2, 2), st.sampled_from(["fit", "b"])
)
_schemas = st.sampled_from(
    [
        {},
        TEXT,
        NUMBER,
        {"type": "number"},
        {"type": "boolean"},
        {"type": "array"},
        {"type": "array", "items": NUMBER},
        {"anyOf": [NUMBER, {"type": "null"}]},
        {"enum": ["fit", "fill"]},
    ]
)


@given(
    kinds=st.lists(st.tuples(_schemas, st.booleans()), max_size=3),
    args=st.lists(st.one_of(_values, st.lists(_values, max_size=2)), max_size=3),
    kwargs=st.dictionaries(st.sampled_from(["p0", "p1", "p2"]), _values, max_size=2),
)
def test_what_passes_in_one_go_passes_piece_by_piece(
    kinds: list[tuple[dict[str, Any], bool]], args: list[Any], kwargs: dict[str, Any]
) -> None:
    parameters = tuple(
        Parameter(f"p{index}", schema=schema, required=required)
        for index, (schema, required) in enumerate(kinds)
    )
    payload = msgspec.msgpack.encode((args, kwargs))
    quick = CallCheck(Contract(parameters=parameters)).problems(payload, {})
    by_hand = CallCheck(Contract(parameters=parameters))
    by_hand._by_head = {}
    assert quick == by_hand.problems(payload, {})


def test_a_contract_is_shown_as_a_signature_and_as_a_schema() -> None:
    line = 'f(path: string, /, width: integer = 320, *, mode: "fit" | "fill" = "fit")'
    assert signature("f", ORDER) == line
    assert signature("f", REST) == "f(first: string, *args: integer, **named: Item)"
    schema = arguments_schema(REST)
    assert schema["required"] == ["first"]
    assert schema["properties"]["args"] == {"type": "array", "items": NUMBER}
    assert schema["additionalProperties"] == {"$ref": "#/$defs/Item"}
    assert arguments_schema(ORDER)["additionalProperties"] is False
