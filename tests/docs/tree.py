"""The map of the tree: every package, what it owns, and its modules."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.docs.blocks import Table

SOURCE = Path(__file__).resolve().parents[2] / "src/jackalope"


def packages() -> Table:
    """List the packages in the order of their names, each with its modules."""
    rows = []
    for init in sorted(SOURCE.rglob("__init__.py")):
        folder = init.parent
        name = "/".join(folder.relative_to(SOURCE).parts) or "jackalope"
        head = (ast.get_docstring(ast.parse(init.read_text("utf-8"))) or "").split("\n")[0]
        modules = sorted(path.stem for path in folder.glob("*.py") if path.stem[0] != "_")
        rows.append((f"`{name}`", head, ", ".join(modules) or "-"))
    return Table(("package", "what it owns", "modules"), rows)
