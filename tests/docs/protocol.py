"""What each block of the page on the native protocol says: kinds, fields, and examples as bytes."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin

import msgspec

from jackalope.broker.config.schema import NativeConfig
from jackalope.broker.queries import QUESTIONS, About
from jackalope.core.api_key import ApiKey, Permission
from jackalope.core.commands import (
    Action,
    ActOnTasks,
    Answer,
    AnswerAction,
    AnswerSignal,
    ClaimTasks,
    EndHelp,
    Fail,
    Finish,
    GroupAction,
    Heartbeat,
    Held,
    JoinWorker,
    RecordStep,
    RequestHelpers,
    RetryTerms,
    StartAttempts,
    SubmitTasks,
    Suspend,
    Verdict,
    WatchTasks,
)
from jackalope.core.commands.flows import AddNodes, FlowNode, SubmitFlow
from jackalope.core.effects import (
    Accepted,
    AcceptedRequests,
    Acted,
    Assignment,
    Declared,
    HelpAsked,
    HelperFailed,
    Joined,
    PoolSet,
    ScheduleSet,
    Served,
    SignalAsked,
    SlotsRun,
    StepDone,
    Suspended,
    TaskEnded,
    TaskProgressed,
)
from jackalope.core.filter import Filter
from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.lifecycle import Reason, State
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.callback import Callback, CallbackOn
from jackalope.core.shapes.flow import (
    Compensation,
    FlowSettings,
    GroupSettings,
    Input,
    NodeSettings,
    OnFailure,
)
from jackalope.core.shapes.needs import Needs
from jackalope.core.shapes.pace import Pace, Pacing
from jackalope.core.shapes.request import How, Same
from jackalope.core.shapes.schedule import RunKind
from jackalope.core.shapes.steps import Step
from jackalope.core.shapes.task_log import (
    AttemptLogView,
    LogLevel,
    LogLine,
    LogLineView,
    LogPage,
    LogsKept,
    LogStream,
)
from jackalope.core.task import (
    BlobRef,
    Envelope,
    Error,
    OnDependency,
    Options,
    Retry,
    Signal,
    Stage,
    TaskSpec,
)
from jackalope.doors.native.commands import MANAGEMENT, keys_of
from jackalope.doors.native.server import NativeDoor
from jackalope.wire import views
from jackalope.wire.frames import VERSION, Kind
from jackalope.wire.messages import (
    FROM_BROKER,
    TO_BROKER,
    Ack,
    AnyMessage,
    Assign,
    Broadcast,
    Call,
    Called,
    CallReplied,
    CallReply,
    CallStage,
    Ended,
    Events,
    Fetch,
    Happened,
    Heard,
    Hello,
    Interest,
    Listen,
    Logs,
    Manage,
    Moved,
    Nack,
    Notice,
    Part,
    Query,
    Result,
    Upload,
    Welcome,
    broker_codec,
    peer_codec,
)
from jackalope.wire.messages import fields_of as visible
from tests.docs.blocks import Block, Table
from tests.docs.wording import code, default_of, duration, kind_of, size

#: Every message, in the order of its kind; to the broker first where a kind goes both ways.
MESSAGES: dict[str, type[AnyMessage]] = {
    shape.__name__: shape
    for kind in Kind
    for shapes in (TO_BROKER, FROM_BROKER)
    if (shape := shapes.get(kind)) is not None
}
#: What messages are made of: arrays by place.
PARTS: tuple[type[msgspec.Struct], ...] = (
    TaskSpec,
    Options,
    Retry,
    Needs,
    Pace,
    Held,
    Finish,
    Fail,
    Error,
    RetryTerms,
    FlowSettings,
    GroupSettings,
    FlowNode,
    NodeSettings,
    Compensation,
    Assignment,
    Envelope,
    Step,
    Input,
    TaskEnded,
    Happened,
    Interest,
    LogLine,
)
#: What answers are made of, and the one part of a request that is named: maps by key.
MAPS: tuple[type[msgspec.Struct], ...] = (
    Filter,
    Refusal,
    Accepted,
    AcceptedRequests,
    Served,
    Part,
    LogsKept,
    Joined,
    Acted,
    Declared,
    StepDone,
    Suspended,
    ApiKey,
    views.AnswerView,
    views.ApiKeyView,
    views.ActPage,
    views.ActView,
    views.NamespaceView,
    views.TaskPage,
    views.TaskView,
    views.ErrorView,
    views.ProgressView,
    views.RequestView,
    views.StepView,
    views.SentEventView,
    Callback,
    views.CallbackView,
    views.PaceView,
    views.HistoryEntryView,
    LogPage,
    LogLineView,
    AttemptLogView,
    views.ExplanationView,
    views.CauseView,
    views.QueueView,
    views.WorkerView,
    views.LimitView,
    views.KeyLimitView,
    views.GateView,
    views.ShareView,
    views.BatchView,
    views.StatsView,
    views.SeriesView,
    views.PointView,
    views.SpreadView,
    ScheduleSet,
    SlotsRun,
    views.FlowPage,
    views.FlowView,
    views.NodeGroupView,
    views.NodeView,
    views.AttemptView,
    views.SchedulePage,
    views.ContractView,
    views.ScheduleView,
    views.RunView,
    PoolSet,
    views.PoolView,
    views.GroupView,
    views.LaunchFailureView,
    views.LaunchView,
)


# Tables.


def kinds() -> Table:
    def name(shapes: dict[Kind, type[AnyMessage]], kind: Kind) -> str:
        return code(shapes[kind].__name__) if kind in shapes else "-"

    rows = [
        (code(kind.name), str(kind.value), name(TO_BROKER, kind), name(FROM_BROKER, kind))
        for kind in Kind
    ]
    return Table(("kind", "number", "to the broker", "from the broker"), rows, ("for",))


def fields_of(shape: type[msgspec.Struct]) -> Table:
    """List the fields of an array by their place, or those of a map by their key."""
    fields = [field for field in msgspec.structs.fields(shape) if field.name in visible(shape)]
    if shape.__struct_config__.array_like:
        rows = [
            (code(field.name), str(place), told(field.type), default(field))
            for place, field in enumerate(fields)
        ]
        return Table(("field", "place", "type", "default"), rows, ("meaning",))
    tag = shape.__struct_config__.tag
    first = [(code("type"), f"text: {code(tag)}")] if tag else []
    if shape is Filter:
        optional = [(code(field.name), told(field.type), default(field)) for field in fields]
        return Table(("key", "type", "default"), optional, ("meaning",))
    return Table(
        ("key", "type"), first + [(code(f.name), told(f.type)) for f in fields], ("meaning",)
    )


def told(kind: Any) -> str:
    """Tell the type of a field."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return told(args[0])
    if origin in (Union, UnionType):
        # Bytes may also be the name of a blob, which no peer ever sees.
        others = [told(arg) for arg in args if arg not in (NoneType, BlobRef)]
        return " or ".join(others + ["nil"] * (NoneType in args))
    if origin is tuple and Ellipsis not in args:
        return f"pair of {told(args[0])} and {told(args[1])}"
    if origin in (tuple, list):
        return f"list of {told(args[0])}"
    if origin is dict:
        return f"map of {told(args[0])} to {told(args[1])}".removesuffix(" to `object`")
    return kind_of(kind)


def default(field: msgspec.structs.FieldInfo) -> str:
    value = field.default
    if isinstance(value, str) and value and not isinstance(value, StrEnum):
        return code(value)
    if isinstance(value, int) and field.name.endswith("_us") and value:
        return f"{value} ({duration(value)})"
    return default_of(field)


def words() -> Table:
    """List the types that are texts of which only some are meant."""
    enums = (
        Action,
        Answer,
        AnswerAction,
        CallStage,
        GroupAction,
        How,
        LogLevel,
        LogStream,
        OnDependency,
        OnFailure,
        Pacing,
        CallbackOn,
        Permission,
        Reason,
        RunKind,
        Same,
        Signal,
        Stage,
        State,
        Verdict,
    )
    rows = [
        (code(enum.__name__), ", ".join(code(str(word)) for word in cast("list[str]", list(enum))))
        for enum in enums
    ]
    return Table(("type", "words"), rows, ("of what",))


def about_keys() -> Table:
    rows = [
        (code(field.name), told(field.type), default(field))
        for field in msgspec.structs.fields(About)
    ]
    return Table(("key", "type", "default"), rows, ("meaning",))


def questions() -> Table:
    """List the questions that there are."""
    return Table(("`what`",), [(code(what),) for what in QUESTIONS], ("keys of `about`", "answer"))


def management() -> Table:
    rows = []
    for what, command in MANAGEMENT.items():
        fields = {field.name: field for field in msgspec.structs.fields(command)}
        keys = [
            f"{code(name)} ({told(fields[name].type)}"
            + (")" if fields[name].required else ", optional)")
            for name in sorted(keys_of(command), key=list(fields).index)
        ]
        rows.append((code(what), ", ".join(keys)))
    return Table(("`what`", "keys of `about`"), rows, ("what it does",))


#: What the native door grants: as configured, and what cannot be.
CONFIGURED = ("max_connections", "frame_bytes_max", "heartbeat_us")
CONSTANTS = ("hello_us", "unsent_bytes_max", "stuck_us")


def terms() -> Table:
    def amount(name: str, value: int) -> str:
        if name.endswith("_us"):
            return duration(value)
        return size(value) if "_bytes_" in name else f"{value:,}"

    usual = {name: getattr(NativeConfig(), name) for name in CONFIGURED}
    usual |= {name: getattr(NativeDoor, name) for name in CONSTANTS}
    rows = [(code(name), amount(name, value)) for name, value in usual.items()]
    return Table(("term", "default"), rows, ("what it bounds",))


# Examples.

TASK = TaskId(bytes.fromhex("0197a3f0c2d47b3e9f00112233445566"))

EXAMPLES: dict[str, AnyMessage] = {
    "hello": Hello(VERSION, "default", "", "builder-7", "example 1", ""),
    "welcome": Welcome(
        VERSION, 42, "0f1e2d3c4b5a69788796a5b4c3d2e1f0", 10_000_000, 16_777_216, "jackalope 0.1.0"
    ),
    "moved": Moved("10.0.0.8:7420", 7),
    "heartbeat": Heartbeat(0, {"cpu": 0.5}),
    "submit": SubmitTasks(
        1, [TaskSpec(TASK, "images", "resize", "", 150, b"\x92\x91\xa7cat.png\x80", None)], 0
    ),
    "accepted": Ack(1, Accepted(1, ())),
    "watch": WatchTasks(2, (TASK,), True),
    "join": JoinWorker(
        1,
        "builder-7",
        ("images",),
        (),
        4,
        {"gpu": "yes"},
        [Held(TASK, 17)],
        30_000_000,
        10_000_000,
        1_750_000_000_000_000,
    ),
    "joined": Ack(1, Joined((Held(TASK, 17),), ())),
    "assign": Assign(
        [
            Assignment(
                TASK,
                18,
                "images",
                "resize",
                "",
                b"\x92\x91\xa7cat.png\x80",
                Options(tags=("gpu",)),
                2,
                0,
                0,
            )
        ]
    ),
    "start": StartAttempts(2, [Held(TASK, 18)]),
    "result": Result(
        3,
        [Finish(TASK, 18, b"\xa8done.png")],
        [Fail(TASK, 17, Error("ValueError", "no such file", ""), Verdict.RETRY, 0)],
        [],
    ),
    "refused": Ack(
        3, Accepted(1, ((1, Refusal(Code.STALE_FENCE, "fence 17 is not the current lease", 0)),))
    ),
    "signal": SignalAsked(TASK, 18, Signal.KILL),
    "answer": AnswerSignal(4, TASK, 18, Answer.STOPPED, ""),
    "progressed": TaskProgressed(TASK, 1_750_000_000_000_000, 40.0, "4 of 10 pages"),
    "ended": Ended([TaskEnded(TASK, State.SUCCEEDED, b"\xa8done.png", None, None)]),
    "act": ActOnTasks(5, Action.KILL, (), Filter(queue="images", states=(State.READY,)), False),
    "claim": ClaimTasks(6, 1, 5_000_000),
    "nothing": Nack(6, "nothing_to_claim", "no task within the time limit", 0),
    "query": Query(7, "task", {"id": TASK}),
    "manage": Manage(8, "pause_queue", {"queue": "images"}),
    "events": Events(
        [Happened(1_750_000_000_000_000, "submit", TASK, "images", "ready", "lena", "", "resize")],
        3,
    ),
    "call": Call(9, "clerk", b"\xa3who"),
    "called": Called(31, "clerk", b"\xa3who"),
    "reply": CallReply(0, 31, CallStage.RESULT, b"\xa2me"),
    "replied": CallReplied(9, CallStage.RESULT, b"\xa2me"),
    "listen": Listen(10, ("clerk",), (Interest("*", "door.*"),), True),
    "broadcast": Broadcast(11, "door.open", "lena", b"\xc3"),
    "heard": Heard("door.open", "lena", b"\xc3", 0),
    "helpers": RequestHelpers(12, TASK, 18, 8, "score", "10.0.0.7:40123", "", "scores"),
    "helper gone": HelperFailed(TASK, 18, "builder-9", "unreachable: 10.0.0.7:40123"),
    "help ask": HelpAsked(18, TASK, "images", "score", "10.0.0.7:40123", "dG9rZW4", ""),
    "help end": EndHelp(13, 18, ""),
    "upload": Upload(14, 1, b"the last", True),
    "logs": Logs(
        16,
        TASK,
        18,
        [LogLine(1, 1_750_000_000_000_000, "half way", LogLevel.INFO, LogStream.LOG, "shop")],
        1,
    ),
    "fetch": Fetch(15, TASK, 18, 1048576, 262144),
    "step": RecordStep(16, TASK, 18, 0, "charge", b"\xa4paid", 1500),
    "suspend": Suspend(17, TASK, 18, 1, "wait for approved", 86_400_000_000, "approved"),
    "flow": SubmitFlow(
        18,
        TaskSpec(TASK, "images", "album"),
        FlowSettings(),
        [
            FlowNode(TaskSpec(NO_TASK, "images", "resize"), NodeSettings("small")),
            FlowNode(TaskSpec(NO_TASK, "mail", "publish"), NodeSettings("publish"), ("small",)),
        ],
    ),
    "add": AddNodes(19, TASK, [], ("pages",)),
    "notice": Notice("goodbye", "the broker is shutting down; connect again later"),
}


def encoded(message: AnyMessage) -> bytes:
    """Return the frame of an example, as whoever sends it makes it."""
    is_to_broker = type(message) in TO_BROKER.values()
    return (peer_codec() if is_to_broker else broker_codec()).encode(message)


def dump(message: AnyMessage) -> str:
    """Show a frame byte by byte, each with its meaning."""
    frame = encoded(message)
    lines = [
        (frame[:4], 0, f"length: {int.from_bytes(frame[:4], 'big')} bytes follow"),
        (frame[4:5], 0, f"kind: {Kind(frame[4]).name}"),
        *_Walk(frame[5:]).walk(type(message), "", 0),
    ]
    rows = []
    for data, depth, meaning in lines:
        pieces = [data[at : at + _PER_LINE] for at in range(0, len(data), _PER_LINE)]
        for piece, text in zip(pieces, [meaning, *["..."] * len(pieces)], strict=False):
            rows.append(f"{piece.hex(' '):<{3 * _PER_LINE}} {'  ' * depth}{text}")
    return "\n".join(["```text", *rows, "```"])


_PER_LINE = 12

#: MessagePack: the first byte of an array of more than 15 elements.
_LONG_ARRAY = 0xDC

Line = tuple[bytes, int, str]


class _Walk:
    """Goes through an encoded body with the shape that it has."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def walk(self, shape: Any, label: str, depth: int) -> list[Line]:
        """Take one value, and return its lines; `label` names the field that it is."""
        begin, tag = self._at, self._body[self._at]
        if tag & 0xF0 == 0x90 or tag == _LONG_ARRAY:
            return self._array(shape, label, depth)
        if tag & 0xF0 == 0x80:
            return self._map(label, depth)
        meaning = shown(self._scalar())
        return [(self._body[begin : self._at], depth, label + meaning)]

    def _array(self, shape: Any, label: str, depth: int) -> list[Line]:
        head, count = self._head()
        struct = _struct_in(shape)
        if struct is None:
            inner = get_args(shape)[0] if get_args(shape) else Any
            lines: list[Line] = [(head, depth, f"{label}list of {count}")]
            for _ in range(count):
                lines += self.walk(inner, "", depth + 1)
        else:
            lines = [(head, depth, f"{label}{struct.__name__}, an array of {count}")]
            for field in msgspec.structs.fields(struct)[:count]:
                lines += self.walk(field.type, f"{field.name}: ", depth + 1)
        return lines

    def _map(self, label: str, depth: int) -> list[Line]:
        head, count = self._head()
        lines: list[Line] = [(head, depth, f"{label}map of {count}")]
        for _ in range(count):
            lines += self.walk(Any, "", depth + 1)
            lines += self.walk(Any, "", depth + 2)
        return lines

    def _head(self) -> tuple[bytes, int]:
        """Take the beginning of an array or map, which says its size as well."""
        if self._body[self._at] == _LONG_ARRAY:
            head = self._body[self._at : self._at + 3]
            self._at += 3
            return head, int.from_bytes(head[1:], "big")
        head = self._body[self._at : self._at + 1]
        self._at += 1
        return head, head[0] & 0x0F

    def _scalar(self) -> Any:
        for end in range(self._at + 1, len(self._body) + 1):
            try:
                value = msgspec.msgpack.decode(self._body[self._at : end])
            except msgspec.DecodeError:
                continue
            self._at = end
            return value
        raise ValueError("the body ends within a value")


def _struct_in(shape: Any) -> type[msgspec.Struct] | None:
    """Find the array by place that a type is or may be; a list of them is none."""
    if get_origin(shape) in (list, tuple):
        return None
    for one in (shape, *get_args(shape)):
        if isinstance(one, type) and issubclass(one, msgspec.Struct):
            return one if one.__struct_config__.array_like else None
    return None


def shown(value: Any) -> str:
    """Show a value that is neither a list nor a map."""
    if isinstance(value, bytes):
        return f"{len(value)} bytes" if value else "no bytes"
    if isinstance(value, str):
        return f'"{value}"'
    return "nil" if value is None else str(value).lower()


PROTOCOL: dict[str, Callable[[], Block]] = {
    "kinds": kinds,
    "words": words,
    "questions": questions,
    "about": about_keys,
    "management": management,
    "terms": terms,
    **{shape.__name__: partial(fields_of, shape) for shape in MESSAGES.values()},
    **{shape.__name__: partial(fields_of, shape) for shape in (*PARTS, *MAPS)},
    **{f"example {name}": partial(dump, message) for name, message in EXAMPLES.items()},
}
