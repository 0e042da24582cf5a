"""A terminal for tests: a command runs on a pseudo-terminal, and its screen is emulated."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from typing import Self

import pyte

from tests.cli.conftest import JACKALOPE, clean_environment

DEADLINE_S = 30.0


class Emulator:
    """A command on a terminal of some size."""

    def __init__(self, *arguments: str, columns: int = 80, lines: int = 24) -> None:
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self._ours, self.theirs = pty.openpty()
        self.resize(columns, lines)
        self.settings = termios.tcgetattr(self.theirs)
        self.raw = b""
        self.process = subprocess.Popen(
            [JACKALOPE, *arguments],
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            env=clean_environment() | {"TERM": "xterm-256color"},
            start_new_session=True,
        )

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.screen.resize(lines, columns)

    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def until(self, is_shown: Callable[[str], object]) -> str:
        """Read until the screen shows something, and return what it shows."""
        deadline = time.monotonic() + DEADLINE_S
        while not is_shown(self.text()):
            left_s = deadline - time.monotonic()
            assert left_s > 0, f"not shown:\n{self.text()}\n{self.raw[-300:]!r}"
            self._read(min(left_s, 0.2))
        return self.text()

    def wait(self) -> int:
        """Read until the command ends, and return its exit code."""
        deadline = time.monotonic() + DEADLINE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.text()
            self._read(0.05)
        while self._read(0.0):
            pass
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self.theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _read(self, wait_s: float) -> bool:
        if not select.select([self._ours], [], [], wait_s)[0]:
            return False
        got = os.read(self._ours, 65_536)
        self.raw += got
        self._stream.feed(got)
        return True
