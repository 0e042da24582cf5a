"""Upload links over REST: bodies go between clients and the store, and not through the broker."""

from __future__ import annotations

import re
from hashlib import blake2b
from secrets import token_hex
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from jackalope.broker.access import acting
from jackalope.broker.queries import Refused
from jackalope.core.durations import SECOND
from jackalope.core.refusals import Code, Refusal
from jackalope.core.task import BlobRef, Body
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.bodies import body_response
from jackalope.doors.http.errors import Rejected
from jackalope.doors.http.request import Request, answer, door_of, namespace_of
from jackalope.doors.http.rest.schemas import Time, about, to_time
from jackalope.doors.http.router import Routes, Spec
from jackalope.storage import Links

if TYPE_CHECKING:
    from jackalope.broker.blobs import BlobKeeper

routes = Routes("/api/v1", has_namespace=True)


_NO_LINKS = "no_links"


#: The parameter that asks for a link.
WithLink = Annotated[
    int, Meta(ge=0, le=1, description="1 for a link to the blob store instead of the bytes.")
]


class UploadLink(msgspec.Struct):
    """Where to send a payload or result, and what stands for it afterwards."""

    ticket: Annotated[str, about("Use it in one submit or result.")]
    url: Annotated[str, about("The URL to send the body to.")]
    method: Annotated[str, about("The HTTP method.")]
    expires_at: Annotated[Time | None, about("When the link and the ticket expire.")]
    bytes_max: Annotated[int, about("The maximum size of the body.")]


class DownloadLink(msgspec.Struct):
    """Where a payload or result can be had."""

    url: Annotated[str, about("The URL to fetch it from.")]
    expires_at: Annotated[Time | None, about("Until then.")]


@routes.post("/blobs", "submit_tasks", Spec(UploadLink, status=201, errors=(501,)))
async def make_upload_link(request: Request) -> Response:
    """Return a link to send a large payload to, past the broker.

    Its ticket stands for the body in one submit (`payload_ticket`) of the same client. Not every
    store supports links.
    """
    return await upload_link(request)


async def upload_link(request: Request) -> Response:
    """Answer with a link to send a body to, and its ticket."""
    door = door_of(request)
    links = door.broker.blobs.links
    if links is None:
        message = "the blob store of this broker does not support links; send the body itself"
        raise Rejected(501, message, _NO_LINKS)
    ticket = await give_ticket(door.broker.blobs, links, _owner(request), _now_s(request))
    shown = UploadLink(
        ticket.text, ticket.link.url, "PUT", _until(ticket.link), door.settings.upload_bytes_max
    )
    return answer(shown, 201)


async def body_of_ticket(request: Request, ticket: str) -> Body:
    """Return the body that a ticket stands for, if the ticket was issued to the requester."""
    door = door_of(request)
    most = door.settings.upload_bytes_max
    return await redeem(door.broker.blobs, ticket, _owner(request), _now_s(request), most)


async def body_or_link(request: Request, body: Body, *, is_link: bool) -> Response:
    blobs = door_of(request).broker.blobs
    if not is_link:
        return await body_response(request, blobs, body)
    link = await link_to(blobs, body, _now_s(request))
    if link is None:
        raise Rejected(501, "no link is available for this; fetch it without `link`", _NO_LINKS)
    return answer(DownloadLink(link.url, _until(link)))


def _owner(request: Request) -> str:
    key = acting.get().key
    return f"{namespace_of(request)}/{key.id if key else ''}"


def _now_s(request: Request) -> int:
    return door_of(request).broker.now_us() // SECOND


def _until(link: Link) -> Any:
    return to_time(link.until_s * SECOND)


# Tickets: how a body gets into the store without passing through the broker, and out of it.

_TICKET = re.compile(r"(\d{10,12})-[0-9a-f]{32}")


class Link(msgspec.Struct, frozen=True):
    """An address of the store, and the Unix time until which it can be used."""

    url: str
    until_s: int


class Ticket(msgspec.Struct, frozen=True):
    """What stands for a body that is sent over a link."""

    text: str
    link: Link


async def give_ticket(blobs: BlobKeeper, links: Links, owner: str, now_s: int) -> Ticket:
    """Issue a ticket, and the link to send a body to.

    Only the same owner can redeem it.
    """
    until_s = now_s + links.link_life_s
    text = f"{until_s}-{token_hex(16)}"
    name = _name_of(text, owner)
    return Ticket(text, Link(await blobs.off_loop(lambda: links.link_in(name, until_s)), until_s))


async def redeem(blobs: BlobKeeper, ticket: str, owner: str, now_s: int, bytes_max: int) -> BlobRef:
    """Return the blob that a ticket stands for. Safe to repeat, as a submit is."""
    links, until = blobs.links, _TICKET.fullmatch(ticket)
    if links is None or until is None or int(until[1]) < now_s:
        raise Refused(_worthless(ticket))
    name = _name_of(ticket, owner)
    if blobs.is_leaving(name):
        raise Refused(_worthless(ticket))
    with blobs.holding(name):
        ref = await blobs.off_loop(lambda: links.take_in(name, int(until[1]), bytes_max))
    if ref is None:
        raise Refused(_worthless(ticket))
    if ref.size > bytes_max:
        message = f"the upload of the ticket is too large; at most {bytes_max} bytes are accepted"
        raise Refused(Refusal(Code.TOO_LARGE, message))
    return ref


async def link_to(blobs: BlobKeeper, body: Body, now_s: int) -> Link | None:
    """Return a link from which a body can be had; None if there can be none."""
    links = blobs.links
    if links is None or not isinstance(body, BlobRef):
        return None
    ref, life_s = body, links.link_life_s
    return Link(await blobs.off_loop(lambda: links.link_out(ref, life_s)), now_s + life_s)


def _name_of(ticket: str, owner: str) -> str:
    return blake2b(f"{owner}\0{ticket}".encode(), digest_size=16).hexdigest()


def _worthless(ticket: str) -> Refusal:
    message = (
        f"invalid ticket {ticket[:64]!r}: nothing was uploaded with its link, it has expired, or "
        "it belongs to another client. Request another"
    )
    return Refusal(Code.INVALID, message)
