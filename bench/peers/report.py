"""The figures side by side: a table on the terminal, one in Markdown, and the files to keep."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from bench.peers.base import Figures

_US = "jackalope"

# The figure, its heading, and whether more is better, if it is the system's.
_COLUMNS = (
    ("submit_one_per_s", "submit one /s", True),
    ("submit_bulk_per_s", "submit bulk /s", True),
    ("end_to_end_per_s", "end to end /s", True),
    ("round_trip_p50_ms", "round trip p50 ms", False),
    ("round_trip_p99_ms", "p99 ms", False),
    ("rss_mb_100k", "MB at 100k", False),
    ("cpu_at_5000_per_s", "cores at 5,000/s", False),
    ("floor_fsyncs_per_s", "disk's fsyncs /s", None),
)

_LEGEND = (
    "In brackets: how many times better Jackalope is in the same run: more a second, or less time, "
    "memory and CPU. Below 1 the peer is better."
)


def table(figures: Mapping[str, Figures]) -> str:
    """Return the table for a terminal."""
    heading, rows, failures = _cells(figures)
    text = _rich(heading, rows) if find_spec("rich") is not None else _plain(heading, rows)
    lines = [text.rstrip(), *failures]
    if _has_us(figures):
        lines.append(_LEGEND)
    return "\n".join(lines)


def markdown(figures: Mapping[str, Figures]) -> str:
    """Return the page with the table, what each system guarantees, and where it was measured."""
    heading, rows, failures = _cells(figures)
    lines = ["# Jackalope beside its peers", "", _where(), ""]
    if _has_us(figures):
        lines += [_LEGEND, ""]
    lines += _markdown_rows(heading, rows)
    lines += ["", *(f"- {failure}" for failure in failures), ""] if failures else [""]
    details = [
        [name, str(of["durability"]), str(of["version"]), "; ".join(of["notes"])]
        for name, of in figures.items()
        if "error" not in of
    ]
    lines += _markdown_rows(["system", "safe when a submit returns", "versions", "notes"], details)
    return "\n".join([*lines, ""])


def save(figures: Mapping[str, Figures], folder: Path) -> None:
    """Write `peers.json`, `peers.md` and, where matplotlib is there, `peers.png`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "peers.json").write_text(json.dumps(figures, indent=2) + "\n")
    (folder / "peers.md").write_text(markdown(figures))
    if find_spec("matplotlib") is not None:
        import_module("bench.plot").draw(figures, folder / "peers.png")


def _cells(figures: Mapping[str, Figures]) -> tuple[list[str], list[list[str]], list[str]]:
    heading = ["system", *(title for _, title, _ in _COLUMNS)]
    us = figures[_US] if _has_us(figures) else {}
    rows = [
        [name, *(_cell(of, us, figure, is_more_better) for figure, _, is_more_better in _COLUMNS)]
        for name, of in figures.items()
        if "error" not in of
    ]
    failures = [
        f"{name}: {' '.join(str(of['error']).split())[-300:]}"
        for name, of in figures.items()
        if "error" in of
    ]
    return heading, rows, failures


def _cell(of: Figures, us: Figures, figure: str, is_more_better: bool | None) -> str:
    value, ours = of[figure], us.get(figure)
    if value is None:
        return "-"
    text = f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"
    if not ours or not value or of is us or is_more_better is None:
        return text
    ratio = ours / value if is_more_better else value / ours
    return f"{text} ({ratio:.2g}x)" if ratio < 10 else f"{text} ({ratio:,.0f}x)"


def _has_us(figures: Mapping[str, Figures]) -> bool:
    return _US in figures and "error" not in figures[_US]


def _rich(heading: list[str], rows: list[list[str]]) -> str:
    console = import_module("rich.console").Console(width=200)
    rich_table = import_module("rich.table").Table()
    for number, title in enumerate(heading):
        rich_table.add_column(title, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        rich_table.add_row(*row)
    with console.capture() as capture:
        console.print(rich_table)
    return str(capture.get())


def _plain(heading: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(line[at]) for line in [heading, *rows]) for at in range(len(heading))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in [heading, *rows]
    )


def _markdown_rows(heading: list[str], rows: list[list[str]]) -> list[str]:
    lines = [heading, ["---"] * len(heading), *rows]
    return ["| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in lines]


def _where() -> str:
    day = dt.datetime.now(tz=dt.UTC).date().isoformat()
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.release()}"
    return (
        f"Measured on {day} by `python -m bench peers` on {machine}, Python "
        f"{platform.python_version()}: a task that does nothing, a payload of 100 bytes, one "
        "client process, one worker process, servers on the same machine; medians."
    )
