"""A process never runs in two workers at once, whatever cuts the first one off from the broker.

The first worker speaks to the broker through a line that the test can cut. What it runs writes down
the time, again and again, as long as it lives; the second worker writes down when it begins.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from jackalope.aiida.process_communicator import ProcessCommunicator
from jackalope.kiwipy.queue import TaskTraits
from tests.acceptance.harness import House, wait_until
from tests.aiida.test_processes import continue_
from tests.kiwipy.harness import PATIENCE_S

#: Long enough for a slow machine to say that it is alive.
LEASE_S = 6.0

WORKER = """
import sys, threading, time
import kiwipy
from jackalope.aiida.process_communicator import ProcessCommunicator
from jackalope.kiwipy.queue import TaskTraits

address, path, lease_s = sys.argv[1:]

def write(word):
    with open(path, "a") as file:
        file.write(f"{word} {time.clock_gettime(time.CLOCK_MONOTONIC)}\\n")

def run():
    while True:
        write("runs")
        time.sleep(0.02)

def take(_, task):
    write("begins")
    threading.Thread(target=run, daemon=True).start()
    return kiwipy.Future()

communicator = ProcessCommunicator(
    {"address": address},
    lambda pid: TaskTraits(str(pid)),
    lease=float(lease_s),
    async_task_timeout=60,
)
communicator.add_task_subscriber(take)
print("ready", flush=True)
threading.Event().wait()
"""


class Line:
    """A line to a port, through which connections go until it is cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"jackalope://127.0.0.1:{self._server.getsockname()[1]}"
        self._is_cut = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def cut(self, *, is_silent: bool) -> None:
        """Let nothing through any more: without a word, or with the end of every connection."""
        self._is_cut.set()
        if not is_silent:
            self._hang_up()

    def close(self) -> None:
        self._is_cut.set()
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._hang_up()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for each in self._sockets:
            each.close()

    def _hang_up(self) -> None:
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _start(self, act: Callable[..., None], *args: socket.socket) -> None:
        thread = threading.Thread(target=act, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                self._sockets.append(near)
                if self._is_cut.is_set():
                    continue  # Whoever comes now is not answered.
                far = socket.create_connection(("127.0.0.1", self._port))
                self._sockets.append(far)
                self._start(self._pass_on, near, far)
                self._start(self._pass_on, far, near)

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not self._is_cut.is_set():
                    target.sendall(data)
        if not self._is_cut.is_set():
            with suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)


class Bench:
    """A broker, a line to it, and two workers that want the same process."""

    def __init__(self, house: House, line: Line, folder: Path) -> None:
        self.address = house.address
        self.line = line
        self._folder = folder
        self._workers: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, address: str) -> subprocess.Popen[bytes]:
        """Start a worker, and return when it takes tasks."""
        command = [sys.executable, "-c", WORKER, address, str(self._folder / name), str(LEASE_S)]
        worker = subprocess.Popen(command, stdout=subprocess.PIPE)
        self._workers.append(worker)
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"ready\n"
        return worker

    def times(self, name: str) -> list[float]:
        """Return when a worker ran the process."""
        path = self._folder / name
        lines = path.read_text().splitlines() if path.exists() else []
        return [float(line.split()[1]) for line in lines if line.count(" ") == 1]

    def send(self) -> None:
        """Send the task that continues the process."""
        params = {"address": self.address}
        with ProcessCommunicator(params, lambda pid: TaskTraits(str(pid))) as sender:
            sender.task_send(continue_(1), no_reply=True)

    def close(self) -> None:
        for worker in self._workers:
            with worker, suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    house = House(tmp_path)
    house.start_broker()
    line = Line(house.port)
    bench = Bench(house, line, tmp_path)
    yield bench
    bench.close()
    line.close()
    house.close()


@pytest.mark.parametrize("fault", ["silence", "hang-up", "stop"])
def test_a_worker_that_is_cut_off_ends_before_another_begins(bench: Bench, fault: str) -> None:
    first = bench.start("first", bench.line.address)
    bench.send()
    wait_until(lambda: len(bench.times("first")) > 1, "the first worker runs the process")
    bench.start("second", bench.address)
    if fault == "stop":
        first.send_signal(signal.SIGSTOP)
    else:
        bench.line.cut(is_silent=fault == "silence")
    assert first.wait(10 * LEASE_S) == -signal.SIGKILL
    wait_until(lambda: bool(bench.times("second")), "the second worker runs it", 10 * LEASE_S)
    assert bench.times("first")[-1] < bench.times("second")[0]
