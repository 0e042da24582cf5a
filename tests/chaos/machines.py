"""Machines: network namespaces on a bridge, with a broker and its nats-server in each.

Owns what is made on this machine for that, and that none of it is left: namespaces, links, mounts
and processes. Everything is named after a number that is ours as long as its lock is held, so that
what a killed run has left is known as stale, and runs do not meet. Needs root and `nft`.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from jackalope.broker.cluster.members import ROUTE_PORT
from jackalope.storage.shared.nats_server import find_binary
from tests.chaos.slow_link import MARK
from tests.cluster.brokers import Process

PREFIX = "jk-chaos"
NATIVE, HTTP, AMQP, NATS = 7420, 7421, 5672, 7424
SECRET = "of the tests"  # noqa: S105
CLUSTER = "chaos"

_PROXY = 7499
_ROUTE = f"tcp dport {ROUTE_PORT}"

_NUMBERS = range(1, 255)
_LOCKS = Path(tempfile.gettempdir())


def why_not() -> str:
    """Return why there can be no machines here; empty if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [name for name in ("ip", "nft", "nsenter") if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    try:
        clean()
        run("ip", "netns", "add", f"{PREFIX}-0-probe")
        run("ip", "netns", "delete", f"{PREFIX}-0-probe")
    except CommandFailed as error:
        return f"no network namespaces here: {error}"
    return ""


def run(*command: str, given: str = "") -> str:
    result = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if result.returncode:
        raise CommandFailed(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout


class CommandFailed(Exception):
    """A program that was to change the network, or the disks, did not."""


def clean() -> None:
    """Remove what runs that were killed have left."""
    names = [line.split()[0] for line in run("ip", "netns", "list").splitlines() if line.strip()]
    stale = {name.split("-")[2] for name in names if name.startswith(f"{PREFIX}-")}
    for number in stale:
        lock = _lock(number)
        if lock is not None:
            with lock:
                _remove(number)


def _lock(number: object) -> IO[str] | None:
    """Return the lock of a number; None if another run has it."""
    file = (_LOCKS / f"{PREFIX}-{number}.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def _remove(number: object) -> None:
    """Remove the namespaces of a number, with the processes in them, and its mounts."""
    for line in run("ip", "netns", "list").splitlines():
        name = line.split()[0]
        if name.startswith(f"{PREFIX}-{number}-"):
            for pid in run("ip", "netns", "pids", name).split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            _insist("ip", "netns", "delete", name)
    # With its namespace a link goes later than that: its name would be taken.
    for name in re.findall(rf"^\d+: (jkc{number}\D*?)[@:]", run("ip", "link"), re.MULTILINE):
        with suppress(CommandFailed):
            run("ip", "link", "delete", name)
    for line in Path("/proc/mounts").read_text().splitlines():
        source, target = line.split()[:2]
        if source == f"{PREFIX}-{number}":
            _insist("umount", target)


def _insist(*command: str) -> None:
    """Do what can fail while a killed process is not quite gone."""
    end = time.monotonic() + 10
    while True:
        try:
            run(*command)
        except CommandFailed:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
        else:
            return


class Place:
    """A machine, as a namespace."""

    def __init__(self, space: str, host: str) -> None:
        self.space = space
        self.host = host

    def command(self, *command: str) -> list[str]:
        """Return a command as it is run on this machine."""
        return ["nsenter", f"--net=/run/netns/{self.space}", *command]

    def build(self, bridge: str, link: str) -> None:
        """Make the namespace, and link it with the bridge."""
        run("ip", "netns", "add", self.space)
        _insist("ip", "link", "add", link, "type", "veth", "peer", "eth0", "netns", self.space)
        run("ip", "link", "set", link, "master", bridge, "up")
        inside = ("ip", "-n", self.space)
        run(*inside, "addr", "add", f"{self.host}/24", "dev", "eth0")
        run(*inside, "link", "set", "eth0", "up")
        run(*inside, "link", "set", "lo", "up")


class Machine(Process, Place):
    """A machine with one broker and its nats-server."""

    def __init__(
        self, name: str, place: tuple[str, str], folder: Path, config: dict[str, Any]
    ) -> None:
        Process.__init__(self, name, folder, config)
        Place.__init__(self, *place)
        self.extra: dict[str, str] = {}  # of its environment

    def start(self) -> None:
        with (self.folder / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command(
                    sys.executable, "-m", "jackalope", "serve", "--config", "jackalope.yaml"
                ),
                cwd=self.folder,
                env=os.environ | self.extra,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def address(self, door: str) -> str:
        return f"{self.host}:{ {'native': NATIVE, 'http': HTTP, 'amqp': AMQP}[door] }"

    # Its nats-server.

    @property
    def nats(self) -> Path:
        return self.folder / "data" / "nats"

    def server_pid(self) -> int | None:
        """Return the process of the nats-server, if it runs."""
        with suppress(OSError, ValueError):
            pid = int((self.nats / "server.pid").read_text())
            if b"server.conf" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        return None

    def signal_server(self, number: signal.Signals) -> bool:
        pid = self.server_pid()
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return pid is not None

    def start_server(self) -> subprocess.Popen[bytes]:
        """Start the nats-server without a broker, as it was configured."""
        conf = str(self.nats.resolve() / "server.conf")
        server = subprocess.Popen(
            self.command(find_binary(), "--config", conf),
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        (self.nats / "server.pid").write_text(f"{server.pid}\n")
        return server

    # Its links.

    def drop(self, *rules: str) -> None:
        """Drop packets by these rules, each `input …` or `output …`, and no others."""
        chains = "".join(
            f"chain {hook} {{ type filter hook {hook} priority 0; policy accept; "
            + " ".join(f"{rule.partition(' ')[2]} drop;" for rule in rules if rule.startswith(hook))
            + " }\n"
            for hook in ("input", "output")
        )
        table = f"table inet chaos {{}}\ndelete table inet chaos\ntable inet chaos {{\n{chains}}}\n"
        run(*self.command("nft", "-f", "-"), given=table)

    def heal(self) -> None:
        self.drop()

    def cut_from(self, others: Iterable[Machine], *, out: bool = True, into: bool = True) -> None:
        """Let nothing through to other machines, from them, or either."""
        hosts = ", ".join(other.host for other in others if other is not self)
        rules = [f"output ip daddr {{ {hosts} }}"] * out + [f"input ip saddr {{ {hosts} }}"] * into
        self.drop(*rules)

    def lose(self, percent: int) -> None:
        """Lose a share of all packets that arrive."""
        self.drop(f"input ip saddr 10.99.0.0/16 numgen random mod 100 < {percent}")

    def slow_down(self, delay_ms: float, jitter_ms: float) -> subprocess.Popen[bytes]:
        """Delay what its nats-server sends to others and gets from them; return the proxy."""
        command = ("-m", "tests.chaos.slow_link", str(_PROXY), str(delay_ms), str(jitter_ms))
        proxy = subprocess.Popen(self.command(sys.executable, *command))
        self._add_table("slow", "nat", f"meta mark {MARK} return; {_ROUTE} redirect to :{_PROXY};")
        return proxy

    @staticmethod
    def passes(proxy: subprocess.Popen[bytes]) -> bool:
        """Return whether a connection goes through a proxy."""
        lines = Path(f"/proc/{proxy.pid}/net/tcp").read_text().splitlines()[1:]
        local = [(line.split()[1].partition(":")[2], line.split()[3]) for line in lines]
        return (f"{_PROXY:04X}", "01") in local  # 1 is established.

    def speed_up(self, proxy: subprocess.Popen[bytes]) -> None:
        run(*self.command("nft", "delete", "table", "ip", "slow"))
        proxy.kill()
        proxy.wait()

    def _add_table(self, name: str, kind: str, rules: str) -> None:
        chain = f"chain output {{ type {kind} hook output priority -100; {rules} }}"
        run(*self.command("nft", "-f", "-"), given=f"table ip {name} {{ {chain}; }}")

    def reset_routes(self, seconds: float) -> None:
        """Break the connections between nats-servers, so that they are made again."""
        rule = f"{_ROUTE} reject with tcp reset;"
        self._add_table("broken", "filter", f"{rule} {rule.replace('dport', 'sport')}")
        time.sleep(seconds)
        run(*self.command("nft", "delete", "table", "ip", "broken"))


class Machines:
    """The machines of one cluster."""

    def __init__(
        self, folder: Path, count: int, number: int, settings: dict[str, Any] | None = None
    ) -> None:
        self.number = number
        names = "abcde"[:count]
        hosts = {name: f"10.99.{number}.{index}" for index, name in enumerate(names, 1)}
        space = f"{PREFIX}-{number}"
        self.load = Place(f"{space}-load", f"10.99.{number}.253")  # where clients and workers are
        self.all = [
            Machine(
                name,
                (f"{space}-{name}", host),
                folder / name,
                config_of(name, host, hosts, settings or {}),
            )
            for name, host in hosts.items()
        ]

    def build(self, disk_mb: int = 0) -> None:
        """Make the namespaces and their links; with disks of a size if one is given."""
        bridge = f"jkc{self.number}"
        run("ip", "link", "add", bridge, "type", "bridge")
        run("ip", "addr", "add", f"10.99.{self.number}.254/24", "dev", bridge)
        run("ip", "link", "set", bridge, "up")
        self.load.build(bridge, f"{bridge}load")
        for machine in self.all:
            machine.build(bridge, f"{bridge}{machine.name}")
            if disk_mb:
                for part in ("nats", "shards"):
                    self._mount(machine.folder / "data" / part, disk_mb)

    def _mount(self, folder: Path, size_mb: int) -> None:
        folder.mkdir(parents=True)
        source = f"{PREFIX}-{self.number}"
        run("mount", "-t", "tmpfs", "-o", f"size={size_mb}m,mode=700", source, str(folder))

    @property
    def address(self) -> str:
        """Where clients find the cluster."""
        return "jackalope://" + ",".join(each.address("native") for each in self.all)

    def up(self) -> list[Machine]:
        return [each for each in self.all if each.is_up]

    def leaders(self) -> list[Machine]:
        """Return the nodes that say that they lead; now and then that is none, or two."""
        return [each for each in self.up() if each.get("/health")[1].get("is_leader")]

    def leader(self, timeout_s: float = 60.0) -> Machine:
        """Return the only node that says that it leads, once one does."""
        found: list[Machine] = []

        def look() -> bool:
            found[:] = self.leaders()
            return len(found) == 1

        self.until(look, f"one of {len(self.up())} nodes leads", timeout_s)
        return found[0]

    def until(self, is_so: Callable[[], object], what: str, timeout_s: float = 60.0) -> None:
        """Return when something is so; show what the brokers logged if it never is."""
        end = time.monotonic() + timeout_s
        while not is_so():
            if time.monotonic() > end:
                logs = "\n".join(f"--- {each.name}\n{each.log()[-3000:]}" for each in self.all)
                raise AssertionError(f"after {timeout_s} s it is not so that {what}\n{logs}")
            time.sleep(0.05)


def config_of(
    name: str, host: str, hosts: dict[str, str], settings: dict[str, Any]
) -> dict[str, Any]:
    """Return the configuration of a broker: default ports, but all of its own machine."""
    return {
        "data": {"folder": "data"},
        "auth": {"insecure": True},
        "native": {"host": host, "heartbeat": "500ms"},
        "http": {"host": host},
        "amqp": {"enabled": True, "host": host},
        "cluster": {
            "id": CLUSTER,
            "node": name,
            "members": [f"{each}={address}" for each, address in hosts.items()],
            "secret": SECRET,
            **settings,
        },
    }


@contextmanager
def running(
    folder: Path, count: int = 3, *, disk_mb: int = 0, settings: dict[str, Any] | None = None
) -> Iterator[Machines]:
    """Build machines and start their brokers; leave nothing of them, whatever happens."""
    clean()
    with ExitStack() as cleaning:
        lock, number = next(
            (lock, number) for number in _NUMBERS if (lock := _lock(number)) is not None
        )
        cleaning.enter_context(lock)
        cleaning.callback(_remove, number)
        machines = Machines(folder, count, number, settings)
        cleaning.callback(_end, machines)
        machines.build(disk_mb)
        for machine in machines.all:
            machine.start()
        yield machines


def _end(machines: Machines) -> None:
    for machine in machines.all:
        if machine.is_up:
            machine.kill()
