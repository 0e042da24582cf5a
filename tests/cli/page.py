"""The page of the command line, written from the command line itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from jackalope.cli.app import Deferred, app
from jackalope.cli.base import Exit
from jackalope.cli.help import default_of

EVERYWHERE = ("broker", "namespace", "token", "ca", "skip_verify", "format", "help")

HEAD = """# Command line

Every command, its arguments and its options. The commands are defined in `jackalope.cli`; a test
writes this page from them (`REWRITE=1 pytest tests/cli/test_page.py`).

## Everywhere

These can be given before or after a command.

{everywhere}

[`jackalope completion`](#jackalope-completion) completes commands, options, states and formats in
your shell, and from the broker the names of queues, workers, tasks and schedules.

**Tasks** are named by their UUID, with or without dashes, by a unique prefix of it, or by their
alias. **Durations** are written `100ms`, `30s`, `5m`, `2h`, `7d`, or as a
number of seconds. **Times** are written `2030-01-31T08:00`, with a zone such as `+02:00` or in that
of this machine, or `08:00` for the next such time.

On a terminal `list`, `tail` and `workers` fit 80 columns: ids are prefixes that tell apart what is
shown, and what does not fit is cut. `--wide` shows everything, as in a pipe or a file.

With `--format json` or `yaml` the answer is data for programs: every field is there, ids are UUIDs,
times are microseconds since the epoch, and payloads and results are decoded as their header
`content` specifies. Streams (`tail`, `--watch`) have a line of JSON or a document of YAML for each
item. Answers go to the standard output, everything else to the standard error.

## Exit codes

{exits}

`wait`, and `submit --wait`, exit with 1 if a task did not succeed.
"""

MEANINGS = {
    Exit.DONE: "Done; `serve` and `worker`: stopped on request.",
    Exit.FAILED: "It failed, or something was refused. A line on the standard error explains why.",
    Exit.USAGE: "Invalid usage or configuration. Nothing was done.",
    Exit.STORAGE: "`serve`: the storage fails or is damaged; the message says what to do.",
    Exit.BUSY: "`serve`: another broker uses the data folder, or the port is in use.",
    Exit.DEGRADED: "`cluster status`: the cluster works, and something is to be done.",
    Exit.NO_LEADER: "`cluster status`: no node leads.",
    Exit.INTERRUPTED: "Interrupted with Ctrl-C.",
}


def page() -> str:
    """Return the page as it should be."""
    everywhere = [each for each in app.params if each.name in EVERYWHERE]
    exits = [(f"{code.value}", MEANINGS[code]) for code in Exit]
    head = HEAD.format(
        everywhere=_table(("option", "default", "meaning"), map(_row, everywhere)),
        exits=_table(("code", "meaning"), exits),
    )
    return "\n".join([head, *_commands(app, "jackalope")])


def _commands(group: Any, path: str) -> Iterator[str]:
    for name, each in getattr(group, "commands", {}).items():
        command = each.load() if isinstance(each, Deferred) else each
        full = f"{path} {name}"
        yield f"{'#' * full.count(' ')}# {full}\n"
        yield _prose(command.help or "")
        rows = [_row(each) for each in command.params if each.name not in EVERYWHERE]
        if rows:
            yield _table(("argument or option", "default", "meaning"), rows) + "\n"
        yield from _commands(command, full)


def _prose(text: str) -> str:
    prose, _, examples = text.partition("Examples:\n")
    paragraphs = [*_wrapped(prose.strip())]
    if examples:
        lines = "\n".join(line.strip() for line in examples.strip().splitlines())
        paragraphs.append(f"```\n{lines}\n```")
    return "\n\n".join(paragraphs) + "\n"


def _wrapped(prose: str) -> Iterator[str]:
    from textwrap import fill  # noqa: PLC0415

    for paragraph in prose.split("\n\n"):
        if paragraph.strip():
            yield fill(paragraph, 100)


def _row(parameter: Any) -> tuple[str, str, str]:
    if parameter.param_type_name == "argument":
        name = f"`{parameter.get_usage_pieces(click.Context(app))[0]}`"
    else:
        value = "" if parameter.is_flag else f" {parameter.metavar or 'N'}"
        name = ", ".join(f"`{opt}{value}`".replace("|", "\\|") for opt in parameter.opts)
    about = (parameter.help or "").replace("|", "\\|")
    if envvar := getattr(parameter, "envvar", None):
        about += f" Or `{envvar}`."
    return name, _default(parameter), about


def _default(parameter: Any) -> str:
    shown = default_of(parameter)
    return (
        shown
        if isinstance(getattr(parameter, "show_default", None), str) or not shown
        else f"`{shown}`"
    )


def _table(heads: tuple[str, ...], rows: Any) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
