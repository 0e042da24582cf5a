"""The pulse: a process of its own that keeps a worker's session alive.

A task may hold the interpreter of its worker for minutes: then no thread of the worker can send a
heartbeat, though it is as alive as can be. This program sends them on its behalf, over a connection
of its own. It knows nothing of messages: it is told which bytes to send.

It is run as a plain file, imports as little as it can, and lives exactly as long as its parent: it
ends when its standard input does or when it is left to another parent. While the parent is stopped
(as by SIGSTOP) or dead and not yet buried it says nothing, because then the worker must lose its
lease.

Each line on standard input replaces what it does: `host port every_s hello beat`, the last two in
hexadecimal. Over TLS there follow `verify` or `trust`, and the file of authorities, if there is
one, in hexadecimal too.
"""

import os
import select
import signal
import socket
import sys
import time

_CONNECT_TIMEOUT_S = 5.0
_RETRY_S = 0.5
_STEP_S = 1.0
_READ_BYTES = 65536


class Target:
    """Where to beat, how often, and with which bytes."""

    def __init__(self, line: str) -> None:
        host, port, every_s, hello, beat, *tls = line.split(" ")
        self.place = (host, int(port))
        self.every_s = float(every_s)
        self.hello = bytes.fromhex(hello)
        self.beat = bytes.fromhex(beat)
        self._tls = tls

    def connect(self) -> socket.socket:
        """Open a connection."""
        plain = socket.create_connection(self.place, _CONNECT_TIMEOUT_S)
        if not self._tls:
            return plain
        import ssl  # noqa: PLC0415  most pulses do without

        how, ca_file = self._tls
        context = ssl.create_default_context(cafile=bytes.fromhex(ca_file).decode() or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if how != "verify":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context.wrap_socket(plain, server_hostname=self.place[0])


class Pulse:
    """Beats for a parent until that is gone."""

    def __init__(self, orders: int, parent: int) -> None:
        self._orders = orders
        self._parent = parent
        self._unread = b""
        self._target: Target | None = None
        self._socket: socket.socket | None = None
        self._due = 0.0

    def run(self) -> None:
        """Beat until the parent is gone."""
        while self._listen() and os.getppid() == self._parent:
            if self._target is None or time.monotonic() < self._due:
                continue
            state = parent_state(self._parent)
            if state in "ZX":
                return
            if state in "Tt":
                self._due = time.monotonic() + min(self._target.every_s, _RETRY_S)
            else:
                self._beat(self._target)

    def _listen(self) -> bool:
        """Wait for orders or until a beat is due; tell whether the parent is still there."""
        wait_s = _STEP_S
        if self._target is not None:
            wait_s = min(wait_s, max(0.0, self._due - time.monotonic()))
        sources: list[int | socket.socket] = [self._orders]
        if self._socket is not None:
            sources.append(self._socket)
        ready, _, _ = select.select(sources, [], [], wait_s)
        if self._socket in ready:
            self._discard()
        return self._orders not in ready or self._obey()

    def _obey(self) -> bool:
        data = os.read(self._orders, _READ_BYTES)
        if not data:
            return False
        *lines, self._unread = (self._unread + data).split(b"\n")
        if lines:
            self._hang_up()
            self._target = Target(lines[-1].decode())
            self._due = 0.0
        return True

    def _beat(self, target: Target) -> None:
        try:
            if self._socket is None:
                self._socket = target.connect()
                self._socket.sendall(target.hello)
            self._socket.sendall(target.beat)
            self._due = time.monotonic() + target.every_s
        except OSError:
            self._hang_up()

    def _discard(self) -> None:
        """Read what the broker says, which is nothing that matters here."""
        try:
            if self._socket is None or self._socket.recv(_READ_BYTES):
                return
        except OSError:
            pass
        self._hang_up()

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._due = time.monotonic() + _RETRY_S


def parent_state(pid: int) -> str:
    """Return the kernel's letter for the state of a process; R where there is no telling."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123  pathlib is a heavy import
            return chr(stat.read().rpartition(b")")[2].split()[0][0])
    except FileNotFoundError:
        return "X" if os.path.isdir("/proc/self") else "R"  # noqa: PTH112  the same
    except OSError:
        return "R"


if __name__ == "__main__":
    # A signal to all processes of a service is for the worker, which may still have to finish.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Pulse(0, int(sys.argv[1])).run()
