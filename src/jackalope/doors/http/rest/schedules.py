"""Schedules over REST: what the broker submits by itself, and when."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from jackalope.broker import queries
from jackalope.broker.queries import About, Refused
from jackalope.core.commands.schedules import (
    BackfillSchedule,
    DeclareSchedule,
    DeleteSchedule,
    PauseSchedule,
    ResumeSchedule,
    TriggerSchedule,
)
from jackalope.core.durations import SECOND, parse_duration
from jackalope.core.effects import SlotsRun
from jackalope.core.ids import NO_TASK, id_text
from jackalope.core.limits import MOMENTS_PER_SCHEDULE_MAX, TAGS_PER_TASK_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.core.settings import DURATION, shown
from jackalope.core.shapes.request import Same
from jackalope.core.shapes.schedule import CatchUp, Overlap, ScheduleSettings
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.errors import ErrorBody, refusal_body
from jackalope.doors.http.request import (
    Request,
    answer,
    ask,
    nothing,
    read_body,
    read_query,
    task_id_of,
    view_of,
)
from jackalope.doors.http.rest.schemas import (
    Bytes,
    Id,
    MaybeName,
    Name,
    Priority,
    Tag,
    Time,
    about,
    from_time,
    shape_of,
    to_time,
)
from jackalope.doors.http.router import Routes, Spec
from jackalope.wire.views import RunView, ScheduleView

routes = Routes("/api/v1", has_namespace=True)


def _settings(settings: ScheduleSettings) -> dict[str, Any]:
    """Show settings: durations as text, moments as times, the payload in base64."""
    start, end = to_time(settings.start), to_time(settings.end)
    return {**shown(settings), "times": _times(settings.times), "start": start, "end": end}


def _times(moments: tuple[int, ...]) -> list[Any]:
    return [to_time(each) for each in moments]


_show_run = shape_of(
    RunView, "RunShown", "A task of a schedule; `state` is null if it is forgotten."
)

_show = shape_of(
    ScheduleView,
    "ScheduleShown",
    "A schedule: its settings, its next slots and its last tasks, which lists leave out.",
    nullable=("app", "paused_by", "why_missed", "trouble"),
    inner={"runs": _show_run},
    made={"settings": (dict[str, Any], _settings), "upcoming": (list[Time], _times)},
)

ScheduleShown: Any = _show.shown


class ScheduleList(msgspec.Struct):
    """Schedules of a namespace, by name; `cursor` requests the next page."""

    schedules: list[ScheduleShown]
    cursor: str | None


class ScheduleQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which schedules."""

    text: Annotated[str, about("Only with this text in the name.", max_length=256)] = ""
    limit: Annotated[int, about("The maximum number of items.", ge=1, le=1_000)] = 100
    cursor: Annotated[str, about("The cursor of the previous page.", max_length=1_024)] = ""


class ScheduleWanted(msgspec.Struct, forbid_unknown_fields=True):
    """The settings of a schedule that change. It has one of `cron`, `every` and `times`."""

    queue: Annotated[Name | UnsetType, about("Where to submit.")] = UNSET
    task: Annotated[MaybeName | UnsetType, about("The name of the task.")] = UNSET
    key: MaybeName | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    payload: Annotated[Bytes | UnsetType, about("The payload, in base64.")] = UNSET
    headers: dict[str, Any] | UnsetType = UNSET
    tags: Annotated[tuple[Tag, ...], Meta(max_length=TAGS_PER_TASK_MAX)] | UnsetType = UNSET
    timeout: DURATION | UnsetType = UNSET
    time_to_live: DURATION | UnsetType = UNSET
    same: Same | UnsetType | None = UNSET
    version: MaybeName | UnsetType = UNSET
    cron: Annotated[
        MaybeName | UnsetType, about("Minute, hour, day, month, weekday; or seconds before these.")
    ] = UNSET
    zone: Annotated[MaybeName | UnsetType, about("A time zone, such as Europe/Berlin.")] = UNSET
    every: DURATION | UnsetType = UNSET
    times: Annotated[tuple[Time, ...], Meta(max_length=MOMENTS_PER_SCHEDULE_MAX)] | UnsetType = (
        UNSET
    )
    start: Time | UnsetType | None = UNSET
    end: Time | UnsetType | None = UNSET
    jitter: DURATION | UnsetType = UNSET
    overlap: Overlap | UnsetType = UNSET
    catch_up: CatchUp | UnsetType = UNSET
    catch_up_within: DURATION | UnsetType = UNSET

    def changes(self) -> dict[str, object]:
        """Return the settings as the core takes them, which checks them."""
        changes: dict[str, object] = {}
        for name, value in msgspec.structs.asdict(self).items():
            if value is UNSET:
                continue
            if name in ("start", "end"):
                changes[name] = from_time(value)
            elif name == "times":
                changes[name] = [from_time(each) for each in value]
            elif f"{name}_us" in ScheduleSettings.__struct_fields__:
                is_text = isinstance(value, str)
                changes[f"{name}_us"] = parse_duration(value) if is_text else round(value * SECOND)
            else:
                changes[name] = value
        return changes


class TriggerWanted(msgspec.Struct, forbid_unknown_fields=True):
    """The task that a trigger submits."""

    task: Annotated[Id | None, about("Its id, which makes the request idempotent.")] = None


class BackfillWanted(msgspec.Struct, forbid_unknown_fields=True):
    """The time whose slots get the tasks that they lack; both ends are included."""

    since: Time
    until: Time
    again: Annotated[bool, about("Also slots that fired and whose tasks are forgotten.")] = False


class SlotsRunShown(msgspec.Struct):
    """The tasks that were submitted, and how many slots had one; `refused` if it stopped there.

    `forgotten` are the slots that were left out because they fired once, although their tasks are
    forgotten.
    """

    tasks: list[Id]
    known: int
    refused: ErrorBody | None
    forgotten: list[Time]


@routes.get("/schedules", "read_tasks", Spec(ScheduleList, query=ScheduleQuery))
async def list_schedules(request: Request) -> Response:
    """List the schedules by name."""
    query = read_query(request, ScheduleQuery)
    asked = About(text=query.text, limit=query.limit, cursor=query.cursor)
    page = await view_of(request, queries.schedules, asked)
    return answer(ScheduleList([_show(view) for view in page.schedules], page.cursor or None))


@routes.get("/schedules/{name}", "read_tasks", Spec(ScheduleShown, errors=(404,)))
async def read_schedule(request: Request, name: str) -> Response:
    """Return a schedule, with its next ten slots and its last ten tasks."""
    return answer(await _schedule(request, name))


@routes.put(
    "/schedules/{name}", "submit_tasks", Spec(ScheduleShown, body=ScheduleWanted, errors=(409,))
)
async def declare_schedule(request: Request, name: str) -> Response:
    """Create a schedule, or change one. What is not named stays as it is."""
    wanted = await read_body(request, ScheduleWanted)
    await ask(request, DeclareSchedule(name=name, changes=wanted.changes()))
    return answer(await _schedule(request, name))


@routes.delete("/schedules/{name}", "cancel_tasks", Spec(status=204, errors=(404, 409)))
async def delete_schedule(request: Request, name: str) -> Response:
    """Delete a schedule. Its tasks stay."""
    await ask(request, DeleteSchedule(name=name))
    return nothing()


@routes.post("/schedules/{name}/pause", "cancel_tasks", Spec(ScheduleShown, errors=(404, 409)))
async def pause_schedule(request: Request, name: str) -> Response:
    """Submit nothing for a schedule until it is resumed."""
    await ask(request, PauseSchedule(name=name))
    return answer(await _schedule(request, name))


@routes.post("/schedules/{name}/resume", "cancel_tasks", Spec(ScheduleShown, errors=(404, 409)))
async def resume_schedule(request: Request, name: str) -> Response:
    """Submit tasks of a schedule again, from its next slot on."""
    await ask(request, ResumeSchedule(name=name))
    return answer(await _schedule(request, name))


@routes.post(
    "/schedules/{name}/trigger",
    "submit_tasks",
    Spec(SlotsRunShown, body=TriggerWanted, errors=(404, 409)),
)
async def trigger_schedule(request: Request, name: str) -> Response:
    """Submit a task of a schedule now."""
    wanted = await read_body(request, TriggerWanted)
    task = NO_TASK if wanted.task is None else task_id_of(wanted.task)
    return _slots_run(await ask(request, TriggerSchedule(name=name, task=task)))


@routes.post(
    "/schedules/{name}/backfill",
    "submit_tasks",
    Spec(SlotsRunShown, body=BackfillWanted, errors=(404, 409)),
)
async def backfill_schedule(request: Request, name: str) -> Response:
    """Submit the tasks of slots that have passed and never fired."""
    wanted = await read_body(request, BackfillWanted)
    since_us, until_us = from_time(wanted.since), from_time(wanted.until)
    command = BackfillSchedule(name=name, since_us=since_us, until_us=until_us, again=wanted.again)
    return _slots_run(await ask(request, command))


def _slots_run(body: object) -> Response:
    if not isinstance(body, SlotsRun):
        raise Refused(Refusal(Code.INTERNAL, "the broker did not say what it submitted"))
    refused = None if body.refused is None else refusal_body(body.refused)
    forgotten = [at for at in map(to_time, body.forgotten) if at is not None]
    tasks = [id_text(task) for task in body.tasks]
    return answer(SlotsRunShown(tasks, body.known, refused, forgotten))


async def _schedule(request: Request, name: str) -> msgspec.Struct:
    return _show(await view_of(request, queries.schedule, About(name=name)))
