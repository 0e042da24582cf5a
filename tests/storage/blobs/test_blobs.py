"""The contract of `Blobs`, on every backend, and what is special about files."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from jackalope.core.assertions import BrokenInvariant
from jackalope.core.task import BlobRef
from jackalope.storage import Blobs, Corrupt
from jackalope.storage.blobs.folder import CHUNK_BYTES, FolderBlobs
from jackalope.storage.blobs.jetstream import JetStreamBlobs
from jackalope.storage.blobs.s3 import S3Blobs
from jackalope.storage.memory import MemoryBlobs
from tests.storage.blobs.s3_server import S3Server

BODY = bytes(range(256)) * (CHUNK_BYTES // 100)

_numbers = count(1)

#: More than two parts of an upload to S3.
LARGE = bytes(11 * 1024 * 1024)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture(params=["memory", "folder", "s3", "jetstream"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Blobs]:
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("server")
        yield S3Blobs(server.place(), "tests")
    elif request.param == "jetstream":
        engine = request.getfixturevalue("servers").engine(f"b{next(_numbers)}")
        yield JetStreamBlobs(engine, "a")
        engine.close()
    else:
        yield MemoryBlobs() if request.param == "memory" else FolderBlobs(tmp_path)


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
    assert (list(blobs.names()), blobs.clear()) == ([], 0)


def test_names_of_all_blobs(blobs: Blobs) -> None:
    assert list(blobs.names()) == []
    refs = [blobs.write([b"%d" % number]) for number in range(120)]
    assert sorted(blobs.names()) == sorted(ref.blob for ref in refs)
    for ref in refs[::2]:
        blobs.delete(ref.blob)
    assert sorted(blobs.names()) == sorted(ref.blob for ref in refs[1::2])


def test_names_while_blobs_come_and_go(blobs: Blobs) -> None:
    refs = [blobs.write([b"%d" % number]) for number in range(3)]
    names = blobs.names()
    next(names)
    for ref in refs:
        blobs.delete(ref.blob)
    blobs.write([b"new"])
    assert len(list(names)) <= 3


# Drafts.


def test_draft_becomes_a_blob_when_it_is_finished(blobs: Blobs) -> None:
    draft = blobs.begin()
    draft.add(b"one ")
    draft.add(b"two")
    assert list(blobs.names()) == []
    ref = draft.finish()
    assert ref.blob.startswith(draft.id)
    assert len(draft.id) == 32
    assert (read(blobs, ref), list(blobs.names())) == (b"one two", [ref.blob])


def test_aborted_draft_leaves_nothing(blobs: Blobs) -> None:
    draft = blobs.begin()
    draft.add(BODY)
    draft.abort()
    draft.abort()
    assert (list(blobs.names()), blobs.clear()) == ([], 0)


def test_abort_after_the_end_does_nothing(blobs: Blobs) -> None:
    draft = blobs.begin()
    draft.add(BODY)
    ref = draft.finish()
    draft.abort()
    assert read(blobs, ref) == BODY


def test_ended_draft_takes_no_more(blobs: Blobs) -> None:
    aborted, finished = blobs.begin(), blobs.begin()
    aborted.abort()
    finished.finish()
    for draft in (aborted, finished):
        with pytest.raises(BrokenInvariant, match=draft.id):
            draft.add(b"more")
        with pytest.raises(BrokenInvariant, match=draft.id):
            draft.finish()


def test_clearing_leaves_drafts_alone(blobs: Blobs) -> None:
    draft = blobs.begin()
    draft.add(LARGE)
    assert blobs.clear() == 0
    draft.add(b"end")
    assert read(blobs, draft.finish()) == LARGE + b"end"


def test_digest_tells_content(blobs: Blobs) -> None:
    one, other, third = (blobs.write([body]) for body in (b"xy", b"xz", b"xy"))
    assert one.digest == third.digest != other.digest


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


def test_clearing_removes_what_a_crash_left(folder: FolderBlobs, tmp_path: Path) -> None:
    ref = folder.write([BODY])
    (tmp_path / "unfinished" / "0123").write_bytes(b"half")
    again = FolderBlobs(tmp_path)
    assert again.clear() == 1
    assert read(again, ref) == BODY
    assert files_in(tmp_path / "unfinished") == []


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


NAMES = [f"{'0af1' * 8}", f"{'0af1' * 8}-1234abcd", f"{'0af1' * 8}-node-b.2"]


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_keeps_its_name(blobs: Blobs, name: str) -> None:
    if isinstance(blobs, MemoryBlobs):
        pytest.skip("what is in memory is copied from nowhere")
    draft = blobs.begin_copy(name)
    for begin in range(0, len(BODY), 1_000):
        draft.add(BODY[begin : begin + 1_000])
    ref = draft.finish()
    assert (ref.blob, ref.size, read(blobs, ref)) == (name, len(BODY), BODY)
    assert blobs.ref(name).size == len(BODY)
    blobs.adopt(name, [b"it is here"])
    assert list(blobs.names()) == [name]
    assert read(blobs, ref) == BODY
    blobs.delete(name)
    with pytest.raises(Corrupt):
        blobs.ref(name)


def test_a_damaged_copy_is_found(folder: FolderBlobs, tmp_path: Path) -> None:
    draft = folder.begin_copy(NAMES[2])
    draft.add(BODY)
    ref = draft.finish()
    flip(tmp_path / ref.blob[:2] / ref.blob, 5)
    with pytest.raises(Corrupt, match="checksum"):
        read(folder, ref)


@pytest.mark.parametrize("name", ["../../etc/passwd", "a", "0af1" * 8 + "-../x"])
def test_a_name_does_not_lead_elsewhere(folder: FolderBlobs, name: str) -> None:
    with pytest.raises(Corrupt, match="not the name"):
        folder.begin_copy(name)
