"""What the tests of executors share: attempts, and somebody who hears how they end."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from jackalope.core.commands import RecordStep, Suspend
from jackalope.core.effects import Assignment
from jackalope.core.task import NO_OPTIONS
from jackalope.task_ids import new_task_id
from jackalope.worker.attempt import Attempt, Listener, Outcome
from tests.worker.application import app

WAIT_S = 20.0


class Ear(Listener):
    """A listener that remembers."""

    def __init__(self) -> None:
        self._ends: SimpleQueue[tuple[Attempt, Outcome]] = SimpleQueue()
        self.begun: list[Attempt] = []
        self.told: list[Attempt] = []
        self.rests: list[bool] = []
        self.progress: list[tuple[float | None, str]] = []
        self.questions: list[tuple[RecordStep | Suspend, Future[Any]]] = []

    def began(self, attempt: Attempt) -> None:
        self.begun.append(attempt)

    def ended(self, attempt: Attempt, outcome: Outcome) -> None:
        self._ends.put((attempt, outcome))

    def acknowledged(self, attempt: Attempt) -> None:
        self.told.append(attempt)

    def rested(self, attempt: Attempt, *, is_resting: bool) -> None:
        self.rests.append(is_resting)

    def progressed(self, attempt: Attempt, percent: float | None, note: str) -> None:
        self.progress.append((percent, note))

    def asked(self, _: Attempt, message: RecordStep | Suspend, answer: Future[Any]) -> None:
        self.questions.append((message, answer))

    def next(self, wait_s: float = WAIT_S) -> Outcome:
        return self._ends.get(timeout=wait_s)[1]

    def next_or_none(self) -> Outcome | None:
        try:
            return self._ends.get_nowait()[1]
        except Empty:
            return None


_fences = iter(range(1, 1_000_000))


def assignment(name: str, *args: Any, timeout_s: float = 0, **kwargs: Any) -> Assignment:
    definition = app.functions.get(name)
    payload = definition.payload(args, kwargs) if definition is not None else b""
    return Assignment(
        task=new_task_id(),
        fence=next(_fences),
        queue="default",
        name=name,
        key="",
        payload=payload,
        options=NO_OPTIONS,
        attempt=1,
        timeout_us=int(timeout_s * 1e6),
    )


def attempt_at(ear: Ear, name: str, *args: Any, **kwargs: Any) -> Attempt:
    return Attempt(assignment(name, *args, **kwargs), app.functions[name], ear)


def pids(path: Path) -> list[int]:
    """Return the processes that have reached a mark."""
    if not path.exists():
        return []
    return [int(line) for line in path.read_text().splitlines(keepends=True) if "\n" in line]


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def until(condition: Callable[[], object], wait_s: float = WAIT_S) -> None:
    """Wait for a condition, for a time."""
    end = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < end, "it did not come to pass in time"
        time.sleep(0.005)
