"""Messages of the native protocol: what each kind of frame carries.

Bodies are MessagePack arrays, so that a field has a place and no name; trailing fields may be left
out and then have their defaults. `ref` is chosen by the sender of a request and comes back in its
answer; 0 asks for none. The same shapes serve both ends.

Most requests are the commands of the core, and some messages its effects: what stands here is the
rest, and which frame carries which. A command has fields that a peer must not set; they are neither
sent nor read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum, StrEnum
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from jackalope.core.commands import (
    DEFAULT_NAMESPACE,
    ActOnTasks,
    AnswerSignal,
    ClaimTasks,
    Command,
    EndHelp,
    Fail,
    Finish,
    Heartbeat,
    Held,
    JoinWorker,
    LeaveWorker,
    RecordStep,
    ReportProgress,
    RequestHelpers,
    StartAttempts,
    SubmitTasks,
    Suspend,
    WatchTasks,
)
from jackalope.core.commands.base import HIDDEN
from jackalope.core.commands.flows import AddNodes, SubmitFlow
from jackalope.core.effects import (
    Assignment,
    HelpAsked,
    HelperFailed,
    SignalAsked,
    TaskEnded,
    TaskProgressed,
)
from jackalope.core.ids import TaskId
from jackalope.core.shapes.task_log import LogLine
from jackalope.core.values import shape_problem
from jackalope.wire.frames import VERSION, BodyError, Kind, frame, ref_in

# Interests: which broadcasts a session wants to hear.


class Interest(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The broadcasts that a session subscribes to; `*` stands for any text, also for none."""

    sender: str = "*"
    subject: str = "*"

    def is_meant(self, sender: str, subject: str) -> bool:
        return matches(self.subject, subject) and matches(self.sender, sender)


def matches(pattern: str, text: str) -> bool:
    """Return whether a text matches a pattern.

    One pass from left to right: no pattern can make it slow.
    """
    if pattern in ("*", text):
        return True
    first, *rest = _pieces(pattern)
    if not rest or not text.startswith(first):
        return False
    *middle, last = rest
    at, end = len(first), len(text) - len(last)
    if end < at or not text.endswith(last):
        return False
    for piece in middle:
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


@lru_cache(1024)
def _pieces(pattern: str) -> tuple[str, ...]:
    return tuple(pattern.split("*"))


AnyKind = TypeVar("AnyKind", bound=IntEnum)

#: MessagePack: the first byte of an array of up to so many elements, less their number.
_SHORT_ARRAY = 0x90
_SHORT_ARRAY_MAX = 15
_LONG_ARRAY = b"\xdc"


class Message(msgspec.Struct, array_like=True, gc=False):
    """The body of a frame that is neither a command nor an effect of the core."""


class Request(Message):
    """A message that expects a reply."""

    ref: int


AnyMessage = Message | Command | SignalAsked | TaskProgressed | HelpAsked | HelperFailed


# To the broker.


class Hello(Message):
    """The first frame of a connection."""

    version: int = VERSION  # the newest protocol that the sender speaks
    namespace: str = DEFAULT_NAMESPACE  # the namespace that this session acts in
    token: str = ""  # what proves who the sender is, where the broker asks for it
    name: str = ""  # who acts, for histories and lists
    agent: str = ""  # program and version, for people
    pulse: str = ""  # the pulse of another session, which this connection's heartbeats keep alive
    fetches: bool = False  # the sender fetches payloads that fit into no frame
    follows: bool = False  # the sender goes where MOVED says


class Result(Request):
    """The ends of attempts. Answered by ACK with what was refused, counted over all three lists."""

    finished: list[Finish] = []
    failed: list[Fail] = []
    released: list[Held] = []


class Query(Request):
    """A query, which changes nothing. Answered by ACK with the answer."""

    what: str
    about: dict[str, Any] = {}


class Manage(Request):
    """Change a queue, a tag or a worker: see the reference for the operations."""

    what: str
    about: dict[str, Any] = {}


class Subscribe(Request):
    """Subscribe to events: of one task, of one queue, or of the namespace."""

    queue: str = ""
    task: TaskId = TaskId(b"")


class Call(Request):
    """Call a recipient. Answered by ACK when it is forwarded, then by `CallReplied`."""

    recipient: str
    body: bytes = b""


class CallStage(StrEnum):
    """The stages of a call."""

    PENDING = "pending"
    RESULT = "result"
    ERROR = "error"
    CANCELLED = "cancelled"
    LOST = "lost"


class CallReply(Request):
    """The recipient's reply to a call; `pending` announces that it will take longer."""

    call: int
    stage: CallStage = CallStage.RESULT
    body: bytes = b""


class Listen(Request):
    """Subscribe to calls for these recipients and to these broadcasts, or unsubscribe."""

    recipients: tuple[str, ...] = ()
    broadcasts: tuple[Interest, ...] = ()
    begin: bool = True


class Broadcast(Request):
    """Send a broadcast. Answered by ACK with the number of sessions that received it."""

    subject: str = ""
    sender: str = ""
    body: bytes = b""


class Upload(Request):
    """A part of a body that is too large for a frame. Answered by ACK; the last with its name."""

    upload: int  # the number of the upload, chosen by the sender
    data: bytes = b""  # the next bytes of it
    last: bool = False  # they are the last ones
    abort: bool = False  # give it up


class Logs(Request):
    """Lines that an attempt has printed or logged. Answered by ACK with `LogsKept`."""

    task: TaskId
    fence: int  # proves that the sender runs the task, or has just run it
    lines: list[LogLine] = []
    last: int = 0  # the number of the last line so far, also if it was dropped


class Fetch(Request):
    """Request a part of the body of a task. Answered by ACK with `Part`."""

    task: TaskId
    fence: int = 0  # proves that the sender runs the task, and means its payload
    offset: int = 0  # where the part begins
    length: int = 0  # how long it is at most; 0 for as long as a part may be
    payload: bool = False  # the payload, not the result
    node: str = ""  # with a fence: what this node of its flow left for the task, not its payload


class Part(msgspec.Struct, frozen=True):
    """A part of a body."""

    size: int  # how many bytes the whole body has
    digest: str  # what tells the whole body from any other; empty if the store does not say
    data: bytes  # the part


# From the broker.


class Welcome(Message):
    """The reply to HELLO."""

    version: int  # the protocol that will be spoken
    session: int  # the number of this session
    pulse: str  # the secret by which another connection can send heartbeats for this session
    heartbeat_us: int  # how often each side should send something
    frame_bytes_max: int  # the largest frame that the broker takes
    server: str  # program and version
    part_bytes_max: int = 0  # the largest part of a body that goes in several; 0 if none can
    members: tuple[str, ...] = ()  # `host:port` of the members of the cluster; empty if it is none
    epoch: int = 0  # counts the leaders of the cluster
    logs: bool = False  # the broker keeps what tasks print and log


class Moved(Message):
    """The answer to HELLO of a member that does not lead: the session is to be opened elsewhere."""

    address: str  # `host:port` of the leader
    epoch: int = 0  # counts the leaders of the cluster


class Ack(Message):
    """Success, with the result."""

    ref: int
    body: Any = None


class Nack(Message):
    """A refusal; `retry_after_us` is when repeating the request may help.

    `quota` is the quota of the namespace that is used up, if that is why, with its limit and how
    much of it is used.
    """

    ref: int
    code: str
    message: str
    retry_after_us: int = 0
    quota: str = ""
    limit: int = 0
    used: int = 0


class Assign(Message):
    """Tasks for the worker."""

    assignments: list[Assignment]


class Ended(Message):
    """Watched tasks that have ended."""

    tasks: list[TaskEnded]


class Happened(Message):
    """One event."""

    at_us: int
    what: str
    task: TaskId
    queue: str
    state: str
    by: str = ""
    detail: str = ""
    name: str = ""  # of the task


class Events(Message):
    """Events, and how many were dropped because this session reads too slowly."""

    events: list[Happened]
    missed: int = 0


class Notice(Message):
    """A notice to the session: `drain`, `replaced`, `lease_lost`, `moved`, `goodbye`, `error`."""

    what: str
    detail: str = ""


class Called(Message):
    """A call to a recipient of this session. `call` is the number to reply under."""

    call: int
    recipient: str
    body: bytes = b""


class CallReplied(Message):
    """The reply of a recipient to a call of this session. `call` is the ref of the call."""

    call: int
    stage: CallStage = CallStage.RESULT
    body: bytes = b""


class Heard(Message):
    """A broadcast, and how many before it were dropped because this session reads too slowly."""

    subject: str = ""
    sender: str = ""
    body: bytes = b""
    missed: int = 0


TO_BROKER: dict[Kind, type[AnyMessage]] = {
    Kind.HELLO: Hello,
    Kind.SUBMIT: SubmitTasks,
    Kind.CLAIM: ClaimTasks,
    Kind.RESULT: Result,
    Kind.HEARTBEAT: Heartbeat,
    Kind.QUERY: Query,
    Kind.JOIN: JoinWorker,
    Kind.LEAVE: LeaveWorker,
    Kind.START: StartAttempts,
    Kind.PROGRESS: ReportProgress,
    Kind.SIGNAL: AnswerSignal,
    Kind.ACT: ActOnTasks,
    Kind.WATCH: WatchTasks,
    Kind.MANAGE: Manage,
    Kind.SUBSCRIBE: Subscribe,
    Kind.RPC: Call,
    Kind.REPLY: CallReply,
    Kind.LISTEN: Listen,
    Kind.BROADCAST: Broadcast,
    Kind.HELPERS: RequestHelpers,
    Kind.HELP: EndHelp,
    Kind.UPLOAD: Upload,
    Kind.FETCH: Fetch,
    Kind.STEP: RecordStep,
    Kind.SUSPEND: Suspend,
    Kind.FLOW: SubmitFlow,
    Kind.ADD: AddNodes,
    Kind.LOGS: Logs,
}

FROM_BROKER: dict[Kind, type[AnyMessage]] = {
    Kind.HELLO: Welcome,
    Kind.ACK: Ack,
    Kind.NACK: Nack,
    Kind.HEARTBEAT: Heartbeat,
    Kind.ASSIGN: Assign,
    Kind.SIGNAL: SignalAsked,
    Kind.PROGRESS: TaskProgressed,
    Kind.ENDED: Ended,
    Kind.EVENTS: Events,
    Kind.NOTICE: Notice,
    Kind.RPC: Called,
    Kind.REPLY: CallReplied,
    Kind.BROADCAST: Heard,
    Kind.HELPERS: HelperFailed,
    Kind.HELP: HelpAsked,
    Kind.MOVED: Moved,
}


_WITH_ABOUT = (Query, Manage)
_COMMANDS = {shape: kind for kind, shape in TO_BROKER.items() if issubclass(shape, Command)}


def fields_of(shape: type[msgspec.Struct]) -> tuple[str, ...]:
    if not issubclass(shape, Command):
        return shape.__struct_fields__
    return tuple(name for name in shape.__struct_fields__ if name not in HIDDEN)


def name_of(message: Request | Command) -> str:
    """Return the name of a request for errors: that of its frame kind."""
    if isinstance(message, Command):
        return _COMMANDS[type(message)].name.capitalize()
    return type(message).__name__


class _CommandDecoder:
    """Decodes a command, ignoring what a peer sends beyond the fields that it may set."""

    def __init__(self, shape: type[Command]) -> None:
        names = fields_of(shape)
        self._decode = msgspec.msgpack.Decoder(shape).decode
        longer = len(names) + 1
        self._too_long = (
            bytes([_SHORT_ARRAY + longer])
            if longer <= _SHORT_ARRAY_MAX
            else _LONG_ARRAY + longer.to_bytes(2, "big")
        )
        # Raw, and as many as there are: the rest is passed over, however long it is.
        parts: Any = [(name, msgspec.Raw, None) for name in names]
        self._decode_parts = msgspec.msgpack.Decoder(
            msgspec.defstruct("Parts", parts, array_like=True)
        ).decode

    def decode(self, body: bytes) -> Command:
        if body >= self._too_long:  # By its first bytes: an array that is longer, or so written.
            parts = msgspec.structs.astuple(self._decode_parts(body))
            body = msgspec.msgpack.encode([part for part in parts if part is not None])
        return self._decode(body)


class Codec:
    """Encodes one direction of the protocol and decodes the other."""

    def __init__(
        self, sends: Mapping[AnyKind, type[AnyMessage]], hears: Mapping[AnyKind, type[AnyMessage]]
    ) -> None:
        self._sends: dict[type[AnyMessage], tuple[IntEnum, Callable[[Any], Any] | None]] = {
            shape: (kind, _getter(fields_of(shape)) if issubclass(shape, Command) else None)
            for kind, shape in sends.items()
        }
        self._decoders: dict[int, Callable[[bytes], AnyMessage]] = {
            int(kind): _CommandDecoder(shape).decode
            if issubclass(shape, Command)
            else msgspec.msgpack.Decoder(shape).decode
            for kind, shape in hears.items()
        }
        self._encode = msgspec.msgpack.Encoder().encode

    def encode(self, message: AnyMessage) -> bytes:
        kind, getter = self._sends[type(message)]
        return frame(kind, self._encode(message if getter is None else getter(message)))

    def decode(self, kind: int, body: bytes) -> AnyMessage:
        """Decode a frame. Fields of a command that a peer must not set have their defaults."""
        decode = self._decoders.get(kind)
        if decode is None:
            message = f"unexpected frame of kind {kind}"
            raise BodyError(message, ref_in(body))
        try:
            decoded = decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            message = f"invalid body in a frame of kind {kind}: {error}"
            raise BodyError(message, ref_in(body)) from None
        if isinstance(decoded, _WITH_ABOUT) and (problem := shape_problem(decoded.about)):
            message = f"invalid body in a frame of kind {kind}: about: {problem}"
            raise BodyError(message, decoded.ref)
        return decoded


def _getter(names: tuple[str, ...]) -> Callable[[Any], Any]:
    if len(names) == 1:
        return lambda message: [getattr(message, names[0])]
    return attrgetter(*names)


def broker_codec() -> Codec:
    return Codec(sends=FROM_BROKER, hears=TO_BROKER)


def peer_codec() -> Codec:
    return Codec(sends=TO_BROKER, hears=FROM_BROKER)


# Parts: how a piece of an answer travels to the caller who reads it as a stream.


def subject_of(task: TaskId) -> str:
    """Return the subject of the broadcasts that carry the parts of a task's streamed answer."""
    return f"jackalope.answer.{task.hex()}"
