"""Views: what the broker shows of its state. Shared by every door and by the client.

Times are microseconds since the epoch, 0 where something has not happened. Owns the words as well:
in JSON, over HTTP and from the command line, a field is called as here, except for the units that
`json_name` writes out.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

import msgspec

from jackalope.core.api_key import Permission
from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.lifecycle import Reason, State
from jackalope.core.policy import Policy
from jackalope.core.shapes.contract import CallContent, Parameter
from jackalope.core.shapes.limit import LimitSettings
from jackalope.core.shapes.namespace import NamespaceSettings
from jackalope.core.shapes.pace import Pacing
from jackalope.core.shapes.pool import PoolSettings
from jackalope.core.shapes.request import How
from jackalope.core.shapes.schedule import RunKind, ScheduleSettings
from jackalope.core.task import Signal, Stage

V = TypeVar("V", bound=msgspec.Struct)

#: The fields in microseconds that are durations; all others are times.
DURATIONS = frozenset({"at_most_us", "span_us", "timeout_us", "took_us"})

#: Times whose name needs no `_at`.
_TIMES = {"at_us": "at", "now_us": "now"}


@cache
def json_name(field: str) -> str:
    """Return what a field is called in JSON: a time `*_at`, a duration `*_seconds`, else as here.

    A time is a text there, and a duration a number of seconds.
    """
    if not field.endswith("_us"):
        return field
    if field in DURATIONS:
        return field.removesuffix("_us") + "_seconds"
    return _TIMES.get(field) or field.removesuffix("_us") + "_at"


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


class PaceView(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a task is spread over time, with others of its kind."""

    how: Pacing
    key: str = ""  # what tells tasks of one queue and name apart
    span_us: int = 0  # how long no more may come, or how long one is accepted for
    at_most_us: int = 0  # of a debounce, how long after the first it runs at most
    drop: bool = False  # of a throttle: what is too much is dropped, and not refused


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
    pace: PaceView | None = None  # how it is spread over time, if it is
    # what its worker must have: amounts of resources, and labels with the values that will do
    needs: dict[str, int | float | tuple[str, ...]] = {}
    prefer: dict[str, tuple[str, ...]] = {}  # labels of workers that it goes to first
    avoid: dict[str, tuple[str, ...]] = {}  # labels of workers that it goes to last
    sticky: str = ""  # tasks of one value go to one worker, as long as that has room


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


class ShareView(msgspec.Struct, frozen=True):
    """The ready tasks of a queue that have one value of its fairness key."""

    share: str
    ready: int
    weight: int = 1


class QueueView(msgspec.Struct, frozen=True):
    """A queue: its policy, and its tasks by state.

    `shares` are those with the most ready tasks, if the query is for one queue; `share_count` is
    how many have any.
    """

    queue: str
    counts: dict[State, int]
    depth: int
    workers: int
    policy: Policy
    paused_by: str = ""
    oldest_ready_us: int = 0
    share_count: int = 0
    shares: tuple[ShareView, ...] = ()


class WorkerView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker. `state` is `active`, `idle`, `draining`, `away` or, for a while, `gone`.

    `succeeded` and `failed` count attempts, over all sessions of a worker of this name. `helps` is
    the task, in hexadecimal, that the worker helps with its fan-out. `used` is how much of its
    resources the tasks take that it holds.
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
    resources: dict[str, int | float] = {}  # how much of what it has
    used: dict[str, int | float] = {}


class LimitView(msgspec.Struct, frozen=True):
    """A tag with a limit, and its usage."""

    tag: str
    limit: int
    in_flight: int = 0  # how many tasks hold a slot
    waiting: int = 0  # how many ready tasks it counts


class GateView(msgspec.Struct, frozen=True):
    """The use of a limit by tasks with equal keys."""

    values: tuple[str, ...]  # of the keys of the limit, in their order
    in_flight: int  # how many tasks hold a slot
    waiting: int  # how many ready tasks it counts
    opens_us: int = 0  # when tokens come, or a worker's order to wait ends; 0 if neither is awaited


class KeyLimitView(msgspec.Struct, frozen=True):
    """A limit by keys, and its usage."""

    name: str
    settings: LimitSettings
    in_flight: int  # how many tasks hold a slot, over all values of the keys
    waiting: int  # how many ready tasks it counts
    opens_us: int  # when the next of its values lets go; 0 if none waits for a time
    gate_count: int  # how many values of the keys are in use
    gates: list[GateView]  # the busiest of them


class NamespaceView(msgspec.Struct, frozen=True):
    """A namespace: its settings, and what it uses."""

    name: str
    settings: NamespaceSettings
    # how much of each quota is used; of the rate of submits, how much of its burst
    used: dict[str, int]
    queues: int = 0  # how many queues it has
    created_us: int = 0  # when it was created; 0 if it came into being by being named
    by: str = ""  # who created it
    is_declared: bool = False  # it was created, and stays when nothing is in it


class ActView(msgspec.Struct, frozen=True):
    """An administrative act, in the audit log."""

    number: int  # grows with every act
    at_us: int
    what: str  # such as `declare_queue` or `sign_in`
    by: str = ""  # the API key, and what the client calls itself
    namespace: str = ""  # where; empty for the broker as a whole
    about: str = ""  # what it was done to
    origin: str = ""  # the address that it came from
    outcome: str = ""  # `done`, or the code of the refusal


class ActPage(msgspec.Struct, frozen=True):
    """Acts, the latest first; `cursor` requests the next page, and is empty on the last."""

    acts: list[ActView]
    cursor: str = ""


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
    role: str = ""  # the role that has just these permissions; empty if none does


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
    sequence: int  # the last durable batch; 0 for a key of one namespace, as are `sessions`
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


class ContractView(msgspec.Struct, frozen=True):
    """What a task of a queue takes and returns, as its workers say."""

    queue: str
    name: str
    signature: str  # a call in one line, for people
    doc: str
    version: str  # the newest
    versions: tuple[str, ...]  # all that are in use, the newest last
    content: CallContent  # how a call is encoded
    parameters: tuple[Parameter, ...]
    arguments: dict[str, Any]  # all arguments by name, as one JSON Schema
    returns: dict[str, Any]
    workers: int  # how many connected workers know the task
    declared_by: str
    declared_us: int


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
