"""Keys of tasks: where their values come from, and what text they become."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from jackalope.core.commands import SubmitTasks
from jackalope.core.core import Core
from jackalope.core.effects import Accepted, Reply
from jackalope.core.ids import TaskId
from jackalope.core.limits import KEY_NAME_CHARS_MAX, KEY_VALUE_CHARS_MAX, KEYS_PER_TASK_MAX
from jackalope.core.records import FLOW_CONTROL_LEVEL
from jackalope.core.refusals import Code
from jackalope.core.shapes.keys import fill_in, key_problems, text_of, value_of
from jackalope.core.task import BlobRef, Options, TaskSpec

_CALL: tuple[list[int], dict[str, Any]] = ([1], {"user_id": 7, "to": {"host": "a.example"}})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("ada", "ada"),
        ("", ""),
        (None, ""),
        (7, "7"),
        (0, "0"),
        (1.5, "1.5"),
        (True, "true"),
        (b"\0\1", "AAE="),
        (["b", 1], '["b",1]'),
        ({"b": 1, "a": 2}, '{"a":2,"b":1}'),
        (2**70, str(2**70)),
        (object(), ""),
    ],
)
def test_a_value_becomes_a_text(value: object, text: str) -> None:
    assert text_of(value) == text


def test_a_long_text_becomes_its_hash() -> None:
    assert text_of("x" * KEY_VALUE_CHARS_MAX) == "x" * KEY_VALUE_CHARS_MAX
    one, other = text_of("x" * (KEY_VALUE_CHARS_MAX + 1)), text_of("x" * (KEY_VALUE_CHARS_MAX + 2))
    assert len(one) == len(other) == 64
    assert one != other


@pytest.mark.parametrize("encode", [msgspec.json.encode, msgspec.msgpack.encode])
def test_a_key_is_found_in_keyword_arguments(encode: Any) -> None:
    call = encode(_CALL)
    assert value_of("user_id", {}, {}, call) == "7"
    assert value_of("to.host", {}, {}, call) == "a.example"
    assert value_of("to.port", {}, {}, call) == ""
    assert value_of("other", {}, {}, call) == ""
    assert value_of("user_id", {}, {}, encode({"user_id": "ada"})) == "ada"
    assert value_of("a.b", {}, {}, encode({"a.b": 1, "a": {"b": 2}})) == "1"


def test_what_was_sent_comes_before_headers_and_arguments() -> None:
    call = msgspec.msgpack.encode(_CALL)
    assert value_of("user_id", {"user_id": "sent"}, {"user_id": "header"}, call) == "sent"
    assert value_of("user_id", {}, {"user_id": "header"}, call) == "header"
    assert value_of("user.id", {}, {"user": {"id": 3}}, call) == "3"
    assert value_of("user_id", {"user_id": ""}, {"user_id": "header"}, call) == ""


@pytest.mark.parametrize(
    "payload",
    [b"", b"{", b"[", b"\xc1", b"\x92", b"[1]", b"[[], 1]", b'"text"', b"\xff" * 9, b"[" * 9_999],
)
def test_what_cannot_be_read_has_no_keys(payload: bytes) -> None:
    assert value_of("user_id", {}, {}, payload) == ""


def test_a_payload_in_the_blob_store_is_not_read() -> None:
    assert value_of("user_id", {}, {}, BlobRef("b", 10)) == ""


def test_only_what_is_missing_is_filled_in() -> None:
    call = msgspec.json.encode(_CALL)
    assert fill_in(("user_id", "tenant"), {"tenant": "x"}, {}, call) == {"user_id": "7"}


def test_keys_have_limits() -> None:
    most = {f"{number:0{KEY_NAME_CHARS_MAX}}": "v" for number in range(KEYS_PER_TASK_MAX)}
    assert key_problems(most) == []
    assert key_problems({"n": "v" * KEY_VALUE_CHARS_MAX}) == []
    assert len(key_problems({**most, "one more": ""})) == 1
    assert len(key_problems({"": "v" * (KEY_VALUE_CHARS_MAX + 1)})) == 2
    assert len(key_problems({"x" * (KEY_NAME_CHARS_MAX + 1): "a\0"})) == 2


def _submit(core: Core, options: Options | None, payload: bytes = b"") -> Accepted:
    spec = TaskSpec(TaskId(bytes(15) + b"\1"), "q", payload=payload, options=options)
    _, effects = core.handle(1, SubmitTasks(session=1, ref=1, tasks=[spec]))
    [reply] = [each for each in effects if isinstance(each, Reply)]
    assert isinstance(reply.body, Accepted)
    return reply.body


def test_the_broker_fills_in_the_keys_that_a_queue_goes_by() -> None:
    core = Core()
    _submit(core, None)
    [task] = core.book.tasks.values()
    task.queue.key_names = ("user_id",)
    spec = TaskSpec(TaskId(bytes(15) + b"\2"), "q", payload=msgspec.msgpack.encode(_CALL))
    for _ in range(2):  # A repeated submit is the same, although it sends no keys.
        _, effects = core.handle(2, SubmitTasks(session=1, ref=1, tasks=[spec]))
        assert effects == [Reply(1, 1, Accepted(1))]
    assert core.book.tasks[spec.id].options.keys == {"user_id": "7"}
    assert spec.options is None


def test_other_keys_are_another_task() -> None:
    core = Core()
    _submit(core, Options(keys={"user_id": "7"}))
    assert not _submit(core, Options(keys={"user_id": "7"})).refused
    [(_, refusal)] = _submit(core, Options(keys={"user_id": "8"})).refused
    assert refusal.code is Code.ID_CONFLICT


def test_bad_keys_are_refused_with_all_problems() -> None:
    [(_, refusal)] = _submit(Core(), Options(keys={"": "\0"})).refused
    assert refusal.code is Code.INVALID
    assert refusal.message.count("keys: ") == 2


def test_keys_wait_for_the_members_of_a_cluster() -> None:
    core = Core()
    core.level = FLOW_CONTROL_LEVEL - 1
    [(_, refusal)] = _submit(core, Options(keys={"user_id": "7"})).refused
    assert "cluster upgrade" in refusal.message
    assert not core.book.tasks
