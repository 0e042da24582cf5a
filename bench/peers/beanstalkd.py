"""beanstalkd with `-f0`: every job is synced before its put is answered.

Its protocol is lines of text, spoken here over a plain socket: no client library can be in its way.
It has no bulk call, so that many puts are sent before their answers are read. The worker deletes
each job when it is done; as no result is kept, one that asks for it is answered by a job in another
tube, and the end of many tasks is the answer to one more behind them.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from typing import Any, BinaryIO

from bench.peers.base import PAYLOAD, Peer
from bench.peers.servers import start_beanstalkd

_JOBS, _ANSWERS = "bench", "answers"
_ASKS, _ASKS_NOT = b"?", b"."


class _Line:
    """A connection: lines out, lines in."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader: BinaryIO = self._socket.makefile("rb")

    def ask(self, line: str) -> list[bytes]:
        self._socket.sendall(f"{line}\r\n".encode())
        return self._reader.readline().split()

    def put(self, bodies: Sequence[bytes]) -> None:
        """Put jobs, and return when all of them are safe."""
        self._socket.sendall(b"".join(b"put 0 0 60 %d\r\n%s\r\n" % (len(b), b) for b in bodies))
        for _ in bodies:
            answer = self._reader.readline()
            if not answer.startswith(b"INSERTED"):
                raise RuntimeError(f"beanstalkd answered {answer!r}")

    def reserve(self) -> tuple[str, bytes]:
        """Wait for a job, and return its number and its body."""
        _, number, size = self.ask("reserve")
        return number.decode(), self.body(int(size))

    def body(self, size: int) -> bytes:
        """Read the body that follows a line."""
        return self._reader.read(size + 2)[:-2]

    def close(self) -> None:
        self._socket.close()


class Beanstalkd(Peer):
    """beanstalkd by its own protocol."""

    durability = "tasks: fsync (-f0); no results"
    notes = ("no bulk call: many puts are sent before their answers are read",)

    async def open(self) -> None:
        """Start the server and connect."""
        server, self._port = start_beanstalkd(self.place)
        self.servers.append(server)
        self._line = _Line(self._port)
        self._line.ask(f"use {_JOBS}")
        self._line.ask(f"watch {_ANSWERS}")

    def worker_command(self) -> Sequence[str]:
        """Return this module."""
        return [sys.executable, "-m", "bench.peers.beanstalkd", str(self._port)]

    async def submit_one(self) -> Any:
        """Put a job."""
        self._line.put([_ASKS_NOT + PAYLOAD])

    async def submit_bulk(self, count: int) -> list[Any]:
        """Put jobs, and read the answers."""
        self._line.put([_ASKS_NOT + PAYLOAD] * count)
        return [None] * count

    async def wait(self, _handles: Sequence[Any]) -> None:
        """Wait for the answer to one more job, which the one worker reserves last."""
        await self.round_trip()

    async def round_trip(self) -> Any:
        """Put a job that asks, and wait for the answer."""
        self._line.put([_ASKS + PAYLOAD])
        number, body = self._line.reserve()
        self._line.ask(f"delete {number}")
        return body

    async def reset(self) -> None:
        """Take every job away."""
        self._line.ask(f"watch {_JOBS}")
        while (found := self._line.ask("reserve-with-timeout 0"))[0] == b"RESERVED":
            self._line.body(int(found[2]))
            self._line.ask(f"delete {found[1].decode()}")
        self._line.ask(f"ignore {_JOBS}")

    async def close(self) -> None:
        """Disconnect."""
        if self.servers:
            self._line.close()


def _work(port: int) -> None:
    line = _Line(port)
    line.ask(f"watch {_JOBS}")
    line.ask(f"use {_ANSWERS}")
    while True:
        number, body = line.reserve()
        if body.startswith(_ASKS):
            line.put([body[1:]])
        line.ask(f"delete {number}")


if __name__ == "__main__":
    _work(int(sys.argv[1]))
