"""The core itself: `handle(now, command) -> (records, effects)`.

Owns the contract between deciding and everything else; each kind of command is handled by the
module that owns its subject. The duties of the caller:

1. Recall what `missing(command)` names from storage, before `handle`.
2. Make the records durable before any of the effects is released. If that fails, memory is ahead of
   the disk: this core must not be used any more.
3. Call with `Tick` when `next_deadline_us()` has come.

An exception in here is a bug. Before anything has changed (`is_changing` is false) it is about that
command alone, which the caller refuses. Later the state may be half changed, and the caller stops
before it writes anything of the turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from jackalope.core import ticks
from jackalope.core.admin import api_keys, configuration, queue_removal, queues
from jackalope.core.amqp import consumers, dead_letters, exchanges, publish, replies
from jackalope.core.cache import single_flight
from jackalope.core.commands import (
    ActOnAnswers,
    ActOnGroup,
    ActOnTasks,
    AnswerSignal,
    AnyCommand,
    CancelClaim,
    ClaimTasks,
    CloseSession,
    Command,
    CreateApiKey,
    DeclareAll,
    DeclarePool,
    DeclareQueue,
    DeletePool,
    DeleteQueue,
    DrainWorker,
    EndHelp,
    FailAttempts,
    FinishAttempts,
    FollowPools,
    Heartbeat,
    JoinWorker,
    LeaveWorker,
    LimitTag,
    PauseQueue,
    Recover,
    ReleaseAttempts,
    ReportLaunches,
    ReportProgress,
    RequestHelpers,
    ResumeQueue,
    RevokeApiKey,
    StartAttempts,
    SubmitTasks,
    Tick,
    WatchTasks,
)
from jackalope.core.commands.amqp import (
    Bind,
    ClearRule,
    Consume,
    GrantCredit,
    HoldConsumer,
    LimitShare,
    OpenExchange,
    OpenQueue,
    PublishMessages,
    PurgeQueue,
    RemoveExchange,
    RemoveQueue,
    SetRule,
    StopConsuming,
    TakeTask,
    Unbind,
    WaitForReplies,
)
from jackalope.core.durations import MILLISECOND
from jackalope.core.effects import Answered, Effect, Reply
from jackalope.core.filter import Filter
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import Reason
from jackalope.core.limits import ITEMS_PER_COMMAND_MAX, NAMESPACES_MAX, QUEUES_PER_NAMESPACE_MAX
from jackalope.core.policy import DEFAULT_POLICY
from jackalope.core.pools import launches, lifecycle
from jackalope.core.records import AnyRecord, AttemptEnded, AttemptFinished, TaskMoved
from jackalope.core.refusals import Code, Refusal
from jackalope.core.state.apply import APPLIERS, apply
from jackalope.core.state.book import Book
from jackalope.core.state.groups import Pools
from jackalope.core.state.queue import Queue
from jackalope.core.state.ready_queue import Lane
from jackalope.core.state.roster import Fanout, Roster, Worker
from jackalope.core.state.timers import Timers
from jackalope.core.state.watches import Progress, Watches
from jackalope.core.task import Envelope, Task, TaskSpec
from jackalope.core.tasks import actions, attempts, submit, watches
from jackalope.core.tasks.assign import serve
from jackalope.core.values import unfit
from jackalope.core.workers import fanout, sessions

#: A deadline missed by more than this means that the broker itself did not run.
STALL_US = 250 * MILLISECOND


class Missing:
    """What must be recalled from storage before a command can be handled."""

    __slots__ = ("aliases", "filter", "ids", "namespace")

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.ids: list[TaskId] = []
        self.aliases: list[str] = []
        self.filter: Filter | None = None

    def __bool__(self) -> bool:
        return bool(self.ids or self.aliases or self.filter)


class Core:
    """The deterministic heart of the broker."""

    def __init__(self) -> None:
        self.book = Book()  # durable state; changed by records alone
        self.roster = Roster()  # the workers that are there now
        self.watches = Watches()  # who waits for the end of a task
        self.progress: dict[TaskId, Progress] = {}  # the last reports of workers on their attempts
        self.pools = Pools()  # the pools of queues at work, and their groups of workers
        self.now_us = 0  # the time of the command at hand. It never goes back.
        self.effects: list[Effect] = []  # what must be sent because of the current command
        # lanes that the command at hand may let give out tasks
        self.unserved: dict[Lane, None] = {}
        self.hungry: dict[Worker, None] = {}  # workers that it may let take some
        # queues that it took a consumer or the owner from, by namespace and name
        self.deserted: dict[tuple[str, str], None] = {}
        self.crowded: dict[Queue, None] = {}  # queues that it may have made fuller than they may be
        # tasks that a full queue did not take, and that are dead letters
        self.refused: list[tuple[Queue, TaskSpec, Envelope]] = []
        # requests to pools that it ended, and that the broker answers
        self.unanswered: list[Task] = []
        # the addresses at which sessions wait for direct replies, by session
        self.waiting: dict[int, set[str]] = {}
        # the queues that are one session's alone, by session
        self.owned: dict[int, dict[tuple[str, str], None]] = {}
        self.idle: Timers[tuple[str, str]] = Timers()  # when unused queues are deleted
        self._dead: deque[tuple[Task, Reason]] = deque()
        self.fanouts: dict[int, Fanout] = {}  # the tasks that ask for helpers, by fence
        self.seeks_helpers = False  # whether every worker must be looked at for them
        self.is_changing = False  # whether the command at hand may have changed something
        # the policy of queues that come into being by being named. Not durable: each queue records
        # the policy that it got.
        self.default_policy = DEFAULT_POLICY
        # how many namespaces come into being by being named. Not durable.
        self.namespaces_by_use_max = NAMESPACES_MAX
        # how many queues of all namespaces do. Not durable.
        self.queues_by_use_max = NAMESPACES_MAX * QUEUES_PER_NAMESPACE_MAX
        self.has_admin = False  # the configuration has a key that can make others. Not durable.
        self._records: list[AnyRecord] = []
        self._ended: deque[tuple[Task, tuple[TaskId, ...]]] = deque()
        book, roster = self.book, self.roster
        self._timers: tuple[Timers[Any], ...] = (
            *(book.due, book.expiry, book.timeouts, book.answers.expiry),
            *(roster.leases, roster.resumes, roster.claims, roster.orphans, self.idle),
            roster.deliveries,
            self.pools.timers,
        )

    def handle(self, now_us: int, command: AnyCommand) -> tuple[list[AnyRecord], list[Effect]]:
        """Decide about one command, and return its records and effects."""
        refusal = _too_many(command) or unfit(command)
        self.is_changing = True
        if now_us > self.now_us:
            if now_us - self.now_us > STALL_US:
                self._forgive_stall(now_us)
            self.now_us = now_us
        if refusal is not None:
            self.reply(command, refusal)
        else:
            _HANDLERS[type(command)](self, command)
        while (
            self._ended
            or self.hungry
            or self.unserved
            or self.pools.touched
            or self._has_queues_to_settle()
            or self.seeks_helpers
        ):
            while self._ended:
                task, dependents = self._ended.popleft()
                watches.tell_watchers(self, task)
                submit.settle_dependents(self, task, dependents)
            if self.pools.by_name:
                lifecycle.notice(self)
            serve(self)
            if self.pools.touched:
                lifecycle.settle(self)
            if self._has_queues_to_settle():
                self._settle_queues()
        records, effects = self._records, self.effects
        self._records, self.effects = [], []
        self.is_changing = False
        return records, effects

    def apply(self, record: AnyRecord) -> None:
        """Write down a fact that was decided before: on restart, or by another node."""
        apply(self.book, record)

    def next_deadline_us(self) -> int | None:
        """Return when `Tick` must come at the latest, or None if nothing is set."""
        deadline_us = None
        for timers in self._timers:
            at_us = timers.next_us()
            if at_us is not None and (deadline_us is None or at_us < deadline_us):
                deadline_us = at_us
        return deadline_us

    def missing(self, command: AnyCommand) -> Missing | None:
        """Return what of storage the command needs, or None, as nearly always."""
        if type(command) is SubmitTasks:
            return self._missing_of_submit(command) or None
        if type(command) is ActOnTasks:
            missing = Missing(command.namespace)
            missing.ids = [task_id for task_id in command.tasks if task_id not in self.book.tasks]
            missing.filter = actions.ended_ones(command)
            return missing or None
        if type(command) is WatchTasks:
            missing = Missing(command.namespace)
            missing.ids = [task_id for task_id in command.tasks if task_id not in self.book.tasks]
            return missing or None
        return None

    def _has_queues_to_settle(self) -> bool:
        return bool(self._dead or self.deserted or self.crowded or self.refused or self.unanswered)

    def _settle_queues(self) -> None:
        """See to queues that are too full, have lost a consumer, or have dead letters to send."""
        crowded, self.crowded = self.crowded, {}
        for queue in crowded:
            publish.trim(self, queue)
        refused, self.refused = self.refused, []
        for queue, spec, letter in refused:
            dead_letters.dead_letter_refused(self, queue, spec, letter)
            replies.answer_refused(self, queue, spec, letter)
        while self._dead:
            dead_letters.dead_letter(self, *self._dead.popleft())
        unanswered, self.unanswered = self.unanswered, []
        for task in unanswered:
            replies.answer(self, task)
        deserted, self.deserted = self.deserted, {}
        for name in deserted:
            queue_to_go = consumers.settle_queue(self, *name)
            if queue_to_go is not None:
                queue_removal.drop_queue(self, queue_to_go, "unused")

    # For the handlers.

    def make_hungry(self, worker: Worker) -> None:
        """Note that a worker, and those with whom it shares slots, may take tasks."""
        self.hungry[worker] = None
        if worker.share is not None:
            self.hungry.update(worker.share.members)

    def watch_idle(self, queue: Queue) -> None:
        """Set the time at which a queue is deleted if it is not used until then."""
        if queue.traits is None or not queue.traits.expires_us:
            return
        name = (queue.namespace.name, queue.name)
        if consumers.consumers_of(self, queue):
            self.idle.cancel(name)
        else:
            self.idle.set(name, self.now_us + queue.traits.expires_us)

    def carry_out(self, command: Command) -> None:
        """Decide about a command that is part of the one at hand."""
        _HANDLERS[type(command)](self, command)

    def record(self, record: AnyRecord) -> None:
        """Write down a fact, now and for ever."""
        APPLIERS[type(record)](self.book, record)
        self._records.append(record)

    def end_task(self, record: AttemptFinished | AttemptEnded | TaskMoved) -> None:
        """Record the end of a task. Those that wait for it are notified after the command."""
        task_id = record.task
        dependents = tuple(self.book.dependents.get(task_id, ()))
        task = self.book.tasks[task_id]
        if self.pools.by_name:
            lifecycle.miss(self, task)
        if task.letter is not None and replies.is_unanswered(self, task, record):
            self.unanswered.append(task)
        self.record(record)
        if task.options.identity:
            single_flight.keep_answer(self, task)
        if dependents or task_id in self.watches.by_task:
            self._ended.append((task, dependents))
        reason = None if isinstance(record, AttemptFinished) else record.reason
        if reason is not None and dead_letters.has_dead_letters(task):
            self._dead.append((task, reason))

    def reply(self, command: Command, body: Answered) -> None:
        """Answer a command, if an answer is wanted."""
        if command.ref:
            self.effects.append(Reply(command.session, command.ref, body))

    def worker_of(self, command: Command) -> Worker | None:
        """Return the worker of a session, which the command proves alive; or refuse."""
        worker = self.roster.sessions.get(command.session)
        if worker is None:
            message = "this session has no worker; join, and say what is still running"
            self.reply(command, Refusal(Code.UNKNOWN_SESSION, message))
            return None
        worker.heard_us = self.now_us
        return worker

    def set_claim_timer(self, worker: Worker) -> None:
        """Set the time of the next claim of a worker that ends."""
        if worker.claims:
            self.roster.claims.set(worker.session, min(claim.until_us for claim in worker.claims))
        else:
            self.roster.claims.cancel(worker.session)

    def _forgive_stall(self, now_us: int) -> None:
        deadline_us = self.next_deadline_us()
        if self.now_us and deadline_us is not None and now_us - deadline_us > STALL_US:
            sessions.forgive_silence(self, now_us - self.now_us)

    def _missing_of_submit(self, command: SubmitTasks) -> Missing:
        missing, tasks = Missing(command.namespace), self.book.tasks
        for spec in command.tasks:
            if spec.id not in tasks and len(spec.id) == 16 and self.book.may_have_ended(spec.id):
                missing.ids.append(spec.id)
            if spec.options is not None:
                links = (spec.options.parent, *spec.options.depends_on)
                missing.ids += [link for link in links if link and link not in tasks]
                if spec.options.alias:
                    missing.aliases.append(spec.options.alias)
        return missing


def _items(command: Command) -> int:
    """Return how many tasks or attempts a command is about."""
    if isinstance(command, SubmitTasks | ActOnTasks | WatchTasks):
        return len(command.tasks)
    if isinstance(command, StartAttempts | FinishAttempts | FailAttempts | ReleaseAttempts):
        return len(command.attempts)
    if isinstance(command, ActOnAnswers):
        return len(command.identities)
    if isinstance(command, PublishMessages):
        return len(command.messages)
    return len(command.holding) if isinstance(command, JoinWorker) else 1


def _too_many(command: Command) -> Refusal | None:
    count = _items(command)
    if count <= ITEMS_PER_COMMAND_MAX:
        return None
    message = f"{count} items in one command; send at most {ITEMS_PER_COMMAND_MAX}"
    return Refusal(Code.TOO_MANY, message)


_HANDLERS: dict[type, Callable[[Core, Any], None]] = {
    SubmitTasks: submit.submit_tasks,
    StartAttempts: attempts.start_attempts,
    FinishAttempts: attempts.finish_attempts,
    FailAttempts: attempts.fail_attempts,
    ReleaseAttempts: attempts.release_attempts,
    ReportProgress: attempts.report_progress,
    AnswerSignal: attempts.answer_signal,
    RequestHelpers: fanout.request_helpers,
    EndHelp: fanout.end_help,
    Heartbeat: sessions.heartbeat,
    ClaimTasks: sessions.claim_tasks,
    CancelClaim: sessions.cancel_claim,
    JoinWorker: sessions.join_worker,
    LeaveWorker: sessions.leave_worker,
    CloseSession: sessions.close_session,
    DrainWorker: sessions.drain_worker,
    Recover: sessions.recover,
    ActOnTasks: actions.act_on_tasks,
    ActOnAnswers: single_flight.act_on_answers,
    WatchTasks: watches.watch_tasks,
    DeclareQueue: queues.declare_queue,
    DeleteQueue: queue_removal.delete_queue,
    PauseQueue: queues.pause_queue,
    ResumeQueue: queues.resume_queue,
    LimitTag: queues.limit_tag,
    DeclareAll: configuration.declare_all,
    CreateApiKey: api_keys.create_api_key,
    RevokeApiKey: api_keys.revoke_api_key,
    OpenQueue: consumers.open_queue,
    RemoveQueue: queue_removal.remove_queue,
    PurgeQueue: queue_removal.purge_queue,
    OpenExchange: exchanges.open_exchange,
    RemoveExchange: exchanges.remove_exchange,
    Bind: exchanges.bind,
    Unbind: exchanges.unbind,
    SetRule: exchanges.set_rule,
    ClearRule: exchanges.clear_rule,
    Consume: consumers.consume,
    StopConsuming: consumers.stop_consuming,
    HoldConsumer: consumers.hold_consumer,
    GrantCredit: consumers.grant_credit,
    WaitForReplies: replies.wait_for_replies,
    LimitShare: consumers.limit_share,
    TakeTask: consumers.take_task,
    PublishMessages: publish.publish_messages,
    Tick: ticks.tick,
    DeclarePool: lifecycle.declare_pool,
    DeletePool: lifecycle.delete_pool,
    ActOnGroup: lifecycle.act_on_group,
    FollowPools: launches.follow_pools,
    ReportLaunches: launches.report_launches,
}
