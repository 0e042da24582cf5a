"""The core again, in the plainest way: dicts, lists and linear scans, no index and no record.

`Model.handle` does to its few dicts what a command means, writes down as facts what should have
happened, and returns the answer it expects. It makes no assignment: which of several equal workers
gets a task is the core's choice, so the core is asked what it did and `Model.assigned` checks that
the task was the best for that worker and the worker a right one for the task.

One namespace only. Malformed commands are not for this model; they are tested one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from jackalope.core import commands as c
from jackalope.core.api_key import Permission
from jackalope.core.effects import (
    DrainAsked,
    LeaseLost,
    SessionReplaced,
    SignalAsked,
    TaskProgressed,
)
from jackalope.core.filter import Filter
from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.lifecycle import LEASED, PENDING, Event, Reason, State, is_legal
from jackalope.core.policy import DEFAULT_POLICY, Done, OnRestart, Policy
from jackalope.core.records import AnyRecord, TaskMoved
from jackalope.core.refusals import Code
from jackalope.core.task import OnDependency, Options, Signal, Stage, TaskRow, TaskSpec
from tests.properties.tasks import ModelQueue, ModelTask, ModelWorker, Tasks

#: What should be answered: the kind of answer, and what matters in it.
Answer = tuple[Any, ...] | None

STAGES = [Stage.REQUESTED, Stage.DELIVERED, Stage.ACKNOWLEDGED, Stage.REFUSED]


class Model(Tasks):
    """What each command should do."""

    # What the core decides.

    def assigned(self, task_id: TaskId, fence: int, worker: str) -> int:
        """Check an assignment and make it; return the claim that it should answer."""
        task, taker = self.tasks[task_id], self.workers[worker]
        if self.claimant is not None and self.claimant is not taker:
            self.end_claims()
        assert self.may_take(taker, task), "this worker may not have this task now"
        assert task in self.best_for(taker), "there is a better task for this worker"
        able = [other for other in self.workers.values() if self.may_take(other, task)]
        loads = [len(self.held_by(other.name)) for other in able]
        assert len(self.held_by(worker)) == min(loads), "another worker has less to do"
        assert fence == self.last_fence + 1, "a fence is one more than the last"
        claim = 0
        if len(self.held_by(worker)) >= taker.slots:
            oldest = taker.claims[0]
            claim, oldest[1] = oldest[0], oldest[1] - 1
            if not oldest[1]:
                taker.claims.pop(0)
        self.last_fence = task.fence = fence
        task.state, task.worker = State.ASSIGNED, worker
        task.attempts += 1
        return claim

    def revived(self, row: TaskRow) -> None:
        """Check the guardian of a task that lives again.

        It is the nearest ancestor that lives, but the line to it may have left memory.
        """
        task = self.tasks[row.id]
        assert row.guardian in (NO_TASK, task.guardian)
        task.guardian = row.guardian

    def is_late(self, record: AnyRecord) -> bool:
        """Tell whether a ready task expires instead of being given out."""
        if not isinstance(record, TaskMoved) or record.event is not Event.EXPIRE:
            return False
        task = self.tasks[record.task]
        return task.state is State.READY and 0 < task.expires_us <= self.now_us

    def expire(self, task_id: TaskId) -> None:
        self.move(self.tasks[task_id], Event.EXPIRE, State.DEAD, Reason.EXPIRED)

    def became_ready(self, task_id: TaskId) -> None:
        """Give a task that is ready for the first time its place in line."""
        task = self.tasks.get(task_id)
        if task is not None and task.state is State.READY and not task.rank:
            self.last_rank = task.rank = max(self.last_rank + 1, self.now_us)

    def idle(self) -> list[tuple[str, TaskId]]:
        """List workers with room together with a task that each of them could have."""
        return [
            (worker.name, task.id)
            for worker in self.workers.values()
            for task in self.tasks.values()
            if self.may_take(worker, task)
        ]

    # Commands.

    def handle(
        self,
        now_us: int,
        command: c.AnyCommand,
        follow: Callable[[], None],
        in_order: Callable[[TaskId], int],
    ) -> Answer:
        """Do what a command means, but for the assignments.

        Where these matter before the command is done, `follow` catches up with those of the core.
        Tasks that match a filter are taken in the order in which the core took them.
        """
        self.now_us = max(self.now_us, now_us)
        self.follow, self.in_order = follow, in_order
        self.facts, self.messages, self.claimant = [], [], None
        answer: Answer = HANDLERS[type(command)](self, command)
        self.settle()
        return answer

    def settle(self) -> None:
        """Tell who waits for those that ended, and let their dependents go or give them up."""
        while self.ended:
            task, dependents = self.ended.pop(0)
            for session in self.watchers.pop(task.id, ()):
                self.messages.append((session, "ended", task.id, task.state, task.reason))
            for each in dependents:
                if each.has_ended:
                    continue
                is_bad = task.state is not State.SUCCEEDED
                if is_bad and each.options.on_dependency is OnDependency.DEAD:
                    self.move(each, Event.ABANDON, State.DEAD, Reason.DEPENDENCY)
                elif each.state is State.WAITING and not each.waiting_for:
                    self.move(each, Event.UNBLOCK, self.open_state(each))

    def submit(self, command: c.SubmitTasks) -> Answer:
        refused = []
        for index, spec in enumerate(command.tasks):
            code = self.submit_one(spec, command.fence)
            if code is not None:
                refused.append((index, code))
        return ("accepted", len(command.tasks) - len(refused), tuple(refused))

    def submit_one(self, spec: TaskSpec, fence: int) -> Code | None:
        existing, options = self.tasks.get(spec.id), spec.options or Options()
        if existing is not None:
            is_same = msgspec.structs.replace(spec, options=options) == msgspec.structs.replace(
                existing.spec, options=existing.options
            )
            return None if is_same else Code.ID_CONFLICT
        code = self.wrong_link(options, fence)
        if code is not None:
            return code
        queue = self.open_queue(spec.queue)
        limit = queue.policy.depth_limit
        if limit and self.depth(spec.queue) >= limit:
            self.follow()
        if limit and self.depth(spec.queue) >= limit:
            return Code.QUEUE_FULL
        self.accept(spec)
        return None

    def depth(self, queue: str) -> int:
        waiting = [task for task in self.tasks.values() if task.state in PENDING]
        return sum(task.spec.queue == queue for task in waiting)

    def wrong_link(self, options: Options, fence: int) -> Code | None:
        if options.alias and any(t.options.alias == options.alias for t in self.tasks.values()):
            return Code.DUPLICATE_ALIAS
        if options.parent:
            parent = self.tasks.get(options.parent)
            if parent is None:
                return Code.UNKNOWN_TASK
            if parent.has_ended:
                return Code.PARENT_ENDED
            if fence and parent.fence != fence:
                return Code.STALE_FENCE
        is_known = all(dependency in self.tasks for dependency in options.depends_on)
        return None if is_known else Code.UNKNOWN_DEPENDENCY

    # Reports.

    def speaking(self, command: c.Command) -> ModelWorker | None:
        """Return the worker of a session, which has just shown that it is alive."""
        worker = self.with_session(command.session)
        if worker is not None:
            worker.heard_us = self.now_us
        return worker

    def lease(self, worker: ModelWorker, task_id: TaskId, fence: int) -> ModelTask | None:
        task = self.tasks.get(task_id)
        is_held = task is not None and task.worker == worker.name and task.fence == fence
        return task if is_held else None

    def report(
        self, command: c.StartAttempts | c.FinishAttempts | c.FailAttempts | c.ReleaseAttempts
    ) -> Answer:
        worker = self.speaking(command)
        if worker is None:
            return ("refused", Code.UNKNOWN_SESSION)
        refused = []
        attempts: list[Any] = list(command.attempts)
        for index, attempt in enumerate(attempts):
            task = self.lease(worker, attempt.task, attempt.fence)
            if task is None:
                refused.append((index, Code.STALE_FENCE))
            elif isinstance(command, c.StartAttempts):
                if task.state is State.RUNNING:
                    refused.append((index, Code.WRONG_STATE))
                else:
                    self.start(task)
            elif isinstance(attempt, c.Finish):
                self.finish(task, attempt.result)
            elif isinstance(attempt, c.Fail):
                self.fail(task, attempt.verdict, attempt.retry_after_us)
            else:
                self.interrupt(task, Event.RELEASE)
        return ("accepted", len(command.attempts) - len(refused), tuple(refused))

    def start(self, task: ModelTask) -> None:
        self.facts.append(("start", task.id))
        task.state, task.started_us, task.expires_us = State.RUNNING, self.now_us, 0
        timeout_us = task.options.timeout_us or self.policy(task).timeout_us
        task.times_out_us = task.timeout_at_us = self.now_us + timeout_us if timeout_us else 0
        if self.policy(task).done is Done.RECEIVED:
            self.finish(task, b"")

    def progress(self, command: c.ReportProgress) -> Answer:
        worker = self.speaking(command)
        if worker is None:
            return ("refused", Code.UNKNOWN_SESSION)
        if self.lease(worker, command.task, command.fence) is None:
            return ("refused", Code.STALE_FENCE)
        self.said[command.task] = (command.fence, self.now_us, command.percent)
        for session, is_wanted in self.watchers.get(command.task, {}).items():
            if is_wanted:
                self.tell_progress(session, command.task)
        return ("accepted", 1, ())

    def tell_progress(self, session: int, task_id: TaskId) -> None:
        """Tell how far the present attempt has come, if it has said so."""
        fence, at_us, percent = self.said.get(task_id, (0, 0, None))
        if fence and fence == self.tasks[task_id].fence:
            self.messages.append((session, TaskProgressed(task_id, at_us, percent, "")))

    def answer(self, command: c.AnswerSignal) -> Answer:
        worker = self.speaking(command)
        if worker is None:
            return ("refused", Code.UNKNOWN_SESSION)
        task = self.lease(worker, command.task, command.fence)
        if task is None:
            return ("refused", Code.STALE_FENCE)
        if task.request is None:
            return ("refused", Code.WRONG_STATE)
        signal, reached = task.request
        if command.answer is not c.Answer.STOPPED:
            stage = Stage(command.answer.value)
            if STAGES.index(stage) > STAGES.index(reached):
                self.facts.append(("stage", task.id, stage))
                task.request = (signal, stage)
        elif signal is Signal.TIMEOUT:
            self.fail(task, c.Verdict.RETRY, 0)
        else:
            to = State.KILLED if signal is Signal.KILL else State.PAUSED
            self.end_attempt(task, Event.STOP, to)
        return ("accepted", 1, ())

    # Sessions.

    def join(self, command: c.JoinWorker) -> Answer:
        bound = self.with_session(command.session)
        if bound is not None and bound.name != command.worker:
            return ("refused", Code.INVALID)
        for name in command.queues:
            self.open_queue(name)
        worker = self.workers.setdefault(command.worker, ModelWorker(command.worker, 0))
        is_repeated = worker.session == command.session
        if worker.session and not is_repeated:
            self.messages.append((worker.session, SessionReplaced()))
            worker.claims = []
        worker.session, worker.queues, worker.keys = command.session, command.queues, command.keys
        worker.slots, worker.lease_us = command.slots, command.lease_us
        worker.names = command.names
        worker.grace_us, worker.heard_us = command.grace_us, self.now_us
        worker.resume_until_us, worker.is_ready = 0, command.ready
        holding = [] if is_repeated else command.holding
        resumed = [held for held in holding if self.lease(worker, held.task, held.fence)]
        dropped = [held for held in holding if held not in resumed]
        kept = [held.task for held in resumed]
        for task in self.held_by(worker.name):
            if task.id in kept:
                self.orphans.pop(task.id, None)
            elif not is_repeated:
                self.lose(task)
        if worker.is_draining:
            self.messages.append((worker.session, DrainAsked()))
        for task in self.held_by(worker.name):
            if task.request is not None:
                asked = SignalAsked(task.id, task.fence, task.request[0])
                self.messages.append((worker.session, asked))
        return ("joined", tuple(resumed), tuple(dropped))

    def heartbeat(self, command: c.Heartbeat) -> Answer:
        worker = self.speaking(command)
        if worker is None:
            self.messages.append((command.session, LeaseLost()))
            return ("refused", Code.UNKNOWN_SESSION)
        return ("accepted", 1, ())

    def claim(self, command: c.ClaimTasks) -> Answer:
        worker = self.speaking(command)
        if worker is None:
            return ("refused", Code.UNKNOWN_SESSION)
        worker.claims.append([command.ref, command.count, self.now_us + command.wait_us])
        self.claimant = worker
        return None

    def cancel_claim(self, command: c.CancelClaim) -> Answer:
        worker = self.speaking(command)
        if worker is None:
            return ("refused", Code.UNKNOWN_SESSION)
        worker.claims = [claim for claim in worker.claims if claim[0] != command.claim]
        return ("accepted", 1, ())

    def end_claims(self) -> None:
        """End the claims of the claimant that were only for this moment."""
        if self.claimant is not None:
            self.expire_claims(self.claimant)
            self.claimant = None

    def expire_claims(self, worker: ModelWorker) -> None:
        for claim in [claim for claim in worker.claims if claim[2] <= self.now_us]:
            worker.claims.remove(claim)
            self.messages.append((worker.session, "nothing", claim[0]))

    def leave(self, command: c.LeaveWorker) -> Answer:
        worker = self.speaking(command)
        if worker is None:
            return ("refused", Code.UNKNOWN_SESSION)
        self.depart(worker, lambda task: self.interrupt(task, Event.RELEASE))
        return ("accepted", 1, ())

    def close(self, command: c.CloseSession) -> Answer:
        for sessions in self.watchers.values():
            sessions.pop(command.session, None)
        worker = self.with_session(command.session)
        if worker is not None:
            worker.session, worker.claims = 0, []
            worker.resume_until_us = self.now_us + worker.grace_us
            if not worker.grace_us:
                self.depart(worker, self.lose)
        return None

    def depart(self, worker: ModelWorker, settle: Callable[[ModelTask], None]) -> None:
        held = self.held_by(worker.name)
        del self.workers[worker.name]
        for task in held:
            settle(task)

    def drain(self, command: c.DrainWorker) -> Answer:
        worker = self.workers.get(command.worker)
        if worker is None:
            return ("refused", Code.UNKNOWN_WORKER)
        worker.is_draining = True
        if worker.session:
            self.messages.append((worker.session, DrainAsked()))
        return ("accepted", 1, ())

    def restart(self) -> None:
        """Forget what does not outlive the broker. It looks at every timeout again."""
        self.workers, self.watchers, self.orphans, self.said = {}, {}, {}, {}
        for task in self.tasks.values():
            task.timeout_at_us = task.times_out_us

    def recover(self, _command: c.Recover) -> Answer:
        for task in [task for task in self.tasks.values() if task.fence]:
            if self.policy(task).on_restart is OnRestart.REQUEUE:
                self.interrupt(task, Event.RELEASE)
            else:
                self.orphans[task.id] = self.now_us + self.policy(task).restart_grace_us
        return ("accepted", 1, ())

    # Actions and declarations.

    def act(self, command: c.ActOnTasks) -> Answer:
        event = Event(command.action.value)
        chosen: Iterable[TaskId] = dict.fromkeys(command.tasks)
        if command.filter is not None and not command.tasks:
            matching = [
                task
                for task in self.tasks.values()
                if matches(command.filter, task) and is_seen(task, command.only)
            ]
            able = [task for task in matching if is_legal(task.state, event)]
            chosen = sorted((task.id for task in able if changes(task, event)), key=self.in_order)
        changed = requested = 0
        refused = []
        for task_id in chosen:
            task = self.tasks.get(task_id)
            task = task if task and is_seen(task, command.only) else None
            is_meant = task is None or command.filter is None or matches(command.filter, task)
            if task is None or not is_meant or not is_legal(task.state, event):
                code = Code.UNKNOWN_TASK if task is None else Code.WRONG_STATE
                refused.append((task_id, code))
                continue
            is_leased = task.state in LEASED
            requested += is_leased
            changed += not is_leased
            if not command.dry_run:
                ACTIONS[event](self, task)
        return ("acted", changed, requested, set(refused))

    def hold(self, task: ModelTask) -> None:
        if task.state is not State.HELD:
            self.move(task, Event.HOLD, State.HELD)

    def play(self, task: ModelTask) -> None:
        task.avoid = ""
        self.move(task, Event.PLAY, self.open_state(task))

    def pause(self, task: ModelTask) -> None:
        if task.state in LEASED:
            self.request(task, Signal.PAUSE)
        elif task.state is not State.PAUSED:
            self.move(task, Event.PAUSE, State.PAUSED)

    def kill(self, task: ModelTask) -> None:
        """Kill a task and all its unfinished descendants."""
        family = [task]
        for member in family:
            family += [
                t for t in self.tasks.values() if t.guardian == member.id and not t.has_ended
            ]
        for member in family:
            if member.state in LEASED:
                self.request(member, Signal.KILL)
            elif not member.has_ended:
                self.move(member, Event.KILL, State.KILLED)

    def retry(self, task: ModelTask) -> None:
        if task.state is State.SCHEDULED:
            task.due_us = 0
            self.move(task, Event.RETRY, State.READY)
            return
        self.facts.append(("revive", task.id))
        dependencies = [self.tasks.get(dependency) for dependency in task.options.depends_on]
        task.waiting_for = {each.id for each in dependencies if each and not each.has_ended}
        task.state = State.WAITING if task.waiting_for else State.READY
        task.reason = None
        task.failures = task.crashes = task.interruptions = 0
        task.priority, task.penalty = task.priority + task.penalty, 0
        task.avoid, task.due_us, task.expires_us = "", 0, 0
        task.guardian = self.living(task.options.parent)

    def purge(self, task: ModelTask) -> None:
        self.facts.append(("purge", task.id))
        del self.tasks[task.id]

    def declare(self, command: c.DeclareQueue) -> Answer:
        queue = self.queues.get(command.queue)
        before = DEFAULT_POLICY if queue is None else queue.policy
        policy = msgspec.convert({**msgspec.to_builtins(before), **command.changes}, Policy)
        target, path = policy.result_becomes, [command.queue]
        while target:
            if target in path:
                return ("refused", Code.POLICY_CYCLE)
            path.append(target)
            target = self.queues[target].policy.result_becomes if target in self.queues else ""
        if policy.result_becomes:
            self.open_queue(policy.result_becomes)
        if queue is None or policy != before:
            self.facts.append(("queue", command.queue, policy))
            self.queues.setdefault(command.queue, ModelQueue(policy)).policy = policy
        return ("declared",)

    def delete(self, command: c.DeleteQueue) -> Answer:
        if command.queue not in self.queues:
            return ("refused", Code.UNKNOWN_QUEUE)
        mine = [task for task in self.tasks.values() if task.spec.queue == command.queue]
        is_fed = any(q.policy.result_becomes == command.queue for q in self.queues.values())
        if is_fed or not all(task.has_ended for task in mine):
            return ("refused", Code.QUEUE_NOT_EMPTY)
        self.facts.append(("unqueue", command.queue))
        del self.queues[command.queue]
        for task in mine:
            del self.tasks[task.id]
        return ("accepted", 1, ())

    def pause_queue(self, command: c.PauseQueue) -> Answer:
        return self.set_paused(command.queue, is_paused=True)

    def resume_queue(self, command: c.ResumeQueue) -> Answer:
        return self.set_paused(command.queue, is_paused=False)

    def set_paused(self, name: str, *, is_paused: bool) -> Answer:
        queue = self.queues.get(name)
        if queue is None:
            return ("refused", Code.UNKNOWN_QUEUE)
        if queue.is_paused != is_paused:
            self.facts.append(("qpause" if is_paused else "qresume", name))
        queue.is_paused = is_paused
        return ("accepted", 1, ())

    def limit(self, command: c.LimitTag) -> Answer:
        if self.limits.get(command.tag, -1) != command.limit:
            self.facts.append(("limit", command.tag, command.limit))
        self.limits[command.tag] = command.limit
        if command.limit < 0:
            del self.limits[command.tag]
        return ("accepted", 1, ())

    def create_key(self, command: c.CreateApiKey) -> Answer:
        known, key = self.api_keys.get(command.key.id), command.key
        if known is None and not self.has_admin() and key.permissions != (Permission.ADMIN,):
            return ("refused", Code.INVALID)
        if known is None:
            made = msgspec.structs.replace(key, created_us=self.now_us, by=command.by)
            self.api_keys[key.id] = made
            self.facts.append(("key", made))
        elif known.permissions != key.permissions:
            return ("refused", Code.ID_CONFLICT)
        return ("accepted", 1, ())

    def revoke_key(self, command: c.RevokeApiKey) -> Answer:
        if (key := self.api_keys.pop(command.key, None)) is None:
            return ("refused", Code.UNKNOWN_API_KEY)
        if self.api_keys and not self.has_admin():
            self.api_keys[command.key] = key
            return ("refused", Code.WRONG_STATE)
        self.facts.append(("unkey", command.key))
        return ("accepted", 1, ())

    def has_admin(self) -> bool:
        return any(Permission.ADMIN in key.permissions for key in self.api_keys.values())

    def watch(self, command: c.WatchTasks) -> Answer:
        refused = []
        for index, task_id in enumerate(command.tasks):
            task = self.tasks.get(task_id)
            if task is None or not is_seen(task, command.only):
                refused.append((index, Code.UNKNOWN_TASK))
            elif task.has_ended:
                told = (command.session, "ended", task.id, task.state, task.reason)
                self.messages.append(told)
            else:
                self.watchers.setdefault(task_id, {})[command.session] = command.progress
                if command.progress:
                    self.tell_progress(command.session, task_id)
        return ("accepted", len(command.tasks) - len(refused), tuple(refused))

    # Time.

    def deadlines(self) -> list[int]:
        """Return when something must happen by itself."""
        return [
            *(t.expires_us for t in self.tasks.values() if t.expires_us and t.state in PENDING),
            *(t.due_us for t in self.tasks.values() if t.state is State.SCHEDULED),
            *(t.timeout_at_us for t in self.tasks.values() if t.timeout_at_us),
            *(w.heard_us + w.lease_us for w in self.workers.values() if w.session),
            *(w.resume_until_us for w in self.workers.values() if not w.session),
            *(claim[2] for w in self.workers.values() for claim in w.claims),
            *self.orphans.values(),
        ]

    def tick(self, _command: c.Tick) -> Answer:
        now_us = self.now_us
        for task in list(self.tasks.values()):
            if task.state in PENDING and 0 < task.expires_us <= now_us:
                self.move(task, Event.EXPIRE, State.DEAD, Reason.EXPIRED)
            if task.state is State.SCHEDULED and task.due_us <= now_us:
                self.move(task, Event.DUE, State.READY)
            if 0 < task.timeout_at_us <= now_us:
                task.timeout_at_us = 0
                self.request(task, Signal.TIMEOUT)
        for worker in list(self.workers.values()):
            if worker.session:
                until_us = worker.heard_us + worker.lease_us
            else:
                until_us = worker.resume_until_us
            if until_us <= now_us:
                told = [(worker.session, LeaseLost())] if worker.session else []
                self.messages += told
                self.depart(worker, self.lose)
        for task_id in [key for key, at_us in self.orphans.items() if at_us <= now_us]:
            self.lose(self.tasks[task_id])
        for worker in self.workers.values():
            self.expire_claims(worker)
        return ("accepted", 1, ())


def matches(wanted: Filter, task: ModelTask) -> bool:
    """Tell whether a task is meant; only by what the machine asks for."""
    return (
        (not wanted.states or task.state in wanted.states)
        and wanted.queue in ("", task.spec.queue)
        and wanted.key in ("", task.spec.key)
    )


def is_seen(task: ModelTask, only: tuple[str, ...]) -> bool:
    """Tell whether a task exists for whoever is limited to some queues."""
    return not only or task.spec.queue in only


def changes(task: ModelTask, event: Event) -> bool:
    """Tell whether an action would make a difference to a task."""
    if task.state in LEASED:
        return task.request is None or task.request[0].value != event.value
    same = {Event.HOLD: State.HELD, Event.PAUSE: State.PAUSED, Event.KILL: State.KILLED}
    return task.state is not same.get(event)


ACTIONS: dict[Event, Callable[[Model, ModelTask], None]] = {
    Event.HOLD: Model.hold,
    Event.PLAY: Model.play,
    Event.PAUSE: Model.pause,
    Event.KILL: Model.kill,
    Event.RETRY: Model.retry,
    Event.PURGE: Model.purge,
}

HANDLERS: dict[type, Callable[[Model, Any], Answer]] = {
    c.SubmitTasks: Model.submit,
    c.StartAttempts: Model.report,
    c.FinishAttempts: Model.report,
    c.FailAttempts: Model.report,
    c.ReleaseAttempts: Model.report,
    c.ReportProgress: Model.progress,
    c.AnswerSignal: Model.answer,
    c.JoinWorker: Model.join,
    c.Heartbeat: Model.heartbeat,
    c.ClaimTasks: Model.claim,
    c.CancelClaim: Model.cancel_claim,
    c.LeaveWorker: Model.leave,
    c.CloseSession: Model.close,
    c.DrainWorker: Model.drain,
    c.Recover: Model.recover,
    c.ActOnTasks: Model.act,
    c.DeclareQueue: Model.declare,
    c.DeleteQueue: Model.delete,
    c.PauseQueue: Model.pause_queue,
    c.ResumeQueue: Model.resume_queue,
    c.LimitTag: Model.limit,
    c.CreateApiKey: Model.create_key,
    c.RevokeApiKey: Model.revoke_key,
    c.WatchTasks: Model.watch,
    c.Tick: Model.tick,
}
