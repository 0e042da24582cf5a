"""One's own broker: made once, started by whoever needs it, and by one of them only."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jackalope.aiida.local_broker import HOST, LocalBroker, Reviver, own_folder
from jackalope.client.app import Jackalope
from jackalope.errors import ConfigError, ConnectionLost, Rejected
from jackalope.kiwipy.communicator import JackalopeCommunicator
from tests.acceptance.harness import wait_until
from tests.kiwipy.harness import result_of

STARTING = """
import sys
from pathlib import Path
from jackalope.aiida.local_broker import LocalBroker
broker = LocalBroker(Path(sys.argv[1]))
broker.ensure_running()
print(broker.pid())
"""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[LocalBroker]:
    own = LocalBroker(tmp_path / "own")
    yield own
    own.stop()


def version_of(own: LocalBroker, token: str) -> str:
    client = Jackalope(own.address, token=token, timeout=10)
    with client.sync as sync:
        return sync(client.stats()).version


def test_it_is_in_the_folder_of_the_user() -> None:
    assert own_folder({"XDG_DATA_HOME": "/somewhere"}) == Path("/somewhere/jackalope")
    assert own_folder({}) == Path.home() / ".local/share/jackalope"


def test_many_need_it_at_once_and_one_starts_it(own: LocalBroker) -> None:
    command = [sys.executable, "-c", STARTING, str(own.folder)]
    starting = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ.copy())
        for _ in range(3)
    ]
    pids = {process.communicate()[0] for process in starting}
    assert pids == {f"{own.pid()}\n"}  # It outlives all of them.


def test_only_its_user_comes_in(own: LocalBroker) -> None:
    own.ensure_running()
    for private in (own.config, own.folder / "token"):
        assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert version_of(own, own.token)
    with pytest.raises(Rejected, match="unauthorised"):
        version_of(own, "")


def kill(own: LocalBroker) -> int:
    """Kill it without warning, and return the process that it was."""
    pid = own.pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


def test_it_comes_back_with_what_it_had(own: LocalBroker) -> None:
    own.ensure_running()
    address = own.address
    client = Jackalope(address, token=own.token)
    with client.sync as sync:
        sync(client.submit("calculations", alias="mine"))
    kill(own)
    wait_until(lambda: not own.is_running(), "it is gone")
    own.revive(is_needed=False)
    assert own.address == address
    with client.sync as sync:
        assert sync(client.find(alias="mine")).queue == "calculations"


def test_what_was_stopped_starts_when_it_is_needed(own: LocalBroker) -> None:
    own.ensure_running()
    assert own.stop()
    assert not own.stop()
    own.revive(is_needed=False)
    assert not own.is_running()
    own.revive(is_needed=True)
    assert own.is_running()
    own.stop()
    own.ensure_running()  # A new client needs it.
    assert own.is_running()


@pytest.fixture
def connect(own: LocalBroker) -> Iterator[Callable[[], JackalopeCommunicator]]:
    """Connects communicators that start the broker again, as the plugin's do."""
    opened: list[JackalopeCommunicator] = []

    def connect() -> JackalopeCommunicator:
        own.ensure_running()
        params = {"address": own.address, "token": own.token}
        opened.append(JackalopeCommunicator(params, async_task_timeout=60))
        Reviver(own, opened[-1])
        return opened[-1]

    yield connect
    for communicator in opened:
        communicator.close()


def is_back(own: LocalBroker, before: int, worker: JackalopeCommunicator) -> bool:
    return own.pid() not in (None, before) and worker.is_connected()


def test_it_comes_back_each_time_that_it_is_killed_or_stopped_under_an_idle_worker(
    own: LocalBroker, connect: Callable[[], JackalopeCommunicator]
) -> None:
    worker = connect()
    worker.add_task_subscriber(lambda _, task: task)
    for _ in range(3):
        before = kill(own)
        wait_until(lambda: is_back(own, before, worker), "it is back after a kill")  # noqa: B023
    for _ in range(2):
        before = own.pid() or 0
        assert own.stop()
        wait_until(lambda: is_back(own, before, worker), "it is back after a stop")  # noqa: B023
    assert result_of(connect().task_send(1)) == 1


def test_a_client_that_needs_nothing_leaves_it_stopped_until_it_does(
    own: LocalBroker, connect: Callable[[], JackalopeCommunicator]
) -> None:
    shell = connect()
    assert own.stop()
    wait_until(lambda: not shell.is_connected(), "the connection is lost")
    assert not shell.needs_broker()
    assert not own.is_running()
    shell.task_send("calculation", no_reply=True)
    assert own.is_running()


def test_its_folder_is_removed_under_it(
    own: LocalBroker, connect: Callable[[], JackalopeCommunicator], caplog: pytest.LogCaptureFixture
) -> None:
    worker = connect()
    worker.add_task_subscriber(lambda _, task: task)
    first, port = own.pid(), int(own.address.rpartition(":")[2])
    shutil.rmtree(own.folder)
    wait_until(lambda: not is_listening(port), "the broker without a folder ends")
    wait_until(lambda: "was removed while it was used" in caplog.text, "the worker reports it")
    LocalBroker(own.folder).ensure_running()  # Another process makes a new one.
    assert own.pid() not in (None, first)
    assert result_of(connect().task_send(1, no_reply=True)) is None


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def test_one_that_does_not_start_says_why(own: LocalBroker) -> None:
    own.ensure_running()
    own.stop()
    own.config.write_text(own.config.read_text() + "nonsense: 1\n")
    with pytest.raises(ConnectionLost, match="nonsense"):
        own.ensure_running()


def test_a_configuration_that_cannot_be_read_is_named(own: LocalBroker) -> None:
    own.folder.mkdir()
    own.config.write_text("native: {}\n")
    with pytest.raises(ConfigError, match=r"native\.port"):
        own.ensure_running()
