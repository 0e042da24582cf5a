"""The process that beats for a worker."""

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import jackalope.worker.pulse as pulse_module
from jackalope.core.commands import Heartbeat
from jackalope.core.effects import Accepted
from jackalope.wire.messages import Ack, AnyMessage, Moved, broker_codec
from jackalope.worker.pulse import now, parent_state
from tests.worker.executors.stage import WAIT_S, until

PULSE = str(Path(pulse_module.__file__))
EVERY_S = 0.05
HELLO, BEAT = b"hello", b"beat"

#: How long a guarded parent lives after its last answer: soon over, or longer than a slow machine
#: takes for an answer.
SHORT_S, LONG_S = 0.5, 6.0

codec = broker_codec()

#: A stand-in for a worker: starts a pulse, prints its pid, and passes on what it is told.
PARENT = """
import os, subprocess, sys
pulse = subprocess.Popen(
    [sys.executable, "-I", "-S", sys.argv[1], str(os.getpid())],
    stdin=subprocess.PIPE, start_new_session=True,
)
print(pulse.pid, flush=True)
for line in sys.stdin.buffer:
    pulse.stdin.write(line)
    pulse.stdin.flush()
    print("told", flush=True)
"""

#: Another that leaves its pulse behind, with an input that stays open.
LEAVING_PARENT = """
import os, subprocess, sys
command = [sys.executable, "-I", "-S", sys.argv[1], str(os.getpid())]
print(subprocess.Popen(command, stdin=int(sys.argv[2])).pid)
"""


class Broker:
    """Something that listens, and counts what it hears."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(WAIT_S)
        self._peer: socket.socket | None = None

        self.place = "{}:{}".format(*self._server.getsockname())

    def orders(self, hello: bytes = HELLO, *others: str) -> bytes:
        places = ",".join((self.place, *others))
        return f"{places} {EVERY_S} {hello.hex()} {BEAT.hex()}\n".encode()

    def accept(self) -> None:
        if self._peer is not None:
            self._peer.close()
        self._peer, _ = self._server.accept()
        self._peer.settimeout(WAIT_S)

    def hear(self, size: int) -> bytes:
        assert self._peer is not None
        data = b""
        while len(data) < size:
            part = self._peer.recv(size - len(data))
            if not part:
                break
            data += part
        return data

    def hears_something_within(self, seconds: float) -> bool:
        assert self._peer is not None
        return bool(select.select([self._peer], [], [], seconds)[0])

    def empty(self) -> None:
        while self.hears_something_within(0):
            assert self._peer is not None
            self._peer.recv(65536)

    def answer(self) -> None:
        """Hear a beat, and answer it; something else comes first."""
        assert self._peer is not None
        self.hear(len(BEAT))
        self._peer.sendall(codec.encode(Heartbeat()) + codec.encode(Ack(1, Accepted())))

    def send(self, message: AnyMessage) -> None:
        assert self._peer is not None
        self._peer.sendall(codec.encode(message))

    def hang_up(self) -> None:
        assert self._peer is not None
        self._peer.close()

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()
        self._server.close()


class Parent:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PARENT, PULSE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        self.pulse = int(self.process.stdout.readline())

    def tell(self, lines: bytes) -> None:
        """Have lines passed on, and return when they were."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(lines)
        self.process.stdin.flush()
        for _ in lines.splitlines():
            self.process.stdout.readline()

    def close(self) -> None:
        self.process.kill()
        with self.process:
            pass


def is_there(pid: int) -> bool:
    return parent_state(pid) not in "ZX"


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker()
    yield broker
    broker.close()


@pytest.fixture
def parent() -> Iterator[Parent]:
    parent = Parent()
    yield parent
    parent.close()
    until(lambda: not is_there(parent.pulse))


def test_beats(broker: Broker, parent: Parent) -> None:
    parent.tell(broker.orders())
    broker.accept()
    assert broker.hear(len(HELLO + BEAT * 3)) == HELLO + BEAT * 3


def test_is_silent_while_the_parent_is_stopped(broker: Broker, parent: Parent) -> None:
    parent.tell(broker.orders())
    broker.accept()
    broker.hear(len(HELLO + BEAT))
    parent.process.send_signal(signal.SIGSTOP)
    until(lambda: parent_state(parent.process.pid) == "T")
    # One beat may have been on its way when the parent stopped.
    broker.hears_something_within(EVERY_S)
    broker.empty()
    assert not broker.hears_something_within(EVERY_S * 10)
    parent.process.send_signal(signal.SIGCONT)
    assert broker.hear(len(BEAT)) == BEAT


def test_ends_with_the_parent(broker: Broker, parent: Parent) -> None:
    parent.tell(broker.orders())
    broker.accept()
    broker.hear(len(HELLO))
    parent.process.kill()
    until(lambda: not is_there(parent.pulse))


def test_ends_when_it_is_left_to_another_parent() -> None:
    """Its standard input may be held open by something that the worker has forked."""
    read, write = os.pipe()
    starter = subprocess.run(
        [sys.executable, "-c", LEAVING_PARENT, PULSE, str(read)],
        pass_fds=[read],
        stdout=subprocess.PIPE,
        check=True,
    )
    until(lambda: not is_there(int(starter.stdout)))
    os.close(read)
    os.close(write)


def test_new_orders_replace_the_old(broker: Broker, parent: Parent) -> None:
    parent.tell(broker.orders(b"first"))
    broker.accept()
    assert broker.hear(5) == b"first"
    parent.tell(broker.orders(b"again"))
    broker.accept()
    assert broker.hear(5) == b"again"


def test_connects_again(broker: Broker, parent: Parent) -> None:
    parent.tell(broker.orders())
    broker.accept()
    broker.hear(len(HELLO))
    broker.hang_up()
    broker.accept()
    assert broker.hear(len(HELLO + BEAT)) == HELLO + BEAT


def test_goes_to_the_next_place_when_the_first_is_gone(broker: Broker, parent: Parent) -> None:
    first = Broker()
    parent.tell(first.orders(HELLO, "[::1]:1", broker.place))
    first.accept()
    assert first.hear(len(HELLO + BEAT)) == HELLO + BEAT
    first.close()
    broker.accept()
    assert broker.hear(len(HELLO + BEAT)) == HELLO + BEAT
    broker.hang_up()  # It goes round, and comes back.
    broker.accept()
    assert broker.hear(len(HELLO + BEAT)) == HELLO + BEAT


def test_goes_where_it_is_sent(broker: Broker, parent: Parent) -> None:
    member = Broker()
    parent.tell(member.orders())
    member.accept()
    member.send(Moved(broker.place, 1))
    broker.accept()
    assert broker.hear(len(HELLO + BEAT)) == HELLO + BEAT
    broker.answer()
    broker.hang_up()
    member.accept()  # What it was told first is still where it begins.
    member.send(Moved("x" * 40, 1))  # No place: as if it had hung up.
    member.accept()
    assert member.hear(len(HELLO + BEAT)) == HELLO + BEAT
    member.close()


def test_does_not_go_round_without_end(broker: Broker, parent: Parent) -> None:
    parent.tell(broker.orders())
    begun = now()
    for _ in range(12):
        broker.accept()
        broker.send(Moved(broker.place, 1))
    broker.accept()
    assert now() - begun > 2 * pulse_module._RETRY_S


def test_heeds_no_signal_that_is_meant_for_the_worker(broker: Broker, parent: Parent) -> None:
    parent.tell(broker.orders())
    broker.accept()
    broker.hear(len(HELLO))
    os.kill(parent.pulse, signal.SIGTERM)
    os.kill(parent.pulse, signal.SIGINT)
    assert broker.hear(len(BEAT * 3)) == BEAT * 3


def guard(limit_s: float, *, is_holding: bool = True) -> bytes:
    return f"guard {limit_s} {now() + limit_s}\nholds {int(is_holding)}\n".encode()


def is_killed(parent: Parent) -> bool:
    return parent.process.wait(WAIT_S) == -signal.SIGKILL


def test_who_is_guarded_lives_as_long_as_answers_come(broker: Broker, parent: Parent) -> None:
    begin = now()
    parent.tell(broker.orders() + guard(LONG_S))
    broker.accept()
    broker.hear(len(HELLO))
    while now() - begin < LONG_S * 1.1:
        broker.answer()
    assert parent.process.poll() is None


@pytest.mark.feature("T31")
def test_who_is_guarded_is_killed_when_no_answers_come(broker: Broker, parent: Parent) -> None:
    begin = now()
    parent.tell(broker.orders() + guard(SHORT_S))
    broker.accept()
    assert is_killed(parent)
    assert now() - begin >= SHORT_S


def test_who_is_guarded_is_killed_when_it_cannot_be_told(broker: Broker, parent: Parent) -> None:
    parent.tell(broker.orders() + guard(SHORT_S))
    parent.process.send_signal(signal.SIGSTOP)
    assert is_killed(parent)


def test_who_holds_nothing_is_killed_only_when_it_does(broker: Broker, parent: Parent) -> None:
    begin = now()
    parent.tell(broker.orders() + guard(SHORT_S, is_holding=False))
    broker.accept()
    broker.hear(len(HELLO))
    while now() - begin < SHORT_S * 2:
        assert broker.hear(len(BEAT)) == BEAT
    assert parent.process.poll() is None
    parent.tell(b"holds 1\n")
    assert is_killed(parent)


def test_answers_of_a_new_connection_count_when_the_worker_has_joined(
    broker: Broker, parent: Parent
) -> None:
    parent.tell(broker.orders() + guard(SHORT_S))
    broker.accept()
    parent.tell(broker.orders(b"again"))
    broker.accept()
    broker.hear(len(b"again"))
    with suppress(OSError):
        while parent.process.poll() is None:
            broker.answer()
    assert is_killed(parent)
