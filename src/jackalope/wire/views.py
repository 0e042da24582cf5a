"""Views: what the broker shows of itself to whoever asks. Shared by every door and by the client.

Times are microseconds since the epoch, 0 where something has not happened.
"""

from __future__ import annotations

from typing import Any

import msgspec

from jackalope.core.api_key import Permission
from jackalope.core.cache.answers import How
from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.lifecycle import Reason, State
from jackalope.core.policy import Policy
from jackalope.core.pools.settings import PoolSettings
from jackalope.core.task import Error, Signal, Stage


class ProgressView(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far an attempt has come, in the words of its worker."""

    at_us: int
    percent: float | None = None
    note: str = ""


class RequestView(msgspec.Struct, frozen=True):
    """A signal on its way to a running task."""

    signal: Signal
    stage: Stage
    by: str
    at_us: int


class ErrorView(msgspec.Struct, frozen=True, omit_defaults=True):
    """What went wrong."""

    type: str
    message: str = ""
    trace: str = ""

    @classmethod
    def of(cls, error: Error) -> ErrorView:
        """Show an error."""
        return cls(error.type, error.message, error.trace)


class AnswerView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request: the task that has its answer or will have it, and who had use of that.

    Attributes:
        identity: what was asked for, as a hash.
        queue: where.
        task: the task whose result is the answer.
        state: of that task. `succeeded` is an answer; `dead` and `killed` tell why there is none.
        name: the name of the task.
        version: the version of the code.
        worker: who ran it.
        size: how many bytes the answer has.
        made_us: when it was made; 0 while the task is under way.
        until_us: how long it is good.
        uses: how often it was given to others than the first who asked, or is about to be.
        used_us: when the last time.
        used_by: to whom.
        pinned_by: who keeps it.
    """

    identity: bytes
    queue: str
    task: TaskId
    state: State
    name: str = ""
    version: str = ""
    worker: str = ""
    size: int = 0
    made_us: int = 0
    until_us: int = 0
    uses: int = 0
    used_us: int = 0
    used_by: str = ""
    pinned_by: str = ""


class TaskView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task as anybody may see it. `payload` and `result` are there only if asked for.

    Attributes:
        how: of a request, how the one was served that made this task: `miss`, `refresh`, `bypass`.
        answer: who has use of its result, if others may; not in lists.
        ended_us: when it ended, once it has.
        waiting_for: those of `depends_on` that have not ended.
        depends_on: the tasks that it was submitted to wait for.
        tried_us: when its last attempt ended, while it may still be tried again.
    """

    id: TaskId
    namespace: str
    queue: str
    state: State
    name: str = ""
    key: str = ""
    alias: str = ""
    priority: int = 0
    tags: tuple[str, ...] = ()
    headers: dict[str, Any] = {}
    batch: int = 0
    parent: TaskId = NO_TASK
    by: str = ""
    created_us: int = 0
    due_us: int = 0
    expires_us: int = 0
    started_us: int = 0
    ended_us: int = 0
    forget_us: int = 0
    worker: str = ""
    fence: int = 0
    attempts: int = 0
    failures: int = 0
    crashes: int = 0
    interruptions: int = 0
    waiting_for: tuple[TaskId, ...] = ()
    reason: Reason | None = None
    error: ErrorView | None = None
    progress: ProgressView | None = None
    request: RequestView | None = None
    payload_size: int = 0
    result_size: int = 0
    payload: bytes | None = None
    result: bytes | None = None
    updated_us: int = 0
    timeout_us: int = 0
    retries: int | None = None
    how: How | None = None
    answer: AnswerView | None = None
    tried_us: int = 0
    depends_on: tuple[TaskId, ...] = ()


class TaskPage(msgspec.Struct, frozen=True):
    """Some tasks of a list; a cursor that is not empty asks for the next ones.

    Attributes:
        total: how many there are on all pages, if that was asked for.
    """

    tasks: list[TaskView]
    cursor: str = ""
    total: int | None = None


class HappeningView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a task's history."""

    at_us: int
    what: str
    by: str = ""
    detail: str = ""


class CauseView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One reason why a task is as it is."""

    why: str
    text: str
    facts: dict[str, str | int] = {}


class ExplanationView(msgspec.Struct, frozen=True):
    """Why a task is as it is."""

    task: TaskId
    state: State
    causes: tuple[CauseView, ...]


class QueueView(msgspec.Struct, frozen=True):
    """A queue: what is in it by state, and its rules."""

    queue: str
    counts: dict[State, int]
    depth: int
    workers: int
    policy: Policy
    paused_by: str = ""
    oldest_ready_us: int = 0


class WorkerView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker. `state` is `active`, `idle`, `draining`, `away` or, for a while, `gone`.

    `succeeded` and `failed` count attempts, over all sessions of a worker of this name. `helps` is
    the task, in hexadecimal, that the worker helps with its fan-out.
    """

    worker: str
    state: str
    queues: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    slots: int = 0
    load: int = 0
    labels: dict[str, str] = {}
    stats: dict[str, float] = {}
    joined_us: int = 0
    heard_us: int = 0
    gone_us: int = 0
    why_gone: str = ""
    succeeded: int = 0
    failed: int = 0
    helps: str = ""


class LimitView(msgspec.Struct, frozen=True):
    """A tag with a limit, and how much of it is used."""

    tag: str
    limit: int
    in_flight: int


class ApiKeyView(msgspec.Struct, frozen=True):
    """An API key, without anything that would let anybody in.

    Attributes:
        id: names the key.
        name: who has it.
        permissions: what it permits.
        queues: the queues that it is limited to; none means all.
        namespace: the namespace that it is limited to; empty means all.
        expires_us: from when on it permits nothing; 0 for never.
        created_us: when it was made.
        by: who made it.
        configured: it stands in the broker's configuration, and is not revoked but removed there.
    """

    id: str
    name: str
    permissions: tuple[Permission, ...]
    queues: tuple[str, ...] = ()
    namespace: str = ""
    expires_us: int = 0
    created_us: int = 0
    by: str = ""
    configured: bool = False


class BatchView(msgspec.Struct, frozen=True):
    """A batch of a queue. It is stable once it is full."""

    queue: str
    number: int
    counts: dict[State, int]
    is_full: bool


class StatsView(msgspec.Struct, frozen=True):
    """The broker in numbers.

    Attributes:
        counts: unfinished tasks by state.
        depth_by_tier: waiting tasks of high (200 and up), normal and low (below 100) priority.
        ended: tasks that ended since the broker started, by state.
        durability: the level at which it promises.
        succeeded_last_hour: tasks that ended well in the last hour, before a restart as well.
        dead_last_hour: tasks that died in the last hour.
        mean_run_s: how long an attempt of the last hour ran on average.
    """

    counts: dict[State, int]
    depth_by_tier: dict[str, int]
    ended: dict[State, int]
    workers: int
    sessions: int
    started_us: int
    now_us: int
    durability: str
    version: str
    sequence: int
    succeeded_last_hour: int = 0
    dead_last_hour: int = 0
    mean_run_s: float = 0.0


class SpreadView(msgspec.Struct, frozen=True):
    """How long something took, in seconds. The parts are right to a factor of two at worst."""

    number: int
    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float


class PointView(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happened from `at_us` on, for the length of a step.

    Attributes:
        retries: tasks that are tried once more.
        depth: tasks that waited at the end.
        leased: tasks that workers had at the end.
        workers: workers at the end; 0 in the series of one queue.
        per_second: how many tasks succeeded in a second.
        queued: how long tasks were ready before a worker had them.
        assigned: how long workers had them before they began.
        started: how long attempts ran.
        finished: how long it took from the submit to a good end.
    """

    at_us: int
    submitted: int = 0
    succeeded: int = 0
    dead: int = 0
    killed: int = 0
    failures: int = 0
    crashes: int = 0
    interruptions: int = 0
    retries: int = 0
    depth: int = 0
    leased: int = 0
    workers: int = 0
    per_second: float = 0.0
    queued: SpreadView | None = None
    assigned: SpreadView | None = None
    started: SpreadView | None = None
    finished: SpreadView | None = None


class SeriesView(msgspec.Struct, frozen=True):
    """What happened over time. There is a point for each step in which the broker ran."""

    step_s: int
    points: list[PointView]


class LaunchView(msgspec.Struct, frozen=True):
    """Something that was started for a group.

    Attributes:
        state: `starting` until it joins, `loading` until it is ready, `ready`, `draining`,
            `stopping`, `ended`.
        external_id: what its launcher's backend calls it.
        detail: what its launcher says of it.
    """

    launch: str
    state: str
    version: str
    launcher: str
    ordered_us: int
    external_id: str
    detail: str


class GroupView(msgspec.Struct, frozen=True):
    """The workers of one key of a pool.

    Attributes:
        wanted: how many workers it should have.
        ready: how many of its tasks wait for one.
        leased: how many its workers have.
        workers: those that are there.
        rate: how many attempts a second its workers ended of late.
        trouble: why its workers cannot be started, if they cannot.
    """

    key: str
    state: str
    generation: int
    wanted: int
    ready: int
    leased: int
    workers: tuple[str, ...]
    launches: tuple[LaunchView, ...]
    is_pinned: bool
    active_us: int
    rate: float
    failures: int
    trouble: str


class PoolView(msgspec.Struct, frozen=True):
    """A pool.

    Attributes:
        up: how many of its groups are up.
        waiting: how many wait for a place.
        launched: how many launches were ordered since the broker started.
        failed: how many of them failed.
    """

    queue: str
    settings: PoolSettings
    up: int
    waiting: int
    launched: int
    failed: int
    groups: tuple[GroupView, ...]
