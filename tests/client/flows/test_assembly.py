"""What steps, chains and groups become: nodes, edges and groups as the broker takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from jackalope import ConfigError, Flow, Jackalope, chain, group
from jackalope.client.flows.assembly import Assembly
from jackalope.client.flows.parts import Part, Step
from jackalope.core.commands.flows import FlowNode
from jackalope.core.task import OnDependency
from jackalope.tasks.references import EXTENSION, Reference, read_extension

app = Jackalope("jackalope://nowhere.invalid")


@app.task(queue="math", retries=3)
def add(a: int, b: int = 0) -> int:
    return a + b


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task
def nothing() -> None: ...


@app.task(content="json")
def as_json(value: Any, other: Any = None) -> Any:
    return value


@app.task(content="bytes")
def as_bytes(data: bytes) -> bytes:
    return data


def assembled(*parts: Part[Any]) -> tuple[dict[str, FlowNode], Assembly]:
    assembly = Assembly()
    assembly.add(parts)
    return {each.node.name: each for each in assembly.nodes()}, assembly


def call_of(node: FlowNode) -> Any:
    assert isinstance(node.spec.payload, bytes)

    def read(code: int, data: memoryview) -> Any:
        assert code == EXTENSION
        return read_extension(data)

    return msgspec.msgpack.Decoder(Any, ext_hook=read).decode(node.spec.payload)


def in_json(node: FlowNode) -> Any:
    assert isinstance(node.spec.payload, bytes)
    return msgspec.json.decode(node.spec.payload)


def test_a_chain_hands_each_result_on_as_the_first_argument() -> None:
    nodes, _ = assembled(add.step(1, 2) >> add.step(b=4) >> add.step(5))
    assert list(nodes) == ["add", "add-2", "add-3"]
    assert call_of(nodes["add"]) == [[1, 2], {}]
    assert call_of(nodes["add-2"]) == [[Reference("add")], {"b": 4}]
    assert call_of(nodes["add-3"]) == [[5], {}]  # It has a first argument: only the order counts.
    assert [node.after for node in nodes.values()] == [(), ("add",), ("add-2",)]
    assert {node.spec.queue for node in nodes.values()} == {"math"}
    assert nodes["add"].spec.options is not None
    assert nodes["add"].spec.options.retry is not None


def test_what_takes_no_argument_only_waits() -> None:
    nodes, _ = assembled(add.step(1) >> nothing.step() >> add.step(a=3))
    assert nodes["nothing"].after == ("add",)
    assert nodes["nothing"].spec.payload == msgspec.msgpack.encode(([], {}))
    assert call_of(nodes["add-2"]) == [[], {"a": 3}]


def test_a_join_gets_the_list_of_a_group() -> None:
    nodes, assembly = assembled(group(add.step(n) for n in range(3)) >> total.step())
    (settings,) = assembly.group_settings()
    assert (settings.name, settings.width, settings.is_open) == ("group", 0, False)
    assert [node.node.group for node in nodes.values()] == ["group"] * 3 + [""]
    assert nodes["total"].node.groups == ("group",)
    assert nodes["total"].after == ()
    assert call_of(nodes["total"]) == [[Reference(group="group")], {}]


def test_each_member_of_a_group_gets_the_result_before_it() -> None:
    nodes, assembly = assembled(add.step(1) >> group(add.step(b=1), add.step(b=2)))
    assert [node.after for node in nodes.values()] == [(), ("add",), ("add",)]
    assert call_of(nodes["add-3"]) == [[Reference("add")], {"b": 2}]
    assert assembly.group_settings() == ()  # Nothing waits for it: the broker need not count.


def test_a_group_of_chains_is_counted_by_their_ends() -> None:
    chains = [add.step(n) >> add.step(b=n) for n in (1, 2)]
    nodes, _ = assembled(group(chains) >> total.step())
    assert [node.node.group for node in nodes.values()] == ["", "group", "", "group", ""]


def test_of_a_narrow_group_of_chains_all_steps_are_counted() -> None:
    chains = [add.step(n) >> add.step(b=n) for n in (1, 2)]
    nodes, assembly = assembled(group(chains, name="narrow", width=1) >> total.step())
    assert [node.node.group for node in nodes.values()] == ["narrow"] * 4 + [""]
    assert assembly.group_settings()[0].width == 1
    assert nodes["total"].after == ("add-2", "add-4")
    assert call_of(nodes["total"]) == [[[Reference("add-2"), Reference("add-4")]], {}]


def test_groups_in_groups_are_lists_in_lists() -> None:
    inner = group(add.step(1), add.step(2))
    nodes, _ = assembled(group(inner, add.step(3)) >> total.step())
    assert nodes["total"].node.groups == ("group",)
    assert nodes["total"].after == ("add-3",)
    assert call_of(nodes["total"]) == [[[Reference(group="group"), Reference("add-3")]], {}]


def test_a_graph_of_several_lines() -> None:
    a, b, c = add.step(1), add.step(2), add.step(3)
    join = as_json.step([a.result, {"deep": b.result}]).after(c)
    nodes, _ = assembled(join)
    assert set(nodes) == {"as_json", "add", "add-2", "add-3"}
    assert set(nodes["as_json"].after) == {"add", "add-2", "add-3"}
    _ = a >> nothing.step()
    assert "nothing" in assembled(join)[0]  # What follows a step belongs to its flow.


def test_references_within_other_values() -> None:
    @dataclass
    class Box:
        value: int

    first = add.step(1)
    nodes, _ = assembled(as_json.step(Box(first.result)))
    assert nodes["as_json"].after == ("add",)
    assert in_json(nodes["as_json"]) == [[{"value": {"$result": "add", "content": "msgpack"}}], {}]


def test_a_task_of_bytes_takes_what_comes_before_it_as_its_payload() -> None:
    nodes, _ = assembled(as_bytes.step(b"raw") >> as_bytes.step() >> as_json.step())
    assert nodes["as_bytes-2"].spec.payload == b""
    assert nodes["as_bytes-2"].after == ("as_bytes",)
    assert in_json(nodes["as_json"]) == [[{"$result": "as_bytes-2", "content": "bytes"}], {}]


def test_choices_of_a_step() -> None:
    step = total.step([]).options(
        name="sum", collect=True, need=2, priority=200, queue="q", tags=["t"], timeout=5
    )
    nodes, _ = assembled(step)
    node = nodes["sum"]
    assert (node.node.need, node.spec.priority, node.spec.queue) == (2, 200, "q")
    options = node.spec.options
    assert options is not None
    assert (options.on_dependency, options.tags) == (OnDependency.RUN, ("t",))
    assert total.step([]).options(need="any").need == 1


def test_a_compensation_gets_the_result_of_what_it_undoes() -> None:
    charge = add.step(1).compensate_with(add.options(queue="undo", key="k").step(b=7))
    nodes, _ = assembled(charge)
    undo = nodes["add"].node.compensation
    assert undo is not None
    assert (undo.queue, undo.name, undo.key) == ("undo", add.name, "k")
    assert isinstance(undo.payload, bytes)
    node = msgspec.structs.replace(nodes["add"])
    node.spec = msgspec.structs.replace(node.spec, payload=undo.payload)
    assert call_of(node) == [[Reference("add")], {"b": 7}]
    assert list(nodes) == ["add"]


loose: Any = add


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: loose.step(1, 2, 3), "too many positional arguments"),
        (add.step, "missing a required argument: 'a'"),
        (lambda: chain(add.step(1).options(name="x"), add.step().options(name="x")), "called 'x'"),
        (lambda: add.step(1).compensate_with(add.step(add.step(2).result)), "its result alone"),
        (lambda: group(as_json.step(1), add.step(1)) >> as_json.step(), "several contents"),
    ],
)
def test_what_cannot_be_put_together(make: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        assembled(make())


def test_what_cannot_be_written() -> None:
    one: Any = add.step(1)
    many: Any = group
    new: Any = Flow
    for wrong in (
        chain,
        lambda: one >> 3,
        lambda: many(3),
        lambda: many(one, one),
        lambda: many(group(add.step(1)), width=2),
        lambda: one.options(id=b"x" * 16),
        lambda: one.options(need=0),
        lambda: one.options(colour="red"),
        lambda: one.after(3),
        lambda: one.compensate_with(3),
        lambda: group(add.step(1), width=-1),
        lambda: new("", one),
        lambda: new("f", one, on_failure="explode"),
        lambda: new("f", one, colour="red"),
    ):
        with pytest.raises(ConfigError):
            wrong()


def test_the_result_of_a_step_is_of_no_use_elsewhere() -> None:
    with pytest.raises(TypeError, match="a step of a flow only"):
        add.definition.payload((add.step(1).result,), {})


def test_added_steps_are_named_by_what_they_do() -> None:
    first: Step[int] = add.step(1)
    _, known = assembled(first)

    def names() -> list[str]:
        more = Assembly(known, "g")
        more.add([add.step(2), add.step(2), add.step(first.result), add.step(3).options(name="x")])
        return [node.node.name for node in more.nodes()]

    assert names() == names()
    assert len(set(names())) == 4
    assert names()[3] == "x"
    more = Assembly(known, "g")
    more.add([add.step(4) >> add.step(b=1)])
    inner, outer = more.nodes()
    assert outer.after == (inner.node.name,)
    assert {inner.node.group, outer.node.group} == {"g"}
