"""The contract of `Blobs`, on every backend, and what is special about files."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jackalope.core.must import BrokenInvariant
from jackalope.core.task import BlobRef
from jackalope.storage import Blobs, Corrupt
from jackalope.storage.blobs import CHUNK_BYTES, FolderBlobs
from jackalope.storage.memory import MemoryBlobs

BODY = bytes(range(256)) * (CHUNK_BYTES // 100)


@pytest.fixture(params=["memory", "folder"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    return MemoryBlobs() if request.param == "memory" else FolderBlobs(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs(tmp_path)


def read(blobs: Blobs, ref: BlobRef, offset: int = 0, length: int | None = None) -> bytes:
    return b"".join(blobs.read(ref, offset, length))


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_blob_comes_back(blobs: Blobs) -> None:
    ref = blobs.write([b"one ", b"", b"two"])
    assert ref.size == 7
    assert read(blobs, ref) == b"one two"


def test_empty_blob(blobs: Blobs) -> None:
    ref = blobs.write([])
    assert (ref.size, read(blobs, ref)) == (0, b"")


def test_same_bytes_are_two_blobs(blobs: Blobs) -> None:
    first, second = blobs.write([b"x"]), blobs.write([b"x"])
    assert first.blob != second.blob
    blobs.delete(first.blob)
    assert read(blobs, second) == b"x"


@pytest.mark.parametrize(
    ("offset", "length"),
    [
        (0, None),
        (1, None),
        (CHUNK_BYTES, None),
        (0, 10),
        (CHUNK_BYTES - 1, 2),
        (0, 10**9),
        (len(BODY), 5),
        (10**9, None),
        (3, 0),
    ],
)
def test_any_part(blobs: Blobs, offset: int, length: int | None) -> None:
    ref = blobs.write([BODY])
    end = None if length is None else offset + length
    assert read(blobs, ref, offset, length) == BODY[offset:end]


def test_negative_part_is_a_bug(blobs: Blobs) -> None:
    ref = blobs.write([BODY])
    for offset, length in ((-1, None), (0, -1)):
        with pytest.raises(BrokenInvariant, match="range"):
            blobs.read(ref, offset, length)


def test_missing_blob_and_wrong_size_are_faults(blobs: Blobs) -> None:
    ref = blobs.write([BODY])
    with pytest.raises(Corrupt, match=ref.blob):
        blobs.read(BlobRef(ref.blob, ref.size + 1))
    blobs.delete(ref.blob)
    with pytest.raises(Corrupt, match="missing"):
        blobs.read(ref)


def test_delete_is_safe_to_repeat(blobs: Blobs) -> None:
    ref = blobs.write([b"x"])
    blobs.delete(ref.blob)
    blobs.delete(ref.blob)


def test_source_that_fails_leaves_nothing(blobs: Blobs) -> None:
    def failing() -> Iterator[bytes]:
        yield b"begun"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        blobs.write(failing())
    assert blobs.sweep(keep=lambda _name: False) == 0


def test_sweep_keeps_what_is_owned(blobs: Blobs) -> None:
    refs = [blobs.write([b"%d" % number]) for number in range(20)]
    kept = {ref.blob for ref in refs[::3]}
    assert blobs.sweep(kept.__contains__) == 20 - len(kept)
    assert [read(blobs, ref) for ref in refs[::3]] == [b"%d" % n for n in range(0, 20, 3)]
    assert blobs.sweep(kept.__contains__) == 0


def test_many_threads_write(blobs: Blobs) -> None:
    bodies = [b"%d" % number * 1_000 for number in range(50)]
    with ThreadPoolExecutor(4) as writers:
        refs = list(writers.map(lambda body: blobs.write([body]), bodies))
    assert [read(blobs, ref) for ref in refs] == bodies
    blobs.close()


# Files.


def test_read_in_chunks(folder: FolderBlobs) -> None:
    sizes = [len(chunk) for chunk in folder.read(folder.write([BODY]))]
    assert len(sizes) > 1
    assert max(sizes) == CHUNK_BYTES


def test_file_holds_the_bytes_and_nothing_else(folder: FolderBlobs, tmp_path: Path) -> None:
    ref = folder.write([BODY])
    (file,) = files_in(tmp_path)
    assert (file.name, file.parent.name) == (ref.blob, ref.blob[:2])
    assert file.read_bytes() == BODY


def test_sweep_removes_what_a_crash_left(folder: FolderBlobs, tmp_path: Path) -> None:
    ref = folder.write([BODY])
    (tmp_path / "unfinished" / "0123").write_bytes(b"half")
    again = FolderBlobs(tmp_path)
    assert again.sweep(keep=lambda _name: True) == 1
    assert read(again, ref) == BODY


def flip(path: Path, position: int) -> None:
    damaged = bytearray(path.read_bytes())
    damaged[position] ^= 0x10
    path.write_bytes(damaged)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: flip(path, 0), "checksum"),
        (lambda path: flip(path, len(BODY) - 1), "checksum"),
        (lambda path: path.write_bytes(BODY[:-1]), "instead of"),
        (lambda path: path.write_bytes(BODY + b"x"), "instead of"),
        (lambda path: path.unlink(), "missing"),
    ],
    ids=["first byte", "last byte", "short", "long", "gone"],
)
def test_damage_is_found(
    folder: FolderBlobs, tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    ref = folder.write([BODY])
    damage(tmp_path / ref.blob[:2] / ref.blob)
    with pytest.raises(Corrupt, match=message) as raised:
        read(folder, ref)
    assert ref.blob in str(raised.value)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../../lock", "/etc/passwd", "ab/cd", "x" * 41, "a\0"]
)
def test_names_lead_nowhere_else(folder: FolderBlobs, name: str) -> None:
    with pytest.raises(Corrupt, match="not the name"):
        folder.read(BlobRef(name, 0))
    with pytest.raises(Corrupt, match="not the name"):
        folder.delete(name)
