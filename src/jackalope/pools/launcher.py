"""The port of the pools: what a launcher is, and what launchers have in common.

Owns the interface between the control loops, which decide what should run, and the launchers, which
make it so with processes, units, containers or deployments; the environment and the labels of what
is started; and the watch over what is to end. A launcher decides nothing: it starts
and stops what it is ordered to, and lists what there is. It knows nothing of tasks, groups' states
or the broker.

The duties of a launcher, which one conformance suite holds:

- `start` and `stop` are idempotent: to start what runs, or to stop what is gone, changes nothing.
- Both return when the backend has taken the order, not when it is carried out, and never take
  longer than the launcher's time-out. `list` returns the outcome.
- What it started outlives it. After a restart `list` finds all of it again, by labels, and nothing
  that another owner started.
- One order that fails or hangs holds up no other: orders for different workers run side by side.
- A failure is a `LaunchFailed`. Nothing is tried again in here: the control loop does that.
- One whose backend reports changes may pass that on: it is a `WatchingLauncher`. The list stays
  authoritative; a report only means that it is time to read it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable
from urllib.parse import quote, urlsplit

import structlog

from jackalope.core.assertions import must
from jackalope.core.commands import Seen
from jackalope.core.commands.base import DEFAULT_NAMESPACE
from jackalope.core.effects import StartOrder
from jackalope.core.shapes.exchange import activity_exchange, requests_queue
from jackalope.core.shapes.pool import Phase

log = structlog.get_logger(component="pools")


class Scope(StrEnum):
    """What one order starts.

    With `WORKER` it is one worker, and the broker decides how many a group has. With `GROUP` it is
    a whole group that grows and shrinks by itself, such as a deployment with an autoscaler.
    """

    WORKER = "worker"
    GROUP = "group"


class LaunchFailed(Exception):
    """The backend did not do what it was asked. The message has the reason, and what to do."""


class Launcher(Protocol):
    """Starts and stops workers. A launcher is made for one owner: the broker it belongs to."""

    @property
    def scope(self) -> Scope:
        """What one order starts."""
        ...

    async def start(self, order: StartOrder, env: Mapping[str, str]) -> None:
        """Start a worker; change nothing if something with its id is there.

        Args:
            order: what to start; its id is 1 to 63 of `a-z`, `0-9` and `-`, and never used again.
            env: the environment that the worker gets beside the launcher's own.

        Raises:
            LaunchFailed: it was not started, or that is unknown.
        """
        ...

    async def stop(self, worker: str, grace_s: float) -> None:
        """Ask a worker to end, and end it by force after the grace; forget one that has ended.

        `list` shows it as stopping until it is gone, and then no more.

        Raises:
            LaunchFailed: the backend did not take the order.
        """
        ...

    async def list(self) -> list[Seen]:
        """Return what there is of all that was started.

        What ended by itself stays in the list, with how, until `stop` is called for it.

        Raises:
            LaunchFailed: the backend did not say.
        """
        ...

    async def close(self) -> None: ...


@runtime_checkable
class WatchingLauncher(Launcher, Protocol):
    """A launcher that reports when to read its list again."""

    async def watch(self, changed: Callable[[], None]) -> None:
        """Report changes for as long as the backend does, which may end it at any time.

        The first call of `changed` means that the watch holds: whatever changes from then on is
        reported, until this returns or raises. Earlier changes are found by listing.

        Args:
            changed: called when the list may have changed, rather too often than too rarely.

        Raises:
            LaunchFailed: the backend does not report changes, or no more.
        """
        ...


# The environment of workers: what one is passed when it is started.

#: The password where none is needed.
_ANY = "guest"


@dataclass(frozen=True)
class Reach:
    """How workers reach the broker."""

    address: str  # of the native door
    amqp: str = ""  # of the AMQP door, such as `amqp://127.0.0.1:5672`; empty if there is none
    message_bytes_max: int = 0  # the largest message of that door

    def amqp_uri(self, worker: str, namespace: str) -> str:
        """Return where a worker connects over AMQP: its user identifies the worker."""
        parts = urlsplit(self.amqp)
        _, _, place = parts.netloc.rpartition("@")
        user = f"{quote(worker, safe='')}:{parts.password or _ANY}"
        vhost = "/" if namespace == DEFAULT_NAMESPACE else namespace
        return f"{parts.scheme}://{user}@{place}/{quote(vhost, safe='')}"


def environment_of(order: StartOrder, reach: Reach, scope: Scope) -> dict[str, str]:
    variables = {
        "WORKER_ID": order.launch,
        "WORKER_KEY": order.key,
        "WORKER_POOL": order.queue,
        "WORKER_REQUESTS_QUEUE": requests_queue(order.queue, order.key),
        "WORKER_ACTIVITY_EXCHANGE": activity_exchange(order.queue),
        "WORKER_VERSION": order.version,
        "JACKALOPE_BROKER": reach.address,
        "JACKALOPE_NAMESPACE": order.namespace,
    }
    if reach.amqp:
        variables["WORKER_AMQP_URI"] = reach.amqp_uri(order.launch, order.namespace)
        variables["WORKER_MAX_MSG_SIZE"] = str(reach.message_bytes_max)
    if scope is Scope.GROUP:
        # Several workers come of one start: each goes by the name of its own host.
        variables["WORKER_ID_USE_HOSTNAME"] = "true"
    return variables


# Labels: what a launched worker is known by, in whatever way its backend holds them.

PREFIX = "jackalope."
OWNER = f"{PREFIX}owner"
WORKER = f"{PREFIX}worker"

#: The names of the labels, and what they hold of an order.
_LABELS = {
    "worker": "launch",
    "namespace": "namespace",
    "pool": "queue",
    "key": "key",
    "generation": "generation",
    "version": "version",
}

WORKER_LENGTH_MAX = 63
_WORKER_SIGNS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


def named_labels(order: StartOrder) -> dict[str, str | int]:
    return {label: getattr(order, field) for label, field in _LABELS.items()}


def labels_of(order: StartOrder, owner: str, prefix: str = PREFIX) -> dict[str, str]:
    labels = {f"{prefix}{label}": str(value) for label, value in named_labels(order).items()}
    return {f"{prefix}owner": owner, **labels}


def seen_of(order: StartOrder, phase: Phase = Phase.STARTING) -> Seen:
    return Seen(order.launch, order.namespace, order.queue, order.key, order.version, phase)


def seen_with(
    labels: Mapping[str, str | int],
    phase: Phase,
    external_id: str = "",
    detail: str = "",
    prefix: str = PREFIX,
) -> Seen | None:
    """Return the entry of something that has labels; None if they are not ours."""
    of = {field: str(labels.get(f"{prefix}{label}", "")) for label, field in _LABELS.items()}
    if not of["launch"] or not of.pop("generation").isdecimal():
        return None
    return Seen(**of, phase=phase, external_id=external_id, detail=detail)


def env_of(worker: str, own: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return a worker's environment: the launcher's own variables, and the pool's on top."""
    check_worker(worker)
    env = {**own, **given}
    for name, value in env.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise LaunchFailed(
                f"the variable {name!r} of worker {worker} cannot be in an environment: "
                "a name has no '=', and neither has a NUL; use another key"
            )
    return env


def check_worker(worker: str) -> None:
    """Stop if an id could be anything but a name: it becomes a folder, a unit, a container."""
    must(
        0 < len(worker) <= WORKER_LENGTH_MAX and _WORKER_SIGNS.issuperset(worker),
        "a worker's id is 1 to 63 of a-z, 0-9 and -",
        worker,
    )


# Graceful stop: workers that were asked to end are killed when their grace period is over.


class Endings:
    """Watches those that are to end, with one task that exists only while there are any.

    It knows which they are and until when; how to check, to kill and to forget is the launcher's.
    It outlives no launcher: what has not ended by then runs on, and the next one decides again.

    Args:
        look: which of these still run?
        kill: end this one by force.
        forget: remove what is left of these, which have ended.
        every_s: how often to look.
    """

    def __init__(
        self,
        look: Callable[[Collection[str]], Awaitable[Collection[str]]],
        kill: Callable[[str], Awaitable[None]],
        forget: Callable[[Collection[str]], Awaitable[None]],
        every_s: float,
    ) -> None:
        self._look, self._kill, self._forget = look, kill, forget
        self._every_s = every_s
        self._kill_at: dict[str, float] = {}
        self._watching: asyncio.Task[None] | None = None

    def __contains__(self, worker: str) -> bool:
        return worker in self._kill_at

    def add(self, worker: str, grace_s: float) -> None:
        self._kill_at[worker] = time.monotonic() + grace_s
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch(), name="jackalope-endings")

    def remove(self, worker: str) -> None:
        self._kill_at.pop(worker, None)

    async def close(self) -> None:
        self._kill_at.clear()
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self) -> None:
        while self._kill_at:
            try:
                await self._look_round(tuple(self._kill_at))
            except LaunchFailed as failure:
                # It is tried again with the next look.
                log.warning("cannot end workers yet", error=str(failure))
            if self._kill_at:
                await asyncio.sleep(self._every_s)

    async def _look_round(self, workers: Collection[str]) -> None:
        running = await self._look(workers)
        if ended := [each for each in workers if each not in running]:
            await self._forget(ended)
            for worker in ended:
                self.remove(worker)
        now = time.monotonic()
        due = [each for each in running if self._kill_at.get(each, float("inf")) <= now]
        killing = [self._kill(worker) for worker in due]
        for outcome in await asyncio.gather(*killing, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
