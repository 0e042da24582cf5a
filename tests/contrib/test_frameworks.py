"""Web frameworks and notebooks: connected as long as they live, and tasks within their context."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell

from jackalope import ConfigError, Jackalope, TaskFailed, current
from jackalope.contrib.asgi import lifespan
from jackalope.contrib.flask import init_app
from jackalope.contrib.notebook import watch
from jackalope.testing import embedded

pytest.importorskip("fastapi", reason="FastAPI is not installed")

from examples.web.api import api
from examples.web.tasks import app as web_app

WAIT_S = 30.0


def with_broker(app: Jackalope, test: Callable[[], Any]) -> None:
    with embedded(app):
        asyncio.run(asyncio.wait_for(test(), WAIT_S))


def test_the_example_takes_orders_and_shows_results() -> None:
    async def test() -> None:
        async with api.router.lifespan_context(api) as state:
            assert state is not None
            assert state["jackalope"] is web_app
            transport = httpx.ASGITransport(api)
            async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
                taken = await client.post("/orders/7", params={"to": "ada"})
                assert taken.status_code == 202
                shown: dict[str, Any] = {}
                while shown.get("state") != "succeeded":
                    shown = (await client.get(f"/tasks/{taken.json()['task']}")).json()
                assert shown["result"] == "order 7 to ada"
                assert (await client.get(f"/tasks/{'0' * 32}")).status_code == 404
        assert not web_app._sessions

    with_broker(web_app, test)


def test_a_lifespan_of_ones_own_runs_within() -> None:
    app, notes = Jackalope("jackalope://nowhere.invalid"), list[str]()

    @app.task
    async def work() -> int:
        return 1

    @asynccontextmanager
    async def inner(web: Any) -> AsyncIterator[dict[str, str]]:
        notes.append(f"begin {web}")
        yield {"mine": "too"}
        assert await work.run() == 1  # Still connected.
        notes.append("end")

    async def test() -> None:
        async with lifespan(app, inner)("web") as state:
            assert state == {"mine": "too", "jackalope": app}

    with_broker(app, test)
    assert notes == ["begin web", "end"]


def test_litestar_takes_it_as_it_is() -> None:
    litestar = pytest.importorskip("litestar", reason="Litestar is not installed")
    testing = pytest.importorskip("litestar.testing")
    app = Jackalope("jackalope://nowhere.invalid")

    @app.task
    async def add(a: int) -> int:
        return a + 1

    async def handler() -> int:
        return await add.run(2)

    web = litestar.Litestar([litestar.get("/add")(handler)], lifespan=[lifespan(app)])

    async def test() -> None:
        async with testing.AsyncTestClient(web) as client:
            assert (await client.get("/add")).json() == 3

    with_broker(app, test)


def test_a_wrong_address_stops_the_start() -> None:
    app = Jackalope("jackalope://127.0.0.1:1", timeout=0.1)

    async def test() -> None:
        with pytest.raises(Exception, match=r"127\.0\.0\.1"):
            async with lifespan(app)("web"):
                pytest.fail("it must not start")

    asyncio.run(test())


def test_tasks_of_flask_run_within_its_context() -> None:
    flask = pytest.importorskip("flask", reason="Flask is not installed")

    app, web = Jackalope("jackalope://nowhere.invalid"), flask.Flask("shop")
    web.config["GREETING"] = "hello"
    init_app(web, app)
    assert web.extensions["jackalope"] is app

    @app.task
    def greet(name: str) -> str:
        return f"{flask.current_app.config['GREETING']} {name}"

    @app.task
    async def greet_async(name: str) -> str:
        await asyncio.sleep(0)
        return f"{flask.current_app.config['GREETING']} {name}"

    @web.get("/<name>")
    def view(name: str) -> str:
        return f"{app.sync(greet.run(name))}, {app.sync(greet_async.run(name))}"

    with embedded(app):
        assert web.test_client().get("/ada").text == "hello ada, hello ada"


def test_a_notebook_shows_a_bar_until_the_end() -> None:
    app, shown = Jackalope("jackalope://nowhere.invalid"), list[str]()

    @app.task(retries=0, delay=0.2)
    async def work(fail: bool) -> int:
        current().progress(40, "<half>")
        if fail:
            raise ValueError("no")
        return 7

    async def test() -> None:
        async with app:
            assert await watch(await work.submit(False), shown.append) == 7
            assert "0 %" in shown[0]
            assert "width:40.0%" in shown[-2]
            assert "&lt;half&gt;" in shown[-2]
            assert "succeeded" in shown[-1]
            assert "width:100.0%" in shown[-1]
            with pytest.raises(TaskFailed):
                await watch(await work.submit(True), shown.append)
            assert "dead" in shown[-1]

    with_broker(app, test)


@pytest.fixture
def shell() -> Iterator[Any]:
    """Give a real IPython, as a kernel has it, which keeps what is displayed."""
    made: Any = InteractiveShell.instance()
    made.display_pub = CapturingDisplayPublisher()
    made.history_manager.enabled = False
    try:
        yield made
    finally:
        InteractiveShell.clear_instance()


def test_a_cell_shows_one_bar_that_is_replaced(shell: Any) -> None:
    app = Jackalope("jackalope://nowhere.invalid")

    @app.task(delay=0.2)
    async def work() -> int:
        current().progress(40, "half")
        return 7

    shell.push({"watch": watch, "work": work, "app": app})
    with embedded(app):
        cell = "async with app:\n    got = await watch(await work.submit())"
        ran = shell.run_cell(cell, store_history=False)
        ran.raise_error()
    assert shell.user_ns["got"] == 7
    first, *others = shell.display_pub.outputs
    assert not first.get("update")
    assert others
    assert all(each["update"] for each in others)
    assert len({each["transient"]["display_id"] for each in (first, *others)}) == 1
    shown = [each["data"]["text/html"] for each in others]
    assert any("width:40.0%" in each for each in shown)
    assert "succeeded" in shown[-1]


def test_outside_a_notebook_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def told() -> str:
        with pytest.raises(ConfigError) as caught:
            await watch(Jackalope().handle(bytes(15) + b"x"))
        return str(caught.value)

    assert asyncio.run(told()) == "watch: this is no notebook; pass show="
    monkeypatch.setitem(sys.modules, "IPython", None)
    assert asyncio.run(told()) == "watch: there is no IPython here; pass show="
