"""Calls: the way of every call from its bytes to its method, and back.

Owns who calls and in which namespace, the check of messages, and how a call ends: with its answer,
with the status of an error, when its client goes, or when its API key does. What a method does is
the matter of its service, and what a caller may do that of the broker.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from jackalope.broker.access import Principal, acting, present
from jackalope.broker.queries import NOTHING, About, Question, Refused
from jackalope.core.assertions import BrokenInvariant
from jackalope.core.commands import DEFAULT_NAMESPACE, AnyCommand
from jackalope.core.effects import Answered
from jackalope.core.limits import NAME_CHARS_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.doors.grpc.errors import BadField, Elsewhere, abort
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb

if TYPE_CHECKING:
    from jackalope.doors.grpc.server import GrpcDoor

T = TypeVar("T")
M = TypeVar("M", bound=Message)

NAMESPACE = "jackalope-namespace"
CLIENT = "jackalope-client"

_NAMESPACE = re.compile(rf"[!-~]{{1,{NAME_CHARS_MAX}}}")
_WORDS = re.compile(r"(?<!^)(?=[A-Z])")

_KEY_IS_OVER = Refusal(
    Code.UNAUTHORISED, "the API key expired or was revoked, or one is now required"
)


class Call:
    """One call: who makes it, where, and its two streams."""

    __slots__ = (
        *("_metadata", "_sending", "_shape"),
        *("broker", "by", "context", "door", "namespace", "principal"),
    )

    def __init__(self, door: GrpcDoor, context: Any, shape: type[Message]) -> None:
        self.door = door
        self.broker = door.broker
        self.context = context
        self._shape = shape
        self._sending: asyncio.Future[None] | None = None
        self._metadata: dict[str, str | bytes] = dict(context.invocation_metadata() or ())
        self._refuse_elsewhere()
        self.principal = self._admit()
        self.namespace = self._namespace()
        named = self.header(CLIENT) or "grpc"
        self.by = self.principal.signed(named[:NAME_CHARS_MAX])  # who acts, for histories

    def header(self, name: str) -> str:
        """Return a value of the metadata; empty if there is none."""
        value = self._metadata.get(name, "")
        return value if isinstance(value, str) else ""

    def _refuse_elsewhere(self) -> None:
        leader = self.broker.leader
        address = None if leader is None else leader.elsewhere("grpc")
        if address is not None:
            raise Elsewhere(address)

    def _admit(self) -> Principal:
        access, now_us = self.broker.access, self.broker.now_us()
        scheme, _, token = self.header("authorization").partition(" ")
        if scheme and scheme.lower() != "bearer":
            raise Refused(Refusal(Code.UNAUTHORISED, "authorization must be `Bearer <token>`"))
        if not token and self.door.asks_certificates:
            found = access.admit_certified(_names_of(self.context), now_us)
        else:
            found = access.admit(token.strip(), now_us, str(self.context.peer()))
        if isinstance(found, Refusal):
            raise Refused(found)
        return found

    def _namespace(self) -> str:
        named = self.header(NAMESPACE) or DEFAULT_NAMESPACE
        if not _NAMESPACE.fullmatch(named):
            problem = f"a namespace has 1 to {NAME_CHARS_MAX} visible ASCII characters"
            raise BadField(NAMESPACE, problem)
        return named

    def count(self) -> None:
        """Count a request of the caller; raises `Refused` if there were too many."""
        refusal = self.door.rates.refuse(self.principal)
        if refusal is not None:
            raise Refused(refusal)

    # Asking the broker.

    async def ask(self, command: AnyCommand, items: int = 1) -> Answered:
        """Have a command done, in the namespace and in the name of the caller."""
        for name, value in (("namespace", self.namespace), ("by", self.by)):
            setattr(command, name, value)
        return await self.door.client_session.ask(command, items, self.principal)

    async def view(self, question: Question[T], about: About = NOTHING) -> T:
        return await question(self.broker, self.namespace, about)

    # The streams.

    async def read(self) -> Any:
        """Return the next message of the client; None when it sends no more."""
        data = await self.read_bytes()
        return None if data is None else parse(self._shape, data)

    async def read_bytes(self) -> bytes | None:
        """Return the bytes of the next message of the client; None when it sends no more."""
        data = await self.context.read()
        return None if data is grpc.aio.EOF else data

    async def send(self, message: Message) -> None:
        """Send a message; returns when the client has room for it."""
        self._sending = asyncio.ensure_future(self.context.write(message.SerializeToString()))
        await asyncio.shield(self._sending)

    async def sent(self) -> None:
        """Return when no message is on its way: the library takes no status behind one."""
        if self._sending is not None:
            await asyncio.wait({self._sending})


def parse(shape: type[M], data: bytes) -> M:
    try:
        message: M = shape.FromString(data)
    except DecodeError:
        raise BadField("", f"the message is not a {shape.__name__}") from None
    return message


def _names_of(context: Any) -> list[str]:
    """Return the names in the certificate of a client."""
    shown = context.auth_context()
    found = [*shown.get("x509_common_name", ()), *shown.get("x509_subject_alternative_name", ())]
    return list(dict.fromkeys(name.decode(errors="replace") for name in found))


# Handlers: what the library calls.


def handlers_of(door: GrpcDoor, name: str, service: object) -> grpc.GenericRpcHandler:
    """Return what answers the calls of a service, by the names of its methods."""
    described = pb.DESCRIPTOR.services_by_name[name]
    handlers = {}
    for method in described.methods:
        act = getattr(service, _WORDS.sub("_", method.name).lower())
        path = f"{described.full_name}/{method.name}"
        shape = GetMessageClass(method.input_type)
        kind = (method.client_streaming, method.server_streaming)
        handlers[method.name] = _KINDS[kind](_wrapped(door, act, shape, path, kind))
    return grpc.method_handlers_generic_handler(described.full_name, handlers)


#: Methods of workers, whose reports are never too many: a lease must not be lost for that.
_UNCOUNTED = ("work", "beat")

_KINDS: dict[tuple[bool, bool], Callable[..., Any]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


def _wrapped(
    door: GrpcDoor, act: Any, shape: type[Message], path: str, kind: tuple[bool, bool]
) -> Callable[[Any, Any], Awaitable[bytes | None]]:
    """Wrap a method so that it gets a checked message, and so that every error has its status."""
    reads, _ = kind

    async def answer(given: Any, context: Any) -> bytes | None:
        call: Call | None = None
        try:
            call = Call(door, context, shape)
            acting.set(call.principal)
            if act.__name__ not in _UNCOUNTED:
                call.count()
            if reads:
                answered = await _admitted(call, act(call))
            else:
                answered = await _admitted(call, act(call, parse(shape, given)))
        except Exception as error:
            if call is not None:
                await call.sent()
            await abort(context, error, path)
            raise
        return None if answered is None else answered.SerializeToString()

    return answer


async def _admitted(call: Call, work: Awaitable[Message | None]) -> Message | None:
    """Serve a caller for as long as it would be let in: whatever it waits for ends with its key."""
    serving = asyncio.current_task()
    if serving is None:
        raise BrokenInvariant("a call is served by a task")
    access = call.broker.access
    stay = access.stay(call.principal, serving.cancel)
    present.set(stay)
    try:
        return await work
    except asyncio.CancelledError:
        if not stay.is_over:
            raise
        serving.uncancel()
        raise Refused(_KEY_IS_OVER) from None
    finally:
        access.leave(stay)
