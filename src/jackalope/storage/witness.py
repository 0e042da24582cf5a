"""The witness: the last acknowledged sequence of the journal, kept outside of it.

Owns the file `witness`. A journal that lost its end cannot show it: it merely ends earlier. So the
sequence of every acknowledged batch is noted here as well, without a sync: a killed broker loses
nothing of it, as the system has it; a power failure may take the last moments, and then the witness
asks for less than it could. It never asks for more than the journal was promised to keep, because a
batch is noted only once it is synced.

There are two slots of fixed size, far enough apart not to share a sector, written in turn: a torn
write costs one of them. Nothing grows, so that a full disk does not matter.
"""

import os
import struct
import zlib
from pathlib import Path

from jackalope.storage.faults import Corrupt, naming_faults

_SLOT = struct.Struct(">8sQI")
_MAGIC = b"jackwit1"
_OFFSETS = (0, 4096)
_FILE_BYTES = 8192


class Witness:
    """The highest sequence that was acknowledged, as far as is known."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with naming_faults(path):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            raw = os.pread(self._descriptor, _FILE_BYTES, 0)
            if len(raw) < _FILE_BYTES:
                os.pwrite(self._descriptor, raw.ljust(_FILE_BYTES, b"\0"), 0)
        slots = [raw[offset : offset + _SLOT.size] for offset in _OFFSETS]
        # that sequence; 0 if nothing is known
        self.highest = max((found for found in map(_read, slots) if found), default=0)
        self.is_damaged = not self.highest and any(slot.strip(b"\0") for slot in slots)
        self._turn = 0

    def note(self, sequence: int) -> None:
        """Record that a batch is acknowledged. From any thread; write errors are ignored."""
        if sequence <= self.highest:
            return
        self.highest = sequence
        self._turn ^= 1
        try:  # noqa: SIM105  spelt out, as every acknowledgement waits for it
            os.pwrite(self._descriptor, _write(sequence), _OFFSETS[self._turn])
        except OSError:
            pass  # The batch is stored: it must not fail for this.

    def refuse_damaged(self) -> None:
        """Raise if the file has no valid slot."""
        if self.is_damaged:
            raise Corrupt(
                f"{self.path}: damaged, so the end of the journal cannot be verified. Run "
                "`jackalope check`; if everything else is intact, remove the file or start with "
                "--accept-loss"
            )

    def close(self) -> None:
        os.close(self._descriptor)


def read_witness(path: Path) -> int | None:
    """Return the sequence in a witness without changing it; None if it has none."""
    if not path.exists():
        return None
    with naming_faults(path):
        raw = path.read_bytes()
    found = [_read(raw[offset : offset + _SLOT.size]) for offset in _OFFSETS]
    return max((each for each in found if each), default=None)


def _write(sequence: int) -> bytes:
    return _SLOT.pack(_MAGIC, sequence, zlib.crc32(sequence.to_bytes(8, "big")))


def _read(slot: bytes) -> int:
    """Return the sequence in a slot; 0 if there is none."""
    if len(slot) < _SLOT.size:
        return 0
    magic, sequence, checksum = _SLOT.unpack(slot)
    is_sound = magic == _MAGIC and checksum == zlib.crc32(sequence.to_bytes(8, "big"))
    return int(sequence) if is_sound else 0
