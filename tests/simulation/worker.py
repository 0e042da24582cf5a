"""Simulated workers: they run tasks, and are killed, frozen, cut off and drained.

A worker sends each report until it is answered, over whatever connection it has, and says on
joining what it still has in hand. That is all a real one must do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jackalope.core.commands import (
    Answer,
    AnswerSignal,
    Command,
    EndHelp,
    Fail,
    FailAttempts,
    Finish,
    FinishAttempts,
    Heartbeat,
    Held,
    JoinWorker,
    LeaveWorker,
    ReleaseAttempts,
    ReportProgress,
    RequestHelpers,
    StartAttempts,
    Verdict,
)
from jackalope.core.durations import MILLISECOND, SECOND
from jackalope.core.effects import (
    Assignment,
    DrainAsked,
    Effect,
    HelpAsked,
    HelpRecalled,
    Joined,
    LeaseLost,
    Reply,
    SessionReplaced,
    SignalAsked,
)
from jackalope.core.ids import TaskId
from jackalope.core.refusals import Code, Refusal
from jackalope.core.task import Error
from tests.simulation.node import Node
from tests.simulation.world import Link, World

_LEASE_US = 15 * SECOND
_RESEND_US = 2 * SECOND


@dataclass
class Run:
    """An attempt in a worker's hands, until the broker has taken its outcome."""

    held: Held
    is_over: bool = False
    wants: int = 0


class SimWorker:
    """A worker process. Killed, it forgets everything; its name may come back."""

    longest_us = 60 * SECOND  # that one in ten tasks may take
    usual_us = 2 * SECOND  # that the others may take
    is_able = False  # whether all that it runs succeeds
    namespace = "default"
    resources: ClassVar[dict[str, int]] = {}

    def __init__(
        self,
        world: World,
        node: Node,
        name: str,
        *,
        queues: tuple[str, ...],
        keys: tuple[str, ...],
        slots: int,
        names: tuple[str, ...] | None = None,
    ) -> None:
        self.world = world
        self.node = node
        self.name = name
        self.queues = queues
        self.keys = keys
        self.names = names
        self.slots = slots
        self.link: Link | None = None
        self.runs: dict[TaskId, Run] = {}
        self.outbox: dict[int, Command] = {}
        self.helps = 0
        self.frozen_until_us = 0
        self.life = 0
        self._refs = 0
        self._generation = 0
        self._has_joined = False
        node.checker.slots[name] = slots
        node.checker.names[name] = names
        world.after(world.rng.randrange(SECOND), self._live)
        world.after(world.rng.randrange(SECOND), self._resend)

    # What happens to it.

    def _live(self) -> None:
        """Once a second: stay connected, beat, and suffer."""
        world, faults = self.world, self.world.faults
        world.after(SECOND, self._live)
        if world.chance(faults.worker_killed):
            self._die()
        elif world.chance(faults.worker_frozen):
            self.frozen_until_us = world.now_us + world.rng.randrange(world.frozen_us)
            world.say(self.name, "freezes")
        elif world.chance(faults.worker_cut) and self.link is not None:
            self.link.cut()
        elif world.chance(faults.worker_drained) and self.link is not None:
            self._leave()
        if world.now_us < self.frozen_until_us:
            return
        if self.link is None:
            self._connect()
        elif world.rng.random() < 0.3:
            self._send(Heartbeat())

    def _die(self) -> None:
        """End at once. What takes its place may have its name, or one that nobody knows."""
        self.world.say(self.name, "is killed")
        if self.world.rng.random() < 0.5:
            self.name = f"{self.name.split('.')[0]}.{self.life}"
            self.node.checker.slots[self.name] = self.slots
        self._forget()
        if self.link is not None:
            self.link.peer_knows = True
            self.link.cut()
            self.link = None

    def _leave(self) -> None:
        """Finish nothing more: hand back, and go. It comes back as a new connection."""
        self.world.say(self.name, "leaves")
        held = [run.held for run in self.runs.values() if not run.is_over]
        if held and self.world.rng.random() < 0.5:
            self._send(ReleaseAttempts(attempts=held))
        self._send(LeaveWorker())
        if self.link is not None:
            self.link.cut()
        self._forget()

    def _forget(self) -> None:
        """Begin another life, with empty hands."""
        self.life += 1
        self.helps = 0
        self.runs.clear()
        self.outbox.clear()

    def _connect(self) -> None:
        self.link = self.node.connect(self)
        if self.link is None:
            return
        self._has_joined = False
        self._generation += 1
        self._refs += 1
        self._send(
            JoinWorker(
                ref=self._refs,
                worker=self.name,
                queues=self.queues,
                keys=self.keys,
                slots=self.slots,
                holding=[run.held for run in self.runs.values()],
                lease_us=_LEASE_US,
                grace_us=self.world.rng.choice((0, 5 * SECOND)),
                generation=self._generation,
                helps=self.helps,
                names=self.names,
                namespace=self.namespace,
                resources=dict(self.resources),
            )
        )

    def cut_off(self, link: Link) -> None:
        """Notice a dead connection; the next beat makes another."""
        if link is self.link:
            self.link = None

    # What it says.

    def _send(self, command: Command) -> None:
        if self.link is not None:
            self.link.up(command)

    def _report(self, command: Command) -> None:
        """Say something that must be taken, again and again until it is answered."""
        self._refs += 1
        command.ref = self._refs
        self.outbox[self._refs] = command
        if self._has_joined:
            self._send(command)

    def _resend(self) -> None:
        self.world.after(_RESEND_US, self._resend)
        if self.world.now_us >= self.frozen_until_us and self._has_joined:
            for command in list(self.outbox.values()):
                self._send(command)

    # What it hears.

    def hear(self, link: Link, effect: Effect) -> None:
        """Act on what the broker says, when it is awake again."""
        if self.world.now_us < self.frozen_until_us:
            life = self.life
            wait_us = self.frozen_until_us - self.world.now_us
            self.world.after(
                wait_us, lambda: self.hear(link, effect) if life == self.life else None
            )
            return
        if link is not self.link:
            return
        if isinstance(effect, Reply):
            self._on_reply(effect)
            return
        message = effect.message
        if isinstance(message, Assignment):
            self._on_assignment(message)
        elif isinstance(message, SignalAsked):
            self._on_signal(message)
        elif isinstance(message, HelpAsked):
            self._on_help(message)
        elif isinstance(message, HelpRecalled):
            self._end_help(message.fence)
        elif isinstance(message, SessionReplaced | LeaseLost):
            self._reconnect()
        elif isinstance(message, DrainAsked):
            self._leave()

    def _reconnect(self) -> None:
        if self.link is not None:
            self.link.peer_knows = True
            self.link.cut()
            self.link = None

    def _on_reply(self, reply: Reply) -> None:
        body = reply.body
        if isinstance(body, Joined):
            self._has_joined = True
            for held in body.drop:
                self._drop(held)
            for run in self.runs.values():
                self._ask_for_helpers(run)
            return
        if isinstance(body, Refusal) and body.code in (Code.UNKNOWN_SESSION, Code.STALE_SESSION):
            self._reconnect()
            return
        if isinstance(body, Refusal) and body.code is Code.STORAGE_FAILED:
            return
        command = self.outbox.pop(reply.ref, None)
        if isinstance(command, FinishAttempts | FailAttempts | ReleaseAttempts):
            for attempt in command.attempts:
                self._drop(Held(attempt.task, attempt.fence))
        elif isinstance(command, AnswerSignal) and command.answer is Answer.STOPPED:
            self._drop(Held(command.task, command.fence))

    def _drop(self, held: Held) -> None:
        run = self.runs.get(held.task)
        if run is not None and run.held == held:
            del self.runs[held.task]

    # What it does.

    def _on_assignment(self, message: Assignment) -> None:
        known = self.runs.get(message.task)
        if known is not None and known.held.fence >= message.fence:
            return
        world = self.world
        run = self.runs[message.task] = Run(Held(message.task, message.fence))
        self._report(StartAttempts(ref=0, attempts=[run.held]))
        if world.rng.random() < 0.2:
            self._send(ReportProgress(ref=0, task=message.task, fence=message.fence, percent=50))
        if world.rng.random() < 0.3:
            run.wants = world.rng.randrange(1, 4)
            self._ask_for_helpers(run)
        longest_us = self.longest_us if world.rng.random() < 0.1 else self.usual_us
        life = self.life
        wait_us = world.rng.randrange(MILLISECOND, longest_us)
        world.after(wait_us, lambda: self._complete(run) if life == self.life else None)

    def _complete(self, run: Run) -> None:
        if self.world.now_us < self.frozen_until_us:
            life = self.life
            wait_us = self.frozen_until_us - self.world.now_us
            self.world.after(wait_us, lambda: self._complete(run) if life == self.life else None)
            return
        if self.runs.get(run.held.task) is not run or run.is_over:
            return
        run.is_over = True
        task, fence = run.held.task, run.held.fence
        if run.wants and self.world.rng.random() < 0.5:
            # Otherwise the end of the attempt says it.
            self._send(RequestHelpers(ref=0, task=task, fence=fence, count=0))
        mark = f"{fence}:{self.name}"
        chance = self.world.rng.random()
        if chance < 0.8 or self.is_able:
            self._report(FinishAttempts(attempts=[Finish(task, fence, mark.encode())]))
        elif chance < 0.95:
            verdict = self.world.rng.choice((Verdict.RETRY, Verdict.RETRY, Verdict.DEAD))
            error = Error("Simulated", mark)
            self._report(FailAttempts(attempts=[Fail(task, fence, error, verdict)]))
        else:
            self._report(ReleaseAttempts(attempts=[run.held]))

    def _on_signal(self, message: SignalAsked) -> None:
        run = self.runs.get(message.task)
        if run is None or run.held.fence != message.fence or run.is_over:
            return
        world = self.world
        for answer in (Answer.DELIVERED, Answer.ACKNOWLEDGED):
            self._report(AnswerSignal(ref=0, task=message.task, fence=message.fence, answer=answer))
        if world.rng.random() < 0.2:
            refused = Answer.REFUSED
            self._report(
                AnswerSignal(ref=0, task=message.task, fence=message.fence, answer=refused)
            )
            return
        run.is_over = True
        stopped = Answer.STOPPED
        self._report(AnswerSignal(ref=0, task=message.task, fence=message.fence, answer=stopped))

    # Whom it helps. What they do together, the broker does not see.

    def _ask_for_helpers(self, run: Run) -> None:
        if run.wants and not run.is_over:
            task, fence = run.held.task, run.held.fence
            count, where = run.wants, f"{self.name}:1"
            self._send(RequestHelpers(ref=0, task=task, fence=fence, count=count, where=where))

    def _on_help(self, message: HelpAsked) -> None:
        if self.helps:
            if message.fence != self.helps:
                self._send(EndHelp(ref=0, fence=message.fence, why="helps another task"))
            return
        world, life = self.world, self.life
        self.helps = message.fence
        why = "unreachable" if world.rng.random() < 0.1 else ""
        wait_us = world.rng.randrange(MILLISECOND, 10 * SECOND)
        end = lambda: self._end_help(message.fence, why) if life == self.life else None  # noqa: E731
        world.after(wait_us, end)

    def _end_help(self, fence: int, why: str = "") -> None:
        """Be free again, and say so; whoever is about to join anew says it by that."""
        if self.helps != fence:
            return
        self.helps = 0
        if self._has_joined:
            self._send(EndHelp(ref=0, fence=fence, why=why))
        else:
            self._reconnect()
