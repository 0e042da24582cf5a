"""Contracts: declared by workers, kept over restarts, dropped with their last worker, and held."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from jackalope.core import Core
from jackalope.core.commands import DeleteQueue, LeaveWorker, SubmitTasks
from jackalope.core.commands.contracts import DeclareContracts, DeleteContract
from jackalope.core.commands.flows import FlowNode, SubmitFlow
from jackalope.core.commands.schedules import DeclareSchedule
from jackalope.core.effects import Accepted, AcceptedRequests, Answered
from jackalope.core.explain import Why, explain
from jackalope.core.lifecycle import State
from jackalope.core.limits import (
    CONTRACT_BYTES_MAX,
    CONTRACT_PARAMETERS_MAX,
    CONTRACT_VERSIONS_MAX,
    CONTRACTS_PER_NAMESPACE_MAX,
    NAME_CHARS_MAX,
)
from jackalope.core.records import ContractDeclared, ContractDeleted
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.flow import FlowSettings, NodeSettings
from jackalope.core.task import BlobRef
from tests.core.driving import Driver, refusal_in, snapshot_of, spec

PATH = {"name": "path", "schema": {"type": "string"}, "required": True}
WIDTH = {"name": "width", "schema": {"type": "integer"}, "default": 320}
RESIZE = {"version": "1", "parameters": [PATH, WIDTH]}
TURN = {"version": "2", "parameters": [PATH, {"name": "angle", "required": True}]}


def call(*args: Any, **kwargs: Any) -> bytes:
    return msgspec.msgpack.encode((args, kwargs))


def declared(
    driver: Driver, contract: dict[str, Any] = RESIZE, session: int = 1, name: str = "resize"
) -> Answered | None:
    return driver.send(
        DeclareContracts(session=session, queues=("q",), contracts={name: contract}, by="w")
    )


def versions(driver: Driver) -> list[str]:
    return [
        each.version
        for each in driver.core.book.namespaces["default"].queues["q"].contracts["resize"].versions
    ]


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.join("w", 1, slots=0)
    assert declared(driver) == Accepted(1)
    return driver


def test_a_call_that_does_not_fit_is_refused_with_all_that_is_wrong(driver: Driver) -> None:
    answer = driver.submit(1, name="resize", payload=call(3, "x", size=1))
    refusal = refusal_in(answer)
    assert refusal is not None
    assert refusal.code is Code.INVALID
    for problem in (
        "argument 'path': expected string, got 3",
        "'width': expected integer",
        "'size'",
    ):
        assert problem in refusal.message
    assert "jackalope tasks describe resize" in refusal.message
    assert not driver.core.book.tasks
    assert not driver.records


def test_others_of_a_list_are_accepted(driver: Driver) -> None:
    tasks = [
        spec(1, name="resize", payload=call("a")),
        spec(2, name="resize", payload=call()),
        spec(3, name="other", payload=b"anything"),
        spec(4, name="resize", payload=call("b", width=4), priority=200),
    ]
    answer = driver.send(SubmitTasks(ref=0, tasks=tasks))
    assert isinstance(answer, Accepted)
    assert (answer.count, [index for index, _ in answer.refused]) == (3, [1])
    assert [driver.state(number) for number in (1, 3, 4)] == [State.READY] * 3


def test_what_is_not_inline_or_not_a_call_is_left_to_the_worker(driver: Driver) -> None:
    assert driver.submit(1, name="resize", payload=BlobRef("blob", 100_000)) == Accepted(1)
    raw = {"content": "bytes"}
    assert driver.submit(2, name="resize", payload=b"\x01", headers=raw) == Accepted(1)
    json = {"content": "json"}
    assert driver.submit(3, name="resize", payload=b'[["a"], {}]', headers=json) == Accepted(1)
    assert refusal_in(driver.submit(4, name="resize", payload=b'["a"]', headers=json)) is not None


def test_a_policy_warns_or_looks_away(driver: Driver) -> None:
    driver.declare("q", on_misfit="warn")
    answer = driver.submit(1, name="resize", payload=call())
    assert isinstance(answer, AcceptedRequests)
    [(index, warning)] = answer.warnings
    assert (answer.count, index) == (1, 0)
    assert "'path': missing" in warning
    causes = explain(driver.core, driver.task(1)).causes
    assert [cause.why for cause in causes if cause.why is Why.MISFIT] == [Why.MISFIT]
    driver.declare("q", on_misfit="off")
    assert driver.submit(2, name="resize", payload=call()) == Accepted(1)


def test_two_versions_are_in_use_while_both_have_workers(driver: Driver) -> None:
    driver.join("v", 2, slots=0)
    declared(driver, TURN, session=2)
    assert versions(driver) == ["1", "2"]
    assert driver.submit(1, name="resize", payload=call("a")) == Accepted(1)
    assert driver.submit(2, name="resize", payload=call("a", angle=90)) == Accepted(1)
    refusal = refusal_in(driver.submit(3, name="resize", payload=call("a", depth=9)))
    assert refusal is not None
    assert "'angle': missing" in refusal.message
    driver.send(LeaveWorker(session=1))
    assert versions(driver) == ["2"]
    assert refusal_in(driver.submit(4, name="resize", payload=call("a"))) is not None
    driver.send(LeaveWorker(session=2))
    assert versions(driver) == ["2"]  # The last one stays.
    assert refusal_in(driver.submit(5, name="resize", payload=call("a"))) is not None


def test_a_version_without_workers_goes_when_another_comes(driver: Driver) -> None:
    driver.send(LeaveWorker(session=1))
    driver.join("v", 2, slots=0)
    declared(driver, TURN, session=2)
    assert versions(driver) == ["2"]
    driver.join("w", 3, slots=0)
    declared(driver, session=3)
    assert versions(driver) == ["2", "1"]


def test_the_same_again_records_nothing_and_parts_add_up(driver: Driver) -> None:
    declared(driver)
    assert not driver.records
    declared(driver, TURN, name="turn")
    driver.join("v", 2, slots=0)
    declared(driver, TURN, session=2)
    assert versions(driver) == ["1", "2"]  # The first is still declared by w, in another part.


def test_contract_versions_max(driver: Driver) -> None:
    for number in range(CONTRACT_VERSIONS_MAX):
        driver.join(f"w{number}", 10 + number, slots=0)
        declared(driver, {**RESIZE, "version": f"v{number}"}, session=10 + number)
    assert versions(driver) == [f"v{number}" for number in range(CONTRACT_VERSIONS_MAX)]


def test_contracts_survive_a_restart_and_go_with_their_queue(driver: Driver) -> None:
    assert snapshot_of(driver.replayed()) == driver.snapshot()
    snapshot, before = driver.core.book.snapshot(), driver.snapshot()
    driver.core = Core()
    driver.core.book.restore(snapshot.counters, snapshot.entities, snapshot.tasks)
    assert driver.snapshot() == before
    assert refusal_in(driver.submit(1, name="resize", payload=call())) is not None
    driver.core.book.take_changes()
    driver.send(DeleteQueue(queue="q"))
    entities = driver.core.book.take_changes().entities
    gone = [each.name for each in entities if each.kind == "contract" and each.row is None]
    assert gone == ["1 q resize"]


def test_a_contract_is_deleted_by_hand(driver: Driver) -> None:
    assert driver.send(DeleteContract(queue="q", name="resize")) == Accepted()
    assert [type(record) for record in driver.records] == [ContractDeleted]
    assert driver.submit(1, name="resize", payload=call()) == Accepted(1)
    again = driver.send(DeleteContract(queue="q", name="resize"))
    assert isinstance(again, Refusal)
    assert again.code is Code.UNKNOWN_TASK


def test_nodes_of_flows_and_schedules_are_checked(driver: Driver) -> None:
    reference = msgspec.msgpack.encode((["a", msgspec.msgpack.Ext(82, b"\x91\xa1a")], {}))

    def flow(payload: bytes) -> SubmitFlow:
        node = FlowNode(spec(0, name="resize", payload=payload), NodeSettings(name="b"))
        return SubmitFlow(ref=0, flow=spec(7), nodes=[node], settings=FlowSettings())

    assert driver.send(flow(reference)) == Accepted(1)
    refusal = refusal_in(driver.send(flow(call())))
    assert refusal is not None
    assert "'path': missing" in refusal.message or refusal.code is Code.ID_CONFLICT
    changes: dict[str, object] = {"queue": "q", "task": "resize", "every_us": 60_000_000}
    refused = driver.send(DeclareSchedule(name="s", changes={**changes, "payload": call()}))
    assert isinstance(refused, Refusal)
    assert "'path': missing" in refused.message
    fits = driver.send(DeclareSchedule(name="s", changes={**changes, "payload": call("a")}))
    assert not isinstance(fits, Refusal)


LONG = "x" * (NAME_CHARS_MAX + 1)


@pytest.mark.parametrize(
    ("contract", "problem"),
    [
        ({"parameters": [{"name": ""}]}, "each needs a name of its own"),
        ({"parameters": [PATH, PATH]}, "each needs a name of its own"),
        ({"parameters": [{"name": LONG}]}, f"at most {NAME_CHARS_MAX} characters"),
        ({"version": LONG}, f"at most {NAME_CHARS_MAX} characters"),
        ({"parameters": [{"name": "a", "kind": "odd"}]}, "odd"),
        ({"colour": "red"}, "colour"),
        (
            {"parameters": [{"name": "a", "kind": "rest"}, {"name": "b", "kind": "rest"}]},
            "at most one can be rest",
        ),
    ],
)
def test_bad_contracts_are_refused_with_every_problem(
    driver: Driver, contract: dict[str, Any], problem: str
) -> None:
    both = {"bad": contract, "worse": {"version": LONG}, LONG: {}}
    answer = driver.send(DeclareContracts(session=1, queues=("q",), contracts=both))
    assert isinstance(answer, Refusal)
    assert "bad: " in answer.message
    assert problem in answer.message
    assert "worse: version" in answer.message
    assert "name of a task" in answer.message
    assert not driver.records


def test_contracts_per_namespace_max() -> None:
    driver = Driver(is_checked=False)
    driver.join("w", 1, slots=0)
    for begin in range(0, CONTRACTS_PER_NAMESPACE_MAX, 1_000):
        some: dict[str, dict[str, object]] = {
            f"t{number}": {} for number in range(begin, begin + 1_000)
        }
        driver.send(DeclareContracts(session=1, queues=("q",), contracts=some))
    full = driver.send(DeclareContracts(session=1, queues=("q",), contracts={"more": {}}))
    assert isinstance(full, Refusal)
    assert full.code is Code.TOO_MANY
    again = driver.send(DeclareContracts(session=1, queues=("q",), contracts={"t1": {}}))
    assert again == Accepted(1)


def test_an_older_log_takes_none(driver: Driver) -> None:
    driver.core.level = 4
    answer = declared(driver, TURN)
    assert isinstance(answer, Refusal)
    assert "cluster upgrade" in answer.message
    assert not [record for record in driver.records if isinstance(record, ContractDeclared)]


def test_contract_parameters_max(driver: Driver) -> None:
    names = [{"name": f"p{number}"} for number in range(CONTRACT_PARAMETERS_MAX + 1)]
    assert declared(driver, {"parameters": names[:-1]}) == Accepted(1)
    answer = declared(driver, {"parameters": names})
    assert isinstance(answer, Refusal)
    assert f"at most {CONTRACT_PARAMETERS_MAX}, got {CONTRACT_PARAMETERS_MAX + 1}" in answer.message


def test_contract_bytes_max(driver: Driver) -> None:
    room = CONTRACT_BYTES_MAX - len(msgspec.msgpack.encode({"doc": "x" * 40_000})) + 40_000
    assert declared(driver, {"doc": "x" * room}) == Accepted(1)
    answer = declared(driver, {"doc": "x" * (room + 1)})
    assert isinstance(answer, Refusal)
    assert f"at most {CONTRACT_BYTES_MAX}" in answer.message
