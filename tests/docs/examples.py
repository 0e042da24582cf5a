"""Running the examples of a page: statement by statement, with a broker and a worker.

What a page takes as given (a function of the reader's, a model, an engine) its stage supplies: a
function of `tests.docs.stages` of the page's name. Of a task whose body is `...`, the stage may
have the body under the name `do_<task>`. Functions named `test_*` are run as pytest runs them.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any

from jackalope import Jackalope
from jackalope.embedded import EmbeddedBroker
from jackalope.testing import VirtualBroker
from jackalope.transport.address import parse_address

ROOT = Path(__file__).resolve().parents[2]

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

_FENCE = re.compile(r"(?ms)^```python\n(.*?)^```$")


def pages() -> list[str]:
    """Return the pages with examples, by their names: how-to guides and the README."""
    found = [*sorted((ROOT / "docs" / "how-to").glob("*.md")), ROOT / "README.md"]
    return [path.stem for path in found if _FENCE.search(path.read_text())]


def examples_of(page: str) -> list[str]:
    """Return the examples of a page."""
    path = ROOT / "README.md" if page == "README" else ROOT / "docs" / "how-to" / f"{page}.md"
    return _FENCE.findall(path.read_text())


def _awaits(node: ast.stmt) -> bool:
    return any(isinstance(each, ast.Await | ast.AsyncWith) for each in ast.walk(node))


class Reader:
    """One who types the examples of a page in, one after the other."""

    def __init__(self, broker: EmbeddedBroker, given: Mapping[str, Any]) -> None:
        self.names: dict[str, Any] = {"__name__": "shop.tasks", **given}
        self._broker = broker
        self._served: dict[int, int] = {}

    async def type_in(self, example: str) -> None:
        """Run an example; what awaits is awaited."""
        for node in ast.parse(example).body:
            if not isinstance(node, _DEFINITIONS) and _awaits(node):
                self._work()
            module = ast.Module([_Bodies(self.names).visit(node)], type_ignores=[])
            code = compile(
                ast.fix_missing_locations(module),
                "<example>",
                "exec",
                flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
            )
            running = FunctionType(code, self.names)()
            if inspect.isawaitable(running):
                await running
            self._find_app()

    def test(self) -> None:
        """Run the tests among what was typed in."""
        for name, found in list(self.names.items()):
            if name.startswith("test_"):
                with VirtualBroker() as broker:
                    found(*[broker] * len(inspect.signature(found).parameters))

    async def close(self) -> None:
        for app in self._apps():
            await app.close()

    def _apps(self) -> Iterator[Jackalope]:
        # A worker that reads annotations enters the names of Python itself meanwhile.
        return (each for each in list(self.names.values()) if isinstance(each, Jackalope))

    def _find_app(self) -> None:
        """Let every application talk to the broker of the test."""
        for app in self._apps():
            app.address = replace(parse_address(self._broker.address))

    def _work(self) -> None:
        """Have a worker with all tasks that there are by now."""
        self._find_app()
        for app in self._apps():
            if app.functions and self._served.get(id(app)) != len(app.functions):
                self._served[id(app)] = len(app.functions)
                self._broker.work(app)


class _Bodies(ast.NodeTransformer):
    """Gives functions without a body the one of the stage."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self._fill(node)
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        self._fill(node)
        return node

    def _fill(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        is_empty = len(node.body) == 1 and ast.unparse(node.body[0]) == "..."
        if is_empty and f"do_{node.name}" in self._names:
            arguments = ", ".join(each.arg for each in node.args.args)
            node.body = ast.parse(f"return do_{node.name}({arguments})").body
