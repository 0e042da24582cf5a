"""Messages between the nodes of a cluster, and from a standby or the command line to a node.

Frames are those of the native protocol, with kinds of their own. Both ends know each other by a
secret: each proves that it has it, by a MAC over what the other chose, and neither sends it. One
request is answered at a time; an answer that is long comes in parts, with a digest at the end.
"""

from __future__ import annotations

import hmac
from enum import IntEnum

from jackalope.wire.messages import Codec, Message

#: The protocol between nodes.
PEER_VERSION = 1

NONCE_BYTES = 16

#: The largest frame before both ends have proved themselves, the largest request, and the largest
#: part of an answer.
GREETING_BYTES_MAX = 4 * 1024
REQUEST_BYTES_MAX = 64 * 1024
PART_BYTES = 256 * 1024

#: After how many bytes of entries an answer ends.
ENTRIES_BYTES_MAX = 8 * 1024 * 1024

#: The largest frame of an answer: a part and what is around it.
ANSWER_BYTES_MAX = PART_BYTES + 64 * 1024


class PeerKind(IntEnum):
    """The kinds of frames between nodes."""

    CHALLENGE = 1
    GREETING = 2
    WELCOME = 3
    REFUSED = 4
    STATUS = 5
    ENTRIES = 6
    SNAPSHOT = 7
    PART = 8
    END = 9
    BLOB = 10
    STEP_DOWN = 20
    RAISE = 21
    DONE = 22
    VERIFY = 23
    COMPARE = 24
    CLEAR = 25
    LOGS = 26
    FENCE = 30
    PROMOTE = 31


# From the node that listens.


class Challenge(Message):
    """The first frame: the other end must prove that it has the secret."""

    version: int
    nonce: bytes


class Welcome(Message):
    """The proof of the node that listens."""

    proof: bytes
    cluster: str
    node: str


class Refused(Message):
    """Why there is no answer; the connection ends."""

    why: str


class LogCopy(Message):
    """A copy of the shared log."""

    node: str
    is_current: bool
    lag: int = 0  # how many entries it is behind


class LogHealth(Message):
    """The shared log, as a node sees it."""

    engine: str  # its name and version
    size: int  # in bytes
    leader: str = ""  # the copy that decides
    copies: tuple[LogCopy, ...] = ()


class StandbyHealth(Message):
    """How far a standby has come with the broker that it follows."""

    primary: str  # what identifies that broker, or names the cluster; empty if never reached
    address: str  # where it was last reached
    is_connected: bool
    last: int  # its last batch, as it was last told
    heard_us: int  # when, in Unix time; 0 if never
    lag: int  # how many of its batches are not here, as far as is known
    lag_us: int  # for how long that has been so, or nothing was heard
    lacking: int = 0  # large payloads and results that are not here
    trouble: str = ""  # why nothing comes; empty if it does


class NodeStatus(Message):
    """What a node is, and how far it has come."""

    node: str
    cluster: str
    version: str  # of Jackalope
    level_min: int  # of the records that it reads
    level_max: int
    role: str
    epoch: int
    leader: str
    applied: int  # the last batch in its memory
    mirrored: int  # the last batch that is safe in its own copy of the log
    flushed: int  # the last batch in its history
    durable: int  # through which its history is safe from a power failure
    log_start: int  # positions of the shared log, as far as it knows; 0 if it does not
    log_end: int
    at_us: int  # what its clock shows
    why: str = ""  # it does not follow, or may not lead
    level: int = 0  # of the records that are made; 0 if there are none yet
    log: LogHealth | None = None
    trimmed: int = 0  # through which batch its copy of the log was removed
    native: int = 0  # the ports of its doors; 0 for one that is shut
    http: int = 0
    standby: StandbyHealth | None = None  # if it is one
    wrong: tuple[str, ...] = ()  # copies of the log that it found damaged, and none found sound yet
    diverged: str = ""  # its state was found to differ from the leader's, and not to be equal since
    withdrawn: tuple[tuple[bytes, int], ...] = ()  # digests of what was ended before its time


class EntriesHead(Message):
    """What follows in the log, as parts: entries one behind the other."""

    is_known: bool  # whether the entry after which was asked is here; if not, nothing follows
    last: int  # the last batch that is here


class SnapshotHead(Message):
    """A copy of a node's history, as parts."""

    sequence: int  # of the last batch in it
    digest: bytes  # of the log through that batch
    size: int


class Done(Message):
    """What was asked is done, or under way."""


class BlobHead(Message):
    """A large payload or result, as parts; none follow if it is not there."""

    size: int  # -1 if it is not there


class Part(Message):
    """Some bytes of a long answer."""

    data: bytes


class End(Message):
    """The end of a long answer."""

    size: int
    digest: bytes  # blake2b over all parts


class CopyFound(Message):
    """A copy of the shared log, read from its first message to its last."""

    node: str
    messages: int
    problem: str = ""
    trouble: str = ""  # why it was not read


class Verified(Message):
    """What a node has found on its own disk, and in the copies of the log if that was asked."""

    first: int  # the batches in its mirror; none if the last one is less
    last: int
    digest: bytes  # of the log through the batch that was asked for; empty if that is not known
    problem: str = ""  # the mirror is damaged
    compared: int = 0  # since it started: slices of its state that were equal to the leader's,
    diverged: int = 0  # and those that were not
    differs: str = ""  # where the last of them was
    copies: tuple[CopyFound, ...] = ()


class Compared(Message):
    """The leader has told the digest of all of its state."""

    slices: int
    position: int  # through which followers must have read the log to have compared theirs


class Fenced(Message):
    """A broker acknowledges nothing any more."""

    last: int  # its last batch


class Promoted(Message):
    """A standby leads."""

    is_fenced: bool  # whether the old broker acknowledges nothing any more
    sequence: int  # the last batch that is here
    last: int  # the last batch that the old broker had, as far as is known
    heard_us: int  # when that was known, in Unix time; 0 if never
    why: str  # it is not fenced, or not followed to its end
    reached_us: int = 0  # when the last record that is here was made
    lag_us: int = 0  # for how long something was lacking here, when it was last heard
    lacking: int = 0  # how many large payloads and results are named and not here
    names: tuple[str, ...] = ()  # of some of them


# From the node that connects.


class Greeting(Message):
    """The response to the challenge."""

    version: int
    cluster: str  # empty for any
    node: str  # empty if it is none: a standby, the command line
    nonce: bytes
    proof: bytes


class AskStepDown(Message):
    """Asks the leader to hand over."""

    to: str = ""  # the node that is to lead; empty if any may


class AskRaise(Message):
    """Asks the leader to make records of a higher level from now on."""

    level: int


class AskVerify(Message):
    """Asks a node to read all of its mirror: a `Verified`."""

    at: int  # the batch at which to tell the digest of the log
    is_whole: bool = True  # if not, only that digest is looked up
    has_copies: bool = False  # also read every copy of the shared log


class AskCompare(Message):
    """Asks the leader to tell the digest of all of its state in the log: a `Compared`."""


class AskClear(Message):
    """Tells a node that what it doubted was looked at and is well: a `Done`."""

    copies: tuple[str, ...]  # of the log
    state: bool  # its own


class AskStatus(Message):
    """Asks for a `NodeStatus`."""


class AskEntries(Message):
    """Asks for what follows an entry in the log: an `EntriesHead`, and parts."""

    sequence: int  # of the entry
    digest: bytes
    bytes_max: int  # after how many bytes to end


class AskFence(Message):
    """Tells a broker that its standby takes its place, for good: a `Fenced`."""

    by: str  # where clients find the standby


class AskPromote(Message):
    """Tells a standby to take the place of the broker that it follows: a `Promoted`."""


class AskSnapshot(Message):
    """Asks for a copy of the history: a `SnapshotHead`, and parts."""


class AskKeepLogs(Message):
    """Asks a member to keep lines of tasks that the leader has taken: a `Done`."""

    slices: bytes  # a list of them, as MessagePack


class AskBlob(Message):
    """Asks for a large payload or result: a `BlobHead`, and parts."""

    name: str
    offset: int = 0  # where the parts begin
    size: int = -1  # of the whole; -1 if that is not known


FROM_HOST: dict[PeerKind, type[Message]] = {
    PeerKind.CHALLENGE: Challenge,
    PeerKind.WELCOME: Welcome,
    PeerKind.REFUSED: Refused,
    PeerKind.STATUS: NodeStatus,
    PeerKind.DONE: Done,
    PeerKind.VERIFY: Verified,
    PeerKind.COMPARE: Compared,
    PeerKind.ENTRIES: EntriesHead,
    PeerKind.SNAPSHOT: SnapshotHead,
    PeerKind.BLOB: BlobHead,
    PeerKind.PART: Part,
    PeerKind.END: End,
    PeerKind.FENCE: Fenced,
    PeerKind.PROMOTE: Promoted,
}

FROM_GUEST: dict[PeerKind, type[Message]] = {
    PeerKind.GREETING: Greeting,
    PeerKind.STATUS: AskStatus,
    PeerKind.STEP_DOWN: AskStepDown,
    PeerKind.RAISE: AskRaise,
    PeerKind.VERIFY: AskVerify,
    PeerKind.COMPARE: AskCompare,
    PeerKind.CLEAR: AskClear,
    PeerKind.ENTRIES: AskEntries,
    PeerKind.FENCE: AskFence,
    PeerKind.PROMOTE: AskPromote,
    PeerKind.SNAPSHOT: AskSnapshot,
    PeerKind.BLOB: AskBlob,
    PeerKind.LOGS: AskKeepLogs,
}

host_codec = Codec(sends=FROM_HOST, hears=FROM_GUEST)
guest_codec = Codec(sends=FROM_GUEST, hears=FROM_HOST)


def proof_of_guest(secret: str, challenge: bytes, nonce: bytes, cluster: str, node: str) -> bytes:
    """Return the MAC that proves the secret of the end that connects."""
    return _mac(secret, b"guest", challenge, nonce, cluster.encode(), node.encode())


def proof_of_host(secret: str, challenge: bytes, nonce: bytes, cluster: str, node: str) -> bytes:
    """Return the MAC that proves the secret of the end that listens."""
    return _mac(secret, b"host", nonce, challenge, cluster.encode(), node.encode())


def _mac(secret: str, *parts: bytes) -> bytes:
    framed = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hmac.digest(secret.encode(), framed, "sha256")
