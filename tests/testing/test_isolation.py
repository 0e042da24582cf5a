"""A virtual broker is alone: nothing that runs under it reaches a broker over the network."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from jackalope import Jackalope, as_completed, current, gather
from jackalope.core.lifecycle import State
from jackalope.errors import Rejected, TaskFailed
from jackalope.testing import VirtualBroker


@pytest.fixture(scope="module", autouse=True)
def listener() -> Iterator[socket.socket]:
    """Listen where the application believes its broker to be, and answer nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        app.address = Jackalope(f"jackalope://127.0.0.1:{server.getsockname()[1]}").address
        yield server


@pytest.fixture(autouse=True)
def no_connection(listener: socket.socket) -> Iterator[None]:
    order.clear()
    yield
    with pytest.raises(BlockingIOError):
        listener.accept()


app = Jackalope(timeout=2)
order: list[str] = []


@app.task(queue="leaves")
async def leaf(number: int) -> int:
    order.append(f"leaf {number}")
    return number * 10


@app.task(queue="leaves", retries=1)
def moody(number: int) -> int:
    if current().attempt == 1:
        raise ValueError("not yet")
    return number


@app.task(queue="trees")
async def leave_alone(number: int) -> str:
    """Submit and spawn, and wait for neither."""
    submitted = await leaf.options(delay=60).submit(number)
    spawned = await current().spawn(leaf, number + 1)
    order.append("left")
    return f"{submitted} {spawned}"


@app.task(queue="trees")
async def wait_for_all(numbers: list[int]) -> list[int]:
    first = await current().spawn(leaf, numbers[0])
    rest = await leaf.submit_many([(number,) for number in numbers[1:]])
    found = [await first.result(), *await gather(rest)]
    order.append("parent")
    return found


@app.task(queue="trees")
def plain_parent(depth: int) -> int:
    """Wait for a child, to any depth, without an event loop."""
    if not depth:
        return 0
    handle = app.sync(plain_parent.submit(depth - 1))
    return 1 + app.sync(handle.result())


@app.task(queue="trees")
async def patient(number: int) -> int:
    return await moody.run(number) + await leaf.options(delay=3600).run(number)


@app.task(queue="trees")
async def wait_for_held(number: int) -> int:
    return await leaf.options(held=True).run(number)


@app.task(queue="trees", retries=1)
async def spawn_again() -> tuple[int, State]:
    child = await current().spawn(leaf, 7)
    value = await child.result()
    if current().attempt == 1:
        raise ValueError("try again")
    return value, (await child.status()).state


def test_children_run_in_the_virtual_broker() -> None:
    broker = VirtualBroker()
    handle = broker.submit(leave_alone, 1)
    assert broker.run() == 2
    assert order == ["left", "leaf 2"]
    later, spawned = handle.result().split()
    states = {task.id.hex(): task.state for task in broker.core.book.tasks.values()}
    assert (states[later], states[spawned]) == (State.SCHEDULED, State.SUCCEEDED)
    broker.advance(60)
    assert order == ["left", "leaf 2", "leaf 1"]


def test_a_parent_waits_for_its_children() -> None:
    broker = VirtualBroker(slots=1)
    handle = broker.submit(wait_for_all, [1, 2, 3])
    broker.run()
    assert handle.result() == [10, 20, 30]
    assert order == ["leaf 1", "leaf 2", "leaf 3", "parent"]
    assert (handle.attempts, handle.crashes) == (1, 0)


def test_plain_functions_wait_to_any_depth() -> None:
    broker = VirtualBroker(slots=2)
    handle = broker.submit(plain_parent, 5)
    broker.run()
    assert handle.result() == 5
    app.sync.close()


def test_virtual_time_passes_while_a_task_waits() -> None:
    broker = VirtualBroker()
    begin_us = broker.now_us
    handle = broker.submit(patient, 4)
    broker.run()
    assert (handle.result(), handle.crashes) == (44, 0)
    assert broker.now_us - begin_us == pytest.approx(3_605_000_000, abs=1_000_000)


def test_a_wait_that_nothing_ends_is_refused() -> None:
    broker = VirtualBroker()
    handle = broker.submit(wait_for_held, 1)
    broker.run()
    assert handle.failures == 1
    with pytest.raises(LookupError, match="scheduled"):
        handle.result()
    assert "never ends by itself" in str(handle.history()[-1].detail)


def test_a_later_attempt_finds_its_child() -> None:
    broker = VirtualBroker()
    handle = broker.submit(spawn_again)
    broker.finish()
    assert handle.result() == (70, State.SUCCEEDED)
    assert order == ["leaf 7"]


def test_the_application_itself_uses_it(virtual_broker: VirtualBroker) -> None:
    async def use() -> list[int]:
        handles = [await leaf.submit(number) for number in (1, 2)]
        ended = [await handle.result() async for handle in as_completed(handles)]
        with pytest.raises(Rejected, match="no events"):
            await app.queues()
        with pytest.raises(Rejected, match="no events"):
            async with app.events():
                pass
        return ended

    assert asyncio.run(use()) == [10, 20]
    assert app.sync(leaf.run(3)) == 30
    app.sync.close()
    assert {task.state for task in virtual_broker.core.book.tasks.values()} == {State.SUCCEEDED}


def test_a_thread_of_a_task_is_isolated_too() -> None:
    @app.task(queue="trees", name="threaded")
    def threaded() -> None:
        thread = threading.Thread(target=lambda: app.sync(leaf.submit(9)))
        thread.start()
        thread.join()

    broker = VirtualBroker()
    broker.submit(threaded)
    assert broker.run() == 2
    app.sync.close()
    assert order == ["leaf 9"]


def test_a_restart_is_survived(virtual_broker: VirtualBroker) -> None:
    async def use() -> int:
        handle = await leaf.submit(1)
        virtual_broker.restart()
        return await handle.result(timeout=10)

    assert asyncio.run(use()) == 10


def test_an_unknown_task_fails(virtual_broker: VirtualBroker) -> None:
    async def use() -> None:
        handle = await app.submit("elsewhere", b"", name="nobody.knows", retries=0)
        await handle.result()

    with pytest.raises(TaskFailed, match="no task is called"):
        asyncio.run(use())


def test_large_bodies_fit() -> None:
    @app.task(queue="leaves", name="double")
    def double(body: bytes) -> bytes:
        return body * 2

    @app.task(queue="trees", name="ask_double")
    async def ask_double() -> int:
        return len(await double.run(b"x" * 100_000))

    broker = VirtualBroker()
    direct, nested = broker.submit(double, b"x" * 70_000), broker.submit(ask_double)
    broker.run()
    assert (len(direct.result()), nested.result()) == (140_000, 200_000)


def test_a_fan_out_computes_alone() -> None:
    @app.task(queue="trees", name="fan_out")
    async def fan_out() -> list[int]:
        async with current().helpers(max=8) as helpers:
            return [value async for value in helpers.map(leaf, [1, 2, 3])]

    broker = VirtualBroker()
    handle = broker.submit(fan_out)
    broker.run()
    assert handle.result() == [10, 20, 30]


def test_a_worker_that_dies_below_a_waiting_task_takes_both() -> None:
    broker = VirtualBroker()
    broker.crash(leaf)
    handle = broker.submit(wait_for_all, [1])
    broker.finish()
    assert (handle.result(), handle.crashes, handle.attempts) == ([10], 1, 2)
    assert order.count("leaf 1") == 2


def test_an_interrupted_child_is_run_again_below_its_parent() -> None:
    broker = VirtualBroker()
    broker.interrupt(leaf, times=2)
    handle = broker.submit(wait_for_all, [1, 2])
    broker.run()
    assert (handle.result(), handle.attempts) == ([10, 20], 1)
