"""Backends: what the conformance suite needs to know of each, beside its launcher.

A worker is a shell script that writes down its environment and then does what its key says.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from jackalope.core.commands import Seen
from jackalope.core.effects import StartOrder
from jackalope.core.shapes.pool import Phase
from jackalope.pools.launcher import Launcher, WatchingLauncher
from jackalope.pools.launchers import make_launcher

#: Nothing takes that long; a machine that is busy with other tests may be slow.
PATIENCE_S = 60.0

WORKER = """\
#!/bin/sh
env -0 > "$DUMP/$WORKER_ID.new" && mv "$DUMP/$WORKER_ID.new" "$DUMP/$WORKER_ID"
case "$WORKER_KEY" in
    crash) echo "out of cheese" >&2; exit 3;;
    stubborn) trap '' TERM;;
esac
exec sleep 600
"""


class Backend(ABC):
    """One kind of launcher, and the world that it works in."""

    #: Whether a worker that ends by itself stays ended.
    keeps_the_dead = True
    #: Whether there is anything to be had of what a worker printed.
    has_last_words = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.dump = folder / "dump"
        self.dump.mkdir()
        self.worker = folder / "worker.sh"
        self.worker.write_text(WORKER)
        self.worker.chmod(0o755)

    @abstractmethod
    def launcher(self, owner: str = "one") -> Launcher:
        """Make a launcher of this backend."""

    @abstractmethod
    def broken_launcher(self) -> Launcher:
        """Make a launcher whose backend does not work."""

    async def end(self, worker: str) -> None:
        """End a worker for good behind the back of its launcher."""
        raise NotImplementedError

    def env_of(self, worker: str) -> dict[str, str] | None:
        """Return the environment that a worker really has; None if it does not run yet."""
        try:
            text = (self.dump / worker).read_bytes().decode()
        except FileNotFoundError:
            return None
        pairs = (line.partition("=") for line in text.split("\0") if line)
        return {name: value for name, _, value in pairs}

    async def open(self) -> None:  # noqa: B027  some have nothing to open
        """Begin."""

    async def close(self) -> None:  # noqa: B027
        """End."""


class Subprocess(Backend):
    def launcher(self, owner: str = "one") -> Launcher:
        return self.made(self.folder / "home" / owner)

    def broken_launcher(self) -> Launcher:
        (self.folder / "file").touch()
        return self.made(self.folder / "file" / "home")

    def made(self, home: Path, **settings: object) -> Launcher:
        given = {"command": [str(self.worker)], "env": {"DUMP": str(self.dump)}, **settings}
        return make_launcher({"type": "subprocess", **given}, home, "")


# What tests are made of.

Scenario = Callable[[Launcher], Awaitable[None]]


def play(backend: Backend, scenario: Scenario) -> None:
    """Run a scenario with a launcher, and leave nothing behind."""

    async def whole() -> None:
        await backend.open()
        launcher = backend.launcher()
        try:
            async with asyncio.timeout(2 * PATIENCE_S):
                await scenario(launcher)
        finally:
            await launcher.close()
            await sweep(backend)
            await backend.close()

    asyncio.run(whole())


async def sweep(backend: Backend) -> None:
    launcher = backend.launcher()
    for each in await launcher.list():
        await launcher.stop(each.launch, 0)
    await until(lambda: is_empty(launcher), "the end of all workers")
    await launcher.close()


def launch(worker: str, key: str = "42", **changes: object) -> StartOrder:
    given: dict[str, object] = {
        "launch": worker,
        "namespace": "default",
        "queue": "core",
        "key": key,
        "generation": 2**63 + 1,
        "version": "v1.2+dirty",
        "workers_min": 1,
        "workers_max": 1,
        **changes,
    }
    return StartOrder(**given)  # type: ignore[arg-type]


def env_for(order: StartOrder) -> dict[str, str]:
    return {
        "WORKER_ID": order.launch,
        "WORKER_KEY": order.key,
        "WORKER_POOL": order.queue,
        "WORKER_REQUESTS_QUEUE": f"{order.queue}-req-{order.key}",
    }


def to_start(worker: str, key: str = "42", **changes: object) -> tuple[StartOrder, dict[str, str]]:
    """Return an order and its environment, as `start` takes them."""
    order = launch(worker, key, **changes)
    return order, env_for(order)


async def until(check: Callable[[], Awaitable[object]], what: str = "what is waited for") -> None:
    """Look again and again until something is so."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not await check():
        assert time.monotonic() < give_up_at, f"{what} did not come"
        await asyncio.sleep(0.05)


async def find(launcher: Launcher, worker: str) -> Seen | None:
    return next((each for each in await launcher.list() if each.launch == worker), None)


async def is_empty(launcher: Launcher) -> bool:
    return not await launcher.list()


async def reach(launcher: Launcher, worker: str, phase: Phase) -> Seen:
    """Wait until something is in a phase."""

    async def is_there() -> bool:
        found = await find(launcher, worker)
        return found is not None and found.phase is phase

    await until(is_there, f"{worker} {phase}")
    found = await find(launcher, worker)
    assert found is not None
    return found


async def running(backend: Backend, launcher: Launcher, order: StartOrder) -> Seen:
    """Start something, and wait until it really runs."""
    await launcher.start(order, env_for(order))

    async def is_dumped() -> bool:
        return backend.env_of(order.launch) is not None

    await until(is_dumped, f"the environment of {order.launch}")
    return await reach(launcher, order.launch, Phase.RUNNING)


class Watched:
    """A watch that holds.

    Attributes:
        told: set when there was a change.
        task: the watch itself.
    """

    def __init__(self, launcher: Launcher) -> None:
        assert isinstance(launcher, WatchingLauncher)
        self.told = asyncio.Event()
        self.task = asyncio.create_task(launcher.watch(self.told.set))

    async def next(self) -> None:
        """Wait until something is told, and be ready for more."""
        async with asyncio.timeout(PATIENCE_S):
            await self.told.wait()
        self.told.clear()

    async def over(self) -> None:
        """Wait until the watch is over; raise why."""
        async with asyncio.timeout(PATIENCE_S):
            await self.task


@asynccontextmanager
async def watched(launcher: Launcher) -> AsyncIterator[Watched]:
    """Watch, from when the watch holds."""
    watch = Watched(launcher)
    try:
        await watch.next()
        yield watch
    finally:
        watch.task.cancel()
        await asyncio.gather(watch.task, return_exceptions=True)
