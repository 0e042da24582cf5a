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
    internal: int = 0


SHOW_INNER = shape_of(Inner, "InnerShown", "What is within.")
SHOW = shape_of(
    View,
    "ViewShown",
    "What is around.",
    names={"task": "task_id", "until_us": "good_until"},
    nullable=("parent", "by"),
    inner={"one": SHOW_INNER, "many": SHOW_INNER},
    without=("internal",),
    defaults={"by": None},
    size=(int, lambda view: len(view.many)),
)


def test_every_rule() -> None:
    first = Inner(1_000_000)
    full = SHOW(View(TASK, TASK, (TASK,), 1_000_000, 2_000_000, "me", first, (first,)))
    assert msgspec.to_builtins(full) == {
        "task_id": TEXT,
        "parent": TEXT,
        "others": (TEXT,),
        "made_at": "1970-01-01T00:00:01Z",
        "good_until": "1970-01-01T00:00:02Z",
        "by": "me",
        "one": {"at": "1970-01-01T00:00:01Z"},
        "many": [{"at": "1970-01-01T00:00:01Z"}],
        "size": 1,
    }


def test_what_is_empty() -> None:
    empty = msgspec.to_builtins(SHOW(View(TASK, TaskId(b""), (), 0, 0, "", None, ())))
    nulls = {name for name, value in empty.items() if value is None}
    assert nulls == {"parent", "made_at", "good_until", "by", "one"}
    assert (empty["others"], empty["many"], empty["size"]) == ((), [], 0)


def test_the_description() -> None:
    _, parts = msgspec.json.schema_components([SHOW.shown])
    assert parts["ViewShown"]["description"] == "What is around."
    assert set(parts["ViewShown"]["properties"]) == set(SHOW.shown.__struct_fields__)
    assert set(parts["ViewShown"]["required"]) == set(SHOW.shown.__struct_fields__) - {"by"}


def test_a_field_that_the_view_does_not_have() -> None:
    with pytest.raises(BrokenInvariant):
        shape_of(Inner, "InnerShown", "What is within.", nullable=("by",))
