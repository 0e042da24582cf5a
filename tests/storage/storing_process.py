"""Stores batches until it is killed, and tells of each one that is acknowledged.

Run by `test_kill`. Usage: python -m tests.storage.storing_process FOLDER SEED
"""

import random
import sys
from hashlib import sha256
from pathlib import Path

from jackalope.core.task import TaskRow
from jackalope.storage import Storage
from jackalope.storage.sqlite import journal, schema
from tests.storage.making import make_changes, make_row


def digest(body: bytes) -> bytes:
    return sha256(body).hexdigest().encode()


def to_row(sequence: int, body: bytes) -> TaskRow:
    """Return the trace that a batch leaves in history."""
    return make_row(sequence, payload=digest(body))


def store(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    # Small, so that many checkpoints are interrupted too.
    journal.WAL_BYTES_MAX = chance.choice([50_000, 500_000])
    schema.WAL_BYTES_MAX = chance.choice([20_000, 200_000])
    storage = Storage.open(folder, has_writer_process=chance.random() < 0.5)
    storage.journal.claim()
    pending = [to_row(*batch) for batch in storage.journal.read(storage.history.applied())]
    while True:
        body = chance.randbytes(chance.choice([0, 100, 9_000, 60_000]))
        sequence = storage.journal.append(body)
        print(sequence, digest(body).decode(), flush=True)
        pending.append(to_row(sequence, body))
        if chance.random() < 0.1:
            storage.flush(sequence, make_changes(*pending))
            pending.clear()
        if chance.random() < 0.1:
            storage.journal.trim(storage.history.sync())


if __name__ == "__main__":
    store(Path(sys.argv[1]), int(sys.argv[2]))
