"""A payload to a worker and a result back, of a size that the broker must not hold in memory."""

import os
from collections.abc import AsyncIterator, Iterator
from hashlib import blake2b
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from tests.doors.http.gridlike.harness import ASKED, READY, GridWorker, Remote, show

MEBIBYTE = 1024 * 1024
SIZE = int(os.environ.get("LARGE_MEBIBYTES", "128")) * MEBIBYTE
GROWTH_MAX = 64 * MEBIBYTE

CHUNK = bytes(range(256)) * 1024


class Pattern:
    """A file of some size, read in whatever portions, and never there as a whole."""

    def __init__(self, size: int) -> None:
        self.left = size
        self.digest = blake2b()

    def read(self, size: int = -1) -> bytes:
        size = min(self.left, len(CHUNK), size if size >= 0 else self.left)
        self.left -= size
        self.digest.update(CHUNK[:size])
        return CHUNK[:size]

    def __iter__(self) -> Iterator[bytes]:
        while chunk := self.read(len(CHUNK)):
            yield chunk

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self:
            yield chunk


def peak_bytes(pid: int) -> int:
    """Return how much memory a process has needed at most."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def form(boundary: str, payload: Pattern) -> Iterator[bytes]:
    part = f"--{boundary}\r\nContent-Disposition: form-data; name="
    yield f'{part}"priority"\r\n\r\nbatch\r\n{part}"key"\r\n\r\nlarge\r\n'.encode()
    yield f'{part}"payload"; filename="p"\r\n\r\n'.encode()
    yield from payload
    yield f"\r\n--{boundary}--\r\n".encode()


@pytest.mark.feature("G37")
def test_a_large_payload_and_result_pass_through(remote: Remote) -> None:
    async def check() -> None:
        pid = remote.serving.process.pid
        await remote.client.get("/api/jobs")
        before = peak_bytes(pid)

        async def body() -> AsyncIterator[bytes]:
            for chunk in form("xyz", payload):
                yield chunk

        payload = Pattern(SIZE)
        created = await remote.client.post(
            "/api/jobs/submit",
            content=body(),
            headers={"Content-Type": "multipart/form-data; boundary=xyz"},
            timeout=300,
        )
        assert created.status_code == 202, created.text
        result = Pattern(SIZE)
        url = f"{remote.socket_url}/api/worker"
        async with connect(url, max_size=None, ping_interval=None) as link:
            machine = GridWorker(link)
            await machine.register()
            assert await machine.hear() == ASKED
            await machine.say(READY)
            received = blake2b()
            async for piece in link.recv_streaming():
                received.update(piece if isinstance(piece, bytes) else piece.encode())
            assert received.digest() == payload.digest.digest()
            await link.send(aiter(result))
            assert await machine.hear() == ASKED
        assert (await show(remote, "large"))["status"] == 2
        stored = blake2b()
        async with remote.client.stream("GET", "/api/jobs/large/result", timeout=300) as answer:
            async for piece in answer.aiter_bytes():
                stored.update(piece)
        assert stored.digest() == result.digest.digest()
        assert peak_bytes(pid) - before < GROWTH_MAX

    remote.run(check())
