"""Serialization: bodies of tasks and messages, by the encoder and decoder of kiwipy's users.

Owns what surrounds a body. Where no encoder is given, or its user agrees, plain values are
MessagePack, which takes a small part of the time; all else is the encoder's, YAML as in kiwipy.
The first byte distinguishes them, and every communicator reads both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import msgspec
import yaml

Encoder = Callable[[Any], bytes | str]
Decoder = Callable[[bytes], Any]


class Loader(yaml.FullLoader):
    """Reads plain values, tuples, and what other packages have taught `yaml.FullLoader` to read.

    plumpy teaches it UUIDs, so a safe loader of PyYAML's would not do. But a message must not be
    able to name what is in the modules of the one who reads it: that is left out.
    """

    yaml_multi_constructors: ClassVar[dict[str | None, Any]] = {}


#: As kiwipy has them, but for what a message may name. Those that are written in C would not know
#: what others, such as plumpy, have taught these to write and read.
ENCODER: Encoder = partial[Any](yaml.dump, encoding="utf-8")
DECODER: Decoder = partial[Any](yaml.load, Loader=Loader)

#: Begins what is MessagePack: no text and no MessagePack begins with it.
_PLAIN = b"\xc1"
_PLAIN_TYPES = frozenset({type(None), bool, int, float, str, bytes})


class Envelope(msgspec.Struct, array_like=True, frozen=True):
    """A task on its way."""

    no_reply: bool  # its result is not awaited
    body: bytes  # the encoded task


class Response(msgspec.Struct, array_like=True, frozen=True):
    """What came of a task."""

    levels: int  # how many futures stood between the subscriber and the end
    error: str | None = None  # what was raised, if something was
    body: bytes = b""  # the encoded result, if it is awaited


class Coding:
    """Turns values into bytes and back."""

    def __init__(self, encoder: Encoder, decoder: Decoder, *, is_plain: bool = False) -> None:
        self._encoder = encoder
        self._decoder = decoder
        self._may_be_plain = is_plain or (encoder is ENCODER and decoder is DECODER)

    def encode(self, value: Any) -> bytes:
        if self._may_be_plain and _is_plain(value):
            return _PLAIN + msgspec.msgpack.encode(value)
        data = self._encoder(value)
        return data.encode() if isinstance(data, str) else data

    def decode(self, data: bytes) -> Any:
        if data.startswith(_PLAIN):
            return msgspec.msgpack.decode(data[len(_PLAIN) :])
        return self._decoder(data)


def _is_plain(value: Any) -> bool:
    """Return whether MessagePack decodes exactly what was encoded."""
    kind = type(value)
    if kind is int:
        return bool(-(2**63) <= value < 2**64)
    if kind in _PLAIN_TYPES:
        return True
    if kind is list:
        return all(map(_is_plain, value))
    if kind is dict:
        return all(type(key) is str and _is_plain(item) for key, item in value.items())
    return False
