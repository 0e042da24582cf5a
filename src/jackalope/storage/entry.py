"""Entries: what stands in a log, one after the other, each bound to the one before.

Owns the bytes of an entry and how damage shows in them. Pure; knows neither files nor what a batch
contains. A journal on disk and a log that several nodes share have the same entries.

An entry has a digest over itself, in which the digest of the entry before is contained: the digests
form a chain. A damaged entry does not match its own digest; one from another place or another
history does not continue the chain.

`durable` is the sequence through which the writer had synced when it wrote the entry. It separates
an end that a power failure tore (what was being written was not acknowledged) from damage to what
was: if a later entry states that the unreadable one was durable, it has been lost since.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from hashlib import blake2b
from typing import NamedTuple

FORMAT = 1
DIGEST_BYTES = 8

#: The chain begins with it.
NO_DIGEST = bytes(DIGEST_BYTES)

# format, kind, unused, bytes of the body, sequence, epoch, durable, digest before; then the digest.
_FIELDS = struct.Struct("<BBHIQQQ8s")
HEAD_BYTES = _FIELDS.size + DIGEST_BYTES


class Kind(IntEnum):
    """What an entry is."""

    BATCH = 1  # the next batch
    TRIM = 2  # no batch: those up to its sequence may be removed
    CLAIM = 3  # no batch: its writer leads from here on, in a new epoch
    # Outside of the chain, because no state follows from them: `before` is the end of the chain,
    # and the next entry has the same.
    BEAT = 4  # the leader is alive
    HAND_OVER = 5  # the leader steps down
    FENCE = 6  # nothing follows: a standby leads in place of all nodes


#: The kinds that continue the chain.
CHAINED = frozenset({Kind.BATCH, Kind.TRIM, Kind.CLAIM})


class Entry(NamedTuple):
    """One entry of a log."""

    kind: int
    sequence: int  # of the batch, or through which the log is trimmed
    epoch: int  # of its writer
    durable: int  # the last batch that its writer knew to be synced
    before: bytes  # the digest of the entry before
    digest: bytes
    body: bytes


def encode(  # noqa: PLR0917 - in the order of the bytes, and called for every batch
    kind: int, sequence: int, epoch: int, durable: int, before: bytes, body: bytes
) -> tuple[bytes, bytes]:
    """Return an entry as bytes, and its digest."""
    fields = _FIELDS.pack(FORMAT, kind, 0, len(body), sequence, epoch, durable, before)
    digest = _digest(fields, body)
    return b"".join((fields, digest, body)), digest


def decode(raw: bytes, offset: int = 0) -> Entry | None:
    """Return the entry that stands at an offset; None if there is no complete and sound one."""
    begin = offset + HEAD_BYTES
    if len(raw) < begin:
        return None
    form, kind, _, size, sequence, epoch, durable, before = _FIELDS.unpack_from(raw, offset)
    if form != FORMAT or len(raw) < begin + size:
        return None
    fields_end = offset + _FIELDS.size
    digest, body = raw[fields_end:begin], raw[begin : begin + size]
    if _digest(raw[offset:fields_end], body) != digest:
        return None
    return Entry(kind, sequence, epoch, durable, before, digest, body)


def head_of(raw: bytes) -> Entry:
    """Return what the head of an entry states, unchecked and without the body."""
    _, kind, _, _, sequence, epoch, durable, before = _FIELDS.unpack_from(raw)
    return Entry(kind, sequence, epoch, durable, before, raw[_FIELDS.size : HEAD_BYTES], b"")


def _digest(fields: bytes, body: bytes) -> bytes:
    digest = blake2b(fields, digest_size=DIGEST_BYTES)
    digest.update(body)
    return digest.digest()
