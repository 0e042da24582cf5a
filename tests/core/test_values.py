"""Free values: what the core accepts can be encoded, decoded again and shown; the rest is refused.

Drawn from all that the decoders of the doors can return where anything may stand, and from some
that only a bug in a door could let through.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from jackalope.core.commands import AnyCommand
from jackalope.core.commands.amqp import Bind, OpenExchange, OpenQueue, SetRule, Unbind
from jackalope.core.limits import ARGUMENTS_BYTES_MAX, DEPTH_MAX, HEADERS_BYTES_MAX
from jackalope.core.records import decode_batch, encode_batch
from jackalope.core.refusals import Code
from jackalope.core.shapes.exchange import Binding, Exchange, Kind, Rule
from jackalope.core.shapes.flow import Compensation
from jackalope.core.state.changes import from_entities
from jackalope.core.task import Options, TaskRow, to_row
from jackalope.core.values import FREE, shape_problem, value_problem
from jackalope.storage.sqlite.schema import (
    COLUMNS,
    WHOLE,
    decode_heads,
    encode_rows,
    from_columns,
    to_columns,
)
from tests.core.driving import Driver, refusal_in
from tests.profiles import examples
from tests.wire.shapes import DEPTHS, nested

#: Sound and unsound leaves.
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["\ud800", "\udcff", "\0", "x" * 20_000]),
    st.binary(max_size=5),
    st.just(datetime(2026, 1, 1, tzinfo=UTC)),
    st.just(msgspec.msgpack.Ext(5, b"x")),
    st.just(object()),
)
names = st.one_of(
    st.text(max_size=5), st.sampled_from(["\ud800", 1, -(2**70), 1.5, b"b", None, True, (1, (2,))])
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=2).map(tuple)
        | st.dictionaries(names, inner, max_size=3)
    ),
    max_leaves=6,
)
deep = st.builds(
    nested,
    st.sampled_from([depth for depth in DEPTHS if depth < 2_000]),
    st.sampled_from(["list", "map"]),
    values,
)


def fits(value: object, bytes_max: int) -> bool:
    """Tell whether a value survives everything that is done to it later."""
    try:
        data = msgspec.msgpack.encode(value)
        msgspec.msgpack.encode(msgspec.msgpack.decode(data))
        msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False
    return len(data) <= bytes_max and depth_of(value) <= DEPTH_MAX


def depth_of(value: object, limit: int = DEPTH_MAX + 3) -> int:
    """Return how deep a value nests, as plainly as that can be said; no further than a limit."""
    if not limit or not isinstance(value, list | tuple | dict):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max((depth_of(each, limit - 1) for each in inner), default=0)


@settings(max_examples=examples(300))
@given(st.dictionaries(st.text(max_size=4), values | deep, max_size=3))
def test_what_is_accepted_can_be_stored_and_shown(headers: dict[str, Any]) -> None:
    driver = Driver()
    refusal = refusal_in(driver.submit(1, headers=headers))
    assert (refusal is None) is fits(headers, HEADERS_BYTES_MAX)
    if refusal is not None:
        assert refusal.code is Code.INVALID
        assert not driver.recorded()
        return
    # The driver has encoded the batch: it is read as a start reads it, and so is the row.
    for body in driver.journal:
        assert encode_batch(decode_batch(body)) == body
    row = to_row(driver.task(1))
    ((head, encoded),) = decode_heads(encode_rows([row]))
    columns = dict(zip(_COLUMN_NAMES, to_columns(head, encoded), strict=True))
    back = from_columns("tasks.db", [_plain(columns[name]) for name in WHOLE.split(", ")])
    assert msgspec.msgpack.encode(back) == msgspec.msgpack.encode(row)
    assert isinstance(back, TaskRow)


@settings(max_examples=examples(200))
@given(st.dictionaries(st.text(max_size=4), values | deep, max_size=3), st.data())
def test_declarations_that_are_accepted_can_be_stored(
    arguments: dict[str, Any], data: st.DataObject
) -> None:
    driver = Driver()
    driver.send(OpenQueue(queue="q"))
    commands: list[AnyCommand] = [
        OpenQueue(queue="new", arguments=arguments),
        OpenExchange(exchange=Exchange("x", Kind.FANOUT, arguments=arguments)),
        Bind(binding=Binding("amq.headers", "q", arguments=arguments)),
        Unbind(binding=Binding("amq.headers", "q", arguments=arguments)),
        SetRule(rule=Rule("r", "^never$", arguments)),
    ]
    refusal = refusal_in(driver.send(data.draw(st.sampled_from(commands))))
    if not fits(arguments, ARGUMENTS_BYTES_MAX):
        assert refusal is not None
    for body in driver.journal:
        assert encode_batch(decode_batch(body)) == body
    for _, value in from_entities(driver.core.book.take_changes().entities):
        msgspec.json.encode(value)


@pytest.mark.parametrize("pattern", ["(" * 5_000, "(" * 250 + ")" * 250, "a{99999999999999}", "["])
def test_a_pattern_that_cannot_be_compiled_is_refused(pattern: str) -> None:
    rule = Rule("r", pattern, {"message-ttl": 1})
    refusal = refusal_in(Driver().send(SetRule(rule=rule)))
    assert refusal is not None
    assert refusal.code is Code.INVALID


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("bracket", ["list", "map"])
@pytest.mark.parametrize("inmost", [1, [], {}], ids=repr)
def test_depth_is_counted_exactly(depth: int, bracket: str, inmost: object) -> None:
    whole = depth + isinstance(inmost, list | dict)
    problem = shape_problem(nested(depth, bracket, inmost))
    assert bool(problem) is (whole > DEPTH_MAX)
    assert bool(value_problem(nested(depth, bracket, inmost), 2**20)) is (whole > DEPTH_MAX)


def test_every_command_with_free_values_is_checked() -> None:
    """Headers are checked task by task; all other free values are in the table."""
    free = {
        command for command in get_args(AnyCommand) if any(_is_free(kind) for kind in _all(command))
    }
    assert free == set(FREE)


# Help.

_COLUMN_NAMES = tuple(COLUMNS)


def _plain(value: object) -> object:
    """Return a value as SQLite gives it back."""
    return bytes(value) if isinstance(value, bytearray) else value


def _is_free(info: Any) -> bool:
    return isinstance(info, inspect.AnyType) or (
        isinstance(info, inspect.CustomType) and info.cls is object
    )


def _all(kind: Any) -> Iterator[Any]:
    """Yield every type that is inside a type, but for the options of a task and its undoing."""
    yield from _inside(inspect.type_info(kind), set())


def _inside(info: Any, seen: set[Any]) -> Iterator[Any]:
    yield info
    if isinstance(info, inspect.StructType):
        if info.cls in seen or info.cls in (Options, Compensation):
            return
        seen.add(info.cls)
        for field in info.fields:
            yield from _inside(field.type, seen)
    for name in ("item_type", "key_type", "value_type"):
        if hasattr(info, name):
            yield from _inside(getattr(info, name), seen)
    for each in getattr(info, "types", ()) or getattr(info, "item_types", ()):
        yield from _inside(each, seen)
