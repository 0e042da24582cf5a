"""Commands about schedules: tasks that the broker submits by itself."""

from typing import TYPE_CHECKING, Annotated, Any

from jackalope.cli import completion
from jackalope.cli.base import Exit, Failure, arg, opt
from jackalope.cli.formatting import ago, brief, id_text, moment, number
from jackalope.cli.options import Every, Watch, Yes, confirm, every_s, moment_us, read_changes

if TYPE_CHECKING:
    from rich.console import RenderableType

    from jackalope.cli.output import Screen
    from jackalope.client.app import Jackalope
    from jackalope.wire.views import ScheduleView

Name = Annotated[str, arg("NAME", "The schedule.", complete=completion.schedules)]

_STYLES = {"active": "green", "paused": "yellow", "over": "dim"}


async def list_(
    client: "Jackalope",
    screen: "Screen",
    orphaned: Annotated[
        bool, opt("--orphaned", "Only those that their application no longer declares.")
    ] = False,
    watch: Watch = False,
    every: Every = "2s",
) -> None:
    """List schedules: when each fires next, and what it has done.

    A schedule that is orphaned was declared by an application that does not declare it any more. It
    goes on until it is deleted or paused.

    Examples:
        jackalope schedules list
        jackalope schedules list --orphaned
    """

    async def ask() -> "list[ScheduleView]":
        return [view async for view in client.schedules() if view.orphaned_us or not orphaned]

    await screen.watch(ask, _draw_list, every_s(watch, every))


def _draw_list(views: "list[ScheduleView]") -> "RenderableType":
    from rich.text import Text

    from jackalope.cli.output import dim, table

    if not views:
        return dim("no schedules; make one with `jackalope schedules set NAME queue=… cron=…`")
    drawn = table("~schedule", "state", "when", "queue", "next", ">fired", ">missed", "~")
    for view in views:
        state = Text(view.state, _STYLES.get(view.state, ""))
        if view.orphaned_us:
            state.append(" orphaned", "red")
        drawn.add_row(
            brief(view.name, 40),
            state,
            _when(view),
            view.settings.queue,
            ago(view.next_us) or dim("-"),
            number(view.fired) if view.fired else dim("0"),
            number(view.missed) if view.missed else dim("0"),
            Text(brief(view.trouble, 60), "red") if view.trouble else "",
        )
    return drawn


def _when(view: "ScheduleView") -> str:
    from jackalope.core.durations import format_duration

    settings = view.settings
    if settings.cron:
        return settings.cron + (f" {settings.zone}" if settings.zone != "UTC" else "")
    if settings.every_us:
        return f"every {format_duration(settings.every_us)}"
    return f"{len(settings.times)} moments"


async def show(
    client: "Jackalope", screen: "Screen", name: Name, watch: Watch = False, every: Every = "2s"
) -> None:
    """Show one schedule: its settings, its next ten slots, and its last ten tasks.

    Examples:
        jackalope schedules show nightly
        jackalope schedules show nightly --format json | jq .upcoming
    """
    await screen.watch(lambda: client.schedule_of(name), _draw, every_s(watch, every))


def _draw(view: "ScheduleView") -> "RenderableType":
    from rich.console import Group

    from jackalope.cli.output import changes, dim, table
    from jackalope.core.settings import shown
    from jackalope.core.shapes.schedule import DEFAULT_SCHEDULE

    parts: list[Any] = [_draw_list([view]), ""]
    if view.missed:
        missed = f"missed {number(view.missed)}, the last {ago(view.missed_us)}: {view.why_missed}"
        parts += [dim(missed), ""]
    slots = table("next slots", "")
    for slot_us in view.upcoming:
        slots.add_row(_moment(slot_us), dim(ago(slot_us)))
    runs = table("last tasks", "slot", "how", "state")
    for run in view.runs:
        runs.add_row(
            id_text(run.task), _moment(run.slot_us), run.how, run.state or dim("forgotten")
        )
    settings = changes("setting", shown(view.settings), shown(DEFAULT_SCHEDULE))
    return Group(*parts, slots, "", runs, "", settings)


def _moment(at_us: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at_us / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


async def set_(
    client: "Jackalope",
    screen: "Screen",
    name: Name,
    settings: Annotated[
        list[str] | None,
        arg("KEY=VALUE", "Settings, such as queue=reports cron='0 3 * * *' zone=Europe/Berlin."),
    ] = None,
    json: Annotated[
        str | None, opt("--json ARGUMENTS", "The task's arguments: a JSON list or object.")
    ] = None,
) -> None:
    """Create a schedule, or change its settings. What is not named stays as it is.

    It has one of `cron` (minute hour day month weekday, seconds first if there are six), `every`
    and `times`. `overlap` is what to do while an earlier task runs: allow, skip, wait or replace.
    `catch_up` is what to do about slots that passed while the broker was down: skip, last or all.

    Examples:
        jackalope schedules set nightly queue=reports task=report cron='0 3 * * *' zone=Asia/Tokyo
        jackalope schedules set clean queue=chores task=clean every=10m overlap=skip --json '[7]'
        jackalope schedules set launch queue=mail task=announce times=2030-01-31T08:00
        jackalope schedules set nightly cron='30 3 * * *' catch_up=all catch_up_within=2d
    """
    from jackalope.core.shapes.schedule import ScheduleSettings

    moments = {"start": moment_us, "end": moment_us, "times": _moments}
    wanted, rest = {}, []
    for text in settings or ():
        key, _, value = text.partition("=")
        if key in moments:
            wanted[key] = moments[key](value)
        elif key == "payload":
            wanted[key] = value.encode()
        else:
            rest.append(text)
    wanted |= read_changes(ScheduleSettings, rest, "a schedule")
    if json is not None:
        wanted |= _payload(json)
    await client.manage("declare_schedule", {"name": name, "changes": wanted})
    view = await client.schedule_of(name)
    screen.show(view, lambda: _draw(view))


def _moments(text: str) -> list[int]:
    return [moment_us(each.strip()) for each in text.split(",") if each.strip()]


def _payload(text: str) -> dict[str, Any]:
    from jackalope.cli.commands.submit import read_arguments
    from jackalope.tasks.serialization import CONTENT_HEADER

    payload = read_arguments(text.encode(), "--json")
    return {"payload": payload, "headers": {CONTENT_HEADER: "json"}}


async def pause(client: "Jackalope", screen: "Screen", name: Name) -> None:
    """Pause a schedule: it submits nothing until it is resumed.

    Slots that pass meanwhile are not made up for; `backfill` does that.

    Examples:
        jackalope schedules pause nightly
    """
    await client.pause_schedule(name)
    screen.show({"schedule": name, "state": "paused"}, f"schedule {name} is paused")


async def resume(client: "Jackalope", screen: "Screen", name: Name) -> None:
    """Resume a schedule, from its next slot on.

    Examples:
        jackalope schedules resume nightly
    """
    await client.resume_schedule(name)
    view = await client.schedule_of(name)
    data = {"schedule": name, "state": view.state, "next_at": moment(view.next_us)}
    screen.show(data, f"schedule {name} is resumed; next {ago(view.next_us)}")


async def trigger(client: "Jackalope", screen: "Screen", name: Name) -> None:
    """Submit a task of a schedule now, whatever the time.

    Examples:
        jackalope schedules trigger nightly
    """
    task = id_text(await client.trigger_schedule(name))
    screen.show({"schedule": name, "task": task}, f"submitted {task}")


async def backfill(
    client: "Jackalope",
    screen: "Screen",
    name: Name,
    since: Annotated[str, arg("SINCE", "The first moment, such as 2030-01-31T08:00.")],
    until: Annotated[str, arg("UNTIL", "The last moment.")],
    *,
    again: Annotated[
        bool, opt("--again", "Also slots that fired and whose tasks are forgotten.")
    ] = False,
) -> None:
    """Submit the tasks of slots that have passed and never fired.

    Slots that fired once, and whose tasks are forgotten because their retention is over, are listed
    and left out, unless they are to run again.

    Examples:
        jackalope schedules backfill nightly 2030-01-01 2030-01-31T23:59
        jackalope schedules backfill nightly 2030-01-01 2030-01-31T23:59 --again
    """
    from datetime import UTC, datetime

    begin, end = (datetime.fromtimestamp(moment_us(t) / 1_000_000, UTC) for t in (since, until))
    done = await client.backfill_schedule(name, begin, end, again=again)
    data = {
        "schedule": name,
        "tasks": [id_text(task) for task in done.tasks],
        "known": done.known,
        "forgotten": [slot.isoformat() for slot in done.forgotten],
    }
    text = f"submitted {number(len(done.tasks))}; {number(done.known)} slots had a task"
    if done.forgotten:
        slots = ", ".join(slot.isoformat() for slot in done.forgotten)
        text += f"; fired before, and left out without --again: {slots}"
    screen.show(data, text)
    if done.refused is not None:
        raise Failure(f"not all slots: {done.refused}", code=Exit.FAILED)


async def delete(client: "Jackalope", screen: "Screen", name: Name, yes: Yes = False) -> None:
    """Delete a schedule. Its tasks stay.

    Examples:
        jackalope schedules delete nightly
    """
    confirm(screen, f"delete the schedule {name}?", is_sure=yes)
    await client.delete_schedule(name)
    screen.show({"schedule": name, "deleted": True}, f"schedule {name} is deleted")
