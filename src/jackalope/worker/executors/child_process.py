"""One process that runs tasks: as the operating system sees it, and the channel to it.

Owns its signals, what it writes, how and why it ended, the messages of the channel, and how memory
and processor time are measured, from the inside, in children and in the worker alike. What it
writes goes on to the worker's own output, and the end of it is kept for the day it dies; a thread
does that, so that an output which is not read blocks no connection. It is reaped here rather than
by asyncio, which does not return what the process has used, and only after its group was killed
where that must be: until then its number cannot belong to another.
"""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import os
import resource
import select
import selectors
import signal
import subprocess
import sys
import termios
import threading
import time
from array import array
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import IO, Any

import msgspec

from jackalope.core.commands import RecordStep, Suspend
from jackalope.core.effects import Assignment
from jackalope.core.shapes.task_log import LogStream
from jackalope.core.task import Error
from jackalope.tasks.serialization import encodable
from jackalope.worker.attempt import Attempt, Outcome, Surroundings
from jackalope.worker.logs.child_pipe import PipeReader

_Utf8 = codecs.getincrementaldecoder("utf-8")

#: How much of what a process has written is kept.
_TAIL_BYTES = 4 * 1024
#: Stands for the pipe that brings lines, where others are those of the standard streams.
_LINES = 0
#: How long what a dead process has written may take to arrive.
_TAIL_S = 0.5
#: `ru_maxrss` counts these.
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True)
class Exit:
    """How a process ended, and what it has used in its life."""

    status: int  # the exit code, or the signal that ended it as a negative number
    peak_rss_bytes: int = 0  # the most memory that it ever had
    cpu_s: float = 0.0  # how long it has computed
    tail: str = ""  # the last lines that it wrote


class ChildProcess:
    """A process in a session and a group of its own. Belongs to the loop that started it."""

    def __init__(
        self, command: Sequence[str], pass_fds: Sequence[int], lines: int = -1, echoes: bool = True
    ) -> None:
        self.ends_group = False  # kill what it has started as soon as it ends
        self._popen = subprocess.Popen(  # noqa: S603  the worker's own command
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            pass_fds=tuple(pass_fds),
            start_new_session=True,
        )
        self.pid = self._popen.pid
        self._exit: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self.output = Output(self._popen.stdout, self._popen.stderr, lines, echoes=echoes)
        self._watch()

    @property
    def has_ended(self) -> bool:
        return self._popen.returncode is not None

    def signal(self, number: int) -> None:
        if not self.has_ended:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        if self.has_ended:
            return
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            self.signal(signal.SIGKILL)

    async def exited(self) -> Exit:
        return await asyncio.shield(self._exit)

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            watch = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # Not on this system.
            threading.Thread(target=self._wait, args=(loop,), daemon=True).start()
        else:
            loop.add_reader(watch, self._on_end, loop, watch)

    def _on_end(self, loop: asyncio.AbstractEventLoop, watch: int) -> None:
        loop.remove_reader(watch)
        os.close(watch)
        self._reap(loop)

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        await_end(self.pid)
        with suppress(RuntimeError):  # The loop is closed: the worker has ended.
            loop.call_soon_threadsafe(self._reap, loop)

    def _reap(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.ends_group:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        _, encoded, used = os.wait4(self.pid, 0)
        self._popen.returncode = os.waitstatus_to_exitcode(encoded)
        ended = Exit(
            self._popen.returncode,
            used.ru_maxrss * _RSS_UNIT,
            round(used.ru_utime + used.ru_stime, 2),
        )
        tail = loop.run_in_executor(None, self.output.tail)
        tail.add_done_callback(lambda done: self._settle(ended, done))

    def _settle(self, ended: Exit, tail: asyncio.Future[str]) -> None:
        if not self._exit.done():
            text = "" if tail.cancelled() or tail.exception() else tail.result()
            self._exit.set_result(Exit(ended.status, ended.peak_rss_bytes, ended.cpu_s, text))


def await_end(pid: int) -> None:
    """Return when a child has ended. It is not reaped: until then its number is no other's."""
    if hasattr(os, "waitid"):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return
    # macOS, before Python 3.13.
    system: Any = select
    queue = system.kqueue()
    flags = system.KQ_EV_ADD | system.KQ_EV_ONESHOT
    event = system.kevent(pid, system.KQ_FILTER_PROC, flags, system.KQ_NOTE_EXIT)
    try:
        with suppress(ProcessLookupError):  # It has ended before.
            queue.control([event], 1)
    finally:
        queue.close()


class Output:
    """Copies what a process writes to the worker's own output, and keeps the end of it.

    While an attempt runs there it is given what comes: over the pipe for lines what its Python code
    prints and logs, from the streams themselves what other programs and C code write.
    """

    def __init__(
        self,
        out: IO[bytes] | None,
        error: IO[bytes] | None,
        lines: int = -1,
        *,
        echoes: bool = True,
    ) -> None:
        self.attempt: Attempt | None = None  # whose output it is
        self._echoes = echoes
        self._kept = b""
        self._is_busy = False
        self._reader = PipeReader()
        self._files = {
            file.fileno(): (file, number) for file, number in ((out, 1), (error, 2)) if file
        }
        if lines >= 0:
            self._files[lines] = (os.fdopen(lines, "rb", buffering=0), _LINES)
        self._thread = threading.Thread(target=self._copy, name="jackalope-output", daemon=True)
        self._thread.start()

    def tail(self) -> str:
        """Return the last lines, once the process has ended. What it started may go on writing."""
        self._thread.join(_TAIL_S)
        return self._kept.decode(errors="replace").strip()

    def is_behind(self) -> bool:
        """Return whether something was written that no attempt has been given yet."""
        return any(_unread_bytes(number) for number in list(self._files)) or self._is_busy

    def _copy(self) -> None:
        decoders = {number: _Utf8(errors="replace") for number in (1, 2)}
        with selectors.DefaultSelector() as selector:
            for number in self._files:
                selector.register(number, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select():
                    self._is_busy = True
                    data = os.read(key.fd, 64 * 1024)
                    if data:
                        self._take(self._files[key.fd][1], data, decoders)
                    else:
                        selector.unregister(key.fd)
                        self._files.pop(key.fd)[0].close()
                    self._is_busy = False

    def _take(self, target: int, data: bytes, decoders: dict[int, Any]) -> None:
        attempt = self.attempt
        sink = None if attempt is None else attempt.output()
        if target == _LINES:
            shown = self._reader.feed(data, sink, echoes=self._echoes)
        else:
            shown = [(target, data)] if self._echoes or sink is None else []
            if sink is not None:
                stream = LogStream.STDOUT if target == 1 else LogStream.STDERR
                sink.write(stream, decoders[target].decode(data))
        for number, text in shown:
            self._kept = (self._kept + text)[-_TAIL_BYTES:]
            _write(number, text)


def _unread_bytes(descriptor: int) -> int:
    """Return how much there is to read; 0 if it is closed."""
    found = array("i", [0])
    with suppress(OSError):
        fcntl.ioctl(descriptor, termios.FIONREAD, found)
    return found[0]


def _write(target: int, data: bytes) -> None:
    """Write all of it; an output that takes nothing more loses it."""
    with suppress(OSError):
        while data:
            data = data[os.write(target, data) :]


# Exit causes: why a process is gone, in words that help.


CRASHED = "Crashed"
OUT_OF_MEMORY = "OutOfMemory"
TIMEOUT = "Timeout"

_VMSTAT = Path("/proc/vmstat")


def exit_error(ended: Exit, *, oom_kills: int = 0, trace: str = "") -> Error:
    """Describe the end of a process that the worker has not ended.

    `oom_kills` is how many processes the kernel has killed for memory while it ran.
    """
    status, kind = ended.status, CRASHED
    if status == -signal.SIGKILL and oom_kills > 0:
        kind = OUT_OF_MEMORY
        message = "the process was killed by the kernel because the machine is out of memory"
    elif status < 0:
        message = f"the process was killed by signal {signal_name(-status)}"
    else:
        message = f"the process exited with code {status}"
    if ended.peak_rss_bytes:
        message += f"; peak memory {ended.peak_rss_bytes / 2**20:.0f} MiB, CPU {ended.cpu_s:g} s"
    if ended.tail:
        trace = f"{trace.rstrip()}\n\nThe last lines that it wrote:\n{ended.tail}".lstrip()
    return Error(kind, message, encodable(trace))


def signal_name(number: int) -> str:
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)


def oom_kill_count() -> int:
    """Return how many processes the kernel has killed for memory since it started."""
    try:
        lines = _VMSTAT.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


# The channel: the worker sends where the process is, then assignments, one at a time, and the
# process answers with the outcome of each. While a task runs, the process asks about its steps and
# the worker answers, by number. MessagePack behind a length; never pickle.


LENGTH = Struct(">I")


class Ready(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The process has imported the application and waits for work."""


class Unfit(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The process cannot import the application, and ends."""

    reason: str


class Progressed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """How far the task has come."""

    percent: float | None
    note: str


class Told(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The task was asked to stop: its own code has seen it, or will when it next runs."""


class Rested(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The task only waits from now on, or no more."""

    is_resting: bool


class StepAsked(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The task has done a step, which is to be recorded."""

    number: int  # names the question to its answer, once in the life of the process
    message: RecordStep


class WaitAsked(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The task has come to a wait."""

    number: int
    message: Suspend


class Ended(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The task runs no longer; and how large the process is now."""

    outcome: Outcome
    rss_bytes: int


Word = Ready | Unfit | Progressed | Told | Rested | StepAsked | WaitAsked | Ended


class Work(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The next task to run."""

    assignment: Assignment


class StepAnswered(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What came of a question about a step."""

    number: int
    body: Any = None  # the broker's answer
    is_over: bool = False  # there is none: the task no longer belongs to this worker
    refusal: str = ""  # there is none, for this reason
    code: str = ""  # the code of the refusal, if it is the broker's
    retry_after_us: int = 0


Given = Work | StepAnswered

_encode = msgspec.msgpack.Encoder().encode
decode_word = msgspec.msgpack.Decoder(Word).decode
decode_surroundings = msgspec.msgpack.Decoder(Surroundings).decode
decode_given = msgspec.msgpack.Decoder(Given).decode


def packet(message: Word | Given | Surroundings) -> bytes:
    body = _encode(message)
    return LENGTH.pack(len(body)) + body


# Usage: how much memory and processor time this process has in use.


_PAGE_BYTES = resource.getpagesize()


def rss_bytes() -> int:
    """Return how much memory this process has in use."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE_BYTES
    except OSError:  # No such file on this system: the largest it ever was will have to do.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT


class Processor:
    """How busy this process keeps the processor, in per cent of one core."""

    def __init__(self) -> None:
        self._used_s, self._at_s = time.process_time(), time.monotonic()

    def percent(self) -> float:
        """Return how busy it was since this was last asked."""
        used_s, at_s = time.process_time(), time.monotonic()
        before_s, since_s = self._used_s, self._at_s
        self._used_s, self._at_s = used_s, at_s
        return round(100 * (used_s - before_s) / max(at_s - since_s, 1e-6), 1)
