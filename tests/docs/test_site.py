"""The documentation as a site: it builds without a warning, and a broken link is one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import jackalope

pytest.importorskip("myst_parser", reason="the site needs Sphinx, MyST-Parser and Furo")
pytest.importorskip("furo", reason="the site needs Sphinx, MyST-Parser and Furo")

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Build as `make docs` does."""
    flags = ["-W", "--keep-going", "-q", "-j", "2", "-b", "html"]
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *flags, "-c", DOCS / "site", source, target],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    built = build(DOCS, target)
    assert (built.returncode, built.stderr) == (0, "")
    return target


@pytest.mark.timeout(900)  # A hundred and fifty pages, on a machine that may be busy.
def test_every_page_is_built_and_in_the_navigation(site: Path) -> None:
    # A page that no other leads to would be a warning, and so an error.
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS).with_suffix(".html")).exists(), page
    first = (site / "index.html").read_text()
    for title in ("Tutorial", "How-to guides", "Reference", "Explanation", "Decisions"):
        assert title in first
    for words in ("Jackalope and its peers", "When not to use it", "Glossary"):
        assert words in (site / "explanation" / "index.html").read_text()


@pytest.mark.timeout(900)
def test_it_can_be_searched(site: Path) -> None:
    assert (site / "search.html").exists()
    index = (site / "searchindex.js").read_text()
    for word in ("fence", "heartbeat", "runbook"):
        assert word in index


@pytest.mark.timeout(900)
def test_the_api_has_every_public_name(site: Path) -> None:
    page = (site / "reference" / "api.html").read_text()
    missing = [name for name in jackalope.__all__ if f'id="jackalope.{name}"' not in page]
    assert missing == []
    assert "jackalope.testing.VirtualBroker" in page
    # Docstrings are read as they are meant: no backtick and no section is left as it was typed.
    assert "`" not in page.partition("<article")[2].partition("</article>")[0]
    assert "Raises:" not in page.replace('Raises<span class="colon">:', "")


@pytest.mark.parametrize(
    ("link", "is_good"),
    [
        ("[there](how-to/index.md)", True),
        ("[there](how-to/index.md#steps)", True),
        ("[gone](how-to/gone.md)", False),
        ("[no heading](how-to/index.md#gone)", False),
        ("[outside](../gone.py)", False),
        ("![no picture](gone.png)", False),
    ],
)
def test_a_broken_link_is_an_error(tmp_path: Path, link: str, is_good: bool) -> None:
    source = tmp_path / "docs"
    for name in ("how-to", "reference", "explanation", "decisions"):
        (source / name).mkdir(parents=True)
        (source / name / "index.md").write_text(f"# {name}\n\n## Steps\n\nSome.\n")
    (source / "tutorial.md").write_text("# Tutorial\n\nBegin.\n")
    (source / "index.md").write_text(f"# First\n\nA link: {link}.\n")
    built = build(source, tmp_path / "site")
    assert (built.returncode == 0) == is_good, built.stderr
    assert bool(built.stderr) != is_good


@pytest.mark.parametrize("page", sorted(DOCS.glob("how-to/*.md")), ids=lambda page: page.stem)
def test_titles_say_what_they_are(page: Path) -> None:
    title = page.read_text().partition("\n")[0]
    assert title.startswith("# How to ") or page.stem == "index"
