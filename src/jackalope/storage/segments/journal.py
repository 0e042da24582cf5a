"""The journal in segments: the folder `journal`, one entry a batch.

Owns who may write, where the log begins and ends, and when files are synced, begun and used again.
Does not know what is in a batch.

An append is one write into a file of zeros and one sync, which costs little more than the bare disk
(`python -m bench journal` compares). The writer of an epoch begins a segment of its own and never
writes behind what an earlier one left, so that a torn end stays what it was. Where the log is
fenced or cut is decided under a lock on the file `writer`; a sync needs none.

At level `interval`, appends are not synced one by one: a thread syncs what was appended at least
once an interval. If it fails, the next append raises the fault.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_UN, flock
from itertools import pairwise, takewhile, zip_longest
from pathlib import Path
from threading import Event, Lock, Thread
from typing import NamedTuple

from jackalope.core.assertions import must
from jackalope.core.durations import SECOND
from jackalope.storage.disk import make_folder, sync_file
from jackalope.storage.entry import NO_DIGEST, Entry, Kind, encode
from jackalope.storage.faults import (
    WAY_OUT,
    Corrupt,
    StorageFault,
    begins_later,
    fault_of_system,
    fenced,
    naming_faults,
    sync_failed,
)
from jackalope.storage.ports import INTERVAL_US_DEFAULT, Level
from jackalope.storage.segments.segment import (
    HEADER_BYTES,
    MARK_BYTES,
    Header,
    begin_segment,
    drop_unfinished,
    make_spare,
    numbers_in,
    path_of,
    read_header,
    read_segment,
    salvage_segment,
    spare_segments,
    spare_sizes,
    write_frame,
)
from jackalope.storage.witness import Witness

#: Segments grow with the traffic, from the first size to the last.
SEGMENT_BYTES_MIN = 1024 * 1024
SEGMENT_BYTES_MAX = 16 * 1024 * 1024

#: How many files are kept to be used again. They bear some seconds of full speed between two trims.
SPARES_MAX = 6

#: How many bytes of the last entries are kept in memory once they are followed.
RECENT_BYTES_MAX = 4 * 1024 * 1024

#: Holds the epoch of the writer, for the one before it; it is locked while entries are written.
_WRITER = "writer"
_EPOCH_BYTES = 8


class End(NamedTuple):
    """Where a log ends."""

    epoch: int = 0
    last: int = 0  # the sequence of its last batch
    trimmed: int = 0
    digest: bytes = NO_DIGEST  # of its last entry
    is_empty: bool = False  # whether its last segment has no entry


class Survey(NamedTuple):
    """All that a log has, as it is read from its files."""

    first: int  # its batches; none if the last one is less
    last: int
    digest: bytes  # of its last entry
    epoch: int  # the greatest of its entries
    claim: bytes = b""  # the body of the last claim in it
    problem: str = ""  # why it is not read to its end


class SegmentJournal:
    """See `jackalope.storage.ports.Journal`."""

    is_shared = False

    def __init__(
        self,
        folder: Path,
        level: Level = Level.FSYNC,
        interval_us: int = INTERVAL_US_DEFAULT,
        witness: Witness | None = None,
        *,
        accepts_loss: bool = False,
    ) -> None:
        must(level is not Level.MEMORY, "a journal in files is not at level memory")
        self.folder = folder
        self._accepts_loss = accepts_loss
        self._witness = witness
        self._broken: StorageFault | None = None
        self._spare_maker: Thread | None = None
        self._is_closed = False
        # What the writer knows of its segment.
        self._writer = -1
        self._epoch = 0
        self._header = Header(b"", 0, 1, 0, 0, NO_DIGEST)
        self._file = -1
        self._size = 0
        self._offset = 0
        self._digest = NO_DIGEST
        self._last = 0
        self._durable = 0
        self._trimmed = 0
        self._recent = Recent()
        self._files = Lock()  # held while the file is replaced or synced
        self._syncer = Syncer(self._sync, interval_us) if level is Level.INTERVAL else None

    def claim(self) -> int:
        if self._writer < 0:
            with naming_faults(self.folder):
                make_folder(self.folder)
                self._writer = os.open(self.folder / _WRITER, os.O_RDWR | os.O_CREAT, 0o600)
        self._await_spare()  # What it writes is not of a killed writer.
        with self._writing():
            drop_unfinished(self.folder)
            numbers = numbers_in(self.folder)
            end = self._end(numbers)
            if numbers:
                _sync_path(path_of(self.folder, numbers[-1]))
            self._epoch = max(end.epoch, self._epoch_in_file()) + 1
            os.pwrite(self._writer, self._epoch.to_bytes(_EPOCH_BYTES, "big"), 0)
            self._last, self._trimmed, self._digest = end.last, end.trimmed, end.digest
            self._durable = self._last
            self._begin(numbers[-1] + 1 if numbers else 1, SEGMENT_BYTES_MIN)
            if end.is_empty:
                spare_segments(self.folder, numbers[-1:], SPARES_MAX)
        self._note(self._last)
        return self._epoch

    def append(self, body: bytes) -> int:
        must(self._epoch, "append before claim")
        self._refuse_broken()
        sequence = self._last + 1
        entry, digest = self._encode(Kind.BATCH, sequence, body)
        # Spelt out, as this is what every acknowledgement waits for.
        try:
            flock(self._writer, LOCK_EX)
            try:
                self._refuse_fenced()
                self._put(entry, digest)
            finally:
                flock(self._writer, LOCK_UN)
            if self._syncer is None:
                self._sync_file()
        except (OSError, StorageFault) as error:
            raise self._fault_of(error) from error
        self._last = sequence
        if self._syncer is None:
            self._durable = sequence
            self._note(sequence)
        else:
            self._syncer.is_due = True
        return sequence

    def sync(self) -> None:
        if self._syncer is not None and self._epoch:
            self._sync()

    def spare_bytes(self) -> int:
        with naming_faults(self.folder):
            return self._size - self._offset + sum(spare_sizes(self.folder))

    def last(self) -> int:
        return self._last if self._epoch else self._end(numbers_in(self.folder)).last

    def trimmed(self) -> int:
        return self._trimmed if self._epoch else self._end(numbers_in(self.folder)).trimmed

    def read(self, after: int) -> Iterator[tuple[int, bytes]]:
        trimmed = self.trimmed()
        if after < trimmed:
            raise begins_later(self.folder, trimmed + 1, after + 1)
        return self._read(after)

    def salvage(self, after: int) -> Iterator[tuple[int, bytes | None]]:
        for entry in self._sound():
            if entry.kind == Kind.BATCH and entry.sequence > after:
                yield from ((lost, None) for lost in range(after + 1, entry.sequence))
                yield entry.sequence, entry.body
                after = entry.sequence
        yield from ((lost, None) for lost in range(after + 1, self.last() + 1))

    def restart(self, after: int, digest: bytes = NO_DIGEST) -> None:
        """Remove every batch, and go on behind a sequence, and a digest of what was before."""
        must(after >= self._last, "restart before batches that exist", after, self._last)
        with self._writing():
            self._refuse_fenced()
            old = numbers_in(self.folder)
            self._last = self._trimmed = self._durable = after
            self._digest, self._recent = digest, Recent()
            self._begin(old[-1] + 1, SEGMENT_BYTES_MIN)
            spare_segments(self.folder, old, SPARES_MAX)
        self._note(after)

    def trim(self, through: int) -> None:
        must(through <= self._last, "trim of batches that do not exist", through, self._last)
        with self._writing():
            self._refuse_fenced()
            if through <= self._trimmed:
                return
            self._trimmed = through
            self._note_trim()
            done = takewhile(
                lambda pair: read_header(path_of(self.folder, pair[1])).first <= through + 1,
                pairwise(numbers_in(self.folder)),
            )
            spare_segments(self.folder, [number for number, _ in done], SPARES_MAX)

    def close(self) -> None:
        """Sync what is not yet, and close the files; safe to repeat."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._syncer is not None:
            self._syncer.stop()
        self._await_spare()
        for descriptor in (self._file, self._writer):
            if descriptor >= 0:
                os.close(descriptor)

    # Writing. The caller holds the lock on the folder.

    def _note_trim(self) -> None:
        # Not synced: if it is lost, batches are there that need not be.
        self._put(*self._encode(Kind.TRIM, self._trimmed, b""))

    def _encode(self, kind: Kind, sequence: int, body: bytes) -> tuple[bytes, bytes]:
        return encode(kind, sequence, self._epoch, self._durable, self._digest, body)

    def _put(self, entry: bytes, digest: bytes) -> None:
        need = MARK_BYTES + len(entry)
        if self._offset + need > self._size:
            if self._syncer is not None:
                self._sync_file()
            size = min(2 * self._size, SEGMENT_BYTES_MAX)
            self._begin(self._header.number + 1, max(size, HEADER_BYTES + need))
        self._offset = write_frame(self._file, self._header.mark, entry, self._offset)
        if self._recent.bytes_max:
            self._recent.add(self._digest, entry, digest)
        self._digest = digest
        if self._spare_maker is None and self._offset > self._size // 2:
            self._spare_maker = Thread(target=self._make_spare, name="journal-spare", daemon=True)
            self._spare_maker.start()

    def _begin(self, number: int, size: int) -> None:
        """Begin a segment after the last batch."""
        header = Header(
            mark=os.urandom(MARK_BYTES),
            number=number,
            first=self._last + 1,
            epoch=self._epoch,
            trimmed=self._trimmed,
            before=self._digest,
        )
        file, self._size = begin_segment(self.folder, header, size)
        with self._files:
            if self._file >= 0:
                os.close(self._file)
            self._file = file
        self._header, self._offset = header, HEADER_BYTES
        self._await_spare()

    def _await_spare(self) -> None:
        if self._spare_maker is not None:
            self._spare_maker.join()
            self._spare_maker = None

    def _make_spare(self) -> None:
        """Prepare the next segment's file in the background, else it is made on demand."""
        size = min(2 * self._size, SEGMENT_BYTES_MAX)
        with suppress(OSError):
            if not any(have >= size for have in spare_sizes(self.folder)):
                make_spare(self.folder, size)

    def _sync(self) -> None:
        self._refuse_broken()
        last = self._last  # Before the sync: what is appended during it may have come too late.
        try:
            self._sync_file()
        except StorageFault as fault:
            raise self._fault_of(fault) from fault
        self._durable = last
        self._note(last)

    def _sync_file(self) -> None:
        try:
            with self._files:
                sync_file(self._file)
        except OSError as error:
            raise sync_failed(self.folder, error) from error

    def _note(self, sequence: int) -> None:
        if self._witness is not None:
            self._witness.note(sequence)

    def _refuse_fenced(self) -> None:
        if self._epoch_in_file() != self._epoch:
            raise fenced(self.folder, self._epoch)

    def _epoch_in_file(self) -> int:
        return int.from_bytes(os.pread(self._writer, _EPOCH_BYTES, 0), "big")

    def _refuse_broken(self) -> None:
        if self._broken is not None:
            raise type(self._broken)(*self._broken.args) from self._broken

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Hold the lock that keeps another writer from taking over meanwhile."""
        self._refuse_broken()
        try:
            flock(self._writer, LOCK_EX)
            try:
                yield
            finally:
                flock(self._writer, LOCK_UN)
        except (OSError, StorageFault) as error:
            raise self._fault_of(error) from error

    def _fault_of(self, error: OSError | StorageFault) -> StorageFault:
        """Classify an error, and stop writing if it is unknown what is stored."""
        fault = fault_of_system(error, self.folder) if isinstance(error, OSError) else error
        if not fault.is_settled:
            self._broken = fault
        return fault

    # Reading. What is in the files is looked up each time: another may write them.

    def _end(self, numbers: list[int]) -> End:
        try:
            return self._end_of_sound(numbers)
        except Corrupt:
            if not self._accepts_loss:
                raise
            return self._end_of_damaged(numbers)

    def _end_of_sound(self, numbers: list[int]) -> End:
        if not numbers:
            return End()
        path = path_of(self.folder, numbers[-1])
        header = read_header(path)
        scan = read_segment(path, header)
        if scan.lost:
            raise self._damaged(scan.lost)
        last, trimmed = header.first - 1, header.trimmed
        for entry in scan.entries:
            if entry.kind == Kind.TRIM:
                trimmed = entry.sequence
            else:
                last = entry.sequence
        digest = scan.entries[-1].digest if scan.entries else header.before
        first = read_header(path_of(self.folder, numbers[0])).first
        return End(header.epoch, last, max(trimmed, first - 1), digest, not scan.entries)

    def _end_of_damaged(self, numbers: list[int]) -> End:
        """Return where the log seems to end, by everything in it that is intact."""
        headers = []
        for number in numbers:
            with suppress(Corrupt):
                headers.append(read_header(path_of(self.folder, number)))
        entries = list(self._sound())
        batches = [each.sequence for each in entries if each.kind == Kind.BATCH]
        trims = [each.sequence for each in entries if each.kind == Kind.TRIM]
        first = headers[0].first if headers else min(batches, default=1)
        last = max([each.first - 1 for each in headers] + batches, default=0)
        epoch = max([each.epoch for each in headers] + [each.epoch for each in entries], default=0)
        return End(epoch, last, max([first - 1, *trims]))

    def _sound(self) -> Iterator[Entry]:
        for number in numbers_in(self.folder):
            yield from salvage_segment(path_of(self.folder, number))

    def _read(self, after: int) -> Iterator[tuple[int, bytes]]:
        for header, entries in self._segments(after + 1):
            if header.first > after + 1:
                raise self._damaged(after + 1)
            for entry in entries:
                if entry.kind == Kind.BATCH and entry.sequence > after:
                    after = entry.sequence
                    yield after, entry.body

    def _segments(self, sequence: int) -> Iterator[tuple[Header, list[Entry]]]:
        """Yield the segments from the one on that has a batch, or from the first, as a chain."""
        headers = [read_header(path_of(self.folder, n)) for n in numbers_in(self.folder)]
        ends = [header.first for header in headers[1:]]
        digest = b""
        for header, end in zip_longest(headers, ends):
            if not digest and end is not None and end <= sequence:
                continue  # All of it is earlier.
            if digest not in (b"", header.before):
                raise self._damaged(header.first)
            scan = read_segment(path_of(self.folder, header.number), header, end)
            # Whether what a failed write left behind is stored is not known.
            is_known = self._broken is None
            yield header, [e for e in scan.entries if is_known or e.sequence <= self._last]
            if scan.lost:
                raise self._damaged(scan.lost)
            digest = scan.entries[-1].digest if scan.entries else header.before

    def entries(self, sequence: int, digest: bytes, bytes_max: int) -> list[bytes] | None:
        """Return what follows in the log, as it stands there: about so many bytes, or one entry.

        Args:
            sequence: the last batch before it.
            digest: of the last entry before it.
            bytes_max: after how many bytes to end.

        Returns:
            The entries; none at the end of the log, None if no entry with the digest is here.
        """
        if (recent := self._recent.after(digest, bytes_max)) is not None:
            return recent
        found: list[bytes] = []
        is_after, size = False, 0
        for header, entries in self._segments(sequence):
            is_after = is_after or header.before == digest
            for entry in entries:
                if is_after:
                    raw, _ = encode(*entry[:5], entry.body)
                    found.append(raw)
                    size += len(raw)
                    if size >= bytes_max:
                        return found
                is_after = is_after or entry.digest == digest
        return found if is_after else None

    def keep_recent(self) -> None:
        """Keep the last entries in memory from now on, for a reader that follows closely."""
        self._recent.bytes_max = RECENT_BYTES_MAX

    def digest_at(self, sequence: int) -> bytes | None:
        """Return the digest of all through a batch; None if that is not known here."""
        for header, entries in self._segments(sequence):
            if header.first > sequence:
                return header.before if header.first == sequence + 1 else None
            for entry in entries:
                if entry.kind == Kind.BATCH and entry.sequence == sequence:
                    return entry.digest
        return None

    def survey(self) -> Survey:
        """Read the whole log, and return how far it is sound.

        What stands behind an end that was torn counts as damage here, although a writer goes on
        before it: the log of a node's mirror does not say what was durable.

        Raises:
            StorageFault: it cannot be read, which is no damage: a file was removed meanwhile.
        """
        found, last = Survey(1, 0, NO_DIGEST, 0), self._last
        try:
            for number, (header, entries) in enumerate(self._segments(0)):
                if not number:
                    found = Survey(header.first, header.first - 1, header.before, 0)
                for entry in entries:
                    through = entry.sequence if entry.kind == Kind.BATCH else found.last
                    epoch = max(found.epoch, entry.epoch)
                    claim = entry.body if entry.kind == Kind.CLAIM else found.claim
                    found = Survey(found.first, through, entry.digest, epoch, claim)
            for number in numbers_in(self.folder)[-1:]:
                behind = salvage_segment(path_of(self.folder, number))
                last = max([last, *(e.sequence for e in behind if e.kind == Kind.BATCH)])
            if last > found.last:
                raise self._damaged(found.last + 1)
        except Corrupt as fault:
            return found._replace(problem=str(fault))
        return found

    def _damaged(self, sequence: int) -> Corrupt:
        return Corrupt(f"{self.folder}: batch {sequence} is missing or damaged. {WAY_OUT}")


class Recent:
    """The last entries of a journal, in memory. One thread adds, others look."""

    def __init__(self) -> None:
        self.bytes_max = 0  # Nothing is kept until a reader comes.
        self._entries: deque[tuple[bytes, bytes]] = deque()  # each with the digest before it
        self._bytes = 0
        self._last = b""
        self._lock = Lock()

    def add(self, before: bytes, raw: bytes, digest: bytes) -> None:
        with self._lock:
            self._entries.append((before, raw))
            self._bytes += len(raw)
            self._last = digest
            while self._bytes > self.bytes_max:
                self._bytes -= len(self._entries.popleft()[1])

    def after(self, digest: bytes, bytes_max: int) -> list[bytes] | None:
        """Return what follows an entry, about so many bytes; None if that is not known here."""
        with self._lock:
            if digest == self._last:
                return []
            found: list[bytes] = []
            for before, raw in reversed(self._entries):
                found.append(raw)
                if before == digest:
                    break
            else:
                return None
        found.reverse()
        size = 0
        for count, raw in enumerate(found, 1):
            size += len(raw)
            if size >= bytes_max:
                return found[:count]
        return found


class Syncer:
    """The thread that syncs at level `interval`.

    Its failure is remembered by the journal, which refuses the next write.
    """

    def __init__(self, sync: Callable[[], None], interval_us: int) -> None:
        must(interval_us > 0, "an interval must be positive", interval_us)
        self.is_due = False
        self._sync = sync
        self._interval_us = interval_us
        self._stopped = Event()
        self._thread = Thread(target=self._work, name="journal-sync", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Sync a last time and end the thread; safe to repeat."""
        self._stopped.set()
        self._thread.join()

    def _work(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._stopped.wait(self._interval_us / SECOND)
            # Taken back before the sync: what is appended during it may have come too late.
            is_due, self.is_due = self.is_due, False
            if is_due:
                try:
                    self._sync()
                except StorageFault:
                    return


def _sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)
