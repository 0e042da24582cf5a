"""The table of aims: what it calls met, what it says of the rest, and where it is written."""

from pathlib import Path

import pytest

from bench.aims import table
from bench.aims.command import PAGE
from bench.aims.parts import PARTS, Run, Scale
from bench.aims.table import Found, Row

LESS = Row("less", "turns", "less is better", 10, "us", is_most=True, why="It is flat.")
MORE = Row("more", "turns", "more is better", 1.5, why="It sleeps.")


def found(*figures: float) -> Found:
    of = Found()
    for figure in figures:
        of.add(figure)
    return of


def test_every_row_has_a_name_of_its_own_a_part_and_a_reason() -> None:
    assert len({row.name for row in table.ROWS}) == len(table.ROWS)
    assert {row.part for row in table.ROWS} == set(PARTS)
    assert all(row.why for row in table.ROWS)


def test_an_aim_is_met_by_the_median() -> None:
    text = table.markdown([LESS, MORE], {"less": found(9, 10, 30), "more": found(1, 1.5, 1.6)}, [])
    assert [line.rpartition("| ")[2] for line in text.splitlines()[2:4]] == ["yes |", "yes |"]
    assert "missed" not in text


def test_a_missed_aim_is_explained_and_a_missing_peer_named() -> None:
    text = table.markdown([LESS, MORE], {"less": found(11)}, ["Left out: huey: not installed"])
    assert "| less | less is better | at most 10 us | 11 us | - | no |" in text
    assert "| more | more is better | at least 1.5 x | - | - | not measured |" in text
    assert "Left out: huey: not installed" in text
    assert "- `less`: It is flat." in text
    assert "It sleeps." not in text


def test_a_ratio_is_how_many_times_better_ours_is(tmp_path: Path) -> None:
    run = Run({"faster", "sooner"}, Scale(), tmp_path)
    run.add("faster", 300, 100)
    run.add("sooner", 2, 4, less=True)
    run.add("unasked", 1)
    assert {name: of.figures for name, of in run.found.items()} == {"faster": [3], "sooner": [2]}


def test_the_table_goes_between_its_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    table.write(page, "new")
    assert page.read_text() == f"before\n{table.BEGIN}\n\nnew\n\n{table.END}\nafter\n"
    page.write_text("nothing")
    with pytest.raises(ValueError, match="has no place"):
        table.write(page, "new")


def test_the_page_has_a_place_for_it() -> None:
    assert table.BEGIN in PAGE.read_text()
    assert table.END in PAGE.read_text()
