"""The dashboard: the page that people look at, and what it needs beside the API.

Owns its files, as the build has left them in the package, and how they are sent: compressed
beforehand, with a tag, and for ever where the name of a file says what is in it. Owns what the page
may load and run, which is its own files, nothing else; signing in; and the pulse that keeps it up
to date. Everything else it shows and does comes from the REST API, as for any other client.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import cache
from hashlib import sha256
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Annotated, Self

import msgspec
from uvicorn.protocols.utils import ClientDisconnected

from jackalope import __version__
from jackalope.broker import queries
from jackalope.broker.access import Principal, acting, own_namespace, sees
from jackalope.broker.audit import act_of
from jackalope.broker.events import Subscription
from jackalope.broker.queries import Refused
from jackalope.broker.service import Broker
from jackalope.broker.views.namespaces import latest_act_us
from jackalope.core.api_key import Permission
from jackalope.core.commands import DEFAULT_NAMESPACE
from jackalope.core.durations import SECOND
from jackalope.core.ids import NO_TASK
from jackalope.core.refusals import Refusal
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.auth import Stranger
from jackalope.doors.http.errors import Rejected
from jackalope.doors.http.forward import PULSE
from jackalope.doors.http.request import (
    Request,
    WebSocket,
    answer,
    door_of,
    namespace_of,
    read_body,
)
from jackalope.doors.http.rest.queues import QueueShown, show_queue
from jackalope.doors.http.rest.schemas import Time, about, to_time
from jackalope.doors.http.rest.stats import StatsShown, show_stats
from jackalope.doors.http.rest.workers import WorkerShown, show_worker
from jackalope.doors.http.router import Routes, Spec
from jackalope.doors.http.visits import VISIT_US_MAX
from jackalope.wire.messages import Happened

routes = Routes()


FOLDER = Path(__file__).parent / "page"
INDEX = "index.html"


#: What the build makes. The tables of machines differ, and a browser runs nothing of another type.
_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

#: How each compressed form is called by HTTP and by the build; the smallest first.
_ENCODINGS = {"br": ".br", "gzip": ".gz"}

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_NOT_BUILT = (
    "this installation has no dashboard: it was built from source without Node; `make "
    "dashboard` builds it, and released packages contain it"
)


class File(msgspec.Struct, frozen=True):
    """A file of the page."""

    forms: dict[str, bytes]  # its bytes by encoding; "" for those that are not encoded
    kind: str  # its media type
    tag: str  # names these bytes
    is_lasting: bool  # its name changes with its content


class Page:
    """The files of the page."""

    def __init__(self, folder: Path = FOLDER) -> None:
        paths = [path for path in folder.rglob("*") if path.is_file()]
        compressed = set(_ENCODINGS.values())
        self._files = {
            path.relative_to(folder).as_posix(): _read(path, folder)
            for path in paths
            if path.suffix not in compressed
        }

    def answer(self, request: Request, name: str) -> Response:
        """Answer with a file."""
        file = self._files.get(name)
        if file is None:
            message = f"no file {name[:100]!r}" if INDEX in self._files else _NOT_BUILT
            raise Rejected(404, message)
        encoding = _best(file, request.header("accept-encoding"))
        body = file.forms[encoding]
        tag = f'"{file.tag}{encoding}"'
        lasting = "public, max-age=31536000, immutable"
        headers = {
            "Cache-Control": lasting if file.is_lasting else "no-cache",
            "Content-Security-Policy": _POLICY,
            "Cross-Origin-Opener-Policy": "same-origin",
            "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
            "ETag": tag,
            "Vary": "Accept-Encoding",
        }
        if tag in request.header("if-none-match"):
            return Response(status=304, headers=headers)
        if encoding:
            headers["Content-Encoding"] = encoding
        headers["Content-Length"] = str(len(body))
        is_head = request.method == "HEAD"
        return Response(b"" if is_head else body, headers=headers, media_type=file.kind)


def _read(path: Path, folder: Path) -> File:
    body = path.read_bytes()
    forms = {"": body}
    for encoding, suffix in _ENCODINGS.items():
        other = path.with_name(path.name + suffix)
        if other.is_file():
            forms[encoding] = other.read_bytes()
    kind = _KINDS.get(path.suffix, "application/octet-stream")
    tag = sha256(body).hexdigest()[:20]
    return File(forms, kind, tag, is_lasting=path.parent != folder)


def _best(file: File, accepted: str) -> str:
    """Return the smallest form that the client takes."""
    words = [word.replace(" ", "").lower() for word in accepted.split(",")]
    taken = {word.partition(";")[0] for word in words if not word.endswith(("q=0", "q=0.0"))}
    return next((each for each in _ENCODINGS if each in taken and each in file.forms), "")


@cache
def _page() -> Page:
    return Page()


@routes.read("/", "")
@routes.read("/login", "")
async def read_index(request: Request) -> Response:
    """Return the page, which asks for a key where one is needed."""
    return _page().answer(request, INDEX)


@routes.read("/assets/{name}", "")
async def read_asset(request: Request, name: str) -> Response:
    """Return what the page is made of."""
    return _page().answer(request, f"assets/{name}")


# Signing in: a key's token once, then a cookie; and what a visitor may do.


class SignIn(msgspec.Struct, forbid_unknown_fields=True):
    """The token of an API key."""

    token: Annotated[str, about("What `jackalope keys create` printed.", max_length=1_024)]


class Visitor(msgspec.Struct):
    """Who asks, and what they may do."""

    needs_key: bool  # a key is required, and none was sent
    name: str | None  # what the key is called; None where no key is needed
    permissions: list[Permission]  # what is permitted
    queues: tuple[str, ...]  # the queues that is limited to; none means all
    namespace: str | None  # the namespace that is limited to; none means all
    namespaces: list[str]  # those that there are, and that the key covers
    expires_at: Time | None  # when the visit ends
    version: str  # that of the broker
    is_cluster: bool  # the broker is one of several nodes


@routes.get("/api/v1/session", "", Spec(Visitor))
async def read_visitor(request: Request) -> Response:
    """Tell who asks, and what they may do."""
    door = door_of(request)
    visit = door.visits.find(dict(request.scope["headers"]), door.broker.now_us())
    return answer(await _visitor(request, acting.get(), visit.expires_us if visit else 0))


@routes.post("/api/v1/session", "", Spec(Visitor, body=SignIn))
async def sign_in(request: Request) -> Response:
    """Sign in with the token of a key. The cookie that comes back stands for it, for a while.

    With the cookie, whatever changes something needs the header `X-Jackalope-Client` as well.
    """
    token = (await read_body(request, SignIn)).token.strip()
    door = door_of(request)
    now_us = door.broker.now_us()
    found = door.broker.access.admit(token, now_us, acting.get().address)
    if isinstance(found, Principal) and found.key is not None:
        place = {"by": found.key.name, "namespace": found.key.namespace}
        door.broker.note(act_of(found, "sign_in", about=f"API key {found.key.id}", **place))
    if isinstance(found, Refusal):
        raise Refused(found)
    acting.set(found)
    if found.key is None:
        return answer(await _visitor(request, found, 0))
    value, visit = door.visits.open(found, now_us)
    headers = {"Set-Cookie": _cookie(request, value, VISIT_US_MAX // SECOND)}
    return answer(await _visitor(request, found, visit.expires_us), headers=headers)


@routes.delete("/api/v1/session", "", Spec(status=204))
async def sign_out(request: Request) -> Response:
    """End the visit of this browser."""
    door = door_of(request)
    door.visits.close(dict(request.scope["headers"]), door.broker.now_us())
    headers = {"Set-Cookie": _cookie(request, "", 0)}
    return Response(status=204, headers=headers)


def _cookie(request: Request, value: str, seconds: int) -> str:
    door = door_of(request)
    cookie = SimpleCookie({door.visits.cookie: value})[door.visits.cookie]
    cookie.update(
        {
            "max-age": seconds,
            "path": door.settings.prefix.rstrip("/") or "/",
            "httponly": True,
            "samesite": "strict",
            "secure": request.scope["scheme"] == "https",
        }
    )
    return cookie.OutputString()


async def _visitor(request: Request, principal: Principal, expires_us: int) -> Visitor:
    key = principal.key
    is_stranger = isinstance(principal, Stranger)
    return Visitor(
        needs_key=is_stranger,
        name=key.name if key is not None and not is_stranger else None,
        permissions=[each for each in Permission if principal.may(each)],
        queues=principal.queues,
        namespace=(key.namespace if key else "") or None,
        namespaces=await _namespaces(request, principal),
        expires_at=to_time(expires_us),
        version="" if is_stranger else __version__,
        is_cluster=door_of(request).broker.leader is not None,
    )


async def _namespaces(request: Request, principal: Principal) -> list[str]:
    if not principal.may(Permission.READ_TASKS):
        return []
    own = principal.key.namespace if principal.key else ""
    found = await queries.namespaces(door_of(request).broker, own or DEFAULT_NAMESPACE)
    return [own] if own else sorted({DEFAULT_NAMESPACE, *found})


# The pulse: the current state of a namespace, sent to a page as often as it changes, once a second
# at most. It costs the same whether a task a second is done or a hundred thousand: the events of
# single tasks have an endpoint of their own (`rest/events`).

#: How often a page is sent what has changed, and how often that nothing has.
BEAT_S = 1.0
QUIET_BEATS = 5

_POLICY_VIOLATION = 1008
_GOING_AWAY = 1001

_encode = msgspec.json.Encoder().encode


class Pulse(msgspec.Struct, tag_field="type", tag="pulse"):
    """A namespace as it is now."""

    # grows whenever anything durable happens; for a client of one namespace, anything in that one
    sequence: int
    stats: StatsShown  # the namespace in numbers
    queues: list[QueueShown]  # all that the client may see
    rates: dict[str, float]  # how many tasks a second recently succeeded in each queue
    workers: list[WorkerShown]  # those that are there, and those that left a while ago
    trouble: str  # why no new task is taken in, or nothing written; empty if that is not so


class Quiet(msgspec.Struct, tag_field="type", tag="quiet"):
    """Nothing has changed."""


_QUIET = _encode(Quiet()).decode()


@routes.websocket(PULSE, "read_tasks")
async def pulse_socket(socket: WebSocket) -> None:
    """Tell how the namespace is, whenever that has changed, until one side has had enough."""
    with Changes(door_of(socket).broker, namespace_of(socket)) as changes:
        first = await take_pulse(socket, changes)
        await socket.accept()
        closing = asyncio.create_task(door_of(socket).closing.wait())
        reading = asyncio.create_task(_until_gone(socket))
        beating = asyncio.create_task(_beat(socket, first, changes))
        tasks = (closing, reading, beating)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
    refused = next((end for end in ends if isinstance(end, Refused)), None)
    with suppress(Exception):  # The page may be gone already.
        await socket.close(_POLICY_VIOLATION if refused else _GOING_AWAY, str(refused or "")[:100])


class Changes:
    """When something last happened in a namespace, for a client that must not know of others."""

    def __init__(self, broker: Broker, namespace: str) -> None:
        self._broker, self._namespace = broker, namespace
        self._latest_us = broker.now_us()
        self._subscription = Subscription(self._take, namespace, "", NO_TASK)

    def __enter__(self) -> Self:
        if own_namespace():
            self._broker.events.subscribe(self._subscription)
        return self

    def __exit__(self, *_: object) -> None:
        self._broker.events.unsubscribe(self._subscription)

    def _take(self, events: list[Happened]) -> None:
        self._latest_us = max(self._latest_us, events[-1].at_us)

    async def sequence(self) -> int:
        """Return a number that grows whenever something happens to its tasks, or is administered.

        A standby is not told what happens: there it grows with the time.
        """
        leader = self._broker.leader
        if leader is not None and leader.answers_reads:
            return self._broker.now_us() // SECOND * SECOND
        acts = await self._broker.read(lambda engine: latest_act_us(engine.core, self._namespace))
        return max(self._latest_us, acts)


async def take_pulse(socket: WebSocket, changes: Changes) -> Pulse:
    """Return the namespace as it is now."""
    broker, namespace = door_of(socket).broker, namespace_of(socket)
    stats = await queries.stats(broker, namespace)
    queues = await queries.queues(broker, namespace)
    workers = await queries.workers(broker, namespace)
    return Pulse(
        sequence=await changes.sequence() if own_namespace() else stats.sequence,
        stats=show_stats(stats),
        queues=[show_queue(view) for view in queues],
        rates=broker.series.rates(namespace, broker.now_us(), broker.started_us, sees),
        workers=[show_worker(view) for view in workers],
        trouble=broker.health.shortage(),
    )


async def _beat(socket: WebSocket, pulse: Pulse, changes: Changes) -> None:
    """Send what has changed."""
    told, quiet = b"", 0
    while True:
        text = _encode(pulse)
        pulse.stats.now = None  # It always changes.
        bare = _encode(pulse)
        quiet = quiet + 1 if bare == told else 0
        if not quiet:
            await socket.send_text(text.decode())
        elif quiet % QUIET_BEATS == 0:
            await socket.send_text(_QUIET)
        told = bare
        await asyncio.sleep(BEAT_S)
        leader = door_of(socket).broker.leader
        if leader is None or leader.answers_reads:
            pass  # A standby is looked at itself.
        elif leader.elsewhere("http") is not None:
            return  # The page finds the node that leads now.
        pulse = await take_pulse(socket, changes)


async def _until_gone(socket: WebSocket) -> None:
    """Return when the page is gone; it sends nothing."""
    with suppress(ClientDisconnected):
        while True:
            await socket.next()
