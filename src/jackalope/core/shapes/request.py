"""Requests: what makes two tasks ask for the same, and the answer that is kept for them.

Owns the identity of a request and the shape of a kept answer. How long one is kept, and which goes
first, is the matter of `state.answers` and of the cache.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import sha256

import msgspec

from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import State
from jackalope.core.refusals import Code, Refusal

#: Begins every identity, so that another way of making them can never give the same ones.
SCHEME = "jackalope.request.1"


IDENTITY_BYTES = 32


#: The event in the history of a task when requests were joined to it.
JOINED = "joined"


class Same(StrEnum):
    """What to do with a task that equals another request."""

    RUN = "run"  # each is run
    UNIQUE = "unique"  # one at a time: a request for what is under way is joined to it
    CACHED = "cached"  # and its answer is kept, for later requests
    # as `cached`, but an answer that is kept is not good enough. Of a task alone, not of a queue.
    REFRESH = "refresh"


class How(StrEnum):
    """How a request was served."""

    HIT = "hit"  # with an answer that was kept
    MISS = "miss"  # by a task of its own, as there was no answer
    JOINED = JOINED  # by a task that was already under way
    REFRESH = "refresh"  # by a task of its own, although there may have been an answer
    BYPASS = "bypass"  # by a task of its own, without a look at any other
    REPLACED = "replaced"  # by a task that was queued, and has its arguments from now on
    DROPPED = "dropped"  # not at all: this task was accepted shortly before


class StoredAnswer(msgspec.Struct, array_like=True, gc=False):
    """A cached answer, the task it came from, and its uses."""

    namespace: str  # where it is
    queue: str  # of which queue
    identity: bytes  # of the request
    task: TaskId  # the task whose result it is
    name: str = ""  # the name of the task
    version: str = ""  # the version of the code
    worker: str = ""  # who ran it
    state: State = State.SUCCEEDED  # how it ended; only `succeeded` is an answer
    size: int = 0  # how many bytes it has
    made_us: int = 0  # when
    until_us: int = 0  # how long it is good
    rank: int = 0  # its place among the others of the queue: the least is the least recently used
    uses: int = 0  # how often it was given to others than the first who asked
    used_us: int = 0  # when the last time
    used_by: str = ""  # to whom
    # who pinned it, so that it is neither evicted nor grows too old; empty if it is not pinned
    pinned_by: str = ""

    def is_good(self, now_us: int) -> bool:
        """Return whether it can answer a request that arrives now."""
        return self.state is State.SUCCEEDED and (bool(self.pinned_by) or now_us < self.until_us)


def identity_of(queue: str, name: str, key: str, version: str, payload: bytes) -> bytes:
    digest = sha256()
    for text in (SCHEME, queue, name, key, version):
        encoded = text.encode()
        digest.update(len(encoded).to_bytes(4, "big"))
        digest.update(encoded)
    digest.update(sha256(payload).digest())
    return digest.digest()


def how_run(same: Same | None) -> How:
    """Return how a request that runs as its own task is counted."""
    if same is Same.REFRESH:
        return How.REFRESH
    return How.BYPASS if same is Same.RUN else How.MISS


def unknown(identity: bytes, namespace: str) -> Refusal:
    """Refuse an unknown request, or one whose answer is no longer cached."""
    message = f"no request {identity.hex()} in namespace {namespace!r}; send it again"
    return Refusal(Code.UNKNOWN_REQUEST, message)
