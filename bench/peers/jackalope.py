"""Jackalope at `fsync`, its default: nothing that was acknowledged is ever lost.

One broker process, one worker process with 1,000 tasks at once, the async client with uvloop. The
worker's results are kept by the broker, as they are by default.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Any, ClassVar

from bench.history import written
from bench.peers.base import PAYLOAD, Peer
from bench.peers.place import Place
from bench.peers.processes import Started, is_listening, python_program
from bench.peers.servers import Server
from jackalope import Jackalope, gather

#: The variable with the address, where it is not that of one broker at the place's port.
URL = "JACKALOPE_BENCH_URL"

# A phase of submits alone leaves more than the hundred thousand that a queue takes by default.
os.environ.setdefault("JACKALOPE_QUEUE_DEFAULTS__DEPTH_LIMIT", "1000000")

_PLACE = Place.current()
_CONCURRENCY = 1_000
_RESULT_S_MAX = 60

app = Jackalope(os.environ.get(URL, f"jackalope://127.0.0.1:{_PLACE.jackalope_port}"))


@app.task(queue="bench")
async def noop(payload: bytes) -> bytes:
    """Do nothing."""
    return payload


class JackalopePeer(Peer):
    """Jackalope with its defaults."""

    packages: ClassVar[tuple[str, ...]] = ("jackalope",)
    durability = "fsync"

    async def open(self) -> None:
        """Start the broker."""
        data = self.place.path / "data"
        data.mkdir()
        port = self.place.jackalope_port
        command = [*self.command("broker"), "serve", "--no-http", "--data", str(data)]
        broker = Started([*command, "--port", str(port)], self.place.path / "broker.log")
        # Its version is the client's.
        self.servers.append(Server("", broker))
        broker.wait_until(lambda: is_listening(port))

    def command(self, _role: str) -> list[str]:
        """Return how the command line is called, for the broker or the worker."""
        return [python_program("jackalope")]

    def worker_command(self) -> Sequence[str]:
        """Return a worker of one process."""
        command = [*self.command("worker"), "worker", "bench.peers.jackalope:app"]
        return [*command, "--queues", "bench", "--concurrency", str(_CONCURRENCY)]

    async def submit_one(self) -> Any:
        """Submit; it returns when the task is durable."""
        return await noop.submit(PAYLOAD)

    async def submit_bulk(self, count: int) -> list[Any]:
        """Submit by `submit_many`."""
        return list(await noop.submit_many([(PAYLOAD,)] * count))

    async def wait(self, handles: Sequence[Any]) -> None:
        """Ask for every result."""
        await gather(handles, timeout=_RESULT_S_MAX)

    async def round_trip(self) -> Any:
        """Submit, and wait for the result."""
        return await noop.run(PAYLOAD)

    async def settle(self) -> None:
        """Wait until history is written, which the list of batches does."""
        await written(app, "bench")

    async def reset(self) -> None:
        """Start the broker again with an empty folder."""
        await self.close()
        for server in self.servers:
            server.stop()
        self.servers.clear()
        shutil.rmtree(self.place.path / "data")
        await self.open()

    async def close(self) -> None:
        """Disconnect."""
        await app.close()
