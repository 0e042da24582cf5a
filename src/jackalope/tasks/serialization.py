"""Serialization: Python objects to bytes and back.

Three contents: `msgpack` (the default), `json`, and `bytes` for data that only
the function reads. All that msgspec knows can be sent: the built-in types, dates, UUIDs, decimals,
enums, dataclasses, attrs classes, typed dictionaries, named tuples and `msgspec.Struct`; paths and
pydantic models as well. Never pickle: a client that can submit a task must not thereby run code.

What arrives is checked against the type that the receiver declares, and made into it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import traceback
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from functools import lru_cache
from io import BytesIO
from pathlib import Path, PurePath
from types import TracebackType
from typing import IO, Any, Literal, get_args

import msgspec

from jackalope.core.limits import ERROR_CHARS_MAX
from jackalope.core.task import Error
from jackalope.errors import ConfigError, JackalopeError, kind_of
from jackalope.tasks.references import Pending

Content = Literal["msgpack", "json", "bytes"]
CONTENTS: tuple[Content, ...] = get_args(Content)
DEFAULT_CONTENT: Content = "msgpack"

#: The header of a task that names its content where that is not the default.
CONTENT_HEADER = "content"

#: Arguments and keyword arguments on their way, each value still encoded.
RawCall = tuple[list[msgspec.Raw], dict[str, msgspec.Raw]]


class EncodeFailed(JackalopeError, TypeError):
    """A value has no encoding."""


class DecodeFailed(JackalopeError, ValueError):
    """Bytes are not what the receiver declares; trying again cannot help."""


def to_plain(value: Any) -> Any:
    """Turn what msgspec does not know into what it does."""
    if isinstance(value, PurePath):
        return str(value)
    dump = getattr(type(value), "model_dump", None)
    if dump is not None:
        return dump(value)
    raise TypeError(
        f"{type(value).__module__}.{type(value).__qualname__} cannot be sent; "
        "make it a dataclass or a msgspec.Struct, or send what it is made of"
    )


def from_plain(kind: type, value: Any) -> Any:
    """Make an object of a type that msgspec does not know."""
    if isinstance(value, kind):
        return value
    if issubclass(kind, PurePath) and isinstance(value, str):
        return kind(value)
    validate = getattr(kind, "model_validate", None)
    if validate is not None:
        return validate(value)
    raise TypeError(f"{kind.__module__}.{kind.__qualname__} cannot be received")


Encode = Callable[[Any], bytes]
Decode = Callable[[bytes | msgspec.Raw], Any]


def _to_msgpack(value: Any) -> Any:
    """Do what `to_plain` does, and write references to results as MessagePack has them."""
    return value.reference().extension() if isinstance(value, Pending) else to_plain(value)


def _to_json(value: Any) -> Any:
    return value.reference().plain() if isinstance(value, Pending) else to_plain(value)


_encoders: dict[str, Encode] = {
    "msgpack": msgspec.msgpack.Encoder(enc_hook=_to_msgpack).encode,
    "json": msgspec.json.Encoder(enc_hook=_to_json).encode,
}


#: Equal values have equal bytes: keys are sorted, and sets.
_canonical: dict[str, Encode] = {
    "msgpack": msgspec.msgpack.Encoder(enc_hook=to_plain, order="deterministic").encode,
    "json": msgspec.json.Encoder(enc_hook=to_plain, order="deterministic").encode,
}


def encode_value(content: Content, value: Any, *, is_canonical: bool = False) -> bytes:
    """Encode a value. None is no bytes at all.

    Where it must be canonical, equal values have equal bytes.
    """
    if value is None:
        return b""
    if content == "bytes":
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        raise EncodeFailed(f"content is bytes, so the value must be, not {type(value).__name__}")
    try:
        return (_canonical if is_canonical else _encoders)[content](value)
    except Exception as error:  # a foreign `model_dump` may raise anything
        raise EncodeFailed(f"{type(error).__name__}: {error}") from error


def decode_value(content: Content, data: bytes | msgspec.Raw, kind: Any = Any) -> Any:
    """Decode a value into a type."""
    if content == "bytes":
        return None if not data and kind is type(None) else data
    if not data:
        return None
    try:
        return decoder(content, kind)(data)
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
        raise DecodeFailed(str(error)) from error


def decoder(content: Content, kind: Any) -> Decode:
    """Return what decodes this type from this content; made once for each."""
    try:
        return _decoder(content, kind)
    except TypeError:  # Not hashable, as some annotations are.
        return _make_decoder(content, kind)


def _make_decoder(content: Content, kind: Any) -> Decode:
    of = msgspec.msgpack.Decoder if content == "msgpack" else msgspec.json.Decoder
    try:
        return of(kind, dec_hook=from_plain).decode
    except (TypeError, ValueError):
        # An annotation beyond msgspec (a protocol, a callable, a union it cannot tell apart) is
        # for the reader, not for the check.
        return of(Any).decode


_decoder = lru_cache(maxsize=4096)(_make_decoder)


# Failures: an exception as the broker keeps it.

#: The longest name of a type; others are shortened.
TYPE_CHARS_MAX = 1_024
_CUT = "\n[...]\n"
#: Where the code of Jackalope itself is.
_HOUSE = f"{Path(__file__).parent.parent}/"


def error_of(exception: BaseException) -> Error:
    """Describe an exception: its type, its message and its traceback as text.

    The traceback begins where the task's own code does: the worker's own frames are left out. A
    long one keeps its beginning and its end, which say where it began and what was raised.
    """
    return Error(
        type=_shorten(_type_name(type(exception)), TYPE_CHARS_MAX),
        message=_shorten(_message(exception)),
        trace=_shorten(_trace(exception)),
    )


def _type_name(kind: type[BaseException]) -> str:
    try:
        home, name = kind.__module__, kind.__qualname__
    except BaseException:  # noqa: BLE001  a foreign metaclass may raise anything
        return "Exception"
    return name if home == "builtins" else f"{home}.{name}"


def _message(exception: BaseException) -> str:
    try:
        return str(exception)
    except BaseException as error:  # noqa: BLE001  a foreign __str__ may raise anything
        return f"(its message cannot be shown: {type(error).__name__})"


def _trace(exception: BaseException) -> str:
    try:
        own = _own_part(exception.__traceback__) or exception.__traceback__
        return "".join(traceback.format_exception(type(exception), exception, own))
    except BaseException as error:  # noqa: BLE001  the same
        return f"(its traceback cannot be shown: {type(error).__name__})"


def _own_part(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames before the task's own; None if there is no such one."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_HOUSE):
        trace = trace.tb_next
    return trace


def _shorten(text: str, chars_max: int = ERROR_CHARS_MAX) -> str:
    text = encodable(text)
    if len(text) <= chars_max:
        return text
    half = (chars_max - len(_CUT)) // 2
    return text[:half] + _CUT + text[-half:]


def encodable(text: str) -> str:
    """Return a text that can be sent; lone surrogates, as of file names, are written as escapes."""
    return str.encode(text, "utf-8", "backslashreplace").decode()


# Streams: bytes that are read and written piece by piece, however many they are.


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
    """Yield the bytes of a source in chunks. Files and plain iterators are read in a thread."""
    if isinstance(source, AsyncIterable):
        async for chunk in source:
            yield _as_bytes(chunk)
        return
    chunks = plain_chunks(source)
    while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
        yield chunk


def plain_chunks(source: object) -> Iterator[bytes]:
    """Yield the bytes of a source that is not async."""
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
