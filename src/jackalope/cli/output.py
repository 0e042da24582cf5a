"""The screen: where a command's answer goes, as a table, JSON or YAML.

Owns the terminal: tables, bars, colours, watching and confirming. Knows nothing of the broker.
Whatever is drawn passes `SafeConsole`, so that names, errors and payloads cannot control the
terminal; no command has to handle that.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from rich import box
from rich.console import Console, ConsoleDimensions, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from jackalope.cli.base import COLUMNS_MAX, Format
from jackalope.cli.formatting import clock, now_us, setting, to_plain
from jackalope.terminal import in_json, in_line, is_safe, visible

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")

#: What is drawn on a terminal of any width if everything is wanted.
COLUMNS_WIDE = 160

STATE_COLOURS = {
    "held": "yellow",
    "paused": "yellow",
    "waiting": "bright_black",
    "scheduled": "bright_black",
    "ready": "cyan",
    "assigned": "blue",
    "running": "bold blue",
    "succeeded": "green",
    "dead": "bold red",
    "killed": "magenta",
    # Workers.
    "active": "bold blue",
    "idle": "green",
    "draining": "yellow",
    "away": "red",
    "gone": "bright_black",
}


class Screen:
    """The answer of a command goes to the standard output, all else to the standard error."""

    def __init__(self, form: Format, out: Console | None = None, err: Console | None = None):
        self.format = form
        self.is_human = form is Format.TABLE  # whether people read it: tables, not JSON or YAML
        self._out = out or _console(stderr=False)
        self._err = err or _console(stderr=True)
        # Whether there is room for everything: always where no terminal is.
        self.is_wide = not self._out.is_terminal

    def widen(self) -> None:
        """Show everything, whatever the width of the terminal."""
        self.is_wide = True
        self._out.width = max(self._out.width, COLUMNS_WIDE)

    # Showing.

    def show(self, data: Any, drawn: RenderableType | Callable[[], RenderableType]) -> None:
        """Show an answer: drawn for people, or as plain data for programs."""
        if self.is_human:
            self._out.print(drawn() if callable(drawn) else drawn)
        else:
            self.write(data)

    def write(self, data: Any) -> None:
        self._out.file.write(self._dump(data))
        self._out.file.flush()

    def draw(self, drawn: RenderableType) -> None:
        """Draw something for people; programs see nothing of it."""
        if self.is_human:
            self._out.print(drawn)

    def note(self, text: str) -> None:
        """Print a note next to the answer, on the standard error."""
        self._err.print(Text(text, style="bright_black"))

    def warn(self, text: str) -> None:
        """Print a warning that something is not as asked, on the standard error."""
        self._err.print(Text.assemble(("warning: ", "yellow"), text), soft_wrap=True)

    def warn_of_log(self, logger: str) -> None:
        """Print the warnings of a logger too, such as that a connection was lost."""
        handler = logging.Handler()
        handler.emit = lambda record: self.warn(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger(logger).handlers = [handler]

    def _dump(self, answer: Any, *, is_line: bool = False) -> str:
        data = to_plain(answer)
        if self.format is Format.YAML:
            import yaml

            text = str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))
            return text if is_safe(text) else str(yaml.safe_dump(data, sort_keys=False))
        import json

        indent = None if is_line else 2
        return in_json(json.dumps(data, indent=indent, ensure_ascii=False, default=str)) + "\n"

    def stream(self, data: Any, drawn: RenderableType) -> None:
        """Show one of many answers that come over time: JSON a line each, YAML a document each."""
        if self.is_human:
            if self.is_wide:
                self._out.print(drawn, soft_wrap=True)
            else:
                self._out.print(drawn, no_wrap=True, overflow="ellipsis", crop=True)
            return
        text = self._dump(data, is_line=True)
        self._out.file.write(f"---\n{text}" if self.format is Format.YAML else text)
        self._out.file.flush()

    def print_raw(self, text: str) -> None:
        """Write a line as it is, whatever is in it."""
        self._out.file.write(f"{text}\n")
        self._out.file.flush()

    def size(self) -> tuple[int, int]:
        """Return the columns and lines of the terminal, and draw for these from now on."""
        with suppress(OSError):
            # Asked for itself: COLUMNS may be that of a terminal before its size changed.
            columns, lines = os.get_terminal_size(self._out.file.fileno())
            self._out.size = ConsoleDimensions(columns, lines)
        return self._out.size.width, self._out.size.height

    def lines_of(self, drawn: RenderableType) -> list[str]:
        """Return something as the lines that a terminal would be sent."""
        with self._out.capture() as captured:
            self._out.print(drawn, end="")
        return captured.get().split("\n")

    # Over time.

    async def watch(
        self,
        fetch: Callable[[], Awaitable[T]],
        draw: Callable[[T], RenderableType],
        every_s: float | None,
        data_of: Callable[[T], Any] = lambda answer: answer,
    ) -> None:
        """Show an answer; repeatedly if an interval is given, until interrupted.

        Programs see what `data_of` returns of an answer.
        """
        if every_s is None:
            answer = await fetch()
            self.show(data_of(answer), lambda: draw(answer))
            return
        if not self.is_human or not self._out.is_terminal:
            while True:
                answer = await fetch()
                self.stream(data_of(answer), draw(answer))
                await asyncio.sleep(every_s)
        from rich.live import Live

        with Live(console=self._out, auto_refresh=False, screen=True) as live:
            while True:
                footer = Text(
                    f"every {every_s:g} s, last at {clock(now_us())}; Ctrl-C ends",
                    style="bright_black",
                )
                live.update(Group(draw(await fetch()), footer), refresh=True)
                await asyncio.sleep(every_s)

    def progress(self, what: str, total: int) -> Progress:
        """Return a progress bar, which is drawn on a terminal only."""
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            console=self._err,
            transient=True,
            disable=not self._err.is_terminal,
        )
        bar.add_task(what, total=total)
        return bar

    # Asking.

    def confirm(self, question: str, *, is_sure: bool) -> bool:
        """Ask on a terminal whether to go on; elsewhere an option must have confirmed it."""
        if is_sure:
            return True
        if not sys.stdin.isatty():
            return False
        self._err.print(f"{in_line(question)} [y/N] ", end="")
        return sys.stdin.readline().strip().lower() in {"y", "yes"}


class SafeConsole(Console):
    """A console on which no text can pretend to be more than text.

    Names and messages are shown as they are, whatever brackets and colons are in them; characters
    that a terminal would act on are shown as escapes. Rich makes its own colours and movements
    after this, or marks them as such.
    """

    def __init__(self, *, stderr: bool) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False)

    def render_str(self, text: str, **styling: Any) -> Text:
        """Escape a text before its width is measured."""
        return super().render_str(visible(text), **styling)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Escape what is left in any text that is drawn."""
        for segment in super().render(renderable, options):
            if segment.control or is_safe(segment.text):
                yield segment
            else:
                yield Segment(visible(segment.text), segment.style)


def _console(*, stderr: bool) -> Console:
    console = SafeConsole(stderr=stderr)
    if not console.is_terminal:
        # A table that is piped somewhere keeps its shape.
        console.width = COLUMNS_MAX
    return console


# What screens are made of.


def state(name: str) -> Text:
    return Text(name, style=STATE_COLOURS.get(name, ""))


def dim(text: str) -> Text:
    """Write what matters less."""
    return Text(text, style="bright_black")


def cell(text: str, style: str = "") -> Text:
    """Write what is cut, and never wrapped, where its column is too narrow."""
    return Text(in_line(text), style=style, no_wrap=True, overflow="ellipsis")


def table(*columns: str, gap: int = 2) -> Table:
    """Begin a table.

    A column that begins with `>` is aligned to the right; one that begins with `~` is cut when the
    table is too wide, the others only after that.
    """
    drawn = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        header_style="bold",
        pad_edge=False,
        padding=(0, gap - 1, 0, 0),
    )
    for column in columns:
        drawn.add_column(
            column.lstrip(">~"),
            justify="right" if column.startswith(">") else "left",
            overflow="ellipsis",
            no_wrap=not column.startswith("~"),
        )
    return drawn


def changes(title: str, values: dict[str, Any], defaults: dict[str, Any]) -> Table:
    """List settings, those that differ from their defaults in colour and with the default."""
    drawn = table(title, "value", "default")
    for key, value in values.items():
        if value == defaults[key]:
            drawn.add_row(dim(key), dim(setting(value)), "")
        else:
            drawn.add_row(key, Text(setting(value), "bold cyan"), dim(setting(defaults[key])))
    return drawn


def facts(pairs: Iterable[tuple[str, RenderableType | str]]) -> Table:
    """List names and values, leaving out what is empty."""
    drawn = Table.grid(padding=(0, 2))
    drawn.add_column(style="bright_black", justify="right", no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, value in pairs:
        if value != "" and value is not None:
            drawn.add_row(name, value)
    return drawn


def bar(value: float, most: float, width: int = 40, style: str = "cyan") -> Text:
    """Draw a length in eighths of a character."""
    eighths = round(width * 8 * min(value / most, 1.0)) if most > 0 else 0
    if value > 0:
        eighths = max(eighths, 1)
    text = "█" * (eighths // 8) + (" ▏▎▍▌▋▊▉"[eighths % 8] if eighths % 8 else "")
    return Text(text.ljust(1), style=style)
