"""The pages agree with the code.

`REWRITE=1 pytest tests/docs` writes what follows from the code into the pages. Cells that are
written by hand stay as they are; a new row has empty ones, and waits for them to be written.
"""

import os
import re
import sqlite3
from contextlib import closing
from difflib import unified_diff
from pathlib import Path

import pytest

from jackalope.core.lifecycle import State
from jackalope.storage.sqlite.history import History
from tests.docs.blocks import cells_of, content_of, names_in, render, with_content
from tests.docs.shapes import PAGES, PARTS, RECORDS, SHARED
from tests.storage.making import make_changes, make_row

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"

BLOCKS = [(page, block) for page, blocks in PAGES.items() for block in blocks]
DECISIONS = sorted((DOCS / "decisions").glob("0*.md"))


def read(page: str) -> str:
    return (DOCS / page).read_text()


@pytest.mark.parametrize(("page", "block"), BLOCKS)
def test_block_follows_from_the_code(page: str, block: str) -> None:
    text = read(page)
    present = content_of(text, block)
    expected = render(PAGES[page][block](), present)
    if os.environ.get("REWRITE"):
        (DOCS / page).write_text(with_content(text, block, expected))
        return
    old, new = present.splitlines(), expected.splitlines()
    if diff := list(unified_diff(old, new, "the page", "the code", lineterm="")):
        told = "\n".join([f"{page}, {block}: run REWRITE=1 pytest tests/docs", *diff])
        pytest.fail(told, pytrace=False)


@pytest.mark.parametrize(("page", "block"), BLOCKS)
def test_no_cell_is_empty(page: str, block: str) -> None:
    rows = cells_of(content_of(read(page), block))
    assert not [row for row in rows if "" in row]


@pytest.mark.parametrize("page", sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")))
def test_every_block_is_known(page: str) -> None:
    text = read(page)
    assert names_in(text) == list(dict.fromkeys(names_in(text)))
    assert set(names_in(text)) == set(PAGES.get(page, {}))
    assert text.count("<!-- generated") == text.count("<!-- end -->") == len(names_in(text))


@pytest.mark.parametrize("shape", [*RECORDS, *PARTS], ids=lambda shape: shape.__name__)
def test_every_record_has_a_heading(shape: type) -> None:
    assert f"\n### {shape.__name__}\n" in read("reference/records.md")


@pytest.mark.parametrize("shape", SHARED, ids=lambda shape: shape.__name__)
def test_what_travels_is_described_once(shape: type) -> None:
    assert f"\n### {shape.__name__}\n" in read("reference/protocol.md")
    assert f"`{shape.__name__}`" in read("reference/records.md")


def test_queries_of_the_page_run(tmp_path: Path) -> None:
    """People are told that they may run these on `tasks.db`."""
    queries = re.findall(r"(?ms)^```sql\n(.*?)^```", read("reference/storage.md"))
    with closing(History(tmp_path / "tasks.db")) as history:
        rows = [make_row(1), make_row(2, state=State.DEAD), make_row(3, state=State.SUCCEEDED)]
        history.write(1, make_changes(*rows))
        with closing(sqlite3.connect(tmp_path / "tasks.db")) as connection:
            answers = [connection.execute(query).fetchall() for query in queries]
    assert len(answers) >= 2
    assert all(answers)


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_decision_has_its_parts(path: Path) -> None:
    number, text = path.stem[:4], path.read_text()
    title = text.splitlines()[0].removeprefix(f"# {number} ")
    assert text.startswith(f"# {number} {title}\n\nStatus: ")
    headings = re.findall(r"^## (.*)", text, re.MULTILINE)
    assert headings == ["Context", "Decision", "Alternatives and consequences"]
    assert f"| {number} | [{title}]({path.name}) |" in read("decisions/index.md")


def test_decisions_are_listed_once_and_in_order() -> None:
    listed = re.findall(r"^\| (\d{4}) \|", read("decisions/index.md"), re.MULTILINE)
    assert listed == [path.name[:4] for path in DECISIONS]


@pytest.mark.parametrize("folder", ["how-to", "reference", "explanation"])
def test_every_page_is_listed_once(folder: str) -> None:
    index = read(f"{folder}/index.md")
    pages = sorted(path.name for path in (DOCS / folder).glob("*.md") if path.name != "index.md")
    assert not [page for page in pages if index.count(f"]({page})") != 1]
