"""The page of compatibility: one row a feature, made from the tests that show it.

Owns the marker `@pytest.mark.feature("G12", "G13")`, which stands on the tests (or the classes of
tests) that show a feature, and the tables beside this file: one TOML file a design, with one entry
a feature:

    [G12]
    feature = "what the design offers, in a few words"

An entry without a test that carries its id must give one more field: `differs` (what is different
and why) or `comes_with` (the part of Jackalope that will bring it). `differs` may also stand beside
tests. `note` adds a remark. `python -m tests.compatibility` writes the page.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs/reference/compatibility.md"

#: The designs in the order of the page: the file of each, and its heading.
DESIGNS = {
    "T": ("tatzelwurm", "A coordinator for AiiDA"),
    "G": ("gridlike", "GridLike, the job server over HTTP and WebSocket"),
    "O": ("osrdyne", "osrdyne, calls to keyed workers over AMQP"),
    "J": ("job_queue", "job-queue and work-queue, requests with shared answers"),
    "D": ("task_queue", "The distributed task queue"),
}
FIELDS = frozenset({"feature", "differs", "comes_with", "note"})

_HEAD = """# Compatibility

Jackalope does what five published designs do. This page lists their features one by one: **works**
with the test that shows it, **differs** with the reason, or **planned** with the part that will
bring it. It is generated from the tests: `python -m tests.compatibility` writes it again.
"""


def features(design: str) -> dict[str, dict[str, str]]:
    """Return the features of a design by their ids."""
    path = Path(__file__).with_name(f"{DESIGNS[design][0]}.toml")
    return tomllib.loads(path.read_text("utf-8"))


@cache
def shown_by() -> dict[str, list[str]]:
    """Return the tests that show each feature, as `tests/path.py::test_name`."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        source = path.read_text("utf-8")
        if "mark.feature" not in source:
            continue
        for name, ids in _marked(ast.parse(source)):
            for feature in ids:
                found.setdefault(feature, []).append(f"{path.relative_to(ROOT)}::{name}")
    for script in sorted((ROOT / "tests/scenarios").rglob("*.txt")):
        for feature in re.findall(r"^# feature: (\w+)", script.read_text("utf-8"), re.MULTILINE):
            found.setdefault(feature, []).append(str(script.relative_to(ROOT)))
    return found


def render() -> str:
    """Return the page."""
    parts = [_HEAD]
    for letter, (_, heading) in DESIGNS.items():
        rows = features(letter)
        counts = [_status(key, row) for key, row in rows.items()]
        summary = ", ".join(
            f"{counts.count(status)} {word}"
            for status, word in (("works", "work"), ("differs", "differ"), ("planned", "planned"))
            if counts.count(status)
        )
        parts.append(f"\n## {heading}\n\n{len(rows)} features: {summary}.\n")
        parts.append("| id | feature | status | shown by |\n|---|---|---|---|")
        parts.extend(_row(key, row) for key, row in rows.items())
    return "\n".join(parts) + "\n"


def _status(key: str, row: dict[str, str]) -> str:
    if "differs" in row:
        return "differs"
    return "planned" if "comes_with" in row else "works" if key in shown_by() else "unshown"


def _row(key: str, row: dict[str, str]) -> str:
    tests = shown_by().get(key, [])
    shown = [f"`{test.removeprefix('tests/')}`" for test in tests[:3]]
    if len(tests) > 3:
        shown.append(f"and {len(tests) - 3} more")
    status = _status(key, row)
    told = [status]
    if "differs" in row:
        told = [f"differs: {row['differs']}"]
    elif "comes_with" in row:
        told = [f"planned with {row['comes_with']}"]
    if "note" in row:
        told.append(row["note"])
    cells = (key, row["feature"], ". ".join(told), ", ".join(shown) or "-")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _marked(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """Yield each test or class with a marker, and the ids it carries."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for call in node.decorator_list:
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.feature":
                    yield node.name, [ast.literal_eval(given) for given in call.args]
