"""Commands: what clients and workers ask of the core.

Each has the session it came from and a `ref` that its reply will carry; 0 means that no reply is
wanted. Everything that can be many is a list. Each declares which permission it needs and how far
that reaches; one that does not is the broker's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from jackalope.core.api_key import ApiKey, Permission
from jackalope.core.commands.amqp import AnyMessaging
from jackalope.core.commands.base import (
    DEFAULT_NAMESPACE,
    Command,
    Limited,
    Namespaced,
    Report,
    Scope,
    Signed,
)
from jackalope.core.commands.callbacks import ServeCallbacks
from jackalope.core.commands.contracts import AnyContract
from jackalope.core.commands.flows import AnyFlow
from jackalope.core.commands.limits import DeclareLimits, DeleteLimit
from jackalope.core.commands.namespaces import AnyNamespace
from jackalope.core.commands.schedules import AnyScheduling
from jackalope.core.durations import SECOND
from jackalope.core.filter import Filter
from jackalope.core.ids import TaskId
from jackalope.core.shapes.pool import Phase
from jackalope.core.task import Body, Error, TaskSpec

#: Names of other modules that belong to what this one offers.
__all__ = ["DEFAULT_NAMESPACE", "Command"]


class Tick(Command):
    """Process every deadline that is due."""


class Recover(Command):
    """Settle what was leased before a restart.

    Time goes on from the last record, unless the clock was ahead then and has been set back.
    """

    is_clock_set_back: bool = False


class ForgetTasks(Command):
    """Forget ended tasks that were to be kept until `through_us` at the latest."""

    through_us: int


# Submitting and configuring.


class SubmitTasks(Limited, array_like=True):
    """Submit tasks. Each is accepted or refused on its own.

    `fence` proves the right of a running parent to submit children; 0 if the submitter is not a
    worker. If `only` is set, parents and dependencies in other queues are treated as nonexistent.
    """

    counted = "tasks"
    needs = (Permission.SUBMIT_TASKS,)
    scope = Scope.QUEUES

    ref: int
    tasks: list[TaskSpec]
    fence: int = 0

    def touches(self) -> Iterable[str]:
        return {task.queue for task in self.tasks}


class DeclareQueue(Namespaced):
    """Create a queue or change its policy.

    A preset replaces the whole policy; changes then apply to it field by field.
    """

    needs = (Permission.ADMIN,)
    scope = Scope.QUEUES

    queue: str
    changes: dict[str, object] = msgspec.field(default_factory=dict)
    preset: str = ""

    def touches(self) -> Iterable[str]:
        target, triggers = self.changes.get("result_becomes"), self.changes.get("triggers")
        # One that is not sound is refused later.
        listed = triggers if isinstance(triggers, list | tuple) else ()
        named = [each.get("queue") for each in listed if isinstance(each, dict)]
        return (self.queue, *(str(each) for each in (target, *named) if each))


class DeleteQueue(Namespaced):
    """Delete a queue that has no unfinished task."""

    needs = (Permission.ADMIN,)
    scope = Scope.QUEUES

    queue: str


class PauseQueue(Namespaced):
    """Assign no task of the queue until it is resumed."""

    needs = (Permission.ADMIN,)
    scope = Scope.QUEUES

    queue: str


class ResumeQueue(Namespaced):
    """Assign tasks of the queue again."""

    needs = (Permission.ADMIN,)
    scope = Scope.QUEUES

    queue: str


class LimitTag(Namespaced):
    """Limit how many tasks with the tag may be leased at once; a negative limit removes it."""

    needs = (Permission.ADMIN,)
    scope = Scope.NAMESPACE

    tag: str
    limit: int


class DeclareAll(Command):
    """Declare queues, pools and limits: all of them, or none. Only the broker itself sends it."""

    declarations: list[Command]


class CreateApiKey(Signed):
    """Create an API key. The core sets its creator and creation time.

    Who administers one namespace creates keys of that namespace.
    """

    needs = (Permission.ADMIN,)
    scope = Scope.NAMESPACE

    key: ApiKey

    @property
    def namespace(self) -> str:
        """Return the namespace that the sender must administer; empty for the whole broker."""
        return self.key.namespace


class RevokeApiKey(Signed):
    """Revoke an API key by its id. If `within` is set, keys of other namespaces do not exist."""

    needs = (Permission.ADMIN,)
    scope = Scope.NAMESPACE

    key: str
    within: str = ""  # the namespace that the sender is limited to; empty for none

    def narrow(self, key: ApiKey) -> None:
        self.within = key.namespace


# Workers.


class Held(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An attempt named by a worker: the task and the fence that proves the lease."""

    task: TaskId
    fence: int


class JoinWorker(Limited, array_like=True):
    """Register a worker over this session, for the first time or again.

    If `only` is set, it cannot replace a worker that serves other queues.
    """

    counted = "holding"
    needs = (Permission.WORK,)
    scope = Scope.QUEUES

    ref: int
    worker: str  # the worker's own name, stable over reconnects
    queues: tuple[str, ...]  # the queues it serves
    keys: tuple[str, ...] = ()  # the keys it serves; none means every task of its queues
    slots: int = 1  # how many attempts it wants to hold at once; 0 for a worker that only claims
    labels: dict[str, str] = msgspec.field(default_factory=dict)  # what it says about itself
    # the attempts that it still runs. What both sides know goes on; the rest is settled.
    holding: list[Held] = msgspec.field(default_factory=list)
    lease_us: int = 30 * SECOND  # how long its silence is borne
    grace_us: int = 10 * SECOND  # how long a closed session may take to come back
    # grows with every connection of the worker (its clock will do), so that a join that was
    # overtaken by a later one is told apart; 0 if the worker cannot tell
    generation: int = 0
    # whether it takes tasks just now. One that is not ready still counts as one that may take
    # what failed elsewhere; it joins again, over the same session, to change this.
    ready: bool = True
    # the fence of the task that it helps, 0 for none; negative if it cannot help anybody. Only the
    # first join of a session is asked.
    helps: int = -1
    # the names of the tasks that it knows, the empty one if it takes tasks without a name; None if
    # it takes any task
    names: tuple[str, ...] | None = None
    # proves over other sessions that they are the worker's; empty if it has no others
    secret: str = ""
    # how much of what it has for tasks that need it, in thousandths
    resources: dict[str, int] = msgspec.field(default_factory=dict)
    # names slots and resources that it has together with workers of other namespaces; a secret, as
    # who knows it can take them. Empty if it has them alone.
    share: str = ""
    share_slots: int = 0  # how many slots these have together

    def touches(self) -> Iterable[str]:
        return self.queues


class Heartbeat(Report, array_like=True):
    """Renew the worker's lease and report its resource usage."""

    ref: int = 0
    stats: dict[str, float] = msgspec.field(default_factory=dict)


class ClaimTasks(Report, array_like=True):
    """Request up to `count` tasks beyond the worker's slots, within `wait_us`."""

    ref: int
    count: int = 1
    wait_us: int = 0


class CancelClaim(Report):
    """Withdraw the rest of a claim, named by its ref."""

    claim: int


class LeaveWorker(Report, array_like=True):
    """Unregister the worker. Attempts that it still holds are released as interrupted."""

    ref: int = 0


class CloseSession(Command):
    """The connection was lost. Its worker may resume within its grace period."""


class DrainWorker(Namespaced):
    """Assign no more tasks to the worker, and ask it to finish."""

    needs = (Permission.ADMIN,)
    scope = Scope.NAMESPACE

    worker: str


# Attempts.


class StartAttempts(Report, array_like=True):
    """Report that attempts started."""

    counted = "attempts"

    ref: int
    attempts: list[Held]


class Finish(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A successful attempt and its result."""

    task: TaskId
    fence: int
    result: Body = b""


class FinishAttempts(Report):
    """Report successful attempts."""

    counted = "attempts"
    attempts: list[Finish]


class Verdict(StrEnum):
    """How a worker wants a failure to be handled."""

    RETRY = "retry"
    DEAD = "dead"
    REJECT = "reject"
    THROTTLED = "throttled"  # no failure: its key is closed for `retry_after_us`


class Fail(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A failed attempt. `retry_after_us`, if positive, replaces the policy's delay.

    `crashed` if the task's own process died: that counts as a crash, like the loss of a worker.
    `key`, if it was throttled, names the limit or the key of a limit at which none may start.
    """

    task: TaskId
    fence: int
    error: Error
    verdict: Verdict = Verdict.RETRY
    retry_after_us: int = 0
    crashed: bool = False
    key: str = ""


class FailAttempts(Report):
    """Report failed attempts."""

    counted = "attempts"
    attempts: list[Fail]


class ReleaseAttempts(Report):
    """Release attempts unfinished; that does not count as a failure."""

    counted = "attempts"
    attempts: list[Held]  # what is handed back
    after_us: int = 0  # how long they are not to be tried again


class RecordStep(Report, array_like=True):
    """Record the result of a step, which is not done again from then on."""

    ref: int
    task: TaskId
    fence: int
    index: int  # its place among the steps of the task, from 0
    name: str
    result: bytes = b""
    took_us: int = 0


class Suspend(Report, array_like=True):
    """Let the task wait at a step without its worker.

    The attempt ends, unless the step is done or the event was sent before: then the answer has it.
    """

    ref: int
    task: TaskId
    fence: int
    index: int
    name: str
    after_us: int = 0  # for how long; 0 if only the event ends it
    event: str = ""  # what it waits for; empty for the time alone


class ReportProgress(Report, array_like=True):
    """Report the progress of an attempt. It is kept in memory only."""

    ref: int
    task: TaskId
    fence: int
    percent: float | None = None
    note: str = ""


class Answer(StrEnum):
    """A worker's answer to a signal."""

    DELIVERED = "delivered"
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    STOPPED = "stopped"


class AnswerSignal(Report, array_like=True):
    """Answer a signal to one of the worker's attempts."""

    ref: int
    task: TaskId
    fence: int
    answer: Answer
    detail: str = ""


class RequestHelpers(Limited, array_like=True):
    """Request up to `count` helpers for a running task; 0 ends its fan-out.

    It is sent over the session of the worker that holds the task, or with the secret of that
    worker. If `only` is set, the task must be in one of these queues.
    """

    needs = (Permission.WORK,)
    scope = Scope.QUEUES

    ref: int
    task: TaskId
    fence: int
    count: int
    function: str = ""
    where: str = ""
    seal: str = ""
    queue: str = ""
    secret: str = ""
    token: str = ""  # by which the helpers prove themselves; random, so the door makes it


class EndHelp(Report, array_like=True):
    """Report that the worker stopped helping. `why`, if it cannot help, excludes it from now on."""

    ref: int
    fence: int
    why: str = ""


# Actions.


class Action(StrEnum):
    """An action on a task."""

    HOLD = "hold"
    PLAY = "play"
    PAUSE = "pause"
    KILL = "kill"
    RETRY = "retry"
    PURGE = "purge"


class RetryTerms(msgspec.Struct, frozen=True, array_like=True):
    """Overrides for a retried task; `None` keeps the current value."""

    retries: int | None = None
    timeout_us: int | None = None
    priority: int | None = None


class ActOnTasks(Limited, array_like=True):
    """Apply an action to tasks, by id or by filter.

    With both, a task that is named must also match the filter, which makes the action conditional.

    `dry_run` only counts. By filter, at most `TASKS_PER_FILTER_MAX` are changed at a time. If
    `only` is set, tasks in other queues are treated as nonexistent.

    `terms` are for `retry`, and then only ended tasks are selected.
    """

    counted = "tasks"
    needs = (Permission.CANCEL_TASKS,)
    scope = Scope.NARROWED

    ref: int
    action: Action
    tasks: tuple[TaskId, ...] = ()
    filter: Filter | None = None
    dry_run: bool = False
    terms: RetryTerms | None = None


class AnswerAction(StrEnum):
    """An action on a cached answer."""

    PIN = "pin"
    UNPIN = "unpin"
    PURGE = "purge"


class ActOnAnswers(Limited):
    """Apply an action to cached answers, by identity or by filter.

    Empty conditions match all. At most `TASKS_PER_FILTER_MAX` are changed at a time. If `only` is
    set, answers of other queues are treated as nonexistent.
    """

    counted = "identities"
    needs = (Permission.CANCEL_TASKS,)
    scope = Scope.NARROWED

    action: AnswerAction
    identities: tuple[bytes, ...] = ()  # the requests whose answers are meant
    queue: str = ""
    name: str = ""
    version: str = ""
    older_than_us: int = 0  # only answers made before


class SendEvent(Limited):
    """Send an event to a task that waits for it, or will.

    If `only` is set, a task in another queue is treated as nonexistent.
    """

    needs = (Permission.SUBMIT_TASKS, Permission.CANCEL_TASKS)
    scope = Scope.NARROWED

    task: TaskId
    event: str
    data: bytes = b""


class WatchTasks(Limited, array_like=True):
    """Notify this session when each of these tasks ends; at once for those that have ended.

    With `progress`, also send their progress, beginning with the last known one. If `only` is set,
    tasks in other queues are treated as nonexistent.
    """

    counted = "tasks"
    needs = (Permission.READ_TASKS,)
    scope = Scope.NARROWED

    ref: int
    tasks: tuple[TaskId, ...]
    progress: bool = False


# Pools.


class DeclarePool(Namespaced):
    """Create the pool of a queue or change its settings. Fields that are not given stay."""

    needs = (Permission.ADMIN,)
    scope = Scope.QUEUES

    queue: str
    changes: dict[str, object] = msgspec.field(default_factory=dict)


class DeletePool(Namespaced):
    """Delete the pool of a queue. Its workers stop when they are idle."""

    needs = (Permission.ADMIN,)
    scope = Scope.QUEUES

    queue: str


class GroupAction(StrEnum):
    """An action on a group of workers."""

    START = "start"
    STOP = "stop"
    PIN = "pin"
    UNPIN = "unpin"


class ActOnGroup(Namespaced):
    """Start, stop, pin or unpin the workers of a key."""

    needs = (Permission.ADMIN,)
    scope = Scope.QUEUES

    queue: str
    key: str
    action: GroupAction


class FollowPools(Command):
    """Let this session carry out the orders of these launchers; it is notified of new ones.

    `scaling` are the launchers whose launches are whole groups that scale themselves.
    """

    launchers: tuple[str, ...] = ()
    scaling: tuple[str, ...] = ()


class Seen(msgspec.Struct, frozen=True):
    """A launched worker or group, as its launcher sees it."""

    launch: str
    namespace: str
    queue: str
    key: str
    version: str = ""
    phase: Phase = Phase.RUNNING
    external_id: str = ""
    detail: str = ""


class ReportLaunches(Command):
    """Report everything a launcher has running. The reply has what to start and stop."""

    launcher: str  # which one
    # everything that it started, unless there is trouble
    seen: list[Seen] = msgspec.field(default_factory=list)
    # starts that were ordered and failed, and why
    failed: dict[str, str] = msgspec.field(default_factory=dict)
    ids: tuple[str, ...] = ()  # fresh ids for what is to be started
    trouble: str = ""  # why it cannot tell what there is


AnyCommand = (
    Tick
    | Recover
    | ForgetTasks
    | SubmitTasks
    | DeclareQueue
    | DeleteQueue
    | PauseQueue
    | ResumeQueue
    | LimitTag
    | DeclareLimits
    | DeleteLimit
    | DeclareAll
    | CreateApiKey
    | RevokeApiKey
    | JoinWorker
    | Heartbeat
    | ClaimTasks
    | CancelClaim
    | LeaveWorker
    | CloseSession
    | DrainWorker
    | StartAttempts
    | FinishAttempts
    | FailAttempts
    | ReleaseAttempts
    | ReportProgress
    | RecordStep
    | Suspend
    | SendEvent
    | AnswerSignal
    | RequestHelpers
    | EndHelp
    | ActOnTasks
    | ActOnAnswers
    | WatchTasks
    | DeclarePool
    | DeletePool
    | ActOnGroup
    | FollowPools
    | ReportLaunches
    | ServeCallbacks
    | AnyContract
    | AnyScheduling
    | AnyFlow
    | AnyMessaging
    | AnyNamespace
)
