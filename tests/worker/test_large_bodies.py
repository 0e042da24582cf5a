"""Payloads and results that fit into no frame: through client, broker and worker, in parts."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from hashlib import blake2b
from pathlib import Path

import pytest

from jackalope import ConfigError, Jackalope, Rejected, Stream, TaskFailed
from jackalope.worker.attempt import SPOOL_PREFIX
from tests.worker.harness import House, in_house

MIB = 1024 * 1024
LARGE = 20 * MIB
WAIT_S = 60


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Jackalope]:
    app = Jackalope.embedded(tmp_path / "data")
    yield app
    app.sync.close()
    app.stop()


def some_bytes(size: int) -> bytes:
    return (b"0123456789abcde" * (size // 15 + 1))[:size]


def blobs_in(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "data" / "blobs").rglob("*") if path.is_file()]


def test_large_arguments_and_results_just_work(app: Jackalope) -> None:
    @app.task
    async def turn(data: bytes, add: int) -> bytes:
        return data[::-1] + bytes(add)

    app.work(2)
    data = some_bytes(LARGE)
    handle = app.sync(turn.submit(data, 5))
    assert app.sync(handle.result(timeout=WAIT_S)) == data[::-1] + bytes(5)
    assert app.sync(turn.run(data, 1)) == data[::-1] + bytes(1)
    assert app.sync(turn.request(data, 2)).value == data[::-1] + bytes(2)
    first, small = app.sync(turn.submit_many([(data, 3), (b"small", 0)]))
    assert app.sync(first.result(timeout=WAIT_S)) == data[::-1] + bytes(3)
    assert app.sync(small.result(timeout=WAIT_S)) == b"llams"


def test_file_to_file(app: Jackalope, tmp_path: Path) -> None:
    """Nothing of it is decoded; the function reads and writes files."""
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(some_bytes(LARGE))

    @app.task(content="bytes")
    def copy(film: Stream) -> Path:
        assert film.size == LARGE
        result = tmp_path / "made"
        film.save(result)
        return result

    app.work(1)
    film = app.sync(app.upload(source))
    assert film.size == LARGE
    handle = app.sync(copy.submit(film))
    assert app.sync(handle.download(target, timeout=WAIT_S)) == LARGE
    assert target.read_bytes() == source.read_bytes()
    assert (tmp_path / "made").exists()
    assert app.sync(app.sync(copy.submit(Stream(source))).download(target, WAIT_S)) == LARGE


def test_iterators_both_ways(app: Jackalope) -> None:
    @app.task(content="bytes")
    def count(chunks: Stream) -> Iterator[bytes]:
        total = sum(len(chunk) for chunk in chunks)
        return (b"%d " % total for _ in range(3))

    async def ask() -> list[bytes]:
        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(10):
                yield bytes(MIB)

        handle = await count.submit(await app.upload(chunks()))
        return [part async for part in handle.parts(WAIT_S)]

    app.work(1)
    assert b"".join(app.sync(ask())) == b"10485760 " * 3
    plain = app.sync(app.upload(iter([b"a", b"bc"])))
    result: object = app.sync(app.sync(count.submit(plain)).result(WAIT_S))
    assert result == b"3 3 3 "


def test_a_coroutine_returns_an_async_iterator(
    app: Jackalope, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    @app.task(content="bytes")
    async def twice(chunks: Stream) -> AsyncIterator[bytes]:
        async def made() -> AsyncIterator[bytes]:
            for chunk in chunks:
                await asyncio.sleep(0)
                yield chunk * 2

        return made()

    @app.task(content="bytes")
    async def torn(_: Stream) -> AsyncIterator[bytes]:
        async def made() -> AsyncIterator[bytes]:
            yield b"part"
            raise ValueError("torn")

        return made()

    app.work(1)
    handle = app.sync(twice.submit(Stream(bytes(LARGE))))
    assert sum(len(part) for part in app.sync.iterate(handle.parts(WAIT_S))) == 2 * LARGE
    with pytest.raises(TaskFailed, match="torn"):
        app.sync(torn.run(Stream(b"x")))
    assert not list(tmp_path.glob(f"{SPOOL_PREFIX}*"))


def test_small_payload_for_a_function_that_wants_a_stream(app: Jackalope) -> None:
    @app.task(content="bytes")
    def size(data: Stream) -> bytes:
        return str(len(data.read())).encode()

    app.work(1)
    assert app.sync(size.run(Stream(b"small"))) == b"5"
    assert app.sync(app.sync(app.submit("default", b"four", name=size.name)).result(WAIT_S)) == b"4"


def test_upload_is_the_payload_of_one_task(app: Jackalope) -> None:
    @app.task(content="bytes")
    def size(data: Stream) -> bytes:
        return str(data.size).encode()

    @app.task
    def plain(data: bytes) -> None: ...

    app.work(1)
    again, once = app.sync(app.upload(b"again")), app.sync(app.upload(iter([b"once"])))
    for _ in range(2):
        assert app.sync(size.run(again)) == b"5"  # Its bytes can be read again.
    assert app.sync(size.run(once)) == b"4"
    with pytest.raises(Rejected, match="upload it again"):
        app.sync(size.run(once))
    with pytest.raises(ConfigError, match="content='bytes'"):
        app.sync(plain.submit(again))  # type: ignore[arg-type]


def test_upload_that_no_task_names_leaves_nothing(app: Jackalope, tmp_path: Path) -> None:
    async def ask() -> None:
        await app.upload(some_bytes(LARGE))
        assert blobs_in(tmp_path)

        async def torn() -> AsyncIterator[bytes]:
            yield bytes(MIB)
            raise RuntimeError("torn")

        with pytest.raises(RuntimeError, match="torn"):
            await app.upload(torn())
        await app.close()
        async with asyncio.timeout(WAIT_S):
            while blobs_in(tmp_path):  # noqa: ASYNC110  files of the broker
                await asyncio.sleep(0.01)

    app.sync(ask())


@pytest.mark.parametrize("source", [5, None, object(), [1], iter(["text"]), "/no/such/file"])
def test_what_stands_for_no_bytes(app: Jackalope, source: object) -> None:
    with pytest.raises(ConfigError):
        app.sync(app.upload(source))  # type: ignore[arg-type]
    assert app.sync(app.submit("q")).id


def test_failure_has_no_parts(app: Jackalope, tmp_path: Path) -> None:
    @app.task(content="bytes")
    def fail(_: Stream) -> Path:
        return Path("/no/such/file")

    app.work(1)
    handle = app.sync(fail.submit(Stream(b"x")))
    with pytest.raises(TaskFailed):
        app.sync(handle.download(tmp_path / "out", timeout=WAIT_S))


def test_kill_while_the_payload_is_fetched_or_the_task_runs(app: Jackalope) -> None:
    began = threading.Event()

    @app.task(content="bytes")
    async def wait(_: Stream) -> bytes:
        began.set()
        await asyncio.sleep(3600)
        return b""

    app.work(1)
    handle = app.sync(wait.submit(app.sync(app.upload(some_bytes(LARGE)))))
    assert began.wait(WAIT_S)
    app.sync(handle.kill())
    assert app.sync(handle.wait(WAIT_S)) == "killed"


def test_lost_connection_amid_a_large_submit(app: Jackalope) -> None:
    @app.task(content="bytes")
    def digest(data: Stream) -> bytes:
        return blake2b(data.read()).digest()

    data = some_bytes(LARGE)

    async def ask() -> bytes:
        film = await app.upload(data)
        connection = await app.session().connected()
        connection._give_up(connection._loss())  # The upload ends with it.
        handle = await digest.submit(film)
        assert isinstance(await handle.result(WAIT_S), bytes)
        return await handle.result(WAIT_S)

    app.work(1)
    assert app.sync(ask()) == blake2b(data).digest()


# Real processes: how much memory each takes.


def memory_of(pid: int | str, what: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith(f"{what}:")]
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize("name", ["copy_in_thread", "copy_in_process", "copy_async_in_process"])
def test_memory_stays_bounded_however_large_a_body_is(tmp_path: Path, name: str) -> None:
    size, bound = 80 * MIB, 32 * MIB

    async def ask(house: House, worker: subprocess.Popen[bytes]) -> None:
        sent, received, own = blake2b(), blake2b(), memory_of("self", "VmRSS")

        async def chunks() -> AsyncIterator[bytes]:
            for number in range(size // MIB):
                chunk = bytes([number % 256]) * MIB
                sent.update(chunk)
                yield chunk
                assert memory_of("self", "VmRSS") - own < bound

        async with Jackalope(f"jackalope://127.0.0.1:{house.door.port}") as app:
            # Everything that comes with the first task is loaded, here and there.
            await (await app.submit("default", bytes(LARGE), name=name)).wait(WAIT_S)
            before = memory_of(worker.pid, "VmRSS")
            own = memory_of("self", "VmRSS")
            handle = await app.submit("default", await app.upload(chunks()), name=name)
            async for part in handle.parts(WAIT_S):
                received.update(part)
                assert memory_of("self", "VmRSS") - own < bound
            assert sent.digest() == received.digest()
            assert memory_of(worker.pid, "VmRSS") - before < bound

    async def story(house: House) -> None:
        worker = house.worker()
        await house.joined()
        await ask(house, worker)

    in_house(story, tmp_path)
