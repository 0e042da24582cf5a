"""A core driven by hand: tasks have numbers, time stands still unless it is moved.

Every command goes the way the engine sends it: its records are encoded, and the invariants hold
after it. What it caused is kept until the next one.
"""

from typing import Any

import msgspec

from jackalope.core import Core
from jackalope.core.commands import (
    Action,
    ActOnTasks,
    Answer,
    AnswerSignal,
    AnyCommand,
    CloseSession,
    DeclareQueue,
    Fail,
    FailAttempts,
    Finish,
    FinishAttempts,
    Held,
    JoinWorker,
    LimitTag,
    PauseQueue,
    RecordStep,
    ReleaseAttempts,
    ReportProgress,
    ResumeQueue,
    SendEvent,
    StartAttempts,
    SubmitTasks,
    Suspend,
    Tick,
    Verdict,
)
from jackalope.core.durations import DAY, SECOND
from jackalope.core.effects import (
    Accepted,
    Acted,
    Answered,
    Assignment,
    Effect,
    Message,
    Reply,
    SendToSession,
)
from jackalope.core.ids import TaskId
from jackalope.core.invariants import check
from jackalope.core.lifecycle import State
from jackalope.core.records import AnyRecord, AttemptAssigned, decode_batch, encode_batch
from jackalope.core.refusals import Code, Refusal
from jackalope.core.task import Error, Options, Task, TaskSpec, lease_of

NOW_US = 1_700_000_000 * SECOND

_OPTIONS = frozenset(Options.__struct_fields__)


def task_id(number: int) -> TaskId:
    """Return an id of version 7: greater numbers are later."""
    return TaskId(number.to_bytes(6, "big") + b"\x70\x00\x80" + bytes(7))


def number_of(task: TaskId) -> int:
    return int.from_bytes(task[:6], "big")


def spec(number: int, queue: str = "q", **fields: Any) -> TaskSpec:
    """Return a task as submitted. Fields of its options are given like its own."""
    chosen = {name: fields.pop(name) for name in _OPTIONS & fields.keys()}
    options = Options(**chosen) if chosen else None
    return TaskSpec(task_id(number), queue, options=options, **fields)


def refusal_in(answer: Answered | None) -> Refusal | None:
    """Return the refusal of a command, or of the one task in it."""
    if isinstance(answer, Refusal):
        return answer
    if isinstance(answer, Accepted | Acted) and answer.refused:
        return answer.refused[0][1]
    return None


def snapshot_of(core: Core) -> bytes:
    return msgspec.msgpack.encode(core.book.snapshot())


class Driver:
    """A core, its clock and all that it ever recorded.

    Attributes:
        is_checked: look at the invariants after each command. Off where thousands would be slow.
    """

    def __init__(self, *, is_checked: bool = True) -> None:
        self.core = Core()
        self.now_us = NOW_US
        self.is_checked = is_checked
        self.records: list[AnyRecord] = []
        self.effects: list[Effect] = []
        self.journal: list[bytes] = []

    # Reading.

    def task(self, number: int) -> Task:
        return self.core.book.tasks[task_id(number)]

    def state(self, number: int) -> State:
        return self.task(number).state

    def fence(self, number: int) -> int:
        return lease_of(self.task(number)).fence

    def worker(self, number: int) -> str:
        return lease_of(self.task(number)).worker

    def snapshot(self) -> bytes:
        return snapshot_of(self.core)

    def recorded(self) -> list[AnyRecord]:
        """Return all that the journal says."""
        return [record for body in self.journal for record in decode_batch(body)]

    def replayed(self) -> Core:
        """Return a core that knows nothing but the journal."""
        core = Core()
        for record in self.recorded():
            core.apply(record)
        return core

    def assigned(self) -> list[int]:
        """Return the numbers of the tasks that the last command gave out, in order."""
        given = [record for record in self.records if isinstance(record, AttemptAssigned)]
        return [number_of(record.task) for record in given]

    def messages(self, session: int) -> list[Message]:
        """Return what the last command told a session unasked."""
        sent = [effect for effect in self.effects if isinstance(effect, SendToSession)]
        return [effect.message for effect in sent if effect.session == session]

    def assignments(self, session: int) -> list[Assignment]:
        return [sent for sent in self.messages(session) if isinstance(sent, Assignment)]

    # Commands.

    def send(self, command: AnyCommand) -> Answered | None:
        """Handle a command, and return its answer."""
        command.ref = command.ref or 1
        self.records, self.effects = self.core.handle(self.now_us, command)
        self.journal.append(encode_batch(self.records))
        if self.is_checked:
            check(self.core)
        wanted = (command.session, command.ref)
        replies = [
            effect.body
            for effect in self.effects
            if isinstance(effect, Reply) and (effect.session, effect.ref) == wanted
        ]
        return replies[-1] if replies else None

    def submit(self, number: int, queue: str = "q", **fields: Any) -> Answered | None:
        return self.send(SubmitTasks(ref=0, tasks=[spec(number, queue, **fields)], by="ada"))

    def join(
        self,
        worker: str,
        session: int,
        queues: tuple[str, ...] = ("q",),
        *,
        lease_us: int = DAY,
        **fields: Any,
    ) -> Answered | None:
        fields.setdefault("secret", worker)
        return self.send(
            JoinWorker(
                ref=0, worker=worker, session=session, queues=queues, lease_us=lease_us, **fields
            )
        )

    def close(self, session: int) -> Answered | None:
        return self.send(CloseSession(session=session))

    def start(self, number: int) -> Answered | None:
        session, held = self._held(number)
        return self.send(StartAttempts(ref=0, session=session, attempts=[held]))

    def finish(self, number: int, result: bytes = b"") -> Answered | None:
        session, held = self._held(number)
        finish = Finish(held.task, held.fence, result)
        return self.send(FinishAttempts(session=session, attempts=[finish]))

    def fail(
        self, number: int, verdict: Verdict = Verdict.RETRY, retry_after_us: int = 0
    ) -> Answered | None:
        session, held = self._held(number)
        error = Error("ValueError", "no such thing")
        fail = Fail(held.task, held.fence, error, verdict, retry_after_us)
        return self.send(FailAttempts(session=session, attempts=[fail]))

    def release(self, number: int) -> Answered | None:
        session, held = self._held(number)
        return self.send(ReleaseAttempts(session=session, attempts=[held]))

    def step(self, number: int, index: int, name: str, result: bytes = b"") -> Answered | None:
        session, held = self._held(number)
        return self.send(RecordStep(0, held.task, held.fence, index, name, result, session=session))

    def suspend(
        self, number: int, index: int, name: str, after_us: int = 0, event: str = ""
    ) -> Answered | None:
        session, held = self._held(number)
        return self.send(
            Suspend(0, held.task, held.fence, index, name, after_us, event, session=session)
        )

    def send_event(self, number: int, event: str, data: bytes = b"") -> Answered | None:
        return self.send(SendEvent(task=task_id(number), event=event, data=data))

    def progress(self, number: int, note: str = "", percent: float = 1.0) -> Answered | None:
        session, held = self._held(number)
        return self.send(
            ReportProgress(
                ref=0, session=session, task=held.task, fence=held.fence, percent=percent, note=note
            )
        )

    def answer(self, number: int, answer: Answer, detail: str = "") -> Answered | None:
        session, held = self._held(number)
        return self.send(
            AnswerSignal(
                ref=0,
                session=session,
                task=held.task,
                fence=held.fence,
                answer=answer,
                detail=detail,
            )
        )

    def act(self, action: Action, *numbers: int, **fields: Any) -> Answered | None:
        tasks = tuple(task_id(number) for number in numbers)
        return self.send(ActOnTasks(ref=0, action=action, tasks=tasks, by="ada", **fields))

    def declare(self, queue: str = "q", preset: str = "", **changes: object) -> Answered | None:
        return self.send(DeclareQueue(queue=queue, preset=preset, changes=changes))

    def pause_queue(self, queue: str = "q") -> Answered | None:
        return self.send(PauseQueue(queue=queue, by="ada"))

    def resume_queue(self, queue: str = "q") -> Answered | None:
        return self.send(ResumeQueue(queue=queue, by="ada"))

    def limit(self, tag: str, limit: int) -> Answered | None:
        return self.send(LimitTag(tag=tag, limit=limit))

    def tick(self, after_us: int = 0) -> Answered | None:
        """Let time pass as the engine does: with a tick at every deadline on the way."""
        until_us = self.now_us + after_us
        records: list[AnyRecord] = []
        effects: list[Effect] = []
        deadline_us = self.core.next_deadline_us()
        while deadline_us is not None and self.now_us < deadline_us < until_us:
            self.now_us = deadline_us
            self.send(Tick())
            records, effects = records + self.records, effects + self.effects
            deadline_us = self.core.next_deadline_us()
        self.now_us = until_us
        answer = self.send(Tick())
        self.records, self.effects = records + self.records, effects + self.effects
        return answer

    def leap(self, after_us: int) -> Answered | None:
        """Let time pass without a tick on the way, as when a machine was suspended."""
        self.now_us += after_us
        return self.send(Tick())

    def _held(self, number: int) -> tuple[int, Held]:
        """Return who speaks for a task, with which fence: its holder, else the last that did."""
        task = self.task(number)
        if task.attempt is None:
            return 1, Held(task.id, max(1, self.core.book.counters.fence))
        name = (task.queue.namespace.name, task.attempt.worker)
        return self.core.roster.workers[name].session, Held(task.id, task.attempt.fence)


def assert_refused(driver: Driver, answer: Answered | None, code: Code, limit: int | str) -> None:
    """Check that nothing happened, and that the answer says why and names the limit."""
    refusal = refusal_in(answer)
    assert refusal is not None
    assert refusal.code is code
    assert str(limit) in refusal.message
    assert driver.records == []


def assert_accepted(answer: Answered | None) -> None:
    assert answer is not None
    assert refusal_in(answer) is None
