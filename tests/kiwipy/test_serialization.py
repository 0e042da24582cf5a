"""Bodies come back as they were, whichever way they are encoded."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import plumpy
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from jackalope.kiwipy.serialization import DECODER, ENCODER, Coding

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    | st.binary(max_size=8)
    | st.tuples(st.integers()),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab") | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(plain)
def test_values_and_their_types_come_back(value: Any) -> None:
    coding = Coding(ENCODER, DECODER)
    back = coding.decode(coding.encode(value))
    assert repr(_sorted(back)) == repr(_sorted(value))


def _sorted(value: Any) -> Any:
    """Put maps into one order, which YAML does not keep."""
    if isinstance(value, dict):
        return sorted(((repr(key), _sorted(item)) for key, item in value.items()))
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def test_what_is_no_number_stays_none() -> None:
    coding = Coding(ENCODER, DECODER)
    assert math.isnan(coding.decode(coding.encode(math.nan)))


def test_an_encoder_of_ones_own_is_used_for_everything() -> None:
    coding = Coding(json.dumps, json.loads)
    assert coding.encode({"a": (1,)}) == b'{"a": [1]}'


@pytest.mark.parametrize(
    "body",
    [
        "!!python/name:os.system",
        "!!python/name:jackalope.kiwipy.serialization.Coding",
        "!!python/module:os",
        "!!python/object:pathlib.Path {}",
        "!!python/object/new:os.system [true]",
        "!!python/object/apply:os.system [true]",
    ],
)
def test_a_message_names_nothing_of_who_reads_it(body: str) -> None:
    with pytest.raises(yaml.constructor.ConstructorError, match="could not determine"):
        Coding(ENCODER, DECODER).decode(body.encode())


def test_what_plumpy_teaches_yaml_comes_back() -> None:
    async def pid() -> Any:
        return plumpy.Process().pid  # Outside of a loop it would make one, and leave it open.

    coding, value = Coding(ENCODER, DECODER), {"pid": asyncio.run(pid()), "at": (1, 2j)}
    assert coding.decode(coding.encode(value)) == value


@pytest.mark.parametrize("value", [1, (1, 2), {"a": [None]}])
def test_communicators_with_other_coding_read_it(value: Any) -> None:
    ours, theirs = Coding(ENCODER, DECODER), Coding(yaml.dump, yaml.unsafe_load)
    assert theirs.decode(ours.encode(value)) == value
    assert ours.decode(theirs.encode(value)) == value
