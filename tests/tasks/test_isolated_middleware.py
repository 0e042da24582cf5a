"""Middleware and dependencies of isolated tasks: they run in the process of the task."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jackalope import TaskFailed
from jackalope.testing import embedded
from tests.tasks import isolated


@pytest.fixture(scope="module", autouse=True)
def broker() -> Iterator[None]:
    with embedded(isolated.app):
        yield


def submit(task: Any, notes: Path) -> Any:
    chosen = task.options(headers={"notes": str(notes), "tenant": "acme"})
    return isolated.app.sync(chosen.submit(str(notes)))


def result(handle: Any) -> Any:
    return isolated.app.sync(handle.result(timeout=60))


def await_count(handle: Any, what: str) -> None:
    """Wait until a task has one of its failures or crashes behind it."""
    deadline = time.monotonic() + 60
    while not getattr(isolated.app.sync(handle.status()), what):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def read(notes: Path) -> tuple[list[str], set[int]]:
    """Return what was noted, and the processes that did."""
    lines = [line.partition(" ") for line in notes.read_text().splitlines()]
    return [what for _, _, what in lines], {int(process) for process, _, _ in lines}


@pytest.mark.parametrize("task", [isolated.plain, isolated.coroutine], ids=["plain", "coroutine"])
def test_hooks_run_around_the_task_in_its_process(task: Any, tmp_path: Path) -> None:
    assert result(submit(task, tmp_path / "notes")) == "session of acme"
    what, processes = read(tmp_path / "notes")
    done = "success session of acme"
    assert what == ["begin 1", "async begin", "runs", done, "async end", "end"]
    assert len(processes) == 1
    assert os.getpid() not in processes


def test_a_failure_that_is_tried_again_is_told_from_the_last(tmp_path: Path) -> None:
    handle = submit(isolated.failing, tmp_path / "notes")
    await_count(handle, "failures")
    isolated.app.sync(handle.retry())  # It need not wait until it is due.
    with pytest.raises(TaskFailed, match="as told"):
        result(handle)
    what, _ = read(tmp_path / "notes")
    first = ["begin 1", "async begin", "retry as told", "saw ValueError", "end"]
    last = ["begin 2", "async begin", "failure as told", "saw ValueError", "end"]
    assert what == first + last


def test_a_process_that_dies_takes_its_hooks_with_it(tmp_path: Path) -> None:
    handle = submit(isolated.dying, tmp_path / "notes")
    await_count(handle, "crashes")
    isolated.app.sync(handle.kill())
    what, _ = read(tmp_path / "notes")
    assert what[:3] == ["begin 1", "async begin", "runs"]
    assert "end" not in what
