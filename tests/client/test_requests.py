"""Requests: one run for all who ask, and the answer here, later, or after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from jackalope import (
    Answer,
    Asked,
    ConfigError,
    Jackalope,
    Rejected,
    TaskFailed,
    Timeout,
    as_completed,
    gather,
)
from jackalope.core.shapes.request import How, identity_of
from jackalope.tasks.definition import TaskDefinition
from tests.client.harness import BrokerProcess, Hand, House, open_house, run
from tests.client.peer import PATIENCE_S


def define(app: Jackalope, **choices: Any) -> Any:
    @app.task(queue="sums", name="add", version="1", **choices)
    def add(a: int, b: int = 1, *, scale: float = 1.0) -> float:
        if a < 0:
            raise ValueError("negative")
        return (a + b) * scale

    return add


# Asking.


@pytest.mark.feature("J2", "J5")
def test_a_second_request_is_answered_without_a_run() -> None:
    async def scenario() -> None:
        async with open_house() as house, house.app() as app, Hand(app, "sums") as hand:
            add = define(app)
            first = await add.request(1, 2)
            assert (first.value, first.how, first.task) == (3.0, How.MISS, hand.ran[0])
            again = await app.request(add, 1, b=2)
            assert (again.value, again.how, again.task) == (3.0, How.HIT, first.task)
            assert again.identity == first.identity == add.identity(1, 2)
            assert (again.worker, again.made_us > 0) == ("hand", True)
            other = await add.request(1, 3)
            assert (other.value, other.how) == (4.0, How.MISS)
            assert len(hand.ran) == 2

    run(scenario())


@pytest.mark.feature("J4")
def test_those_who_ask_at_once_share_one_run() -> None:
    async def scenario() -> None:
        async with open_house() as house, house.app() as app, house.app() as other:
            mine, theirs = define(app), define(other)
            asked = [await mine.send_request(1), await theirs.send_request(1)]
            asked += await asyncio.gather(*[theirs.send_request(1) for _ in range(8)])
            assert [each.how for each in asked] == [How.MISS] + [How.JOINED] * 9
            assert {each.id for each in asked} == {asked[0].id}
            async with Hand(app, "sums") as hand:
                assert await gather(asked) == [2.0] * 10
                assert len(hand.ran) == 1
            view = await asked[0].provenance()
            assert (view.uses, view.worker, view.version) == (9, "hand", "1")

    run(scenario())


@pytest.mark.feature("J3")
def test_an_error_is_raised_and_the_next_request_runs_again() -> None:
    async def scenario() -> None:
        async with open_house() as house, house.app() as app, Hand(app, "sums") as hand:
            add = define(app, retries=0)
            for _ in range(2):
                with pytest.raises(TaskFailed, match="negative"):
                    await add.request(-1)
            assert len(hand.ran) == 2
            found = await add.find_request(-1)
            with pytest.raises(TaskFailed, match="negative"):
                await found.check()

    run(scenario())


def test_refresh_and_bypass_run() -> None:
    async def scenario() -> None:
        async with open_house() as house, house.app() as app, Hand(app, "sums") as hand:
            add = define(app)
            await add.request(1)
            fresh = await add.options(same="refresh").request(1)
            assert (fresh.how, fresh.task) == (How.REFRESH, hand.ran[1])
            alone = await add.options(same="run").request(1)
            assert (alone.how, alone.task, alone.identity) == (How.BYPASS, hand.ran[2], b"")
            hit = await add.request(1)
            assert (hit.how, hit.task) == (How.HIT, fresh.task)

    run(scenario())


def test_an_ordinary_submit_to_a_queue_that_shares_has_the_handle_of_who_serves_it() -> None:
    async def scenario() -> None:
        async with open_house() as house, house.app() as app:
            add = define(app)
            await app.declare_queue("sums", changes={"same": "cached"})
            first, second = await add.submit(1), await add.submit(1)
            many = await add.submit_many([(1,), (2,), (1,)])
            raw = await app.submit("raw", b"raw", same="cached")
            same_raw = await app.submit("raw", b"raw", same="cached")
            assert first.id == second.id == many[0].id == many[2].id != many[1].id
            assert raw.id == same_raw.id
            async with Hand(app, "sums") as hand:
                assert await add.run(1) == 2.0
                assert await gather([first, second, *many]) == [2.0, 2.0, 2.0, 3.0, 2.0]
                assert len(hand.ran) == 2

    run(scenario())


def test_a_run_that_is_served_by_another_task_waits_for_that_one() -> None:
    async def scenario() -> None:
        async with open_house() as house, house.app() as app:
            add = define(app, same="unique")
            first = await add.submit(1)
            running = asyncio.create_task(add.run(1))
            async with asyncio.timeout(PATIENCE_S):
                while not any(line.what == "joined" for line in await first.history()):
                    pass
            async with Hand(app, "sums") as hand:
                assert await running == 2.0
                assert hand.ran == [first.id]

    run(scenario())


def test_an_answer_outlives_the_retention_of_its_task(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_house(tmp_path) as house, house.app() as app, Hand(app, "sums") as hand:
            add = define(app)
            await app.declare_queue("sums", changes={"retention_us": 0})
            first = await add.request(1)
            await house.broker.flush()  # The task leaves memory, and history forgets what it may.
            again = await add.request(1)
            assert (again.value, again.how, again.task) == (2.0, How.HIT, first.task)
            await app.act_on_answers("purge")
            await house.broker.flush()
            with pytest.raises(Rejected, match="no task"):
                await app.find(first.task)
            assert len(hand.ran) == 1

    run(scenario())


def test_large_arguments_and_answers() -> None:
    async def scenario() -> None:
        async with open_house() as house, house.app() as app, Hand(app, "default") as hand:

            @app.task(content="bytes")
            def double(data: bytes) -> bytes:
                return data * 2

            body = bytes(range(256)) * 400
            first, again = await double.request(body), await double.request(body)
            assert first.value == again.value == body * 2
            assert (first.how, again.how) == (How.MISS, How.HIT)
            assert len(hand.ran) == 1

    run(scenario())


# Hearing of it later.


@pytest.mark.feature("J5")
def test_check_tells_whether_there_is_an_answer() -> None:
    async def scenario() -> None:
        async with open_house() as house, house.app() as app:
            add = define(app)
            asked = await app.send_request(add, 5)
            assert await app.check(asked) is None
            assert await app.check(asked.identity) is None
            with pytest.raises(ConfigError, match="no answer yet"):
                asked.answered()
            async with Hand(app, "sums"):
                assert (await asked.answer()).value == 6.0
            answer: Answer[Any] | None = await app.check(asked.identity.hex())
            assert answer is not None
            assert (answer.value, answer.how) == (6.0, How.HIT)

    run(scenario())


@pytest.mark.feature("J5")
def test_a_callback_is_called_when_the_answer_comes_and_at_once_if_it_has() -> None:
    async def scenario() -> None:
        async with open_house() as house, house.app() as app:
            add = define(app)
            answers: asyncio.Queue[Asked[float]] = asyncio.Queue()
            asked = await add.send_request(1)
            await app.on_answer(asked, answers.put_nowait)
            await app.on_answer(asked.identity, answers.put_nowait)
            assert answers.empty()
            async with Hand(app, "sums"):
                for _ in range(2):
                    assert (await answers.get()).answered().value == 2.0
            await app.on_answer(asked, answers.put_nowait)
            assert (await answers.get()).answered().value == 2.0

    run(scenario())


def test_a_callback_that_is_a_coroutine_function_is_awaited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with open_house() as house, house.app() as app, Hand(app, "sums"):
            add, done = define(app), asyncio.Event()

            async def fail(_: Asked[float]) -> None:
                raise RuntimeError("of the callback")

            async def take(asked: Asked[float]) -> None:
                await asyncio.sleep(0)
                assert asked.answered().value == 2.0
                done.set()

            asked = await add.send_request(1)
            await app.on_answer(asked, fail)
            await app.on_answer(asked, take)
            await done.wait()
            assert "of the callback" in caplog.text

    run(scenario())


def test_a_request_may_have_a_time() -> None:
    async def scenario() -> None:
        async with open_house() as house, house.app() as app:
            add = define(app)
            for ask in (
                add.options(result_timeout=0.05).request,
                add.options(result_timeout=0).run,
            ):
                with pytest.raises(Timeout, match="did not end within"):
                    await ask(1)
            async with Hand(app, "sums"):
                assert (await add.options(result_timeout=PATIENCE_S).request(1)).value == 2.0

    run(scenario())


def test_a_keyword_timeout_is_the_functions_own() -> None:
    async def scenario() -> None:
        async with open_house() as house, house.app() as app:

            @app.task(queue="sums")
            def wait(timeout: float) -> float:
                return timeout * 2

            async with Hand(app, "sums"):
                asked = await wait.options(result_timeout=PATIENCE_S).request(timeout=3)
                assert asked.value == 6
                sent = await wait.send_request(timeout=4)
                assert (await sent.answer(timeout=PATIENCE_S)).value == 8

    run(scenario())


@pytest.mark.feature("J6")
def test_an_unknown_request_is_refused() -> None:
    async def scenario() -> None:
        async with open_house() as house, house.app() as app:
            add = define(app)
            unknown: list[Coroutine[Any, Any, Any]] = [
                app.on_answer(bytes(32), print),
                app.find_request("00" * 32),
                app.check(bytes(32)),
                app.find_answer(bytes(32)),
                add.find_request(1),
            ]
            for asking in unknown:
                with pytest.raises(Rejected) as refused:
                    await asking
                assert refused.value.code == "unknown_request"
            with pytest.raises(ConfigError, match="no identity"):
                await app.find_request("abc")

    run(scenario())


@pytest.mark.feature("J26")
def test_many_are_waited_for_at_once() -> None:
    async def scenario() -> None:
        async with open_house() as house, house.app() as app, Hand(app, "sums"):
            add = define(app)
            asked = [await add.send_request(number % 10) for number in range(30)]
            values = [await each.result() async for each in as_completed(asked)]
            assert sorted(values) == sorted(number % 10 + 1.0 for number in range(30))

    run(scenario())


@pytest.mark.feature("J7")
def test_what_was_missed_while_the_connection_was_lost_is_told(tmp_path: Path) -> None:
    """Also to another client, that knows nothing but what it asks for."""

    async def scenario() -> None:
        house = House(tmp_path)
        await house.start()
        async with house.app() as app:
            add = define(app)
            asked = await add.send_request(1)
            answers: asyncio.Queue[Asked[float]] = asyncio.Queue()
            await app.on_answer(asked, answers.put_nowait)
            waiting = asyncio.create_task(asked.answer())
            await house.stop()
            await house.start()
            async with Hand(app, "sums") as hand:
                assert (await waiting).value == (await answers.get()).answered().value == 2.0
                assert len(hand.ran) == 1
        async with house.app() as restarted:
            found = await define(restarted).find_request(1)
            assert (await found.answer()).value == 2.0
            assert (await define(restarted).request(1)).how is How.HIT
        await house.stop()

    run(scenario())


@pytest.mark.feature("J36")
def test_a_broker_that_is_killed_forgets_neither_request_nor_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = BrokerProcess(tmp_path)
        broker.start()
        try:
            async with broker.app() as app:
                add = define(app)
                asked = [await add.send_request(1), await add.send_request(1)]
                broker.kill()
                broker.start()
                async with Hand(app, "sums") as hand:
                    assert await gather(asked) == [2.0, 2.0]
                    assert len(hand.ran) == 1
                    broker.kill()
                    broker.start()
                    again = await add.request(1)
                    assert (again.value, again.how) == (2.0, How.HIT)
        finally:
            broker.kill()

    run(scenario())


# What is kept.


def test_answers_are_listed_pinned_and_purged() -> None:
    async def scenario() -> None:
        async with open_house() as house, house.app() as app, Hand(app, "sums"):
            add = define(app)
            first, second = await add.request(1), await add.request(2)
            await add.request(1)
            views = await app.answers(queue="sums", name="add", version="1")
            assert [view.task for view in views] == [first.task, second.task]
            assert (views[0].uses, views[0].used_by, views[0].size > 0) == (1, "tester", True)
            assert await app.answers(version="2") == []
            assert (await app.act_on_answers("pin", [first.identity])).changed == 1
            assert (await app.find_answer(first.identity.hex())).pinned_by == "tester"
            assert (await app.act_on_answers("unpin", [first.identity])).changed == 1
            purged = await app.act_on_answers("purge", [first.identity, bytes(32)])
            assert (purged.changed, len(purged.refused)) == (1, 1)
            assert (await app.act_on_answers("purge", name="add")).changed == 1
            assert await app.answers() == []
            assert (await add.request(1)).how is How.MISS

    run(scenario())


def test_the_sync_facade_asks_as_well() -> None:
    app = Jackalope.embedded()
    add = define(app)
    app.work()
    try:
        assert app.sync(add.request(1)).value == 2.0
        asked = app.sync(app.send_request(add, 1))
        checked = app.sync(asked.check())
        assert checked is not None
        assert checked.value == 2.0
    finally:
        app.sync.close()
        app.stop()


# Identity.


@pytest.mark.feature("J1")
def test_equal_calls_have_one_identity() -> None:
    add = define(Jackalope("jackalope://nowhere"))
    assert add.identity(1, 2) == add.identity(1, b=2) == add.identity(a=1, b=2)
    assert len({add.identity(1), add.identity(1, 1), add.identity(1, scale=2.0)}) == 3

    def place(options: dict[str, int], names: set[str]) -> None: ...

    task = TaskDefinition(place)
    letters = [chr(65 + n) for n in range(20)]
    one = task.canonical_payload(({"b": 1, "a": 2}, set(letters)), {})
    assert one == task.canonical_payload(({"a": 2, "b": 1}, {*letters[::-1]}), {})


def test_the_identity_is_that_of_the_reference() -> None:
    app = Jackalope("jackalope://nowhere")

    @app.task(queue="images", name="app.resize", version="2")
    def resize(path: str, width: int) -> str:
        return path

    payload = bytes.fromhex("9292a76361742e706e67cd014080")
    assert resize.identity("cat.png", width=320) == identity_of(
        "images", "app.resize", "", "2", payload
    )


def test_without_a_version_the_source_is_the_version() -> None:
    app = Jackalope("jackalope://nowhere")

    def make(text: str) -> Any:
        space: dict[str, Any] = {}
        exec(text, space)  # noqa: S102
        return space["f"]

    def f(a: int) -> int:
        return a

    plain = TaskDefinition(f, name="f")
    assert len(plain.fingerprint) == 16
    assert plain.fingerprint == TaskDefinition(app.task(f).definition.function).fingerprint
    old = plain.fingerprint

    def f(a: int) -> int:  # type: ignore[no-redef]
        return a + 1

    assert TaskDefinition(f, name="f").fingerprint != old
    assert TaskDefinition(make("def f(): pass"), name="f").fingerprint == ""


def test_an_unknown_word_is_named() -> None:
    add = define(Jackalope("jackalope://nowhere"))
    with pytest.raises(ConfigError, match="same: one of run, unique, cached, refresh, not 'twice'"):
        add.options(same="twice")
