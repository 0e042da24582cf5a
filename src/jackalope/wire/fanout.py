"""Messages between the owner of a fan-out and its helpers, which never pass through the broker.

Frames are those of the native protocol, with kinds of their own. Owner and helper know each other
by a token that the broker made: each proves that it has it, by a MAC over what the other chose, and
neither sends it. Values are MessagePack, whatever the content of the task.
"""

from __future__ import annotations

import hmac
from enum import IntEnum

from jackalope.core.task import Error
from jackalope.wire.frames import FRAME_BYTES_MAX
from jackalope.wire.messages import Codec, Message

#: The protocol between owner and helper.
FANOUT_VERSION = 1

#: What fits into a frame next to the rest of its message.
DATA_BYTES_MAX = FRAME_BYTES_MAX - 64 * 1024

NONCE_BYTES = 16


class FanoutKind(IntEnum):
    """The kinds of frames between owner and helper."""

    GREET = 1
    WELCOME = 2
    BEGIN = 3
    ITEMS = 4
    BEAT = 5
    END = 6


class Beat(Message):
    """A heartbeat."""


# From the owner.


class Challenge(Message):
    """The first frame: the helper must prove that it has the token."""

    version: int
    nonce: bytes


class Welcome(Message):
    """The owner's proof that it has the token. Send a message at least every `beat_us`."""

    proof: bytes
    beat_us: int


class Begin(Message):
    """Start a map: call a function on items, each time with the same fixed arguments."""

    run: int  # the number of this piece of work; batches of an earlier one are no longer wanted
    function: str  # the name of the task
    likeness: bytes  # what the owner's code of it looks like
    fixed: bytes = b""  # the fixed arguments by name, encoded


class Items(Message):
    """A list of items, encoded."""

    run: int
    batch: int
    data: bytes


class End(Message):
    """There is nothing more to do, or the helper is rejected."""

    why: str = ""


# From the helper.


class Greeting(Message):
    """The response to the challenge."""

    version: int
    worker: str
    nonce: bytes
    proof: bytes


class Begun(Message):
    """The helper accepts the map, or the reason why it cannot."""

    run: int
    refusal: str = ""


class ItemFailed(Message):
    """The item at this index of a batch failed."""

    at: int
    error: Error
    can_retry: bool = True


class Results(Message):
    """The results of a batch, or of its part from `begin` on, encoded; None for failed items."""

    run: int
    batch: int
    begin: int
    count: int
    data: bytes
    failed: tuple[ItemFailed, ...] = ()
    busy_us: int = 0


FROM_OWNER: dict[FanoutKind, type[Message]] = {
    FanoutKind.GREET: Challenge,
    FanoutKind.WELCOME: Welcome,
    FanoutKind.BEGIN: Begin,
    FanoutKind.ITEMS: Items,
    FanoutKind.BEAT: Beat,
    FanoutKind.END: End,
}

FROM_HELPER: dict[FanoutKind, type[Message]] = {
    FanoutKind.GREET: Greeting,
    FanoutKind.BEGIN: Begun,
    FanoutKind.ITEMS: Results,
    FanoutKind.BEAT: Beat,
}

owner_codec = Codec(sends=FROM_OWNER, hears=FROM_HELPER)
helper_codec = Codec(sends=FROM_HELPER, hears=FROM_OWNER)


def proof_of_helper(token: str, challenge: bytes, nonce: bytes, worker: str) -> bytes:
    """Return the MAC that proves a helper's token to the owner."""
    return _mac(token, b"helper", challenge, nonce, worker.encode())


def proof_of_owner(token: str, challenge: bytes, nonce: bytes) -> bytes:
    """Return the MAC that proves the owner's token to a helper."""
    return _mac(token, b"owner", nonce, challenge)


def _mac(token: str, *parts: bytes) -> bytes:
    framed = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hmac.digest(token.encode(), framed, "sha256")
