"""The channel between a worker and a process that runs tasks for it.

Owns the messages: the worker sends where the process is, then assignments, one at a time; the
process answers with the outcome of each. MessagePack behind a length; never pickle.
"""

from __future__ import annotations

from struct import Struct

import msgspec

from jackalope.core.effects import Assignment
from jackalope.worker.attempt import Failed, Finished, Stopped, Surroundings

LENGTH = Struct(">I")


class Ready(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The process has imported the application and waits for work."""


class Unfit(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The process cannot import the application, and ends."""

    reason: str


class Progressed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """How far the task has come."""

    percent: float | None
    note: str


class Told(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The task was asked to stop: its own code has seen it, or will when it next runs."""


class Rested(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The task only waits from now on, or no more."""

    is_resting: bool


class Ended(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The task runs no longer; and how large the process is now."""

    outcome: Finished | Failed | Stopped
    rss_bytes: int


Word = Ready | Unfit | Progressed | Told | Rested | Ended

_encode = msgspec.msgpack.Encoder().encode
decode_word = msgspec.msgpack.Decoder(Word).decode
decode_surroundings = msgspec.msgpack.Decoder(Surroundings).decode
decode_assignment = msgspec.msgpack.Decoder(Assignment).decode


def packet(message: Word | Assignment | Surroundings) -> bytes:
    """Encode a message with its length."""
    body = _encode(message)
    return LENGTH.pack(len(body)) + body
