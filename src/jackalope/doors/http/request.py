"""Requests and answers: how JSON, parameters and ids come in, and how JSON goes out.

Owns the checks that every route of the API shares: the type and the size of a body, unknown
parameters, malformed ids. What a struct may hold is declared once, in the struct.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

import msgspec
from litestar import HttpMethod, Request, Response, route
from litestar.connection import ASGIConnection
from litestar.handlers import HTTPRouteHandler
from litestar.types import ControllerRouterHandler, Receive, Scope, Send

from jackalope.broker.access import acting
from jackalope.broker.queries import Refused
from jackalope.core.commands import DEFAULT_NAMESPACE
from jackalope.core.ids import ID_BYTES, TaskId
from jackalope.core.limits import NAME_CHARS_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.doors.http.errors import Rejected

if TYPE_CHECKING:
    from jackalope.doors.http.server import HttpDoor

Asked = Request[Any, Any, Any]
Connected = ASGIConnection[Any, Any, Any, Any]

S = TypeVar("S")
T = TypeVar("T")
Q = TypeVar("Q", bound=msgspec.Struct)

#: The header, or else the parameter of the query, that names the namespace.
NAMESPACE_HEADER = "X-Jackalope-Namespace"
NAMESPACE_PARAMETER = "namespace"

#: The header with the name of a client, for histories.
CLIENT_HEADER = "X-Jackalope-Client"

_NAMESPACE = re.compile(rf"[!-~]{{1,{NAME_CHARS_MAX}}}")

_NAMESPACE_NAME = NAMESPACE_HEADER.lower().encode()
_CLIENT_NAME = CLIENT_HEADER.lower().encode()
_TYPE_NAME = b"content-type"
_HEX = frozenset("0123456789abcdefABCDEF")

_JSON = "application/json"
_JSON_HEADER = (b"content-type", b"application/json")
_encode = msgspec.json.Encoder().encode
_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {}


def door_of(connection: Connected) -> HttpDoor:
    """Return the door through which a request came."""
    door: HttpDoor = connection.app.state.door
    return door


def namespace_of(connection: Connected) -> str:
    """Return the namespace of a request: from the header, or else from the query."""
    named = _header(connection, _NAMESPACE_NAME)
    if named is None and connection.scope["query_string"]:
        named = connection.query_params.get(NAMESPACE_PARAMETER)
    if named is None:
        return DEFAULT_NAMESPACE
    if not _NAMESPACE.fullmatch(named):
        message = f"a namespace over HTTP has 1 to {NAME_CHARS_MAX} visible ASCII characters"
        raise Rejected(400, message)
    return str(named)


def _header(connection: Connected, name: bytes) -> str | None:
    """Return one header; quicker than a mapping of all of them."""
    for each, value in connection.scope["headers"]:
        if each == name:
            return value.decode("latin-1")
    return None


def by_of(connection: Connected) -> str:
    """Return who acts, as histories show it: the key, then what the client calls itself."""
    named = _header(connection, _CLIENT_NAME) or "http"
    return acting.get().signed(named[:NAME_CHARS_MAX])


def task_id_of(text: str) -> TaskId:
    """Return the task that a path names."""
    task_id = as_task_id(text)
    if task_id is None:
        message = f"no task {text[:64]!r}; an id is a UUID, such as the one a submit returned"
        raise Refused(Refusal(Code.UNKNOWN_TASK, message))
    return task_id


def as_task_id(text: str) -> TaskId | None:
    """Return the id that a text stands for, with hyphens or without, if it is one."""
    digits = text.replace("-", "")
    is_id = len(digits) == 2 * ID_BYTES and _HEX.issuperset(digits)
    return TaskId(bytes.fromhex(digits)) if is_id else None


def to_text(task_id: TaskId) -> str:
    """Write an id as UUIDs are written."""
    digits = task_id.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def read_query(request: Connected, shape: type[Q]) -> Q:
    """Read the parameters of a query."""
    lists, numbers = _list_fields(shape), _number_fields(shape)
    found: dict[str, Any] = {}
    text = request.scope["query_string"].decode("latin-1")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=1_000)
    except ValueError as error:
        raise Rejected(400, f"query: {error}") from None
    for name, value in pairs:
        if name == NAMESPACE_PARAMETER:
            continue
        if name in lists:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise Rejected(400, f"query: {name!r} is given twice")
        else:
            found[name] = value
    try:
        for name in numbers.keys() & found.keys():
            found[name] = msgspec.convert(found[name], numbers[name], strict=False)
        return msgspec.convert(found, shape)
    except msgspec.ValidationError as error:
        raise Rejected(400, f"query: {error}") from None


async def read_body(request: Asked, shape: type[S]) -> S:
    """Read a body of JSON."""
    kind = (_header(request, _TYPE_NAME) or "").partition(";")[0].strip().lower()
    if kind != _JSON:
        raise Rejected(415, f"the body must be {_JSON}, got {kind or 'no Content-Type'}")
    body = await request.body()
    try:
        try:
            return _decoder_of(shape).decode(body)
        except msgspec.ValidationError:
            # JSON has one kind of number: 3.0 is a whole one as well.
            return msgspec.convert(_with_whole_numbers(msgspec.json.decode(body)), shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Rejected(400, f"body: {error}") from None
    except RecursionError:
        raise Rejected(400, "body: too many lists and objects inside each other") from None


async def gone(request: Asked) -> None:
    """Return when the client is gone, before it has its answer. Its body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def while_there(request: Asked, work: Coroutine[Any, Any, T]) -> T | None:
    """Do something for as long as the client is there; None if it goes first."""
    working, leaving = asyncio.create_task(work), asyncio.create_task(gone(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        leaving.cancel()


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


class Answer(Response[bytes]):
    """JSON on its way out. It sets and sends no more than it has, which is quicker."""

    def __init__(self, content: bytes, status: int, headers: dict[str, str] | None) -> None:
        self.content = content
        self.status_code = status
        self.headers = headers or {}

    def to_asgi_response(self, *_: Any, **__: Any) -> Any:
        """Return what sends it."""
        return self._send

    async def _send(self, _: Scope, __: Receive, send: Send) -> None:
        headers = [_JSON_HEADER, (b"content-length", b"%d" % len(self.content))]
        headers += [(name.lower().encode(), text.encode()) for name, text in self.headers.items()]
        begin: Any = {"type": "http.response.start", "status": self.status_code, "headers": headers}
        await send(begin)
        end: Any = {"type": "http.response.body", "body": self.content, "more_body": False}
        await send(end)


def answer(body: object, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    """Answer with JSON."""
    return Answer(_encode(body), status, headers)


def nothing(status: int = 204) -> Response[None]:
    """Answer that it is done, with an empty body."""
    return Response(None, status_code=status)


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


# Methods: the answer to OPTIONS, which lists the methods of a path.


def with_options(handlers: Sequence[ControllerRouterHandler]) -> list[ControllerRouterHandler]:
    """Return handlers, and before them one that answers OPTIONS for all their paths."""
    paths = {path for each in handlers if isinstance(each, HTTPRouteHandler) for path in each.paths}
    options = route(sorted(paths), http_method=HttpMethod.OPTIONS, opt={"permission": None})
    return [options(read_methods), *handlers]


async def read_methods(request: Asked) -> Response[None]:
    """Return the methods that a path knows."""
    template = request.scope["path_template"]
    methods = next(each.methods for each in request.app.routes if each.path_format == template)
    return Response(None, status_code=204, headers={"Allow": ", ".join(sorted(methods))})
