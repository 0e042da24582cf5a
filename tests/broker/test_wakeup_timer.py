"""The alarm, on a real event loop."""

from __future__ import annotations

import asyncio

from jackalope.broker.clock import Alarm
from jackalope.core.durations import HOUR


def run(*times_us: int | None, now_us: int = 0) -> bool:
    """Set an alarm for one time after the other, and tell whether it has rung soon after."""

    async def ring() -> bool:
        rung = asyncio.Event()
        alarm = Alarm(rung.set)
        for at_us in times_us:
            alarm.set(now_us, at_us)
        # Whatever is due at once is done before something that is due a little later.
        later = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.05, later.set_result, None)
        await later
        alarm.cancel()
        return rung.is_set()

    return asyncio.run(ring())


def test_it_rings_at_the_earliest_time_that_was_set() -> None:
    assert run(0)
    assert run(HOUR, 0)
    assert run(0, HOUR)
    assert not run(HOUR, 2 * HOUR)
    assert not run(None)
    assert not run()


def test_a_time_that_is_long_over_rings_at_once() -> None:
    assert run(1, now_us=HOUR)


def test_it_can_be_set_again_after_it_rang_and_after_it_was_cancelled() -> None:
    async def test() -> None:
        rings: asyncio.Queue[None] = asyncio.Queue()
        alarm = Alarm(lambda: rings.put_nowait(None))
        for _ in range(3):
            alarm.set(0, 0)
            await rings.get()
            alarm.set(0, HOUR)
            alarm.cancel()
            alarm.cancel()

    asyncio.run(test())


def test_a_clock_that_has_stepped_over_an_alarm_does_not_keep_it() -> None:
    async def test() -> None:
        rung = asyncio.Event()
        alarm = Alarm(rung.set)
        alarm.set(0, HOUR)
        alarm.set(3 * HOUR, 3 * HOUR)
        await rung.wait()

    asyncio.run(test())
