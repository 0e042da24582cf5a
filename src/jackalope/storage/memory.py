"""Storage in memory: for tests, and for brokers that need not outlive their process.

Held to the same contract as the files by the same suites. History and series are those in SQLite,
without a file.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from uuid import uuid4

from jackalope.core.assertions import BrokenInvariant, must
from jackalope.core.task import BlobRef
from jackalope.storage.faults import Corrupt, Fenced
from jackalope.storage.ports import Blobs, Draft

CHUNK_BYTES = 256 * 1024


@dataclass
class Log:
    """What a journal in memory leaves behind; another journal on it is the same, opened again."""

    epoch: int = 0
    trimmed: int = 0
    bodies: list[bytes] = field(default_factory=list)


class MemoryJournal:
    """See `jackalope.storage.ports.Journal`."""

    is_shared = False

    def __init__(self, log: Log | None = None) -> None:
        self._log = log or Log()
        self._epoch = 0

    def claim(self) -> int:
        """Become the writer, and return the new epoch."""
        self._log.epoch += 1
        self._epoch = self._log.epoch
        return self._epoch

    def append(self, body: bytes) -> int:
        """Store one batch and return its sequence."""
        must(self._epoch, "append before claim")
        self._refuse_fenced()
        self._log.bodies.append(body)
        return self.last()

    def sync(self) -> None:
        """Do nothing: there is nothing more durable."""

    def spare_bytes(self) -> int:
        """Return 0: there is no file."""
        return 0

    def last(self) -> int:
        """Return the sequence of the last batch ever appended."""
        return self._log.trimmed + len(self._log.bodies)

    def trimmed(self) -> int:
        """Return the sequence through which batches have been removed."""
        return self._log.trimmed

    def read(self, after: int) -> Iterator[tuple[int, bytes]]:
        """Return every later batch with its sequence, in order."""
        trimmed = self._log.trimmed
        if after < trimmed:
            raise Corrupt(f"memory: begins at batch {trimmed + 1}, but {after + 1} is needed")
        return enumerate(self._log.bodies[after - trimmed :], after + 1)

    def salvage(self, after: int) -> Iterator[tuple[int, bytes | None]]:
        """Return every later batch; none of those that are there is ever damaged."""
        trimmed = self._log.trimmed
        for sequence in range(after + 1, self.last() + 1):
            yield sequence, self._log.bodies[sequence - trimmed - 1] if sequence > trimmed else None

    def restart(self, after: int) -> None:
        """Remove every batch, and go on behind a sequence."""
        must(after >= self.last(), "restart before batches that exist", after, self.last())
        self._log.bodies.clear()
        self._log.trimmed = after

    def trim(self, through: int) -> None:
        """Remove the batches up to and including a sequence."""
        must(through <= self.last(), "trim of batches that do not exist", through, self.last())
        self._refuse_fenced()
        if through > self._log.trimmed:
            del self._log.bodies[: through - self._log.trimmed]
            self._log.trimmed = through

    def close(self) -> None:
        """No-op; the owner keeps the log."""

    def _refuse_fenced(self) -> None:
        if self._epoch != self._log.epoch:
            raise Fenced(
                f"memory: another broker has become the writer since epoch {self._epoch}. This "
                "one must stop; its last write was discarded"
            )


class MemoryBlobs(Blobs):
    """See `jackalope.storage.ports.Blobs`."""

    drafts_max = 1_000

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    def begin(self) -> "MemoryDraft":
        return MemoryDraft(self._blobs)

    def read(self, ref: BlobRef, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        must(offset >= 0 and (length is None or length >= 0), "not a range", offset, length)
        body = self._blobs.get(ref.blob)
        if body is None or len(body) != ref.size:
            raise Corrupt(f"memory: blob {ref.blob} of {ref.size} bytes is missing")
        end = len(body) if length is None else min(len(body), offset + length)
        starts = range(offset, end, CHUNK_BYTES)
        return (body[start : min(start + CHUNK_BYTES, end)] for start in starts)

    def delete(self, name: str) -> None:
        """Remove a blob; nothing happens if it is not there."""
        self._blobs.pop(name, None)

    def names(self) -> Iterator[str]:
        yield from list(self._blobs)

    def clear(self) -> int:
        """Do nothing: what is not finished is nowhere."""
        return 0

    def close(self) -> None:
        """Do nothing: nothing is open."""


class MemoryDraft(Draft):
    """See `jackalope.storage.ports.Draft`."""

    def __init__(self, blobs: dict[str, bytes]) -> None:
        self.id = uuid4().hex
        self._blobs = blobs
        self._chunks: list[bytes] | None = []

    def add(self, chunk: bytes) -> None:
        if self._chunks is None:
            raise BrokenInvariant(f"draft {self.id} has ended")
        self._chunks.append(chunk)

    def finish(self) -> BlobRef:
        if self._chunks is None:
            raise BrokenInvariant(f"draft {self.id} has ended")
        body, self._chunks = b"".join(self._chunks), None
        self._blobs[self.id] = body
        return BlobRef(self.id, len(body), blake2b(body, digest_size=16).hexdigest())

    def abort(self) -> None:
        """Leave nothing behind."""
        self._chunks = None
