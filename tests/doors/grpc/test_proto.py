"""The contract of the gRPC door: its style, that it only grows, and what is generated from it."""

import os
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from jackalope.core.api_key import Permission
from jackalope.core.commands import Action, Answer, Verdict
from jackalope.core.lifecycle import Reason, State
from jackalope.core.policy import Done, OnLost, OnRestart, Policy
from jackalope.core.refusals import Code
from jackalope.core.settings import keys_of
from jackalope.core.shapes.callback import Callback, CallbackOn, End, Trigger, TriggerPayload
from jackalope.core.shapes.flow import OnFailure
from jackalope.core.shapes.limit import LimitSettings, OnFull
from jackalope.core.shapes.pace import Pacing
from jackalope.core.shapes.request import How, Same
from jackalope.core.shapes.schedule import CatchUp, Missed, Overlap, RunKind
from jackalope.core.task import OnDependency, Signal, Stage
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from jackalope.doors.grpc.values import Words
from jackalope.wire.messages import CallStage
from tests.doors.grpc.generate import PROTO, PROTO_ROOT, STUBS, descriptor, generate

#: What was released, one fact a line; `REWRITE=1` adds what is new.
RELEASED = Path(__file__).with_name("released.txt")

FILE = pb.DESCRIPTOR
SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
PASCAL = re.compile(r"[A-Z][a-zA-Z0-9]*")


def messages() -> list[Descriptor]:
    """Return every message that is not the entry of a map."""
    return list(FILE.message_types_by_name.values())


def enums() -> list[EnumDescriptor]:
    return list(FILE.enum_types_by_name.values())


def test_the_stubs_are_those_of_the_proto() -> None:
    generated = generate()
    assert generated.keys() == {path.name for path in STUBS.glob("jackalope_pb2*")}
    for name, text in generated.items():
        assert (STUBS / name).read_text() == text, f"{name}: run tests.doors.grpc.generate"


def test_the_file_is_where_its_package_says() -> None:
    assert FILE.package == "jackalope.v1"
    assert PROTO.parent.relative_to(PROTO_ROOT).as_posix() == FILE.package.replace(".", "/")


def test_methods_have_messages_of_their_own() -> None:
    used: list[str] = []
    for service in FILE.services_by_name.values():
        assert service.name.endswith("Service")
        for method in service.methods:
            assert PASCAL.fullmatch(method.name)
            assert method.input_type.name == f"{method.name}Request"
            assert method.output_type.name == f"{method.name}Response"
            used += [method.input_type.name, method.output_type.name]
    assert len(used) == len(set(used))
    named = {each.name for each in messages() if each.name.endswith(("Request", "Response"))}
    assert named == set(used)


def test_names_have_their_case() -> None:
    for message in messages():
        assert PASCAL.fullmatch(message.name)
        names = [field.name for field in message.fields]
        names += [each.name.lstrip("_") for each in message.oneofs]
        assert [name for name in names if not SNAKE.fullmatch(name)] == []


def test_values_of_enums_have_their_prefix_and_begin_with_unspecified() -> None:
    for enum in enums():
        prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper()
        assert enum.values_by_number[0].name == f"{prefix}_UNSPECIFIED"
        assert all(value.name.startswith(f"{prefix}_") for value in enum.values)
        assert len({value.number for value in enum.values}) == len(enum.values)


def test_everything_has_a_comment_or_is_a_request() -> None:
    lines = PROTO.read_text().splitlines()
    for number, line in enumerate(lines):
        found = re.match(r"(?:  )?(message|enum|service|rpc) (\w+)", line)
        if found is None or found[2].endswith(("Request", "Response")) or line.endswith("{}"):
            continue
        assert lines[number - 1].lstrip().startswith("//"), line


# It only grows.


def facts() -> Iterator[str]:
    """Yield what a client of this contract relies on."""
    for service in FILE.services_by_name.values():
        for method in service.methods:
            kinds = (method.client_streaming, method.server_streaming)
            streams = ["stream " * each for each in kinds]
            yield (
                f"rpc {service.name}.{method.name}({streams[0]}{method.input_type.name})"
                f" returns ({streams[1]}{method.output_type.name})"
            )
    for message in messages():
        for field in message.fields:
            yield f"field {message.name}.{field.name} = {field.number} {_type_of(field)}"
    for enum in enums():
        for value in enum.values:
            yield f"value {enum.name}.{value.name} = {value.number}"


def _type_of(field: FieldDescriptor) -> str:
    kinds = {
        number: name.removeprefix("TYPE_").lower()
        for name, number in vars(FieldDescriptor).items()
        if name.startswith("TYPE_")
    }
    named: Any = field.message_type or field.enum_type
    many = "repeated " if field.is_repeated else "optional " if field.has_presence else ""
    return f"{many}{named.full_name if named else kinds[field.type]}"


def removed(released: str, now: set[str], reserved: dict[str, tuple[set[str], set[int]]]) -> bool:
    """Return whether a released fact no longer holds, and what it used is not reserved."""
    if released in now:
        return False
    found = re.match(r"(?:field|value) (\w+)\.(\w+) = (\d+)", released)
    if found is None:
        return True
    names, numbers = reserved.get(found[1], (set(), set()))
    return found[2] not in names or int(found[3]) not in numbers


def reservations() -> dict[str, tuple[set[str], set[int]]]:
    described = FileDescriptorProto()
    FILE.CopyToProto(described)
    found: dict[str, tuple[set[str], set[int]]] = {}
    for message in described.message_type:
        numbers = {n for each in message.reserved_range for n in range(each.start, each.end)}
        found[message.name] = (set(message.reserved_name), numbers)
    for enum in described.enum_type:
        numbers = {n for each in enum.reserved_range for n in range(each.start, each.end + 1)}
        found[enum.name] = (set(enum.reserved_name), numbers)
    return found


def test_nothing_that_was_released_has_changed() -> None:
    now = set(facts())
    known = RELEASED.read_text().splitlines() if RELEASED.exists() else []
    gone = [each for each in known if removed(each, now, reservations())]
    assert not gone, "reserve its number and name, and give what is new another one"
    if os.environ.get("REWRITE"):
        RELEASED.write_text("".join(f"{each}\n" for each in sorted({*known, *now})))


def test_a_changed_number_is_noticed() -> None:
    now = set(facts())
    assert removed("field TaskSpec.id = 2 string", now, {})
    assert removed("field TaskSpec.id = 1 bytes", now, {})
    assert removed("rpc TaskService.Gone(A) returns (B)", now, {})
    assert not removed("field TaskSpec.old = 99 string", now, {"TaskSpec": ({"old"}, {99})})


def test_protoc_describes_the_same() -> None:
    described = FileDescriptorSet.FromString(descriptor()).file[0]
    mine = FileDescriptorProto()
    FILE.CopyToProto(mine)
    described.ClearField("source_code_info")
    for file in (described, mine):
        file.ClearField("options")
    assert [each.name for each in described.message_type] == [m.name for m in mine.message_type]
    assert described.service == mine.service


# Words that are the core's have the same values here.


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("RefusalCode", Code),
        ("TaskState", State),
        ("DeathReason", Reason),
        ("OnDependency", OnDependency),
        ("OnFailure", OnFailure),
        ("SameRequest", Same),
        ("HowServed", How),
        ("Signal", Signal),
        ("SignalStage", Stage),
        ("SignalAnswer", Answer),
        ("Verdict", Verdict),
        ("TaskAction", Action),
        ("OnLost", OnLost),
        ("OnRestart", OnRestart),
        ("Done", Done),
        ("CallStage", CallStage),
        ("Permission", Permission),
        ("Overlap", Overlap),
        ("CatchUp", CatchUp),
        ("RunKind", RunKind),
        ("Missed", Missed),
        ("Pacing", Pacing),
        ("CallbackOn", CallbackOn),
        ("End", End),
        ("TriggerPayload", TriggerPayload),
        ("OnFull", OnFull),
    ],
)
def test_every_word_of_the_core_is_there(name: str, words: Any) -> None:
    enum = FILE.enum_types_by_name[name]
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()
    known = {value.name.removeprefix(f"{prefix}_") for value in enum.values} - {"UNSPECIFIED"}
    assert known == {word.name for word in words}


@pytest.mark.parametrize(
    ("message", "shape", "more"),
    [
        (pb.QueuePolicy, Policy, set()),
        (pb.Callback, Callback, {"task_id"}),
        (pb.Trigger, Trigger, set()),
        (pb.KeyLimitSettings, LimitSettings, set()),
    ],
)
def test_every_field_of_the_core_is_there(message: Any, shape: Any, more: set[str]) -> None:
    there = {field.name for field in message.DESCRIPTOR.fields}
    assert there == set(keys_of(shape)) | more


def test_a_word_that_the_contract_does_not_have_yet_breaks_nothing() -> None:
    class Newer(StrEnum):
        INVALID = "invalid"
        NEWER = "newer"

    words = Words(pb.RefusalCode, Newer)
    assert words.number(Newer.INVALID) == pb.REFUSAL_CODE_INVALID
    assert words.number(Newer.NEWER) == pb.REFUSAL_CODE_UNSPECIFIED
