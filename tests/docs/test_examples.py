"""Every Python example of the how-to guides and the README does what it says, or is named here."""

from __future__ import annotations

import ast
import asyncio
from importlib import import_module
from pathlib import Path

import pytest

from jackalope.embedded import EmbeddedBroker
from tests.docs import stages
from tests.docs.examples import Reader, examples_of, pages

#: Pages, or examples of them by their number, that other tests run or that need what is not here.
ELSEWHERE = {
    "aiida": "needs AiiDA; tests/aiida",
    "from-osrdyne": "needs a pool; tests/pools",
    "gridlike": "needs a server of GridLike's protocol; tests/doors/http/gridlike",
    "grpc": "needs the gRPC door; tests/doors/grpc/test_how_to.py",
    "kiwipy": "blocks; tests/kiwipy",
    "pools": "needs a pool; tests/pools",
    "rabbitmq": "needs the AMQP door; tests/doors/amqp",
    "fan-out 1": "part of a task",
    "messages 3": "listens for ever",
    "messages 4": "listens for ever",
    "web-frameworks 2": "needs a notebook; tests/contrib/test_frameworks.py",
}

#: Names that are taken in Python.
STAGES = {"outbox": stages.outbox_page}


def example_names() -> list[str]:
    return [f"{page} {number}" for page in pages() for number in range(len(examples_of(page)))]


@pytest.mark.parametrize("page", [page for page in pages() if page not in ELSEWHERE])
def test_examples(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stage = STAGES.get(page) or getattr(stages, page.replace("-", "_"))
    broker = EmbeddedBroker()
    reader = Reader(broker, stage())

    async def read() -> None:
        try:
            async with asyncio.timeout(60):
                for number, example in enumerate(examples_of(page)):
                    if f"{page} {number}" not in ELSEWHERE:
                        await reader.type_in(example)
        finally:
            await reader.close()

    try:
        asyncio.run(read())
        reader.test()
    finally:
        broker.stop()


@pytest.mark.parametrize("name", example_names())
def test_what_an_example_imports_is_there(name: str) -> None:
    page, _, number = name.rpartition(" ")
    for node in ast.walk(ast.parse(examples_of(page)[int(number)])):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("jackalope"):
            module = import_module(str(node.module))
            for each in node.names:
                if not hasattr(module, each.name):
                    import_module(f"{node.module}.{each.name}")


def test_what_is_left_to_others_is_there() -> None:
    assert not set(ELSEWHERE) - {*pages(), *example_names()}
