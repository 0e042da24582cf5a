"""A broker on a virtual clock, with a worker that runs functions where it stands.

Owns the clock and the worker. Time passes only when a test says so, and at each deadline on the way
the core is told, as the running broker would tell it. Faults are asked for by name: `crash`,
`interrupt`, `restart`.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import deque
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Generic, ParamSpec, TypeVar, cast

import msgspec

from jackalope.client.task import Task
from jackalope.core import Core
from jackalope.core.commands import (
    Action,
    ActOnTasks,
    AnyCommand,
    CloseSession,
    DeclareQueue,
    Fail,
    FailAttempts,
    Finish,
    FinishAttempts,
    Held,
    JoinWorker,
    Recover,
    ReleaseAttempts,
    ReportProgress,
    StartAttempts,
    SubmitTasks,
    Tick,
)
from jackalope.core.durations import SECOND
from jackalope.core.effects import Accepted, AcceptedRequests, Answered, Assignment, Reply
from jackalope.core.explain import Explanation, explain, history
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import State
from jackalope.core.must import must
from jackalope.core.records import AnyRecord
from jackalope.core.refusals import Refusal
from jackalope.core.task import Happening, Options
from jackalope.core.task import Task as CoreTask
from jackalope.link.errors import Rejected, TaskFailed
from jackalope.link.ids import new_task_id
from jackalope.tasks.context import running
from jackalope.tasks.definition import TaskDefinition
from jackalope.worker.attempt import Attempt, Failed, Finished, Outcome, Stopped
from jackalope.worker.context import TaskContext

P = ParamSpec("P")
R = TypeVar("R")

_CLIENT = 1
_WORKER = "worker"
_LONGEST_US = 365 * 24 * 3600 * SECOND


class VirtualHandle(Generic[R]):
    """A task of a virtual broker."""

    def __init__(self, broker: VirtualBroker, task_id: TaskId, definition: TaskDefinition) -> None:
        self._broker = broker
        self._definition = definition
        self.id = task_id

    @property
    def state(self) -> State:
        """Where the task stands."""
        return self._task.state

    @property
    def failures(self) -> int:
        """How often it failed."""
        return self._task.failures

    @property
    def crashes(self) -> int:
        """How often it lost its worker."""
        return self._task.crashes

    @property
    def attempts(self) -> int:
        """How often it was given to a worker."""
        return self._task.attempts

    @property
    def due_in(self) -> float:
        """In how many seconds a scheduled task is due."""
        return (self._task.due_us - self._broker.now_us) / SECOND

    def result(self) -> R:
        """Return the result.

        Raises:
            TaskFailed: it ended without one.
            LookupError: it has not ended; `explain` says why.
        """
        task, outcome = self._task, self._task.outcome
        if task.state is State.SUCCEEDED and outcome is not None:
            result = outcome.result
            value: R = self._definition.result(result if isinstance(result, bytes) else b"")
            return value
        if task.state in (State.DEAD, State.KILLED) and outcome is not None:
            raise TaskFailed(task.id, task.state, outcome.reason, outcome.error)
        causes = "; ".join(cause.text for cause in self.explain().causes)
        raise LookupError(f"task {self.id.hex()} is {task.state}: {causes}")

    def explain(self) -> Explanation:
        """Say why the task is as it is."""
        return explain(self._broker.core, self._task)

    def history(self) -> list[Happening]:
        """Return what happened to it."""
        return history(self._task)

    def act(self, action: Action | str) -> None:
        """Hold, play, pause, kill, retry or purge it.

        Raises:
            Rejected: its state does not allow that.
        """
        self._broker.act(Action(action), self.id)

    @property
    def _task(self) -> CoreTask:
        return self._broker.core.book.tasks[self.id]


class VirtualBroker:
    """The real core, a virtual clock, and one worker that runs tasks when told.

    Attributes:
        core: the core itself, for whatever this does not show.
        now_us: the virtual time. It begins at the real one.
    """

    def __init__(self, slots: int = 10) -> None:
        self.core = Core()
        self.now_us = time.time_ns() // 1_000
        self._slots = slots
        self._session = _CLIENT
        self._refs = 0
        self._answers: dict[int, Answered] = {}
        self._records: list[AnyRecord] = []
        self._assigned: deque[Assignment] = deque()
        self._definitions: dict[str, TaskDefinition] = {}
        self._faults: dict[str, deque[str]] = {}

    # What a test says.

    def declare_queue(self, queue: str, preset: str = "", **changes: object) -> None:
        """Set the policy of a queue: a preset, then fields of the policy.

        Raises:
            Rejected: naming every problem.
        """
        self._ask(DeclareQueue(queue=queue, preset=preset, changes=changes))

    def submit(self, task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> VirtualHandle[R]:
        """Submit a task. It does not run before `run` or `advance`.

        Raises:
            Rejected: the core did not accept it.
        """
        definition, plan = task.definition, task.plan
        self._definitions[definition.name] = definition
        spec = plan.spec(plan.id or new_task_id(), definition.payload(args, kwargs))
        if plan.delay_us or plan.expires_us:
            # A client counts from its own clock; here the clock is ours.
            spec.options = msgspec.structs.replace(
                spec.options or Options(),
                run_at_us=self.now_us + plan.delay_us if plan.delay_us else 0,
                expires_at_us=self.now_us + plan.expires_us if plan.expires_us else 0,
            )
        answer = self._ask(SubmitTasks(tasks=[spec], by="test"))
        if isinstance(answer, Accepted) and answer.refused:
            raise _rejected(answer.refused[0][1])
        if isinstance(answer, AcceptedRequests):
            return VirtualHandle(self, answer.served[0][1].task, definition)
        return VirtualHandle(self, spec.id, definition)

    def run(self) -> int:
        """Run every task that may run now, and what follows from it; return how many attempts."""
        self._join()
        attempts = 0
        while self._assigned:
            self._attempt(self._assigned.popleft())
            attempts += 1
        return attempts

    def advance(self, seconds: float) -> int:
        """Let time pass, running what comes due on the way; return how many attempts there were."""
        until_us = self.now_us + int(seconds * SECOND)
        attempts = self.run()
        while True:
            deadline_us = self.core.next_deadline_us()
            if deadline_us is None or deadline_us > until_us:
                break
            self.now_us = max(self.now_us, deadline_us)
            self._handle(Tick())
            attempts += self.run()
        self.now_us = until_us
        self._handle(Tick())
        return attempts + self.run()

    def finish(self) -> int:
        """Let as much time pass as everything needs to end; return how many attempts there were."""
        attempts, until_us = self.run(), self.now_us + _LONGEST_US
        while (deadline_us := self._next_of_tasks()) is not None and deadline_us <= until_us:
            attempts += self.advance(max(0, deadline_us - self.now_us) / SECOND)
        return attempts

    def act(self, action: Action, task_id: TaskId) -> None:
        """Do something with a task, as an actioner would.

        Raises:
            Rejected: its state does not allow that.
        """
        answer = self._ask(ActOnTasks(action=action, tasks=(task_id,), by="test"))
        refused = getattr(answer, "refused", ())
        if refused:
            raise _rejected(refused[0][1])

    # Faults.

    def crash(self, task: Task[Any, Any], times: int = 1) -> None:
        """Let the worker die in the middle of the next attempts of a task."""
        self._faults.setdefault(task.definition.name, deque()).extend(["crash"] * times)

    def interrupt(self, task: Task[Any, Any], times: int = 1) -> None:
        """Let the worker hand back the next attempts of a task, as a deploy does."""
        self._faults.setdefault(task.definition.name, deque()).extend(["interrupt"] * times)

    def restart(self) -> None:
        """Restart the broker: a new core from the records of the old one, and nothing else."""
        core = Core()
        for record in self._records:
            core.apply(record)
        self.core = core
        self._assigned.clear()
        self._session = _CLIENT
        self._handle(Recover())

    # The worker.

    def _join(self) -> None:
        """See to it that the worker is there, with what it has in hand."""
        queues = {task.queue.name for task in self.core.book.tasks.values()}
        worker = self.core.roster.sessions.get(self._session)
        if worker is not None and queues <= set(worker.queues):
            worker.heard_us = self.now_us
            return
        if queues:
            self._session += 1
            holding = [Held(given.task, given.fence) for given in self._assigned]
            self._handle(
                JoinWorker(
                    session=self._session,
                    worker=_WORKER,
                    queues=tuple(sorted(queues)),
                    slots=self._slots,
                    holding=holding,
                )
            )

    def _attempt(self, given: Assignment) -> None:
        held = Held(given.task, given.fence)
        self._report(StartAttempts(attempts=[held]))
        faults = self._faults.get(given.name)
        fault = faults.popleft() if faults else ""
        if fault == "interrupt":
            self._report(ReleaseAttempts(attempts=[held]))
            return
        attempt = Attempt(given, self._definitions[given.name], _Ear(self))
        outcome = copy_context().run(_outcome, attempt)
        if fault == "crash":
            # It did its work, and died before it could say so: the hardest moment to die.
            self._handle(CloseSession(session=self._session))
            worker = self.core.roster.workers.get(("default", _WORKER))
            self.now_us += worker.grace_us if worker else 0
            self._assigned.clear()
            self._handle(Tick())
            self._join()
            return
        if isinstance(outcome, Failed):
            error, verdict, after_us = outcome.error, outcome.verdict, outcome.retry_after_us
            fail = Fail(given.task, given.fence, error, verdict, after_us)
            self._report(FailAttempts(attempts=[fail]))
        else:
            finish = Finish(given.task, given.fence, outcome.result)
            self._report(FinishAttempts(attempts=[finish]))

    def progressed(self, held: Held, percent: float | None, note: str) -> None:
        """Take what a running task says about itself."""
        self._report(ReportProgress(task=held.task, fence=held.fence, percent=percent, note=note))

    def _report(self, command: AnyCommand) -> None:
        command.session = self._session
        self._handle(command)

    # The core.

    def _ask(self, command: AnyCommand) -> Answered:
        self._refs += 1
        command.session, command.ref = _CLIENT, self._refs
        self._handle(command)
        answer = self._answers.pop(self._refs)
        if isinstance(answer, Refusal):
            raise _rejected(answer)
        return answer

    def _handle(self, command: AnyCommand) -> None:
        records, effects = self.core.handle(self.now_us, command)
        self._records += records
        for effect in effects:
            if isinstance(effect, Reply):
                self._answers[effect.ref] = effect.body
            elif isinstance(effect.message, Assignment):
                self._assigned.append(effect.message)

    def _next_of_tasks(self) -> int | None:
        book = self.core.book
        times = (timers.next_us() for timers in (book.due, book.expiry))
        return min((at for at in times if at is not None), default=None)


class _Ear:
    """Hears what becomes of an attempt, as the worker does."""

    def __init__(self, broker: VirtualBroker) -> None:
        self._broker = broker

    def began(self, _: Attempt) -> None:
        pass

    def ended(self, _: Attempt, __: Outcome) -> None:
        pass

    def acknowledged(self, _: Attempt) -> None:
        pass

    def rested(self, _: Attempt, *, is_resting: bool) -> None:
        pass

    def progressed(self, attempt: Attempt, percent: float | None, note: str) -> None:
        self._broker.progressed(attempt.held, percent, note)


def _outcome(attempt: Attempt) -> Finished | Failed:
    """Run the function of an attempt as the worker would, and return what came of it."""
    running.set(TaskContext(attempt))
    try:
        value = attempt.call()
        if inspect.iscoroutine(value):
            value = _finished(value)
        outcome = attempt.succeeded(value)
    except Exception as error:  # noqa: BLE001  a task may raise anything
        outcome = attempt.raised(error)
    must(not isinstance(outcome, Stopped), "nobody stops a virtual attempt")
    return cast("Finished | Failed", outcome)


def _finished(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end, also where a test has a loop of its own that runs."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(copy_context().run, asyncio.run, work).result()


def _rejected(refusal: Refusal) -> Rejected:
    return Rejected(refusal.code, refusal.message, refusal.retry_after_us)
