"""Real servers for tests, on loopback: nats-servers, as many as a cluster has, and PostgreSQL."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from jackalope.storage.shared.jetstream import JetStreamEngine
from jackalope.storage.shared.nats_server import NatsServer, ServerPlace
from tests.ports import free_port

PASSWORD = "of the tests"  # noqa: S105


class Servers:
    """The nats-servers of a cluster."""

    def __init__(self, folder: Path, count: int = 3) -> None:
        hosts = [[f"127.0.0.1:{free_port()}" for _ in range(3)] for _ in range(count)]
        routes = tuple(route for _, route, _ in hosts)
        self.urls = [f"nats://{client}" for client, _, _ in hosts]
        self.all = [
            NatsServer(
                folder / f"n{number}",
                ServerPlace(
                    name=f"n{number}",
                    cluster="test",
                    client=client,
                    route=route,
                    routes=routes,
                    monitor=monitor,
                    password=PASSWORD,
                ),
            )
            for number, (client, route, monitor) in enumerate(hosts)
        ]

    def engine(self, cluster: str, bytes_max: int = -1) -> JetStreamEngine:
        """Return a client of the log of a cluster; the log is made if it is not there."""
        engine = JetStreamEngine(
            self.urls,
            cluster,
            replicas=len(self.all),
            bytes_max=bytes_max,
            user="jackalope",
            password=PASSWORD,
        )
        engine.open(60)
        return engine


@contextmanager
def running(folder: Path, count: int = 3) -> Iterator[Servers]:
    """Start nats-servers, and stop them at the end."""
    servers = Servers(folder, count)
    with ExitStack() as stopping:
        for server in servers.all:
            server.start()
            stopping.callback(server.stop)
        for server in servers.all:
            server.wait()
        yield servers


# PostgreSQL, where Debian's package is installed.

_POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parts[-2]))


def has_postgres() -> bool:
    return bool(_POSTGRES)


@contextmanager
def postgres() -> Iterator[str]:
    """Start PostgreSQL with a database of its own, and return how to connect to it."""
    with TemporaryDirectory(prefix="jackalope-postgres-") as folder:
        yield from _postgres(Path(folder))


def _postgres(folder: Path) -> Iterator[str]:
    programs, port = _POSTGRES[-1], free_port()
    user = "postgres" if os.geteuid() == 0 else None  # It refuses to run as root.
    if user is not None:
        shutil.chown(folder, user)
    data = folder / "data"
    groups: list[str] | None = None if user is None else []

    def run(*command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            user=user,
            group=user,
            extra_groups=groups,
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    made = run(str(programs / "initdb"), "-U", "postgres", "-A", "trust", "-N", str(data))
    assert made.wait() == 0
    settings = ["-c", "listen_addresses=127.0.0.1", "-c", f"port={port}"]
    server = run(str(programs / "postgres"), "-D", str(data), "-k", str(folder), *settings)
    try:
        is_ready = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
        while subprocess.run(is_ready, check=False).returncode:
            assert server.poll() is None
            time.sleep(0.05)
        yield f"host=127.0.0.1 port={port} user=postgres dbname=postgres"
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()
