"""What tasks print and log, and what they take, in a virtual broker."""

import asyncio
import sys

import pytest

from jackalope import Rejected, State
from jackalope.testing import VirtualBroker
from tests.testing.talking import app, fail_first, follow, print_much, speak, speak_in_thread


def test_virtual_broker_keeps_logs(virtual_broker: VirtualBroker) -> None:
    handle = virtual_broker.submit(speak, "Ada")
    assert handle.logs() == []
    out = sys.stdout
    virtual_broker.run()
    assert sys.stdout is out
    assert [line.text for line in handle.logs()][:2] == ["printed for Ada", "logged for Ada"]
    assert [line.text for line in handle.logs(level="warn")] == ["logged for Ada"]
    assert [line.text for line in handle.logs(text="PRINTED")] == ["printed for Ada"]
    assert {line.at_us for line in handle.logs()} == {virtual_broker.now_us}
    with pytest.raises(Rejected, match="level: must be"):
        handle.logs(level="loud")


def test_virtual_broker_keeps_attempts_apart_and_over_a_restart(
    virtual_broker: VirtualBroker,
) -> None:
    handle = virtual_broker.submit(fail_first)
    virtual_broker.run()
    virtual_broker.restart()
    virtual_broker.finish()
    assert handle.result() == "well"
    assert [(line.attempt, line.text) for line in handle.logs()] == [
        (1, "attempt 1"),
        (2, "attempt 2"),
    ]
    assert [line.text for line in handle.logs(attempt=2)] == ["attempt 2"]
    times = [line.at_us for line in handle.logs()]
    assert times[1] - times[0] > 5_000_000


def test_virtual_broker_drops_the_oldest_lines(virtual_broker: VirtualBroker) -> None:
    handle = virtual_broker.submit(print_much, 10_001)
    virtual_broker.run()
    lines = handle.logs()
    assert (len(lines), lines[0].number, lines[-1].number) == (10_000, 2, 10_001)


def test_application_reads_and_follows_logs_in_a_virtual_broker(
    virtual_broker: VirtualBroker,
) -> None:
    def texts() -> list[str]:
        async def read() -> list[str]:
            async with app:
                handle = await speak.submit("Ada")
                assert [line async for line in handle.logs()] == []
                return [line.text async for line in handle.logs(follow=True)]

        return asyncio.run(read())

    assert texts()[:2] == ["printed for Ada", "logged for Ada"]
    task = virtual_broker.submit(follow, "Ada")
    virtual_broker.run()
    assert task.result()[:2] == ["printed for Ada", "logged for Ada"]


def test_follower_of_a_task_that_never_ends_is_refused(virtual_broker: VirtualBroker) -> None:
    virtual_broker.declare_queue("default", held=True)

    async def read() -> None:
        async with app:
            handle = await speak.submit("Ada")
            async for _ in handle.logs(follow=True):
                pass

    with pytest.raises(Rejected, match="it never ends by itself"):
        asyncio.run(read())


def test_virtual_broker_refuses_a_call_that_does_not_fit(virtual_broker: VirtualBroker) -> None:
    with pytest.raises(Rejected, match="argument 'name': expected string, got 7"):
        virtual_broker.submit(speak, 7)  # type: ignore[arg-type]
    with pytest.raises(Rejected, match="argument 'name': expected string, got 7"):
        app.sync(speak_in_thread.submit(7))  # type: ignore[arg-type]
    virtual_broker.declare_queue("default", on_misfit="warn")
    handle = virtual_broker.submit(speak, 7)  # type: ignore[arg-type]
    virtual_broker.finish()
    assert handle.state is State.DEAD
