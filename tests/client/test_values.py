"""Arguments and results as bytes, and back as the types that the function declares."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import functools
import types
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypedDict

import msgspec
import pytest

from jackalope.core.limits import ERROR_CHARS_MAX
from jackalope.errors import ConfigError, JackalopeError
from jackalope.tasks.context import current, running
from jackalope.tasks.definition import TaskDefinition, default_name
from jackalope.tasks.serialization import (
    Content,
    DecodeFailed,
    EncodeFailed,
    decode_value,
    encode_value,
    error_of,
)

if TYPE_CHECKING:
    from nowhere import Missing  # type: ignore[import-not-found]


class Colour(enum.Enum):
    RED = "red"


class Point(msgspec.Struct):
    x: int
    y: int = 0


@dataclasses.dataclass
class Box:
    corner: Point
    label: str


class Pair(NamedTuple):
    left: int
    right: int


class Row(TypedDict):
    name: str


@dataclasses.dataclass
class _Fields:
    name: str
    size: int


class Model:
    """What a pydantic model looks like from outside."""

    def __init__(self, **fields: Any) -> None:
        self.fields = _Fields(**fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and other.fields == self.fields

    __hash__ = None  # type: ignore[assignment]

    def model_dump(self) -> dict[str, Any]:
        return dataclasses.asdict(self.fields)

    @classmethod
    def model_validate(cls, fields: dict[str, Any]) -> Self:
        return cls(**fields)


TYPED: list[tuple[Any, Any]] = [
    (None, type(None)),
    (True, bool),
    (2**53, int),
    (1.5, float),
    ("text", str),
    (b"\x00\xff", bytes),
    ([1, 2], list[int]),
    ((1, "a"), tuple[int, str]),
    ({1, 2}, set[int]),
    ({"a": 1}, dict[str, int]),
    (dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC), dt.datetime),
    (dt.date(2026, 1, 2), dt.date),
    (dt.timedelta(seconds=5), dt.timedelta),
    (uuid.UUID(int=5), uuid.UUID),
    (decimal.Decimal("1.10"), decimal.Decimal),
    (Colour.RED, Colour),
    (Point(1, 2), Point),
    (Box(Point(1), "b"), Box),
    ([Box(Point(1), "b")], list[Box]),
    (Pair(1, 2), Pair),
    ({"name": "n"}, Row),
    (PurePosixPath("/a/b"), PurePosixPath),
    (Path("a"), Path),
    (Model(name="n", size=3), Model),
    (None, Point | None),
]


@pytest.mark.parametrize("content", ["msgpack", "json"])
@pytest.mark.parametrize(("value", "kind"), TYPED, ids=lambda value: repr(value)[:40])
def test_value_comes_back_as_its_type(content: Content, value: Any, kind: Any) -> None:
    back = decode_value(content, encode_value(content, value), kind)
    assert back == value
    assert type(back) is type(value)


def test_none_costs_no_bytes() -> None:
    assert encode_value("msgpack", None) == encode_value("json", None) == b""
    assert decode_value("msgpack", b"") is None


def test_raw_bytes_stay_what_they_are() -> None:
    assert encode_value("bytes", bytearray(b"ab")) == b"ab"
    assert decode_value("bytes", b"ab") == b"ab"
    assert decode_value("bytes", b"", bytes) == b""
    with pytest.raises(EncodeFailed, match="must be, not str"):
        encode_value("bytes", "text")


@pytest.mark.parametrize("value", [object(), {"deep": [object]}, lambda: None, 1j])
def test_what_has_no_encoding_says_so(value: object) -> None:
    with pytest.raises(EncodeFailed, match=r"cannot be sent; make it a dataclass|int64|complex"):
        encode_value("msgpack", value)


def test_endless_value_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(EncodeFailed):
        encode_value("msgpack", endless)


@pytest.mark.parametrize("data", [b"\xc1", b"\x92\x01", b"\xff" * 3])
def test_bad_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeFailed):
        decode_value("msgpack", data)


# Calls.


def define(function: Callable[..., Any], **settings: Any) -> TaskDefinition:
    return TaskDefinition(function, **{"name": "app.f", **settings})


def round_trip(definition: TaskDefinition, *args: Any, **kwargs: Any) -> Any:
    return definition.call(definition.payload(args, kwargs))


@pytest.mark.parametrize("content", ["msgpack", "json"])
def test_call_arrives_with_its_types(content: Content) -> None:
    def paint(box: Box, *points: Point, colour: Colour = Colour.RED, **more: Pair) -> Any:
        return box, points, colour, more

    given = round_trip(
        define(paint, content=content), Box(Point(1), "b"), Point(2), Point(3), extra=Pair(1, 2)
    )
    assert given == (Box(Point(1), "b"), (Point(2), Point(3)), Colour.RED, {"extra": Pair(1, 2)})


def test_untyped_call_arrives_as_plain_values() -> None:
    def paint(a, b=2, *rest, **more):  # type: ignore[no-untyped-def]
        return a, b, rest, more

    assert round_trip(define(paint), 1, 2, [3], x={"y": 4}) == (1, 2, ([3],), {"x": {"y": 4}})


def test_call_without_arguments_needs_no_payload() -> None:
    assert define(lambda: "done").call(b"") == "done"


def test_none_is_allowed_where_it_is_the_default() -> None:
    def paint(width: int = None) -> Any:  # type: ignore[assignment]  # noqa: RUF013
        return width

    assert round_trip(define(paint), None) is None


def test_annotation_that_cannot_be_evaluated_checks_nothing() -> None:
    def paint(what: Missing, width: int) -> Missing:
        return what, width

    assert round_trip(define(paint), {"a": 1}, "wide") == ({"a": 1}, "wide")


def test_annotation_beyond_msgspec_checks_nothing() -> None:
    def paint(what: Callable[[], int] | dict[str, int] | Row) -> Any:
        return what

    assert round_trip(define(paint), {"a": "b"}) == {"a": "b"}


@pytest.mark.parametrize(
    ("args", "kwargs", "why"),
    [
        (("a", "wide"), {}, "app.f: argument 'width': Expected `int`, got `str`"),
        (("a",), {"width": [1]}, "app.f: argument 'width': Expected `int`, got `array`"),
        ((), {}, "app.f: missing a required argument: 'path'"),
        (("a", 1, 2), {}, "app.f: too many positional arguments"),
        (("a",), {"height": 3}, "app.f: got an unexpected keyword argument 'height'"),
    ],
)
def test_worker_refuses_a_call_that_does_not_fit(
    args: tuple[Any, ...], kwargs: dict[str, Any], why: str
) -> None:
    def resize(path: str, width: int = 1) -> None: ...

    payload = encode_value("msgpack", (args, kwargs))
    with pytest.raises(DecodeFailed) as raised:
        define(resize).arguments(payload)
    assert str(raised.value) == why


@pytest.mark.parametrize("payload", [b"\xc0", b"\x01", b"nonsense", b"\x92\x90"])
def test_worker_refuses_a_payload_that_is_no_call(payload: bytes) -> None:
    def resize(path: str) -> None: ...

    with pytest.raises(DecodeFailed, match=r"app\.f: the payload is not a call"):
        define(resize).arguments(payload)


def test_client_refuses_a_call_that_does_not_fit() -> None:
    def resize(path: str, *, width: int) -> None: ...

    definition = define(resize)
    with pytest.raises(TypeError, match="missing a required"):
        definition.payload(("a",), {})
    with pytest.raises(TypeError, match="too many positional"):
        definition.payload(("a", 1), {})
    assert definition.payload(("a",), {"width": 1})


def test_header_decides_about_the_content() -> None:
    def resize(path: str) -> str:
        return path

    definition = define(resize)
    assert definition.call(b'[["a"],{}]', "json") == "a"
    with pytest.raises(DecodeFailed, match="content 'pickle' is not known"):
        definition.arguments(b"", "pickle")  # type: ignore[arg-type]


def test_bytes_go_straight_through() -> None:
    def shout(data: bytes) -> bytes:
        return data.upper()

    definition = define(shout, content="bytes")
    assert definition.payload((b"abc",), {}) == b"abc"
    assert definition.encode_result(definition.call(b"abc")) == b"ABC"
    with pytest.raises(EncodeFailed, match="takes one argument by place"):
        definition.payload((), {"data": b"abc"})


# Results.


def test_result_comes_back_as_the_declared_type() -> None:
    def make() -> list[Box]:
        return []

    definition = define(make)
    result = [Box(Point(1, 2), "b")]
    assert definition.result(definition.encode_result(result)) == result


def test_result_of_another_type_comes_back_as_it_is() -> None:
    def make() -> int:
        return 0

    definition = define(make)
    assert definition.result(definition.encode_result("text")) == "text"


def test_result_without_encoding_names_the_task() -> None:
    with pytest.raises(EncodeFailed, match=r"the result of app\.f: .*object cannot be sent"):
        define(lambda: None).encode_result(object())


def test_result_that_is_not_in_the_content_is_refused() -> None:
    with pytest.raises(DecodeFailed):
        define(lambda: None).result(b"\xc1")


# Definitions.


async def coroutine(x: int) -> int:
    return x


def test_isolation_follows_the_function() -> None:
    assert define(coroutine).isolation == "async"
    assert define(lambda: None).isolation == "thread"
    assert define(coroutine, isolation="process").isolation == "process"
    assert define(coroutine).is_async


def test_name_is_where_the_function_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    assert TaskDefinition(coroutine).name == "tests.client.test_values.coroutine"
    main = types.SimpleNamespace(__spec__=None, __file__="shop/orders.py")
    monkeypatch.setitem(__import__("sys").modules, "__main__", main)
    monkeypatch.setattr(coroutine, "__module__", "__main__")
    assert default_name(coroutine) == "orders.coroutine"
    main.__spec__ = types.SimpleNamespace(name="shop.orders.__main__")
    assert default_name(coroutine) == "shop.orders.coroutine"


def test_what_cannot_be_a_task_is_refused_with_every_reason() -> None:
    def generator() -> Iterator[int]:
        yield 1

    async def async_generator() -> AsyncIterator[int]:
        yield 1

    for function in (generator, async_generator):
        with pytest.raises(ConfigError, match="it is a generator"):
            define(function)
    with pytest.raises(ConfigError) as raised:
        define(lambda: None, content="pickle", isolation="vm", queue="", timeout_us=-1)
    for part in ("content: one of", "isolation: one of", "queue: 1 to 256", "timeout_us: must not"):
        assert part in str(raised.value)
    with pytest.raises(ConfigError, match="would block the loop"):
        define(lambda: None, isolation="async")
    with pytest.raises(ConfigError, match="has no name of its own"):
        TaskDefinition(functools.partial(print))


# Failures.


def raise_it(error: BaseException) -> BaseException:
    with pytest.raises(type(error)) as raised:
        raise error
    return raised.value


def test_exception_is_described_with_type_message_and_trace() -> None:
    error = error_of(raise_it(ValueError("bad width")))
    assert (error.type, error.message) == ("ValueError", "bad width")
    assert "in raise_it" in error.trace
    assert (
        error_of(raise_it(DecodeFailed("x"))).type == "jackalope.tasks.serialization.DecodeFailed"
    )


def test_exception_without_bounds_is_cut() -> None:
    error = error_of(raise_it(ValueError("x" * 100_000)))
    assert len(error.message) <= ERROR_CHARS_MAX
    assert len(error.trace) <= ERROR_CHARS_MAX
    assert error.trace.startswith("Traceback")
    assert "[...]" in error.trace


def test_exception_that_cannot_be_shown_is_still_described() -> None:
    class Rude(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    error = error_of(raise_it(Rude()))
    assert "cannot be shown" in error.message
    assert encode_value("msgpack", error_of(raise_it(ValueError("\udcff"))).message)


# The running task.


def test_current_is_for_code_that_a_worker_runs() -> None:
    with pytest.raises(JackalopeError, match="no task is running here"):
        current()
    marker: Any = object()
    token = running.set(marker)
    assert current() is marker
    running.reset(token)
