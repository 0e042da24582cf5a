"""What records about schedules mean for the book. A part of `apply`; it decides nothing."""

from __future__ import annotations

import msgspec

from jackalope.core.lifecycle import ENDED
from jackalope.core.limits import RUNS_PER_SCHEDULE_MAX
from jackalope.core.records import (
    ScheduleDeclared,
    ScheduleDeleted,
    ScheduleFired,
    ScheduleOrphaned,
    SchedulePaused,
    ScheduleResumed,
    SlotsMissed,
)
from jackalope.core.shapes.schedule import Run, RunKind, Schedule, with_slot
from jackalope.core.state.book import Book


def schedule_declared(book: Book, record: ScheduleDeclared) -> None:
    schedules = book.namespace(record.namespace).schedules
    schedule = schedules.get(record.name)
    if schedule is None:
        name = (record.namespace, record.name)
        schedule = schedules[record.name] = Schedule(*name, record.settings, "", 0, 0, 0)
    schedule.settings, schedule.by, schedule.app = record.settings, record.by, record.app
    schedule.anchor_us, schedule.changed_us = record.anchor_us, record.at_us
    schedule.next_us, schedule.orphaned_us = record.next_us, 0
    _mark(book, schedule)


def schedule_deleted(book: Book, record: ScheduleDeleted) -> None:
    del book.namespaces[record.namespace].schedules[record.name]
    book.entities_dirty["schedule", record.namespace, record.name] = None


def schedule_paused(book: Book, record: SchedulePaused) -> None:
    schedule = _found(book, record)
    schedule.paused_by = record.by
    _mark(book, schedule)


def schedule_resumed(book: Book, record: ScheduleResumed) -> None:
    schedule = _found(book, record)
    schedule.paused_by, schedule.next_us = "", record.next_us
    _mark(book, schedule)


def schedule_orphaned(book: Book, record: ScheduleOrphaned) -> None:
    schedule = _found(book, record)
    schedule.orphaned_us = record.at_us
    _mark(book, schedule)


def schedule_fired(book: Book, record: ScheduleFired) -> None:
    schedule = _found(book, record)
    run = Run(record.slot_us, record.at_us, record.task, record.how)
    schedule.runs = (*schedule.runs[1 - RUNS_PER_SCHEDULE_MAX :], run)
    schedule.next_us = record.next_us
    schedule.fired += 1
    _mark(book, schedule)
    if record.after_us < 0:
        return  # Nodes of earlier levels know nothing of the rest.
    if record.how is not RunKind.TRIGGER:
        schedule.spans = with_slot(schedule.spans, record.slot_us, record.after_us)
    task = book.tasks.get(record.task)
    if task is not None and task.state not in ENDED and not task.options.schedule:
        task.options = msgspec.structs.replace(task.options, schedule=record.name)
        task.queue.namespace.runs.setdefault(record.name, {})[task.id] = None
        book.mark((task,))


def slots_missed(book: Book, record: SlotsMissed) -> None:
    schedule = _found(book, record)
    schedule.missed += record.count
    schedule.missed_us, schedule.next_us = record.slot_us, record.next_us
    schedule.why_missed = f"{record.why}: {record.detail}" if record.detail else record.why.value
    _mark(book, schedule)


def _found(
    book: Book,
    record: SchedulePaused | ScheduleResumed | ScheduleOrphaned | ScheduleFired | SlotsMissed,
) -> Schedule:
    return book.namespaces[record.namespace].schedules[record.name]


def _mark(book: Book, schedule: Schedule) -> None:
    book.entities_dirty["schedule", schedule.namespace, schedule.name] = schedule
