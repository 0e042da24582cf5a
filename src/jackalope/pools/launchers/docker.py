"""The Docker launcher: workers are containers.

Owns what a container is made of, the orders to Docker and the meaning of a container's state.

A container is named after its owner and its worker, so that of two orders for one worker Docker
itself lets only one through. It is not removed when it ends, because its exit code and last output
are read then; `stop` removes it. An image that is missing is fetched next to the orders: workers
that wait for it are listed as starting.

Changes of containers are reported by Docker's events; changes of workers that have none yet, or
none any more, are reported here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from hashlib import sha256
from typing import Any

import aiohttp
import msgspec
from aiodocker import Docker, DockerError
from aiodocker.containers import DockerContainer

from jackalope.core.commands import Seen
from jackalope.core.durations import MINUTE, SECOND
from jackalope.core.effects import StartOrder
from jackalope.core.shapes.pool import Phase
from jackalope.pools.launcher import (
    OWNER,
    WORKER,
    Endings,
    LaunchFailed,
    Scope,
    check_worker,
    env_of,
    labels_of,
    seen_of,
    seen_with,
)
from jackalope.pools.launchers.settings import DockerSettings, Pull

PHASES = {
    "created": Phase.STARTING,
    "running": Phase.RUNNING,
    "paused": Phase.RUNNING,
    "restarting": Phase.STARTING,
    "removing": Phase.STOPPING,
    "exited": Phase.ENDED,
    "dead": Phase.ENDED,
}

#: What changes the list.
EVENTS = ("start", "die", "destroy")
#: How long to listen: a connection may have died without notice.
WATCH_US_MAX = 5 * MINUTE

ENDINGS_EVERY_S = 0.5
WORDS_LINES_MAX = 10
WORDS_LENGTH_MAX = 2000
#: The status that the client returns when it cannot reach Docker.
_OUT_OF_REACH = 900
_EXIT_CODE = re.compile(r"\((\d+)\)")


class DockerLauncher:
    """Starts workers as containers."""

    def __init__(self, settings: DockerSettings, owner: str) -> None:
        self._settings = settings
        self._owner = owner
        self._docker: Docker | None = None
        self._starting: set[str] = set()
        self._coming: dict[str, tuple[Seen, asyncio.Task[None]]] = {}
        self._failed: dict[str, Seen] = {}
        self._pull: asyncio.Task[None] | None = None
        self._words: dict[str, str] = {}
        self._changed: Callable[[], None] = _nobody_watches
        self._endings = Endings(self._still_run, self._kill, self._remove_all, ENDINGS_EVERY_S)

    @property
    def scope(self) -> Scope:
        return Scope.WORKER

    async def start(self, order: StartOrder, env: Mapping[str, str]) -> None:
        """Start a container for a worker; change nothing if there is one."""
        worker = order.launch
        whole = env_of(worker, self._settings.env, env)
        if worker in self._coming or worker in self._starting:
            return
        try:
            await self._run(order, whole)
        except _ImageMissing:
            fetching = asyncio.create_task(self._fetch(order, whole), name=f"jackalope-{worker}")
            waiting = msgspec.structs.replace(
                seen_of(order), detail=f"the image {self._settings.image} is being pulled"
            )
            self._coming[worker] = (waiting, fetching)

    async def stop(self, worker: str, grace_s: float) -> None:
        """Ask a worker to end, and kill it after the grace; remove what has ended."""
        check_worker(worker)
        self._failed.pop(worker, None)
        if worker in self._endings:
            return
        if worker in self._coming:
            _, fetching = self._coming.pop(worker)
            fetching.cancel()
            await asyncio.gather(fetching, return_exceptions=True)
        # Noted first: an order that comes meanwhile is the same, and some take two for haste.
        self._endings.add(worker, grace_s)
        try:
            await self._send(worker, "SIGTERM")
        except LaunchFailed:
            self._endings.remove(worker)
            raise

    async def list(self) -> list[Seen]:
        """Return all containers that were made and not removed, and those to come."""
        found = [await self._entry(summary) for summary in await self._summaries()]
        coming = [waiting for waiting, _ in self._coming.values()]
        known = {each.launch: each for each in [*self._failed.values(), *coming]}
        known |= {each.launch: each for each in found if each is not None}
        return [known[worker] for worker in sorted(known)]

    async def watch(self, changed: Callable[[], None]) -> None:
        wanted = {"type": ["container"], "event": EVENTS, "label": [f"{OWNER}={self._owner}"]}
        filters = {"filters": msgspec.json.encode(wanted).decode()}
        what = "watch containers"
        async with AsyncExitStack() as stack:
            async with self._order(what):
                # The client's own listener does not say when it begins, nor why it ends.
                events = await stack.enter_async_context(
                    self._client()._query("events", params=filters, timeout=None)  # noqa: SLF001
                )
                stack.callback(events.close)
            self._changed = changed
            stack.callback(self._unwatch)
            changed()
            async with self._order(what, 2 * WATCH_US_MAX):
                with suppress(TimeoutError):
                    async with asyncio.timeout(WATCH_US_MAX / SECOND):
                        async for _ in events.content.iter_any():
                            changed()

    async def close(self) -> None:
        """Let go of Docker. Containers go on; images that are on their way are not waited for."""
        await self._endings.close()
        tasks = [fetching for _, fetching in self._coming.values()]
        tasks += [self._pull] if self._pull is not None else []
        self._coming.clear()
        self._pull = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        docker, self._docker = self._docker, None
        if docker is not None:
            await docker.close()

    # Starting.

    async def _run(self, order: StartOrder, env: Mapping[str, str]) -> None:
        """Make a container and start it, unless there is one."""
        config = container_config(self._settings, order, env, self._owner)
        self._starting.add(order.launch)
        try:
            async with self._order(f"start worker {order.launch}"):
                try:
                    made = await self._client().containers.create(
                        config, name=self._name(order.launch)
                    )
                except DockerError as error:
                    if error.status == 409:
                        return
                    if self._is_fetchable(error):
                        raise _ImageMissing from None
                    raise
                await self._begin(made)
        finally:
            self._starting.discard(order.launch)

    async def _begin(self, made: DockerContainer) -> None:
        """Start a container that was made; one that does not start is not left behind."""
        try:
            await made.start()
        except DockerError:
            # If that fails too, it is listed as one that never began, and removed then.
            with suppress(DockerError):
                await made.delete(force=True)
            raise

    def _is_fetchable(self, error: DockerError) -> bool:
        is_missing = error.status == 404 and "image" in str(error.message).lower()
        return is_missing and self._settings.pull is Pull.MISSING

    async def _fetch(self, order: StartOrder, env: Mapping[str, str]) -> None:
        """Wait for the image, which all wait for together, and start the worker."""
        if self._pull is None or self._pull.done():
            self._pull = asyncio.create_task(self._pull_image(), name="jackalope-pull")
        try:
            await asyncio.shield(self._pull)
            await self._run(order, env)
        except (LaunchFailed, _ImageMissing) as failure:
            detail = str(failure) or f"image {self._settings.image} does not exist"
            ended = seen_of(order, Phase.ENDED)
            self._failed[order.launch] = msgspec.structs.replace(ended, detail=detail)
        finally:
            self._coming.pop(order.launch, None)
            self._changed()

    async def _pull_image(self) -> None:
        image = self._settings.image
        async with self._order(f"pull the image {image}", self._settings.pull_timeout_us):
            await self._client().images.pull(image, timeout=None)

    # Looking.

    async def _summaries(self) -> Sequence[Mapping[str, Any]]:
        wanted = msgspec.json.encode({"label": [f"{OWNER}={self._owner}"]}).decode()
        async with self._order("list containers"):
            found = await self._client().containers.list(all=True, filters=wanted)
            return [dict(each._container) for each in found]  # noqa: SLF001  it has no other way

    async def _entry(self, summary: Mapping[str, Any]) -> Seen | None:
        labels = summary.get("Labels") or {}
        worker = labels.get(WORKER, "")
        phase = PHASES.get(summary.get("State", ""), Phase.ENDED)
        detail = ""
        if worker in self._endings:
            phase = Phase.STOPPING
        elif phase is Phase.STARTING and worker not in self._starting:
            if summary.get("State") == "created":
                phase, detail = Phase.ENDED, "its container was created but not started"
        elif phase is Phase.ENDED:
            detail = f"{_how_it_ended(summary)}{await self._last_words(worker)}"
        return seen_with(labels, phase, str(summary.get("Id", ""))[:12], detail)

    async def _last_words(self, worker: str) -> str:
        """Return what a worker printed last. Nothing hangs on it."""
        if worker not in self._words:
            try:
                async with self._order(f"read the log of worker {worker}"):
                    lines = await self._container(worker).log(
                        stdout=True, stderr=True, tail=WORDS_LINES_MAX
                    )
            except LaunchFailed:
                return ""
            self._words[worker] = "".join(lines).strip()[-WORDS_LENGTH_MAX:]
        words = self._words[worker]
        return f"; last output: {words}" if words else ""

    # Ending.

    async def _still_run(self, _workers: Collection[str]) -> Collection[str]:
        return {
            (summary.get("Labels") or {}).get(WORKER, "")
            for summary in await self._summaries()
            if PHASES.get(summary.get("State", "")) in {Phase.RUNNING, Phase.STOPPING}
        }

    async def _kill(self, worker: str) -> None:
        await self._send(worker, "SIGKILL")

    async def _send(self, worker: str, signal: str) -> None:
        async with self._order(f"send {signal} to worker {worker}"):
            try:
                await self._container(worker).kill(signal=signal)
            except DockerError as error:
                # 404: it is gone. 409: it does not run, and is removed soon.
                if error.status not in {404, 409}:
                    raise

    async def _remove_all(self, workers: Collection[str]) -> None:
        removing = [self._remove(worker) for worker in workers]
        for outcome in await asyncio.gather(*removing, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _remove(self, worker: str) -> None:
        async with self._order(f"remove worker {worker}"):
            try:
                await self._container(worker).delete(force=True, v=True)
            except DockerError as error:
                # 409: the removal is already in progress.
                if error.status not in {404, 409}:
                    raise
        self._words.pop(worker, None)
        self._changed()

    # Docker.

    def _name(self, worker: str) -> str:
        return f"{self._settings.prefix}-{sha256(self._owner.encode()).hexdigest()[:8]}-{worker}"

    def _unwatch(self) -> None:
        self._changed = _nobody_watches

    def _container(self, worker: str) -> DockerContainer:
        return self._client().containers.container(self._name(worker))

    def _client(self) -> Docker:
        if self._docker is None:
            try:
                self._docker = Docker(url=self._settings.host or None)
            except (AssertionError, ValueError, DockerError) as error:
                raise LaunchFailed(
                    f"there is no Docker here{f' ({error})' if str(error) else ''}; start it, or "
                    "set `host`"
                ) from error
        return self._docker

    @asynccontextmanager
    async def _order(self, what: str, timeout_us: int = 0) -> AsyncIterator[None]:
        """Limit the time of an order, and raise `LaunchFailed` for whatever goes wrong with it."""
        limit_s = (timeout_us or self._settings.timeout_us) / SECOND
        where = self._settings.host or "its usual place"
        try:
            async with asyncio.timeout(limit_s):
                yield
        except TimeoutError:
            raise LaunchFailed(
                f"cannot {what}: Docker at {where} did not respond within {limit_s:g} s; check "
                "it, or raise `timeout`"
            ) from None
        except DockerError as error:
            raise LaunchFailed(
                f"cannot {what}: Docker reports {error}; {_advice(error)}"
            ) from error
        except (KeyError, TypeError, ValueError) as error:
            raise LaunchFailed(
                f"cannot {what}: the server at {where} is not Docker ({error}); set `host`"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise LaunchFailed(
                f"cannot {what}: Docker at {where} is unreachable: {error}; start it, or set `host`"
            ) from error


class _ImageMissing(Exception):
    """The image is not there and may be fetched."""


def _nobody_watches() -> None:
    """Ignore a change: without a watch, the list is polled often."""


def container_config(
    settings: DockerSettings, order: StartOrder, env: Mapping[str, str], owner: str
) -> dict[str, Any]:
    """Describe a worker's container as Docker's API has it."""
    host: dict[str, Any] = {
        # A worker that is the first process would not receive SIGTERM otherwise.
        "Init": True,
        "RestartPolicy": {"Name": "no"},
        "Binds": list(settings.volumes),
        "ExtraHosts": list(settings.extra_hosts),
        "Memory": settings.memory_bytes_max,
        "NanoCpus": round(settings.cpus * 1_000_000_000),
    }
    if settings.log_bytes_max:
        size = {"max-size": str(settings.log_bytes_max), "max-file": "1"}
        host["LogConfig"] = {"Type": "json-file", "Config": size}
    if settings.host_network or settings.network:
        host["NetworkMode"] = "host" if settings.host_network else settings.network
    config: dict[str, Any] = {
        "Image": settings.image,
        "Env": [f"{name}={value}" for name, value in env.items()],
        "Labels": {**settings.labels, **labels_of(order, owner)},
        "User": settings.user,
        "HostConfig": host,
    }
    if settings.command:
        config["Cmd"] = list(settings.command)
    return config


def _how_it_ended(summary: Mapping[str, Any]) -> str:
    status = str(summary.get("Status", ""))
    code = _EXIT_CODE.search(status)
    return f"exit code {code[1]}" if code else f"it ended ({status})"


def _advice(error: DockerError) -> str:
    if error.status == _OUT_OF_REACH:
        return "start it, or set `host`"
    if error.status == 404:
        return "check that the image and the network exist"
    if error.status in {401, 403}:
        return "check that the broker has access to Docker"
    if error.status >= 500:
        return "check Docker's log"
    return "check the launcher's settings"
