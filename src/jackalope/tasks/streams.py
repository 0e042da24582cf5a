"""Streams: bodies of any size, as user code reads and writes them.

Owns what may stand for the bytes of a body: bytes, a path, an open file, or an iterator of bytes,
plain or async; and the form in which a task gets a body that it does not want in memory.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from io import BytesIO
from pathlib import Path, PurePath
from typing import IO, Any

from jackalope.errors import ConfigError, kind_of

#: How much is read at once.
CHUNK_BYTES = 256 * 1024

#: What may stand for the bytes of a body.
Source = bytes | bytearray | memoryview | PurePath | str | IO[bytes] | Iterable[Any]


class Stream:
    """The payload of a task, for a function that does not want it in memory.

        @app.task(content="bytes")
        def shrink(film: Stream) -> Path:
            with film.open() as file: ...

    A caller passes what `app.upload` returned, or a `Stream` of bytes or of a path.
    """

    def __init__(self, data: bytes | Path) -> None:
        self._data = data
        # how many bytes it has
        self.size = data.stat().st_size if isinstance(data, Path) else len(data)

    @property
    def path(self) -> Path | None:
        """The file that has its bytes, if they are in one."""
        return self._data if isinstance(self._data, Path) else None

    def open(self) -> IO[bytes]:
        """Open it as a file. It is gone when the task ends."""
        return self._data.open("rb") if isinstance(self._data, Path) else BytesIO(self._data)

    def __iter__(self) -> Iterator[bytes]:
        """Yield its bytes in chunks."""
        with self.open() as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    def read(self) -> bytes:
        """Return all of it."""
        return self._data.read_bytes() if isinstance(self._data, Path) else self._data

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it into a file."""
        with self.open() as file, Path(path).open("wb") as target:
            shutil.copyfileobj(file, target, CHUNK_BYTES)


def can_stream(value: object) -> bool:
    """Tell whether a value stands for bytes that need not be in memory."""
    if isinstance(value, bytes | bytearray | memoryview | str | dict):
        return False
    return isinstance(value, PurePath | Iterator) or hasattr(value, "read")


def is_repeatable(source: object) -> bool:
    """Tell whether the bytes of a source can be read once more."""
    return isinstance(source, bytes | bytearray | memoryview | PurePath | str)


async def chunks_of(source: object) -> AsyncIterator[bytes]:
    """Yield the bytes of a source in chunks. Files and plain iterators are read in a thread.

    Raises:
        ConfigError: it stands for no bytes, or the file cannot be read.
    """
    if isinstance(source, AsyncIterable):
        async for chunk in source:
            yield _as_bytes(chunk)
        return
    chunks = plain_chunks(source)
    while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
        yield chunk


def plain_chunks(source: object) -> Iterator[bytes]:
    """Yield the bytes of a source that is not async.

    Raises:
        ConfigError: it stands for no bytes, or the file cannot be read.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        view = memoryview(source).cast("B")
        for begin in range(0, len(view), CHUNK_BYTES):
            yield bytes(view[begin : begin + CHUNK_BYTES])
    elif isinstance(source, PurePath | str):
        try:
            with Path(source).open("rb") as file:
                while chunk := file.read(CHUNK_BYTES):
                    yield chunk
        except (OSError, ValueError) as error:
            raise ConfigError(f"{source}: {error}") from error
    elif hasattr(source, "read"):
        while chunk := source.read(CHUNK_BYTES):
            yield _as_bytes(chunk)
    elif isinstance(source, Iterable):
        for chunk in source:
            yield _as_bytes(chunk)
    else:
        raise ConfigError(f"a path, a file, bytes or an iterator of bytes, not {kind_of(source)}")


def _as_bytes(chunk: object) -> bytes:
    if not isinstance(chunk, bytes | bytearray | memoryview):
        raise ConfigError(f"each chunk must be bytes, not {kind_of(chunk)}")
    return bytes(chunk)
