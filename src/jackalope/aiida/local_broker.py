"""The local broker: one broker for each user, on this machine, started on demand.

Owns its folder: configuration, token, log and data. The broker belongs to the user and not to
the process that started it: it goes on when the shell, the daemon or the notebook ends. Clients
need the token in the folder, because others may have accounts on this machine too. Owns the thread
that starts it again, too.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from random import SystemRandom
from typing import Any, Protocol

import yaml

from jackalope.errors import ConfigError, ConnectionLost
from jackalope.transport.connector import Backoff

HOST = "127.0.0.1"

#: Two of these are drawn, once and for all: outgoing connections have higher ones, and users of one
#: machine must not fight for the same.
_PORTS = range(20_000, 30_000)
_DRAWS = 3

#: How long a broker may take to start; one that has much to recover takes longer than most.
START_S = 60.0
_LOOK_S = 0.05
_LOG_LINES = 10

#: A shell starts it and ends, so that the broker is detached from this process.
_DETACH = 'log=$1; shift; "$@" >>"$log" 2>&1 </dev/null & echo $!'


def own_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder of the user's own broker."""
    shared = environment.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(shared) / "jackalope"


class LocalBroker:
    """The user's own broker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder  # where everything is
        # its configuration file, which `jackalope serve --config` takes as well
        self.config = folder / "jackalope.yaml"
        self.log = folder / "broker.log"  # what it has to say
        self._token = folder / "token"
        self._stopped = folder / "stopped"
        self._settings: dict[str, Any] = {}
        self._settings_of: tuple[int, int] | None = None

    @classmethod
    def of_user(cls) -> LocalBroker:
        """Return the broker of the user that runs this process."""
        return cls(own_folder(os.environ))

    def is_made(self) -> bool:
        """Return whether there is one, running or not."""
        return self.config.exists()

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"jackalope://{HOST}:{self._port('native')}"

    @property
    def dashboard(self) -> str:
        """Where its dashboard is; empty if it has none."""
        is_open = self._read().get("http", {}).get("enabled", True)
        return f"http://{HOST}:{self._port('http')}" if is_open else ""

    @property
    def token(self) -> str:
        try:
            return self._token.read_text().strip()
        except OSError:
            return ""  # Without it the broker is open, or reports that a key is needed.

    def is_running(self) -> bool:
        """Return whether it runs and listens."""
        return self.pid() is not None

    def pid(self) -> int | None:
        """Return its process, if it runs and listens.

        Another program may listen at its port while it does not run, and must not see the token.
        """
        try:
            holder = (self.folder / "data" / "lock").read_text().split()
        except OSError:
            return None
        if not self.is_made() or not holder or not holder[0].isdecimal():
            return None
        is_there = _is_alive(int(holder[0])) and _is_listening(self._port("native"))
        return int(holder[0]) if is_there else None

    def ensure_running(self) -> None:
        """Make it if there is none, and start it unless it runs. Any number may ask at once."""
        if self.is_running():
            return
        with self._locked():
            self._stopped.unlink(missing_ok=True)
            if not self.is_made():
                self._begin()
            elif not self.is_running():
                self._start()

    def revive(self, *, is_needed: bool) -> None:
        """Start it again for a client that lost its connection.

        One that was stopped stays so until it is needed. One whose folder was removed is not made
        again: it would have another address and another token, and the client could not use it.
        `is_needed`: the client cannot do without it.
        """
        if not self.is_made():
            raise ConfigError(
                f"the broker of {self.folder} was removed while it was used; a new one has another "
                "address: `verdi daemon restart`, and restart other programs that use it"
            )
        if is_needed or not self._stopped.exists():
            self.ensure_running()

    def stop(self, timeout_s: float = START_S) -> bool:
        """Stop it as SIGTERM does, and return whether it ran. It starts again when it is needed."""
        pid = self.pid()
        if pid is None:
            return False
        self._stopped.touch()
        os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + timeout_s
        while self.pid() == pid:
            if time.monotonic() > until:
                raise ConnectionLost(
                    f"the broker, process {pid}, was asked to stop and is still running"
                )
            time.sleep(_LOOK_S)
        return True

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let one process at a time make or start it."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.folder / "start.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _begin(self) -> None:
        """Make and start it; with other ports if another program has taken these."""
        for draw in range(1, _DRAWS + 1):
            self._make()
            try:
                return self._start()
            except ConnectionLost:
                self.config.unlink()
                if draw == _DRAWS:
                    raise
        return None

    def _make(self) -> None:
        made = self._jackalope("keys", "new", "aiida", "--permission", "admin", "--format", "json")
        answer = json.loads(made)
        _write_private(self._token, answer["token"] + "\n")
        drawn = SystemRandom().sample(_PORTS, len(_PORTS))
        ports = (port for port in drawn if not _is_taken(port))
        settings: dict[str, Any] = {
            "data": {"folder": str(self.folder / "data")},
            "native": {"host": HOST, "port": next(ports)},
            "http": {"host": HOST, "port": next(ports)} if _has_http() else {"enabled": False},
            "auth": answer["auth"],
            "log": {"level": "warn"},
        }
        # Last and at once: where this file is, everything is.
        draft = self.config.with_suffix(".new")
        _write_private(draft, yaml.safe_dump(settings, sort_keys=False))
        draft.replace(self.config)

    def _start(self) -> None:
        self._port("native")  # One without would listen where no client looks for it.
        self._await_folder()
        if self.is_running():
            return
        command = [sys.executable, "-m", "jackalope", "serve", "--config", str(self.config)]
        started = subprocess.run(  # noqa: S603  our own command
            ["/bin/sh", "-c", _DETACH, "sh", str(self.log), *command],
            capture_output=True,
            text=True,
            check=True,
            cwd=self.folder,
            env=_environment(),
            start_new_session=True,
        )
        pid, until = int(started.stdout), time.monotonic() + START_S
        while not self.is_running():
            if not _is_alive(pid) or time.monotonic() > until:
                raise ConnectionLost(f"the broker of {self.config} does not start: {self._said()}")
            time.sleep(_LOOK_S)

    def _await_folder(self) -> None:
        """Wait for a broker that is ending: it holds the data folder until all is written."""
        try:
            lock = (self.folder / "data" / "lock").open("r+")
        except OSError:
            return  # There was none yet.
        until = time.monotonic() + START_S
        with lock:
            while not _can_lock(lock.fileno()) and time.monotonic() < until:
                if self.is_running():
                    return
                time.sleep(_LOOK_S)

    def _said(self) -> str:
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        return "\n".join(lines[-_LOG_LINES:]) or f"see {self.log}"

    def _jackalope(self, *words: str) -> str:
        command = [sys.executable, "-m", "jackalope", *words]
        return subprocess.run(  # noqa: S603  our own command
            command, capture_output=True, text=True, check=True, env=_environment()
        ).stdout

    def _read(self) -> dict[str, Any]:
        """Return the configuration as it stands: another process may have made a new one."""
        try:
            stat = self.config.stat()
            version = stat.st_ino, stat.st_mtime_ns
            if version != self._settings_of:
                self._settings = yaml.safe_load(self.config.read_text()) or {}
                self._settings_of = version
        except (OSError, yaml.YAMLError) as error:
            raise ConfigError(f"{self.config} cannot be read: {error}") from None
        return self._settings

    def _port(self, door: str) -> int:
        try:
            return int(self._read()[door]["port"])
        except (KeyError, TypeError, ValueError):
            raise ConfigError(f"{self.config} has no {door}.port; add it") from None


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def _environment() -> dict[str, str]:
    """Return the environment without what would change the settings of the broker."""
    return {name: text for name, text in os.environ.items() if not name.startswith("JACKALOPE_")}


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return True
    return False


def _is_alive(pid: int) -> bool:
    """Return whether a process of this user is there."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _can_lock(descriptor: int) -> bool:
    """Return whether no other process holds the lock of a file."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


def _has_http() -> bool:
    return find_spec("uvicorn") is not None


# The reviver: starts the broker again while a communicator has no connection to it.
#
# It has one thread, from a lost connection until the next one. A broker that is being killed or
# stopped still listens for a moment, and one that starts may die again, so asking once is not
# enough: the thread asks again, with growing waits, until the communicator is connected or closed.

log = logging.getLogger("jackalope.aiida")

#: The longest wait between two tries, in seconds.
_WAIT_S_MAX = 2.0


class Broker(Protocol):
    """A broker that can be started."""

    def revive(self, *, is_needed: bool) -> None:
        """Start it unless it runs, or was stopped and is not needed."""


class Communicator(Protocol):
    """A communicator that uses the broker."""

    def is_closed(self) -> bool:
        """Return whether it was closed."""

    def is_connected(self) -> bool:
        """Return whether it has a connection."""

    def needs_broker(self) -> bool:
        """Return whether it cannot do without a broker."""

    def add_close_callback(self, callback: Callable[[Any, BaseException | None], Any]) -> None:
        """Have a function called each time that a connection has ended."""


class Reviver:
    """Starts a broker again for a communicator, after each lost connection."""

    def __init__(self, broker: Broker, communicator: Communicator) -> None:
        self._broker = broker
        self._communicator = communicator
        self._lock = threading.Lock()
        self._is_at_work = False
        self._woken = threading.Event()
        communicator.add_close_callback(self._on_lost)

    def _on_lost(self, _: Any, error: BaseException | None) -> None:
        """Begin, unless a thread is at work. The communicator's thread calls this."""
        self._woken.set()
        if error is None:
            return
        with self._lock:
            if self._is_at_work:
                return
            self._is_at_work = True
        threading.Thread(target=self._work, name="jackalope-revive", daemon=True).start()

    def _work(self) -> None:
        backoff, last = Backoff(cap_s=_WAIT_S_MAX), ""
        while not self._is_done():
            self._woken.clear()
            try:
                self._broker.revive(is_needed=self._communicator.needs_broker())
            except Exception as error:  # noqa: BLE001  whatever it was, it may be over next time
                if str(error) != last:
                    log.error("the broker is gone, and cannot be started: %s", error)  # noqa: TRY400
                last = str(error)
            self._woken.wait(backoff.next_s())

    def _is_done(self) -> bool:
        """Return whether nothing is left to do; a loss after that begins another thread."""
        with self._lock:
            if self._communicator.is_closed() or self._communicator.is_connected():
                self._is_at_work = False
            return not self._is_at_work
