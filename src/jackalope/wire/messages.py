"""Messages of the native protocol: what each kind of frame carries.

Bodies are MessagePack arrays, so that a field has a place and no name; trailing fields may be left
out and then have their defaults. `ref` is chosen by the sender of a request and comes back in its
answer; 0 asks for none. The same shapes serve both ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from jackalope.core.commands import (
    DEFAULT_NAMESPACE,
    Action,
    Answer,
    Fail,
    Finish,
    Held,
    RetryTerms,
)
from jackalope.core.durations import SECOND
from jackalope.core.effects import Assignment, TaskEnded
from jackalope.core.filter import Filter
from jackalope.core.ids import TaskId
from jackalope.core.task import Signal, TaskSpec
from jackalope.core.values import shape_problem
from jackalope.wire.frames import VERSION, BodyError, Kind, frame, ref_in

# Interests: which broadcasts a session wants to hear.


class Interest(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The broadcasts that a session wants to hear; `*` stands for any text, also for none."""

    sender: str = "*"
    subject: str = "*"

    def is_meant(self, sender: str, subject: str) -> bool:
        return matches(self.subject, subject) and matches(self.sender, sender)


def matches(pattern: str, text: str) -> bool:
    """Tell whether a text fits a pattern.

    In one walk from left to right: no pattern of a peer can make it take long.
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


class Message(msgspec.Struct, array_like=True, gc=False):
    """The body of a frame."""


# Either way.


class Heartbeat(Message):
    """I am alive. Workers say how they are."""

    ref: int = 0
    stats: dict[str, float] = {}


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


class Submit(Message):
    """Accept these tasks. Answered by ACK with what was refused."""

    ref: int
    tasks: list[TaskSpec]
    fence: int = 0


class Claim(Message):
    """Give me up to `count` tasks beyond my slots, within a time. Answered by ASSIGN or NACK."""

    ref: int
    count: int = 1
    wait_us: int = 0


class Result(Message):
    """How attempts ended. Answered by ACK with what was refused, counted over all three lists."""

    ref: int
    finished: list[Finish] = []
    failed: list[Fail] = []
    released: list[Held] = []


class Query(Message):
    """A question that changes nothing. Answered by ACK with the answer."""

    ref: int
    what: str
    about: dict[str, Any] = {}


class Join(Message):
    """This session is a worker. Answered by ACK with what goes on and what must be dropped."""

    ref: int
    worker: str
    queues: tuple[str, ...]
    keys: tuple[str, ...] = ()
    slots: int = 1
    labels: dict[str, str] = {}
    holding: list[Held] = []
    lease_us: int = 30 * SECOND
    grace_us: int = 10 * SECOND
    generation: int = 0
    ready: bool = True
    helps: int = -1
    names: tuple[str, ...] | None = None
    secret: str = ""


class Leave(Message):
    """The worker goes, and hands back what it holds."""

    ref: int = 0


class Start(Message):
    """The worker began these."""

    ref: int
    attempts: list[Held]


class Progress(Message):
    """How far an attempt has come."""

    ref: int
    task: TaskId
    fence: int
    percent: float | None = None
    note: str = ""


class SignalAnswer(Message):
    """The worker's word on a signal."""

    ref: int
    task: TaskId
    fence: int
    answer: Answer
    detail: str = ""


class Act(Message):
    """Do something with tasks. `terms` go with `retry`."""

    ref: int
    action: Action
    tasks: tuple[TaskId, ...] = ()
    filter: Filter | None = None
    dry_run: bool = False
    terms: RetryTerms | None = None


class Watch(Message):
    """Tell me when these tasks end and, if so asked, how far they come."""

    ref: int
    tasks: tuple[TaskId, ...]
    progress: bool = False


class Manage(Message):
    """Change a queue, a tag or a worker: see the reference for what there is."""

    ref: int
    what: str
    about: dict[str, Any] = {}


class Subscribe(Message):
    """Send me what happens: to one task, in one queue, or everywhere."""

    ref: int
    queue: str = ""
    task: TaskId = TaskId(b"")


class Call(Message):
    """Ask a recipient something. Answered by ACK once it is on its way, then by `CallReplied`."""

    ref: int
    recipient: str
    body: bytes = b""


class CallStage(StrEnum):
    """How far a call has come."""

    PENDING = "pending"
    RESULT = "result"
    ERROR = "error"
    CANCELLED = "cancelled"
    LOST = "lost"


class CallReply(Message):
    """The recipient's word on a call; `pending` says that it will take longer."""

    ref: int
    call: int
    stage: CallStage = CallStage.RESULT
    body: bytes = b""


class Listen(Message):
    """Take calls for these recipients, and hear these broadcasts; or no more."""

    ref: int
    recipients: tuple[str, ...] = ()
    broadcasts: tuple[Interest, ...] = ()
    begin: bool = True


class Broadcast(Message):
    """Tell everybody who wants to hear it. Answered by ACK with how many sessions that were."""

    ref: int
    subject: str = ""
    sender: str = ""
    body: bytes = b""


class HelpersAsk(Message):
    """Let up to `count` workers help with a running task. Answered by ACK with a token."""

    ref: int
    task: TaskId
    fence: int
    count: int
    function: str = ""
    where: str = ""
    seal: str = ""
    queue: str = ""
    secret: str = ""


class HelpEnd(Message):
    """The worker helps no more; `why`, if it could not."""

    ref: int
    fence: int
    why: str = ""


class Upload(Message):
    """A part of a body that fits into no frame. Answered by ACK; the last one with what to name."""

    ref: int
    upload: int  # the number of the upload, chosen by the sender
    data: bytes = b""  # the next bytes of it
    last: bool = False  # they are the last ones
    abort: bool = False  # give it up


class Fetch(Message):
    """Send me a part of the body of a task. Answered by ACK with `Part`."""

    ref: int
    task: TaskId
    fence: int = 0  # proves that the sender runs the task, and means its payload
    offset: int = 0  # where the part begins
    length: int = 0  # how long it is at most; 0 for as long as a part may be
    payload: bool = False  # the payload, not the result


class Part(msgspec.Struct, frozen=True):
    """A part of a body."""

    size: int  # how many bytes the whole body has
    digest: str  # what tells the whole body from any other; empty if the store does not say
    data: bytes  # the part


# From the broker.


class Welcome(Message):
    """The answer to HELLO."""

    version: int  # the protocol that will be spoken
    session: int  # the number of this session
    pulse: str  # the secret by which another connection can send heartbeats for this session
    heartbeat_us: int  # how often each side should send something
    frame_bytes_max: int  # the largest frame that the broker takes
    server: str  # program and version
    part_bytes_max: int = 0  # the largest part of a body that goes in several; 0 if none can


class Ack(Message):
    """Yes, and what came of it."""

    ref: int
    body: Any = None


class Nack(Message):
    """No, and why; `retry_after_us` says when asking again may help."""

    ref: int
    code: str
    message: str
    retry_after_us: int = 0


class Assign(Message):
    """Tasks for the worker."""

    assignments: list[Assignment]


class SignalAsk(Message):
    """The worker shall pause or kill an attempt."""

    task: TaskId
    fence: int
    signal: Signal


class Progressed(Message):
    """How far a watched task has come."""

    task: TaskId
    at_us: int
    percent: float | None = None
    note: str = ""


class Ended(Message):
    """Watched tasks that have ended."""

    tasks: list[TaskEnded]


class Happened(Message):
    """One line of what happens in the broker."""

    at_us: int
    what: str
    task: TaskId
    queue: str
    state: str
    by: str = ""
    detail: str = ""


class Events(Message):
    """What happened, and how much was left out because this session reads too slowly."""

    events: list[Happened]
    missed: int = 0


class Notice(Message):
    """Something the session must know: `drain`, `replaced`, `lease_lost`, `goodbye`, `error`."""

    what: str
    detail: str = ""


class HelpAsk(Message):
    """The worker shall help a task with its fan-out, or, without a place to go, do so no more."""

    fence: int
    task: TaskId = TaskId(b"")
    queue: str = ""
    function: str = ""
    where: str = ""
    token: str = ""
    seal: str = ""


class HelperGone(Message):
    """A worker could not help."""

    task: TaskId
    fence: int
    worker: str
    why: str


class Called(Message):
    """Somebody calls a recipient of this session. `call` is the number to reply under."""

    call: int
    recipient: str
    body: bytes = b""


class CallReplied(Message):
    """The recipient's word on a call of this session. `call` is the ref of the call."""

    call: int
    stage: CallStage = CallStage.RESULT
    body: bytes = b""


class Heard(Message):
    """A broadcast, and how many before it were left out because this session reads too slowly."""

    subject: str = ""
    sender: str = ""
    body: bytes = b""
    missed: int = 0


TO_BROKER: dict[Kind, type[Message]] = {
    Kind.HELLO: Hello,
    Kind.SUBMIT: Submit,
    Kind.CLAIM: Claim,
    Kind.RESULT: Result,
    Kind.HEARTBEAT: Heartbeat,
    Kind.QUERY: Query,
    Kind.JOIN: Join,
    Kind.LEAVE: Leave,
    Kind.START: Start,
    Kind.PROGRESS: Progress,
    Kind.SIGNAL: SignalAnswer,
    Kind.ACT: Act,
    Kind.WATCH: Watch,
    Kind.MANAGE: Manage,
    Kind.SUBSCRIBE: Subscribe,
    Kind.RPC: Call,
    Kind.REPLY: CallReply,
    Kind.LISTEN: Listen,
    Kind.BROADCAST: Broadcast,
    Kind.HELPERS: HelpersAsk,
    Kind.HELP: HelpEnd,
    Kind.UPLOAD: Upload,
    Kind.FETCH: Fetch,
}

FROM_BROKER: dict[Kind, type[Message]] = {
    Kind.HELLO: Welcome,
    Kind.ACK: Ack,
    Kind.NACK: Nack,
    Kind.HEARTBEAT: Heartbeat,
    Kind.ASSIGN: Assign,
    Kind.SIGNAL: SignalAsk,
    Kind.PROGRESS: Progressed,
    Kind.ENDED: Ended,
    Kind.EVENTS: Events,
    Kind.NOTICE: Notice,
    Kind.RPC: Called,
    Kind.REPLY: CallReplied,
    Kind.BROADCAST: Heard,
    Kind.HELPERS: HelperGone,
    Kind.HELP: HelpAsk,
}


class Codec:
    """Encodes one direction of the protocol and decodes the other."""

    def __init__(
        self, sends: Mapping[AnyKind, type[Message]], hears: Mapping[AnyKind, type[Message]]
    ) -> None:
        self._kinds: dict[type[Message], IntEnum] = {shape: kind for kind, shape in sends.items()}
        self._decoders = {
            int(kind): msgspec.msgpack.Decoder(shape) for kind, shape in hears.items()
        }
        self._encode = msgspec.msgpack.Encoder().encode

    def encode(self, message: Message) -> bytes:
        return frame(self._kinds[type(message)], self._encode(message))

    def decode(self, kind: int, body: bytes) -> Message:
        """Return the message of a frame."""
        decoder = self._decoders.get(kind)
        if decoder is None:
            message = f"a frame of kind {kind}, which means nothing in this direction"
            raise BodyError(message, ref_in(body))
        try:
            decoded: Message = decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            message = f"a frame of kind {kind} with a bad body: {error}"
            raise BodyError(message, ref_in(body)) from None
        if isinstance(decoded, Query | Manage) and (problem := shape_problem(decoded.about)):
            message = f"a frame of kind {kind} with a bad body: about: {problem}"
            raise BodyError(message, decoded.ref)
        return decoded


def broker_codec() -> Codec:
    """Return what the broker's end of a connection speaks."""
    return Codec(sends=FROM_BROKER, hears=TO_BROKER)


def peer_codec() -> Codec:
    """Return what a client's or worker's end of a connection speaks."""
    return Codec(sends=TO_BROKER, hears=FROM_BROKER)


# Parts: how a piece of an answer travels to the caller who reads it as a stream.


def subject_of(task: TaskId) -> str:
    """Return the subject of the broadcasts that carry the parts of the answer to a task."""
    return f"jackalope.answer.{task.hex()}"
