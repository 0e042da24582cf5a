"""The terminal as a whole: one key at a time in, only the lines that changed out.

Owns the modes of the terminal and gives them back on every way out, the failing ones included.
Knows nothing of what is shown. A line that has not changed is not sent again, so that a slow link
carries little.
"""

from __future__ import annotations

import codecs
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, Self

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J"
_LEAVE = "\x1b[0m\x1b[?25h\x1b[?1049l"

#: What terminals send for keys that are no characters.
_KEYS = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1bOC": "right",
    "\x1bOD": "left",
    "\x1b[Z": "back tab",
    "\x1b": "escape",
    "\t": "tab",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
}
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;]*[~A-Za-z]|O[A-Z])|.", re.DOTALL)

_LOCAL_MODES = 3
_CONTROL_KEYS = 6


def is_usable() -> bool:
    """Return whether there is a terminal to read keys from and to draw on."""
    try:
        import termios  # noqa: F401
    except ImportError:
        return False  # Windows
    return sys.stdin.isatty() and sys.stdout.isatty()


class Terminal:
    """The terminal, for the time of a block."""

    def __init__(self) -> None:
        self.fd = sys.stdin.fileno()
        self._modes: list[Any] = []
        self._shown: list[str] = []
        self._decode = codecs.getincrementaldecoder("utf-8")("ignore").decode

    def __enter__(self) -> Self:
        import termios

        self._modes = termios.tcgetattr(self.fd)
        modes = termios.tcgetattr(self.fd)
        # Keys come at once and are not echoed. Ctrl-C still interrupts; Ctrl-Z would leave the
        # terminal as it is now to the shell.
        modes[_LOCAL_MODES] &= ~(termios.ICANON | termios.ECHO)
        modes[_CONTROL_KEYS][termios.VSUSP] = b"\x00"
        termios.tcsetattr(self.fd, termios.TCSADRAIN, modes)
        _write(_ENTER)
        return self

    def __exit__(self, *failure: object) -> None:
        import termios

        try:
            _write(_LEAVE)
        finally:
            termios.tcsetattr(self.fd, termios.TCSADRAIN, self._modes)

    def read(self) -> list[str]:
        """Read the keys that were pressed; `end` if there is no more terminal."""
        try:
            read = os.read(self.fd, 1_024)
        except OSError:
            return ["end"]
        if not read:
            return ["end"]
        found = _SEQUENCE.findall(self._decode(read))
        return [_KEYS.get(each, each) for each in found if len(each) == 1 or each in _KEYS]

    def paint(self, lines: Sequence[str]) -> None:
        """Show lines, from the top; those that are there already are left alone."""
        sent = []
        for at in range(max(len(lines), len(self._shown))):
            line = lines[at] if at < len(lines) else ""
            if at >= len(self._shown) or self._shown[at] != line:
                sent.append(f"\x1b[{at + 1};1H{line}\x1b[0m\x1b[K")
        self._shown = list(lines)
        if sent:
            _write("".join(sent))

    def forget(self) -> None:
        """Show everything again: the size of the terminal has changed."""
        self._shown = []
        _write("\x1b[2J")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
