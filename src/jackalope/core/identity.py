"""The identity of a request: what makes two tasks ask for the same.

Owns the hash, and the words for what is done about tasks that have the same one. The hash is made
of raw bytes alone, so that any language comes to the same.

    SHA-256( part("jackalope.request.1") part(queue) part(name) part(key) part(version)
             SHA-256(payload) )

where part(text) is the length of the text in UTF-8, as four bytes, most significant first, and then
the text. The namespace is not in it: each is a closed world with answers of its own.
"""

from enum import StrEnum
from hashlib import sha256

#: Begins every identity, so that another way of making them can never give the same ones.
SCHEME = "jackalope.request.1"

IDENTITY_BYTES = 32

#: What the history of a task says when requests were joined to it.
JOINED = "joined"


class Same(StrEnum):
    """What is done about a task when another asks for the same.

    Attributes:
        RUN: each is run.
        UNIQUE: one at a time: whoever asks for what is under way is joined to it.
        CACHED: and its answer is kept, for whoever asks later.
        REFRESH: as `cached`, but an answer that is kept is not good enough. Of a task alone, not of
            a queue.
    """

    RUN = "run"
    UNIQUE = "unique"
    CACHED = "cached"
    REFRESH = "refresh"


class How(StrEnum):
    """How a request was served.

    Attributes:
        HIT: with an answer that was kept.
        MISS: by a task of its own, as there was no answer.
        JOINED: by a task that was already under way.
        REFRESH: by a task of its own, although there may have been an answer.
        BYPASS: by a task of its own, without a look at any other.
    """

    HIT = "hit"
    MISS = "miss"
    JOINED = JOINED
    REFRESH = "refresh"
    BYPASS = "bypass"


def identity_of(queue: str, name: str, key: str, version: str, payload: bytes) -> bytes:
    """Return the identity of a request, 32 bytes."""
    digest = sha256()
    for text in (SCHEME, queue, name, key, version):
        encoded = text.encode()
        digest.update(len(encoded).to_bytes(4, "big"))
        digest.update(encoded)
    digest.update(sha256(payload).digest())
    return digest.digest()


def how_run(same: Same | None) -> How:
    """Return how a request is served that becomes a task of its own."""
    if same is Same.REFRESH:
        return How.REFRESH
    return How.BYPASS if same is Same.RUN else How.MISS
