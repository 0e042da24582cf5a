"""Body streams: payloads and results on their way between a door and the blob store, of any size.

Owns the way of bytes. Nothing here is ever held as a whole: an upload waits while the store is
behind, a download is read as its reader takes it. What is small enough stays inline; what fails on
its way in leaves nothing behind. Knows no protocol.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import msgspec

from jackalope.broker.blobs import BlobKeeper
from jackalope.broker.queries import Refused
from jackalope.core.assertions import BrokenInvariant
from jackalope.core.limits import INLINE_BYTES_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.request import Same, identity_of
from jackalope.core.task import BlobRef, Body, TaskSpec, size_of
from jackalope.storage import Draft

OnChunk = Callable[[], None]

#: How much of an upload is gathered before it is written, and so about what one costs in memory.
CHUNK_BYTES = 256 * 1024


# In.


class Upload:
    """A body on its way in, whatever it comes from: feed it, then `finish` or `abort` it."""

    def __init__(self, blobs: BlobKeeper, bytes_max: int) -> None:
        self._blobs = blobs
        self._bytes_max = bytes_max
        self.size = 0  # how many bytes it has so far
        self._chunks: list[bytes] = []
        self._gathered = 0
        self._draft: Draft | None = None
        self._body: Body | None = None

    async def feed(self, chunk: bytes) -> None:
        """Take some more; returns when more can be taken."""
        self.size += len(chunk)
        if self.size > self._bytes_max:
            raise Refused(too_large(self._bytes_max))
        self._chunks.append(bytes(chunk))
        self._gathered += len(chunk)
        if self._gathered >= CHUNK_BYTES:
            await self._write()

    async def finish(self) -> Body:
        """Return the whole body; if it is a blob, that is durable."""
        if self.size <= INLINE_BYTES_MAX:
            self._body = b"".join(self._chunks)
            return self._body
        await self._write()
        draft, self._draft = self._draft, None
        if draft is None:
            raise BrokenInvariant("a body is finished once")
        self._body = await self._blobs.finish_off_loop(draft)
        return self._body

    def abort(self) -> None:
        """Leave nothing behind; after `finish`, unless a task has come to name the blob.

        Safe to repeat, and safe when nothing is left to be done.
        """
        self._chunks.clear()
        if self._draft is not None:
            self._blobs.abandon(self._draft)
            self._draft = None
        if isinstance(self._body, BlobRef):
            self._blobs.doubt(self._body)
            self._body = None

    async def _write(self) -> None:
        if self._draft is None:
            refusal = self._blobs.admit()
            if refusal is not None:
                raise Refused(refusal)
            self._draft = await self._blobs.begin_off_loop()
        chunk, self._chunks, self._gathered = b"".join(self._chunks), [], 0
        if chunk:
            draft = self._draft
            await self._blobs.off_loop(lambda: draft.add(chunk))


def too_large(bytes_max: int) -> Refusal:
    """Refuse a body for its size."""
    return Refusal(Code.TOO_LARGE, f"the body is too large; at most {bytes_max} bytes are accepted")


async def store_payload(blobs: BlobKeeper, spec: TaskSpec) -> None:
    """Put a large payload of a task into the blob store, before the task is submitted."""
    payload = spec.payload
    if not isinstance(payload, bytes) or len(payload) <= INLINE_BYTES_MAX:
        return
    options = spec.options
    if options is not None and options.same not in (None, Same.RUN):
        # The core will not see what the identity of a request is made of.
        identity = identity_of(spec.queue, spec.name, spec.key, options.version, payload)
        spec.options = msgspec.structs.replace(options, identity=identity)
    spec.payload = await blobs.off_loop(lambda: blobs.write([payload]))


# Out.


async def body_chunks(blobs: BlobKeeper, body: Body) -> AsyncIterator[bytes]:
    """Return all of a payload or result in chunks; an empty one is one empty chunk.

    That a blob cannot be read (`StorageFault`) is found out before the first chunk is used.
    """
    size = size_of(body)
    return await read_chunks(blobs, body, 0, size)


async def read_chunks(
    blobs: BlobKeeper, body: Body, begin: int, end: int, on_chunk: OnChunk | None = None
) -> AsyncIterator[bytes]:
    """Return the bytes in chunks. The first is read before this returns: a missing blob shows."""
    if not isinstance(body, BlobRef):
        return _pieces(body[begin:end])
    ref = body
    chunks = await blobs.off_loop(lambda: blobs.read(ref, begin, end - begin))
    first = await blobs.off_loop(lambda: next(chunks, b""))
    return _read_on(blobs, chunks, first, on_chunk)


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def _read_on(
    blobs: BlobKeeper, chunks: Iterator[bytes], chunk: bytes, on_chunk: OnChunk | None
) -> AsyncIterator[bytes]:
    """Yield the rest of a blob: the next chunk is read when the one before it is on its way.

    A fault in the middle breaks the connection, so that no client takes the part for the whole.
    """
    while chunk:
        yield chunk
        if on_chunk is not None:
            on_chunk()
        chunk = await blobs.off_loop(lambda: next(chunks, b""))
