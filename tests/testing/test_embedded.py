from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest
import structlog

from jackalope import ConfigError, Jackalope, State, TaskFailed
from jackalope.storage import FolderBusy
from jackalope.testing import embedded

shop = Jackalope("jackalope://nowhere.invalid/shop")


@shop.task(queue="shop")
async def greet(name: str) -> str:
    return f"Hello, {name}!"


@shop.task(isolation="process")
def process_of() -> int:
    return os.getpid()


def test_a_broker_and_a_worker_inside_the_process() -> None:
    app = Jackalope.embedded()

    @app.task(queue="sums")
    async def add(a: int, b: int) -> int:
        return a + b

    @app.task(queue="sums")
    def shout(text: str) -> str:
        return text.upper()

    app.work()
    try:
        handles = app.sync(add.submit_many((n, n) for n in range(100)))
        assert [app.sync(handle.result(timeout=30)) for handle in handles] == [
            2 * n for n in range(100)
        ]
        assert app.sync(shout.run("hello")) == "HELLO"
    finally:
        app.sync.close()
        app.stop()
        app.stop()


def test_on_a_folder_everything_is_there_the_next_time(tmp_path: Path) -> None:
    app = Jackalope.embedded(tmp_path)

    async def submit() -> str:
        async with app:
            return (await app.submit("later", b"payload", alias="keep me")).id.hex()

    task = asyncio.run(submit())
    with pytest.raises(FolderBusy):
        Jackalope.embedded(tmp_path)
    app.stop()
    again = Jackalope.embedded(tmp_path)

    async def look() -> tuple[str, State]:
        async with again:
            view = await again.find(alias="keep me")
            return view.id.hex(), view.state

    assert asyncio.run(look()) == (task, State.READY)
    again.stop()


def test_only_an_embedded_broker_has_embedded_workers() -> None:
    with pytest.raises(ConfigError, match="jackalope worker"):
        Jackalope("jackalope://nowhere.invalid").work()


# An application that lives elsewhere.


def test_an_application_has_a_broker_for_a_while() -> None:
    with embedded(shop) as app:
        assert app.sync(greet.run("Ada")) == "Hello, Ada!"
        assert app.address.namespace == "shop"
    assert app.address.host == "nowhere.invalid"


def test_an_application_may_have_one_after_the_other() -> None:
    async def run_one() -> str:
        async with shop:
            return await greet.run("Bo")

    for _ in range(2):
        with embedded(shop):
            assert asyncio.run(run_one()) == "Hello, Bo!"


def test_a_worker_that_has_not_begun_is_stopped_too() -> None:
    for _ in range(10):
        with embedded(shop):
            pass
        assert not [each for each in threading.enumerate() if each.name == "jackalope-worker"]


def test_isolated_tasks_run_in_another_process() -> None:
    with embedded(shop) as app:
        assert app.sync(process_of.run()) != os.getpid()


def test_isolated_task_that_nobody_can_import_says_so() -> None:
    local = Jackalope("jackalope://nowhere.invalid")
    alone = local.task(isolation="process", retries=0)(os.getpid)
    with embedded(local) as app, pytest.raises(TaskFailed, match="put it into a module of its own"):
        app.sync(alone.run())


def test_an_embedded_broker_keeps_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    structlog.reset_defaults()  # Whoever captured lines before has said how they look.
    with embedded(shop) as app:
        app.sync(greet.run("Ada"))
    assert capfd.readouterr() == ("", "")
