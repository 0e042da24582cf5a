"""Steps on the virtual clock: a sleep of days takes no time."""

import pytest

from jackalope import Jackalope, current
from jackalope.core.lifecycle import State
from jackalope.errors import Rejected, TaskFailed
from jackalope.testing import VirtualBroker

app = Jackalope("jackalope://nowhere.invalid")
calls: list[str] = []
code = {"first": "charge"}


def do(word: str) -> tuple[str, int]:
    calls.append(word)
    return word, len(calls)


@app.task(queue="orders", retries=5)
async def order(sleep_days: float) -> list[object]:
    first = await current().step(code["first"], do, "charge")
    await current().sleep(days=sleep_days)
    second = await current().step("ship", do, "ship")
    return [first, second]


@app.task(queue="orders")
async def ask(timeout: float | None) -> str:  # noqa: ASYNC109
    try:
        return str(await current().wait_for("approved", timeout=timeout))
    except TimeoutError:
        return "nobody"


@app.task(queue="orders")
def large() -> None:
    current().blocking.step("large", bytes, 70_000)


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    calls.clear()
    code["first"] = "charge"


def test_steps_are_done_once_over_crashes_and_restarts() -> None:
    broker = VirtualBroker()
    handle = broker.submit(order, 3)
    broker.crash(order)
    broker.run()
    assert (handle.state, calls) == (State.SCHEDULED, ["charge"])
    assert handle.due_in == pytest.approx(3 * 86_400, abs=60)
    broker.advance(86_400)
    broker.restart()
    assert calls == ["charge"]
    broker.advance(2 * 86_400)
    assert handle.result() == [["charge", 1], ["ship", 2]]
    assert calls == ["charge", "ship"]
    assert handle.failures == 0


def test_an_event_ends_a_wait_and_time_another() -> None:
    broker = VirtualBroker()
    waiting, late, early = (broker.submit(ask, each) for each in (None, 60.0, 60.0))
    early.signal("approved", "Ann")
    broker.run()
    assert early.result() == "Ann"
    assert [cause.why for cause in waiting.explain().causes] == ["event"]
    broker.advance(61)
    assert late.result() == "nobody"
    broker.advance(400 * 86_400)
    assert waiting.state is State.SCHEDULED
    waiting.signal("approved", {"by": "Ben"})
    broker.run()
    assert waiting.result() == "{'by': 'Ben'}"
    with pytest.raises(Rejected, match="waits for nothing any more"):
        waiting.signal("approved")


def test_changed_code_is_refused_and_nothing_is_mixed() -> None:
    broker = VirtualBroker()
    handle = broker.submit(order, 1)
    broker.run()
    code["first"] = "bill"
    broker.advance(86_400)
    with pytest.raises(TaskFailed, match="step 1 was 'charge' and is now 'bill'"):
        handle.result()
    assert calls == ["charge"]


def test_a_result_that_is_too_large_is_refused() -> None:
    broker = VirtualBroker()
    handle = broker.submit(large)
    broker.run()
    with pytest.raises(TaskFailed, match="result of step 'large' has"):
        handle.result()
