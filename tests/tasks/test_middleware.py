"""Middleware and dependencies: what runs around a task, in which order, and when it fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Annotated, Any

import pytest

from jackalope import (
    INJECTED,
    ConfigError,
    Depends,
    Jackalope,
    Middleware,
    Reject,
    RetryLater,
    Submission,
    TaskFailed,
    current,
)
from jackalope.client.extending import MIDDLEWARES_MAX
from jackalope.core.lifecycle import State
from jackalope.testing import VirtualBroker, embedded

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


def new_app() -> Jackalope:
    return Jackalope("jackalope://nowhere.invalid")


class Recorder(Middleware):
    """Notes what happens around tasks, in order."""

    def __init__(self, notes: list[str], name: str = "") -> None:
        self.notes = notes
        self.name = name

    def around_submit(self, submission: Submission) -> Iterator[None]:
        self.notes.append(f"{self.name}submit {submission.name.rpartition('.')[2]}")
        yield
        self.notes.append(f"{self.name}submitted")

    def around_run(self, task: Any) -> Iterator[None]:
        self.notes.append(f"{self.name}begin {task.attempt}")
        try:
            yield
        finally:
            self.notes.append(f"{self.name}end")

    def on_success(self, task: Any, result: object) -> None:
        self.notes.append(f"{self.name}success {result}")

    def on_failure(self, task: Any, error: Exception) -> None:
        self.notes.append(f"{self.name}failure {error}")

    def on_retry(self, task: Any, error: Exception) -> None:
        self.notes.append(f"{self.name}retry {error}")


class AsyncRecorder(Middleware):
    """Does the same with coroutines and async generators."""

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes

    async def around_run(self, task: Any) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        self.notes.append("begin")
        try:
            yield
        except ValueError as error:
            await asyncio.sleep(0)
            self.notes.append(f"saw {error}")
            raise
        finally:
            self.notes.append("end")

    async def on_success(self, task: Any, result: object) -> None:
        await asyncio.sleep(0)
        self.notes.append(f"success {result}")

    async def on_failure(self, task: Any, error: Exception) -> None:
        await asyncio.sleep(0)
        self.notes.append(f"failure {error}")


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("kind", [Recorder, AsyncRecorder])
def test_hooks_of_either_kind_run_around_tasks_of_either_kind(is_async: bool, kind: Any) -> None:
    app, notes = new_app(), list[str]()
    app.middleware(kind(notes))

    def work(number: int) -> int:
        notes.append("work")
        if not number:
            raise ValueError("none")
        return number

    async def work_async(number: int) -> int:
        await asyncio.sleep(0)
        return work(number)

    task: Any = app.task(retries=0)(work_async if is_async else work)
    broker = VirtualBroker()
    good, bad = broker.submit(task, 7), broker.submit(task, 0)
    broker.run()
    assert good.result() == 7
    assert bad.state is State.DEAD
    if kind is Recorder:
        assert notes == [
            *("begin 1", "work", "success 7", "end"),
            *("begin 1", "work", "failure none", "end"),
        ]
    else:
        assert notes == [
            *("begin", "work", "success 7", "end"),
            *("begin", "work", "failure none", "saw none", "end"),
        ]


def test_the_first_is_the_outermost_and_hooks_of_a_submit_run_in_the_client() -> None:
    app, notes = new_app(), list[str]()
    app.middleware(Recorder(notes, "a "))
    app.middleware(Recorder(notes, "b "))

    @app.task
    async def work() -> int:
        return 1

    with embedded(app):
        assert app.sync(work.run()) == 1
        app.sync(work.submit_many([(), ()]))
    assert notes[:2] == ["a submit work", "b submit work"]
    run = ["a begin 1", "b begin 1", "a success 1", "b success 1", "b end", "a end"]
    assert notes[2:8] == run
    assert notes[8:10] == ["b submitted", "a submitted"]
    assert notes.count("a submit work") == notes.count("b submitted") == 3


def test_a_failure_is_a_retry_while_the_policy_has_one_left() -> None:
    app, notes = new_app(), list[str]()
    app.middleware(Recorder(notes))

    @app.task(retries=1)
    def work() -> None:
        raise ValueError(f"in attempt {current().attempt}")

    broker = VirtualBroker()
    handle = broker.submit(work)
    broker.finish()
    assert handle.state is State.DEAD
    told = [note for note in notes if note.startswith(("retry", "failure"))]
    assert told == ["retry in attempt 1", "failure in attempt 2"]


def test_rejections_and_requested_retries_are_told_as_what_they_are() -> None:
    app, notes = new_app(), list[str]()
    app.middleware(Recorder(notes))

    @app.task(retries=5)
    def never() -> None:
        raise Reject("never")

    @app.task
    def later() -> None:
        if current().attempt == 1:
            raise RetryLater("later", after=1)

    broker = VirtualBroker()
    broker.submit(never)
    broker.submit(later)
    broker.finish()
    told = [note for note in notes if note.startswith(("retry", "failure", "success"))]
    assert told == ["failure never", "retry later", "success None"]


def test_headers_bring_a_tenant_from_the_submitter_to_the_task() -> None:
    app = new_app()

    @app.middleware
    class Tenancy(Middleware):
        async def around_submit(self, submission: Submission) -> None:
            await asyncio.sleep(0)
            submission.headers["tenant"] = tenant.get()

        async def around_run(self, task: Any) -> None:
            await asyncio.sleep(0)
            tenant.set(task.headers["tenant"])

    @app.task
    def plain() -> str:
        return tenant.get()

    @app.task
    async def coroutine() -> str:
        return tenant.get()

    with embedded(app):
        token = tenant.set("acme")
        try:
            assert app.sync(plain.run()) == "acme"
            assert app.sync(coroutine.run()) == "acme"
            handle = app.sync(plain.options(headers={"own": 1}).submit())
            assert app.sync(handle.result(timeout=30)) == "acme"
        finally:
            tenant.reset(token)
        assert app.sync(plain.run()) == "nobody"


def test_what_on_success_raises_is_a_failure_and_what_on_failure_raises_changes_nothing() -> None:
    app = new_app()

    class Commit(Middleware):
        def on_success(self, task: Any, result: object) -> None:
            raise OSError("cannot commit")

        def on_failure(self, task: Any, error: Exception) -> None:
            raise RuntimeError("the hook itself is broken")

    app.middleware(Commit())

    @app.task(retries=0)
    def work() -> int:
        return 1

    broker = VirtualBroker()
    handle = broker.submit(work)
    broker.run()
    with pytest.raises(TaskFailed, match="OSError: cannot commit"):
        handle.result()


def test_a_hook_cannot_make_a_failure_disappear_but_replace_it() -> None:
    app = new_app()

    class Swallow(Middleware):
        def around_run(self, task: Any) -> Iterator[None]:
            try:
                yield
            except ValueError:
                pass
            except KeyError as error:
                raise Reject("translated") from error

    app.middleware(Swallow())

    @app.task(retries=0)
    def work(kind: str) -> None:
        raise ValueError("kept") if kind == "value" else KeyError("lost")

    broker = VirtualBroker()
    kept, replaced = broker.submit(work, "value"), broker.submit(work, "key")
    broker.run()
    with pytest.raises(TaskFailed, match="ValueError: kept"):
        kept.result()
    with pytest.raises(TaskFailed, match="translated"):
        replaced.result()


def test_a_wrong_hook_is_refused_where_it_is_added() -> None:
    app = new_app()
    with pytest.raises(ConfigError, match="must be a Middleware, not str"):
        app.middleware("sentry")  # type: ignore[type-var]
    for _ in range(MIDDLEWARES_MAX):
        app.middleware(Middleware())
    with pytest.raises(ConfigError, match="at most 100"):
        app.middleware(Middleware())


def test_hooks_come_before_the_first_connection() -> None:
    app = new_app()

    @app.task
    def work() -> None: ...

    with VirtualBroker(), app.sync:
        app.sync(work.submit())
        with pytest.raises(ConfigError, match="before the application is first used"):
            app.middleware(Middleware())


# Dependencies.


class Session:
    def __init__(self, notes: list[str]) -> None:
        self.notes = notes


NOTES: list[str] = []


def session() -> Iterator[Session]:
    NOTES.append("open")
    try:
        yield Session(NOTES)
    except ValueError as error:
        NOTES.append(f"rollback {error}")
        raise
    else:
        NOTES.append("commit")
    finally:
        NOTES.append("close")


async def session_async() -> AsyncIterator[Session]:
    await asyncio.sleep(0)
    for session_ in session():
        yield session_


def user(db: Annotated[Session, Depends(session)]) -> str:
    db.notes.append("user")
    return "ada"


async def role(
    who: str = Depends(user),
    db: Session = Depends(session),  # noqa: B008  the spelling that is tested
) -> str:
    db.notes.append(f"role of {who}")
    return "admin"


@pytest.fixture(autouse=True)
def _no_notes() -> None:
    NOTES.clear()


def test_dependencies_are_made_shared_and_taken_down_after_the_task() -> None:
    app = new_app()

    @app.task(retries=0)
    def plain(
        number: int,
        db: Annotated[Session, Depends(session)] = INJECTED,
        *,
        as_role: str = Depends(role),
    ) -> str:
        db.notes.append("work")
        if not number:
            raise ValueError("none")
        return as_role

    @app.task(retries=0)
    async def coroutine(
        number: int, who: Annotated[str, Depends(user)] = INJECTED, as_role: str = Depends(role)
    ) -> str:
        NOTES.append("work")
        return f"{who} {as_role} {number}"

    broker = VirtualBroker()
    good = broker.submit(plain, 1)
    broker.run()
    assert good.result() == "admin"
    assert NOTES == ["open", "user", "role of ada", "work", "commit", "close"]
    NOTES.clear()
    bad = broker.submit(plain, 0)
    broker.run()
    assert bad.state is State.DEAD
    assert NOTES[-3:] == ["work", "rollback none", "close"]
    NOTES.clear()
    other = broker.submit(coroutine, number=5)
    broker.run()
    assert other.result() == "ada admin 5"
    assert NOTES == ["open", "user", "role of ada", "work", "commit", "close"]


def test_an_async_generator_serves_a_plain_task() -> None:
    app = new_app()

    @app.task
    def work(db: Annotated[Session, Depends(session_async)] = INJECTED) -> int:
        db.notes.append("work")
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        return 1

    broker = VirtualBroker()
    handle = broker.submit(work)
    broker.run()
    assert handle.result() == 1
    assert NOTES == ["open", "work", "commit", "close"]


def test_a_dependency_may_stand_first_and_is_no_part_of_the_call() -> None:
    app = new_app()

    @app.task
    def work(db: Annotated[Session, Depends(session)], a: int, b: int = 2) -> int:
        return a * b

    broker = VirtualBroker()
    submit: Any = broker.submit
    handle = submit(work, 5)
    broker.run()
    assert handle.result() == 10
    with pytest.raises(TypeError, match="unexpected keyword argument 'db'"):
        submit(work, 5, db=1)
    assert set(work.definition.shape.dependencies) == {"db"}


def test_a_direct_call_makes_what_is_not_given() -> None:
    app = new_app()

    @app.task
    def work(a: int, db: Annotated[Session, Depends(session)] = INJECTED) -> int:
        db.notes.append("work")
        return a

    mine: list[str] = []
    assert work(3) == 3
    assert NOTES == ["open", "work", "commit", "close"]
    assert work(4, db=Session(mine)) == 4
    assert mine == ["work"]


def test_a_test_replaces_a_dependency() -> None:
    app, fake = new_app(), list[str]()

    @app.task
    async def work(db: Annotated[Session, Depends(session)] = INJECTED) -> int:
        db.notes.append("work")
        return 1

    broker = VirtualBroker()
    with app.override(session, lambda: Session(fake)):
        broker.submit(work)
        broker.run()
    assert (fake, NOTES) == (["work"], [])
    broker.submit(work)
    broker.run()
    assert NOTES == ["open", "work", "commit", "close"]


def test_one_that_is_not_cached_is_made_for_each() -> None:
    app, made = new_app(), list[int]()

    def number() -> int:
        made.append(1)
        return len(made)

    @app.task
    def work(
        a: int = Depends(number, cache=False),
        b: int = Depends(number, cache=False),
        c: int = Depends(number),
        d: int = Depends(number),
    ) -> list[int]:
        return [a, b, c, d]

    broker = VirtualBroker()
    handle = broker.submit(work)
    broker.run()
    assert handle.result() == [1, 2, 3, 3]


def test_what_cannot_be_made_is_said() -> None:
    app = new_app()

    def needs(something: int) -> int:
        return something

    def circle(again: int = INJECTED) -> int:
        return again

    circle.__defaults__ = (Depends(circle),)

    @app.task(retries=0)
    def lacking(a: int = Depends(needs)) -> int:
        return a

    @app.task(retries=0)
    def endless(a: int = Depends(circle)) -> int:
        return a

    @app.task(retries=0)
    def unknown(a: int = INJECTED) -> int:
        return a

    broker = VirtualBroker()
    handles = [broker.submit(lacking), broker.submit(endless)]
    broker.run()
    for handle, why in zip(
        handles, ("needs something, which nothing makes", "need each other"), strict=True
    ):
        with pytest.raises(TaskFailed, match=why):
            handle.result()
    with pytest.raises(ConfigError, match="a: nothing makes it"):
        broker.submit(unknown)
    with pytest.raises(ConfigError, match="takes a function, not int"):
        Depends(3)  # type: ignore[arg-type]


# Which failures are tried again.


@pytest.mark.parametrize(
    ("choices", "error", "attempts"),
    [
        ({}, ValueError, 3),
        ({"retry_on": OSError}, ValueError, 1),
        ({"retry_on": OSError}, ConnectionError, 3),
        ({"never_retry": (OSError, ValueError)}, ValueError, 1),
        ({"never_retry": OSError}, ValueError, 3),
        ({"retry_on": OSError, "never_retry": ConnectionError}, ConnectionError, 1),
    ],
)
def test_only_some_failures_are_tried_again(
    choices: dict[str, Any], error: type[Exception], attempts: int
) -> None:
    app = new_app()

    @app.task(retries=2, **choices)
    def work() -> None:
        raise error("no")

    broker = VirtualBroker()
    handle = broker.submit(work)
    assert broker.finish() == attempts
    assert handle.state is State.DEAD


@pytest.mark.parametrize("wrong", [3, "OSError", (OSError, 1), BaseException, [KeyboardInterrupt]])
def test_what_is_no_exception_is_refused(wrong: Any) -> None:
    app = new_app()
    with pytest.raises(ConfigError, match="retry_on: a type of exception, or a tuple of them"):
        app.task(retry_on=wrong)(lambda: None)
