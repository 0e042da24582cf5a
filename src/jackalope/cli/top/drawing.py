"""How the live view is drawn: a model becomes lines of text, of exactly the terminal's size.

Pure: knows neither the terminal nor the broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from jackalope.cli.formatting import SECOND_US, age, brief, clock, number, short_ids, span, tally
from jackalope.cli.output import STATE_COLOURS, cell, dim, state
from jackalope.cli.top.model import Model, Panel, failed_us
from jackalope.core.lifecycle import State

if TYPE_CHECKING:
    from jackalope.wire.views import QueueView, TaskView, WorkerView

#: From this width on panels stand side by side.
SIDE_BY_SIDE_COLUMNS = 140

_HEAD_LINES = 3
_FOOT_LINES = 1

KEYS = "q quit  ? help  / filter  tab panel  ↑↓ row  e explain  p pause  k kill  r retry"

HELP = """\
tab, ←, →      the next panel, or the one before
↑, ↓           select a row
e, enter       explain the row: why it does not run, or how it died
p              pause or resume a queue; pause or play a task
k              kill a task, after a y
r              retry a task that is dead
/              show only rows with a text; enter keeps it, escape removes it
escape         close this, or remove the filter
q, Ctrl-C      quit

queues    what waits and runs in each, and what is wrong with it
workers   what each is doing
slowest   the tasks that have been running longest
failing   the tasks that died last, and those that will be tried again"""


def draw(model: Model, columns: int, lines: int, now_us: int) -> RenderableType:
    """Draw everything."""
    room = max(1, lines - _HEAD_LINES - _FOOT_LINES)
    title, text = model.overlay
    if title:
        body: RenderableType = _overlay(title, text, room)
    elif model.look is None:
        body = _filled([dim("asking the broker…")], room)
    else:
        body = _panels(model, columns, room, now_us)
    return Group(*_head(model, now_us), body, _foot(model))


# Head and foot.


def _head(model: Model, now_us: int) -> list[Text]:
    look = model.look
    if look is None:
        first = Text.assemble(("jackalope ", "bold"), model.where)
        return [_line(first), Text(""), _trouble(model)]
    stats = look.stats
    up = span(max(0, stats.now_us - stats.started_us))
    first = Text.assemble(
        ("jackalope ", "bold"),
        f"{stats.version}  ",
        (clock(model.seen_us), "bright_black"),
        f"  up {up}  {stats.durability}  {model.where}",
    )
    busy, slots = sum(each.load for each in look.workers), sum(each.slots for each in look.workers)
    second = Text(f"workers {len(look.workers)}  slots {number(busy)}/{number(slots)} ")
    for name in ("ready", "running", "scheduled", "waiting", "paused", "held"):
        states = (name, "assigned") if name == "running" else (name,)
        if count := tally(stats.counts, *states):
            second.append(f"  {name} ").append(number(count), STATE_COLOURS[name])
    for name in (State.SUCCEEDED, State.DEAD, State.KILLED):
        rate = model.rate(name)
        shown = "-" if rate is None else number(rate)
        if name is State.SUCCEEDED or rate:
            second.append(f"  {name} ").append(f"{shown}/s", STATE_COLOURS[name])
    third = _trouble(model)
    late_us = now_us - model.seen_us
    if not third and late_us > 5 * SECOND_US:
        third = Text(f"no answer for {span(late_us)}", "red", no_wrap=True)
    if not third and (model.filter or model.is_typing):
        third = Text.assemble(("filter ", "bold"), brief(model.filter, 60))
        third.append("_" if model.is_typing else "", "blink")
    return [_line(first), _line(second), _line(third)]


def _trouble(model: Model) -> Text:
    return _line(Text(" ".join(model.trouble.split()), "red"))


def _foot(model: Model) -> Text:
    if model.asking:
        return _line(Text(f"{model.asking} [y/n]", "bold yellow"))
    if model.message:
        return _line(Text(" ".join(model.message.split()), "yellow"))
    return _line(dim("escape closes" if model.overlay[0] else KEYS))


def _line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _overlay(title: str, text: str, room: int) -> RenderableType:
    lines = [Text(title, "bold"), Text("")]
    return Group(*_filled([*lines, Text(text)], room, is_wrapped=True))


def _filled(shown: Sequence[Text], room: int, *, is_wrapped: bool = False) -> Any:
    """Fill what is left of the room, so that the foot stays where it is."""
    table = Table.grid(expand=True)
    table.add_column(overflow="fold" if is_wrapped else "ellipsis", no_wrap=not is_wrapped)
    for text in shown:
        table.add_row(text)
    return (_Room(table, room),) if is_wrapped else _Room(table, room)


class _Room:
    """Something in exactly so many lines: cut, or filled."""

    def __init__(self, inner: RenderableType, lines: int) -> None:
        self._inner, self._lines = inner, lines

    def __rich_console__(self, console: Any, options: Any) -> Any:
        from rich.segment import Segment

        lines = console.render_lines(self._inner, options.update(height=None), pad=True)
        blank = [Segment(" " * options.max_width)]
        for line in [*lines, *([blank] * self._lines)][: self._lines]:
            yield from line
            yield Segment.line()


# Panels.


def _panels(model: Model, columns: int, room: int, now_us: int) -> RenderableType:
    if columns < SIDE_BY_SIDE_COLUMNS:
        heights = _shares([max(1, len(model.rows(panel))) + 1 for panel in Panel], room)
        shown = zip(Panel, heights, strict=True)
        return Group(
            *(_Room(_panel(model, each, height, now_us), height) for each, height in shown)
        )
    grid = Table.grid(expand=True, padding=(0, 1))
    grid.add_column(ratio=1)
    grid.add_column(ratio=1)
    pairs = ((Panel.QUEUES, Panel.WORKERS), (Panel.SLOWEST, Panel.FAILING))
    most = [max(1, *(len(model.rows(panel)) for panel in pair)) + 1 for pair in pairs]
    for pair, height in zip(pairs, _shares(most, room), strict=True):
        grid.add_row(*(_Room(_panel(model, each, height, now_us), height) for each in pair))
    return _Room(grid, room)


def _shares(wanted: list[int], room: int) -> list[int]:
    """Share the lines of a screen: all get what they want, or as much as the others."""
    shares = [0] * len(wanted)
    left = room
    while left > 0:
        hungry = [at for at, each in enumerate(wanted) if shares[at] < each]
        if not hungry:
            shares[-1] += left
            break
        for at in hungry[:left]:
            shares[at] += 1
        left -= min(left, len(hungry))
    return shares


def _panel(model: Model, panel: Panel, lines: int, now_us: int) -> RenderableType:
    rows = model.rows(panel)
    is_chosen = panel is model.panel
    shown = max(0, lines - 1)
    first = max(0, min(model.at[panel] - shown + 1, len(rows) - shown)) if is_chosen else 0
    (share, *columns), make = _COLUMNS[panel]
    count = f" {number(len(rows))}" if rows else ""
    table = _table((f"{share}{panel.value}{count}", *columns), is_chosen=is_chosen)
    part = rows[first : first + shown]
    for at, cells in enumerate(make(part, now_us), first):
        table.add_row(*cells, style="reverse" if is_chosen and at == model.at[panel] else "")
    if not rows:
        table.add_row(dim("none match" if model.filter else "none"), *([""] * len(columns)))
    return table


def _table(columns: Sequence[str], *, is_chosen: bool) -> Table:
    style = "bold black on cyan" if is_chosen else "bold"
    table = Table(box=None, expand=True, pad_edge=False, padding=(0, 1, 0, 0), header_style=style)
    for name in columns:
        title = name.lstrip(">~123456789")
        is_wide = name.startswith("~")
        table.add_column(
            Text(title, no_wrap=True, overflow="ellipsis"),
            justify="right" if name.startswith(">") else "left",
            overflow="ellipsis",
            no_wrap=not is_wide,
            ratio=int(name[1]) if is_wide else None,
        )
    return table


Cells = list[list[RenderableType]]


def _queues(rows: Sequence[QueueView], now_us: int) -> Cells:
    made: Cells = []
    for row in rows:
        note = Text("")
        if row.paused_by:
            note = cell(f"paused by {row.paused_by}", "yellow")
        elif row.depth and not row.workers:
            note = cell("no worker", "red")
        running = tally(row.counts, "assigned", "running")
        later = tally(row.counts, "scheduled", "waiting")
        counts = [number(each) for each in (row.depth, running, later, row.workers)]
        made.append([cell(row.queue), *counts, age(row.oldest_ready_us, now_us), note])
    return made


def _workers(rows: Sequence[WorkerView], now_us: int) -> Cells:
    return [
        [
            cell(row.worker),
            state(row.state),
            f"{row.load}/{row.slots}",
            number(row.succeeded),
            number(row.failed),
            age(row.heard_us, now_us),
            cell(",".join(row.queues)),
        ]
        for row in rows
    ]


def _slowest(rows: Sequence[TaskView], now_us: int) -> Cells:
    ids = short_ids(row.id for row in rows)
    return [
        [
            cell(row.name or "-"),
            ids[row.id],
            cell(row.queue),
            span(max(0, now_us - row.started_us)) if row.started_us else state(row.state),
            ""
            if row.progress is None or row.progress.percent is None
            else f"{row.progress.percent:.0f}%",
            cell(row.worker),
        ]
        for row in rows
    ]


def _failing(rows: Sequence[TaskView], now_us: int) -> Cells:
    ids = short_ids(row.id for row in rows)
    return [
        [
            cell(row.name or "-"),
            ids[row.id],
            cell(row.queue),
            state(row.state),
            age(failed_us(row), now_us),
            cell(_cause(row), "red"),
        ]
        for row in rows
    ]


def _cause(row: TaskView) -> str:
    if row.error is None:
        return str(row.reason or "")
    return f"{row.error.type}: {row.error.message}" if row.error.message else row.error.type


#: The columns of each panel, and what makes the cells of its rows. The first has the name of the
#: panel. `>` is aligned to the right; `~` and a digit is cut to its share of the width.
_COLUMNS: dict[Panel, tuple[tuple[str, ...], Any]] = {
    Panel.QUEUES: (("~3", ">depth", ">running", ">later", ">workers", ">oldest", "~2"), _queues),
    Panel.WORKERS: (("~3", "state", ">load", ">done", ">failed", ">heard", "~2queues"), _workers),
    Panel.SLOWEST: (("~3", "task", "~2queue", ">running", ">", "~2worker"), _slowest),
    Panel.FAILING: (("~2", "task", "~1queue", "state", ">ago", "~3cause"), _failing),
}
