"""Comparing what the core did with what the model expects."""

from collections import Counter
from typing import Any

from jackalope.core import Core
from jackalope.core.effects import (
    Accepted,
    Acted,
    Answered,
    Assignment,
    Declared,
    Dropped,
    Effect,
    HelpersPromised,
    Joined,
    NamespaceGone,
    NamespaceSet,
    NothingToClaim,
    Orders,
    PoolSet,
    Published,
    QueueOpened,
    Reply,
    ScheduleSet,
    SendToSession,
    SlotsRun,
    StepDone,
    Suspended,
    TaskEnded,
)
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import ENDED, State
from jackalope.core.records import (
    AnyRecord,
    ApiKeyCreated,
    ApiKeyRevoked,
    AttemptAssigned,
    AttemptEnded,
    AttemptFinished,
    AttemptStarted,
    QueueDeclared,
    QueueDeleted,
    QueuePaused,
    QueueResumed,
    SignalAdvanced,
    SignalRequested,
    TagLimited,
    TaskMoved,
    TaskPurged,
    TaskRevived,
    TaskSubmitted,
)
from jackalope.core.refusals import Refusal
from jackalope.core.task import Task
from tests.properties.model import Answer, Model
from tests.properties.tasks import Fact, ModelTask

#: The kind of each record, and what matters in it.
FACTS: dict[type, tuple[str, tuple[str, ...]]] = {
    TaskMoved: ("move", ("task", "event", "to", "reason")),
    TaskPurged: ("purge", ("task",)),
    AttemptAssigned: ("assign", ("task", "fence", "worker")),
    AttemptStarted: ("start", ("task",)),
    AttemptFinished: ("finish", ("task",)),
    AttemptEnded: ("end", ("task", "event", "to", "reason", "due_us")),
    SignalRequested: ("signal", ("task", "signal")),
    SignalAdvanced: ("stage", ("task", "stage")),
    QueueDeclared: ("queue", ("queue", "policy")),
    QueueDeleted: ("unqueue", ("queue",)),
    QueuePaused: ("qpause", ("queue",)),
    QueueResumed: ("qresume", ("queue",)),
    TagLimited: ("limit", ("tag", "limit")),
    ApiKeyCreated: ("key", ("key",)),
    ApiKeyRevoked: ("unkey", ("key",)),
}


def fact_of(record: AnyRecord) -> Fact:
    """Return what matters in a record."""
    if isinstance(record, TaskSubmitted):
        waiting_for = set(record.waiting_for)
        expires_us = record.expires_us
        return ("submit", record.spec.id, record.state, record.batch, expires_us, waiting_for)
    if isinstance(record, TaskRevived):
        return ("revive", record.row.id)
    kind, fields = FACTS[type(record)]
    return (kind, *(getattr(record, name) for name in fields))


class Judge:
    """Follows the records of one command, and makes the core's assignments in the model.

    Attributes:
        claims: each task that was given out, with the claim that this answers.
    """

    def __init__(self, model: Model, records: list[AnyRecord]) -> None:
        self.model = model
        self.records = records
        self.followed = 0
        self.claims: list[tuple[TaskId, int]] = []

    def follow(self) -> None:
        """Follow as far as what happened is what should have happened until now.

        Facts come first, in any order, and then assignments. A task that is late is not given out,
        but expires.
        """
        model = self.model
        while self.followed < len(self.records):
            record = self.records[self.followed]
            fact = fact_of(record)
            if not model.facts and isinstance(record, AttemptAssigned):
                claim = model.assigned(record.task, record.fence, record.worker)
                self.claims.append((record.task, claim))
                self.followed += 1
                continue
            if not model.facts and fact[0] == "move" and model.is_late(record):
                model.expire(fact[1])
            if fact not in model.facts:
                return
            model.facts.remove(fact)
            model.became_ready(fact[1])
            if isinstance(record, TaskRevived):
                model.revived(record.row)
            self.followed += 1

    def in_order(self, task: TaskId) -> int:
        """Return at which place something first happened to a task."""
        facts = [fact_of(record)[1] for record in self.records]
        return facts.index(task) if task in facts else len(facts)

    def finish(self) -> None:
        """Follow to the end, and let nothing be left over."""
        self.follow()
        while self.model.ended:
            self.model.settle()
            self.follow()
        self.model.end_claims()
        left = self.records[self.followed :]
        assert not left, f"this should not have happened: {left}"
        assert not self.model.facts, f"this should have happened: {self.model.facts}"


def answer_of(body: Answered | None) -> Answer:
    """Return what matters in an answer."""
    match body:
        case None | NothingToClaim():
            return None
        case Refusal(code=code):
            return ("refused", code)
        case Accepted(count=count, refused=refused):
            return ("accepted", count, tuple((i, refusal.code) for i, refusal in refused))
        case Acted(changed=changed, requested=requested, refused=refused):
            codes = {(task, refusal.code) for task, refusal in refused}
            return ("acted", changed, requested, codes)
        case Joined(resumed=resumed, drop=drop):
            return ("joined", resumed, drop)
        case (
            Declared()
            | PoolSet()
            | ScheduleSet()
            | SlotsRun()
            | Orders()
            | QueueOpened()
            | Dropped()
            | Published()
            | HelpersPromised()
            | StepDone()
            | Suspended()
            | NamespaceSet()
            | NamespaceGone()
        ):
            return ("declared",)


def judge_effects(
    model: Model,
    effects: list[Effect],
    expected: Answer,
    asked_by: tuple[int, int],
    claims: list[tuple[TaskId, int]],
) -> None:
    """Check that everybody hears what they should, once."""
    answers = []
    told: Counter[tuple[Any, ...]] = Counter()
    assignments = []
    for effect in effects:
        if isinstance(effect, Reply):
            if isinstance(effect.body, NothingToClaim):
                told[effect.session, "nothing", effect.ref] += 1
            else:
                assert (effect.session, effect.ref) == asked_by
                answers.append(answer_of(effect.body))
        elif isinstance(effect.message, Assignment):
            assignments.append(effect)
        elif isinstance(effect.message, TaskEnded):
            end = effect.message
            told[effect.session, "ended", end.task, end.state, end.reason] += 1
        else:
            told[effect.session, effect.message] += 1
    assert answers == ([] if expected is None else [expected])
    assert told == Counter(model.messages)
    assert len(assignments) == len(claims)
    for effect, (task_id, claim) in zip(assignments, claims, strict=True):
        judge_assignment(model, effect, task_id, claim)


def judge_assignment(model: Model, effect: SendToSession, task_id: TaskId, claim: int) -> None:
    task, message = model.tasks[task_id], effect.message
    assert isinstance(message, Assignment)
    assert effect.session == model.workers[task.worker].session
    assert (message.task, message.fence) == (task_id, task.fence)
    assert (message.attempt, message.claim) == (task.attempts, claim)
    assert (message.payload, message.options) == (task.spec.payload, task.options)


def judge_tasks(model: Model, core: Core, stored: dict[TaskId, State]) -> None:
    """Check that memory, with what storage has, is what the model knows."""
    for task_id, task in core.book.tasks.items():
        assert task_id in model.tasks, "a task that should be gone is in memory"
        is_, should_be = seen(task), known(model.tasks[task_id])
        wrong = {name: (is_[name], should_be[name]) for name in is_ if is_[name] != should_be[name]}
        assert not wrong, f"is, and should be: {wrong}"
    for task_id, expected in model.tasks.items():
        if task_id not in core.book.tasks:
            assert expected.has_ended, "an unfinished task is not in memory"
            assert stored.get(task_id) is expected.state, "an ended task was lost"
    world = core.book.namespaces.get("default")
    for tag in world.gates.tags if world is not None else ():
        assert world is not None
        gate = world.gates.gates.get(("", tag))
        assert (gate.use if gate else 0) == model.in_flight(tag)


def seen(task: Task) -> dict[str, Any]:
    attempt, outcome = task.attempt, task.outcome
    request = attempt.request if attempt else None
    return {
        "state": task.state,
        "queue": task.queue.name,
        "priority": (task.priority, task.penalty),
        "rank": task.rank,
        "times": (task.due_us, task.expires_us, task.created_us),
        "counters": (task.failures, task.crashes, task.interruptions, task.attempts),
        "waiting": task.waiting_for or set(),
        "batch": task.batch,
        "avoid": task.avoid,
        "guardian": None if task.state in ENDED else task.guardian,
        "lease": (attempt.worker, attempt.fence, attempt.started_us) if attempt else None,
        "request": (request.signal, request.stage) if request else None,
        "reason": outcome.reason if outcome else None,
    }


def known(task: ModelTask) -> dict[str, Any]:
    return {
        "state": task.state,
        "queue": task.spec.queue,
        "priority": (task.priority, task.penalty),
        "rank": task.rank,
        "times": (task.due_us, task.expires_us, task.created_us),
        "counters": (task.failures, task.crashes, task.interruptions, task.attempts),
        "waiting": task.waiting_for,
        "batch": task.batch,
        "avoid": task.avoid,
        "guardian": None if task.has_ended else task.guardian,
        "lease": (task.worker, task.fence, task.started_us) if task.fence else None,
        "request": task.request,
        "reason": task.reason,
    }
