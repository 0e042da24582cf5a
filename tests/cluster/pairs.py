"""A broker and its standby, in processes of their own."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from jackalope import Jackalope
from jackalope.core.ids import id_text
from jackalope.core.records import encode_batch
from jackalope.storage import Storage
from jackalope.storage.journals import JournalKind
from tests.cluster import application
from tests.cluster.brokers import SECRET, Process, until
from tests.ports import free_port


def config_of(**more: Any) -> dict[str, Any]:
    """Return the configuration of a broker with a peer port."""
    peer = {"port": free_port(), "secret": SECRET, **more.pop("peer", {})}
    data = {"folder": "data", **more.pop("data", {})}
    return {
        "data": data,
        "native": {"port": free_port(), "heartbeat": "500ms"},
        "http": {"port": free_port()},
        "peer": peer,
        **more,
    }


def following(folder: Path, name: str, *primaries: Process, **more: Any) -> Process:
    """Return a standby of a broker, or of a cluster."""
    peer = {"follow": ",".join(f"127.0.0.1:{peer_port(each)}" for each in primaries)}
    return Process(name, folder / name, config_of(peer=peer | more.pop("peer", {}), **more))


def peer_port(process: Process) -> int:
    return process.peer_port if "cluster" in process.config else process.config["peer"]["port"]


def rewrite(process: Process, **more: Any) -> None:
    """Change the configuration of a broker, from its next start on."""
    for key, value in more.items():
        process.config[key] = process.config.get(key, {}) | value
    (process.folder / "jackalope.yaml").write_text(yaml.safe_dump(process.config))


def promote(standby: Process) -> subprocess.CompletedProcess[str]:
    return command(standby, "promote")


def command(process: Process, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command with the configuration of a broker."""
    return subprocess.run(
        [sys.executable, "-m", "jackalope", *words, "--config", "jackalope.yaml"],
        cwd=process.folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


class Pair:
    """A broker and its standby."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.primary = Process("primary", folder / "primary", config_of(**more))
        self.standby = following(folder, "standby", self.primary, **more)
        self.both = [self.primary, self.standby]

    @property
    def address(self) -> str:
        return "jackalope://" + ",".join(each.address("native") for each in self.both)

    def promote(self) -> subprocess.CompletedProcess[str]:
        return promote(self.standby)

    def applied(self, process: Process) -> int:
        return int(process.get("/health")[1].get("applied") or -1)

    def until_equal(self) -> None:
        """Return when the standby has all that the primary has."""
        until(lambda: 0 < self.applied(self.primary) == self.applied(self.standby), self.both)


@contextmanager
def started(pair: Pair) -> Iterator[Pair]:
    """Run a pair until the standby follows."""
    with ExitStack() as ending:
        for each in pair.both:
            ending.callback(each.end)
            each.start()
        until(lambda: pair.primary.get("/health")[0] == 200, pair.both)
        until(lambda: follows(pair.standby), pair.both)
        yield pair


def follows(standby: Process) -> bool:
    """Return whether a standby has all that it was told of, and hears the primary."""
    told = trouble(standby)
    return "0 batches behind" in told and "nothing was heard" not in told


def trouble(process: Process) -> str:
    return str(process.get("/health")[1].get("trouble", ""))


@contextmanager
def client(address: str) -> Iterator[Jackalope]:
    app = application.app
    before, app.address = app.address, Jackalope(address).address
    try:
        yield app
    finally:
        app.address = before


@contextmanager
def worker(address: str, folder: Path) -> Iterator[None]:
    with (folder / "worker.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "jackalope", "worker", "tests.cluster.application:app"],
            env=os.environ | {"JACKALOPE_URL": address},
            stdout=log,
            stderr=log,
        )
    yield
    process.kill()
    process.wait()


def submit(address: str, folder: Path, first: int, count: int) -> list[str]:
    """Submit tasks, and return the ids of those that were acknowledged."""

    async def play() -> list[str]:
        with client(address) as app:
            async with app:
                numbers = range(first, first + count)
                return [
                    id_text((await application.mark.submit(str(folder), n)).id) for n in numbers
                ]

    return asyncio.run(play())


def address(process: Process) -> str:
    """Return where clients find one broker."""
    return f"jackalope://{process.address('native')}"


def body_of(number: int) -> bytes:
    """Return a body that is stored as a blob."""
    return bytes([number]) * 300_000


def submit_large(address: str, first: int, count: int) -> list[str]:
    """Submit tasks with large payloads, and return their ids."""

    async def play() -> list[str]:
        with client(address) as app:
            async with app:
                numbers = range(first, first + count)
                handles = [await application.echo.submit(body_of(n)) for n in numbers]
                return [id_text(each.id) for each in handles]

    return asyncio.run(play())


def results(address: str, tasks: list[str]) -> list[bytes]:
    """Await the results of tasks."""

    async def play() -> list[bytes]:
        with client(address) as app:
            async with app:
                return [await app.handle(task).result(timeout=60) for task in tasks]

    return asyncio.run(play())


def trim(data: Path) -> None:
    """Remove from a journal what history has; a broker does so after a thousand batches."""
    is_sqlite = (data / "journal.db").exists()
    kind = JournalKind.SQLITE if is_sqlite else JournalKind.SEGMENTS
    storage = Storage.open(data, kind=kind)
    storage.journal.claim()
    storage.journal.trim(storage.history.applied())
    storage.journal.append(encode_batch([]))
    storage.close()
