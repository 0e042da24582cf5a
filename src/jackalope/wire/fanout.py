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
    """What a frame between owner and helper carries."""

    GREET = 1
    WELCOME = 2
    BEGIN = 3
    ITEMS = 4
    BEAT = 5
    END = 6


class Beat(Message):
    """I am alive."""


# From the owner.


class Challenge(Message):
    """The first frame: prove that you have the token."""

    version: int
    nonce: bytes


class Welcome(Message):
    """The owner has the token too. Send a message at least every `beat_us`."""

    proof: bytes
    beat_us: int


class Begin(Message):
    """What to do from now on: call a function on items, each time with the same fixed arguments."""

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
    """There is nothing more to do, or the helper is not wanted."""

    why: str = ""


# From the helper.


class Greeting(Message):
    """The answer to the challenge."""

    version: int
    worker: str
    nonce: bytes
    proof: bytes


class Begun(Message):
    """The helper can do it; or why not."""

    run: int
    refusal: str = ""


class ItemFailed(Message):
    """The item at this place of a batch failed."""

    at: int
    error: Error
    can_retry: bool = True


class Results(Message):
    """The results of a batch, or of its part from `begin` on, encoded; None for what failed."""

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
    """Prove to the owner that a helper of this name has the token."""
    return _mac(token, b"helper", challenge, nonce, worker.encode())


def proof_of_owner(token: str, challenge: bytes, nonce: bytes) -> bytes:
    """Prove to a helper that the owner has the token."""
    return _mac(token, b"owner", nonce, challenge)


def _mac(token: str, *parts: bytes) -> bytes:
    framed = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hmac.digest(token.encode(), framed, "sha256")
