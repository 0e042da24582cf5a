"""Values of every shape that a message can have, drawn by chance from the shape itself.

A message or field that is added is covered without a word here.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from jackalope.wire import messages
from jackalope.wire.frames import Kind
from jackalope.wire.messages import FROM_BROKER, TO_BROKER, AnyMessage

#: Each message with the kind of frame that carries it and the direction that it goes in.
MESSAGES: list[tuple[str, Kind, type[AnyMessage]]] = [
    ("to", kind, shape) for kind, shape in TO_BROKER.items()
] + [("from", kind, shape) for kind, shape in FROM_BROKER.items()]


def name_of(entry: object) -> str | None:
    """Name a parameter of a test."""
    return entry.__name__ if isinstance(entry, type) else None


#: All that MessagePack can hold where anything may stand.
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


#: Depths at which something changes: ours, where the interpreter's stack ends, and far beyond.
DEPTHS = (1, 2, 63, 64, 65, 66, 200, *range(940, 1_001, 5), 1_500, 20_000)


def nested(depth: int, bracket: str = "list", inmost: Any = 1) -> Any:
    """Return a value inside so many lists or maps, in each of which is nothing else."""
    value = inmost
    for _ in range(depth):
        value = [value] if bracket == "list" else {"a": value}
    return value


def nested_json(depth: int, bracket: str = "list") -> bytes:
    """Return the same as JSON; no encoder goes that deep."""
    begin, end = (b"[", b"]") if bracket == "list" else (b'{"a":', b"}")
    return begin * depth + b"1" + end * depth


def nested_msgpack(depth: int, bracket: str = "list") -> bytes:
    """Return the same as MessagePack; no encoder goes that deep."""
    return (b"\x91" if bracket == "list" else b"\x81\xa1a") * depth + b"\x01"


class Shapes:
    """Draws values of types; whole numbers, texts and bytes come from where it is told.

    What may be one of several things is none of those named by `never`.
    """

    def __init__(
        self,
        numbers: st.SearchStrategy[int] = st.integers(-(2**63), 2**64 - 1),  # noqa: B008
        texts: st.SearchStrategy[str] = st.text(max_size=8),  # noqa: B008
        blobs: st.SearchStrategy[bytes] = st.binary(max_size=20),  # noqa: B008
        never: tuple[type, ...] = (),
    ) -> None:
        self._never = never
        self._strategies: dict[type, Callable[[Any], st.SearchStrategy[Any]]] = {
            inspect.AnyType: lambda _: anything,
            inspect.NoneType: lambda _: st.none(),
            inspect.BoolType: lambda _: st.booleans(),
            inspect.IntType: lambda _: numbers,
            inspect.FloatType: lambda _: st.floats(allow_nan=False),
            inspect.StrType: lambda _: texts,
            inspect.BytesType: lambda _: blobs,
            inspect.EnumType: lambda info: st.sampled_from(list(info.cls)),
            inspect.UnionType: self._union,
            inspect.ListType: lambda info: self._list(info.item_type),
            inspect.VarTupleType: lambda info: self._list(info.item_type).map(tuple),
            inspect.TupleType: lambda info: st.tuples(*map(self._of, info.item_types)),
            inspect.DictType: lambda info: st.dictionaries(
                self._of(info.key_type), self._of(info.value_type), max_size=3
            ),
            inspect.StructType: self._struct,
        }

    def of(self, kind: Any) -> st.SearchStrategy[Any]:
        """Draw values of a type."""
        return self._of(inspect.type_info(kind))

    def _of(self, info: Any) -> st.SearchStrategy[Any]:
        return self._strategies[type(info)](info)

    def _list(self, items: Any) -> st.SearchStrategy[list[Any]]:
        return st.lists(self._of(items), max_size=3)

    def _union(self, info: inspect.UnionType) -> st.SearchStrategy[Any]:
        allowed = [one for one in info.types if getattr(one, "cls", None) not in self._never]
        return st.one_of(*map(self._of, allowed))

    def _struct(self, info: inspect.StructType) -> st.SearchStrategy[Any]:
        # In one draw and by position, which is several times faster than `builds`.
        fields = st.tuples(*(self._of(field.type) for field in _visible(info)))
        return fields.map(lambda drawn: info.cls(*drawn))


@cache
def values(kind: Any) -> st.SearchStrategy[Any]:
    """Draw any values of a type."""
    return Shapes().of(kind)


def fields_of(shape: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    """Return the fields of a shape, in their order."""
    info = inspect.type_info(shape)
    assert isinstance(info, inspect.StructType)
    return _visible(info)


def _visible(info: inspect.StructType) -> tuple[inspect.Field, ...]:
    """Return the fields that travel: what a door sets in a command comes after them."""
    return info.fields[: len(messages.fields_of(info.cls))]
