"""The pulse: a process of its own that keeps a worker's session alive.

A task may hold the interpreter of its worker for minutes: then no thread of the worker can send a
heartbeat, though it is as alive as can be. This program sends them on its behalf, over a connection
of its own. It knows nothing of messages: it is given the bytes to send.

It is run as a plain file, imports as little as it can, and lives exactly as long as its parent: it
ends when its standard input does or when it is left to another parent. While the parent is stopped
(as by SIGSTOP) or dead and not yet reaped it sends nothing, because then the worker must lose its
lease.

It takes orders as lines on standard input:

- `places every_s hello beat`, the last two in hexadecimal, replaces what it does. Places are
  `host:port` with commas between: the broker of the session first, then the other members of its
  cluster, which are tried in turn when it does not answer. If one says that another leads, that
  one is asked next. Over TLS there follow `verify` or `trust`, and the file of authorities, if
  there is one, in hexadecimal too.
- `guard limit_s until`: the broker knows the worker by this connection. From now on its answers
  count, and until then its tasks are safe.
- `holds 1` or `holds 0`: the worker holds tasks, or it does not.

Guarding: a worker that the broker has lost sight of may be cut off, stopped or stuck, and its tasks
are given to others when its lease is over. So that they do not run twice, the pulse kills its
parent before that: when no heartbeat that was sent within the last `limit_s` has been answered, and
the worker holds tasks. What counts is when a heartbeat was sent, on a clock that goes on while the
machine sleeps: the broker's lease began later than that, and so it ends later.
"""

import os
import select
import signal
import socket
import sys
import time

_CONNECT_TIMEOUT_S = 5.0
_MEMBER_TIMEOUT_S = 2.0  # of one among several
_RETRY_S = 0.5
_STEP_S = 1.0
_READ_BYTES = 65536

#: A frame is its length, which counts the kind, then its kind and body.
_LENGTH_BYTES = 4
_ACK = 5
_MOVED = 30

#: How often the pulse may be sent elsewhere in a row.
_REDIRECTS_MAX = 5

#: MessagePack: the byte before the length of a text, and the greatest length without one.
_TEXT_8 = 0xD9
_SHORT_TEXT_MAX = 0x1F

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Target:
    """Where to beat, how often, and with which bytes."""

    def __init__(self, line: str) -> None:
        places, every_s, hello, beat, *tls = line.split(" ")
        self._places = [place_of(place) for place in places.split(",")]
        self._next = 0
        self._leader: tuple[str, int] | None = None
        self.redirects = 0  # since the last answer
        self.every_s = float(every_s)
        self.hello = bytes.fromhex(hello)
        self.beat = bytes.fromhex(beat)
        self._tls = tls

    def connect(self) -> socket.socket:
        """Open a connection: to where it was sent, or to the next of its places."""
        place, self._leader = self._leader, None
        if place is None:
            place = self._places[self._next]
            self._next = (self._next + 1) % len(self._places)
        timeout_s = _CONNECT_TIMEOUT_S if len(self._places) == 1 else _MEMBER_TIMEOUT_S
        plain = socket.create_connection(place, timeout_s)
        if not self._tls:
            return plain
        import ssl  # noqa: PLC0415  most pulses do without

        how, ca_file = self._tls
        context = ssl.create_default_context(cafile=bytes.fromhex(ca_file).decode() or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if how != "verify":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context.wrap_socket(plain, server_hostname=place[0])

    def redirect(self, leader: tuple[str, int] | None) -> None:
        """Take the word of a member on which one leads."""
        self.redirects += 1
        if self.redirects <= _REDIRECTS_MAX:
            self._leader = leader
        else:
            self.redirects = 0

    @property
    def retry_s(self) -> float:
        """How long to wait before the next try: not at all until all places were tried."""
        return 0.0 if self._leader or self._next else _RETRY_S


class Pulse:
    """Beats for a parent until that is gone."""

    def __init__(self, orders: int, parent: int) -> None:
        self._orders = orders
        self._parent = parent
        self._unread = b""
        self._heard = b""
        self._target: Target | None = None
        self._socket: socket.socket | None = None
        self._due = 0.0
        self._guard = Guard()

    def run(self) -> None:
        while self._listen() and os.getppid() == self._parent:
            if self._guard.is_over():
                self._kill()
                return
            if self._target is None or now() < self._due:
                continue
            state = parent_state(self._parent)
            if state in "ZX":
                return
            if state in "Tt":
                self._due = now() + min(self._target.every_s, _RETRY_S)
            else:
                self._beat(self._target)

    def _listen(self) -> bool:
        """Wait for orders or until a beat is due; return whether the parent is still there."""
        wait_s = min(_STEP_S, self._guard.left_s())
        if self._target is not None:
            wait_s = min(wait_s, max(0.0, self._due - now()))
        sources: list[int | socket.socket] = [self._orders]
        if self._socket is not None:
            sources.append(self._socket)
        ready, _, _ = select.select(sources, [], [], wait_s)
        if self._guard.is_over():
            return True  # What comes too late does not count.
        if self._socket in ready:
            self._hear()
        return self._orders not in ready or self._obey()

    def _obey(self) -> bool:
        data = os.read(self._orders, _READ_BYTES)
        if not data:
            return False
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            word, _, rest = line.decode().partition(" ")
            if word == "guard":
                self._guard.begin(*map(float, rest.split(" ")))
                self._due = 0.0
            elif word == "holds":
                self._guard.is_holding = rest == "1"
            else:
                self._hang_up()
                self._guard.pause()
                self._target = Target(line.decode())
                self._due = 0.0
        return True

    def _beat(self, target: Target) -> None:
        try:
            if self._socket is None:
                self._socket = target.connect()
                self._socket.sendall(target.hello)
            self._guard.note_sent()
            self._socket.sendall(target.beat)
            self._due = now() + target.every_s
        except OSError:
            self._hang_up()

    def _hear(self) -> None:
        """Read what the broker sends, of which nothing but answers matters here."""
        try:
            data = b"" if self._socket is None else self._socket.recv(_READ_BYTES)
        except OSError:
            data = b""
        if not data:
            self._hang_up()
            return
        self._heard += data
        while len(self._heard) > _LENGTH_BYTES:
            end = _LENGTH_BYTES + int.from_bytes(self._heard[:_LENGTH_BYTES], "big")
            if len(self._heard) < end:
                return
            kind, body = self._heard[_LENGTH_BYTES], self._heard[_LENGTH_BYTES + 1 : end]
            self._heard = self._heard[end:]
            self._take(kind, body)

    def _take(self, kind: int, body: bytes) -> None:
        if kind == _ACK:
            self._guard.note_answered()
            if self._target is not None:
                self._target.redirects = 0
        elif kind == _MOVED and self._target is not None:
            self._target.redirect(leader_in(body))
            self._hang_up()

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._heard = None, b""
        self._guard.forget()
        self._due = now() + (_RETRY_S if self._target is None else self._target.retry_s)

    def _kill(self) -> None:
        sys.stderr.write(
            f"jackalope: no data from the broker for {self._guard.limit_s:g} s: killing process "
            f"{self._parent} before its tasks are assigned to another worker\n"
        )
        sys.stderr.flush()
        os.kill(self._parent, signal.SIGKILL)


class Guard:
    """Knows until when the broker gives the worker's tasks to no other worker."""

    def __init__(self) -> None:
        self.limit_s = 0.0  # for how long after a heartbeat was sent that was answered
        self.is_holding = False  # the worker holds tasks
        self._until: float | None = None
        self._is_counting = False
        self._sent: list[float] = []

    def begin(self, limit_s: float, until: float) -> None:
        """Count answers from now on. Heartbeats sent before prove nothing about the worker."""
        self._until = until if self._until is None else max(self._until, until)
        self.limit_s = limit_s
        self._is_counting = True
        self._sent = [0.0] * len(self._sent)

    def pause(self) -> None:
        """Count nothing until the broker knows the worker by the new connection."""
        self._is_counting = False

    def forget(self) -> None:
        """Take the word that the connection is gone, with all that was not answered."""
        self._sent = []

    def note_sent(self) -> None:
        self._sent.append(now())

    def note_answered(self) -> None:
        """Take an answer of the broker: heartbeats are answered in the order they came."""
        if self._sent:
            sent = self._sent.pop(0)
            if self._is_counting and self._until is not None:
                self._until = max(self._until, sent + self.limit_s)

    def left_s(self) -> float:
        """Return for how long there is nothing to do."""
        if self._until is None or not self.is_holding:
            return _STEP_S
        return max(0.0, self._until - now())

    def is_over(self) -> bool:
        """Return whether the worker holds tasks that may be given to others soon."""
        return self.is_holding and self._until is not None and now() >= self._until


def place_of(text: str) -> tuple[str, int]:
    """Return the host and the port in `host:port`, where a host with colons stands in brackets."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def leader_in(body: bytes) -> tuple[str, int] | None:
    """Return the place in MOVED: the text that is the first of an array of MessagePack."""
    try:
        begin, size = (3, body[2]) if body[1] == _TEXT_8 else (2, body[1] & _SHORT_TEXT_MAX)
        return place_of(body[begin : begin + size].decode())
    except (IndexError, ValueError):
        return None


def now() -> float:
    """Return the time of a monotonic clock that goes on while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


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
