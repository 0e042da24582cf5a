"""How views are shown: by rule, and the same as the description of the API promises."""

import msgspec
import pytest

from jackalope.core.assertions import BrokenInvariant
from jackalope.core.ids import TaskId
from jackalope.doors.http.rest.schemas import shape_of

TASK = TaskId(bytes(range(16)))
TEXT = "00010203-0405-0607-0809-0a0b0c0d0e0f"


class Inner(msgspec.Struct):
    at_us: int


class View(msgspec.Struct):
    task: TaskId
    parent: TaskId
    others: tuple[TaskId, ...]
    made_us: int
    until_us: int
    by: str
    one: Inner | None
    many: tuple[Inner, ...]
    took_us: int = 0
    raw: bytes = b"\xff"


SHOW_INNER = shape_of(Inner, "InnerShown", "What is within.")
SHOW = shape_of(
    View,
    "ViewShown",
    "What is around.",
    nullable=("parent", "by"),
    inner={"one": SHOW_INNER, "many": SHOW_INNER},
    made={"raw": (str, bytes.hex)},
    defaults={"by": None},
)


def test_every_rule() -> None:
    first = Inner(1_000_000)
    full = SHOW(View(TASK, TASK, (TASK,), 1_000_000, 2_000_000, "me", first, (first,)))
    assert msgspec.to_builtins(full) == {
        "task": TEXT,
        "parent": TEXT,
        "others": (TEXT,),
        "made_at": "1970-01-01T00:00:01Z",
        "until_at": "1970-01-01T00:00:02Z",
        "by": "me",
        "one": {"at": "1970-01-01T00:00:01Z"},
        "many": [{"at": "1970-01-01T00:00:01Z"}],
        "took_seconds": None,
        "raw": "ff",
    }


def test_what_is_empty() -> None:
    empty = msgspec.to_builtins(SHOW(View(TASK, TaskId(b""), (), 0, 0, "", None, ())))
    nulls = {name for name, value in empty.items() if value is None}
    assert nulls == {"parent", "made_at", "until_at", "by", "one", "took_seconds"}
    assert (empty["others"], empty["many"]) == ((), [])


def test_the_description() -> None:
    _, parts = msgspec.json.schema_components([SHOW.shown])
    assert parts["ViewShown"]["description"] == "What is around."
    assert set(parts["ViewShown"]["properties"]) == set(SHOW.shown.__struct_fields__)
    assert set(parts["ViewShown"]["required"]) == set(SHOW.shown.__struct_fields__) - {"by"}


def test_a_field_that_the_view_does_not_have() -> None:
    with pytest.raises(BrokenInvariant):
        shape_of(Inner, "InnerShown", "What is within.", nullable=("by",))
