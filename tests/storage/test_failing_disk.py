"""A full disk and a failing one: real calls of the system fail below a real process.

What happens then stands in `failing_process`; the disk that fails is `failing_disk.c`.
"""

import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from jackalope.storage import DiskFull
from jackalope.storage.journals import JournalKind
from jackalope.storage.sqlite.journal import SqliteJournal
from tests.storage.failing_process import ONE_KIND, SCENARIOS

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


@pytest.fixture(scope="module")
def failing_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs Linux and a C compiler")
    library = tmp_path_factory.mktemp("failing") / "failing_disk.so"
    source = HERE / "failing_disk.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.mark.parametrize(
    ("kind", "scenario"),
    [
        (kind, scenario)
        for kind in JournalKind
        for scenario in SCENARIOS
        if ONE_KIND.get(scenario, kind) is kind
    ],
)
@pytest.mark.feature("D8")
def test_on_a_failing_disk(
    kind: JournalKind, scenario: str, failing_disk: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tests.storage.failing_process", kind, scenario]
    done = subprocess.run(
        [*command, tmp_path / "data", failing_disk],
        cwd=ROOT,
        env=os.environ | {"LD_PRELOAD": str(failing_disk)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_file_at_its_limit(tmp_path: Path) -> None:
    body = b"x" * 100_000
    with closing(SqliteJournal(tmp_path / "journal.db")) as journal:
        journal.claim()
        assert journal.append(body) == 1
        journal._db._writer.execute("PRAGMA max_page_count = 20")
        with pytest.raises(DiskFull, match=r"journal\.db: no space left"):
            journal.append(body)
        assert list(journal.read(0)) == [(1, body)]
        journal._db._writer.execute("PRAGMA max_page_count = 1000")
        assert journal.append(body) == 2
        assert [sequence for sequence, _ in journal.read(0)] == [1, 2]
