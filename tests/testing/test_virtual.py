from __future__ import annotations

import asyncio

import pytest

from jackalope import Jackalope, Reject, RetryLater, current
from jackalope.core.lifecycle import State
from jackalope.errors import Rejected, TaskFailed
from jackalope.testing import VirtualBroker

app = Jackalope("jackalope://nowhere.invalid")
calls: list[str] = []


@app.task(queue="sums")
async def add(a: int, b: int) -> int:
    calls.append("add")
    return a + b


@app.task(queue="sums", retries=2)
def fail(why: str) -> None:
    calls.append("fail")
    raise ValueError(why)


@app.task(queue="sums")
async def ask(patience: float) -> int:
    context = current()
    context.progress(50, "half way")
    if patience and context.attempt == 1:
        raise RetryLater("not now", after=patience)
    if not patience:
        raise Reject("never")
    return context.attempt


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


def test_a_task_runs_and_has_a_result() -> None:
    broker = VirtualBroker()
    handle = broker.submit(add, 2, 3)
    assert handle.state is State.READY
    with pytest.raises(LookupError, match="no worker"):
        handle.result()
    assert broker.run() == 1
    assert handle.result() == 5


def test_retries_wait_and_give_up() -> None:
    broker = VirtualBroker()
    handle = broker.submit(fail, "no")
    broker.run()
    assert (handle.state, handle.failures) == (State.SCHEDULED, 1)
    assert 4.0 <= handle.due_in <= 5.0
    broker.advance(3.9)
    assert handle.failures == 1
    broker.advance(1.1)
    assert handle.failures == 2
    assert 7.0 <= handle.due_in <= 10.0
    broker.advance(10)
    assert handle.state is State.DEAD
    with pytest.raises(TaskFailed, match="ValueError: no"):
        handle.result()
    assert [h.what for h in handle.history()].count("fail") == 3


def test_a_task_knows_its_context_and_speaks_its_mind() -> None:
    broker = VirtualBroker()
    later, never = broker.submit(ask, 60.0), broker.submit(ask, 0.0)
    broker.run()
    assert (later.state, later.due_in) == (State.SCHEDULED, 60.0)
    assert never.state is State.DEAD
    with pytest.raises(TaskFailed, match=r"rejected.*never"):
        never.result()
    broker.advance(60)
    assert later.result() == 2


def test_a_test_may_have_a_loop_of_its_own() -> None:
    async def test() -> int:
        broker = VirtualBroker()
        handle = broker.submit(add, 2, 3)
        broker.run()
        return handle.result()

    assert asyncio.run(test()) == 5


def test_arguments_that_do_not_fit_are_not_tried_again() -> None:
    broker = VirtualBroker()
    broker.declare_queue("sums", on_misfit="off")
    handle = broker.submit(add, "two", 3)  # type: ignore[arg-type]
    broker.run()
    assert (handle.state, handle.failures) == (State.DEAD, 1)


def test_a_schedule_takes_no_time() -> None:
    broker = VirtualBroker()
    handle = broker.submit(add.options(delay=86_400), 1, 1)
    broker.advance(86_399)
    assert handle.state is State.SCHEDULED
    broker.advance(1)
    assert handle.result() == 2


def test_delay_counts_from_the_virtual_clock() -> None:
    broker = VirtualBroker()
    broker.advance(1_000_000)
    handle = broker.submit(add.options(delay=60), 1, 1)
    broker.run()
    assert (handle.state, handle.due_in) == (State.SCHEDULED, 60.0)


def test_finish_goes_through_everything() -> None:
    broker = VirtualBroker()
    good, bad = broker.submit(add.options(delay=3_600), 1, 2), broker.submit(fail, "x")
    broker.finish()
    assert good.result() == 3
    assert bad.state is State.DEAD


def test_a_crash_after_the_work_runs_it_again() -> None:
    broker = VirtualBroker()
    broker.crash(add)
    handle = broker.submit(add, 1, 1)
    broker.run()
    assert (handle.result(), handle.crashes, calls) == (2, 1, ["add", "add"])


def test_an_interruption_is_free() -> None:
    broker = VirtualBroker()
    broker.interrupt(fail, times=5)
    handle = broker.submit(fail, "x")
    broker.run()
    assert (handle.failures, handle.attempts) == (1, 6)


def test_a_restart_forgets_nothing() -> None:
    broker = VirtualBroker()
    handle = broker.submit(fail, "x")
    broker.run()
    broker.restart()
    assert (handle.state, handle.failures) == (State.SCHEDULED, 1)
    broker.finish()
    assert handle.state is State.DEAD


def test_policies_and_actions() -> None:
    broker = VirtualBroker()
    broker.declare_queue("sums", held=True)
    handle = broker.submit(add, 1, 1)
    assert broker.run() == 0
    handle.act("play")
    broker.run()
    assert handle.result() == 2
    with pytest.raises(Rejected, match="cannot pause"):
        handle.act("pause")
    with pytest.raises(Rejected, match="unknown"):
        broker.declare_queue("sums", colour="red")


def test_the_fixture(virtual_broker: VirtualBroker) -> None:
    assert virtual_broker.run() == 0
