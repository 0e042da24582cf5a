"""A broker on a virtual clock, with a worker that runs functions where it stands.

Owns the clock and the worker. Time passes only when a test advances it, and the core is called at
each deadline on the way, as the running broker would. Faults are injected by name: `crash`,
`interrupt`, `restart`.

While an attempt runs, and for the whole of a `with` block or a test with the fixture, every
application of this process has this broker in front of it and no other (see
`jackalope.client.app`): what a task submits, spawns or waits for stays here, and no
connection is opened.

One attempt runs at a time. A task that waits for another one rests, and then a thread of its own
runs what is next, or lets time pass to the next deadline if there is nothing to run, until what is
waited for has ended. If nothing can end it any more, the wait is refused with the reason.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar

import msgspec

from jackalope.broker.queries import About, lines_meant
from jackalope.calendar import CronCalendar
from jackalope.client.app import Jackalope, taken_over
from jackalope.client.flows.flow import Flow
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
    RecordStep,
    Recover,
    ReleaseAttempts,
    ReportProgress,
    SendEvent,
    StartAttempts,
    SubmitTasks,
    Suspend,
    Tick,
    WatchTasks,
)
from jackalope.core.commands.contracts import DeclareContracts
from jackalope.core.commands.limits import DeclareLimits
from jackalope.core.commands.schedules import DeclareSchedules
from jackalope.core.durations import SECOND
from jackalope.core.effects import (
    Accepted,
    AcceptedRequests,
    Answered,
    Assignment,
    Effect,
    Reply,
    TaskEnded,
)
from jackalope.core.ids import TaskId
from jackalope.core.limits import INLINE_BYTES_MAX
from jackalope.core.records import AnyRecord
from jackalope.core.refusals import Refusal
from jackalope.core.shapes.task_log import LogPage
from jackalope.core.task import BlobRef, Body, Error, Options, TaskSpec
from jackalope.embedded import EmbeddedBroker
from jackalope.errors import Rejected
from jackalope.task_ids import new_task_id
from jackalope.tasks.contracts import contracts_of
from jackalope.tasks.definition import TaskDefinition, find_task
from jackalope.tasks.serialization import DEFAULT_CONTENT, encode_value
from jackalope.testing.virtual_attempt import AttemptListener, outcome_of
from jackalope.testing.virtual_door import (
    EndWait,
    VirtualLine,
    Wait,
    Wire,
    on_virtual_clock,
    specs_in,
    task_in,
)
from jackalope.testing.virtual_handle import VirtualFlow, VirtualHandle
from jackalope.testing.virtual_logs import VirtualLogs
from jackalope.transport.address import parse_address
from jackalope.worker.attempt import Attempt, Failed, Finished, Left
from jackalope.worker.logs.capture import capturing
from jackalope.worker.logs.lines import Sink

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_CLIENT = 1
_WORKER = "worker"
_LONGEST_US = 365 * 24 * 3600 * SECOND

#: How long a loop may take to react to the end of a task that it waits for, and how many of its
#: iterations that takes: from the frame to the future, and from there to the code that awaits it.
_REACT_S = 0.5
_REACT_HOPS = 8


class VirtualBroker:
    """The real core, a virtual clock, and one worker that runs tasks when told."""

    def __init__(self, slots: int = 10) -> None:
        self.core = Core()  # the core itself, for whatever this does not show
        self.core.calendar = CronCalendar()
        self.now_us = time.time_ns() // 1_000  # the virtual time. It begins at the real one.
        self._slots = slots
        self._session = self._last_session = _CLIENT
        self._refs = 0
        self._answers: dict[int, Answered] = {}
        self._records: list[AnyRecord] = []
        self._blobs: dict[str, bytes] = {}
        self._assigned: deque[Assignment] = deque()
        self._running: dict[int, Assignment] = {}
        self._definitions: dict[str, TaskDefinition] = {}
        self._faults: dict[str, deque[str]] = {}
        self._line = VirtualLine(self)
        self._wires: dict[int, Wire] = {}
        self._waits: list[Wait] = []
        self._logs = VirtualLogs(self)
        self._declared: dict[tuple[str, str], TaskDefinition] = {}  # by queue and name
        # What follows belongs to the holder of the lock, as does the core.
        self._lock = threading.RLock()
        self._is_idle = threading.Condition(self._lock)
        self._busy = 0
        self._resting = 0
        self._is_driven = False
        self._block = ExitStack()

    def __enter__(self) -> Self:
        """Put this broker in front of every application of the process, until the block ends."""
        self._block.enter_context(taken_over(self._line))
        return self

    def __exit__(self, *_: object) -> None:
        self._block.close()
        for wire in list(self._wires.values()):
            wire.close()

    # What a test says.

    def declare_queue(self, queue: str, preset: str = "", **changes: object) -> None:
        """Set the policy of a queue: a preset, then fields of the policy.

        Raises:
            Rejected: naming every problem.
        """
        self._ask(DeclareQueue(queue=queue, preset=preset, changes=changes))

    def declare_schedules(self, app: Jackalope) -> None:
        """Declare the schedules of an application, as its workers do; `advance` runs them.

        Raises:
            Rejected: naming every problem.
        """
        self._definitions |= app.functions
        self._ask(DeclareSchedules(app="test", schedules=app.planned))

    def declare_limits(self, app: Jackalope) -> None:
        """Declare the limits of the tasks of an application, as its workers do.

        Raises:
            Rejected: naming every problem.
        """
        self._ask(DeclareLimits(limits=app.limited))

    def submit(self, task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> VirtualHandle[R]:
        """Submit a task. It does not run before `run` or `advance`.

        Raises:
            Rejected: the core did not accept it.
        """
        definition, plan = task.definition, task.plan
        self._definitions[definition.name] = definition
        self._line.note(task.app)
        spec = plan.spec(plan.id or new_task_id(), definition.payload(args, kwargs))
        self._describe([spec])
        spec.payload = self._store(spec.payload)
        plan.equip(spec, definition.function, args, kwargs)
        if plan.delay_us or plan.expires_us:
            # A client counts from its own clock; here the clock is ours.
            spec.options = msgspec.structs.replace(
                spec.options or Options(),
                run_at_us=self.now_us + plan.delay_us if plan.delay_us else 0,
                expires_at_us=self.now_us + plan.expires_us if plan.expires_us else 0,
            )
        answer = self._ask(SubmitTasks(ref=0, tasks=[spec], by="test"))
        if isinstance(answer, Accepted) and answer.refused:
            raise _rejected(answer.refused[0][1])
        if isinstance(answer, AcceptedRequests) and answer.served:
            return VirtualHandle(self, answer.served[0][1].task, definition)
        return VirtualHandle(self, spec.id, definition)

    def submit_flow(self, flow: Flow[R]) -> VirtualFlow[R]:
        """Submit a flow. None of its nodes runs before `run` or `advance`.

        Raises:
            Rejected: the core did not accept it.
        """
        made = flow.assemble()
        for step in made.names:
            for each in (step, step.compensation):
                if each is not None:
                    self._definitions[each.task.definition.name] = each.task.definition
                    self._line.note(each.task.app)
        command = on_virtual_clock(made.command, self.now_us)
        self._describe(specs_in(command))
        for spec in specs_in(command):
            spec.payload = self._store(spec.payload)
        self._ask(command)
        return VirtualFlow(self, made)

    def run(self) -> int:
        """Run every task that may run now, and what follows from it; return how many attempts."""
        attempts = 0
        while (given := self._take_when_idle()) is not None:
            self._attempt(given)
            self._busy_no_more()
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
            self._tick(max(self.now_us, deadline_us))
            attempts += self.run()
        self._tick(until_us)
        return attempts + self.run()

    def finish(self) -> int:
        """Let as much time pass as everything needs to end; return how many attempts there were."""
        attempts, until_us = self.run(), self.now_us + _LONGEST_US
        while (deadline_us := self._next_of_tasks()) is not None and deadline_us <= until_us:
            attempts += self.advance(max(0, deadline_us - self.now_us) / SECOND)
        return attempts

    def signal(self, task_id: TaskId, event: str, data: object = None) -> None:
        """Send an event to a task.

        Raises:
            Rejected: it has ended.
        """
        body = encode_value(DEFAULT_CONTENT, data)
        self._ask(SendEvent(task=task_id, event=event, data=body, by="test"))

    def act(self, action: Action, task_id: TaskId) -> None:
        """Do something with a task, as an actioner would.

        Raises:
            Rejected: its state does not allow that.
        """
        answer = self._ask(ActOnTasks(ref=0, action=action, tasks=(task_id,), by="test"))
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
        with self._lock:
            core = Core()
            core.calendar = CronCalendar()
            core.apply(*self._records)
            self.core = core
            self._assigned.clear()
            for wire in list(self._wires.values()):
                wire.cut()
            self._wires.clear()
            self._waits.clear()
            self._handle(Recover())

    # The worker.

    def _take_when_idle(self) -> Assignment | None:
        """Return the attempt to run next, once nothing runs any more on behalf of who waits."""
        with self._lock:
            self._is_idle.wait_for(lambda: not self._busy and not self._is_driven)
            return self._take_next()

    def _take_next(self) -> Assignment | None:
        """Return the attempt to run next, with the worker joined; None if there is none."""
        with self._lock:
            self._join()
            if not self._assigned:
                return None
            given = self._assigned.popleft()
            self._running[given.fence] = given
            self._busy += 1
            return given

    def _join(self) -> None:
        """See to it that the worker is there, with what it has in hand."""
        queues = {task.queue.name for task in self.core.book.tasks.values()}
        slots = self._slots + self._resting
        worker = self.core.roster.sessions.get(self._session)
        if worker is not None and queues <= set(worker.queues) and worker.slots == slots:
            worker.heard_us = self.now_us
        elif queues:
            self._session = self._next_session()
            in_hand = [*self._running.values(), *self._assigned]
            self._handle(
                JoinWorker(
                    ref=0,
                    session=self._session,
                    worker=_WORKER,
                    queues=tuple(sorted(queues)),
                    slots=slots,
                    holding=[Held(given.task, given.fence) for given in in_hand],
                )
            )

    def _attempt(self, given: Assignment) -> None:
        """Run an attempt to its end, with this broker in front of every application.

        It counts as busy until the caller says otherwise.
        """
        held = Held(given.task, given.fence)
        ear = AttemptListener(self)
        self._report(StartAttempts(ref=0, attempts=[held]))
        faults = self._faults.get(given.name)
        fault = faults.popleft() if faults else ""
        if fault == "interrupt":
            command: AnyCommand | None = ReleaseAttempts(attempts=[held])
        else:
            with taken_over(self._line), capturing():
                outcome = self._outcome_of(given, ear)
            command = None if fault == "crash" else self._report_of(given, outcome)
        with self._lock:
            ear.end()
            self._logs.end(given)
            self._running.pop(given.fence, None)
            if fault == "crash":
                self._lose_worker()
            elif command is not None:
                self._report(command)

    def _outcome_of(self, given: Assignment, ear: AttemptListener) -> Finished | Failed | Left:
        definition = self._definition_of(given.queue, given.name)
        if definition is None:
            known = "no application that was used with this broker has it"
            return Failed(Error("UnknownTask", f"no task is called {given.name!r}: {known}"))
        inputs = tuple(
            msgspec.structs.replace(each, result=self.load(each.result)) for each in given.inputs
        )
        whole = msgspec.structs.replace(given, payload=self.load(given.payload), inputs=inputs)
        return copy_context().run(outcome_of, Attempt(whole, definition, ear))

    def _definition_of(self, queue: str, name: str) -> TaskDefinition | None:
        if name in self._definitions:
            return self._definitions[name]
        found = (find_task(app.functions, name, queue) for app in self._line.apps)
        return next((definition for definition in found if definition is not None), None)

    def _describe(self, specs: Sequence[TaskSpec]) -> None:
        """Declare what tasks take before the first of each is submitted, as workers do."""
        for spec in specs:
            place = (spec.queue, spec.name)
            definition = self._definition_of(*place)
            if definition is not None and definition is not self._declared.get(place):
                self._declared[place] = definition
                if self.core.book.queue("default", spec.queue) is None:
                    self.declare_queue(spec.queue)
                contracts = contracts_of([definition])
                self._ask(DeclareContracts(queues=(spec.queue,), contracts=contracts))

    def _report_of(self, given: Assignment, outcome: Finished | Failed | Left) -> AnyCommand | None:
        if isinstance(outcome, Left):
            return None  # The core knows.
        if isinstance(outcome, Failed):
            told = (outcome.verdict, outcome.retry_after_us, outcome.crashed, outcome.key)
            fail = Fail(given.task, given.fence, outcome.error, *told)
            return FailAttempts(attempts=[fail])
        finish = Finish(given.task, given.fence, self._store(outcome.result))
        return FinishAttempts(attempts=[finish])

    def _lose_worker(self) -> None:
        """Let the worker die with all it has: it did its work, and could not report it."""
        self._handle(CloseSession(session=self._session))
        worker = self.core.roster.workers.get(("default", _WORKER))
        self.now_us += worker.grace_us if worker else 0
        self._assigned.clear()
        self._running.clear()
        self._handle(Tick())
        self._join()

    def progressed(self, held: Held, percent: float | None, note: str) -> None:
        """Take what a running task says about itself."""
        self._report(
            ReportProgress(ref=0, task=held.task, fence=held.fence, percent=percent, note=note)
        )

    def sink_of(self, given: Assignment) -> Sink:
        """Return where the output of an attempt goes."""
        with self._lock:
            return self._logs.sink_of(given)

    def log_page(self, task_id: TaskId, about: About) -> LogPage:
        """Return what a task has printed and logged."""
        with self._lock:
            return self._logs.page(task_in(self.core, task_id), lines_meant(about))

    def asked(self, message: RecordStep | Suspend) -> Any:
        """Take what a running task asks about a step, and return the answer as a worker gets it.

        Raises:
            Rejected: the core did not accept it.
        """
        answer = self._ask(message, self._session)
        return msgspec.to_builtins(answer, builtin_types=(bytes,))

    def rested(self, *, is_resting: bool) -> None:
        """Let something else run while an attempt only waits."""
        with self._lock:
            self._busy += -1 if is_resting else 1
            self._resting += 1 if is_resting else -1
            self._drive()
            self._is_idle.notify_all()

    def _report(self, command: AnyCommand) -> None:
        with self._lock:
            command.session = self._session
            self._handle(command)

    # What waits for tasks.

    def _drive(self) -> None:
        """Let a thread run what is waited for, unless something runs that may do without."""
        if self._waits and not self._busy and not self._is_driven:
            self._is_driven = True
            thread = threading.Thread(target=self._pump, name="virtual-broker", daemon=True)
            thread.start()

    def _pump(self) -> None:
        while (given := self._next_for_waits()) is not None:
            self._attempt(given)
            self._let_react()
            self._busy_no_more()
            with self._lock:
                if self._is_driven:
                    return  # Another thread has taken over while the attempt waited itself.
                self._is_driven = True

    def _next_for_waits(self) -> Assignment | None:
        """Return the next attempt, letting time pass to it; None when nothing is waited for."""
        with self._lock:
            while True:
                self._settle()
                given = None if self._busy or not self._waits else self._take_next()
                if given is not None or self._busy or not self._waits:
                    self._is_driven = False
                    self._is_idle.notify_all()
                    return given
                deadline_us = self._next_of_tasks()
                if deadline_us is not None:
                    self._tick(max(self.now_us, deadline_us))
                else:
                    waits, self._waits = self._waits, []
                    for wait in waits:
                        wait.refuse(self.core)

    def _settle(self) -> None:
        """Answer the waits whose tasks have ended."""
        for wait in [wait for wait in self._waits if wait.is_over(self.core)]:
            self._waits.remove(wait)
            wait.settle()

    def _busy_no_more(self) -> None:
        with self._lock:
            self._busy -= 1
            self._is_idle.notify_all()

    def _let_react(self) -> None:
        """Let the loops that were sent something go on with it, so that the order is certain."""
        with self._lock:
            self._settle()
            loops = {wire.loop for wire in self._wires.values() if wire.has_news}
            for wire in self._wires.values():
                wire.has_news = False
        for loop in loops:
            if not loop.is_closed():
                _wait_for_hops(loop)

    # Sessions of applications.

    def plug_in(self, wire: Wire) -> int:
        """Open a session."""
        with self._lock:
            session = self._next_session()
            self._wires[session] = wire
            return session

    def unplug(self, wire: Wire) -> None:
        """End a session."""
        with self._lock:
            if self._wires.pop(wire.session, None) is not None:
                self._waits = [wait for wait in self._waits if wait.wire is not wire]
                self._handle(CloseSession(session=wire.session))

    def take(self, wire: Wire, command: AnyCommand) -> None:
        """Take a command of an application."""
        with self._lock:
            self._describe(specs_in(command))
            for spec in specs_in(command):
                spec.payload = self._store(spec.payload)
            if isinstance(command, WatchTasks):
                held = self._effects_of(command)
                reply = next(effect for effect in held if isinstance(effect, Reply))
                wait = EndWait(wire, command, reply)
                if not (getattr(reply.body, "refused", ()) or wait.is_over(self.core)):
                    # The answer waits: it is a refusal if nothing will ever end the tasks.
                    held.remove(reply)
                    self.let_wait(wait)
                self._deliver(held)
            else:
                self._handle(command)

    def let_wait(self, wait: Wait) -> None:
        """Let a session wait, and run what it waits for."""
        with self._lock:
            self._waits.append(wait)
            self._settle()
            self._drive()

    def read(self, look: Callable[[Core], T]) -> T:
        """Look at the core while nothing changes it."""
        with self._lock:
            return look(self.core)

    def _next_session(self) -> int:
        self._last_session += 1
        return self._last_session

    # The core.

    def _ask(self, command: AnyCommand, session: int = _CLIENT) -> Answered:
        with self._lock:
            self._refs += 1
            command.session, command.ref = session, self._refs
            self._handle(command)
            answer = self._answers.pop(self._refs)
        if isinstance(answer, Refusal):
            raise _rejected(answer)
        return answer

    def _tick(self, now_us: int) -> None:
        with self._lock:
            self.now_us = now_us
            worker = self.core.roster.sessions.get(self._session)
            if worker is not None:
                worker.heard_us = now_us  # It beats, whatever its tasks do.
            self._handle(Tick())

    def _handle(self, command: AnyCommand) -> None:
        with self._lock:
            self._deliver(self._effects_of(command))

    def _effects_of(self, command: AnyCommand) -> list[Effect]:
        records, effects = self.core.handle(self.now_us, command)
        self._records += records
        return list(effects)

    def _deliver(self, effects: list[Effect]) -> None:
        for effect in effects:
            wire = self._wires.get(effect.session)
            if wire is not None:
                wire.deliver([self._whole(effect)])
            elif isinstance(effect, Reply):
                self._answers[effect.ref] = effect.body
            elif isinstance(effect.message, Assignment):
                self._assigned.append(effect.message)

    # Large bodies.

    def load(self, body: Body) -> bytes:
        """Return a payload or result, wherever it is."""
        return self._blobs[body.blob] if isinstance(body, BlobRef) else body

    def _store(self, body: Body) -> Body:
        if isinstance(body, bytes) and len(body) > INLINE_BYTES_MAX:
            name = f"virtual-{len(self._blobs)}"
            self._blobs[name] = body
            return BlobRef(name, len(body))
        return body

    def _whole(self, effect: Effect) -> Effect:
        if isinstance(effect, Reply) or not isinstance(effect.message, TaskEnded):
            return effect
        ended = msgspec.structs.replace(effect.message, result=self.load(effect.message.result))
        return msgspec.structs.replace(effect, message=ended)

    def _next_of_tasks(self) -> int | None:
        book = self.core.book
        times = (timers.next_us() for timers in (book.due, book.expiry))
        return min((at for at in times if at is not None), default=None)


def _wait_for_hops(loop: asyncio.AbstractEventLoop) -> None:
    """Wait until a loop has gone round a few times."""
    is_done = threading.Event()

    def hop(left: int) -> None:
        if left:
            loop.call_soon(hop, left - 1)
        else:
            is_done.set()

    try:
        loop.call_soon_threadsafe(hop, _REACT_HOPS)
    except RuntimeError:
        return  # Closed meanwhile.
    is_done.wait(_REACT_S)


def _rejected(refusal: Refusal) -> Rejected:
    return Rejected(refusal.code, refusal.message, refusal.retry_after_us)


# An application with a broker and a worker inside the test.


@contextmanager
def embedded(
    app: Jackalope, folder: Path | str | None = None, *, concurrency: int = 0
) -> Iterator[Jackalope]:
    """Let an application work with a broker and a worker inside this process, for a while.

        with embedded(shop.app) as app:
            assert app.sync(shop.greet.run("Ada")) == "Hello, Ada!"

    An async test uses `async with app:` within, so that its connection is closed at the end.

    Args:
        app: the application, as the program itself uses it.
        folder: where the broker keeps its data; None for memory.
        concurrency: how many tasks run at once; 0 for as many as fit their kind.

    Raises:
        StorageFault: the folder cannot be used.
    """
    app.sync.close()
    address, broker = app.address, EmbeddedBroker(folder)
    app.address = replace(parse_address(broker.address), namespace=address.namespace)
    try:
        broker.work(app, concurrency)
        yield app
    finally:
        app.sync.close()
        app.address = address
        broker.stop()
