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
from jackalope.core.durations import SECOND
from jackalope.core.filter import Filter
from jackalope.core.ids import TaskId
from jackalope.core.shapes.pool import Phase
from jackalope.core.task import Body, Error, TaskSpec

#: Names of other modules that belong to what this one offers.
__all__ = ["DEFAULT_NAMESPACE", "Command"]


class Tick(Command):
    """Time has passed: act on every deadline that is due."""


class Recover(Command):
    """The state was just rebuilt after a restart: settle what was leased before it."""


# Submitting and configuring.


class SubmitTasks(Limited, array_like=True):
    """Accept these tasks. Each is accepted or refused on its own.

    `fence` proves the right of a running parent to submit children; 0 when an actioner submits.
    Parents and dependencies in none of the queues `only`, if there are any, do not exist.
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
        """Return the queue, and the one that its results go to."""
        target = self.changes.get("result_becomes")
        return (self.queue, str(target)) if target else (self.queue,)


class DeleteQueue(Namespaced):
    """Remove a queue that has no unfinished task."""

    needs = (Permission.ADMIN,)
    scope = Scope.QUEUES

    queue: str


class PauseQueue(Namespaced):
    """Give out no task of the queue until it is resumed."""

    needs = (Permission.ADMIN,)
    scope = Scope.QUEUES

    queue: str


class ResumeQueue(Namespaced):
    """Give out tasks of the queue again."""

    needs = (Permission.ADMIN,)
    scope = Scope.QUEUES

    queue: str


class LimitTag(Namespaced):
    """Let at most `limit` tasks with the tag be leased at once; negative removes the limit."""

    needs = (Permission.ADMIN,)
    scope = Scope.NAMESPACE

    tag: str
    limit: int


class DeclareAll(Command):
    """Declare queues, pools and limits: all of them, or none. For the broker alone."""

    declarations: list[Command]


class CreateApiKey(Signed):
    """Let whoever has the token of this key in. Who made it, and when, the core fills in."""

    needs = (Permission.ADMIN,)
    scope = Scope.BROKER

    key: ApiKey


class RevokeApiKey(Signed):
    """Let the bearers of this key, named by its id, in no more."""

    needs = (Permission.ADMIN,)
    scope = Scope.BROKER

    key: str


# Workers.


class Held(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An attempt named by a worker: the task and the fence that proves the lease."""

    task: TaskId
    fence: int


class JoinWorker(Limited, array_like=True):
    """A worker is there, for the first time or again.

    It may not take the place of a worker of other queues than `only`, if there are any.
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
    # whether it takes tasks just now. One that is not ready still counts as somebody who may take
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

    def touches(self) -> Iterable[str]:
        """Return the queues that it serves."""
        return self.queues


class Heartbeat(Report, array_like=True):
    """The worker is alive, and says how it is."""

    ref: int = 0
    stats: dict[str, float] = msgspec.field(default_factory=dict)


class ClaimTasks(Report, array_like=True):
    """Give me up to `count` tasks beyond my slots, within `wait_us`."""

    ref: int
    count: int = 1
    wait_us: int = 0


class CancelClaim(Report):
    """The worker waits no longer for what is left of a claim, named by its ref."""

    claim: int


class LeaveWorker(Report, array_like=True):
    """The worker goes. What it still holds is handed back as interrupted."""

    ref: int = 0


class CloseSession(Command):
    """The connection is gone without a word. Its worker may resume within its grace."""


class DrainWorker(Namespaced):
    """Give no more tasks to the worker, and tell it to finish."""

    needs = (Permission.ADMIN,)
    scope = Scope.NAMESPACE

    worker: str


# Attempts.


class StartAttempts(Report, array_like=True):
    """The worker began these."""

    counted = "attempts"

    ref: int
    attempts: list[Held]


class Finish(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An attempt that came to its good end, and its result."""

    task: TaskId
    fence: int
    result: Body = b""


class FinishAttempts(Report):
    """The worker finished these."""

    counted = "attempts"
    attempts: list[Finish]


class Verdict(StrEnum):
    """What a worker wants done about a failure."""

    RETRY = "retry"
    DEAD = "dead"
    REJECT = "reject"


class Fail(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An attempt that failed. `retry_after_us`, if positive, replaces the policy's wait.

    `crashed` if the task's own process died: that counts as a crash, as the loss of a worker does.
    """

    task: TaskId
    fence: int
    error: Error
    verdict: Verdict = Verdict.RETRY
    retry_after_us: int = 0
    crashed: bool = False


class FailAttempts(Report):
    """These attempts failed."""

    counted = "attempts"
    attempts: list[Fail]


class ReleaseAttempts(Report):
    """The worker hands these back unfinished, through no fault of theirs."""

    counted = "attempts"
    attempts: list[Held]  # what is handed back
    after_us: int = 0  # how long they are not to be tried again


class ReportProgress(Report, array_like=True):
    """How far an attempt has come. Kept in memory only."""

    ref: int
    task: TaskId
    fence: int
    percent: float | None = None
    note: str = ""


class Answer(StrEnum):
    """What a worker says about a signal."""

    DELIVERED = "delivered"
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    STOPPED = "stopped"


class AnswerSignal(Report, array_like=True):
    """The worker's word on a signal to one of its attempts."""

    ref: int
    task: TaskId
    fence: int
    answer: Answer
    detail: str = ""


class RequestHelpers(Limited, array_like=True):
    """Let up to `count` workers help with a running task; 0 when its fan-out is over.

    It comes over the session of the worker that holds the task, or with the secret of that worker.
    The task is in one of the queues `only`, if there are any.
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
    """The worker helps no more. `why`, if it could not help, keeps it from being asked again."""

    ref: int
    fence: int
    why: str = ""


# Actions.


class Action(StrEnum):
    """What an actioner can do with a task."""

    HOLD = "hold"
    PLAY = "play"
    PAUSE = "pause"
    KILL = "kill"
    RETRY = "retry"
    PURGE = "purge"


class RetryTerms(msgspec.Struct, frozen=True, array_like=True):
    """What shall be otherwise when a task is tried again; `None` for as before."""

    retries: int | None = None
    timeout_us: int | None = None
    priority: int | None = None


class ActOnTasks(Limited, array_like=True):
    """Do something with tasks: with those named, or with those that match the filter.

    Tasks that are named beside a filter must match it: so something is done only while it is so.

    `dry_run` only counts. By filter, at most `TASKS_PER_FILTER_MAX` are changed at a time. Tasks
    that are in none of the queues `only`, if there are any, do not exist for whoever asks.

    `terms` go with `retry`, and then only tasks that have ended are meant.
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
    """What an actioner can do with an answer that is kept."""

    PIN = "pin"
    UNPIN = "unpin"
    PURGE = "purge"


class ActOnAnswers(Limited):
    """Do something with answers that are kept: with those named, or with those that match.

    What is left empty matches all. At most `TASKS_PER_FILTER_MAX` are changed at a time. Answers of
    none of the queues `only`, if there are any, do not exist for whoever asks.
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


class WatchTasks(Limited, array_like=True):
    """Tell this session when each of these tasks ends; at once for those that have.

    With `progress`, tell it also how far they come, beginning with what is known. Tasks that are in
    none of the queues `only`, if there are any, do not exist for whoever asks.
    """

    counted = "tasks"
    needs = (Permission.READ_TASKS,)
    scope = Scope.NARROWED

    ref: int
    tasks: tuple[TaskId, ...]
    progress: bool = False


# Pools.


class DeclarePool(Namespaced):
    """Start workers for a queue, or change how. What is not named stays as it is."""

    needs = (Permission.ADMIN,)
    scope = Scope.QUEUES

    queue: str
    changes: dict[str, object] = msgspec.field(default_factory=dict)


class DeletePool(Namespaced):
    """Start no more workers for a queue, and stop those that were, each when it is idle."""

    needs = (Permission.ADMIN,)
    scope = Scope.QUEUES

    queue: str


class GroupAction(StrEnum):
    """What an actioner can do with a group of workers."""

    START = "start"
    STOP = "stop"
    PIN = "pin"
    UNPIN = "unpin"


class ActOnGroup(Namespaced):
    """Start or stop the workers of a key by hand, or let them stay up."""

    needs = (Permission.ADMIN,)
    scope = Scope.QUEUES

    queue: str
    key: str
    action: GroupAction


class FollowPools(Command):
    """This session carries out orders for these launchers, and hears when there are some.

    `scaling` are those of them whose launches are whole groups that scale themselves.
    """

    launchers: tuple[str, ...] = ()
    scaling: tuple[str, ...] = ()


class Seen(msgspec.Struct, frozen=True):
    """Something that a launcher started, as it sees it."""

    launch: str
    namespace: str
    queue: str
    key: str
    version: str = ""
    phase: Phase = Phase.RUNNING
    external_id: str = ""
    detail: str = ""


class ReportLaunches(Command):
    """What there is of all that a launcher started. Answered by what it is to start and stop."""

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
    | SubmitTasks
    | DeclareQueue
    | DeleteQueue
    | PauseQueue
    | ResumeQueue
    | LimitTag
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
    | AnyMessaging
)
