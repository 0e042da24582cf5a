"""`kill -9` takes no fence back, not even those of which no record has ever been written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from jackalope.core.tasks.assign import FENCES_PER_BLOCK

ROOT = Path(__file__).parent.parent.parent


def fence_of_one(folder: Path) -> int:
    """Start a broker, and kill it as soon as a worker has a message that is not durable."""
    command = [sys.executable, "-m", "tests.broker.fencing_process", str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        fence = int(process.stdout.readline())
        process.kill()
    return fence


def test_fences_of_volatile_tasks_are_not_given_out_again(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    fences = [fence_of_one(folder) for _ in range(3)]
    assert fences == [1, 1 + FENCES_PER_BLOCK, 1 + 2 * FENCES_PER_BLOCK]
