"""The journal of a cluster's node: a shared log, and the mirror of it on the node's disk.

Owns that an entry is settled before anything rests on it, and that the chain is unbroken. Who leads
is decided elsewhere; this only puts entries where that demands them to stand.

Theory of operation
===================

Every entry names its position, which must be the next one. So only a node that has read the whole
log can extend it. A claim is such an entry, and the epoch of its writer begins with it; what an
earlier writer puts afterwards is refused, because the end has moved. No lock, no lease and no vote
is needed for writing.

An engine may not answer. Then the same message is put again, at the same position, until it stands
there or another does: at most one ever can. `Put.TAKEN` alone does not mean that another leads,
because an engine may count messages that are never stored; only a stored message that is not ours
does.

Everything that is read or stored goes into the mirror. `read` and the like are about the mirror:
the node recovers from its own disk, and follows the log from there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Event
from time import monotonic_ns, sleep
from typing import NamedTuple

import msgspec

from jackalope.core.assertions import must
from jackalope.core.records import LEVEL
from jackalope.storage.entry import CHAINED, NO_DIGEST, Entry, Kind, decode, encode
from jackalope.storage.faults import Corrupt, DiskFull, Fenced, OutOfReach, StorageFault, SyncFailed
from jackalope.storage.segments.journal import Survey
from jackalope.storage.shared.chunks import Joiner, is_chunk, place_of, split
from jackalope.storage.shared.log import Lacking, LogEngine, Put
from jackalope.storage.shared.mirror import Mirror

#: How long one put may take before it is repeated, and the pause between two tries.
PUT_TIMEOUT_S = 2.0
_PAUSE_S = 0.05
_NO_ANSWER = "the shared log did not answer before the broker stopped"

#: An entry that took longer may stand before another's claim.
_LATE_NS = 500_000_000

#: How many messages are read at once.
MESSAGES_PER_READ = 256

#: How many messages are looked at in search of a sound one.
_PROBES = 4

_NONCE_BYTES = 8


class Behind(StorageFault):
    """The log no longer has what this node needs next: it needs a copy of another node's state."""


class Astray(Corrupt):
    """The log does not continue what this node has applied."""


class Deposed(Fenced):
    """Another node leads, and what was put last stands in the log before its claim."""

    is_settled = False


class NotMirrored(StorageFault):
    """An entry stands in the log, but not on this node's disk, from which its state is built."""

    is_settled = False


class Claim(msgspec.Struct, array_like=True, frozen=True):
    """The body of a claim."""

    cluster: str
    writer: str  # the name of the node
    at_us: int
    level: int  # of the records that follow
    nonce: bytes  # two claims of a node that crashed between them are not the same


class Check(msgspec.Struct, array_like=True, frozen=True):
    """The digest of a slice of the leader's state, as it is after a batch."""

    sequence: int
    index: int
    count: int
    digest: bytes


class Beat(msgspec.Struct, array_like=True, frozen=True):
    """The body of a beat."""

    at_us: int  # 0 if it only carries a check
    writer: str = ""  # the node that leads, for one that restarted since the claim
    check: Check | None = None


class HandOver(msgspec.Struct, array_like=True, frozen=True):
    """The body of a hand-over."""

    to: str  # the node that is to lead; empty if any may


class Replaced(msgspec.Struct, array_like=True, frozen=True):
    """The body of a fence."""

    by: str  # where clients find the standby that leads from now on
    at_us: int


class Mark(NamedTuple):
    """A place in the log."""

    position: int  # of the last message that was read or stored
    sequence: int  # of the last batch
    digest: bytes  # of all through the last entry of the chain
    epoch: int  # the greatest one


class Heard(NamedTuple):
    """An entry that was read."""

    kind: int
    sequence: int
    epoch: int
    body: bytes


def founding_epoch(founding: Path | None) -> int:
    """Return the epoch beyond which a new log begins, by the file of its founder."""
    try:
        text = founding.read_text() if founding is not None else ""
    except FileNotFoundError:
        text = ""
    return int(text) if text.isdecimal() else 0


class SharedJournal:
    """See `jackalope.storage.ports.Journal`; one thread at a time may write or follow."""

    is_shared = True

    def __init__(self, log: LogEngine, mirror: Mirror, cluster: str, node: str) -> None:
        self.log = log
        self.mirror = mirror
        self.cluster = cluster
        self.node = node
        self.founding: Path | None = None  # a file that is there until this node has begun the log
        self.may_begin = True  # whether this node may be the first to write to the log
        self.check: Check | None = None  # to be told behind its batch
        self.told: Check | None = None  # the last one that stands in the log
        self.sent_ns = 0  # when the last entry that is stored was first put
        self.told_ns = 0  # when the other nodes were last told who writes
        self._closed = Event()
        self._leads = self.is_fenced = False
        self._mirror_fault: NotMirrored | None = None
        self._joiner = Joiner()
        self._whole = 0  # the position of the last message that ended an entry
        self._is_placed = False
        self._is_ahead = False  # the mark is ahead of the mirror
        self._has_all = False  # the log had nothing more when it was last read
        self.mark = Mark(0, mirror.last(), mirror.digest, mirror.epoch())
        self._batch_at = 0  # the position of the last batch, or a little before it

    @property
    def founds(self) -> bool:
        """Whether this node is to begin the log with its state."""
        return self.founding is not None and self.founding.exists() and bool(self.mark.sequence)

    @property
    def beats(self) -> int:
        """How many messages stand behind the last batch, which cannot be cut off the log."""
        return self.mark.position - self._batch_at

    def adopt(self, mirror: Mirror) -> None:
        """Go on with another mirror; `find_place` comes next."""
        self.mirror = mirror
        self._leads = self.is_fenced = False
        self.mark = Mark(0, mirror.last(), mirror.digest, mirror.epoch())

    def begins(self) -> int:
        """Return the batch with which the log begins, or behind which it does.

        Raises:
            OutOfReach: the log does not answer.
        """
        message = self.log.get(self.log.start())
        place = None if message is None else place_of(message)
        return 0 if place is None else place.sequence

    def is_empty(self) -> bool:
        """Return whether nothing stands in the log, as far as can be seen."""
        try:
            return self.log.end() == 0
        except StorageFault:
            return True

    # Following.

    def find_place(self) -> None:
        """Find where in the log the mirror ends, so that `follow` can begin.

        Raises:
            OutOfReach: the log does not answer.
        """
        low, high = self.log.start(), self.log.end() + 1
        sequence = self.mirror.last()
        while low < high:
            middle = (low + high) // 2
            found = self._first_sound(middle)
            # What cannot be read is met again by `follow`, which names it.
            if found is not None and found[1] < sequence:
                low = found[0] + 1
            else:
                high = middle
        self._joiner, self._is_placed = Joiner(), False
        self._mirror_fault, self._is_ahead, self._has_all = None, False, False
        self._whole = low - 1
        self.mark = Mark(low - 1, sequence, self.mirror.digest, self.mirror.epoch())
        self._batch_at = low - 1

    def _first_sound(self, position: int) -> tuple[int, int] | None:
        """Return where the first sound message from a position on stands, and its sequence."""
        try:
            messages = self.log.read(position - 1, _PROBES)
        except Lacking:
            return None
        for at, message in messages:
            place = place_of(message)
            if place is not None and (is_chunk(message) or decode(message) is not None):
                return at, place.sequence
        return None

    def follow(self, patience_s: float) -> list[Heard]:
        """Return what stands in the log after the mark; wait so long for it. Moves the mark.

        Raises:
            Behind: what comes next has been cut off the log.
            Astray: the log does not continue the chain.
            OutOfReach: the log does not answer.
        """
        if self._is_ahead:
            self.find_place()
        heard: list[Heard] = []
        while not heard and (messages := self._read_messages(patience_s)):
            heard = self._hear(messages)  # Nothing new if it is part of an entry, or known.
            if not self._is_placed:
                patience_s = 0  # It is in what is there, or nowhere, however long a leader beats.
        if not heard and not self._is_placed and self.mark.sequence:
            if (self.founds or not self.may_begin) and self.log.end() == 0:
                self._is_placed = self.founds  # Others wait for the node that begins the log.
                return heard
            raise Astray(
                f"the log ends before batch {self.mark.sequence}, which this node has applied: it "
                "has lost what it acknowledged, or it is the log of another cluster"
            )
        return heard

    def _read_messages(self, patience_s: float) -> list[tuple[int, bytes]]:
        after = self.mark.position
        try:
            if self._has_all and patience_s > 0 and not self.log.wait(after, patience_s):
                return []
            messages = self.log.read(after, MESSAGES_PER_READ)
        except Lacking as fault:
            self._go_back()
            raise Astray(str(fault)) from fault
        self._has_all = len(messages) < MESSAGES_PER_READ
        return messages

    def _hear(self, messages: list[tuple[int, bytes]]) -> list[Heard]:
        heard: list[Heard] = []
        for position, message in messages:
            try:
                if position != self.mark.position + 1:
                    raise self._gap(position)
                raw = self._joiner.add(message)
                entry = None if raw is None else self._check(decode(raw), position)
            except (Astray, Behind):
                self._go_back()
                if heard:
                    return heard  # It is met again, with nothing before it.
                raise
            if raw is not None:
                self._whole = position
            if raw is not None and entry is not None:
                heard.append(self._keep(raw, entry))
            self.mark = self.mark._replace(position=position)
        return heard

    def _keep(self, raw: bytes, entry: Entry) -> Heard:
        if entry.kind in CHAINED:
            self._take(raw, entry)
        return Heard(entry.kind, entry.sequence, entry.epoch, entry.body)

    def _go_back(self) -> None:
        """Read the parts of an unfinished entry again: one of them may be damaged."""
        self._joiner = Joiner()
        self.mark = self.mark._replace(position=self._whole)

    # In doubt: what others have is judged as the log is.

    def hear_copy(self, messages: list[tuple[int, bytes]]) -> list[Heard]:
        """Take what another copy of the log has after the mark; see `follow`."""
        return self._hear(messages)

    def hear_mirror(self, entries: Iterable[bytes]) -> list[Heard]:
        """Take what the mirror of another node has after the mark, and find the place in the log.

        Raises:
            Astray: the first entry does not continue the chain.
        """
        if self.mark.digest == NO_DIGEST and self.mark.sequence:
            raise Astray("this node has nothing by which it could judge a mirror")
        heard: list[Heard] = []
        for raw in entries:
            entry = decode(raw)
            if entry is None or entry.kind not in CHAINED or not self._continues(entry):
                if heard:
                    break
                raise Astray(f"the entry does not continue batch {self.mark.sequence}")
            heard.append(self._keep(raw, entry))
        if heard:
            self.find_place()
        return heard

    def _continues(self, entry: Entry) -> bool:
        is_next = entry.before == self.mark.digest and entry.sequence == self._due(entry)
        return is_next and self._is_in_epoch(entry)

    def _check(self, entry: Entry | None, position: int) -> Entry | None:
        """Return the entry if it is a new one; None if the mirror has it. Raise if it is wrong."""
        mark = self.mark
        if entry is None:
            if not self._is_placed and mark.sequence:
                return None  # The mirror may have it. If not, what follows does not continue it.
            raise Astray(f"message {position} of the log is damaged")
        if not self._is_placed:
            if entry.before != mark.digest and not self._begins(entry):
                if entry.digest == mark.digest:
                    self._is_placed = True
                    # A mirror that begins behind it, as after a restore, does not know its epoch.
                    self.mark = mark._replace(epoch=max(mark.epoch, entry.epoch))
                elif entry.sequence > mark.sequence or self._is_begun_elsewhere(entry):
                    raise self._gap(self._whole + 1)  # where its first part stands
                return None
            self._is_placed = True
        if entry.before != self.mark.digest:
            raise Astray(
                f"message {position} of the log does not continue what this node has applied "
                f"through batch {mark.sequence}"
            )
        if entry.sequence != self._due(entry) or not self._is_in_epoch(entry):
            raise Astray(f"message {position} of the log is out of order")
        if not mark.epoch:
            self.mark = self.mark._replace(epoch=entry.epoch)
        return entry

    def _is_begun_elsewhere(self, entry: Entry) -> bool:
        """Return whether the log begins with a claim at this node's batch that it does not have.

        A new log was made from the mirror of another node, which ended with a claim more or less.
        """
        is_claim = entry.kind == Kind.CLAIM and entry.sequence == self.mark.sequence
        if not is_claim or self._whole + 1 != self.log.start():
            return False
        return self.mirror.entries(entry.sequence, entry.digest, 0) is None

    def _due(self, entry: Entry) -> int:
        return self.mark.sequence + (entry.kind == Kind.BATCH)

    def _is_in_epoch(self, entry: Entry) -> bool:
        """Return whether an entry is of its epoch; a node that begins in its middle takes any."""
        epoch = self.mark.epoch
        return (
            entry.epoch > epoch
            if entry.kind == Kind.CLAIM
            else entry.epoch == (epoch or entry.epoch)
        )

    def _begins(self, entry: Entry) -> bool:
        """Return whether a mirror that was set aside goes on with this entry.

        It begins behind a batch and has no digest of it: the log's own is taken for it.
        """
        mark = self.mark
        if mark.digest != NO_DIGEST or not mark.sequence:
            return False
        if entry.sequence != self._due(entry):
            return False
        self.mirror.restart(mark.sequence, entry.before)
        self.mark = mark._replace(digest=entry.before)
        return True

    def _gap(self, position: int) -> StorageFault:
        if position > self.log.start():
            return Astray(f"the log lacks messages before {position}")
        return Behind(
            f"the log begins at message {position}, behind batch {self.mark.sequence} of this node"
        )

    def catch_up(self) -> None:
        """Follow to the end of the log as it is now, and forget what was heard."""
        self.find_place()
        while self.follow(0):
            pass

    # Writing.

    def claim(self) -> int:
        """Follow to the end of the log and become the writer there."""
        while True:
            self.catch_up()
            try:
                return self.claim_here(0)
            except Fenced:
                continue

    def claim_here(self, at_us: int, level: int = LEVEL) -> int:
        """Become the writer at the mark, and return the new epoch.

        Raises:
            Fenced: the log goes on after the mark.
        """
        epoch = max(self.mark.epoch, founding_epoch(self.founding)) + 1
        nonce = os.urandom(_NONCE_BYTES)
        claim = Claim(self.cluster, self.node, at_us, level, nonce)
        self._leads = False
        self._add(Kind.CLAIM, self.mark.sequence, msgspec.msgpack.encode(claim), epoch)
        self.told_ns = self.sent_ns
        self._is_placed = self._leads = True
        self.is_fenced = False
        if self.founding is not None:
            self.founding.unlink(missing_ok=True)
            self.founding = None
        return epoch

    def append(self, body: bytes) -> int:
        """Store one batch and return its sequence."""
        must(self._leads or self.is_fenced, "append before claim")
        self.tell()  # Behind the next batch it could not be compared.
        self._add(Kind.BATCH, self.mark.sequence + 1, body, self.mark.epoch)
        return self.mark.sequence

    def beat(self, at_us: int) -> None:
        """Tell the other nodes that this one leads, and how its state is if that is due."""
        check, self.check = self.check, None
        due = check if check and check.sequence == self.mark.sequence else None
        self._add(
            Kind.BEAT,
            self.mark.sequence,
            msgspec.msgpack.encode(Beat(at_us, self.node, due)),
            self.mark.epoch,
        )
        self.told_ns = self.sent_ns
        self.told = due or self.told

    def tell(self) -> None:
        """Put a beat now if a check is to be told."""
        if self.check is not None:
            self.beat(0)

    def hand_over(self, to: str) -> None:
        """Tell the other nodes that this one leads no more."""
        self._add(
            Kind.HAND_OVER,
            self.mark.sequence,
            msgspec.msgpack.encode(HandOver(to)),
            self.mark.epoch,
        )
        self._leads = False

    def fence(self, by: str, at_us: int) -> None:
        """End the log: a node that reads this never claims, and none claims without reading it."""
        body = msgspec.msgpack.encode(Replaced(by, at_us))
        self._add(Kind.FENCE, self.mark.sequence, body, self.mark.epoch)
        self._leads = False

    def _add(self, kind: Kind, sequence: int, body: bytes, epoch: int) -> None:
        if self._mirror_fault is not None and kind in CHAINED:
            raise self._mirror_fault
        if self.is_fenced and kind is not Kind.CLAIM:
            raise self._fenced()
        before = self.mark.digest
        raw, digest = encode(kind, sequence, epoch, 0, before, body)
        sent_ns = monotonic_ns()
        for message in split(raw, self.log.message_bytes_max):
            self._settle(self.mark.position + 1, message)
            self.mark = self.mark._replace(position=self.mark.position + 1)
        self.sent_ns = sent_ns
        if monotonic_ns() - sent_ns > _LATE_NS and self._goes_on():
            # Its effects would be true, but late: they are left to the node that leads now.
            self._leads, self.is_fenced, self._is_ahead = False, True, True
            raise Deposed(f"another node leads since epoch {self.mark.epoch}")
        if kind in CHAINED:
            entry = Entry(kind, sequence, epoch, 0, before, digest, body)
            try:
                self._take(raw, entry)
            except StorageFault as fault:
                self._advance(entry)
                self._is_ahead = True
                self._mirror_fault = NotMirrored(f"not written to this node's disk: {fault}")
                raise self._mirror_fault from fault

    def _goes_on(self) -> bool:
        """Return whether something stands in the log behind what was put last, once it answers."""
        while not self._closed.is_set():
            try:
                return self.log.end() > self.mark.position
            except OutOfReach:
                sleep(_PAUSE_S)
        raise SyncFailed(_NO_ANSWER)

    def _is_passed(self, position: int) -> bool:
        """Return whether a copy of the log has what follows a position, and not what stands there.

        A message that is counted and never stored is the last one.
        """
        try:
            return self.log.end() > position and self.log.get(position) is None
        except OutOfReach:
            return False

    def _settle(self, position: int, message: bytes) -> None:
        """Return when the message stands at its position.

        Raises:
            Fenced: another message does.
            DiskFull: the log has no room.
            SyncFailed: the journal was closed before that was known.
        """
        is_in_doubt = False
        while not self._closed.is_set():
            outcome = self.log.put(position, message, PUT_TIMEOUT_S)
            if outcome is Put.STORED:
                return
            try:
                stands = self.log.get(position) if outcome is not Put.UNKNOWN else None
            except OutOfReach:
                stands = None
            if stands == message:
                return
            if stands is not None:
                self._leads, self.is_fenced = False, True
                raise self._fenced()
            if outcome is Put.TAKEN and self._is_passed(position):
                self._leads, self.is_fenced = False, True
                raise Deposed(f"the log goes on after message {position}, and lacks it")
            is_in_doubt = is_in_doubt or outcome is Put.UNKNOWN
            if outcome is Put.FULL and not is_in_doubt:  # An earlier try may still be stored.
                raise DiskFull("the shared log is full; make room, or trim it")
            sleep(_PAUSE_S)
        raise SyncFailed(_NO_ANSWER)

    def _fenced(self) -> Fenced:
        return Fenced(
            f"another node has become the writer since epoch {self.mark.epoch}. Nothing of the "
            "last write was kept"
        )

    def _take(self, raw: bytes, entry: Entry) -> None:
        self.mirror.take(raw, entry)
        self._advance(entry)

    def _advance(self, entry: Entry) -> None:
        if entry.kind == Kind.BATCH:
            self._batch_at = self.mark.position
        self.mark = self.mark._replace(
            sequence=entry.sequence, digest=entry.digest, epoch=entry.epoch
        )

    def cut(self, through: int) -> None:
        """Remove from the log what no node needs: the entries through a batch."""
        low, high = self.log.start(), self.mark.position
        while low < high:  # The first message of a later batch; the last message always stays.
            middle = (low + high) // 2
            found = self._first_sound(middle)
            if found is None or found[1] > through:
                high = middle
            else:
                low = min(found[0] + 1, high)
        if low > self.log.start():
            self.log.cut(low - 1)

    # The rest of the port is the mirror's.

    def sync(self) -> None:
        self.mirror.sync()

    def spare_bytes(self) -> int:
        return self.mirror.spare_bytes()

    def last(self) -> int:
        return self.mark.sequence

    def trimmed(self) -> int:
        return self.mirror.trimmed()

    def read(self, after: int) -> Iterator[tuple[int, bytes]]:
        return self.mirror.read(after)

    def entries(self, sequence: int, digest: bytes, bytes_max: int) -> list[bytes] | None:
        return self.mirror.entries(sequence, digest, bytes_max)

    def keep_recent(self) -> None:
        self.mirror.keep_recent()

    def digest_at(self, sequence: int) -> bytes | None:
        return self.mirror.digest_at(sequence)

    def survey(self) -> Survey:
        return self.mirror.survey()

    def salvage(self, after: int) -> Iterator[tuple[int, bytes | None]]:
        return self.mirror.salvage(after)

    def restart(self, after: int) -> None:  # noqa: ARG002  it is the port's
        raise Corrupt(
            "a node of a cluster does not go on without what is lost: remove its data, and it "
            "takes over the state of another node"
        )

    def trim(self, through: int) -> None:
        """Trim the mirror; the log is cut with regard to every node, by `cut`."""
        self.mirror.trim(through)

    def close(self) -> None:
        """Let go of everything; an append under way ends."""
        self._closed.set()
        self.log.close()
        self.mirror.close()
