"""What every launcher owes, on every backend."""

import asyncio
import time
from pathlib import Path

import pytest

from jackalope.core.shapes.pool import Phase
from jackalope.pools.launcher import Launcher, LaunchFailed
from tests.pools.launchers.backends import (
    Backend,
    Subprocess,
    env_for,
    find,
    is_empty,
    launch,
    play,
    reach,
    running,
    to_start,
    until,
    watched,
)
from tests.pools.launchers.docker import Docker
from tests.pools.launchers.kubernetes import Kubernetes, KubernetesHpa, KubernetesKeda
from tests.pools.launchers.systemd import RealSystemd, Systemd, real_systemd

BACKENDS: list[type[Backend]] = [
    Subprocess,
    Systemd,
    Docker,
    Kubernetes,
    KubernetesHpa,
    KubernetesKeda,
]

#: Those whose backends tell of changes.
WATCHED: list[type[Backend]] = [Docker, Kubernetes, KubernetesHpa, KubernetesKeda]

KEYS = [
    "",
    "42",
    "infra=42,timetable=24",
    "42-7",
    "héllo/ü 🐇",
    "  spaces  ",
    "quote\" apostrophe' dollar$HOME back\\slash `tick` %i #{x} ~",
    "two\nlines\tand\rmore",
    "../../etc",
    "long" * 500,
]


@pytest.fixture(params=BACKENDS, ids=lambda each: each.__name__.lower())
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    kind: type[Backend] = request.param
    return (RealSystemd if kind is Systemd and real_systemd() else kind)(tmp_path)


def test_nothing_runs_at_first(backend: Backend) -> None:
    async def scenario(launcher: Launcher) -> None:
        assert await launcher.list() == []

    play(backend, scenario)


@pytest.mark.feature("O18")
def test_started_is_listed_with_its_labels_and_has_its_environment(backend: Backend) -> None:
    async def scenario(launcher: Launcher) -> None:
        orders = [launch(f"w-{number}", key) for number, key in enumerate(KEYS)]
        await asyncio.gather(*(launcher.start(order, env_for(order)) for order in orders))
        for order in orders:
            await running(backend, launcher, order)
        listed = {each.launch: each for each in await launcher.list()}
        assert len(listed) == len(orders)
        for order in orders:
            found = listed[order.launch]
            for field in ("namespace", "queue", "key", "version"):
                assert getattr(found, field) == getattr(order, field)
            assert found.external_id
            env = backend.env_of(order.launch)
            assert env is not None
            assert env.items() >= env_for(order).items()

    play(backend, scenario)


def test_to_start_what_runs_changes_nothing(backend: Backend) -> None:
    async def scenario(launcher: Launcher) -> None:
        before = await running(backend, launcher, launch("w-1"))
        await asyncio.gather(*(launcher.start(*to_start("w-1", generation=5)) for _ in range(5)))
        assert await launcher.list() == [before]

    play(backend, scenario)


def test_orders_at_once_start_one(backend: Backend) -> None:
    async def scenario(launcher: Launcher) -> None:
        await asyncio.gather(*(launcher.start(*to_start("w-1")) for _ in range(5)))
        await reach(launcher, "w-1", Phase.RUNNING)
        assert len(await launcher.list()) == 1

    play(backend, scenario)


@pytest.mark.feature("O18")
def test_stopped_is_gone(backend: Backend) -> None:
    async def scenario(launcher: Launcher) -> None:
        await running(backend, launcher, launch("w-1"))
        await running(backend, launcher, launch("w-2"))
        await launcher.stop("w-1", 600)
        found = await find(launcher, "w-1")
        assert found is None or found.phase is Phase.STOPPING
        await until(lambda: _is_gone(launcher, "w-1"))
        assert [each.launch for each in await launcher.list()] == ["w-2"]

    play(backend, scenario)


def test_stop_returns_before_the_end_and_force_comes_after_the_grace(backend: Backend) -> None:
    async def scenario(launcher: Launcher) -> None:
        await running(backend, launcher, launch("w-1", "stubborn"))
        await running(backend, launcher, launch("w-2", "stubborn"))
        await launcher.stop("w-1", 600)
        began = time.monotonic()
        await launcher.stop("w-2", 1)
        await until(lambda: _is_gone(launcher, "w-2"))
        assert time.monotonic() - began >= 1
        found = await find(launcher, "w-1")
        assert found is not None
        assert found.phase is Phase.STOPPING

    play(backend, scenario)


def test_to_stop_what_is_gone_or_going_changes_nothing(backend: Backend) -> None:
    async def scenario(launcher: Launcher) -> None:
        await launcher.stop("nobody", 1)
        await running(backend, launcher, launch("w-1"))
        await asyncio.gather(*(launcher.stop("w-1", 600) for _ in range(3)))
        await until(lambda: is_empty(launcher))
        await launcher.stop("w-1", 1)

    play(backend, scenario)


def test_stopped_at_once_after_the_start_is_gone(backend: Backend) -> None:
    async def scenario(launcher: Launcher) -> None:
        for number in range(5):
            await launcher.start(*to_start(f"w-{number}"))
            await launcher.stop(f"w-{number}", 600)
        await until(lambda: is_empty(launcher))

    play(backend, scenario)


def test_what_ends_by_itself_is_told_until_it_is_stopped(backend: Backend) -> None:
    async def scenario(launcher: Launcher) -> None:
        await launcher.start(*to_start("w-1", "crash"))
        if not backend.keeps_the_dead:
            await until(lambda: _says(launcher, "w-1", "out of cheese"))
            return
        found = await reach(launcher, "w-1", Phase.ENDED)
        assert "3" in found.detail
        if backend.has_last_words:
            await until(lambda: _says(launcher, "w-1", "out of cheese"))
        await launcher.stop("w-1", 600)
        await until(lambda: is_empty(launcher))

    play(backend, scenario)


def test_what_runs_is_found_again(backend: Backend) -> None:
    async def scenario(launcher: Launcher) -> None:
        before = [
            await running(backend, launcher, launch(f"w-{number}", key))
            for number, key in enumerate(KEYS[:5])
        ]
        await launcher.close()
        later = backend.launcher()
        try:
            found = sorted(await later.list(), key=lambda each: each.launch)
            assert found == before
            await later.start(*to_start("w-0", KEYS[0]))
            assert len(await later.list()) == len(before)
            await later.stop("w-1", 600)
            await until(lambda: _is_gone(later, "w-1"))
        finally:
            await later.close()

    play(backend, scenario)


def test_what_another_owner_started_is_left_alone(backend: Backend) -> None:
    async def scenario(launcher: Launcher) -> None:
        other = backend.launcher("two")
        try:
            await running(backend, other, launch("w-1"))
            assert await launcher.list() == []
            await launcher.stop("w-1", 0)
            await reach(other, "w-1", Phase.RUNNING)
            await other.stop("w-1", 0)
            await until(lambda: is_empty(other))
        finally:
            await other.close()

    play(backend, scenario)


def test_what_no_environment_can_hold_is_refused(backend: Backend) -> None:
    async def scenario(launcher: Launcher) -> None:
        with pytest.raises(LaunchFailed, match=r"WORKER_KEY.*use another key"):
            await launcher.start(*to_start("w-1", "nul\0"))
        assert await launcher.list() == []

    play(backend, scenario)


def test_failure_of_the_backend_is_told(backend: Backend) -> None:
    async def scenario(launcher: Launcher) -> None:
        await running(backend, launcher, launch("w-0"))
        broken = backend.broken_launcher()
        try:
            with pytest.raises(LaunchFailed, match=";"):
                await broken.start(*to_start("w-1"))
            with pytest.raises(LaunchFailed, match=";"):
                await broken.list()
        finally:
            await broken.close()

    play(backend, scenario)


@pytest.mark.parametrize("kind", WATCHED, ids=lambda each: each.__name__.lower())
def test_watch_tells_what_becomes_of_workers(kind: type[Backend], tmp_path: Path) -> None:
    backend = kind(tmp_path)

    async def scenario(launcher: Launcher) -> None:
        await running(backend, launcher, launch("w-1"))
        async with watched(launcher) as watch:
            await backend.end("w-1")
            await watch.next()
            await until(lambda: _has_ended(launcher, "w-1"))
        async with watched(launcher) as watch:
            await launcher.start(*to_start("w-2"))
            await watch.next()
            await running(backend, launcher, launch("w-2"))
        async with watched(launcher) as watch:
            await launcher.stop("w-2", 600)
            await watch.next()

    play(backend, scenario)


@pytest.mark.parametrize("kind", WATCHED, ids=lambda each: each.__name__.lower())
def test_watch_tells_nothing_of_others(kind: type[Backend], tmp_path: Path) -> None:
    backend = kind(tmp_path)

    async def scenario(launcher: Launcher) -> None:
        other = backend.launcher("two")
        try:
            async with watched(launcher) as watch:
                await running(backend, other, launch("w-1"))
                await other.stop("w-1", 600)
                await until(lambda: is_empty(other))
                assert not watch.told.is_set()
                await launcher.start(*to_start("w-1"))
                await watch.next()
        finally:
            await other.close()

    play(backend, scenario)


def test_close_twice(backend: Backend) -> None:
    async def scenario(launcher: Launcher) -> None:
        await launcher.list()
        await launcher.close()
        await launcher.close()

    play(backend, scenario)


async def _has_ended(launcher: Launcher, worker: str) -> bool:
    found = await find(launcher, worker)
    return found is None or found.phase is Phase.ENDED


async def _is_gone(launcher: Launcher, worker: str) -> bool:
    return await find(launcher, worker) is None


async def _says(launcher: Launcher, worker: str, words: str) -> bool:
    found = await find(launcher, worker)
    return found is not None and words in found.detail
