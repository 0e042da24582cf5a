"""Strategies for the core's structs, drawn from their own field types.

A new field or a new record is covered without a change here.
"""

import enum
import types
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st

#: What MessagePack can hold.
numbers = st.integers(-(2**63), 2**64 - 1)
texts = st.text(max_size=8)
bodies = st.binary(max_size=16)
floats = st.floats(allow_nan=False)

#: What a submitter may put into headers.
values = st.recursive(
    st.none() | st.booleans() | numbers | floats | texts | bodies,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)

_PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    int: numbers,
    str: texts,
    bytes: bodies,
    float: floats,
    bool: st.booleans(),
    Any: values,
    type(None): st.none(),
}


def of(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a type."""
    kind = getattr(kind, "__supertype__", kind)
    if get_origin(kind) is Annotated:
        return of(kind.__origin__)  # Bounds do not keep a value from being stored and sent.
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin = get_origin(kind)
    if origin is tuple and ... not in get_args(kind):
        return st.tuples(*map(of, get_args(kind)))
    if origin is not None:
        return _of_generic(origin, [of(argument) for argument in get_args(kind) if argument != ...])
    if issubclass(kind, enum.Enum):
        return st.sampled_from(kind)
    fields = {field.name: of(field.type) for field in msgspec.structs.fields(kind)}
    return st.builds(kind, **fields)


def _of_generic(origin: Any, inner: list[st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    if origin in (Union, types.UnionType):
        return st.one_of(inner)
    if origin is dict:
        return st.dictionaries(*inner, max_size=3)
    return st.lists(*inner, max_size=3).map(origin)
