"""Processes: what the broker knows about them, and that each has one task at a time."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import kiwipy
import pytest

from jackalope.aiida.process_communicator import QUEUE, ProcessCommunicator, pid_of, traits_of
from jackalope.client.app import Jackalope
from jackalope.kiwipy.queue import PLAIN, TaskTraits
from tests.acceptance.harness import wait_until
from tests.kiwipy.harness import PATIENCE_S, Inbox, result_of

#: Processes by their pk: the second and third are calculations inside of the first.
KNOWN = {
    1: TaskTraits("1", "Chain", 150, is_parent=True),
    2: TaskTraits("2", "Add", 151, ("computer:daint",)),
    3: TaskTraits("3", "Add", 151, ("computer:daint",)),
}


def continue_(pid: int) -> dict[str, Any]:
    """Make the task that plumpy sends to have a process continued."""
    return {"task": "continue", "args": {"pid": pid, "nowait": False, "tag": None}}


class World:
    """A namespace of a broker, and communicators in it."""

    def __init__(self, address: str, namespace: str) -> None:
        self.client = Jackalope(address, namespace=namespace)
        self._open: list[ProcessCommunicator] = []

    def connect(self, **settings: Any) -> ProcessCommunicator:
        params = {"address": self.client.address}
        communicator = ProcessCommunicator(
            params, KNOWN.__getitem__, async_task_timeout=PATIENCE_S, **settings
        )
        self._open.append(communicator)
        return communicator

    def find(self, pid: int) -> Any:
        return self.client.sync(self.client.find(alias=str(pid)))

    def close(self) -> None:
        for communicator in self._open:
            communicator.close()
        self.client.sync.close()


@pytest.fixture
def world(ours: str, request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(ours, request.node.name)
    yield world
    world.close()


@pytest.mark.parametrize(
    "task", [7, "text", {}, {"task": "launch", "args": {"pid": 1}}, {"task": "continue"}]
)
def test_what_continues_no_process_has_no_traits(task: Any) -> None:
    assert pid_of(task) is None
    assert traits_of(task, KNOWN.__getitem__) is PLAIN


def test_a_process_that_cannot_be_looked_up_still_has_its_pk() -> None:
    assert traits_of(continue_(99), KNOWN.__getitem__) == TaskTraits(alias="99")


def test_a_process_is_found_by_its_pk(world: World) -> None:
    world.connect().task_send(continue_(2), no_reply=True)
    view = world.find(2)
    assert (view.queue, view.name, view.priority) == (QUEUE, "Add", 151)
    assert view.tags == ("computer:daint",)


@pytest.mark.feature("T19")
def test_inner_processes_come_first(world: World) -> None:
    sender, taken = world.connect(), Inbox()
    for pid in (1, 2):
        sender.task_send(continue_(pid), no_reply=True)
    world.connect(task_prefetch_count=1).add_task_subscriber(taken)
    assert [pid_of(taken.next()) for _ in range(2)] == [2, 1]


def test_a_process_has_one_unfinished_task(world: World) -> None:
    sender, worker, running = world.connect(), world.connect(), kiwipy.Future()
    taken = Inbox(lambda _: running)
    worker.add_task_subscriber(taken)
    first = sender.task_send(continue_(1))
    assert pid_of(taken.next()) == 1
    before = world.find(1).id
    # Whoever sends it again hears that it is begun.
    assert sender.task_send(continue_(1), no_reply=True) is None
    assert result_of(sender.task_send(continue_(1))) is None
    assert world.find(1).id == before
    running.set_result("done")
    assert result_of(first) == "done"
    assert taken.is_empty()
    # Now that it has ended, it may be continued again.
    assert result_of(sender.task_send(continue_(1))) == "done"
    assert world.find(1).id != before


@pytest.mark.feature("T21")
def test_a_computer_has_a_limit(world: World) -> None:
    world.client.sync(world.client.limit_tag("computer:daint", 1))
    sender, worker = world.connect(), world.connect()
    running: list[kiwipy.Future] = [kiwipy.Future(), kiwipy.Future()]
    waiting = iter(running)
    taken = Inbox(lambda _: next(waiting))
    worker.add_task_subscriber(taken)
    futures = [sender.task_send(continue_(pid)) for pid in (2, 3)]
    assert pid_of(taken.next()) == 2
    why = world.client.sync(world.client.handle(world.find(3).id).explain())
    assert [cause.why for cause in why.causes] == ["tag_at_limit"]
    assert taken.is_empty()
    running[0].set_result("first")
    assert result_of(futures[0]) == "first"
    assert pid_of(taken.next()) == 3
    running[1].set_result("second")
    assert result_of(futures[1]) == "second"


def test_parents_that_wait_do_not_starve_their_children(world: World) -> None:
    sender, worker = world.connect(), world.connect(task_prefetch_count=1)
    parent, child = kiwipy.Future(), kiwipy.Future()
    taken = Inbox(lambda task: parent if pid_of(task) == 1 else child)
    worker.add_task_subscriber(taken)
    ends = [sender.task_send(continue_(pid)) for pid in (1,)]
    assert pid_of(taken.next()) == 1
    ends.append(sender.task_send(continue_(2)))
    assert taken.is_empty()
    # The only slot is the parent's, until it says that it waits.
    worker.broadcast_send(None, sender=1, subject="state_changed.running.waiting")
    assert pid_of(taken.next()) == 2
    child.set_result("child")
    assert result_of(ends[1]) == "child"
    worker.broadcast_send(None, sender=1, subject="state_changed.waiting.running")
    wait_until(lambda: slots(world) == [1], "the parent has its place again")
    parent.set_result("parent")
    assert result_of(ends[0]) == "parent"


def slots(world: World) -> list[int]:
    workers = world.client.sync(world.client.workers())
    return [worker.slots for worker in workers if worker.state != "gone"]


def test_a_calculation_that_waits_keeps_its_place(world: World) -> None:
    sender, worker = world.connect(), world.connect(task_prefetch_count=1)
    calculation = kiwipy.Future()
    taken = Inbox(lambda _: calculation)
    worker.add_task_subscriber(taken)
    end = sender.task_send(continue_(2))
    assert pid_of(taken.next()) == 2
    worker.broadcast_send(None, sender=2, subject="state_changed.running.waiting")
    assert slots(world) == [1]
    calculation.set_result("done")
    assert result_of(end) == "done"


@pytest.mark.feature("T25")
def test_unfinished_tasks_are_listed_also_those_that_are_held(world: World) -> None:
    sender, worker, running = world.connect(), world.connect(task_prefetch_count=1), kiwipy.Future()
    taken = Inbox(lambda _: running)
    worker.add_task_subscriber(taken)
    for pid in (1, 2, 3):
        sender.task_send(continue_(pid), no_reply=True)
    assert pid_of(taken.next()) == 1
    assert [pid_of(task.body) for task in sender.unfinished_tasks()] == [1, 2, 3]
    for task in sender.unfinished_tasks():
        if pid_of(task.body) == 3:
            with task.processing() as outcome:
                outcome.set_result(False)
        elif pid_of(task.body) == 2:
            with task.processing():
                pass  # Left alone.
    assert [pid_of(task.body) for task in sender.unfinished_tasks()] == [1, 2]
    running.set_result(None)
    assert pid_of(taken.next()) == 2


def test_a_process_is_killed_through_its_task(world: World) -> None:
    sender, worker, running = world.connect(), world.connect(), kiwipy.Future()
    taken = Inbox(lambda _: running)
    worker.add_task_subscriber(taken)

    def process(_: Any, message: Any) -> bool:
        running.set_exception(RuntimeError(message["intent"]))
        return True

    worker.add_rpc_subscriber(process, "1")
    future = sender.task_send(continue_(1))
    assert pid_of(taken.next()) == 1
    acted = world.client.sync(world.client.act("kill", [world.find(1).id]))
    assert acted.requested == 1
    with pytest.raises(kiwipy.RemoteException, match="killed"):
        result_of(future)
    assert world.find(1).state == "killed"


def test_a_process_that_nobody_answers_for_is_not_killed(world: World) -> None:
    sender, worker, running = world.connect(), world.connect(), kiwipy.Future()
    taken = Inbox(lambda _: running)
    worker.add_task_subscriber(taken)
    future = sender.task_send(continue_(1))
    assert pid_of(taken.next()) == 1
    world.client.sync(world.client.act("kill", [world.find(1).id]))
    wait_until(lambda: world.find(1).request.stage == "refused", "the worker refuses")
    running.set_result("done")
    assert result_of(future) == "done"


def test_a_worker_whose_process_was_given_to_another_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    is_told = threading.Event()

    def kill(_: int, number: int) -> None:
        told.append(number)
        is_told.set()

    sender, worker, running = world.connect(), world.connect(), kiwipy.Future()
    taken = Inbox(lambda _: running)
    worker.add_task_subscriber(taken)
    sender.task_send(continue_(1), no_reply=True)
    assert pid_of(taken.next()) == 1
    monkeypatch.setattr("jackalope.aiida.process_communicator.os.kill", kill)
    queue = worker._default
    workload = queue._workload
    assert workload is not None
    worker.loop().call_soon_threadsafe(lambda: workload.drop(workload.holding))
    assert is_told.wait(PATIENCE_S)
    assert told == [signal.SIGTERM]
