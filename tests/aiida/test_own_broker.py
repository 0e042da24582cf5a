"""One's own broker: made once, started by whoever needs it, and by one of them only."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jackalope.aiida.own_broker import OwnBroker, own_folder
from jackalope.client.app import Jackalope
from jackalope.link.errors import ConfigError, ConnectionLost, Rejected
from tests.acceptance.house import wait_until

STARTING = """
import sys
from pathlib import Path
from jackalope.aiida.own_broker import OwnBroker
broker = OwnBroker(Path(sys.argv[1]))
broker.ensure_running()
print(broker.pid())
"""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[OwnBroker]:
    own = OwnBroker(tmp_path / "own")
    yield own
    own.stop()


def version_of(own: OwnBroker, token: str) -> str:
    client = Jackalope(own.address, token=token, timeout=10)
    with client.sync as sync:
        return sync(client.stats()).version


def test_it_is_in_the_folder_of_the_user() -> None:
    assert own_folder({"XDG_DATA_HOME": "/somewhere"}) == Path("/somewhere/jackalope")
    assert own_folder({}) == Path.home() / ".local/share/jackalope"


def test_many_need_it_at_once_and_one_starts_it(own: OwnBroker) -> None:
    command = [sys.executable, "-c", STARTING, str(own.folder)]
    starting = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ.copy())
        for _ in range(3)
    ]
    pids = {process.communicate()[0] for process in starting}
    assert pids == {f"{own.pid()}\n"}  # It outlives all of them.


def test_only_its_user_comes_in(own: OwnBroker) -> None:
    own.ensure_running()
    for private in (own.config, own.folder / "token"):
        assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert version_of(own, own.token)
    with pytest.raises(Rejected, match="unauthorised"):
        version_of(own, "")


def test_it_comes_back_with_what_it_had(own: OwnBroker) -> None:
    own.ensure_running()
    address, pid = own.address, own.pid()
    assert pid is not None
    client = Jackalope(address, token=own.token)
    with client.sync as sync:
        sync(client.submit("calculations", alias="mine"))
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not own.is_running(), "it is gone")
    own.revive()
    assert own.address == address
    with client.sync as sync:
        assert sync(client.find(alias="mine")).queue == "calculations"


def test_who_was_connected_does_not_start_what_was_stopped(own: OwnBroker) -> None:
    own.ensure_running()
    assert own.stop()
    assert not own.stop()
    own.revive()
    assert not own.is_running()
    own.ensure_running()  # Somebody new needs it.
    assert own.is_running()


def test_one_that_does_not_start_says_why(own: OwnBroker) -> None:
    own.ensure_running()
    own.stop()
    own.config.write_text(own.config.read_text() + "nonsense: 1\n")
    with pytest.raises(ConnectionLost, match="nonsense"):
        own.ensure_running()


def test_a_configuration_that_cannot_be_read_is_named(own: OwnBroker) -> None:
    own.folder.mkdir()
    own.config.write_text("native: {}\n")
    with pytest.raises(ConfigError, match=r"native\.port"):
        own.ensure_running()
