"""Tasks of a stream, read from their bytes.

Owns a short way from the bytes of `StreamTasksRequest` to tasks of the core, for a door where each
look at a field of a message takes as long as all that the core does with it. It knows the places of
the fields that nearly all tasks have, and leaves every other task to the library.

Theory of operation: the outer message is parsed by the library, but with its tasks as bytes, which
is what they are on the wire. A client writes the tasks of a stream alike: maybe an id, then the
same queue, name, key and priority, then a payload. Those in the middle are read once by the
library, which also checks that they are text. A task with the same bytes there, and a payload that
reaches exactly to its end, has the same values and no other field. What is not so is no error: the
library reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from jackalope.core.ids import NO_TASK, TaskId, as_task_id
from jackalope.core.task import PRIORITY_DEFAULT, TaskSpec
from jackalope.doors.grpc.errors import BadField
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from jackalope.doors.grpc.task_messages import spec_of

#: How many kinds of tasks are remembered of one stream, and how long the bytes of one may be.
KINDS_MAX = 16
KIND_BYTES_MAX = 1024
#: How many tasks of a stream may turn out to be written otherwise before no more are looked at.
TRIES_MAX = 100

#: An id of 36 characters, and a payload: the number of the field and its wire type, in one byte.
_ID_TAG = bytes((pb.TaskSpec.ID_FIELD_NUMBER << 3 | 2, 36))
_ID_BYTES = len(_ID_TAG) + 36
_PAYLOAD_TAG = bytes((pb.TaskSpec.PAYLOAD_FIELD_NUMBER << 3 | 2,))

_MORE = 0x80  # in the bytes of a number: another one follows
_SIZE_BYTES_MAX = 5


def _outer_class() -> Any:
    """Make the class of a request whose tasks are bytes."""
    file = FileDescriptorProto(name="jackalope/task_bytes.proto", package="jackalope.bytes")
    file.syntax = "proto3"
    outer = file.message_type.add(name="StreamTasksRequest")
    for field in pb.StreamTasksRequest.DESCRIPTOR.fields:
        is_tasks = field.name == "tasks"
        outer.field.add(
            name=field.name,
            number=field.number,
            type=FieldDescriptorProto.TYPE_BYTES if is_tasks else field.type,
            label="LABEL_REPEATED" if is_tasks else "LABEL_OPTIONAL",
        )
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("jackalope.bytes.StreamTasksRequest"))


_Outer = _outer_class()


class Taken:
    """A message of a stream: its tasks, and what a submit needs beside them."""

    __slots__ = ("has_ids", "parent_fence", "ref", "specs", "tasks", "uploads")

    def __init__(self, ref: int, parent_fence: int, tasks: list[bytes]) -> None:
        self.ref = ref
        self.parent_fence = parent_fence
        self.tasks = tasks  # as they came
        self.specs: list[TaskSpec] = []  # as the core takes them
        self.uploads: dict[int, str] = {}  # the names of uploads, by the index of their task
        self.has_ids = True  # every task came with an id


class TaskReader:
    """Reads the messages of one stream."""

    def __init__(self) -> None:
        self._kinds: list[Kind] = []  # the latest first
        self._tries = TRIES_MAX

    def open(self, data: bytes) -> Taken:
        """Read a message but for its tasks."""
        try:
            outer = _Outer.FromString(data)
        except DecodeError:
            raise Unreadable from None
        return Taken(outer.ref, outer.parent_fence, list(outer.tasks))

    def read(self, taken: Taken, make_id: Callable[[], TaskId]) -> None:
        """Read the tasks of a message; raises `BadField` for what cannot be meant."""
        specs = taken.specs
        head, queue, name, key, priority = self._latest()
        for raw in taken.tasks:
            at = _ID_BYTES if raw.startswith(_ID_TAG) else 0
            if not raw.startswith(head, at):
                head, queue, name, key, priority = self._kind_of(raw, at)
            begin = at + len(head)
            payload: bytes | None = raw[begin + 1 :]
            if not (head and begin < len(raw) and raw[begin] == len(raw) - begin - 1 < _MORE):
                payload = _longer(raw, begin) if head else None
            task_id = as_task_id(raw[len(_ID_TAG) : at].decode("latin-1")) if at else NO_TASK
            if payload is None or task_id is None:
                self._read_slowly(taken, raw, make_id)
                head, queue, name, key, priority = self._latest()
                continue
            if not task_id:
                taken.has_ids = False
                task_id = make_id()
            specs.append(TaskSpec(task_id, queue, name, key, priority, payload))

    def _latest(self) -> Kind:
        return self._kinds[0] if self._kinds else _NO_KIND

    def _kind_of(self, raw: bytes, at: int) -> Kind:
        """Find another kind, and make it the latest."""
        for place, kind in enumerate(self._kinds):
            if raw.startswith(kind.head, at):
                self._kinds.insert(0, self._kinds.pop(place))
                return kind
        return _NO_KIND

    def _read_slowly(self, taken: Taken, raw: bytes, make_id: Callable[[], TaskId]) -> None:
        index = len(taken.specs)
        try:
            task = pb.TaskSpec.FromString(raw)
        except DecodeError:
            raise Unreadable from None
        try:
            spec = spec_of(task, make_id)
        except BadField as bad:
            raise bad.below(f"tasks[{index}]") from None
        taken.specs.append(spec)
        taken.has_ids = taken.has_ids and bool(task.id)
        if task.payload_upload:
            taken.uploads[index] = task.payload_upload
        elif spec.options is None and task.payload and self._tries:
            self._learn(task, spec, raw)

    def _learn(self, task: pb.TaskSpec, spec: TaskSpec, raw: bytes) -> None:
        """Remember a kind of task, if it is written as the library writes it."""
        alike = pb.TaskSpec(queue=task.queue, name=task.name, key=task.key)
        if task.HasField("priority"):
            alike.priority = task.priority
        head = alike.SerializeToString() + _PAYLOAD_TAG
        at = _ID_BYTES if raw.startswith(_ID_TAG) else 0
        if len(head) > KIND_BYTES_MAX or not raw.startswith(head, at):
            self._tries -= 1
            return
        kind = Kind(head, spec.queue, spec.name, spec.key, spec.priority)
        self._kinds = [kind, *(each for each in self._kinds if each.head != head)][:KINDS_MAX]


class Kind(NamedTuple):
    """What tasks have in common: the bytes of some fields, and the tag of a payload behind."""

    head: bytes
    queue: str
    name: str
    key: str
    priority: int


_NO_KIND = Kind(b"", "", "", "", PRIORITY_DEFAULT)


class Unreadable(BadField):
    """A message that is not what the contract says. It ends its stream."""

    def __init__(self) -> None:
        super().__init__("", "the message is not a StreamTasksRequest")


def _longer(raw: bytes, begin: int) -> bytes | None:
    """Return a payload whose size takes several bytes, if it reaches exactly to the end."""
    size = shift = 0
    for place in range(begin, min(begin + _SIZE_BYTES_MAX, len(raw))):
        size |= (raw[place] & ~_MORE) << shift
        shift += 7
        if raw[place] < _MORE:
            payload = raw[place + 1 :]
            return payload if len(payload) == size else None
    return None
