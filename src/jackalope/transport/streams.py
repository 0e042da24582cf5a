"""Bodies that fit into no frame, sent and fetched in parts over a connection.

Owns the order and the number of parts that are under way, so that memory stays bounded however
large a body is. Knows neither where the parts come from nor where they go.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from hashlib import blake2b
from typing import Any

from jackalope.core.ids import TaskId
from jackalope.core.task import BlobRef
from jackalope.errors import JackalopeError, ProtocolError, Rejected
from jackalope.transport.connection import Connection
from jackalope.wire.messages import Fetch, Upload

#: Bodies above this size go in parts, if the broker takes them so.
STREAMED_BYTES = 8 * 1024 * 1024

#: How many parts are under way at once.
_WINDOW = 4
_PART_BYTES = 256 * 1024


async def send_parts(connection: Connection, chunks: AsyncIterator[bytes]) -> BlobRef:
    """Upload a body, and return what a request of the same connection can name it by.

    Raises:
        Rejected: the broker does not take it.
        ConnectionLost: the connection was lost, and the upload with it.
    """
    most = _part_bytes(connection)
    upload = connection.new_upload()
    under_way: deque[asyncio.Future[Any]] = deque()
    is_done = False
    try:
        async for part in _parts(chunks, most):
            under_way.append(connection.request(Upload(0, upload, part)))
            if len(under_way) >= _WINDOW:
                await under_way.popleft()
            if connection.is_congested:
                await connection.room()
        while under_way:
            await under_way.popleft()
        blob, size, digest = await connection.request(Upload(0, upload, last=True))
        is_done = True
        return BlobRef(blob, size, digest)
    finally:
        for answer in under_way:
            answer.add_done_callback(_pass_over)
        if not is_done and connection.is_open:
            with suppress(JackalopeError):
                connection.send(Upload(0, upload, abort=True))


async def fetch_parts(
    connection: Connection, task: TaskId, *, fence: int = 0, payload: bool = False
) -> AsyncGenerator[bytes, None]:
    """Yield the body of a task part by part; it is known to be whole when this ends.

    Args:
        connection: where to.
        task: whose.
        fence: proves that this worker runs the task; its payload is meant.
        payload: the payload, not the result.

    Raises:
        Rejected: there is no such body for us.
        ConnectionLost: the connection was lost.
        ProtocolError: what came is not what was stored.
    """
    length = _part_bytes(connection)
    hashed = blake2b(digest_size=16)

    def ask(offset: int) -> asyncio.Future[Any]:
        return connection.request(Fetch(0, task, fence, offset, length, payload))

    first = await ask(0)
    size, digest = first["size"], first["digest"]
    under_way: deque[asyncio.Future[Any]] = deque()
    asked = received = len(first["data"])
    part = first
    try:
        while True:
            while asked < size and len(under_way) < _WINDOW:
                under_way.append(ask(asked))
                asked += length
            if part["data"]:
                hashed.update(part["data"])
                yield part["data"]
            if not under_way:
                break
            part = await under_way.popleft()
            received += len(part["data"])
    finally:
        for answer in under_way:
            answer.add_done_callback(_pass_over)
    if received != size or (digest and hashed.hexdigest() != digest):
        raise ProtocolError(f"the body of task {task.hex()} did not arrive as it was stored")


def _part_bytes(connection: Connection) -> int:
    most = connection.welcome.part_bytes_max
    if most <= 0:
        raise Rejected("too_large", "the broker takes no bodies in parts; send where the data is")
    return min(most, _PART_BYTES)


async def _parts(chunks: AsyncIterator[bytes], most: int) -> AsyncIterator[bytes]:
    """Yield the same bytes in parts of a good size."""
    waiting = bytearray()
    async for chunk in chunks:
        waiting += chunk
        while len(waiting) >= most:
            yield bytes(waiting[:most])
            del waiting[:most]
    if waiting:
        yield bytes(waiting)


def _pass_over(answer: asyncio.Future[Any]) -> None:
    """Retrieve the error of an answer that is no longer awaited, so that asyncio does not warn."""
    if not answer.cancelled():
        answer.exception()
