"""Contracts of every kind of annotation: the broker refuses no call that a worker would take.

Each kind has values that its function takes and values that it does not take. Both are compared
with what the worker itself does with the same payload. What a text must look like (times, ids) and
the keys of maps are left to the worker.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    Optional,
    TypedDict,
    TypeVar,
    Union,
)
from uuid import UUID

import msgspec
import pydantic
import pytest

from jackalope.core.shapes.call import CallCheck
from jackalope.core.shapes.contract import Contract, arguments_schema, signature
from jackalope.tasks.contracts import contract_of, contracts_of
from jackalope.tasks.definition import TaskDefinition
from jackalope.tasks.serialization import Content, DecodeFailed, encode_value

T = TypeVar("T")
UserId = NewType("UserId", int)


@dataclass
class Tree:
    name: str
    children: "list[Tree]" = field(default_factory=list)


class Chain(msgspec.Struct):
    value: int
    rest: "Chain | None" = None


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog"):
    tricks: list[str]


class Row(msgspec.Struct, array_like=True):
    a: int
    b: str = ""


class Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    first_name: str


class Box(msgspec.Struct, Generic[T]):
    inside: T


class Point(NamedTuple):
    x: int
    y: int = 0


class Movie(TypedDict, total=False):
    title: str
    year: int


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mark(enum.Flag):
    A = 1
    B = 2


class Address(pydantic.BaseModel):
    city: str
    lines: list[str] = []


class Person(pydantic.BaseModel):
    name: str
    age: Annotated[int, pydantic.Field(ge=0)] = 0
    home: Address | None = None
    friends: "list[Person]" = []


class Large(pydantic.BaseModel):
    n: Annotated[int, pydantic.Field(lt=10**30)]


class Opaque:
    """Nothing is known about it."""


#: The annotation, values that fit, and values that do not.
KINDS: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "integer": (int, [1, -1, 2**60], ["1", 1.5, None, True]),
    "number": (float, [1, 1.5], ["1", None]),
    "optional": (Optional[int], [1, None], ["x", [1]]),  # noqa: UP045
    "union": (Union[int, str, None], [1, "x", None], [[1], 1.5]),  # noqa: UP007
    "union of containers": (int | list[int] | dict[str, int], [1, [1], {"a": 1}], ["x", ["x"]]),
    "literal": (Literal["a", "b"], ["a"], ["c", 1]),
    "mixed literal": (Literal["a", 1, None],  # noqa: PYI061
        ["a", 1, None], ["b", 2]),
    "list": (list[int], [[], [1, 2]], [["x"], 1, {"a": 1}]),
    "sequence": (Sequence[int], [[1]], [["x"]]),
    "tuple": (tuple[int, str], [[1, "a"]], [[1], [1, 2], ["a", 1], [1, "a", 2]]),
    "tuple without end": (tuple[int, ...], [[], [1, 2]], [["a"]]),
    "set": (set[int], [[1, 2], []], [["a"], 1]),
    "map": (dict[str, int], [{}, {"a": 1}], [{"a": "x"}, [1]]),
    "map by numbers": (dict[int, str], [{1: "a"}], [{1: 2}]),
    "mapping": (Mapping[str, float], [{"a": 1.5}], [{"a": "x"}]),
    "bytes": (bytes, [b"ab"], [1, [1]]),
    "recursive dataclass": (
        Tree,
        [{"name": "a", "children": [{"name": "b"}]}, Tree("a", [Tree("b")])],
        [{"name": 1}, {"children": []}, {"name": "a", "children": [{"name": 2}]}],
    ),
    "recursive struct": (Chain, [Chain(1, Chain(2)), {"value": 1}], [{"value": "x"}, {}]),
    "tagged union": (
        Cat | Dog,
        [Cat(9), {"type": "dog", "tricks": ["sit"]}],
        [{"type": "cow"}, {"type": "cat", "lives": "x"}, 1],
    ),
    "struct as a list": (Row, [Row(1, "a"), [1], [1, "a"]], [[], ["a"], {"a": 1}]),
    "strict struct": (Strict, [{"firstName": "a"}], [{"first_name": "a"}, {"firstName": 1}]),
    "generic struct": (Box[int], [Box(1)], [{"inside": "x"}]),
    "two of one generic": (Box[int] | None, [Box(1), None], [{"inside": "x"}]),
    "named tuple": (Point, [[1], [1, 2]], [["a"], []]),
    "typed dict": (Movie, [{}, {"title": "a", "year": 1}], [{"title": 1}]),
    "enum of numbers": (Level, [1, 2], [3, "1"]),
    "flag": (Mark, [1, 2], [4, "A"]),
    "constrained": (
        Annotated[int, msgspec.Meta(ge=1, lt=10)], [1, 9], [0, 10, "x"]
    ),
    "constrained text": (
        Annotated[str, msgspec.Meta(min_length=1, max_length=3)], ["a", "äöü"], ["", "abcd"]
    ),
    "constrained list": (
        Annotated[list[int], msgspec.Meta(max_length=2)], [[1]], [[1, 2, 3]]
    ),
    "pydantic": (
        Person,
        [{"name": "a", "home": {"city": "b"}, "friends": [{"name": "c"}]}, Person(name="a")],
        [{"age": 1}, {"name": "a", "age": -1}, {"name": "a", "home": {}}],
    ),
    "list of pydantic": (list[Address], [[{"city": "a"}]], [[{}], {"city": "a"}]),
    "optional pydantic": (Address | None, [None, {"city": "a"}], []),
    "new type": (UserId, [1], ["x"]),
    "datetime": (datetime, [datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00Z"], [[]]),
    "date": (date, [date(2026, 1, 1), "2026-01-01"], [[]]),
    "time": (time, ["12:00:00"], [[]]),
    "timedelta": (timedelta, [timedelta(seconds=3), "PT3S"], [[]]),
    "decimal": (Decimal, [Decimal("1.5"), "1.5", 1], [[]]),
    "uuid": (UUID, [UUID(int=7), str(UUID(int=7))], [[]]),
    "path": (Path, [Path("a"), "a"], [1]),
    "bound beyond 64 bits": (Large, [{"n": 1}], []),
    "anything": (Any, [1, None, [1]], []),
    "object": (object, [1, None], []),
    "type variable": (T, [1, "x"], []),
    "unknown class": (list[Opaque], [[]], []),
    "raw": (msgspec.Raw, [1, "x"], []),
}  # fmt: skip


def takes(kind: Any, content: Content) -> TaskDefinition:
    def function(value):  # type: ignore[no-untyped-def]
        raise NotImplementedError

    function.__annotations__ = {"value": kind}
    return TaskDefinition(function, name="function", content=content)


def payloads(values: list[Any], content: Content) -> list[bytes]:
    return [encode_value(content, ([value], {})) for value in values] + [
        encode_value(content, ([], {"value": value})) for value in values
    ]


@pytest.mark.parametrize("content", ["msgpack", "json"])
@pytest.mark.parametrize("name", KINDS)
def test_kind(name: str, content: Content) -> None:
    kind, good, bad = KINDS[name]
    definition = takes(kind, content)
    contract = contract_of(definition)
    assert signature("function", contract).startswith("function(value")
    msgspec.json.encode(arguments_schema(contract))
    check = CallCheck(contract)
    for payload in payloads(good, content):
        definition.arguments(payload)  # The worker takes it.
        assert check.problems(payload, {}) == [], payload
    for payload in payloads(bad, content):
        with pytest.raises(DecodeFailed):
            definition.arguments(payload)
        assert check.problems(payload, {}), payload


def by_place(a: int, b: str = "", /) -> None: ...


def by_name(*, a: int, b: str = "") -> None: ...


def by_both(a: int, /, b: int, *, c: int = 0) -> None: ...


def rest(a: int, *more: int) -> None: ...


def rest_named(a: int = 0, **more: int) -> None: ...


def all_kinds(a: int, /, b: int = 0, *more: str, c: int, d: int = 0, **others: bool) -> None: ...


def place_and_rest_named(a: int, /, **others: str) -> None: ...


def nothing() -> None: ...


CALLS: list[tuple[Any, list[tuple[Any, ...]], list[tuple[Any, ...]]]] = [
    (by_place, [(1,), (1, "b")], [(), (1, "b", 2), (1, {"b": "b"}), ({"a": 1},), ("x",)]),
    (by_name, [({"a": 1},), ({"a": 1, "b": "b"},)], [(), (1,), ({"b": "b"},), ({"a": 1, "z": 1},)]),
    (by_both, [(1, 2), (1, {"b": 2, "c": 3})], [(1,), (1, 2, 3), ({"a": 1, "b": 2},)]),
    (rest, [(1,), (1, 2, 3), ({"a": 1},)], [(), (1, "x"), (1, {"a": 1}), (1, {"more": 2})]),
    (rest_named, [(), (1,), ({"z": 1, "y": 2},)], [({"z": "x"},), (1, 2), (1, {"a": 1})]),
    (
        all_kinds,
        [(1, {"c": 1}), (1, 2, "m", "n", {"c": 1, "z": True}), (1, {"b": 2, "c": 1})],
        [(1,), (1, 2, 3, {"c": 1}), (1, {"c": 1, "z": 1}), ({"c": 1},)],
    ),
    # A name that is taken by place alone is free for the further ones.
    (place_and_rest_named, [(1, {"a": "x"}), (1, {"b": "x"})], [(1, {"a": 1}), ({"a": "x"},)]),
    (nothing, [()], [(1,), ({"a": 1},)]),
]


def payload_of(call: tuple[Any, ...]) -> bytes:
    kwargs = call[-1] if call and isinstance(call[-1], dict) else {}
    return encode_value("msgpack", (list(call[: len(call) - bool(kwargs)]), kwargs))


@pytest.mark.parametrize("case", CALLS, ids=lambda case: case[0].__name__)
def test_parameters(case: tuple[Any, list[tuple[Any, ...]], list[tuple[Any, ...]]]) -> None:
    function, good, bad = case
    definition = TaskDefinition(function)
    check = CallCheck(contract_of(definition))
    for call in good:
        definition.call(payload_of(call))
        assert check.problems(payload_of(call), {}) == [], call
    for call in bad:
        with pytest.raises((DecodeFailed, TypeError)):
            definition.call(payload_of(call))
        assert check.problems(payload_of(call), {}), call


class Odd:
    def __repr__(self) -> str:
        raise RuntimeError("no")


DEFAULTS = [
    object(), Odd(), lambda: 1, b"ab", float("nan"), float("inf"), 10**30, {1, 2}, Tree("a"),
    Level.LOW, Path("a"), {(1, 2): 3}, datetime(2026, 1, 1, tzinfo=UTC), Address(city="a"),
    "\udcff", ..., int, "x" * 200_000,
]  # fmt: skip


@pytest.mark.parametrize("default", DEFAULTS, ids=range(len(DEFAULTS)))
def test_default_of_any_kind(default: Any) -> None:
    def function(a: int, value=default) -> None: ...  # type: ignore[no-untyped-def]

    definition = TaskDefinition(function, name="function")
    (declared,) = contracts_of([definition]).values()
    msgspec.json.encode(declared)
    msgspec.msgpack.encode(declared)
    contract = msgspec.convert(declared, Contract)
    assert signature("function", contract).startswith("function(a: integer, value = ")
    check = CallCheck(contract)
    assert check.problems(encode_value("msgpack", ([1], {})), {}) == []
    assert check.problems(encode_value("msgpack", (["x"], {})), {})
