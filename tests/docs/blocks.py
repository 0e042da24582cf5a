"""Blocks: the parts of the pages that follow from the code.

A block stands between two comments in a page::

    <!-- generated: transitions -->
    ...
    <!-- end -->

What is between them is written by a function here or in `shapes`. A table may have columns at its
end that are written by hand: they are kept, row by row, under the first cell of the row. So the
code says what there is, the page says what it means, and neither can forget a row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_BLOCK = re.compile(r"(<!-- generated: (.+?) -->\n\n)(.*?)(\n\n<!-- end -->)", re.DOTALL)
_CELL_BORDER = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class Table:
    """A table: the columns that the code fills, and the heads of those that are kept."""

    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    kept: tuple[str, ...] = ()


Block = Table | str


def names_in(page: str) -> list[str]:
    """Return the names of the blocks of a page, in order."""
    return [match[2] for match in _BLOCK.finditer(page)]


def content_of(page: str, name: str) -> str:
    """Return what a page has in a block."""
    return next(match[3] for match in _BLOCK.finditer(page) if match[2] == name)


def with_content(page: str, name: str, content: str) -> str:
    """Return the page with another content of a block."""

    def written(match: re.Match[str]) -> str:
        return match[1] + content + match[4] if match[2] == name else match[0]

    return _BLOCK.sub(written, page)


def render(block: Block, present: str) -> str:
    """Return what a block should be, with the kept cells of what it is at present."""
    if isinstance(block, str):
        return block
    kept = {cells[0]: cells[len(block.heads) :] for cells in cells_of(present)}
    width = len(block.kept)
    nothing = [""] * width
    rows = [(*row, *(kept.get(row[0], nothing) + nothing)[:width]) for row in block.rows]
    return "\n".join(_line(row) for row in (block.heads + block.kept, _rule(block), *rows))


def cells_of(table: str) -> list[list[str]]:
    """Return the cells of the rows below the head of a table."""
    rows = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in _CELL_BORDER.split(row)[1:-1]] for row in rows[2:]]


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def _rule(block: Table) -> tuple[str, ...]:
    return ("---",) * len(block.heads + block.kept)
