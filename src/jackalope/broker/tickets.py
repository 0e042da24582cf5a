"""Tickets: how a body gets into the store without passing through the broker, and out of it.

Owns what a ticket is worth. Whoever asks for one gets a link to send a body to, and a text that
stands for that body in one submit or result afterwards.

A ticket is chance and the time until which it holds. The name of the blob is a hash of the ticket
and of whoever asked for it, and the link leads to that name alone. So a ticket is worth nothing in
other hands, no ticket can be made up for the blob of somebody else, and the broker need not
remember any: they outlive its restart. What was sent and is never redeemed is cleared by the store.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from secrets import token_hex
from typing import TYPE_CHECKING

import msgspec

from jackalope.broker.queries import Refused
from jackalope.core.refusals import Code, Refusal
from jackalope.core.task import BlobRef, Body
from jackalope.storage import Links

if TYPE_CHECKING:
    from jackalope.broker.keeper import BlobKeeper

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
    """Give somebody a ticket, and the link to send a body to.

    Args:
        blobs: the keeper of the store.
        links: what makes its links.
        owner: who asks; only the same owner can redeem it.
        now_s: the Unix time.

    Raises:
        StorageFault: the store does not answer.
    """
    until_s = now_s + links.link_life_s
    text = f"{until_s}-{token_hex(16)}"
    name = _name_of(text, owner)
    return Ticket(text, Link(await blobs.off_loop(lambda: links.link_in(name, until_s)), until_s))


async def redeem(blobs: BlobKeeper, ticket: str, owner: str, now_s: int, bytes_max: int) -> BlobRef:
    """Return the blob that a ticket stands for. Safe to repeat, as a submit is.

    Raises:
        Refused: it stands for none, or for one that is too large.
        StorageFault: the store does not answer.
    """
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
        message = f"what was sent with the ticket is too large; at most {bytes_max} bytes are taken"
        raise Refused(Refusal(Code.TOO_LARGE, message))
    return ref


async def link_to(blobs: BlobKeeper, body: Body, now_s: int) -> Link | None:
    """Return a link from which a body can be had; None if there can be none.

    Raises:
        StorageFault: the store does not answer.
    """
    links = blobs.links
    if links is None or not isinstance(body, BlobRef):
        return None
    ref, life_s = body, links.link_life_s
    return Link(await blobs.off_loop(lambda: links.link_out(ref, life_s)), now_s + life_s)


def _name_of(ticket: str, owner: str) -> str:
    return blake2b(f"{owner}\0{ticket}".encode(), digest_size=16).hexdigest()


def _worthless(ticket: str) -> Refusal:
    message = (
        f"ticket {ticket[:64]!r} stands for nothing: nothing was sent over its link, its time is "
        "over, or it was given to somebody else. Ask for another"
    )
    return Refusal(Code.INVALID, message)
