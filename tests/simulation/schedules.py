"""Schedules in a simulated world: a client that declares and pesters them, and what must hold.

Every slot is accounted for: it fires once, with the task that is its own, or it is counted as
missed; so slots follow each other without a gap, whatever happens to the broker.
"""

from __future__ import annotations

import random

from jackalope.core.commands import Command
from jackalope.core.commands.schedules import (
    BackfillSchedule,
    DeclareSchedule,
    DeleteSchedule,
    PauseSchedule,
    ResumeSchedule,
    TriggerSchedule,
)
from jackalope.core.durations import MILLISECOND, SECOND
from jackalope.core.effects import Effect, Reply
from jackalope.core.ids import TaskId
from jackalope.core.records import (
    AnyRecord,
    ScheduleDeclared,
    ScheduleDeleted,
    ScheduleFired,
    ScheduleResumed,
    SlotsMissed,
    TaskSubmitted,
)
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.schedule import Overlap, RunKind, ScheduleSettings, run_id
from tests.simulation.checker import Checker, demand
from tests.simulation.node import Node
from tests.simulation.world import Link, World

NAMES = ("beat", "hurry", "wait", "swap", "catch")

_SETTINGS: dict[str, dict[str, object]] = {
    "beat": {"queue": "plain", "every_us": 7 * SECOND},
    "hurry": {"queue": "hasty", "every_us": SECOND, "overlap": "skip", "catch_up": "skip"},
    "wait": {"queue": "plain", "every_us": 3 * SECOND, "overlap": "wait"},
    "swap": {"queue": "careful", "every_us": 4 * SECOND, "overlap": "replace"},
    "catch": {
        "queue": "plain",
        "every_us": 5 * SECOND,
        "jitter_us": 2 * SECOND,
        "catch_up": "all",
        "catch_up_within_us": 20 * SECOND,
    },
}


class SimPlanner:
    """A client that has schedules."""

    def __init__(self, world: World, node: Node, seed: int) -> None:
        self.name = "planner"
        self.world = world
        self.node = node
        self.link: Link | None = None
        self.outbox: dict[int, Command] = {}
        self.is_tidying = False
        self._rng = random.Random(seed)
        self._refs = 0
        for name in NAMES:
            self._ask(DeclareSchedule(name=name, changes=dict(_SETTINGS[name])))
        world.after(SECOND, self._live)

    def _live(self) -> None:
        world, rng = self.world, self._rng
        world.after(rng.randrange(100 * MILLISECOND, 4 * SECOND), self._live)
        if self.link is None:
            self.link = self.node.connect(self)
        for command in list(self.outbox.values()):
            self._send(command)
        if self.is_tidying or rng.random() < 0.5:
            return
        name, now_us = rng.choice(NAMES), self.node.clock_us()
        since_us = now_us - rng.randrange(30 * SECOND)
        changes: dict[str, object] = {"every_us": rng.randrange(1, 9) * SECOND, "jitter_us": 0}
        self._ask(
            rng.choice(
                [
                    DeclareSchedule(name=name, changes=changes),
                    DeclareSchedule(name=name, changes={"overlap": rng.choice([*Overlap])}),
                    DeclareSchedule(name=name, changes=dict(_SETTINGS[name])),
                    PauseSchedule(name=name),
                    ResumeSchedule(name=name),
                    ResumeSchedule(name=name),
                    TriggerSchedule(name=name, task=world.new_id()),
                    BackfillSchedule(name=name, since_us=since_us, until_us=now_us),
                    DeleteSchedule(name=name),
                    DeclareSchedule(name=name, changes=dict(_SETTINGS[name])),
                ]
            )
        )

    def tidy(self) -> None:
        """Delete everything, so that the world can come to an end."""
        self.is_tidying, self.outbox = True, {}
        for name in NAMES:
            self._ask(DeleteSchedule(name=name))

    def _ask(self, command: Command) -> None:
        self._refs += 1
        command.ref = self._refs
        self.outbox[command.ref] = command
        self._send(command)

    def _send(self, command: Command) -> None:
        if self.link is not None:
            command.session = self.link.session
            self.link.up(command)

    def hear(self, link: Link, effect: Effect) -> None:
        if link is not self.link or not isinstance(effect, Reply):
            return
        if isinstance(effect.body, Refusal) and effect.body.code is Code.STORAGE_FAILED:
            return
        self.outbox.pop(effect.ref, None)

    def cut_off(self, link: Link) -> None:
        if link is self.link:
            self.link = None


class ScheduleChecker(Checker):
    """A checker that follows the slots as well."""

    def __init__(self) -> None:
        super().__init__()
        self._next: dict[str, int] = {}
        self._settings: dict[str, ScheduleSettings] = {}
        self._slots: dict[tuple[str, int], TaskId] = {}
        self._tasks: dict[str, list[TaskId]] = {name: [] for name in NAMES}

    def on_durable(self, records: list[AnyRecord]) -> None:
        submitted = {each.spec.id for each in records if isinstance(each, TaskSubmitted)}
        for record in records:
            if isinstance(record, ScheduleDeclared):
                self._settings[record.name] = record.settings
                self._next[record.name] = record.next_us
            elif isinstance(record, ScheduleResumed):
                demand(record.next_us > record.at_us, "a resumed schedule looks ahead", record)
                self._next[record.name] = record.next_us
            elif isinstance(record, ScheduleDeleted):
                del self._next[record.name]
                # Another schedule of the name does not know them, but for tasks that are there.
                self._slots = {
                    slot: task
                    for slot, task in self._slots.items()
                    if slot[0] != record.name or task not in self.ended
                }
            elif isinstance(record, ScheduleFired):
                self._on_fired(record, submitted)
            elif isinstance(record, SlotsMissed):
                every_us = self._settings[record.name].every_us
                follows = self._next[record.name] + record.count * every_us
                demand(record.next_us == follows, "no slot is lost", record, self._next)
                demand(record.slot_us <= record.at_us, "only what has come is missed", record)
                self._next[record.name] = record.next_us
        super().on_durable(records)
        for record in records:
            if isinstance(record, ScheduleFired):
                self._check_overlap(record)

    def _check_overlap(self, record: ScheduleFired) -> None:
        """Demand what the schedule says about earlier tasks, however many there are of them."""
        gone = self.ended.keys() | self.purged
        earlier = [task for task in self._tasks[record.name] if task not in gone]
        self._tasks[record.name] = [*earlier, record.task]
        overlap = self._settings[record.name].overlap
        if overlap is Overlap.ALLOW or not earlier:
            return
        self.counts[f"overlap {overlap}"] += 1
        waits = self.shadow.book.tasks[record.task].waiting_for or set()
        if record.how is RunKind.BACKFILL:
            demand(earlier[-1] in waits or waits >= {*earlier}, "each waits in turn", record)
            return
        demand(overlap is not Overlap.SKIP, "no two overlap", record, earlier)
        demand(waits >= {*earlier}, "a task waits for all before it", record, earlier)
        demand(overlap is not Overlap.WAIT or len(earlier) == 1, "one waits", record, earlier)

    def _on_fired(self, record: ScheduleFired, submitted: set[TaskId]) -> None:
        demand(record.task in submitted, "a slot and its task are one batch", record)
        name, due_us = record.name, self._next[record.name]
        if record.how is RunKind.TRIGGER:
            demand(record.next_us == due_us, "a trigger moves no slot", record)
            return
        slot = (name, record.slot_us)
        is_own = record.task == run_id(record.namespace, name, record.slot_us)
        demand(is_own, "a slot has the task that is its own", record)
        demand(slot not in self._slots, "a slot fires once", record, self._slots.get(slot))
        self._slots[slot] = record.task
        if record.how is RunKind.BACKFILL:
            demand(record.slot_us < due_us and record.next_us == due_us, "only the past", record)
            return
        demand(record.slot_us <= record.at_us, "no slot fires early", record)
        demand(record.slot_us == due_us, "no slot is lost", record, due_us)
        follows = record.slot_us + self._settings[name].every_us
        demand(record.next_us == follows, "no slot is lost", record, follows)
        self._next[name] = record.next_us
