"""The settings of a worker, made once at the start of its process.

Owns their fields, defaults and checks. Knows neither the command line nor how they take effect.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from jackalope.core.durations import SECOND
from jackalope.core.limits import (
    COUNT_MAX,
    ITEMS_PER_COMMAND_MAX,
    LEASE_US_MAX,
    LEASE_US_MIN,
    NAME_CHARS_MAX,
    QUEUES_PER_WORKER_MAX,
)
from jackalope.core.shapes.pool import LAUNCH_LABEL, POOL_LABEL
from jackalope.tasks.definition import TaskDefinition
from jackalope.transport.address import Address
from jackalope.worker.executors.processes import CHILD_COMMAND, Recycling
from jackalope.worker.logs.capture import TaskLogs

#: How many coroutines a worker of nothing but coroutines runs at once by default.
_CONCURRENCY_ASYNC = 100

#: How many tasks a warning names.
_NAMED_MAX = 5


def default_name() -> str:
    """Return a name for this process that no other worker has: `host-pid-random`.

    Host and process are not enough: containers share both.
    """
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """The settings of a worker."""

    application: str  # where its tasks are, as `module:name`
    address: Address | None = None  # where its broker is; None for the application's own
    token: str = field(default="", repr=False)  # what proves who it is, in place of the address's
    namespace: str = ""  # in place of the address's
    # the secret of the slots that it has together with workers of other namespaces; empty for none
    share: str = field(default="", repr=False)
    # the queues it serves; none means those of the application's tasks
    queues: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()  # the keys it serves; none means every task of its queues
    name: str = field(default_factory=default_name)  # its own name, which must be unique
    labels: Mapping[str, str] = field(default_factory=dict)  # what it reports about itself
    # how much of what it has for tasks that need it, in thousandths
    resources: Mapping[str, int] = field(default_factory=dict)
    concurrency: int = 0  # how many tasks it runs at once; 0 for as many as fit their kind
    # how many more it keeps at hand, so that short tasks need not wait for the broker
    prefetch: int = 0
    tasks: int = 0  # it ends after so many; 0 for never
    lease_s: float = 30.0  # how long the broker bears its silence
    grace_s: float = 10.0  # how long the broker waits for it after its connection broke
    drain_s: float = 60.0  # how long running tasks may take to finish when it is asked to stop
    stop_s: float = 5.0  # how long a task may take to obey before stronger means are used
    # the memory cap of isolated tasks that have none of their own; 0 for none
    memory_bytes_max: int = 0
    # when a process for isolated tasks has served for long enough
    recycling: Recycling = field(default_factory=Recycling)
    child_command: tuple[str, ...] = CHILD_COMMAND  # how such a process is started
    # the look of the log, level and form, that such a process inherits; empty if it has none of its
    # own
    log: str = ""
    task_logs: TaskLogs = TaskLogs.BOTH  # where what its tasks print and log goes
    # where it listens for helpers of its tasks; empty for the address from which it reaches the
    # broker
    fanout_host: str = ""
    fanout_advertise: str = ""  # where helpers find it instead; empty for the same
    # the file of the certificate that helpers see where the broker is encrypted; empty for one that
    # is made
    fanout_cert: str = ""
    fanout_key: str = ""  # the file of its key

    def problems(self) -> list[str]:
        """List everything that is wrong, one sentence each."""
        bounds: tuple[tuple[str, float, float, float], ...] = (
            ("characters of the name", len(self.name), 1, NAME_CHARS_MAX),
            ("number of queues", len(self.queues), 0, QUEUES_PER_WORKER_MAX),
            ("concurrency", self.concurrency, 0, ITEMS_PER_COMMAND_MAX),
            ("prefetch", self.prefetch, 0, ITEMS_PER_COMMAND_MAX),
            ("tasks", self.tasks, 0, COUNT_MAX),
            (
                "concurrency and prefetch",
                self.concurrency + self.prefetch,
                0,
                ITEMS_PER_COMMAND_MAX,
            ),
            ("lease_s", self.lease_s, LEASE_US_MIN / SECOND, LEASE_US_MAX / SECOND),
            ("grace_s", self.grace_s, 0, LEASE_US_MAX / SECOND),
            ("drain_s", self.drain_s, 0, LEASE_US_MAX / SECOND),
            ("stop_s", self.stop_s, 0, LEASE_US_MAX / SECOND),
            ("memory_bytes_max", self.memory_bytes_max, 0, 2**62),
            ("recycling tasks", self.recycling.tasks, 0, 2**62),
            ("recycling age_s", self.recycling.age_s, 0, 2**62),
            ("recycling rss_bytes", self.recycling.rss_bytes, 0, 2**62),
        )
        problems = [
            f"{what}: must be {least:g} to {most:g}, got {value:g}"
            for what, value, least, most in bounds
            if not least <= value <= most
        ]
        if bool(self.fanout_cert) != bool(self.fanout_key):
            problems.append("fanout_cert and fanout_key: give both, or neither")
        return problems

    def warnings(self, definitions: Iterable[TaskDefinition]) -> list[str]:
        """List what has no effect on some of these tasks, one sentence each."""
        given = [
            name
            for name, value in (
                ("memory", self.memory_bytes_max),
                ("recycle-tasks", self.recycling.tasks),
                ("recycle-age", self.recycling.age_s),
                ("recycle-memory", self.recycling.rss_bytes),
            )
            if value
        ]
        outside = sorted(each.name for each in definitions if each.isolation != "process")
        if not given or not outside:
            return []
        first = ", ".join(outside[:_NAMED_MAX])
        more = f" and {len(outside) - _NAMED_MAX} more" if len(outside) > _NAMED_MAX else ""
        return [
            f"--{name} has no effect on tasks that do not run in processes of their own: "
            f'{first}{more}; define them with isolation="process"'
            for name in given
        ]


@dataclass(frozen=True)
class PoolPlace:
    """For what a worker was started: the pool, the key, and what it is called."""

    queue: str
    key: str
    name: str  # the worker's name
    # what its launcher calls what it started: the same, unless that has several workers
    launch: str

    @property
    def labels(self) -> dict[str, str]:
        return {POOL_LABEL: self.queue, LAUNCH_LABEL: self.launch}


def pool_place(environment: Mapping[str, str]) -> PoolPlace | None:
    """Return the place that a launcher gave this process, if one did."""
    queue, launch = environment.get("WORKER_POOL", ""), environment.get("WORKER_ID", "")
    if not queue or not launch:
        return None
    is_shared = environment.get("WORKER_ID_USE_HOSTNAME", "").lower() in ("1", "true", "yes")
    name = socket.gethostname() if is_shared else launch
    return PoolPlace(queue, environment.get("WORKER_KEY", ""), name, launch)


def fitting_concurrency(definitions: Iterable[TaskDefinition]) -> int:
    """Return how many tasks to run at once: many coroutines, but as much computing as there is."""
    if all(definition.isolation == "async" for definition in definitions):
        return _CONCURRENCY_ASYNC
    return max(2, os.cpu_count() or 1)
