"""Tasks that are read from their bytes are those that the library reads."""

from __future__ import annotations

from datetime import timedelta

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from jackalope.core.ids import TaskId, id_text, id_texts
from jackalope.core.task import TaskSpec
from jackalope.doors.grpc import task_bytes
from jackalope.doors.grpc.errors import BadField
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from jackalope.doors.grpc.task_bytes import KIND_BYTES_MAX, KINDS_MAX, TaskReader, Unreadable
from jackalope.doors.grpc.task_messages import spec_of
from jackalope.task_ids import new_task_id

FRESH = TaskId(bytes(16))


def by_library(data: bytes) -> list[TaskSpec]:
    request = pb.StreamTasksRequest.FromString(data)
    return [spec_of(task, lambda: FRESH) for task in request.tasks]


def by_reader(reader: TaskReader, data: bytes) -> list[TaskSpec]:
    taken = reader.open(data)
    reader.read(taken, lambda: FRESH)
    return taken.specs


#: Sizes around those at which the number of a size gets another byte.
payloads = st.one_of(
    st.binary(max_size=20), st.sampled_from([126, 127, 128, 129, 16_383, 16_384, 16_385]).map(bytes)
)
ids = st.one_of(
    st.just(""),
    st.uuids().map(str),
    st.uuids().map(lambda each: each.hex),
    st.sampled_from(["x" * 36, "01a1eb48-ab20-7000-a179-6ee87f9d8e7", "0" * 36, "é" * 18]),
)
names = st.sampled_from(["", "resize", "a" * 127, "a" * 128, "größer", "2\n"])
tasks = st.builds(
    pb.TaskSpec,
    id=ids,
    queue=st.sampled_from(["q", "q2", "", "2"]),
    name=names,
    key=names,
    priority=st.sampled_from([None, 0, 150, 255]),
    payload=payloads,
    alias=st.sampled_from(["", "", "", "alias"]),
    payload_upload=st.sampled_from(["", "", "", "upload"]),
    timeout=st.sampled_from([None, None, None, timedelta(seconds=5)]),
)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.lists(tasks, max_size=5), max_size=5))
def test_messages_of_a_stream_are_read_alike(messages: list[list[pb.TaskSpec]]) -> None:
    reader = TaskReader()
    for number, each in enumerate(messages):
        request = pb.StreamTasksRequest(ref=number, tasks=each, parent_fence=number * 2)
        data = request.SerializeToString()
        bad: BadField | None = None
        expected: list[TaskSpec] = []
        try:
            expected = by_library(data)
        except BadField as error:
            bad = error
        if bad is not None:
            with pytest.raises(BadField) as caught:
                by_reader(reader, data)
            assert caught.value.problem == bad.problem
            assert caught.value.field.endswith(f".{bad.field}")
            continue
        taken = reader.open(data)
        assert (taken.ref, taken.parent_fence) == (number, number * 2)
        reader.read(taken, lambda: FRESH)
        assert taken.specs == expected
        assert taken.has_ids == all(task.id for task in each)
        uploads = {at: task.payload_upload for at, task in enumerate(each) if task.payload_upload}
        assert taken.uploads == uploads


@settings(deadline=None, max_examples=300)
@given(st.lists(tasks, min_size=1, max_size=3), st.data())
def test_bytes_that_are_damaged_are_read_alike(
    known: list[pb.TaskSpec], data: st.DataObject
) -> None:
    """A task is damaged that is like one before it, so that it may be taken for the same kind."""
    reader = TaskReader()
    plain = pb.TaskSpec(queue="q", name="resize", payload=b"payload")
    by_reader(reader, pb.StreamTasksRequest(tasks=[plain]).SerializeToString())
    raw = bytearray(data.draw(st.sampled_from([plain, *known])).SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    outer = b"\x12" + _varint(len(raw)) + bytes(raw)
    try:
        expected: list[TaskSpec] | type[Exception] = by_library(outer)
    except (DecodeError, BadField) as error:
        expected = Unreadable if isinstance(error, DecodeError) else BadField
    if isinstance(expected, list):
        assert by_reader(reader, outer) == expected
    else:
        with pytest.raises(expected):
            by_reader(reader, outer)


def _varint(number: int) -> bytes:
    head = b""
    while number >= 0x80:
        head += bytes((number & 0x7F | 0x80,))
        number >>= 7
    return head + bytes((number,))


@pytest.mark.parametrize("data", [b"\xff", b"\x12\x05\x12", b"\x12\x03\x12\x01\xff"])
def test_what_is_no_message_is_unreadable(data: bytes) -> None:
    with pytest.raises(Unreadable):
        by_reader(TaskReader(), data)


@pytest.fixture
def slow_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note the queues of the tasks that the library reads."""
    read: list[str] = []

    def noted(task: pb.TaskSpec, *rest: object) -> TaskSpec:
        read.append(task.queue)
        return spec_of(task, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(task_bytes, "spec_of", noted)
    return read


def message(*specs: pb.TaskSpec) -> bytes:
    return pb.StreamTasksRequest(tasks=specs).SerializeToString()


def task(queue: str, payload: bytes = b"p") -> pb.TaskSpec:
    return pb.TaskSpec(id=id_text(new_task_id()), queue=queue, name="n", payload=payload)


def test_each_kind_is_read_by_the_library_once(slow_reads: list[str]) -> None:
    reader = TaskReader()
    queues = [f"q{number}" for number in range(KINDS_MAX)]
    for _ in range(3):
        by_reader(reader, message(*(task(queue) for queue in queues)))
    assert slow_reads == queues
    by_reader(reader, message(task("one more"), task(queues[-1]), task(queues[0])))
    assert slow_reads == [*queues, "one more", queues[0]]  # The one not seen for longest is gone.


def test_a_kind_that_is_long_is_not_remembered(slow_reads: list[str]) -> None:
    reader, long = TaskReader(), "q" * KIND_BYTES_MAX
    for _ in range(2):
        by_reader(reader, message(task(long)))
    assert slow_reads == [long, long]


def test_a_client_that_writes_otherwise_is_read_all_the_same(slow_reads: list[str]) -> None:
    reader = TaskReader()
    raw = b"\x32\x01p" + b"\x12\x01q"  # The payload before the queue.
    for _ in range(task_bytes.TRIES_MAX + 5):
        (spec,) = by_reader(reader, b"\x12" + bytes((len(raw),)) + raw)
        assert (spec.queue, spec.payload) == ("q", b"p")
    assert len(slow_reads) == task_bytes.TRIES_MAX + 5


@given(st.lists(st.uuids().map(lambda each: each.bytes), max_size=5), st.integers(0, 16))
def test_ids_are_written_together_as_each_alone(given_ids: list[bytes], common: int) -> None:
    alike = [given_ids[0][:common] + each[common:] for each in given_ids]
    assert id_texts(alike) == [id_text(each) for each in alike]
