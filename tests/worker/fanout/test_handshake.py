"""Owner and helper meet: who is let in, who is not, and what they then do together."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from jackalope.tasks.definition import TaskDefinition
from jackalope.transport.address import Address
from jackalope.wire.fanout import FANOUT_VERSION, Challenge, Welcome, owner_codec
from jackalope.worker.attempt import Attempt, Surroundings
from jackalope.worker.fanout.computation import Computation, Run
from jackalope.worker.fanout.helper_session import CannotHelp, HelpDefinition, Order
from jackalope.worker.fanout.ledger import ItemError, Ledger
from jackalope.worker.fanout.owner import Hub
from tests.certificates import certificates
from tests.ports import free_port
from tests.worker.executors.stage import Ear, assignment, until

WAIT_S = 30.0


class Task:
    """What an application makes of a function, as far as a fan-out cares."""

    def __init__(self, function: Callable[..., Any], name: str = "double") -> None:
        self.definition = TaskDefinition(function, name=name)


def double(number: int, by: int = 0) -> int:
    if number == 13:
        raise ValueError("unlucky")
    return 2 * number + by


def other(number: int, by: int = 0) -> int:
    return 3 * number + by


def typed(number: str, by: int = 0) -> int:
    return 2 * int(number) + by


DOUBLE = Task(double)


class Meeting:
    """An owner without a broker, and whoever comes."""

    def __init__(self, **surroundings: Any) -> None:
        tls = bool(surroundings)
        address = Address("127.0.0.1", free_port(), tls=tls)
        around = Surroundings(address=address, worker="owner", **surroundings)
        attempt = Attempt(assignment("add", 1, 2), DOUBLE.definition, Ear())
        self.hub = Hub(attempt, around, 5)
        self.hub.tokens.add("token")
        self.begin(1, by=1)
        until(lambda: self.hub._where, WAIT_S)
        self.order = Order("helper", self.hub._where, "token", self.hub._seal)
        self.outcomes: list[BaseException | None] = []

    def begin(self, number: int, **fixed: Any) -> None:
        """Begin a run."""
        self.ledger = Ledger(on_error="collect")
        self.ledger.on_work = self.hub.wake
        self.hub.begin(Run(number, DOUBLE, fixed, self.ledger))

    def help(self, order: Order | None = None, task: Task = DOUBLE) -> None:
        """Help in a thread, and note how that ends."""
        helping = HelpDefinition(task.definition, {"double": task.definition})
        payload = msgspec.msgpack.encode(order or self.order)

        def serve() -> None:
            try:
                helping.call(payload)
            except BaseException as error:  # noqa: BLE001  it is looked at
                self.outcomes.append(error)
            else:
                self.outcomes.append(None)

        threading.Thread(target=serve, daemon=True).start()

    def refusal(self, order: Order | None = None, task: Task = DOUBLE) -> str:
        """Try to help, and return why that cannot be."""
        self.help(order, task)
        until(lambda: self.outcomes, WAIT_S)
        error = self.outcomes.pop()
        assert isinstance(error, CannotHelp), error
        return str(error)

    def compute(self, *numbers: int) -> list[Any]:
        self.ledger.offer(len(numbers), msgspec.msgpack.encode(numbers))
        results: list[Any] = []

        def are_there() -> bool:
            results.extend(self.ledger.take_results())
            return len(results) == len(numbers)

        until(are_there, WAIT_S)
        return results


@contextmanager
def meeting(**surroundings: Any) -> Iterator[Meeting]:
    there = Meeting(**surroundings)
    try:
        yield there
    finally:
        there.hub.close()


def test_a_helper_computes_until_the_owner_is_done() -> None:
    with meeting() as there:
        there.help()
        assert there.compute(1, 2, 3) == [3, 5, 7]
        [bad, good] = there.compute(13, 4)
        assert isinstance(bad, ItemError)
        assert (bad.index, bad.error.message, good) == (3, "unlucky", 9)
        assert there.hub.helpers == 1
    until(lambda: there.outcomes, WAIT_S)
    assert there.outcomes == [None]


@pytest.mark.feature("J18")
def test_what_all_items_share_reaches_a_helper_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    original = Computation.__init__

    def counted(self: Computation, *args: Any) -> None:
        read.append(args)
        original(self, *args)

    monkeypatch.setattr(Computation, "__init__", counted)
    with meeting() as there:
        there.help()
        for _ in range(10):
            assert there.compute(1, 2, 3) == [3, 5, 7]
        assert len(read) == 1


def test_a_helper_need_not_say_twice_that_it_can() -> None:
    with meeting() as there:
        there.help()
        assert there.compute(1, 2, 3) == [3, 5, 7]
        for by in range(2, 9):
            there.hub.finish()
            there.begin(by, by=by)
            assert there.compute(1, 2, 3) == [2 + by, 4 + by, 6 + by]


def test_items_of_a_run_that_is_refused_are_not_computed_as_those_before() -> None:
    with meeting() as there:
        there.help()
        assert there.compute(1) == [3]
        there.hub.finish()
        there.begin(2, by="much")
        there.ledger.offer(1, msgspec.msgpack.encode([1]))
        until(lambda: there.outcomes, WAIT_S)
        [error] = there.outcomes
        assert isinstance(error, CannotHelp), error
        assert str(error).startswith("double: ")
        assert there.ledger.take_results() == []


def test_whoever_lacks_the_token_is_not_let_in() -> None:
    with meeting() as there:
        order = msgspec.structs.replace(there.order, token="guessed")  # noqa: S106
        assert "did not accept" in there.refusal(order)
        there.help()
        assert there.compute(1) == [3]


@pytest.mark.parametrize("task", [Task(other), Task(typed)], ids=["code", "types"])
@pytest.mark.feature("J19")
def test_other_code_is_refused(task: Task) -> None:
    with meeting() as there:
        assert "differ from the owner's" in there.refusal(task=task)
        until(lambda: there.hub.helpers == 0, WAIT_S)


def test_nobody_there_is_unreachable() -> None:
    with meeting() as there:
        where = f"127.0.0.1:{free_port()}"
        assert there.refusal(Order("helper", where, "token")).startswith("unreachable")


def test_garbage_does_not_harm_the_owner() -> None:
    with meeting() as there:
        host, _, port = there.order.where.rpartition(":")
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", bytes(8), b"\x00\x00\x00\x02\x04\x90"):
            with socket.create_connection((host, int(port)), WAIT_S) as stranger:
                stranger.sendall(garbage)
                while stranger.recv(4096):
                    pass
        there.help()
        assert there.compute(5) == [11]


def test_an_owner_that_cannot_prove_itself_gets_no_help() -> None:
    with socket.create_server(("127.0.0.1", 0)) as impostor:

        def pretend() -> None:
            line, _ = impostor.accept()
            with line:
                challenge = Challenge(FANOUT_VERSION, bytes(16))
                line.sendall(owner_codec.encode(challenge))
                line.recv(4096)
                line.sendall(owner_codec.encode(Welcome(bytes(32), 1_000_000)))
                while line.recv(4096):
                    pass

        threading.Thread(target=pretend, daemon=True).start()
        where = f"127.0.0.1:{impostor.getsockname()[1]}"
        payload = msgspec.msgpack.encode(Order("helper", where, "token"))
        helping = HelpDefinition(DOUBLE.definition, {"double": DOUBLE.definition})
        with pytest.raises(CannotHelp, match="cannot prove that it is the owner"):
            helping.call(payload)


def test_the_connection_is_encrypted_where_the_broker_is() -> None:
    files = certificates()
    with meeting(fanout_cert=files.cert, fanout_key=files.key) as there:
        assert len(there.order.seal) == 64
        wrong = msgspec.structs.replace(there.order, seal="0" * 64)
        assert "a different certificate" in there.refusal(wrong)
        plain = msgspec.structs.replace(there.order, seal="")
        assert there.refusal(plain)
        there.help()
        assert there.compute(1, 2) == [3, 5]


# What a helper does with a batch.


def calculate(function: Callable[..., Any], items: Any, fixed: Any = None) -> list[Any]:
    definition = TaskDefinition(function, name="f")
    encoded = msgspec.msgpack.encode(fixed) if fixed else b""
    parts = Computation(definition, encoded).run(msgspec.msgpack.encode(items))
    values: list[Any] = []
    for part in parts:
        assert part.begin == len(values)
        found = msgspec.msgpack.decode(part.data)
        assert len(found) == part.count
        for failure in part.failed:
            found[failure.at - part.begin] = failure.error.type.rpartition(".")[2]
        values += found
    return values


@pytest.mark.feature("J19")
def test_items_that_do_not_fit_fail_alone() -> None:
    assert calculate(double, [1, "two", 3]) == [2, "DecodeFailed", 6]


def test_results_that_cannot_be_sent_fail_alone() -> None:
    def odd(number: int) -> object:
        return object() if number == 2 else number

    assert calculate(odd, [1, 2, 3]) == [1, "EncodeFailed", 3]


def test_large_results_go_in_parts_and_too_large_ones_fail_alone() -> None:
    def grow(size: int) -> bytes:
        return bytes(size)

    sizes = [3_000_000, 10, 3_000_000, 17_000_000, 3_000_000]
    values = calculate(grow, sizes)
    assert [len(value) for value in values] == [3_000_000, 10, 3_000_000, 8, 3_000_000]
    assert values[3] == "TooLarge"
