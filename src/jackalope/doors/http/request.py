"""Requests and answers: how JSON, parameters and ids come in, and how JSON goes out.

Owns the checks that every route of the API shares: the type and the size of a body, unknown
parameters, malformed ids. What a struct may hold is declared once, in the struct.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

import msgspec
from uvicorn.protocols.utils import ClientDisconnected

from jackalope.broker import access
from jackalope.broker.access import acting
from jackalope.broker.queries import NOTHING, About, Question, Refused
from jackalope.core.commands import DEFAULT_NAMESPACE, AnyCommand
from jackalope.core.effects import Answered
from jackalope.core.ids import TaskId, as_task_id
from jackalope.core.limits import NAME_CHARS_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.doors.http import vocabulary
from jackalope.doors.http.asgi import JSON, WEBSOCKET, Message, Receive, Response, Scope, Send
from jackalope.doors.http.errors import Rejected

if TYPE_CHECKING:
    from jackalope.doors.http.app import Application, HttpDoor

OnChunk = Callable[[], None]

S = TypeVar("S")
Q = TypeVar("Q", bound=msgspec.Struct)

#: The header, or else the parameter of the query, that names the namespace.
NAMESPACE_HEADER = "X-Jackalope-Namespace"
NAMESPACE_PARAMETER = "namespace"

#: The parameter by which a client takes an answer that lags, from a node that does not lead.
STALE_PARAMETER = "stale"

#: The header with the name of a client, for histories.
CLIENT_HEADER = "X-Jackalope-Client"

_NAMESPACE = re.compile(rf"[!-~]{{1,{NAME_CHARS_MAX}}}")

_NAMESPACE_NAME = NAMESPACE_HEADER.lower()
_CLIENT_NAME = CLIENT_HEADER.lower()
_TOO_LARGE = "Request Entity Too Large"

_encode = msgspec.json.Encoder().encode
_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {}


class Connection:
    """What requests and WebSockets have in common."""

    __slots__ = ("app", "receive", "scope", "send")

    def __init__(self, app: Application, scope: Scope, receive: Receive, send: Send) -> None:
        self.app = app
        self.scope = scope
        self.receive = receive
        self.send = send

    @property
    def method(self) -> str:
        """Return the method; `WEBSOCKET` of a WebSocket."""
        method: str = self.scope.get("method", WEBSOCKET)
        return method

    @property
    def path(self) -> str:
        """Return the path in which its route is found."""
        path: str = self.scope["path"]
        return path

    @property
    def query(self) -> dict[str, str]:
        """Return the parameters of the query; of those that are given twice the first counts."""
        text = self.scope["query_string"].decode("latin-1")
        return dict(reversed(parse_qsl(text, keep_blank_values=True)))

    def header(self, name: str, default: str = "") -> str:
        """Return one header, by its name in small letters."""
        wanted = name.encode()
        for each, value in self.scope["headers"]:
            if each == wanted:
                text: str = value.decode("latin-1")
                return text
        return default


class Request(Connection):
    """A request over HTTP."""

    __slots__ = ()

    async def body(self) -> bytes:
        """Return the body, unless it is too large. It can be read once."""
        size_max = self.app.body_bytes_max
        announced = self.header("content-length")
        if announced.isdigit() and int(announced) > size_max:
            raise Rejected(413, _TOO_LARGE)
        body = bytearray()
        async for chunk in self.chunks():
            body += chunk
            if len(body) > size_max:
                raise Rejected(413, _TOO_LARGE)
        return bytes(body)

    async def chunks(self, on_chunk: OnChunk | None = None) -> AsyncIterator[bytes]:
        """Yield the body as it comes, however large it is."""
        more = True
        while more:
            event = await self.receive()
            if event["type"] == "http.disconnect":
                raise Rejected(400, "the client disconnected before the end of the body")
            more = event.get("more_body", False)
            if on_chunk is not None:
                on_chunk()
            if event["body"]:
                yield event["body"]


class WebSocket(Connection):
    """A WebSocket. What is sent or received when its peer is gone raises `ClientDisconnected`."""

    __slots__ = ("is_accepted",)

    def __init__(self, app: Application, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(app, scope, receive, send)
        self.is_accepted = False

    async def accept(self, **more: Any) -> None:
        """Accept it. `more` is for the server, where that knows more than ASGI has."""
        await self.receive()  # That it wants to connect.
        self.is_accepted = True
        await self.send({"type": "websocket.accept", "subprotocol": None, "headers": [], **more})

    async def next(self) -> Message:
        message = await self.receive()
        if message["type"] != "websocket.receive":
            raise ClientDisconnected
        return message

    async def send_text(self, text: str) -> None:
        await self.send({"type": "websocket.send", "text": text, "bytes": None})

    async def close(self, code: int, reason: str = "") -> None:
        """Close it, or refuse it if it was not accepted."""
        await self.send({"type": "websocket.close", "code": code, "reason": reason})


def door_of(connection: Connection) -> HttpDoor:
    door: HttpDoor = connection.app.owner
    return door


async def view_of(request: Connection, question: Question[S], about: About = NOTHING) -> S:
    """Ask the broker something about the namespace of a request."""
    return await question(door_of(request).broker, namespace_of(request), about)


def namespace_of(connection: Connection) -> str:
    """Return the namespace of a request: from the header, or else from the query."""
    named = DEFAULT_NAMESPACE
    if connection.scope["query_string"]:
        named = connection.query.get(NAMESPACE_PARAMETER, named)
    named = connection.header(_NAMESPACE_NAME, named)
    if not _NAMESPACE.fullmatch(named):
        message = f"a namespace over HTTP has 1 to {NAME_CHARS_MAX} visible ASCII characters"
        raise Rejected(400, message)
    return named


def own_namespace() -> str:
    """Return the namespace that the API key is limited to, or else the default one."""
    return access.own_namespace() or DEFAULT_NAMESPACE


def by_of(connection: Connection) -> str:
    """Return who acts, as histories show it: the key, then what the client calls itself."""
    named = connection.header(_CLIENT_NAME) or "http"
    return acting.get().signed(named[:NAME_CHARS_MAX])


async def ask(request: Connection, command: AnyCommand, items: int = 1) -> Answered:
    """Have a command done, in the namespace and in the name of the one who asks."""
    for name, value in (("namespace", namespace_of(request)), ("by", by_of(request))):
        setattr(command, name, value)
    return await door_of(request).client_session.ask(command, items)


def task_id_of(text: str) -> TaskId:
    task_id = as_task_id(text)
    if task_id is None:
        message = f"no task {text[:64]!r}; an id is a UUID, such as the one a submit returned"
        raise Refused(Refusal(Code.UNKNOWN_TASK, message))
    return task_id


def read_query(request: Connection, shape: type[Q]) -> Q:
    lists, numbers = _list_fields(shape), _number_fields(shape)
    found: dict[str, Any] = {}
    text = request.scope["query_string"].decode("latin-1")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=1_000)
    except ValueError as error:
        raise Rejected(400, f"query: {error}") from None
    for name, value in pairs:
        if name in (NAMESPACE_PARAMETER, STALE_PARAMETER, vocabulary.PARAMETER):
            continue
        if name in lists:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise Rejected(400, f"query: {name!r} is given twice")
        else:
            found[name] = value
    found = vocabulary.in_our_words(found, shape)
    try:
        for name in numbers.keys() & found.keys():
            found[name] = msgspec.convert(found[name], numbers[name], strict=False)
        return msgspec.convert(found, shape)
    except msgspec.ValidationError as error:
        raise Rejected(400, f"query: {vocabulary.problem_in(str(error), shape)}") from None


async def read_body(request: Request, shape: type[S]) -> S:
    kind = request.header("content-type").partition(";")[0].strip().lower()
    if kind != JSON:
        got = kind or "no Content-Type"
        raise Rejected(415, f"the body must be {JSON}, got {got}; of curl, use --json")
    body = await request.body()
    try:
        try:
            return _decoder_of(shape).decode(body)
        except msgspec.ValidationError:
            # It may have aliases; and JSON has one kind of number: 3.0 is a whole one as well.
            plain = vocabulary.in_our_words(msgspec.json.decode(body), shape)
            return msgspec.convert(_with_whole_numbers(plain), shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Rejected(400, f"body: {vocabulary.problem_in(str(error), shape)}") from None
    except RecursionError:
        raise Rejected(400, "body: nested too deeply") from None


def _decoder_of(shape: type[S]) -> msgspec.json.Decoder[S]:
    decoder = _DECODERS.get(shape)
    if decoder is None:
        decoder = _DECODERS[shape] = msgspec.json.Decoder(shape)
    return decoder


def _with_whole_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_with_whole_numbers(each) for each in value]
    if isinstance(value, dict):
        return {name: _with_whole_numbers(each) for name, each in value.items()}
    return value


def answer(body: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(_encode(vocabulary.translated(body)), status, headers)


def nothing() -> Response:
    """Answer that it is done, and no more."""
    return Response(status=204)


@cache
def _list_fields(shape: type[msgspec.Struct]) -> frozenset[str]:
    hints = get_type_hints(shape)
    return frozenset(name for name in hints if get_origin(hints[name]) in (tuple, list))


@cache
def _number_fields(shape: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the fields that are written as text, and mean a number, yes or no."""
    hints = get_type_hints(shape)
    meant = {name for name, hint in hints.items() if {int, float, bool} & {hint, *get_args(hint)}}
    whole = get_type_hints(shape, include_extras=True)
    return {name: whole[name] for name in meant}
