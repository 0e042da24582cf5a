"""A worker of the native protocol in plain blocking sockets: it starts fast and echoes.

What it needs is in docs/reference/protocol.md. It comes back when its connection breaks, answers a
call with its key and the payload, dies of the payload `die`, and leaves when it is told to.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
import time
from typing import Any
from urllib.parse import urlsplit

import msgspec

RESULT, HEARTBEAT, HELLO, JOIN, LEAVE, ASSIGN, START, NOTICE = 3, 4, 8, 9, 10, 11, 12, 21
PATIENCE_S = 60.0

encode, decode = msgspec.msgpack.encode, msgspec.msgpack.decode


class Worker:
    """One worker, over as many connections as it takes."""

    def __init__(self) -> None:
        self.key = os.environ["WORKER_KEY"]
        where = urlsplit(os.environ["JACKALOPE_BROKER"])
        self.place = (where.hostname or "", where.port or 0)
        self.is_leaving = False
        self.socket: socket.socket | None = None
        self.buffer = b""
        self.refs = 0

    def run(self) -> None:
        """Work until told to leave, or until the broker is gone for long."""
        until = time.monotonic() + PATIENCE_S
        while not self.is_leaving and time.monotonic() < until:
            try:
                self.serve()
            except OSError:
                time.sleep(0.05)
            else:
                until = time.monotonic() + PATIENCE_S

    def serve(self) -> None:
        """Serve over one connection."""
        self.buffer = b""
        with socket.create_connection(self.place, timeout=5) as self.socket:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.send(HELLO, [1, os.environ["JACKALOPE_NAMESPACE"], "", os.environ["WORKER_ID"]])
            labels = {"pool": os.environ["WORKER_POOL"], "pid": str(os.getpid())}
            queue = os.environ["WORKER_POOL"]
            # A connection that breaks is acted on at once: no grace.
            rest = [1, labels, [], 30_000_000, 0]
            self.send(JOIN, [1, os.environ["WORKER_ID"], [queue], [self.key], *rest])
            while not self.is_leaving:
                try:
                    kind, body = self.receive()
                except TimeoutError:
                    self.send(HEARTBEAT, [0, {}])
                    continue
                if kind == ASSIGN:
                    for assignment in body[0]:
                        self.work(assignment)
                elif kind == NOTICE and body[0] == "drain":
                    self.is_leaving = True
            self.send(LEAVE, [0])

    def work(self, assignment: list[Any]) -> None:
        """Answer one call."""
        task, fence, payload = assignment[0], assignment[1], assignment[5]
        self.send(START, [0, [[task, fence]]])
        if payload == b"die":
            os.kill(os.getpid(), signal.SIGKILL)
        self.send(RESULT, [0, [[task, fence, self.key.encode() + b"|" + payload]]])

    def send(self, kind: int, body: list[object]) -> None:
        """Send a frame."""
        if self.socket is not None:
            data = encode(body)
            self.socket.sendall(struct.pack(">IB", len(data) + 1, kind) + data)

    def receive(self) -> tuple[int, Any]:
        """Return the next frame."""
        while True:
            if len(self.buffer) >= 5:
                length, kind = struct.unpack_from(">IB", self.buffer)
                if len(self.buffer) >= 4 + length:
                    body = self.buffer[5 : 4 + length]
                    self.buffer = self.buffer[4 + length :]
                    return kind, decode(body)
            data = self.socket.recv(65536) if self.socket is not None else b""
            if not data:
                raise ConnectionError("closed")
            self.buffer += data


def main() -> None:
    """Run a worker; leave on SIGTERM."""
    worker = Worker()

    def leave(*_: object) -> None:
        worker.is_leaving = True
        raise InterruptedError("told to leave")

    signal.signal(signal.SIGTERM, leave)
    try:
        worker.run()
    except InterruptedError:
        sys.exit(0)


if __name__ == "__main__":
    main()
