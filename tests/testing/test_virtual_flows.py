"""Flows on the virtual clock."""

from typing import Any

import pytest

from jackalope import Flow, Jackalope, NodeError, TaskFailed, current, group
from jackalope.core.lifecycle import State
from jackalope.errors import Rejected
from jackalope.testing import VirtualBroker

app = Jackalope("jackalope://nowhere.invalid")
undone: list[str] = []


@app.task(retries=0)
def book(what: str, works: bool = True) -> str:
    if not works:
        raise ValueError(f"no {what}")
    return what


@app.task
def cancel(what: str) -> None:
    undone.append(what)


@app.task
async def total(parts: list[Any]) -> str:
    return ", ".join(str(each) for each in parts)


@app.task
async def nap(days: float) -> str:
    await current().sleep(days=days)
    return "rested"


@pytest.fixture(autouse=True)
def nothing_undone() -> None:
    undone.clear()


def test_a_flow_runs_over_a_restart() -> None:
    broker = VirtualBroker()
    first = nap.step(3)
    handle = broker.submit_flow(Flow("f", group(first, book.step("x")) >> total.step()))
    broker.run()
    assert handle.states == {
        "nap": State.SCHEDULED,
        "book": State.SUCCEEDED,
        "total": State.WAITING,
    }
    broker.restart()
    broker.finish()
    assert handle.result() == "rested, x"
    assert handle.node(first).result() == "rested"
    assert handle.node("book").result() == "x"


def test_compensations_run_in_reverse() -> None:
    broker = VirtualBroker()
    trip = (
        book.step("flight").compensate_with(cancel.step())
        >> book.step("hotel").compensate_with(cancel.step("the hotel"))
        >> book.step("car", works=False).compensate_with(cancel.step())
    )
    handle = broker.submit_flow(Flow("trip", trip))
    broker.finish()
    with pytest.raises(TaskFailed, match="no car"):
        handle.result()
    assert undone == ["the hotel", "flight"]


def test_a_deadline_ends_a_flow() -> None:
    broker = VirtualBroker()
    handle = broker.submit_flow(Flow("f", nap.step(3), deadline=86_400))
    broker.advance(86_401)
    assert handle.state is State.DEAD


def test_failures_can_be_collected() -> None:
    broker = VirtualBroker()
    parts = group(book.step("a"), book.step("b", works=False))
    handle = broker.submit_flow(Flow("f", parts >> total.step().options(collect=True)))
    broker.run()
    assert handle.result() == "a, book-2 is dead: ValueError: no b"
    assert isinstance(NodeError("n", State.DEAD), NodeError)


def test_what_cannot_be_is_refused() -> None:
    broker = VirtualBroker()
    one, other = book.step("a"), book.step("b")
    one.after(other)
    other.after(one)
    with pytest.raises(Rejected, match="->"):
        broker.submit_flow(Flow("f", one))


async def _life(handle_of: Any) -> list[Any]:
    pages = group(book.step("a"), name="pages", open=True)
    handle = await handle_of(Flow("f", pages >> total.step()))
    [added] = await handle.add(pages, book.step("b"))
    await handle.add("pages", book.step("c"))
    await handle.close(pages)
    result = await handle.result(30)
    view = await handle.view()
    return [result, await added.result(), view.done, view.total, view.groups[0].is_open]


def test_an_application_uses_flows_of_the_virtual_broker() -> None:
    async def submit(flow: Flow[Any]) -> Any:
        return await flow.submit()

    with VirtualBroker():
        assert app.sync(_life(submit)) == ["a, b, c", "b", 4, 4, False]
        app.sync.close()
