"""The disk: folders that last, and that others cannot read."""

import stat
from pathlib import Path
from shutil import disk_usage

from jackalope.storage.disk import free_bytes, keep_private, make_file, make_folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_folder_is_made_with_those_above_it(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert mode(tmp_path / "a" / "b") == mode(tmp_path / "a") == 0o700


def test_a_folder_and_its_files_become_private(tmp_path: Path) -> None:
    open_to_all = tmp_path / "data"
    open_to_all.mkdir()
    make_file(open_to_all / "new")
    (open_to_all / "old").write_text("x")
    (open_to_all / "old").chmod(0o664)
    open_to_all.chmod(0o755)
    keep_private(open_to_all)
    assert mode(open_to_all) == 0o700
    assert {path.name: mode(path) for path in open_to_all.iterdir()} == {"new": 0o600, "old": 0o600}


def test_how_much_is_free(tmp_path: Path) -> None:
    assert 0 < free_bytes(tmp_path) <= disk_usage(tmp_path).total
