"""Help: the usage of a command, what it does, examples, and panels of options and commands.

Owns how help looks, and what is shown of a parameter. Loaded when help is asked for.
"""

from collections.abc import Iterator
from typing import Any

import click
from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from jackalope.cli.base import COLUMNS_MAX

#: What the names of an option and what is given to it take at most, before they are broken.
_LEFT_MAX = 31

_OPTION = r"(?<![\w-])--?[a-z][\w-]*"


def draw(command: click.Command, context: click.Context) -> str:
    """Return the help of a command as lines for this terminal."""
    console = Console(highlight=False, markup=False, emoji=False)
    console.width = min(console.width, COLUMNS_MAX)
    with console.capture() as captured:
        for each in _parts(command, context):
            console.print(each)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def _parts(command: click.Command, context: click.Context) -> Iterator[RenderableType]:
    usage = Text(" ".join(command.get_usage(context).split()), style="bold")
    usage.highlight_regex("^Usage:", "yellow")
    yield Padding(usage, (1, 1))
    for number, paragraph in enumerate((command.help or "").split("\n\n")):
        if paragraph:
            yield Padding(_prose(paragraph, "dim" if number else ""), (0, 1, 1, 1))
    panels: dict[str, list[tuple[Text, Text]]] = {}
    for parameter in command.get_params(context):
        panel = getattr(parameter, "panel", "Options")
        row = (_names(parameter, context), _meaning(parameter))
        panels.setdefault(panel, []).append(row)
    for title, rows in sorted(panels.items(), key=_rank):
        yield _panel(title, rows, min(max(len(name) for name, _ in rows), _LEFT_MAX))
    if isinstance(command, click.Group):
        yield from _commands(command)


def _prose(paragraph: str, style: str) -> Text:
    head, _, examples = paragraph.partition("Examples:\n")
    if not head:
        return Text.assemble(("Examples\n", "bold"), examples)
    return _highlighted(paragraph, style)


def _highlighted(text: str, style: str = "") -> Text:
    shown = Text(text, style=style)
    shown.highlight_regex(_OPTION, "cyan")
    return shown


def _rank(panel: tuple[str, Any]) -> int:
    """Put arguments before options, and what is special to a command after these."""
    return {"Arguments": 0, "Options": 1}.get(panel[0], 2)


def _names(parameter: click.Parameter, context: click.Context) -> Text:
    """Return how a parameter is written: its names, shortest first, and what is given to it."""
    if not isinstance(parameter, click.Option):
        return Text(" ".join(parameter.get_usage_pieces(context)), style="bold cyan")
    names = ", ".join(sorted([*parameter.opts, *parameter.secondary_opts], key=len))
    text = Text(names, style="bold cyan")
    if not parameter.is_flag:
        given = parameter.metavar or "N"
        is_long = len(names) + len(given) >= _LEFT_MAX
        text.append(f" {given.replace('|', '| ') if is_long else given}", "not bold yellow")
    return text


def _meaning(parameter: Any) -> Text:
    notes = [f"env: {parameter.envvar}"] if parameter.envvar else []
    if isinstance(parameter.type, click.IntRange):
        notes.append(_range(parameter.type))
    if shown := default_of(parameter):
        notes.append(f"default: {shown}")
    if parameter.required and isinstance(parameter, click.Option):
        notes.append("required")
    text = _highlighted(parameter.help or "")
    if notes:
        text.append(f" [{', '.join(notes)}]", "dim")
    return text


def _range(numbers: click.IntRange) -> str:
    """Return which numbers are taken."""
    if numbers.max is None:
        return f"at least {numbers.min}"
    return f"{numbers.min} to {numbers.max}"


def default_of(parameter: Any) -> str:
    """Return the default of a parameter as people read it; nothing if it is empty."""
    shown = getattr(parameter, "show_default", None)
    if isinstance(shown, str):
        return shown
    default = parameter.default
    return str(default) if shown and isinstance(default, str | int) and default else ""


def _commands(group: click.Group) -> Iterator[Panel]:
    panels: dict[str, list[tuple[Text, Text]]] = {}
    for name, command in group.commands.items():
        panel = getattr(command, "panel", "Commands")
        about = (command.help or "").partition("\n\n")[0]
        panels.setdefault(panel, []).append((Text(name, style="bold cyan"), Text(about)))
    width = max(map(len, group.commands))
    for title, rows in panels.items():
        yield _panel(title, rows, width)


def _panel(title: str, rows: list[tuple[Text, Text]], width: int) -> Panel:
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    table.add_column(width=width, overflow="fold")
    table.add_column(ratio=1)
    for row in rows:
        table.add_row(*row)
    return Panel(table, title=title, title_align="left", border_style="dim", box=box.ROUNDED)
