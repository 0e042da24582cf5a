"""Bodies: payloads and results as they pass through HTTP, of any size.

Owns the way of bytes between sockets and the blob store. Nothing here is ever held as a whole: an
upload waits while the store is behind, a download waits while the reader is. What is small enough
stays inline; what fails on its way in leaves nothing behind.

In::

    async with receiving(request, blobs, bytes_max) as received:  # raw, or a form with one file
        await client_session.ask(SubmitTasks(tasks=[TaskSpec(..., payload=received.body)]))

The blob is let go of when the block raises: unless a task has come to name it, it is removed.

Out::

    return await body_response(request, blobs, body)  # ranges, HEAD, ETag
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import blake2b

import structlog
from multipart import (
    MultipartError,
    MultipartSegment,
    ParserLimitReached,
    PushMultipartParser,
    parse_options_header,
)

from jackalope.broker.blobs import BlobKeeper
from jackalope.broker.body_streams import Upload, read_chunks, too_large
from jackalope.core.task import BlobRef, Body, size_of
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.errors import Rejected
from jackalope.doors.http.request import OnChunk, Request

log = structlog.get_logger(component="http")

#: The largest field of a form beside its file, and how many there may be.
FIELD_BYTES_MAX = 64 * 1024
FIELDS_MAX = 64

_BINARY = "application/octet-stream"
#: An answer before the end of the body: the rest of it must not be taken for the next request.
_CLOSE = {"Connection": "close"}


# In.


@dataclass
class Received:
    """What a request brought."""

    body: Body | None = None  # the payload or result; None if it was a form without it
    fields: dict[str, list[str]] = field(default_factory=dict)  # the other parts of a form, by name
    media_type: str = ""  # what the sender says that the body is

    def field(self, name: str, default: str = "") -> str:
        """Return a field that is to be given once."""
        values = self.fields.get(name, [])
        if len(values) > 1:
            raise Rejected(400, f"{name}: given {len(values)} times; give it once")
        return values[0] if values else default


@asynccontextmanager
async def receiving(
    request: Request,
    blobs: BlobKeeper,
    bytes_max: int,
    part: str = "payload",
    on_chunk: OnChunk | None = None,
) -> AsyncIterator[Received]:
    """Receive the body of a request, and hold it until the block ends.

    One larger than `bytes_max` is refused. `part` names the part of a form that is the body; all
    others are fields, whose names are taken in small letters. `on_chunk` is called as it comes in,
    so that the sender is known to be alive. If the store fails (`StorageFault`), nothing of it was
    kept.
    """
    upload = Upload(blobs, bytes_max)
    try:
        kind, options = parse_options_header(request.header("content-type"))
        if kind == "multipart/form-data":
            chunks = request.chunks(on_chunk)
            received = await _receive_form(chunks, upload, options.get("boundary", ""), part)
        else:
            refuse_announced(request, bytes_max)
            received = await _receive_raw(request.chunks(on_chunk), upload, kind)
        yield received
    except BaseException:
        upload.abort()
        raise


def refuse_announced(request: Request, bytes_max: int) -> None:
    """Refuse a body whose declared size is too large before any of it is read."""
    announced = request.header("content-length")
    if announced.isdigit() and int(announced) > bytes_max:
        raise Rejected(413, too_large(bytes_max).message, headers=_CLOSE)


async def _receive_raw(chunks: AsyncIterator[bytes], upload: Upload, kind: str) -> Received:
    async for chunk in chunks:
        await upload.feed(chunk)
    return Received(await upload.finish(), media_type=kind)


async def _receive_form(
    chunks: AsyncIterator[bytes], upload: Upload, boundary: str, part: str
) -> Received:
    form = _Form(upload, part)
    try:
        parser = PushMultipartParser(boundary, max_segment_count=FIELDS_MAX + 1, strict=True)
        async for chunk in chunks:
            for event in parser.parse(chunk):
                await form.on_event(event)
        parser.close()
    except ParserLimitReached as error:
        raise Rejected(413, f"the form is too large: {error}", headers=_CLOSE) from None
    except MultipartError as error:
        raise Rejected(400, f"the body is not a valid form: {error}", headers=_CLOSE) from None
    if form.has_body:
        form.received.body = await upload.finish()
    return form.received


class _Form:
    """Sorts the parts of a form: one is the body, all others are fields."""

    def __init__(self, upload: Upload, part: str) -> None:
        self.received = Received()
        self.has_body = False
        self._upload = upload
        self._part = part
        self._segment: MultipartSegment | None = None
        self._field = bytearray()

    async def on_event(self, event: MultipartSegment | bytes | bytearray | None) -> None:
        """Take what the parser found: the head of a part, some of its bytes, or its end."""
        if isinstance(event, MultipartSegment):
            self._begin(event)
        elif event is None:
            self._end()
        elif self._segment is None:
            await self._upload.feed(bytes(event))
        else:
            self._field += event
            if len(self._field) > FIELD_BYTES_MAX:
                message = f"{self._segment.name}: a field has at most {FIELD_BYTES_MAX} bytes"
                raise Rejected(413, message, headers=_CLOSE)

    def _begin(self, segment: MultipartSegment) -> None:
        if segment.name.lower() != self._part:
            self._segment = segment
            return
        if self.has_body:
            raise Rejected(400, f"{self._part}: given twice; give it once", headers=_CLOSE)
        self.has_body = True
        self.received.media_type = segment.content_type or ""

    def _end(self) -> None:
        if self._segment is None:
            return
        name = self._segment.name.lower()
        try:
            text = self._field.decode()
        except UnicodeDecodeError:
            raise Rejected(400, f"{name}: is not UTF-8", headers=_CLOSE) from None
        self.received.fields.setdefault(name, []).append(text)
        self._segment = None
        self._field.clear()


# Out.


async def body_response(
    request: Request, blobs: BlobKeeper, body: Body, on_chunk: OnChunk | None = None
) -> Response:
    """Answer with a payload or result, or the part of it that the request asks for.

    Knows `Range`, `If-Range` and `If-None-Match`. For `HEAD`, the route must take it; the answer
    then has the headers alone. `on_chunk` is called as it goes out, so that the reader is known to
    be alive. That a blob cannot be read (`StorageFault`) is found out before anything is sent.
    """
    size = size_of(body)
    tag = etag_of(body)
    sent = {
        "Accept-Ranges": "bytes",
        "ETag": tag,
        # Its content is not trusted: a browser must not take it for a page of ours.
        "X-Content-Type-Options": "nosniff",
        "Content-Disposition": "attachment",
    }
    if tag in request.header("if-none-match"):
        return Response(status=304, headers=sent)
    begin, end = 0, size
    if request.header("if-range", tag) == tag:
        wanted = range_of(request.header("range"), size)
        if wanted is not None:
            begin, end = wanted
            sent["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
    sent["Content-Length"] = str(end - begin)
    sending: bytes | AsyncIterator[bytes]
    if request.method == "HEAD":
        sending = b""
    elif isinstance(body, BlobRef):
        sending = await read_chunks(blobs, body, begin, end, on_chunk)
    else:
        sending = body[begin:end]
    return Response(sending, 206 if "Content-Range" in sent else 200, sent, _BINARY)


def etag_of(body: Body) -> str:
    if isinstance(body, BlobRef):
        return f'"{body.digest or body.blob}"'
    return f'"{blake2b(body, digest_size=16).hexdigest()}"'


def range_of(header: str, size: int) -> tuple[int, int] | None:
    """Return the bytes that a `Range` asks for: the first, and the one behind the last.

    None for all of them: that is also the answer to several ranges at once, and to what is no
    range, as RFC 9110 has it.
    """
    unit, _, spans = header.partition("=")
    first, dash, last = spans.strip().partition("-")
    is_range = unit.strip().lower() == "bytes" and dash and (first or last)
    if not is_range or not all(_is_number(each) for each in (first, last)):
        return None
    if first:
        begin, end = int(first), min(int(last) + 1, size) if last else size
        if last and int(last) < int(first):
            return None
    else:
        begin, end = max(0, size - int(last)), size
    if begin >= end:
        message = f"the range {header!r} is outside the {size} bytes of the body"
        raise Rejected(416, message, headers={"Content-Range": f"bytes */{size}"})
    return begin, end


def _is_number(text: str) -> bool:
    return not text or (text.isascii() and text.isdigit() and len(text) <= 19)
