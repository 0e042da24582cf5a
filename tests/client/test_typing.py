"""A type checker sees wrong arguments where they are submitted, and lets right ones pass."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

PROGRAM = """
import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Annotated

from jackalope import INJECTED, Answer, Asked, Depends, Handle, Jackalope, Middleware, Task
from jackalope import Flow, FlowHandle, Group, Step, chain, group
from jackalope import as_completed, gather

app = Jackalope("jackalope://localhost")


@app.task(queue="images", retries=5, timeout=timedelta(seconds=120))
async def resize(path: str, width: int, *, crop: bool = False) -> str:
    return path


@app.task
def add(a: int, b: int = 1) -> float:
    return a + b


@app.task
def listed(a: int, db: Annotated[str, Depends(str)] = INJECTED) -> float:
    return a


async def main() -> None:
    {line}
"""

RIGHT = [
    'handle: Handle[str] = await resize.submit("cat.png", 320)',
    'handle: Handle[str] = await resize.submit("cat.png", width=320, crop=True)',
    'text: str = await (await resize.submit("cat.png", 320)).result(timeout=60)',
    'text: str = await resize.run("cat.png", 320)',
    'text: str = await resize("cat.png", 320)',
    "number: float = add(1)",
    "handle: Handle[float] = await add.submit(1, b=2)",
    "number: float = await add.options(priority=200, delay=5).run(1)",
    'handles: list[Handle[str]] = await resize.submit_many([("a", 1), ("b", 2)])',
    'handles: list[Handle[str]] = await resize.submit_many([resize.call("a", width=1)])',
    "numbers: list[float] = await gather([await add.submit(1)])",
    "numbers: AsyncIterator[float] = add.map([1, 2, 3])",
    "first: Handle[float] = await anext(as_completed([await add.submit(1)]))",
    "task: Task[[int, int], float] = add",
    "number: Handle[int] = app.handle('00' * 16, returns=int)",
    "number: int = await app.handle('00' * 16, returns=int).result()",
    "handle: Handle[float] = await listed.submit(1)",
    "app.middleware(Middleware())",
    "number: float = app.sync(add.run(1))",
    'step: Step[str] = resize.step("cat.png", width=320)',
    "step: Step[str] = resize.step(width=320)",
    'step: Step[str] = resize.step(resize.step("cat.png", 1).result, 2)',
    'flow: Flow[float] = Flow("f", resize.step("a", 1) >> add.step(2))',
    'handle: FlowHandle[float] = await Flow("f", add.step(1) >> add.step()).submit()',
    'numbers: list[float] = await Flow("f", group(add.step(1), add.step(2))).run()',
    "many: Group[float] = add.steps([1, 2], width=4)",
    'node: Handle[float] = (await Flow("f", chain(add.step(1))).submit()).node(add.step(1))',
    'text: str = app.sync(app.sync(resize.submit("a", 1)).result())',
    "steps = [step.percent for step in app.sync.iterate((await add.submit(1)).progress())]",
    'handle = await app.submit("q", b"raw", priority=3, tags=["a"])',
    'answer: Answer[str] = await app.request(resize, "cat.png", width=320)',
    'answer: Answer[float] = await add.options(same="refresh").request(1)',
    "asked: Asked[float] = await app.send_request(add, 1)",
    "number: float = (await (await add.find_request(1)).answer()).value",
    "maybe: Answer[float] | None = await app.check(await add.send_request(1))",
    "await app.on_answer(await add.send_request(1), lambda asked: asked.answered().value + 1)",
    "numbers: list[float] = await gather([await add.send_request(1)])",
]

WRONG = {
    "resize.step(3, width=320)": 'No overload variant of "step"',
    "add.step(resize.step('a', 1).result)": 'No overload variant of "step"',
    'flow: Flow[str] = Flow("f", add.step(1))': "Flow",
    "await resize.submit(320, 320)": 'has incompatible type "int"; expected "str"',
    'await resize.submit("cat.png")': 'Missing positional argument "width"',
    'await resize.submit("cat.png", 320, True)': "Too many positional arguments",
    'await resize.submit("cat.png", widht=320)': 'Unexpected keyword argument "widht"',
    'await resize.run("cat.png", "wide")': 'has incompatible type "str"; expected "int"',
    'await add.options(priority=1).submit("one")': 'has incompatible type "str"; expected "int"',
    'add("one")': 'has incompatible type "str"; expected "int"',
    'resize.call("a", width="wide")': 'has incompatible type "str"; expected "int"',
    'number: int = await resize.run("cat.png", 320)': 'expression has type "str"',
    "handle: Handle[str] = await add.submit(1)": 'expression has type "Handle[float]"',
    'add.options(priority="high")': 'has incompatible type "str"; expected "int"',
    "add.options(colour=1)": 'Unexpected keyword argument "colour"',
    "app.task(retires=5)": 'did you mean "retries"?',
    "text: str = app.sync(add.run(1))": 'expression has type "float"',
    'await app.request(add, "one")': 'has incompatible type "str"; expected "int"',
    'await app.send_request(resize, "cat.png")': 'Missing positional argument "width"',
    "answer: Answer[str] = await add.request(1)": 'expression has type "Answer[float]"',
    'add.options(same="twice")': "has incompatible type",
    'await app.submit("q", "text")': 'has incompatible type "str"; expected "bytes | Uploaded"',
}


@cache
def findings(folder: Path) -> dict[str, str]:
    """Check one program for each line, in one run, and return what was found in each."""
    lines = [*RIGHT, *WRONG]
    for number, line in enumerate(lines):
        (folder / f"case_{number}.py").write_text(PROGRAM.replace("{line}", line))
    config = folder / "mypy.ini"
    config.write_text(
        f"[mypy]\nstrict = True\nmypy_path = {ROOT / 'src'}\ncache_dir = {folder / 'cache'}\n"
    )
    command = [sys.executable, "-m", "mypy", "--config-file", str(config), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: dict[str, str] = dict.fromkeys(lines, "")
    for number, text in re.findall(r"case_(\d+)\.py:\d+: error: (.*)", done.stdout):
        found[lines[int(number)]] += text + "\n"
    return found


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("typing")


@pytest.mark.parametrize("line", RIGHT)
def test_right_use_passes(folder: Path, line: str) -> None:
    assert findings(folder)[line] == ""


@pytest.mark.parametrize("line", WRONG)
def test_wrong_use_is_an_error(folder: Path, line: str) -> None:
    assert WRONG[line] in findings(folder)[line]
