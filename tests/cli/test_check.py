"""A data folder that lost its end, as people meet it: refused, looked at, gone on with."""

import json
import signal
from pathlib import Path

from jackalope.cli.base import Exit
from jackalope.storage.segments.segment import numbers_in, path_of, read_header, read_segment
from tests.cli.conftest import Cli, Serving
from tests.cli.test_serve import refused


def test_a_journal_that_lost_its_end(tmp_path: Path, cli: Cli) -> None:
    serving = Serving(cwd=tmp_path)
    kept = cli(
        "-b", str(serving.address), "submit", "-q", "a", "--name", "x", "--alias", "kept"
    ).out.strip()
    assert cli("-b", str(serving.address), "list", "-f", "json").code == 0  # History has it.
    assert cli("check", serving.folder).code == Exit.BUSY
    cli("-b", str(serving.address), "submit", "-q", "a", "--name", "x", "--alias", "lost")
    assert serving.stop(signal.SIGKILL)[0] == -signal.SIGKILL
    sound = cli("check", serving.folder, "-f", "json")
    assert (sound.code, [each["problems"] for each in sound.json]) == (0, [[]] * len(sound.json))
    journal = Path(serving.folder) / "journal"
    path = path_of(journal, numbers_in(journal)[-1])
    header = read_header(path)
    *_, lost = read_segment(path, header).entries
    with path.open("r+b") as file:
        file.seek(path.read_bytes().index(lost.digest))
        file.write(bytes(8))
    found = cli("check", serving.folder, "-f", "json")
    assert found.code == Exit.STORAGE
    assert "was acknowledged" in json.dumps(found.json)
    code, said = refused("--port", "0", "--no-http", cwd=tmp_path)
    assert code == Exit.STORAGE
    for word in ("Traceback", "jackalope check", "--accept-loss"):
        assert (word in said) is (word != "Traceback")
    again = Serving("--accept-loss", cwd=tmp_path)
    there = cli("-b", str(again.address), "status", "kept", "-f", "json")
    assert there.json["id"] == kept
    assert cli("-b", str(again.address), "status", "lost").code == Exit.FAILED
    code, log = again.stop()
    assert code == 0
    lines = [json.loads(line) for line in log.splitlines()]
    (loss,) = (line for line in lines if line["message"] == "loss accepted")
    assert "missing" in loss["loss"]
    once_more = Serving(cwd=tmp_path)
    assert cli("-b", str(once_more.address), "status", "kept").code == 0
    once_more.stop()


def test_what_is_no_data_folder(tmp_path: Path, cli: Cli) -> None:
    ran = cli("check", str(tmp_path))
    assert ran.code == Exit.STORAGE
    assert "not a data folder" in ran.err
