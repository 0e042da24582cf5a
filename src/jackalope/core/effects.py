"""Effects: the messages to send once the records that caused them are durable.

Each is safe to repeat: assignments and signals carry their fence, and ends are final. Those that
are arrays travel to the peers of the native protocol as they are; the order of their fields is
protocol.
"""

from __future__ import annotations

import msgspec

from jackalope.core.commands import Held
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import Reason, State
from jackalope.core.policy import Policy
from jackalope.core.refusals import Refusal
from jackalope.core.shapes.flow import Input
from jackalope.core.shapes.namespace import NamespaceSettings
from jackalope.core.shapes.pool import PoolSettings
from jackalope.core.shapes.request import How
from jackalope.core.shapes.schedule import ScheduleSettings
from jackalope.core.shapes.steps import Step
from jackalope.core.task import Body, Envelope, Error, Options, Signal


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """The command succeeded. For lists: how many were accepted, and the refusals by index."""

    count: int = 1
    refused: tuple[tuple[int, Refusal], ...] = ()


class Served(msgspec.Struct, frozen=True, gc=False):
    """How a request was served, and the task that has or will have the answer."""

    how: How
    task: TaskId
    identity: bytes = b""
    made_us: int = 0  # of a hit, when the answer was made
    worker: str = ""  # of a hit, who made it


class AcceptedRequests(Accepted, frozen=True):
    """As `Accepted`, with how requests are served and what is doubtful about tasks, by index."""

    served: tuple[tuple[int, Served], ...] = ()
    warnings: tuple[tuple[int, str], ...] = ()


class Declared(msgspec.Struct, frozen=True):
    """The queue exists, with this policy."""

    policy: Policy


class Joined(msgspec.Struct, frozen=True):
    """The worker is registered."""

    resumed: tuple[Held, ...] = ()  # what it was holding goes on
    drop: tuple[Held, ...] = ()  # attempts that it must abandon: they are no longer its own


class Acted(msgspec.Struct, frozen=True):
    """The outcome of an action."""

    changed: int = 0  # tasks that are now what was asked for
    requested: int = 0  # tasks whose worker was asked
    refused: tuple[tuple[TaskId, Refusal], ...] = ()  # tasks that could not be, and why
    more: bool = False  # the filter matches more tasks than one command may change


class PoolSet(msgspec.Struct, frozen=True):
    """The pool exists, with these settings."""

    settings: PoolSettings


class ScheduleSet(msgspec.Struct, frozen=True):
    """The schedule exists, with these settings; `next_us` is its next slot, 0 for none."""

    settings: ScheduleSettings
    next_us: int


class SlotsRun(msgspec.Struct, frozen=True):
    """The tasks that a schedule submitted because it was asked to."""

    tasks: tuple[TaskId, ...]
    known: int = 0  # slots that had a task already
    refused: Refusal | None = None  # why it stopped before the end
    # slots that were left out because they fired once, although their tasks are forgotten
    forgotten: tuple[int, ...] = ()


class StartOrder(msgspec.Struct, frozen=True):
    """Start a worker for a group."""

    launch: str
    namespace: str
    queue: str
    key: str
    generation: int
    version: str
    workers_min: int
    workers_max: int


class StopOrder(msgspec.Struct, frozen=True):
    """Stop a worker: it holds no task and gets none."""

    launch: str
    grace_us: int


class Orders(msgspec.Struct, frozen=True):
    """What a launcher has to start and stop."""

    start: tuple[StartOrder, ...] = ()
    stop: tuple[StopOrder, ...] = ()


class QueueOpened(msgspec.Struct, frozen=True, gc=False):
    """The queue exists: its name, and the numbers of ready tasks and consumers."""

    queue: str
    ready: int
    consumers: int


class Dropped(msgspec.Struct, frozen=True, gc=False):
    """The number of tasks that were dropped."""

    count: int


class Published(msgspec.Struct, frozen=True, gc=False):
    """The outcome of messages, by index; those not listed are in their queues."""

    count: int  # how many there were
    unrouted: tuple[int, ...] = ()  # those that led to no queue and were to be returned then
    refused: tuple[int, ...] = ()  # those that a full queue refused
    # the one that ended the work on these messages, and why
    failed: tuple[int, Refusal] | None = None
    over: tuple[Refusal, ...] = ()  # why quotas refused some of those that were refused


class NothingToClaim(msgspec.Struct, frozen=True):
    """The time of a claim is over."""


class HelpersPromised(msgspec.Struct, frozen=True):
    """Helpers will connect when there are any, and authenticate with this token."""

    token: str


class StepDone(msgspec.Struct, frozen=True, gc=False):
    """The step is done; the task goes on."""

    result: bytes = b""
    is_late: bool = False  # the event did not come in time


class Suspended(msgspec.Struct, frozen=True, gc=False):
    """The attempt is over. Another goes on when what it waits for has come."""

    is_suspended: bool = True


class NamespaceSet(msgspec.Struct, frozen=True):
    """The namespace exists, with these settings."""

    settings: NamespaceSettings


class NamespaceGone(msgspec.Struct, frozen=True):
    """The namespace was deleted, and so many unfinished tasks were killed with it."""

    killed: int


Answered = (
    Accepted
    | Declared
    | Joined
    | Acted
    | QueueOpened
    | Dropped
    | Published
    | PoolSet
    | ScheduleSet
    | SlotsRun
    | Orders
    | NothingToClaim
    | HelpersPromised
    | StepDone
    | Suspended
    | NamespaceSet
    | NamespaceGone
    | Refusal
)


class Assignment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A task for a worker."""

    task: TaskId
    fence: int
    queue: str
    name: str
    key: str
    payload: Body
    options: Options
    attempt: int
    timeout_us: int
    claim: int = 0  # the ref of the claim that it answers, or 0
    envelope: Envelope | None = None  # what it brings along if it came as an AMQP message
    steps: tuple[Step, ...] = ()  # what of it is done for good
    # how many failures are still tried again, this attempt's included; -1 if that is not known
    retries_left: int = -1
    inputs: tuple[Input, ...] = ()  # what the nodes left that it waited for, if it is one of a flow


class SignalAsked(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The worker must pause or kill one of its attempts."""

    task: TaskId
    fence: int
    signal: Signal


class DrainAsked(msgspec.Struct, frozen=True):
    """The worker must finish what it holds and leave."""


class SessionReplaced(msgspec.Struct, frozen=True):
    """The worker of this session has joined again over another one."""


class LeaseLost(msgspec.Struct, frozen=True):
    """The worker's lease expired, and it lost what it held. It may join again."""


class TaskEnded(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A watched task has ended."""

    task: TaskId
    state: State
    result: Body = b""
    reason: Reason | None = None
    error: Error | None = None


class TaskProgressed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A watched task has made progress, as reported by its worker."""

    task: TaskId
    at_us: int
    percent: float | None = None
    note: str = ""


class OrdersDue(msgspec.Struct, frozen=True):
    """A launcher has something to start or stop: report launches to receive it."""

    launcher: str


class ConsumerCancelled(msgspec.Struct, frozen=True):
    """The queue of a consumer was deleted."""


class DeliveryTimedOut(msgspec.Struct, frozen=True):
    """The consumer held a task for longer than `timeout_us`, and has lost everything it held."""

    task: TaskId
    timeout_us: int


class DirectReply(msgspec.Struct, frozen=True):
    """A reply that goes to the session that waits at this address, and into no queue."""

    address: str
    properties: bytes
    body: Body


class HelpAsked(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The worker must help a task with its fan-out, and report when that is over.

    On the wire an empty `where` stands for `HelpRecalled`: stop helping this task.
    """

    fence: int
    task: TaskId = TaskId(b"")
    queue: str = ""
    function: str = ""
    where: str = ""
    token: str = ""
    seal: str = ""


class HelpRecalled(msgspec.Struct, frozen=True):
    """The worker must finish its current item, and stop helping this task."""

    fence: int


class HelperFailed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A worker could not help."""

    task: TaskId
    fence: int
    worker: str
    why: str


Message = (
    Assignment
    | SignalAsked
    | DrainAsked
    | SessionReplaced
    | LeaseLost
    | TaskEnded
    | TaskProgressed
    | OrdersDue
    | ConsumerCancelled
    | DeliveryTimedOut
    | DirectReply
    | HelpAsked
    | HelpRecalled
    | HelperFailed
)


class Reply(msgspec.Struct, frozen=True, gc=False):
    """The reply to the command of this session with this ref."""

    session: int
    ref: int
    body: Answered


class SendToSession(msgspec.Struct, frozen=True, gc=False):
    """An unsolicited message to a session."""

    session: int
    message: Message


Effect = Reply | SendToSession
