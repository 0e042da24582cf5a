from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jackalope import ConfigError, Jackalope, State
from jackalope.storage import FolderBusy


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
