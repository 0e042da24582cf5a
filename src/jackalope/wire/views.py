"""Views: what the broker shows of its state. Shared by every door and by the client.

Times are microseconds since the epoch, 0 where something has not happened.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from jackalope.core.api_key import Permission
from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.lifecycle import Reason, State
from jackalope.core.policy import Policy
from jackalope.core.shapes.pool import PoolSettings
from jackalope.core.shapes.request import How
from jackalope.core.shapes.schedule import RunKind, ScheduleSettings
from jackalope.core.task import Signal, Stage

V = TypeVar("V", bound=msgspec.Struct)


def view_as(shape: type[V], source: object, **more: Any) -> V:
    """Make a view from an object with the same field names, except for those in `more`."""
    names = [name for name in shape.__struct_fields__ if name not in more]
    return shape(**{name: getattr(source, name) for name in names}, **more)


class ProgressView(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of an attempt, as reported by its worker."""

    at_us: int
    percent: float | None = None
    note: str = ""


class RequestView(msgspec.Struct, frozen=True):
    """A pending signal to a running task."""

    signal: Signal
    stage: Stage
    by: str
    at_us: int


class ErrorView(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error."""

    type: str
    message: str = ""
    trace: str = ""


class AnswerView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request: the task that has or will have its answer, and its uses."""

    identity: bytes  # what was asked for, as a hash
    queue: str  # where
    task: TaskId  # the task whose result is the answer
    # of that task. `succeeded` is an answer; `dead` and `killed` tell why there is none.
    state: State
    name: str = ""  # the name of the task
    version: str = ""  # the version of the code
    worker: str = ""  # who ran it
    size: int = 0  # how many bytes the answer has
    made_us: int = 0  # when it was made; 0 while the task is under way
    until_us: int = 0  # how long it is good
    uses: int = 0  # how often it was given to others than the first who asked, or is about to be
    used_us: int = 0  # when the last time
    used_by: str = ""  # to whom
    pinned_by: str = ""  # who keeps it


class StepView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step of a task that is done."""

    name: str
    at_us: int = 0  # when it was done; of a sleep, when it is over
    took_us: int = 0
    size: int = 0  # how many bytes its result has
    is_late: bool = False  # it waited for an event, which did not come in time


class SentEventView(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event that was sent to a task and is not waited for yet."""

    event: str
    at_us: int = 0
    by: str = ""
    size: int = 0  # how many bytes its data has


class CallbackView(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the end of a task is posted."""

    url: str
    on: tuple[str, ...] = ()  # at which ends; none for every one
    task: TaskId = NO_TASK  # the task that posts it, once the task has ended so


class TaskView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task. `payload` and `result` are present only on request."""

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
    ended_us: int = 0  # when it ended, once it has
    forget_us: int = 0
    worker: str = ""
    fence: int = 0
    attempts: int = 0
    failures: int = 0
    crashes: int = 0
    interruptions: int = 0
    waiting_for: tuple[TaskId, ...] = ()  # those of `depends_on` that have not ended
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
    # of a request, how the one was served that made this task: `miss`, `refresh`, `bypass`
    how: How | None = None
    answer: AnswerView | None = None  # who has use of its result, if others may; not in lists
    tried_us: int = 0  # when its last attempt ended, while it may still be tried again
    depends_on: tuple[TaskId, ...] = ()  # the tasks that it was submitted to wait for
    steps: tuple[StepView, ...] = ()  # what of it is done for good, in its order
    waits_for: str = ""  # the event that it waits for without a worker
    events: tuple[SentEventView, ...] = ()  # those that it was sent and has not asked for yet
    callbacks: tuple[CallbackView, ...] = ()  # its own, without those of its queue


class TaskPage(msgspec.Struct, frozen=True):
    """A page of tasks; a cursor that is not empty requests the next one."""

    tasks: list[TaskView]
    cursor: str = ""
    total: int | None = None  # how many there are on all pages, if that was asked for


class NodeGroupView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A group of a flow."""

    name: str
    width: int = 0  # how many of its nodes may be released at once; 0 for all
    is_open: bool = False  # it accepts nodes
    total: int = 0  # how many nodes it has
    done: int = 0  # how many of them have ended
    succeeded: int = 0  # how many of these with success


class AttemptView(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attempt at a node of a flow: where, and from when to when."""

    worker: str
    assigned_us: int
    started_us: int = 0
    ended_us: int = 0  # 0 while it is under way
    outcome: str = ""  # how it ended: what the history of the task calls it


class NodeView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node of a flow: a task, and how it is connected with the others."""

    id: TaskId
    node: str  # its name in the flow
    state: State
    queue: str
    name: str = ""  # the name of its task
    after: tuple[TaskId, ...] = ()  # the nodes that it waits for
    group: str = ""  # the group that it is a member of
    groups: tuple[str, ...] = ()  # the groups that it waits for
    need: int = 0  # how many of those must succeed; 0 for all
    collect: bool = False  # it runs also after failures
    compensates: str = ""  # the node that it undoes, if it is a compensation
    worker: str = ""
    attempts: tuple[AttemptView, ...] = ()  # the last of them, the oldest first
    created_us: int = 0
    started_us: int = 0
    ended_us: int = 0
    result_size: int = 0
    reason: Reason | None = None
    error: ErrorView | None = None
    index: int = 0  # its place among the nodes of its flow


class FlowView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A flow: how far it has come, its groups, and a page of its nodes, which lists leave out."""

    id: TaskId
    name: str
    state: State
    queue: str
    total: int = 0  # how many nodes it has
    done: int = 0  # how many of them have ended
    succeeded: int = 0
    dead: int = 0
    killed: int = 0
    phase: str = ""  # `running`, `stopping` or `compensating`; empty once it has ended
    on_failure: str = ""
    output: str = ""  # the node whose result is the flow's
    alias: str = ""
    tags: tuple[str, ...] = ()
    by: str = ""
    created_us: int = 0
    expires_us: int = 0  # its deadline
    ended_us: int = 0
    reason: Reason | None = None
    error: ErrorView | None = None
    groups: tuple[NodeGroupView, ...] = ()
    nodes: tuple[NodeView, ...] = ()
    cursor: str = ""  # requests the next page of nodes, if it is not empty


class FlowPage(msgspec.Struct, frozen=True):
    """A page of flows; a cursor that is not empty requests the next one."""

    flows: list[FlowView]
    cursor: str = ""


class HistoryEntryView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of a task's history."""

    at_us: int
    what: str
    by: str = ""
    detail: str = ""


class CauseView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One cause of a task's state."""

    why: str
    text: str
    facts: dict[str, str | int] = {}


class ExplanationView(msgspec.Struct, frozen=True):
    """Why a task is in its state."""

    task: TaskId
    state: State
    causes: tuple[CauseView, ...]


class QueueView(msgspec.Struct, frozen=True):
    """A queue: its policy, and its tasks by state."""

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
    """A tag with a limit, and its usage."""

    tag: str
    limit: int
    in_flight: int


class ApiKeyView(msgspec.Struct, frozen=True):
    """An API key, without its token or hash."""

    id: str  # names the key
    name: str  # who has it
    permissions: tuple[Permission, ...]  # what it permits
    queues: tuple[str, ...] = ()  # the queues that it is limited to; none means all
    namespace: str = ""  # the namespace that it is limited to; empty means all
    expires_us: int = 0  # from when on it permits nothing; 0 for never
    created_us: int = 0  # when it was made
    by: str = ""  # who made it
    # it stands in the broker's configuration, and is not revoked but removed there
    configured: bool = False


class BatchView(msgspec.Struct, frozen=True):
    """A batch of a queue. It is final once it is full."""

    queue: str
    number: int
    counts: dict[State, int]
    is_full: bool


class StatsView(msgspec.Struct, frozen=True):
    """The statistics of the broker."""

    counts: dict[State, int]  # unfinished tasks by state
    # waiting tasks of high (200 and up), normal and low (below 100) priority
    depth_by_tier: dict[str, int]
    ended: dict[State, int]  # tasks that ended since the broker started, by state
    workers: int
    sessions: int
    started_us: int
    now_us: int
    durability: str  # the level at which it promises
    version: str
    sequence: int
    succeeded_last_hour: int = 0  # tasks that ended well in the last hour, before a restart as well
    dead_last_hour: int = 0  # tasks that died in the last hour
    mean_run_s: float = 0.0  # how long an attempt of the last hour ran on average


class SpreadView(msgspec.Struct, frozen=True):
    """A distribution of durations, in seconds. Quantiles are correct to a factor of two."""

    number: int
    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float


class PointView(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happened in the step that begins at `at_us`."""

    at_us: int
    submitted: int = 0
    succeeded: int = 0
    dead: int = 0
    killed: int = 0
    failures: int = 0
    crashes: int = 0
    interruptions: int = 0
    retries: int = 0  # tasks that are tried once more
    depth: int = 0  # tasks that waited at the end
    leased: int = 0  # tasks that workers had at the end
    workers: int = 0  # workers at the end; 0 in the series of one queue
    per_second: float = 0.0  # how many tasks succeeded in a second
    queued: SpreadView | None = None  # how long tasks were ready before a worker had them
    assigned: SpreadView | None = None  # how long workers had them before they began
    started: SpreadView | None = None  # how long attempts ran
    finished: SpreadView | None = None  # how long it took from the submit to a good end


class SeriesView(msgspec.Struct, frozen=True):
    """A time series. It has a point for each step in which the broker ran."""

    step_s: int
    points: list[PointView]


class LaunchView(msgspec.Struct, frozen=True):
    """A launched worker or group."""

    launch: str
    # `starting` until it joins, `loading` until it is ready, `ready`, `draining`, `stopping`,
    # `ended`
    state: str
    version: str
    launcher: str
    ordered_us: int
    external_id: str  # what its launcher's backend calls it
    detail: str  # what its launcher says of it


class GroupView(msgspec.Struct, frozen=True):
    """The workers of one key of a pool."""

    key: str
    state: str
    generation: int
    wanted: int  # how many workers it should have
    ready: int  # how many of its tasks wait for one
    leased: int  # how many its workers have
    workers: tuple[str, ...]  # those that are there
    launches: tuple[LaunchView, ...]
    is_pinned: bool
    active_us: int
    rate: float  # how many attempts a second its workers ended recently
    failures: int
    trouble: str  # why its workers cannot be started, if they cannot


class LaunchFailureView(msgspec.Struct, frozen=True):
    """A launch that failed."""

    at_us: int
    key: str
    why: str


class PoolView(msgspec.Struct, frozen=True):
    """A pool."""

    queue: str
    settings: PoolSettings
    up: int  # how many of its groups are up
    waiting: int  # how many wait for a place
    launched: int  # how many launches were ordered since the broker started
    failed: int  # how many of them failed
    groups: tuple[GroupView, ...]
    failures: tuple[LaunchFailureView, ...] = ()  # the latest of them, the newest last


class RunView(msgspec.Struct, frozen=True):
    """A task of a schedule."""

    slot_us: int
    at_us: int  # when it was submitted
    task: TaskId
    how: RunKind  # `slot`, `trigger` or `backfill`
    state: State | None = None  # of the task; None if that is no longer known


class ScheduleView(msgspec.Struct, frozen=True):
    """A schedule. `state` is `active`, `paused` or, if it has no slot left, `over`.

    Lists have neither slots to come nor tasks.
    """

    name: str
    state: str
    settings: ScheduleSettings
    next_us: int  # its next slot
    by: str  # who declared it last
    changed_us: int  # when
    app: str = ""  # the application whose workers declare it; empty if it was made by hand
    orphaned_us: int = 0  # since when that does not declare it any more
    paused_by: str = ""
    fired: int = 0  # how many tasks it has submitted
    missed: int = 0  # how many slots it has passed over
    missed_us: int = 0  # the last of those
    why_missed: str = ""
    trouble: str = ""  # why the slot that is due has no task yet
    upcoming: tuple[int, ...] = ()  # the next slots
    runs: tuple[RunView, ...] = ()  # the last tasks, the newest first


class SchedulePage(msgspec.Struct, frozen=True):
    """A page of schedules; a cursor that is not empty requests the next one."""

    schedules: list[ScheduleView]
    cursor: str = ""
