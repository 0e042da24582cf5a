"""Schedules over gRPC: what the broker submits by itself, and when.

Owns how the settings of a schedule stand in messages. What a schedule may be is the core's matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from jackalope.broker import queries
from jackalope.broker.client_session import of_kind
from jackalope.broker.queries import About
from jackalope.core.commands.schedules import (
    BackfillSchedule,
    DeclareSchedule,
    DeleteSchedule,
    PauseSchedule,
    ResumeSchedule,
    TriggerSchedule,
)
from jackalope.core.effects import SlotsRun
from jackalope.core.ids import id_text
from jackalope.core.shapes.schedule import CatchUp, Missed, Overlap, RunKind, ScheduleSettings
from jackalope.doors.grpc.calls import Call
from jackalope.doors.grpc.errors import BadField
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from jackalope.doors.grpc.task_messages import SAME, STATES, retry_of, retry_shown
from jackalope.doors.grpc.values import (
    Words,
    changes_in,
    from_struct,
    from_time,
    maybe_id,
    refusal_shown,
    shown_as,
    time_of,
    to_struct,
    to_time,
)
from jackalope.wire.views import RunView, ScheduleView

_PAGE_DEFAULT = 100

_OVERLAP = Words(pb.Overlap, Overlap)
_CATCH_UP = Words(pb.CatchUp, CatchUp)
_RUN_KIND = Words(pb.RunKind, RunKind)
_MISSED = Words(pb.Missed, Missed)

#: The fields of settings that are neither as in the core nor durations: how they come in.
_IN: dict[str, Callable[[pb.ScheduleSettings], object]] = {
    "headers": lambda given: from_struct(given.headers, "headers"),
    "tags": lambda given: tuple(given.tags.tags),
    "retry": lambda given: retry_of(given.retry),
    "same": lambda given: SAME.word(given.same, "same"),
    "times": lambda given: tuple(
        time_of(each, f"times.moments[{number}]") for number, each in enumerate(given.times.moments)
    ),
    "start": lambda given: _moment(given, "start"),
    "end": lambda given: _moment(given, "end"),
    "overlap": _OVERLAP.reader("overlap"),
    "catch_up": _CATCH_UP.reader("catch_up"),
}

#: And how they go out.
_OUT: dict[str, Callable[[Any], Any]] = {
    "headers": to_struct,
    "tags": lambda tags: pb.Tags(tags=tags) if tags else None,
    "retry": lambda retry: None if retry is None else retry_shown(retry),
    "same": SAME.number,
    "times": lambda times: pb.Moments(moments=_times(times)) if times else None,
    "start": to_time,
    "end": to_time,
    "overlap": _OVERLAP.number,
    "catch_up": _CATCH_UP.number,
}


def _moment(given: pb.ScheduleSettings, field: str) -> int:
    """Return a moment; the Timestamp 0 is none."""
    at = getattr(given, field)
    return from_time(given, field) if at.seconds or at.nanos else 0


def _times(moments: Iterable[int]) -> list[Timestamp]:
    return [at for moment_us in moments if (at := to_time(moment_us)) is not None]


def changes_of(given: Any) -> dict[str, object]:
    """Return the settings that are set, as the core takes them, which checks them."""
    try:
        return changes_in(given, ScheduleSettings, _IN)
    except BadField as bad:
        raise bad.below("settings") from None


def settings_shown(settings: ScheduleSettings) -> pb.ScheduleSettings:
    return shown_as(pb.ScheduleSettings, settings, _OUT)


def _run_shown(run: RunView) -> pb.ScheduleRun:
    return pb.ScheduleRun(
        slot_at=to_time(run.slot_us),
        at=to_time(run.at_us),
        task_id=id_text(run.task),
        how=_RUN_KIND.number(run.how),
        state=STATES.number(run.state),
    )


def _shown(view: ScheduleView) -> pb.Schedule:
    return pb.Schedule(
        name=view.name,
        state=f"SCHEDULE_STATE_{view.state.upper()}",
        settings=settings_shown(view.settings),
        next_at=to_time(view.next_us),
        declared_by=view.by,
        declared_at=to_time(view.changed_us),
        app=view.app,
        orphaned_at=to_time(view.orphaned_us),
        paused_by=view.paused_by,
        fired=view.fired,
        missed=view.missed,
        missed_at=to_time(view.missed_us),
        why_missed=_MISSED.number(view.why_missed),
        trouble=view.trouble,
        upcoming=_times(view.upcoming),
        runs=map(_run_shown, view.runs),
    )


class ScheduleService:
    """Schedules."""

    async def list_schedules(
        self, call: Call, request: pb.ListSchedulesRequest
    ) -> pb.ListSchedulesResponse:
        about = About(
            text=request.text, limit=request.page_size or _PAGE_DEFAULT, cursor=request.page_token
        )
        page = await call.view(queries.schedules, about)
        return pb.ListSchedulesResponse(
            schedules=map(_shown, page.schedules), next_page_token=page.cursor
        )

    async def get_schedule(
        self, call: Call, request: pb.GetScheduleRequest
    ) -> pb.GetScheduleResponse:
        return pb.GetScheduleResponse(schedule=await _schedule(call, request.name))

    async def declare_schedule(
        self, call: Call, request: pb.DeclareScheduleRequest
    ) -> pb.DeclareScheduleResponse:
        await call.ask(DeclareSchedule(name=request.name, changes=changes_of(request.settings)))
        return pb.DeclareScheduleResponse(schedule=await _schedule(call, request.name))

    async def pause_schedule(
        self, call: Call, request: pb.PauseScheduleRequest
    ) -> pb.PauseScheduleResponse:
        await call.ask(PauseSchedule(name=request.name))
        return pb.PauseScheduleResponse(schedule=await _schedule(call, request.name))

    async def resume_schedule(
        self, call: Call, request: pb.ResumeScheduleRequest
    ) -> pb.ResumeScheduleResponse:
        await call.ask(ResumeSchedule(name=request.name))
        return pb.ResumeScheduleResponse(schedule=await _schedule(call, request.name))

    async def trigger_schedule(
        self, call: Call, request: pb.TriggerScheduleRequest
    ) -> pb.TriggerScheduleResponse:
        task = maybe_id(request.task_id, "task_id")
        command = TriggerSchedule(name=request.name, task=task)
        done = of_kind(await call.ask(command), SlotsRun)
        # One that was triggered under this id before is known, and not submitted again.
        return pb.TriggerScheduleResponse(task_id=id_text(done.tasks[0] if done.tasks else task))

    async def backfill_schedule(
        self, call: Call, request: pb.BackfillScheduleRequest
    ) -> pb.BackfillScheduleResponse:
        since_us, until_us = from_time(request, "since"), from_time(request, "until")
        for field, moment_us in (("since", since_us), ("until", until_us)):
            if not moment_us:
                raise BadField(field, "must be set")
        command = BackfillSchedule(
            name=request.name, since_us=since_us, until_us=until_us, again=request.again
        )
        done = of_kind(await call.ask(command), SlotsRun)
        return pb.BackfillScheduleResponse(
            task_ids=[id_text(task) for task in done.tasks],
            known=done.known,
            refusal=None if done.refused is None else refusal_shown(done.refused),
            forgotten=_times(done.forgotten),
        )

    async def delete_schedule(
        self, call: Call, request: pb.DeleteScheduleRequest
    ) -> pb.DeleteScheduleResponse:
        await call.ask(DeleteSchedule(name=request.name))
        return pb.DeleteScheduleResponse()


async def _schedule(call: Call, name: str) -> pb.Schedule:
    return _shown(await call.view(queries.schedule, About(name=name)))
