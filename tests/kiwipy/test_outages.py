"""A communicator comes through an outage: nothing acknowledged is lost, nothing is done twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kiwipy
import pytest

from jackalope.broker.access import hash_of, id_of, new_token
from jackalope.client.app import Jackalope
from jackalope.kiwipy.communicator import JackalopeCommunicator, connect
from tests.acceptance.harness import House, wait_until
from tests.kiwipy.harness import PATIENCE_S, Ear, Inbox, Switch, result_of


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    house.start_broker()
    yield house
    house.close()


@pytest.fixture
def switch(house: House) -> Iterator[Switch]:
    switch = Switch(house.address)
    yield switch
    switch.close()


def restart(house: House) -> None:
    house.kill(house.broker)
    house.start_broker()


def test_subscribers_come_back_after_the_broker_was_killed(house: House, switch: Switch) -> None:
    outside, worker = switch.connect(), switch.connect()
    ear = Ear()
    worker.add_task_subscriber(Inbox(lambda task: task + 1))
    worker.add_rpc_subscriber(Inbox(lambda message: message + 2), "clerk")
    worker.add_broadcast_subscriber(ear)
    assert result_of(outside.task_send(1)) == 2
    restart(house)
    assert result_of(outside.task_send(1)) == 2
    wait_until(lambda: is_reachable(outside, "clerk"), "the recipient is back")
    assert result_of(outside.rpc_send("clerk", 1)) == 3
    outside.broadcast_send("back")
    assert ear.next()[0] == "back"


def is_reachable(communicator: Any, recipient: str) -> bool:
    try:
        communicator.rpc_send(recipient, 0)
    except kiwipy.DeliveryFailed:
        return False
    return True


def test_a_task_whose_subscriber_still_runs_is_not_given_to_another(
    house: House, switch: Switch
) -> None:
    sender, worker, other = (switch.connect() for _ in range(3))
    running: kiwipy.Future = kiwipy.Future()
    inbox, idle = Inbox(lambda _: running), Inbox(lambda _: "twice")
    identifier = worker.add_task_subscriber(inbox)
    future = sender.task_send("calculation")
    assert inbox.next() == "calculation"
    worker.remove_task_subscriber(identifier)
    other.add_task_subscriber(idle)
    restart(house)
    # Both are back when the other one gets what is sent now.
    assert result_of(sender.task_send("more")) == "twice"
    assert idle.next() == "more"
    running.set_result("once")
    assert result_of(future) == "once"
    assert idle.is_empty()


def test_what_was_sent_is_there_after_the_broker_was_killed(house: House, switch: Switch) -> None:
    sender = switch.connect()
    for number in range(20):
        sender.task_send(number, no_reply=True)
    house.kill(house.broker)
    sender.close()
    house.start_broker()
    got = Inbox()
    switch.connect().add_task_subscriber(got)
    assert sorted(got.next() for _ in range(20)) == list(range(20))


def test_what_is_sent_during_an_outage_waits(house: House, switch: Switch) -> None:
    communicator, ear = switch.connect(), Ear()
    communicator.add_task_subscriber(Inbox(lambda task: task))
    communicator.add_broadcast_subscriber(ear)
    house.kill(house.broker)
    starting = threading.Thread(target=house.start_broker)
    starting.start()
    future = communicator.task_send("meanwhile")
    assert communicator.broadcast_send("meanwhile too") is True
    starting.join()
    assert result_of(future) == "meanwhile"
    assert ear.next()[0] == "meanwhile too"


def test_an_outage_that_lasts_ends_in_a_time_out(house: House, switch: Switch) -> None:
    communicator = switch.connect(async_task_timeout=0.3)
    lost = threading.Event()
    communicator.add_close_callback(lambda *_: lost.set())
    house.kill(house.broker)
    assert lost.wait(PATIENCE_S)
    calls: list[Any] = [
        lambda: communicator.task_send(1),
        lambda: communicator.broadcast_send(1),
        lambda: communicator.rpc_send("clerk", 1),
        lambda: communicator.add_rpc_subscriber(Inbox(), "clerk"),
        lambda: communicator.add_broadcast_subscriber(Inbox()),
    ]
    for call in calls:
        with pytest.raises(kiwipy.TimeoutError):
            call()


def test_no_broker_at_all_is_said_in_time() -> None:
    with pytest.raises(kiwipy.TimeoutError, match="cannot reach"):
        connect("jackalope://127.0.0.1:1", async_task_timeout=0.3)


DYING = """
import sys, time
from jackalope.kiwipy.communicator import connect
communicator = connect(sys.argv[1], message_exchange=sys.argv[2], task_queue=sys.argv[3])
def hold(_, message):
    print("got", message, flush=True)
    time.sleep(600)
communicator.add_rpc_subscriber(hold, "doomed")
print("ready", flush=True)
time.sleep(600)
"""


def test_a_caller_hears_at_once_that_the_recipient_died(switch: Switch) -> None:
    caller = switch.connect()
    command = [sys.executable, "-c", DYING, switch.address]
    process = subprocess.Popen(
        [*command, f"messages-{switch.name}", f"queue-{switch.name}"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    with process.stdout as output:
        assert output.readline() == b"ready\n"
        future = caller.rpc_send("doomed", "hello")
        assert output.readline() == b"got hello\n"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with pytest.raises(kiwipy.DeliveryFailed, match="disconnected"):
            future.result(PATIENCE_S)
    with pytest.raises(kiwipy.UnroutableError):
        caller.rpc_send("doomed", "again")


def test_namespaces_see_nothing_of_each_other(house: House) -> None:
    one, two = connect(f"{house.address}/one"), connect(f"{house.address}/two")
    try:
        stranger, ear = Inbox(), Ear()
        two.add_task_subscriber(stranger)
        two.add_rpc_subscriber(Inbox(), "clerk")
        two.add_broadcast_subscriber(ear)
        one.add_task_subscriber(Inbox(lambda task: task))
        assert result_of(one.task_send("mine")) == "mine"
        one.broadcast_send("mine")
        with pytest.raises(kiwipy.UnroutableError):
            one.rpc_send("clerk", 1)
        two.broadcast_send("yours")
        assert ear.next()[0] == "yours"
        assert stranger.is_empty()
    finally:
        one.close()
        two.close()


def make_key(house: House, *permissions: str) -> str:
    """Make an API key beside one of an administrator, and return its token."""
    root, token = new_token(), new_token()
    for by, made, rights in (("", root, ("admin",)), (root, token, permissions)):
        about = {"id": id_of(made), "hash": hash_of(made), "name": "a", "permissions": rights}
        admin = Jackalope(house.address, token=by)
        with admin.sync as sync:
            sync(admin.manage("create_api_key", {"key": about}))
    return token


def test_a_key_without_admin_will_do(house: House) -> None:
    token = make_key(house, "submit_tasks", "read_tasks", "work")
    with connect({"address": house.address, "token": token}) as communicator:
        communicator.add_task_subscriber(Inbox(lambda task: task))
        communicator.add_rpc_subscriber(Inbox(lambda message: message), "clerk")
        communicator.add_broadcast_subscriber(Ear())
        assert result_of(communicator.task_send("in")) == "in"
        assert result_of(communicator.rpc_send("clerk", "in")) == "in"
        assert communicator.broadcast_send("in")


def test_a_rejection_is_no_failure_whatever_the_policy_says(house: House, switch: Switch) -> None:
    admin = Jackalope(house.address)
    with admin.sync as sync:
        sync(admin.declare_queue(f"queue-{switch.name}", changes={"retries": 0}))
    communicator, rejections = switch.connect(), [kiwipy.TaskRejected()] * 3

    def fuss(task: Any) -> Any:
        if rejections:
            raise rejections.pop()
        return task

    communicator.add_task_subscriber(Inbox(fuss))
    assert result_of(communicator.task_send("at last")) == "at last"


def test_a_key_that_permits_too_little_is_named(house: House) -> None:
    token = make_key(house, "read_tasks")
    with connect({"address": house.address, "token": token}) as communicator:
        communicator.add_broadcast_subscriber(Ear())
        calls: list[Any] = [
            lambda: communicator.add_task_subscriber(Inbox()),
            lambda: communicator.add_rpc_subscriber(Inbox(), "clerk"),
            lambda: communicator.rpc_send("clerk", 1),
            lambda: communicator.broadcast_send(1),
        ]
        for call in calls:
            with pytest.raises(kiwipy.DeliveryFailed, match="permission"):
                call()
        with pytest.raises(kiwipy.TaskRejected, match="permission"):
            communicator.task_send(1)


LEAVING = """
import sys
from jackalope.kiwipy.communicator import connect
communicator = connect(sys.argv[1])
communicator.add_task_subscriber(lambda *_: None)
communicator.add_broadcast_subscriber(lambda *_: None)
print("leaving")
"""


def test_a_program_may_end_without_closing_it(house: House) -> None:
    command = [sys.executable, "-c", LEAVING, house.address]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (ran.stdout, ran.stderr) == ("leaving\n", "")


def test_a_subscriber_that_waits_for_its_own_communicator_is_told(switch: Switch) -> None:
    communicator: JackalopeCommunicator = switch.connect()
    communicator.add_rpc_subscriber(Inbox(lambda _: communicator.task_send(1)), "clerk")
    with pytest.raises(kiwipy.RemoteException, match="its own communicator"):
        result_of(communicator.rpc_send("clerk", 1))
