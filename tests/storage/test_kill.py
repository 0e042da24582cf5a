"""`kill -9` at any moment loses nothing that was acknowledged."""

import random
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from select import select

import pytest

from jackalope.storage import Storage
from tests.storage.making import task_id
from tests.storage.storing_process import digest

ROOT = Path(__file__).parent.parent.parent

KILLS = 50

Acks = dict[int, bytes]


@pytest.mark.feature("T23")
@pytest.mark.feature("D7")
def test_kill_loses_nothing(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**9)
    print(f"seed {seed}")
    chance = random.Random(seed)
    acknowledged: Acks = {}
    for _ in range(KILLS):
        news = store_and_kill(tmp_path / "data", chance)
        # A process goes on where the one before it ended.
        assert not acknowledged.keys() & news.keys()
        acknowledged |= news
        check(tmp_path / "data", acknowledged)
    print(f"{len(acknowledged)} batches acknowledged")
    assert len(acknowledged) > 10 * KILLS


def store_and_kill(folder: Path, chance: random.Random) -> Acks:
    """Start a process that stores, kill it, and return what it had acknowledged."""
    command = [sys.executable, "-m", "tests.storage.storing_process", str(folder)]
    with subprocess.Popen(
        [*command, str(chance.randrange(10**9))], cwd=ROOT, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        acks: list[bytes] = []
        if chance.random() < 0.2:
            # Perhaps while it starts, recovers, or makes the files.
            end = time.monotonic() + chance.uniform(0.05, 0.4)
            while (left := end - time.monotonic()) > 0 and select([process.stdout], [], [], left)[
                0
            ]:
                acks.append(process.stdout.readline())
        else:
            acks += [process.stdout.readline() for _ in range(chance.randrange(60))]
        process.kill()
        acks += process.stdout.readlines()
    # A line without its end was cut off by the kill: nothing has been told.
    told = [line.split() for line in acks if line.endswith(b"\n")]
    return {int(sequence): digest for sequence, digest in told}


def check(folder: Path, acknowledged: Acks) -> None:
    """Check that every acknowledged batch is in the journal, or has left its trace in history."""
    with closing(Storage.open(folder)) as storage:
        applied = storage.history.applied()
        kept = {sequence: digest(body) for sequence, body in storage.journal.read(applied)}
        stored = {row.id: row.payload for row in storage.history.load().tasks}
        assert len(stored) == applied
        for sequence, expected in acknowledged.items():
            found = stored[task_id(sequence)] if sequence <= applied else kept[sequence]
            assert found == expected, sequence
        # What was not acknowledged may be there, but then it is whole and the last one.
        assert storage.journal.last() - max(acknowledged, default=0) <= KILLS
