"""An application whose tasks run in processes of their own, with hooks and dependencies."""

import os
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

from jackalope import Depends, Jackalope, Middleware

app = Jackalope("jackalope://nowhere.invalid")

tenant: ContextVar[str] = ContextVar("tenant", default="none")

#: The file of a test, by the first argument of its tasks.
Notes = str


def note(where: Notes, what: str) -> None:
    """Add a line, with the process that wrote it."""
    with Path(where).open("a") as file:
        file.write(f"{os.getpid()} {what}\n")


class Noting(Middleware):
    """Notes what happens around tasks; the file is in their headers."""

    def around_run(self, task: Any) -> Iterator[None]:
        where, token = task.headers["notes"], tenant.set(task.headers["tenant"])
        note(where, f"begin {task.attempt}")
        try:
            yield
        except BaseException as error:
            note(where, f"saw {type(error).__name__}")
            raise
        finally:
            tenant.reset(token)
            note(where, "end")

    def on_success(self, task: Any, result: object) -> None:
        note(task.headers["notes"], f"success {result}")

    def on_failure(self, task: Any, error: Exception) -> None:
        note(task.headers["notes"], f"failure {error}")

    def on_retry(self, task: Any, error: Exception) -> None:
        note(task.headers["notes"], f"retry {error}")


class Awaiting(Middleware):
    """Does its part with an async generator, around plain functions and coroutines alike."""

    async def around_run(self, task: Any) -> AsyncIterator[None]:
        note(task.headers["notes"], "async begin")
        yield
        note(task.headers["notes"], "async end")


app.middleware(Noting())
app.middleware(Awaiting())


def session() -> Iterator[str]:
    yield f"session of {tenant.get()}"


@app.task(isolation="process")
def plain(where: Notes, db: Annotated[str, Depends(session)]) -> str:
    note(where, "runs")
    return db


@app.task(isolation="process")
async def coroutine(where: Notes, db: Annotated[str, Depends(session)]) -> str:
    note(where, "runs")
    return db


@app.task(isolation="process", retries=1)
def failing(where: Notes) -> None:
    raise ValueError("as told")


@app.task(isolation="process", retries=0)
def dying(where: Notes) -> None:
    note(where, "runs")
    os._exit(3)
