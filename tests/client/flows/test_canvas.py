"""The examples of Celery's canvas, as flows: with a real broker and a real worker."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from jackalope import Flow, Jackalope, NodeError, State, TaskFailed, chain, current, group
from jackalope.testing import embedded

app = Jackalope("jackalope://nowhere.invalid")
PATIENCE_S = 30
heard: list[str] = []


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
async def mul(x: int, y: int) -> int:
    return x * y


@app.task
def xsum(numbers: list[int]) -> int:
    return sum(numbers)


@app.task
def divide(x: int, y: int) -> float:
    return x / y


@app.task(retries=0)
def fail(text: str) -> str:
    raise ValueError(text)


@app.task
def tell(text: str) -> str:
    heard.append(text)
    return text


@app.task
def handle_errors(results: list[Any]) -> list[str]:
    return [f"{each.type}: {each.message}" for each in results if isinstance(each, NodeError)]


@app.task
def add_all(pairs: list[tuple[int, int]]) -> list[int]:
    return [x + y for x, y in pairs]


@app.task
def see_inputs() -> dict[str, Any]:
    return {name: str(value) for name, value in current().inputs.items()}


@app.task
def sum_with(numbers: list[int], more: int = 0) -> int:
    return sum(numbers) + more


@app.task
def large(size: int) -> str:
    return "x" * size


@app.task
def length(text: str) -> int:
    return len(text)


@app.task(content="bytes")
def raw(data: bytes) -> bytes:
    return data + b"!"


@pytest.fixture(scope="module", autouse=True)
def _running() -> Iterator[None]:
    with embedded(app):
        yield


def run(flow: Flow[Any]) -> Any:
    return app.sync(flow.run(PATIENCE_S))


def test_chain() -> None:
    """`chain(add.s(2, 2), add.s(4), add.s(8))` is 16."""
    assert run(Flow("chain", add.step(2, 2) >> add.step(y=4) >> add.step(y=8))) == 16
    assert run(Flow("chain", chain(add.step(4, 4), mul.step(y=8), mul.step(y=10)))) == 640


def test_a_member_of_a_group_can_be_named_as_well() -> None:
    first = add.step(1, 1)
    both = group(first, add.step(2, 2))
    assert run(Flow("both", sum_with.step(both.result, first.result))) == 8


def test_an_immutable_signature() -> None:
    """`add.si(2, 2) | add.si(4, 4)`: the second has its own arguments."""
    assert run(Flow("immutable", add.step(2, 2) >> add.step(4, 4))) == 8


def test_partial_arguments_by_reference() -> None:
    """An argument at another place than the first is named."""
    two = add.step(1, 1)
    assert run(Flow("partial", divide.step(10, two.result))) == 5.0


def test_group() -> None:
    """`group(add.s(i, i) for i in range(10))` has a list of results."""
    expected = [2 * i for i in range(10)]
    assert run(Flow("group", group(add.step(i, i) for i in range(10)))) == expected


def test_chord() -> None:
    """`chord((add.s(i, i) for i in range(10)), xsum.s())` is 90."""
    assert run(Flow("chord", group(add.step(i, i) for i in range(10)) >> xsum.step())) == 90


def test_map_starmap_and_chunks() -> None:
    """`xsum.map([range(10), range(100)])`, `add.starmap(zip(...))`, `add.chunks(zip(...), 10)`."""
    assert run(Flow("map", xsum.steps([list(range(10)), list(range(100))]))) == [45, 4950]
    pairs = [(i, i) for i in range(10)]
    assert run(Flow("starmap", add.steps(add.call(*pair) for pair in pairs))) == [
        2 * i for i in range(10)
    ]
    items = iter([(i, i) for i in range(100)])
    chunks = iter(lambda: list(islice(items, 10)), [])
    found = run(Flow("chunks", add_all.steps(chunks)))
    assert [number for chunk in found for number in chunk] == [2 * i for i in range(100)]


def test_a_group_in_the_middle_of_a_chain() -> None:
    """`add.s(4, 4) | group(add.s(i) for i in range(3)) | xsum.s()`."""
    flow = Flow("diamond", add.step(4, 4) >> group(add.step(y=i) for i in range(3)) >> xsum.step())
    assert run(flow) == 27


def test_chain_of_groups() -> None:
    """`group(...) | group(...)`: each of the second gets the list of the first."""
    first = group(add.step(1, 1), add.step(2, 2))
    second = group(xsum.step(), sum_with.step(more=100))
    assert run(Flow("groups", first >> second)) == [6, 106]
    again = group(add.step(1, 1), add.step(2, 2)) >> group(xsum.step(), xsum.step())
    assert run(Flow("groups", again >> xsum.step())) == 12


def test_group_of_chains() -> None:
    """`group(add.s(i, i) | mul.s(2) for i in range(3)) | xsum.s()`."""
    chains = [add.step(i, i) >> mul.step(y=2) for i in range(3)]
    assert run(Flow("chains", group(chains) >> xsum.step())) == 12
    narrow = [add.step(i, i) >> mul.step(y=2) for i in range(3)]
    assert run(Flow("chains", group(narrow, width=1) >> xsum.step())) == 12


def test_nested_groups_are_nested_lists() -> None:
    inner = group(add.step(1, 1), add.step(2, 2))
    assert run(Flow("nested", group(inner, add.step(3, 3)))) == [[2, 4], 6]


def test_an_error_ends_a_chain() -> None:
    """A failed task of a chain takes what follows with it, and names the one that failed."""
    first, after = fail.step("no"), tell.step()
    with pytest.raises(TaskFailed) as caught:
        run(Flow("broken", first >> after))
    assert caught.value.state is State.DEAD
    handle = app.sync(Flow("broken", fail.step("no") >> tell.step()).submit())
    assert app.sync(handle.wait(PATIENCE_S)) is State.DEAD
    assert app.sync(handle.node("tell").status()).reason == "dependency"


def test_an_error_callback() -> None:
    """`add.s(2, 2).link_error(log_error.s())`: a step that collects gets the error as a value."""
    flow = Flow(
        "errback",
        group(add.step(2, 2), fail.step("no")) >> handle_errors.step().options(collect=True),
    )
    assert run(flow) == ["ValueError: no"]


def test_an_error_callback_of_its_own() -> None:
    """What replaces an error callback: any step after the failed one, which collects."""
    broken = fail.step("oh")
    undo = handle_errors.step([broken.result]).options(collect=True)
    assert run(Flow("errback", undo)) == ["ValueError: oh"]


def test_what_is_linked_to_a_step_runs_after_it() -> None:
    """`add.apply_async((2, 2), link=...)`: several steps can follow one."""
    first = add.step(2, 2)
    left, right = mul.step(first.result, 3), mul.step(first.result, 5)
    assert run(Flow("links", xsum.step([left.result, right.result]))) == 32


def test_inputs_by_name() -> None:
    first, second = add.step(1, 1).options(name="one"), add.step(2, 2).options(name="two")
    assert run(Flow("inputs", see_inputs.step().after(first, second))) == {"one": "2", "two": "4"}


def test_large_results_are_fetched() -> None:
    size = 3_000_000
    assert run(Flow("large", large.step(size) >> length.step())) == size
    both = group(large.step(size), large.step(10)) >> handle_errors.step()
    assert run(Flow("large", both)) == []


def test_bytes_are_passed_as_they_are() -> None:
    assert run(Flow("bytes", raw.step(b"a") >> raw.step() >> raw.step())) == b"a!!!"


def test_any_and_the_first_few() -> None:
    members = group(fail.step("a"), add.step(1, 1), add.step(2, 2))
    flow = Flow("any", members >> xsum.step().options(need=2))
    assert run(flow) == 6


def test_a_wide_group() -> None:
    flow = Flow("wide", add.steps(add.call(i, 0) for i in range(500)) >> xsum.step())
    assert run(flow) == sum(range(500))
