"""Peers over HTTP that do not read: they count in the one sum over all doors."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from jackalope.broker.backlog import COUNTED_BYTES_MIN
from jackalope.doors.http.listener import Counted, PatientProtocol, PieceProtocol
from tests.acceptance.harness import _answers, wait_until
from tests.cli.conftest import Serving
from tests.doors.harness import run
from tests.doors.http.harness import HttpHouse, open_http
from tests.doors.http.rest.test_worker_api import until
from tests.ports import free_port

MIB = 1024 * 1024
EVENTS = "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n"
UPGRADE = (
    "Upgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
REQUESTS = {"events": EVENTS, "websocket": EVENTS + UPGRADE}
LIST = "GET /api/v1/tasks?limit=1000 HTTP/1.1\r\nHost: localhost\r\n"


@contextmanager
def deaf(port: int, request: str) -> Iterator[socket.socket]:
    """A peer that asks and does not read, with a small buffer in between."""
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(("127.0.0.1", port))
        peer.sendall(f"{request}\r\n".encode())
        yield peer


def connection_of(house: HttpHouse, peer: socket.socket) -> Counted | None:
    """Find the broker's end of a peer's connection."""
    server = house.door._listener._server
    assert server is not None
    for each in server.server_state.connections:
        if isinstance(each, Counted) and each.transport.get_extra_info("peername") == (
            peer.getsockname()
        ):
            return each
    return None


def large_task() -> dict[str, Any]:
    return {"name": "large", "headers": {"filler": "x" * 15_000}}


@pytest.mark.parametrize("kind", ["list", "events", "websocket"])
def test_each_kind_of_deaf_peer_is_counted_and_cut_off(kind: str) -> None:
    async def test() -> None:
        async with open_http() as house:
            backlog, client = house.broker.backlog, house.client

            async def submit(count: int) -> None:
                for _ in range(count):
                    made = await client.post("/api/v1/tasks", json=large_task())
                    assert made.status_code == 201

            await submit(20 if kind == "list" else 1)
            with deaf(house.door.port, REQUESTS.get(kind, LIST)) as peer:
                await until(lambda: connection_of(house, peer))
                connection = connection_of(house, peer)
                expected = PieceProtocol if kind == "websocket" else PatientProtocol
                assert isinstance(connection, Counted)
                connection.transport.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_SNDBUF, 4096
                )
                while connection not in backlog._sizes:
                    await submit(20)  # Each is an event.
                    if kind == "list":
                        peer.sendall(f"{LIST}\r\n".encode())
                    found = connection_of(house, peer)
                    assert isinstance(found, expected)
                    connection = found
                assert backlog.unread_bytes >= COUNTED_BYTES_MIN
                backlog._max = COUNTED_BYTES_MIN
                backlog.note(connection, connection.unread_bytes())
                await until(lambda: connection_of(house, peer) is None)
                assert backlog.unread_bytes == 0

    run(test())


def test_who_reads_again_is_counted_no_more() -> None:
    async def test() -> None:
        async with open_http() as house:
            for _ in range(400):
                await house.client.post("/api/v1/tasks", json=large_task())
            with deaf(house.door.port, LIST) as peer:
                await until(lambda: house.broker.backlog.unread_bytes)
                peer.setblocking(False)
                loop = asyncio.get_running_loop()
                while house.broker.backlog.unread_bytes:
                    assert await loop.sock_recv(peer, MIB)

    run(test())


def test_memory_stays_bounded_however_many_do_not_read(tmp_path: Path) -> None:
    """Sixty peers leave six megabytes each; all of it would be 360."""
    bound = 8 * MIB
    (tmp_path / "jackalope.yaml").write_text(f"limits: {{unread_bytes: {bound}}}\n")
    port = free_port()
    where = ("--config", "jackalope.yaml", "--data", "data", "--http-port", str(port))
    serving = Serving(*where, cwd=tmp_path)
    try:
        wait_until(lambda: _answers(port), "the HTTP door answers")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=60) as client:
            for _ in range(400):
                assert client.post("/tasks", json=large_task()).status_code == 201
            for _ in range(3):
                client.get("/tasks?limit=1000")
            before = memory_of(serving.process.pid)
            with ExitStack() as peers:
                for _ in range(60):
                    peers.enter_context(deaf(port, LIST))
                    assert client.get("/stats").status_code == 200
                most = memory_of(serving.process.pid)
            assert most - before < bound + 96 * MIB
    finally:
        _, log = serving.stop()
    assert "slow reader disconnected" in log


def memory_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024
