"""Arguments of a node that refer to results of others: how they travel, and what they become."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import State
from jackalope.core.shapes.flow import Input
from jackalope.core.task import BlobRef, Error
from jackalope.tasks.definition import TaskDefinition
from jackalope.tasks.inputs import NodeError
from jackalope.tasks.references import Pending, Reference, read_plain
from jackalope.tasks.serialization import Content, DecodeFailed, Stream, encode_value

TASK = TaskId(bytes(16))


class Standing(Pending):
    """Stands for a result."""

    def __init__(self, **where: Any) -> None:
        self._where = where

    def reference(self) -> Reference:
        return Reference(**self._where)


def left(node: str, value: object, group: str = "", content: Content = "msgpack") -> Input:
    return Input(node, TASK, State.SUCCEEDED, encode_value(content, value), group=group)


def failed(node: str, group: str = "") -> Input:
    return Input(node, TASK, State.DEAD, error=Error("ValueError", "no", "trace"), group=group)


@dataclass
class Box:
    size: int
    owner: UUID


def arguments(
    function: Any, inputs: list[Input], *args: Any, content: Content = "msgpack", **kwargs: Any
) -> tuple[list[Any], dict[str, Any]]:
    definition = TaskDefinition(function, name="f", content=content)
    return definition.arguments(definition.payload(args, kwargs), inputs=inputs)


@pytest.mark.parametrize("content", ["msgpack", "json"])
def test_results_stand_where_references_were(content: Content) -> None:
    def function(a: int, b: list[int], *, c: dict[str, Any], d: str = "d") -> None: ...

    given = [left("x", 3, content=content), left("y", [4, 5], content=content)]
    args, kwargs = arguments(
        function,
        given,
        Standing(node="x"),
        [1, Standing(node="x")],
        c={"deep": [Standing(node="y"), 2]},
        d="plain",
        content=content,
    )
    assert args == [3, [1, 3]]
    assert kwargs == {"c": {"deep": [[4, 5], 2]}, "d": "plain"}


@pytest.mark.parametrize("content", ["msgpack", "json"])
def test_a_result_becomes_what_the_parameter_says(content: Content) -> None:
    def function(box: Box, ids: set[UUID]) -> None: ...

    owner = UUID(int=7)
    given = [left("x", Box(2, owner), content=content), left("y", owner, content=content)]
    args, _ = arguments(function, given, Standing(node="x"), [Standing(node="y")], content=content)
    assert args == [Box(2, owner), {owner}]


def test_a_result_of_another_type_is_refused_like_any_argument() -> None:
    def function(width: int) -> None: ...

    with pytest.raises(DecodeFailed, match="argument 'width': Expected `int`, got `str`"):
        arguments(function, [left("x", "wide")], Standing(node="x"))


def test_a_group_is_a_list_in_its_order_and_leaves_out_what_did_not_come() -> None:
    def function(results: list[int], these: list[int], one: int | None) -> None: ...

    given = [left("a", 1), left("m2", 22, "g"), left("m1", 11, "g"), left("other", 5, "h")]
    args, _ = arguments(
        function,
        given,
        Standing(group="g"),
        Standing(nodes=("m1", "gone", "a")),
        Standing(node="gone"),
    )
    assert args == [[22, 11], [11, 1], None]


def test_a_failure_is_a_value() -> None:
    def function(one: int | NodeError, every: list[Any], untyped) -> None: ...  # type: ignore[no-untyped-def]

    given = [failed("x", "g"), left("y", 1, "g"), Input("z", TASK, State.KILLED, group="g")]
    args, _ = arguments(
        function, given, Standing(node="x"), Standing(group="g"), [Standing(node="z")]
    )
    error = NodeError("x", State.DEAD, "ValueError", "no", "trace")
    assert args == [error, [error, 1, NodeError("z", State.KILLED)], [NodeError("z", State.KILLED)]]
    assert str(error) == "x is dead: ValueError: no"
    assert str(args[2][0]) == "z is killed"


def test_a_failure_where_a_result_is_declared_is_refused() -> None:
    def function(width: int) -> None: ...

    with pytest.raises(DecodeFailed, match="argument 'width'"):
        arguments(function, [failed("x")], Standing(node="x"))


def test_results_of_another_content() -> None:
    def function(a: int, raw: bytes) -> None: ...

    given = [left("x", 3, content="json"), Input("y", TASK, State.SUCCEEDED, b"\x00raw")]
    args, _ = arguments(
        function, given, Standing(node="x", content="json"), Standing(node="y", content="bytes")
    )
    assert args == [3, b"\x00raw"]
    with pytest.raises(DecodeFailed, match="content 'pickle' is not known here"):
        arguments(function, given, Standing(node="x", content="pickle"), b"")


def test_a_result_that_cannot_be_read_names_its_node() -> None:
    def function(a: int) -> None: ...

    with pytest.raises(DecodeFailed, match="the result of x"):
        arguments(function, [Input("x", TASK, State.SUCCEEDED, b"\xc1")], Standing(node="x"))


def test_a_large_result_is_in_a_file(tmp_path: Path) -> None:
    def function(a: list[int]) -> None: ...

    file = tmp_path / "body"
    file.write_bytes(encode_value("msgpack", [1, 2, 3]))
    given = Input("x", TASK, State.SUCCEEDED, BlobRef(str(file), file.stat().st_size))
    assert arguments(function, [given], Standing(node="x")) == ([[1, 2, 3]], {})


def test_a_task_of_bytes_gets_those_of_its_first_predecessor(tmp_path: Path) -> None:
    def plain(data: bytes) -> None: ...

    def stream(data: Stream) -> None: ...

    given = [Input("x", TASK, State.SUCCEEDED, b"raw")]
    definition = TaskDefinition(plain, name="f", content="bytes")
    assert definition.arguments(b"", inputs=given) == ([b"raw"], {})
    assert definition.arguments(b"own", inputs=given) == ([b"own"], {})
    (found,), _ = TaskDefinition(stream, name="f", content="bytes").arguments(b"", inputs=given)
    assert found.read() == b"raw"


def test_what_only_looks_like_a_reference_is_data() -> None:
    def function(a: dict[str, Any]) -> None: ...

    looks = [{"$result": 3}, {"$result": "x", "more": 1}, {"$results": [1]}, {"$result": ""}]
    for value in looks:
        assert read_plain(value) is None
        args, _ = arguments(function, [left("x", 1)], value, content="json")
        assert args == [value]


def test_another_extension_of_messagepack_stays_what_it_is() -> None:
    def function(a, b) -> None: ...  # type: ignore[no-untyped-def]

    args, _ = arguments(
        function, [left("x", 1)], [msgspec.msgpack.Ext(5, b"abc"), Standing(node="x")], 2
    )
    assert isinstance(args[0][0], msgspec.msgpack.Ext)
    assert args[0][0].code == 5
    assert args[0][1] == 1


def test_a_call_without_references_is_read_as_ever() -> None:
    def function(a: int, owner: UUID) -> None: ...

    args, _ = arguments(function, [left("x", 1)], 4, UUID(int=1))
    assert args == [4, UUID(int=1)]
    with pytest.raises(DecodeFailed, match="missing a required argument"):
        TaskDefinition(function, name="f").arguments(
            encode_value("msgpack", ([1], {})), inputs=[left("x", 1)]
        )
