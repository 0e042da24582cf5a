"""A look into a journal, of a broker that runs and of one that was killed."""

import signal
from pathlib import Path

import pytest

from jackalope.cli.base import Exit
from jackalope.storage.segments.segment import HEADER_BYTES, numbers_in, path_of
from tests.cli.conftest import Cli, Serving


@pytest.mark.parametrize("kind", ["segments", "sqlite"])
def test_batches_and_records_are_shown(tmp_path: Path, cli: Cli, kind: str) -> None:
    (tmp_path / "jackalope.yaml").write_text(f"data:\n  journal: {kind}\n")
    serving = Serving(cwd=tmp_path)
    task = cli(
        "-b", str(serving.address), "submit", "-q", "a", "--name", "x", "--alias", "one"
    ).out.strip()
    running = cli("journal", "show", serving.folder, "-f", "json").json
    assert running[0]["records"] == {"queue": 1, "submit": 1}
    assert serving.stop(signal.SIGKILL)[0] == -signal.SIGKILL
    assert (Path(serving.folder) / "journal").exists() is (kind == "segments")
    (batch, *_) = cli("journal", "show", serving.folder, "--records", "-f", "json").json
    submitted = next(each for each in batch["records"] if each["record"] == "submit")
    assert submitted["spec"]["id"] == task
    drawn = cli("journal", "show", serving.folder, "--records").out
    assert "namespace=default" in drawn
    assert cli("journal", "show", serving.folder, "--after", "99", "-f", "json").json == []
    assert cli("check", serving.folder).code == 0


def test_a_damaged_batch_is_shown_as_such(tmp_path: Path, cli: Cli) -> None:
    serving = Serving(cwd=tmp_path)
    for _ in range(2):
        cli("-b", str(serving.address), "submit", "-q", "a", "--name", "x")
    serving.stop(signal.SIGKILL)
    journal = Path(serving.folder) / "journal"
    with path_of(journal, numbers_in(journal)[-1]).open("r+b") as file:
        file.seek(HEADER_BYTES + 20)
        file.write(b"\xff" * 4)
    shown = cli("journal", "show", serving.folder, "-f", "json").json
    assert [batch["is_damaged"] for batch in shown][:1] == [True]
    assert "missing or damaged" in cli("journal", "show", serving.folder).out


def test_what_is_no_data_folder(tmp_path: Path, cli: Cli) -> None:
    ran = cli("journal", "show", str(tmp_path))
    assert ran.code == Exit.STORAGE
    assert "not a data folder" in ran.err
