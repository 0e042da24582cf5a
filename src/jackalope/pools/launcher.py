"""The port of the pools: what a launcher is.

Owns the interface between the control loops, which decide what should run, and the launchers, which
make it so with processes, units, containers or deployments. A launcher decides nothing: it starts
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

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable
from urllib.parse import quote, urlsplit

import msgspec

from jackalope.core.commands.base import DEFAULT_NAMESPACE
from jackalope.core.effects import StartOrder
from jackalope.core.shapes.exchange import activity_exchange, requests_queue
from jackalope.core.shapes.pool import Phase

__all__ = ["Launch", "LaunchFailed", "Launched", "Launcher", "Phase", "Scope", "WatchingLauncher"]


class Scope(StrEnum):
    """What one order starts.

    With `WORKER` it is one worker, and the broker decides how many a group has. With `GROUP` it is
    a whole group that grows and shrinks by itself, such as a deployment with an autoscaler.
    """

    WORKER = "worker"
    GROUP = "group"


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """An order to start a worker (or, with `Scope.GROUP`, a group of them)."""

    worker: str  # the id of what is started: 1 to 63 of `a-z`, `0-9` and `-`, never used again
    namespace: str  # where the pool is
    pool: str  # the pool's name
    key: str  # the key of the group: any text, the empty one too
    queue: str  # the queue that the pool serves
    generation: int  # the generation of the group that asked for it
    version: str = ""  # the version of the pool; what has another one is replaced
    env: dict[str, str] = {}  # the environment that the worker gets beside the launcher's own
    workers_min: int = 1  # for `Scope.GROUP`, how many workers there are at least
    workers_max: int = 1  # for `Scope.GROUP`, how many workers there are at most


class Launched(msgspec.Struct, frozen=True, kw_only=True):
    """Something that this launcher started, and its labels as they were given."""

    worker: str
    namespace: str
    pool: str
    key: str
    generation: int
    version: str = ""
    phase: Phase = Phase.RUNNING  # how far it has come
    external_id: str = ""  # what the backend calls it: a process id, a unit, a container
    detail: str = ""  # for people; of something that ended by itself, how (exit code, last words)


class LaunchFailed(Exception):
    """The backend did not do what it was asked. The message has the reason, and what to do."""


class Launcher(Protocol):
    """Starts and stops workers. A launcher is made for one owner: the broker it belongs to."""

    @property
    def scope(self) -> Scope:
        """What one order starts."""
        ...

    async def start(self, launch: Launch) -> None:
        """Start a worker; change nothing if something with its id is there.

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

    async def list(self) -> list[Launched]:
        """Return what there is of all that was started.

        What ended by itself stays in the list, with how, until `stop` is called for it.

        Raises:
            LaunchFailed: the backend did not say.
        """
        ...

    async def close(self) -> None:
        """Let go of the backend. What runs goes on running."""
        ...


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
    """Return the variables of a worker."""
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
