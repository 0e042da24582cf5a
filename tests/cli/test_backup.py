"""Backups of a broker that is alone: made while it works, restored to what it had acknowledged."""

import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from jackalope import Jackalope
from jackalope.cli.base import Exit
from tests.cli.conftest import JACKALOPE, Cli, Serving, clean_environment

LARGE = b"large " * 60_000


@pytest.fixture(params=["segments", "sqlite"])
def serving(request: pytest.FixtureRequest, tmp_path: Path) -> Serving:
    kind = {"JACKALOPE_DATA__JOURNAL": request.param}
    return Serving("--no-http", cwd=tmp_path, environment=kind)


def submit(serving: Serving, *aliases: str, payload: bytes = b"") -> None:
    app = Jackalope(str(serving.address))
    with app.sync:
        for alias in aliases:
            app.sync(app.submit("q", payload, name="work", alias=alias))


def test_backup_of_a_broker_that_runs(serving: Serving, tmp_path: Path, cli: Cli) -> None:
    submit(serving, "small")
    submit(serving, "large", payload=LARGE)
    made = cli("backup", str(tmp_path / "b.tar"), "--data", serving.folder, "-f", "json")
    assert (made.code, made.json["blobs"]) == (0, 1)
    assert (tmp_path / "b.tar").stat().st_mode & 0o077 == 0
    submit(serving, "later")
    serving.stop()
    assert cli("check", str(tmp_path / "b.tar")).code == 0
    there = tmp_path / "there"
    restored = cli("restore", str(tmp_path / "b.tar"), "--data", str(there), "-f", "json")
    assert (restored.code, restored.json["batch"]) == (0, made.json["batch"])
    assert cli("check", str(there)).code == 0
    again = Serving("--no-http", "--data", str(there), cwd=tmp_path)
    for alias, code in (("small", 0), ("large", 0), ("later", Exit.FAILED)):
        assert cli("-b", str(again.address), "status", alias).code == code
    assert [path.read_bytes() for path in (there / "blobs").glob("??/*")] == [LARGE]
    submit(again, "next")
    assert again.stop()[0] == 0
    assert cli("check", str(there)).code == 0


def test_backup_of_a_broker_that_was_killed(tmp_path: Path, cli: Cli) -> None:
    serving = Serving("--no-http", cwd=tmp_path)
    submit(serving, "one")
    serving.stop(signal.SIGKILL)
    assert cli("backup", str(tmp_path / "b.tar"), "--data", serving.folder).code == 0
    assert cli("restore", str(tmp_path / "b.tar"), "--data", str(tmp_path / "there")).code == 0
    again = Serving("--no-http", "--data", str(tmp_path / "there"), cwd=tmp_path)
    assert cli("-b", str(again.address), "status", "one").code == 0
    again.stop()


LOAD = """
import asyncio, sys
from jackalope import Jackalope

async def main(address):
    async with Jackalope(address) as app:
        number = 0
        while True:
            names = [f"load-{number + each}" for each in range(20)]
            await asyncio.gather(*(app.submit("q", name="work", alias=n) for n in names))
            number += 20
            print(number, flush=True)

asyncio.run(main(sys.argv[1]))
"""


def test_all_that_was_acknowledged_before_is_in_it(
    serving: Serving, tmp_path: Path, cli: Cli
) -> None:
    """Under load, and from the first byte on: what the client had an answer for is restored."""
    with (
        (tmp_path / "acknowledged").open("w+") as said,
        subprocess.Popen(
            [sys.executable, "-c", LOAD, str(serving.address)], stdout=said, env=clean_environment()
        ) as load,
    ):
        try:
            before = []
            for number, wanted in enumerate((100, 1_000, 2_000)):
                before.append(await_count(tmp_path / "acknowledged", wanted))
                made = cli("backup", str(tmp_path / f"{number}.tar"), "--data", serving.folder)
                assert made.code == 0, made.err
            assert load.poll() is None
        finally:
            load.kill()
    serving.stop(signal.SIGKILL)
    for number, count in enumerate(before):
        there = str(tmp_path / f"there-{number}")
        assert cli("restore", str(tmp_path / f"{number}.tar"), "--data", there).code == 0
        assert cli("check", there).code == 0
        again = Serving("--no-http", "--data", there, cwd=tmp_path)
        app = Jackalope(str(again.address))
        with app.sync:
            for alias in {
                f"load-{count - 1}",
                f"load-{count - 20}",
                f"load-{count // 2}",
                "load-0",
            }:
                assert app.sync(app.find(alias=alias)).alias == alias
        again.stop()


def count_of(path: Path) -> int:
    lines = path.read_text().split("\n")[:-1]
    return int(lines[-1]) if lines else 0


def await_count(path: Path, wanted: int) -> int:
    end = time.monotonic() + 60
    while (count := count_of(path)) < wanted:
        assert time.monotonic() < end, "the load does not get on"
        time.sleep(0.01)
    return count


def test_kill_in_the_middle_leaves_nothing_that_can_be_used(tmp_path: Path, cli: Cli) -> None:
    serving = Serving("--no-http", cwd=tmp_path)
    submit(serving, *(f"t{number}" for number in range(20)), payload=LARGE)
    file = tmp_path / "copies" / "b.tar"
    file.parent.mkdir()
    command = [JACKALOPE, "backup", str(file), "--data", serving.folder]
    parts = 0
    for pause_s in (0.0, 0.002, 0.005, 0.01, 0.02, 0.04):
        with subprocess.Popen(command, env=clean_environment(), stderr=subprocess.PIPE) as copying:
            end = time.monotonic() + 60
            while not list(file.parent.iterdir()) and time.monotonic() < end:
                time.sleep(0.001)
            time.sleep(pause_s)
            copying.send_signal(signal.SIGKILL)
        left = list(file.parent.iterdir())
        for path in left:
            if path == file:  # It was faster. Then it is whole.
                assert cli("check", str(path)).code == 0
                path.unlink()
                continue
            parts += 1
            ran = cli("restore", str(path), "--data", str(tmp_path / "there"))
            assert (ran.code, (tmp_path / "there").exists()) == (Exit.STORAGE, False)
    assert parts, "no backup was interrupted"
    assert cli("backup", str(file), "--data", serving.folder).code == 0
    assert list(file.parent.iterdir()) == [file]
    serving.stop()


def test_kill_in_the_middle_of_a_restore_leaves_no_folder(tmp_path: Path, cli: Cli) -> None:
    serving = Serving("--no-http", cwd=tmp_path)
    submit(serving, *(f"t{number}" for number in range(20)), payload=LARGE)
    assert cli("backup", str(tmp_path / "b.tar"), "--data", serving.folder).code == 0
    serving.stop()
    there = tmp_path / "there"
    command = [JACKALOPE, "restore", str(tmp_path / "b.tar"), "--data", str(there)]
    with subprocess.Popen(command, env=clean_environment(), stderr=subprocess.PIPE) as making:
        end = time.monotonic() + 60
        while not there.with_name("there.restoring").exists() and time.monotonic() < end:
            time.sleep(0.0005)
        making.send_signal(signal.SIGKILL)
    if there.exists():  # It was faster. Then it is whole.
        assert cli("check", str(there)).code == 0
    else:
        assert cli("restore", str(tmp_path / "b.tar"), "--data", str(there)).code == 0
    assert not there.with_name("there.restoring").exists()


@pytest.mark.parametrize("where", [0.1, 0.5, 0.9, 0.999])
def test_damaged_backup_is_refused(tmp_path: Path, cli: Cli, where: float) -> None:
    serving = Serving("--no-http", cwd=tmp_path)
    submit(serving, "one", payload=LARGE)
    file = tmp_path / "b.tar"
    assert cli("backup", str(file), "--data", serving.folder).code == 0
    serving.stop()
    raw = bytearray(file.read_bytes())
    with tarfile.open(file) as tar:
        spans = [(each.offset_data, each.offset_data + each.size) for each in tar if each.size]
    at = min((span for span in spans), key=lambda span: abs(span[0] - where * spans[-1][0]))[0]
    raw[at] ^= 0xFF
    file.write_bytes(raw)
    assert cli("check", str(file)).code == Exit.STORAGE
    there = tmp_path / "there"
    ran = cli("restore", str(file), "--data", str(there))
    assert (ran.code, there.exists()) == (Exit.STORAGE, False)
    file.write_bytes(raw[: int(len(raw) * where)])
    assert cli("check", str(file)).code == Exit.STORAGE
    assert cli("restore", str(file), "--data", str(there)).code == Exit.STORAGE
    assert sorted(each.name for each in tmp_path.glob("there*")) == []


def test_what_must_not_be_written_over(tmp_path: Path, cli: Cli) -> None:
    serving = Serving("--no-http", cwd=tmp_path)
    submit(serving, "one")
    file = tmp_path / "b.tar"
    assert cli("backup", str(file), "--data", serving.folder).code == 0
    before = file.read_bytes()
    again = cli("backup", str(file), "--data", serving.folder)
    assert (again.code, "exists already" in again.err) == (Exit.STORAGE, True)
    assert file.read_bytes() == before
    over = cli("restore", str(file), "--data", serving.folder)
    assert (over.code, "exists already" in over.err) == (Exit.STORAGE, True)
    serving.stop()


def test_what_is_no_folder_of_a_broker_that_is_alone(tmp_path: Path, cli: Cli) -> None:
    file = str(tmp_path / "b.tar")
    (tmp_path / "empty").mkdir()
    ran = cli("backup", file, "--data", str(tmp_path / "empty"))
    assert (ran.code, "not a data folder" in ran.err) == (Exit.STORAGE, True)
    (tmp_path / "node" / "shards").mkdir(parents=True)
    ran = cli("backup", file, "--data", str(tmp_path / "node"))
    assert (ran.code, "cluster backup" in ran.err) == (Exit.STORAGE, True)
    assert not list(tmp_path.glob("b.tar*"))


def test_backup_of_one_broker_is_not_that_of_a_cluster(tmp_path: Path, cli: Cli) -> None:
    serving = Serving("--no-http", cwd=tmp_path)
    submit(serving, "one")
    file = str(tmp_path / "b.tar")
    assert cli("backup", file, "--data", serving.folder).code == 0
    serving.stop()
    ran = cli("cluster", "restore", file, "--data", str(tmp_path / "there"))
    assert (ran.code, "jackalope restore" in ran.err) == (Exit.STORAGE, True)
    assert not (tmp_path / "there").exists()


def test_archive_that_leads_elsewhere_is_refused(tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "b.tar"
    with tarfile.open(file, "w") as tar:
        info = tarfile.TarInfo("blobs/../../outside")
        tar.addfile(info)
    ran = cli("restore", str(file), "--data", str(tmp_path / "there"))
    assert (ran.code, "which no backup has" in ran.err) == (Exit.STORAGE, True)
    assert not (tmp_path / "outside").exists()


def test_damaged_blob_is_found(tmp_path: Path, cli: Cli) -> None:
    serving = Serving("--no-http", cwd=tmp_path)
    submit(serving, "one", payload=LARGE)
    assert cli("-b", str(serving.address), "list").code == 0
    serving.stop()
    assert cli("check", serving.folder).code == 0
    (blob,) = (Path(serving.folder) / "blobs").glob("??/*")
    raw = bytearray(blob.read_bytes())
    raw[1000] ^= 1
    blob.chmod(0o600)
    blob.write_bytes(raw)
    found = cli("check", serving.folder, "-f", "json")
    assert (found.code, "checksum" in found.out) == (Exit.STORAGE, True)
    os.truncate(blob, 10)
    assert "has 10 bytes" in cli("check", serving.folder, "-f", "json").out
    blob.unlink()
    assert "is missing" in cli("check", serving.folder, "-f", "json").out
