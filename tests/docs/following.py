"""Following a page: its files are written, its commands run, and what they print is compared.

A fence says what is to be done with it:

- `python <file>`: written to the file, or added to it if it is there already.
- `console`: each line with `$` is run to its good end; the lines below it are what it prints.
- `console fails`: the same, but to a bad end.
- `console terminal <n>`: the command goes on until that terminal has `^C` on a line of its own.
- `sh`: for the reader alone.

In what is expected, `...` stands for anything within a line, or for any lines if it has one to
itself. Ids, times of day and widths of columns may differ.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from jackalope import Jackalope

WAIT_S = 60

_FENCE = re.compile(r"(?ms)^```(\S+)([^\n]*)\n(.*?)^```$")
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d\d:\d\d:\d\d")


@dataclass
class Block:
    """A fence of the page."""

    kind: str
    words: list[str]
    text: str

    def steps(self) -> list[tuple[str, list[str]]]:
        """Return each command of a console, and the lines that are expected of it."""
        steps: list[tuple[str, list[str]]] = []
        for line in self.text.splitlines():
            if line == "^C" or line.startswith("$ "):
                steps.append((line.removeprefix("$ "), []))
            else:
                steps[-1][1].append(line)
        return steps


def blocks_of(text: str) -> list[Block]:
    return [Block(kind, words.split(), body) for kind, words, body in _FENCE.findall(text)]


class Follower:
    """Does what a page says, in a folder, with a broker at ports of its own."""

    def __init__(self, folder: Path, port: int, http_port: int = 0) -> None:
        self._folder = folder
        self._port = str(port)
        self._http_port = str(http_port)
        self._terminals: dict[str, subprocess.Popen[str]] = {}
        bin_folder = Path(sys.executable).parent
        others = {name: text for name, text in os.environ.items() if "JACKALOPE" not in name}
        self._environment = others | {
            "PATH": f"{bin_folder}{os.pathsep}{os.environ.get('PATH', '')}",
            "COLUMNS": "140",
            "JACKALOPE_BROKER": f"127.0.0.1:{port}",
            "JACKALOPE_NATIVE__PORT": self._port,
            "JACKALOPE_HTTP__ENABLED": "true" if http_port else "false",
            "JACKALOPE_HTTP__PORT": self._http_port,
            "PYTHONUNBUFFERED": "1",
            # The plugins of this project's own tests are slow to load.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_ADDOPTS": "-p jackalope.testing.plugin",
        }

    def follow(self, block: Block) -> None:
        text = block.text.replace("7420", self._port).replace("7421", self._http_port)
        here = Block(block.kind, block.words, text)
        if block.kind == "python":
            with (self._folder / block.words[0]).open("a") as file:
                file.write(text)
        elif block.kind == "console" and block.words[:1] == ["terminal"]:
            self._use(block.words[1], here)
        elif block.kind == "console":
            for command, expected in here.steps():
                self._run(command, expected, fails=block.words == ["fails"])

    def stop(self) -> None:
        """End what the page has left running."""
        for process in self._terminals.values():
            process.kill()
            process.communicate()

    def _run(self, command: str, expected: list[str], *, fails: bool) -> None:
        done = subprocess.run(
            shlex.split(command),
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert (done.returncode != 0) is fails, f"{command}\n{done.stdout}{done.stderr}"
        compare(command, expected, done.stdout.splitlines())

    def _use(self, terminal: str, block: Block) -> None:
        for command, expected in block.steps():
            if command == "^C":
                self._interrupt(terminal)
                continue
            with (self._folder / f"terminal-{terminal}.log").open("a") as log:
                process = self._terminals[terminal] = subprocess.Popen(
                    shlex.split(command),
                    cwd=self._folder,
                    env=self._environment,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
            assert process.stdout is not None
            for line in expected:
                compare(command, [line], [process.stdout.readline().rstrip("\n")])
            if not expected:
                self._await_worker(process)

    def _await_worker(self, process: subprocess.Popen[str]) -> None:
        """Wait for a worker to be there: it prints nothing, and a reader takes a moment anyway."""
        app = Jackalope(f"jackalope://127.0.0.1:{self._port}")
        with app.sync:
            until = time.monotonic() + WAIT_S
            while time.monotonic() < until:
                if any(f"-{process.pid}-" in each.worker for each in app.sync(app.workers())):
                    return
        raise AssertionError("the worker did not come")

    def _interrupt(self, terminal: str) -> None:
        process = self._terminals.pop(terminal)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=WAIT_S)
        assert process.returncode == 0


def compare(command: str, expected: list[str], said: list[str]) -> None:
    """Check that a command said what was expected of it."""
    pattern = "".join(map(_pattern, expected))
    text = "".join(line.rstrip() + "\n" for line in said)
    shown = "\n".join(["", f"$ {command}", *said, "", "in place of", "", *expected])
    assert re.fullmatch(pattern, text) or not expected, shown


def _pattern(line: str) -> str:
    if line.strip() == "...":
        return r"(?:[^\n]*\n)*"
    words = line.split()
    return r" *" + r" *".join(map(_word_pattern, words)) + r" *\n"


def _word_pattern(word: str) -> str:
    if _ID.fullmatch(word):
        return _ID.pattern
    if _TIME.fullmatch(word):
        return _TIME.pattern
    return r"[^\n]*".join(map(re.escape, word.split("...")))
