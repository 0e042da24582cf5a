"""Private servers: Redis, RabbitMQ, PostgreSQL, beanstalkd, in a folder of their own on free ports.

What Debian starts by itself is neither used nor touched. What is killed rather than asked to stop
loses nothing that anybody wants: its folder is removed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.peers.place import Place
from bench.peers.processes import Started, free_port, is_listening

_NO_SPINNING = "+sbwt none +sbwtdcpu none +sbwtdio none"
_FORMATION = (
    "peer_discovery_backend = classic_config",
    "randomized_startup_delay_range.min = 0",
    "randomized_startup_delay_range.max = 1",
)
_RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_POSTGRES = Path("/usr/lib/postgresql")


class Server:
    """A server with the processes that belong to it, the one that matters last."""

    def __init__(
        self, version: str, *processes: Started, how_to_stop: signal.Signals = signal.SIGTERM
    ) -> None:
        self.version = version
        self._processes = processes
        self._how_to_stop = how_to_stop

    @property
    def pids(self) -> list[int]:
        """Return the processes whose memory and CPU are the server's."""
        return [self._processes[-1].pid]

    def kill(self) -> None:
        """Kill the process that matters, with its descendants."""
        self._processes[-1].stop(signal.SIGKILL)

    def stop(self) -> None:
        """Stop every process of it."""
        for process in reversed(self._processes):
            process.stop(self._how_to_stop)


def missing() -> list[str]:
    """Return the Debian packages whose servers are not on this machine."""
    found = {
        "redis-server": shutil.which("redis-server") is not None,
        "rabbitmq-server": _RABBITMQ.exists(),
        "postgresql": _postgres_folder() is not None,
        "beanstalkd": shutil.which("beanstalkd") is not None,
    }
    return [package for package, is_found in found.items() if not is_found]


def start_redis(place: Place) -> Server:
    """Start Redis with an append-only file, which is never rewritten while it is measured."""
    if shutil.which("redis-server") is None:
        raise _not_installed("redis-server")
    folder = _folder(place, "redis")
    options = {
        "port": str(place.redis_port),
        "bind": "127.0.0.1",
        "dir": str(folder),
        "appendonly": "yes",
        "appendfsync": place.redis_fsync,
        "auto-aof-rewrite-percentage": "0",
        "save": "",
        "daemonize": "no",
        "maxclients": "4000",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    process = Started(["redis-server", *words], folder / "log")
    process.wait_until(lambda: is_listening(place.redis_port))
    return Server(_redis_version(), process, how_to_stop=signal.SIGKILL)


def start_rabbitmq(place: Place, *, management_port: int | None = None, flags: str = "") -> Server:
    """Start RabbitMQ with a name daemon of its own, and its management plugin if asked to."""
    plugins, settings = "", ""
    if management_port is not None:
        plugins = "rabbitmq_management"
        settings = f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {management_port}\n"
        # What it shows of queues is five seconds old otherwise.
        settings += "collect_statistics_interval = 200\n"
    epmd = _start_epmd(place, epmd_port := free_port())
    try:
        node = _Rabbit(place, place.rabbitmq_port, epmd_port, flags)
        return Server(
            _rabbitmq_version(), epmd, node.start(settings, plugins), how_to_stop=signal.SIGKILL
        )
    except (OSError, RuntimeError):
        epmd.stop()
        raise


def start_rabbitmqs(place: Place, ports: Sequence[int]) -> list[Server]:
    """Start the nodes of a cluster of RabbitMQ; the first is stopped last, with the name daemon."""
    epmd = _start_epmd(place, epmd_port := free_port())
    nodes = [_Rabbit(place, port, epmd_port) for port in ports]
    # They are started one after the other, so that none has to wait for a race to be over.
    settings = "".join(f"cluster_formation.{line}\n" for line in _FORMATION) + "".join(
        f"cluster_formation.classic_config.nodes.{number} = {node.name}\n"
        for number, node in enumerate(nodes, 1)
    )
    started = [epmd]
    try:
        for node in nodes:
            started.append(node.start(settings))  # noqa: PERF401 - one may fail
    except (OSError, RuntimeError):
        for each in reversed(started):
            each.stop(signal.SIGKILL)
        raise
    first, *others = started[1:]
    return [
        Server(_rabbitmq_version(), epmd, first, how_to_stop=signal.SIGKILL),
        *(Server("", each, how_to_stop=signal.SIGKILL) for each in others),
    ]


def _start_epmd(place: Place, port: int) -> Started:
    """Start a name daemon, or the first node would leave one behind."""
    environment = {"ERL_EPMD_ADDRESS": "127.0.0.1", "ERL_EPMD_PORT": str(port)}
    command = ["epmd", "-port", str(port), "-address", "127.0.0.1"]
    epmd = Started(command, place.path / "epmd.log", environment=environment)
    epmd.wait_until(lambda: is_listening(port))
    return epmd


class _Rabbit:
    """One node of RabbitMQ, in a folder of its own."""

    def __init__(self, place: Place, port: int, epmd_port: int, flags: str = "") -> None:
        if not _RABBITMQ.exists():
            raise _not_installed("rabbitmq-server")
        self.name = f"bench{port}@localhost"
        self._port = port
        self._folder = folder = _folder(place, f"rabbitmq-{port}")
        self._environment = {
            "HOME": str(folder),
            "ERL_CRASH_DUMP": str(folder / "erl_crash.dump"),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(epmd_port),
            "RABBITMQ_NODENAME": self.name,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "generated"),
            # Schedulers that spin while idle take the cores from the client and the worker.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{_NO_SPINNING} {flags}",
        }

    def start(self, settings: str, plugins: str = "") -> Started:
        """Start it, and return when it accepts connections."""
        folder = self._folder
        (folder / "enabled_plugins").write_text(f"[{plugins}].\n")
        logging = "log.console = false\nlog.file.level = warning\n"
        (folder / "rabbitmq.conf").write_text(logging + settings)
        (folder / "rabbitmq-env.conf").touch()
        cookie = folder / ".erlang.cookie"
        cookie.write_text("JACKALOPEBENCH")  # By it the nodes of a cluster know each other.
        cookie.chmod(0o400)
        node = Started([str(_RABBITMQ)], folder / "output", environment=self._environment)
        try:
            node.wait_until(lambda: is_listening(self._port))
        except RuntimeError:
            node.stop(signal.SIGKILL)
            raise
        return node


def start_postgres(place: Place) -> Server:
    """Start PostgreSQL with a fresh cluster and its defaults: every commit is synced."""
    programs = _postgres_folder()
    if programs is None:
        raise _not_installed("postgresql")
    folder = _folder(place, "postgres")
    # It refuses to run as root.
    user = "postgres" if os.geteuid() == 0 else None
    if user is not None:
        place.path.chmod(0o711)
        shutil.chown(folder, user)
    _init_postgres(programs, folder / "data", user)
    command = [str(programs / "postgres"), "-D", str(folder / "data"), "-k", str(folder)]
    settings = {"port": str(place.postgres_port), "listen_addresses": "127.0.0.1"}
    # What a server with this load would be given; nothing that weakens durability.
    settings |= {"max_wal_size": "4GB", "jit": "off"}
    words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    process = Started([*command, *words], place.path / "postgres.log", user=user)
    process.wait_until(lambda: _is_postgres_ready(programs, place.postgres_port))
    # SIGINT ends the connections as well; a kill would leave shared memory behind.
    return Server(f"PostgreSQL {programs.parts[-2]}", process, how_to_stop=signal.SIGINT)


def start_beanstalkd(place: Place) -> tuple[Server, int]:
    """Start beanstalkd with a sync of every job, and return its port as well."""
    program = shutil.which("beanstalkd")
    if program is None:
        raise _not_installed("beanstalkd")
    port = free_port()
    folder = _folder(place, "beanstalkd")
    command = [program, "-l", "127.0.0.1", "-p", str(port), "-b", str(folder), "-f", "0"]
    process = Started(command, place.path / "beanstalkd.log")
    process.wait_until(lambda: is_listening(port))
    told = subprocess.run([program, "-v"], capture_output=True, text=True, check=True)
    return Server(told.stdout.strip(), process), port


def _redis_version() -> str:
    told = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True)
    words = dict(word.partition("=")[::2] for word in told.stdout.split())
    return f"Redis {words.get('v')}"


def _rabbitmq_version() -> str:
    folders = _RABBITMQ.parent.parent.glob("lib/rabbitmq_server-*")
    return f"RabbitMQ {next(folders).name.rpartition('-')[2]}"


def _init_postgres(programs: Path, data: Path, user: str | None) -> None:
    command = [str(programs / "initdb"), "--username=postgres", "--auth=trust", "--no-sync"]
    made = subprocess.run(
        [*command, "--encoding=UTF8", "--locale=C", str(data)],
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        raise RuntimeError(f"initdb failed: {made.stderr.strip()}")


def _is_postgres_ready(programs: Path, port: int) -> bool:
    command = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    return subprocess.run(command, check=False).returncode == 0


def _postgres_folder() -> Path | None:
    """Return where the newest PostgreSQL keeps its programs."""
    versions = sorted(_POSTGRES.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return versions[-1].parent if versions else None


def _not_installed(package: str) -> RuntimeError:
    return RuntimeError(f"{package} is not installed; `make bench-setup` as root installs it")


def _folder(place: Place, name: str) -> Path:
    folder = place.path / name
    folder.mkdir()
    return folder
