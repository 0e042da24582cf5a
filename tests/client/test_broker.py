"""The client against the real broker."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jackalope import (
    ConnectionLost,
    Filter,
    Jackalope,
    Reason,
    Rejected,
    State,
    TaskFailed,
    Timeout,
    as_completed,
    gather,
)
from jackalope.broker.access import hash_of, id_of, new_token
from jackalope.core.api_key import ApiKey, Permission
from jackalope.task_ids import new_task_id
from tests.client.harness import BrokerProcess, Hand, House, open_house, run
from tests.client.peer import until


class Size(msgspec.Struct):
    width: int
    height: int


@dataclasses.dataclass
class Picture:
    path: str
    size: Size


class BadWidth(ValueError):
    pass


class Tasks:
    """The application under test."""

    def __init__(self, app: Jackalope) -> None:
        @app.task(name="resize", queue="images")
        def resize(path: str, width: int = 10) -> Picture:
            if width < 0:
                raise BadWidth(f"{width} is no width")
            return Picture(path, Size(width, 2 * width))

        @app.task(name="double", queue="images")
        def double(number: int) -> int:
            return 2 * number

        @app.task(name="join", queue="images", content="json")
        def join(words: list[str], sep: str = " ") -> str:
            return sep.join(words)

        @app.task(name="shout", queue="images", content="bytes")
        def shout(data: bytes) -> bytes:
            return data.upper()

        self.resize, self.double, self.join, self.shout = resize, double, join, shout


Test = Callable[[House, Jackalope, Tasks], Coroutine[Any, Any, None]]


def with_broker(test: Test, folder: Path | None = None, *, on_uvloop: bool = True) -> None:
    async def whole() -> None:
        async with open_house(folder) as house:
            app = house.app()
            try:
                await test(house, app, Tasks(app))
            finally:
                await app.close()

    run(whole(), on_uvloop=on_uvloop)


# From submit to result.


@pytest.mark.parametrize("on_uvloop", [False, True])
@pytest.mark.feature("T37")
@pytest.mark.feature("D23", "D30")
def test_results_come_back_with_their_types(on_uvloop: bool) -> None:
    async def test(_: House, app: Jackalope, tasks: Tasks) -> None:
        handle = await tasks.resize.submit("cat.png", width=320)
        assert (await handle.status()).state is State.READY
        async with Hand(app, "images"):
            assert await handle.result(timeout=10) == Picture("cat.png", Size(320, 640))
            assert await tasks.resize.run("dog.png") == Picture("dog.png", Size(10, 20))
            assert await tasks.join.run(["a", "b"], sep="-") == "a-b"
            assert await tasks.shout.run(b"abc") == b"ABC"
            again = app.handle(handle.id, returns=Picture)
            assert await again.result(timeout=10) == Picture("cat.png", Size(320, 640))

    with_broker(test, on_uvloop=on_uvloop)


def test_errors_come_back_with_type_message_and_trace() -> None:
    async def test(_: House, app: Jackalope, tasks: Tasks) -> None:
        async with Hand(app, "images"):
            handle = await tasks.resize.options(retries=0).submit("cat.png", -1)
            with pytest.raises(TaskFailed) as raised:
                await handle.result(timeout=10)
            failed = raised.value
            assert (failed.state, failed.reason) == (State.DEAD, Reason.FAILED)
            assert failed.error is not None
            assert failed.error.type == f"{BadWidth.__module__}.BadWidth"
            assert failed.error.message == "-1 is no width"
            assert "in resize" in failed.error.trace
            assert "in resize" in failed.__notes__[0]
            with pytest.raises(TaskFailed, match="-1 is no width"):
                await tasks.resize.options(retries=0).run("cat.png", -1)
            badly_typed = await app.submit("images", b"\x92\x91\x01\x80", name="resize", retries=0)
            with pytest.raises(TaskFailed, match="argument 'path': Expected `str`, got `int`"):
                await badly_typed.result(timeout=10)

    with_broker(test)


def test_failed_task_is_retried_and_may_then_succeed() -> None:
    async def test(_: House, app: Jackalope, tasks: Tasks) -> None:
        tries = Counter[str]()

        @app.task(name="flaky", queue="images", retries=3, retry_delay=0)
        def flaky() -> str:
            tries["flaky"] += 1
            if tries["flaky"] < 3:
                raise OSError("not yet")
            return "done"

        async with Hand(app, "images"):
            handle = await flaky.submit()
            assert await handle.result(timeout=10) == "done"
            assert (await handle.status()).failures == 2

    with_broker(test)


def test_thousands_of_tasks(tmp_path: Path) -> None:
    async def test(_: House, app: Jackalope, tasks: Tasks) -> None:
        async with Hand(app, "images") as hand:
            handles = await tasks.double.submit_many((n,) for n in range(5_000))
            singles = await asyncio.gather(*[tasks.double.submit(n) for n in range(1_000)])
            assert await gather(handles, timeout=30) == [2 * n for n in range(5_000)]
            seen = [handle async for handle in as_completed(singles, timeout=30)]
            assert {handle.id for handle in seen} == {handle.id for handle in singles}
            doubled = [number async for number in tasks.double.map(range(100))]
            assert doubled == [2 * n for n in range(100)]
            assert Counter(hand.ran).most_common(1)[0][1] == 1

    with_broker(test, tmp_path)


def test_large_values_travel(tmp_path: Path) -> None:
    async def test(_: House, app: Jackalope, tasks: Tasks) -> None:
        async with Hand(app, "images"):
            for size in (64 * 1024, 64 * 1024 + 1, 1024 * 1024, 7 * 1024 * 1024):
                assert len(await tasks.shout.run(b"a" * size)) == size
            # In parts; this worker is one of those that cannot fetch it.
            handle = await tasks.shout.options(retries=0).submit(bytes(17 * 1024 * 1024))
            with pytest.raises(TaskFailed, match="PayloadTooLarge"):
                await handle.result()
            assert await tasks.shout.run(b"still there") == b"STILL THERE"

    with_broker(test, tmp_path)


def test_result_that_is_forgotten_at_once_is_not_missed() -> None:
    async def test(_: House, app: Jackalope, tasks: Tasks) -> None:
        await app.declare_queue("images", changes={"retention_us": 0})
        async with Hand(app, "images"):
            results = await asyncio.gather(*[tasks.double.run(n) for n in range(200)])
            assert results == [2 * n for n in range(200)]

    with_broker(test)


def test_time_for_a_result_is_over() -> None:
    async def test(_: House, app: Jackalope, tasks: Tasks) -> None:
        handle = await tasks.double.submit(1)
        with pytest.raises(Timeout, match=r"did not end within 0\.02 s"):
            await handle.result(timeout=0.02)
        async with Hand(app, "images"):
            assert await handle.result(timeout=10) == 2

    with_broker(test)


def test_unknown_task_is_told_at_once() -> None:
    async def test(_: House, app: Jackalope, tasks: Tasks) -> None:
        handle = app.handle(new_task_id())
        for ask in (handle.result, handle.status, handle.explain, handle.history, handle.kill):
            with pytest.raises(Rejected) as raised:
                await ask()
            assert raised.value.code == "unknown_task"

    with_broker(test)


# Choices.


def test_choices_are_kept() -> None:
    async def test(_: House, app: Jackalope, tasks: Tasks) -> None:
        first = await tasks.double.options(
            priority=201, key="k", tags=["t"], alias="mine", headers={"trace": "x"}, held=True
        ).submit(1)
        seen = await app.find(alias="mine", with_bodies=True)
        assert seen.id == first.id
        assert (seen.state, seen.priority, seen.key, seen.tags) == (State.HELD, 201, "k", ("t",))
        assert seen.headers == {"trace": "x"}
        assert (seen.name, seen.by) == ("double", "tester")
        assert seen.payload == tasks.double.definition.payload((1,), {})
        with pytest.raises(Rejected) as raised:
            await tasks.double.options(alias="mine").submit(2)
        assert raised.value.code == "duplicate_alias"

    with_broker(test)


def test_dependencies_parents_and_times() -> None:
    async def test(_: House, app: Jackalope, tasks: Tasks) -> None:
        first = await tasks.double.submit(1)
        second = await tasks.double.options(depends_on=[first]).submit(2)
        later = await tasks.double.options(delay=1000).submit(3)
        child = await tasks.double.options(parent=later).submit(4)
        assert (await second.status()).waiting_for == (first.id,)
        assert (await later.status()).state is State.SCHEDULED
        assert (await second.explain()).causes[0].why
        assert await later.kill() is True
        assert await child.wait(timeout=10) is State.KILLED
        with pytest.raises(Rejected) as raised:
            await tasks.double.options(parent=later).submit(5)
        assert raised.value.code == "parent_ended"
        async with Hand(app, "images") as hand:
            assert await second.result(timeout=10) == 4
            assert hand.ran == [first.id, second.id]

    with_broker(test)


def test_submit_with_the_same_id_is_one_task() -> None:
    async def test(_: House, app: Jackalope, tasks: Tasks) -> None:
        mine = tasks.double.options(id=new_task_id())
        one, two = await mine.submit(1), await mine.submit(1)
        assert one == two
        with pytest.raises(Rejected) as raised:
            await mine.submit(2)
        assert raised.value.code == "id_conflict"
        assert len([task async for task in app.tasks()]) == 1

    with_broker(test)


def test_stale_parent_cannot_submit_children() -> None:
    async def test(_: House, app: Jackalope, tasks: Tasks) -> None:
        parent = await tasks.double.submit(1)

        class Context:
            id = parent.id
            fence = 999

        with pytest.raises(Rejected) as raised:
            await tasks.double.options(parent=Context()).submit(1)
        assert raised.value.code == "stale_fence"

    with_broker(test)


# Looking and acting.


def test_actions_change_tasks() -> None:
    async def test(_: House, app: Jackalope, tasks: Tasks) -> None:
        handle = await tasks.double.submit(1)
        assert await handle.hold() is True
        assert (await handle.status()).state is State.HELD
        assert await handle.play() is True
        assert await handle.pause() is True
        assert (await handle.status()).state is State.PAUSED
        assert await handle.kill() is True
        with pytest.raises(TaskFailed, match="is killed"):
            await handle.result(timeout=10)
        assert await handle.retry() is True
        async with Hand(app, "images"):
            assert await handle.result(timeout=10) == 2
        with pytest.raises(Rejected) as raised:
            await handle.retry()
        assert raised.value.code == "wrong_state"
        whats = [line.what for line in await handle.history()]
        assert whats[:4] == ["submit", "hold", "play", "pause"]
        assert await handle.purge() is True
        with pytest.raises(Rejected, match="unknown_task"):
            await handle.status()

    with_broker(test)


def test_actions_by_filter_and_lists() -> None:
    async def test(_: House, app: Jackalope, tasks: Tasks) -> None:
        await tasks.double.submit_many((n,) for n in range(30))
        await tasks.join.submit(["a"])
        assert len([task async for task in app.tasks(name="double")]) == 30
        assert len([task async for task in app.tasks(7, states=["ready"])]) == 7
        counted = await app.act("kill", matching=Filter(name="double"), dry_run=True)
        assert (counted.changed, counted.more) == (30, False)
        acted = await app.act("kill", matching=Filter(name="double"))
        assert acted.changed == 30
        page = await app.page(10, states=["killed"], sort="created")
        assert len(page.tasks) == 10
        assert page.cursor
        both = await app.act("kill", [page.tasks[0], new_task_id()])
        assert [error.code for error in both.refused.values()] == ["unknown_task"]

    with_broker(test)


def test_queues_limits_workers_and_numbers() -> None:
    async def test(_: House, app: Jackalope, tasks: Tasks) -> None:
        policy = await app.declare_queue("images", preset="jobqueue", changes={"retries": 7})
        assert policy.retries == 7
        with pytest.raises(Rejected, match="colour: unknown"):
            await app.declare_queue("images", changes={"colour": "red"})
        await app.pause_queue("images")
        await app.limit_tag("gpu", 3)
        assert [(limit.tag, limit.limit) for limit in await app.limits()] == [("gpu", 3)]
        await app.limit_tag("gpu", None)
        assert await app.limits() == []
        async with Hand(app, "images"):
            handle = await tasks.double.submit(1)
            assert [queue.paused_by for queue in await app.queues()] == ["tester"]
            assert (await handle.explain()).causes[0].why == "queue_paused"
            assert [worker.worker for worker in await app.workers()] == ["hand"]
            await app.resume_queue("images")
            assert await handle.result(timeout=10) == 2
            await app.drain_worker("hand")
            assert [worker.state for worker in await app.workers()] == ["draining"]
        assert (await app.stats()).ended == {State.SUCCEEDED: 1}
        assert [batch.number for batch in await app.batches("images")] == [1]
        with pytest.raises(Rejected, match="unknown_worker"):
            await app.drain_worker("nobody")
        await app.delete_queue("images")
        assert await app.queues() == []

    with_broker(test)


def test_events_tell_the_life_of_a_task() -> None:
    async def test(_: House, app: Jackalope, tasks: Tasks) -> None:
        async with app.events(queue="images") as events, Hand(app, "images"):
            handle = await tasks.double.submit(1)
            seen = [await anext(events) for _ in range(3)]
            assert [event.what for event in seen] == ["submit", "assign", "finish"]
            assert {event.task for event in seen} == {handle.id}

    with_broker(test)


def test_namespaces_do_not_see_each_other() -> None:
    async def test(house: House, app: Jackalope, tasks: Tasks) -> None:
        handle = await tasks.double.submit(1)
        async with house.app(namespace="lab") as other:
            with pytest.raises(Rejected, match="unknown_task"):
                await other.find(handle)
            assert [task async for task in other.tasks()] == []

    with_broker(test)


# Back-pressure.


def test_full_queue_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jackalope.client.session.session._ROOM_WAIT_MAX_S", 0.05)

    async def test(_: House, app: Jackalope, tasks: Tasks) -> None:
        await app.declare_queue("images", changes={"depth_limit": 10})
        handles = await tasks.double.submit_many((n,) for n in range(10))
        with pytest.raises(Rejected) as raised:
            await tasks.double.submit(11)
        assert raised.value.code == "queue_full"
        assert raised.value.retry_after_us > 0
        waiting = asyncio.create_task(tasks.double.options(wait_for_room=True).submit(11))
        many = asyncio.create_task(
            tasks.double.options(wait_for_room=True).submit_many((n,) for n in range(25))
        )
        await asyncio.sleep(0.05)
        assert not waiting.done()
        async with Hand(app, "images") as hand:
            handles += [await waiting, *await many]
            await gather(handles, timeout=20)
            assert sorted(hand.ran) == sorted(handle.id for handle in handles)

    with_broker(test)


def test_api_keys_are_created_listed_and_revoked() -> None:
    token = new_token()
    key = ApiKey(id_of(token), hash_of(token), "ops", (Permission.ADMIN,))

    async def test(_: House, app: Jackalope, __: Tasks) -> None:
        with pytest.raises(Rejected, match="name"):
            await app.create_api_key(msgspec.structs.replace(key, name="x" * 1_000))
        assert await app.api_keys() == []
        await app.create_api_key(key)
        with pytest.raises(Rejected, match="API key"):
            await app.api_keys()
        async with Jackalope(app.address, token=token) as ops:
            assert [(each.id, each.name) for each in await ops.api_keys()] == [(key.id, "ops")]
            await ops.revoke_api_key(key.id)

    with_broker(test)


def test_connecting_without_waiting_fails_at_once() -> None:
    async def test() -> None:
        app = Jackalope("jackalope://127.0.0.1:1")
        with pytest.raises(ConnectionLost, match="cannot reach") as failed:
            await app.connect(wait=False)
        assert isinstance(failed.value.__cause__, ConnectionRefusedError)
        await app.close()

    asyncio.run(test())


# Restarts.


@pytest.mark.parametrize("on_uvloop", [False, True])
def test_restart_loses_nothing_and_doubles_nothing(tmp_path: Path, on_uvloop: bool) -> None:
    async def test(house: House, app: Jackalope, tasks: Tasks) -> None:
        async with Hand(app, "images") as hand:
            await app.connect()
            work = [
                asyncio.create_task(tasks.double.submit_many((n,) for n in range(4_000))),
                asyncio.create_task(tasks.double.submit_many((n,) for n in range(4_000))),
            ]
            single = [asyncio.create_task(tasks.double.submit(n)) for n in range(500)]
            for _ in range(3):
                await asyncio.sleep(0.02)
                await house.stop()
                single += [asyncio.create_task(tasks.double.submit(n)) for n in range(100)]
                await house.start()
            handles = [handle for part in work for handle in await part]
            handles += await asyncio.gather(*single)
            assert len(handles) == len({handle.id for handle in handles}) == 8_800
            await gather(handles, timeout=50)
            assert set(hand.ran) == {handle.id for handle in handles}
        seen = Counter([task.state async for task in app.tasks()])
        assert seen == {State.SUCCEEDED: 8_800}

    with_broker(test, tmp_path, on_uvloop=on_uvloop)


def test_results_are_awaited_across_a_restart(tmp_path: Path) -> None:
    async def test(house: House, app: Jackalope, tasks: Tasks) -> None:
        handles = await tasks.double.submit_many((n,) for n in range(50))
        waiting = asyncio.create_task(gather(handles))
        single = asyncio.create_task(tasks.double.run(21))
        await asyncio.sleep(0.02)
        await house.stop()
        await house.start()
        async with Hand(app, "images"):
            assert await waiting == [2 * n for n in range(50)]
            assert await single == 42

    with_broker(test, tmp_path)


def test_killed_broker_loses_nothing_that_it_accepted(tmp_path: Path) -> None:
    async def test(process: BrokerProcess) -> None:
        app = process.app()
        tasks = Tasks(app)
        submitted = []

        async def submit_all() -> None:
            for begin in range(0, 10_000, 500):
                numbers = range(begin, begin + 500)
                submitted.extend(await tasks.double.submit_many((n,) for n in numbers))
                submitted.extend(
                    await asyncio.gather(*[tasks.double.submit(n) for n in numbers[:50]])
                )

        work = asyncio.create_task(submit_all())
        for share in (2_000, 6_000):
            await until(lambda share=share: len(submitted) >= share)  # type: ignore[misc]
            process.kill()
            await asyncio.to_thread(process.start)
        await work
        assert len(submitted) == len({handle.id for handle in submitted}) == 11_000
        kept = {task.id async for task in app.tasks()}
        assert kept == {handle.id for handle in submitted}
        async with Hand(app, "images"):
            await gather(submitted, timeout=40)
        await app.close()

    process = BrokerProcess(tmp_path)
    process.start()
    try:
        run(test(process))
    finally:
        process.kill()


@pytest.mark.parametrize("kind", ["path", "file", "async iterator"])
def test_broker_killed_amid_an_upload(tmp_path: Path, kind: str) -> None:
    """What can be read again is sent again by itself; what cannot be is refused with the reason."""
    film = tmp_path / "film"
    film.write_bytes(b"head" + os.urandom(1024) * 20_000)

    async def halves() -> AsyncIterator[bytes]:
        data = film.read_bytes()
        yield data[: len(data) // 2]
        await amid(process)
        yield data[len(data) // 2 :]

    async def amid(process: BrokerProcess) -> None:
        process.kill()
        await asyncio.to_thread(process.start)

    async def test() -> None:
        app = process.app()
        if kind == "async iterator":
            with pytest.raises(Rejected, match="upload it again") as refused:
                await app.upload(halves())
            assert refused.value.code == "unknown_blob"
        else:
            with film.open("rb") as file:
                assert file.read(4) == b"head"
                uploading = asyncio.create_task(app.upload(film if kind == "path" else file))
                await until(lambda: any((tmp_path / "data" / "blobs").rglob("*")))
                assert not uploading.done()
                await amid(process)
                handle = await app.submit("q", await uploading)
            kept = b"".join(
                [part async for part in app.session().parts_of(handle.id, payload=True)]
            )
            assert kept == film.read_bytes()[0 if kind == "path" else 4 :]
        await app.close()

    process = BrokerProcess(tmp_path / "data")
    process.start()
    try:
        run(test())
    finally:
        process.kill()


def test_upload_without_a_broker_does_not_wait_for_ever() -> None:
    async def test() -> None:
        app = Jackalope("jackalope://127.0.0.1:1", timeout=0.05)
        with pytest.raises(Timeout, match="upload"):
            await app.upload(b"data")
        await app.close()

    run(test())


def test_large_task_submitted_twice_is_one_task(tmp_path: Path) -> None:
    async def test(_: House, app: Jackalope, tasks: Tasks) -> None:
        mine = tasks.shout.options(id=new_task_id())
        large = bytes(100_000)
        assert await mine.submit(large) == await mine.submit(large)
        with pytest.raises(Rejected, match="id_conflict"):
            await mine.submit(large[1:])

    with_broker(test, tmp_path)
