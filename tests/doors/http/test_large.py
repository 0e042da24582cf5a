"""A gigabyte up, to a worker, and a gigabyte back, through a broker that holds none of it."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.doors.http.harness import Serving

MEBIBYTE = 1024 * 1024
BLOCKS = 1024
GROWTH_MAX = 64 * MEBIBYTE

_FILLING = bytes(range(256)) * 4096


def block(seed: int, number: int) -> bytes:
    """Return one of the blocks that a body is made of; no two are the same."""
    return b"%08d%08d" % (seed, number) + _FILLING[16:]


class Talk:
    """A connection that sends and reads bodies without ever having one as a whole."""

    def __init__(self, serving: Serving) -> None:
        self._socket = socket.create_connection(("127.0.0.1", serving.http_port), 60)
        self._file = self._socket.makefile("rb", MEBIBYTE)

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def ask(self, method: str, path: str, body: bytes = b"") -> dict[str, Any]:
        self._begin(method, path, len(body), "application/json")
        self._socket.sendall(body)
        return self._json()

    def send(self, path: str, seed: int, blocks: int) -> dict[str, Any]:
        """Send a body of blocks."""
        self._begin("POST", path, blocks * MEBIBYTE, "application/octet-stream")
        for number in range(blocks):
            self._socket.sendall(block(seed, number))
        return self._json()

    def fetch(self, path: str) -> Iterator[bytes]:
        """Read a body in blocks."""
        self._begin("GET", path, 0, "")
        status, length = self._head()
        assert status == 200
        for _ in range(length // MEBIBYTE):
            yield self._file.read(MEBIBYTE)

    def _begin(self, method: str, path: str, length: int, kind: str) -> None:
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n"
        self._socket.sendall(f"{head}Content-Type: {kind}\r\n\r\n".encode())

    def _head(self) -> tuple[int, int]:
        status = int(self._file.readline().split()[1])
        length = 0
        while (line := self._file.readline()) != b"\r\n":
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return status, length

    def _json(self) -> dict[str, Any]:
        status, length = self._head()
        body = self._file.read(length)
        assert status in (200, 201), body
        answer: dict[str, Any] = json.loads(body)
        return answer


def memory_of(process: int, field: str) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise AssertionError(field)


class Memory:
    """How much memory a process needs, from here on."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._before = memory_of(process, "VmRSS")
        Path(f"/proc/{process}/clear_refs").write_text("5")  # From here on the peak counts.

    def growth(self) -> int:
        growth = memory_of(self._process, "VmHWM") - self._before
        print(f"the broker grew by {growth / MEBIBYTE:.1f} MiB at most")
        return growth


def is_body(blocks: Iterator[bytes], seed: int, count: int) -> bool:
    expected = (block(seed, number) for number in range(count))
    return all(each == other for each, other in zip(blocks, expected, strict=True))


def blob_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def pass_through(talk: Talk, blocks: int) -> object:
    """Send a payload, let a worker have it, send its result, fetch that, and return the task."""
    task = talk.send("/api/v1/tasks/raw?name=large&queue=large", 1, blocks)["id"]
    claim = json.dumps({"queues": ["large"], "wait": 10, "lease_seconds": 300}).encode()
    claimed = talk.ask("POST", "/api/v1/workers/lifter/claim", claim)
    (given,) = claimed["tasks"]
    assert (given["task"], given["payload"]) == (task, None)
    assert given["payload_size"] == blocks * MEBIBYTE
    assert is_body(talk.fetch(f"/api/v1/tasks/{task}/payload"), 1, blocks)
    finish = f"/api/v1/attempts/{task}/finish?worker=lifter&fence={given['fence']}"
    talk.send(finish, 2, blocks)
    assert is_body(talk.fetch(f"/api/v1/tasks/{task}/result"), 2, blocks)
    return task


def test_a_gigabyte_each_way(serving: Serving, tmp_path: Path) -> None:
    talk = Talk(serving)
    talk.ask("GET", "/api/v1/stats")
    memory = Memory(serving.process.pid)
    task = pass_through(talk, BLOCKS)
    assert memory.growth() < GROWTH_MAX
    assert blob_bytes(tmp_path / "data" / "blobs") == 2 * BLOCKS * MEBIBYTE
    talk.ask("POST", f"/api/v1/tasks/{task}/purge")
    talk.close()
    serving.stop()
    assert blob_bytes(tmp_path / "data" / "blobs") == 0
