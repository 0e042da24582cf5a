"""Schedules: tasks that the broker submits by itself, at the times that were asked for."""

from jackalope.core.commands.schedules import (
    BackfillSchedule,
    DeclareSchedule,
    DeclareSchedules,
    DeleteSchedule,
    PauseSchedule,
    ResumeSchedule,
    TriggerSchedule,
)
from jackalope.core.context import Deadline, Room
from jackalope.core.schedules import declarations, firing, slots

ROOM = Room(
    handlers={
        DeclareSchedule: declarations.declare_schedule,
        DeclareSchedules: declarations.declare_schedules,
        PauseSchedule: declarations.pause_schedule,
        ResumeSchedule: declarations.resume_schedule,
        DeleteSchedule: declarations.delete_schedule,
        TriggerSchedule: firing.trigger_schedule,
        BackfillSchedule: firing.backfill_schedule,
    },
    missing={TriggerSchedule: firing.missing_task, BackfillSchedule: firing.missing_tasks},
    deadlines=(Deadline(lambda ctx: ctx.own(slots.Due).timers, firing.come_due),),
    recovered=slots.arm_all,
)
