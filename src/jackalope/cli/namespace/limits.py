"""Commands about limits: of tags, and by key."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from jackalope.cli import completion
from jackalope.cli.base import Exit, Failure, Options, arg, opt
from jackalope.cli.formatting import ago, brief, number
from jackalope.cli.options import Every, Watch, Wide, Yes, confirm, every_s, read_changes

if TYPE_CHECKING:
    from rich.console import RenderableType

    from jackalope.cli.output import Screen
    from jackalope.client.app import Jackalope
    from jackalope.wire.views import KeyLimitView, LimitView

    View = LimitView | KeyLimitView

Name = Annotated[str, arg("NAME", "The limit: its name, or a tag.", complete=completion.limits)]
Tag = Annotated[str, arg("TAG", "A tag.", complete=completion.limited_tags)]


async def list_(
    client: "Jackalope",
    screen: "Screen",
    wide: Wide = False,
    watch: Watch = False,
    every: Every = "2s",
) -> None:
    """List limits, by key and of tags: what runs, what waits, and when each opens.

    A limit bounds how many tasks with the same values of some keys run at once, and how many start
    in a span of time. The limit of a tag bounds how many tasks with that tag run at once.

    Examples:
        jackalope limits
        jackalope limits --wide --watch
        jackalope limits set per-user --queue mail --key user --concurrency 2
        jackalope limits set gpu 4
        jackalope limits show per-user
        jackalope limits delete per-user
    """
    if wide:
        screen.widen()
    draw = partial(_draw_list, is_wide=wide)
    await screen.watch(lambda: _all(client), draw, every_s(watch, every))


async def _all(client: "Jackalope") -> "list[View]":
    return [*await client.limits(), *await client.key_limits()]


def _draw_list(views: "Sequence[View]", *, is_wide: bool = False) -> "RenderableType":
    from rich.text import Text

    from jackalope.cli.output import cell, dim, table

    if not views:
        return dim("no limits; set one with `jackalope limits set NAME --key KEY --concurrency N`")
    more = ["~queue", "~task", ">burst", "cost", "on full", ">values"] if is_wide else []
    drawn = table("~limit", "~by", ">at once", ">rate", ">running", ">waiting", ">opens", *more)
    for view in views:
        row = _row(view)
        drawn.add_row(
            cell(row.name),
            cell(row.by),
            row.at_once or dim("-"),
            row.rate or dim("-"),
            number(row.running) if row.running else dim("0"),
            Text(number(row.waiting), "yellow") if row.waiting else dim("0"),
            ago(row.opens_us) or dim("-"),
            *(row.more if is_wide else ()),
        )
    return drawn


@dataclass
class _Row:
    """What a list has of a limit, of either kind."""

    name: str
    by: str
    at_once: str
    rate: str
    running: int
    waiting: int = 0
    opens_us: int = 0
    more: tuple[str, ...] = ("", "", "", "", "", "")


def _row(view: "View") -> _Row:
    from jackalope.core.durations import format_duration
    from jackalope.core.shapes.limit import UNBOUNDED
    from jackalope.wire.views import LimitView

    if isinstance(view, LimitView):
        return _Row(view.tag, "tag", number(view.limit), "", view.in_flight, view.waiting)
    has = view.settings
    return _Row(
        view.name,
        ", ".join(has.keys) or "all",
        "" if has.concurrency == UNBOUNDED else number(has.concurrency),
        f"{number(has.rate)}/{format_duration(has.per_us)}" if has.rate else "",
        view.in_flight,
        view.waiting,
        view.opens_us,
        (
            brief(has.queue, 40),
            brief(has.task, 40),
            number(has.tokens_max) if has.rate else "",
            has.cost_key or str(has.cost) if has.rate else "",
            has.on_full.value,
            number(view.gate_count),
        ),
    )


async def show(
    client: "Jackalope", screen: "Screen", name: Name, watch: Watch = False, every: Every = "2s"
) -> None:
    """Show one limit: its use, its busiest values, and its settings.

    Examples:
        jackalope limits show per-user
        jackalope limits show per-user --format json | jq '.gates[0].values'
    """
    await screen.watch(lambda: _one(client, name), _draw, every_s(watch, every))


async def _one(client: "Jackalope", name: str) -> "View":
    """Find a limit by key, or else the limit of a tag."""
    for by_key in await client.key_limits():
        if by_key.name == name:
            return by_key
    for of_tag in await client.limits():
        if of_tag.tag == name:
            return of_tag
    raise Failure(f"no limit {name!r}", "`jackalope limits` lists them")


def _draw(view: "View") -> "RenderableType":
    from rich.console import Group

    from jackalope.cli.output import changes, dim
    from jackalope.core.settings import shown
    from jackalope.core.shapes.limit import UNBOUNDED, LimitSettings
    from jackalope.wire.views import LimitView

    if isinstance(view, LimitView):
        return _draw_list([view])
    parts = [_draw_list([view]), "", *_draw_values(view)]
    if view.settings.concurrency == UNBOUNDED and not view.settings.rate:
        parts += [dim("bounds nothing by itself: workers close its values with Throttled"), ""]
    return Group(*parts, changes("setting", shown(view.settings), shown(LimitSettings())))


def _draw_values(view: "KeyLimitView") -> "list[RenderableType]":
    from jackalope.cli.output import dim, table

    if not view.settings.keys or not view.gates:
        return []
    drawn = table(*(f"~{key}" for key in view.settings.keys), ">running", ">waiting", ">opens")
    for each in view.gates:
        values = (brief(value, 40) for value in each.values)
        opens = ago(each.opens_us) or dim("-")
        drawn.add_row(*values, number(each.in_flight), number(each.waiting), opens)
    more = view.gate_count - len(view.gates)
    return [drawn, *([dim(f"and {number(more)} values more")] if more else []), ""]


_BOUNDS = "Limits by key"


@dataclass
class Bounds(Options):
    """The settings of a limit by key. None where one was not given."""

    key: Annotated[
        list[str] | None,
        opt("--key KEY", "Count tasks apart by this key. Repeatable; '' for none.", _BOUNDS),
    ] = None
    concurrency: Annotated[
        str | None, opt("--concurrency N", "How many run at once; -1 for any number.", _BOUNDS)
    ] = None
    rate: Annotated[
        str | None, opt("--rate N", "How many start in each period; 0 for any number.", _BOUNDS)
    ] = None
    per: Annotated[
        str | None, opt("--per DURATION", "The period of the rate, such as 1m.", _BOUNDS)
    ] = None
    burst: Annotated[
        str | None,
        opt("--burst N", "How many may start together; 0 for as many as the rate.", _BOUNDS),
    ] = None
    cost: Annotated[
        str | None,
        opt("--cost N|KEY", "How much of the rate a task takes, or its key with that.", _BOUNDS),
    ] = None
    on_full: Annotated[
        str | None,
        opt(
            "--on-full CHOICE",
            "What happens while as many run as may: wait, cancel_newest, cancel_oldest, "
            "cancel_running.",
            _BOUNDS,
            complete=["wait", "cancel_newest", "cancel_oldest", "cancel_running"],
        ),
    ] = None
    queue: Annotated[
        str | None,
        opt(
            "--queue -q QUEUE",
            "Only tasks of this queue; '' for all.",
            _BOUNDS,
            complete=completion.queues,
        ),
    ] = None
    task: Annotated[
        str | None,
        opt(
            "--task NAME",
            "Only tasks of this name; '' for any.",
            _BOUNDS,
            complete=completion.task_names,
        ),
    ] = None

    def changes(self) -> dict[str, Any]:
        """Return what is given, as the broker takes it."""
        from jackalope.core.shapes.limit import LimitSettings

        given = {name: value for name, value in vars(self).items() if value is not None}
        keys, cost = given.pop("key", None), given.get("cost")
        if cost is not None and not cost.lstrip("-").isdecimal():
            given["cost"], given["cost_key"] = "1", cost
        elif cost is not None:
            given["cost_key"] = ""
        texts = [f"{name}={value}" for name, value in given.items()]
        changes = read_changes(LimitSettings, texts, "a limit")
        return changes if keys is None else changes | {"keys": [key for key in keys if key]}


async def set_(
    client: "Jackalope",
    screen: "Screen",
    name: Name,
    limit: Annotated[
        int | None, arg("[N]", "Of a tag: how many of its tasks run at once; 0 for none.", min=0)
    ] = None,
    *,
    bounds: Bounds,
) -> None:
    """Create a limit, or change one. What is not given stays as it is. Takes effect at once.

    With a number alone it is the limit of a tag. Else it is a limit by key: tasks with equal values
    of the keys share its bounds. The value of a key is the argument of that name, or what was given
    with `submit --keys`; tasks that lack a key are not limited.

    Examples:
        jackalope limits set per-user --queue mail --key user --concurrency 2
        jackalope limits set per-host --key host --rate 100 --per 1m --burst 20
        jackalope limits set model --key model --rate 90000 --per 1m --cost tokens
        jackalope limits set sync --key tenant --key user --concurrency 1 --on-full cancel_oldest
        jackalope limits set per-user --concurrency 5
        jackalope limits set gpu 4
    """
    changes = bounds.changes()
    if (limit is None) == (not changes):
        raise Failure(
            "give a number for the limit of a tag, or options such as --key and --concurrency for "
            f"a limit by key{', not both' if changes else ''}",
            code=Exit.USAGE,
        )
    if limit is not None:
        await client.limit_tag(name, limit)
        screen.show({"tag": name, "limit": limit}, f"tag {name}: at most {limit} at once")
        return
    await client.manage("declare_limits", {"limits": {name: changes}})
    view = await _one(client, name)
    screen.show(view, lambda: _draw(view))


async def delete(client: "Jackalope", screen: "Screen", name: Name, yes: Yes = False) -> None:
    """Delete a limit by key, or that of a tag. What waits for it alone can start.

    Examples:
        jackalope limits delete per-user
        jackalope limits delete per-user --yes
    """
    from jackalope.wire.views import LimitView

    view = await _one(client, name)
    confirm(screen, f"delete the limit {name}?", is_sure=yes)
    if isinstance(view, LimitView):
        await client.limit_tag(name, None)
    else:
        await client.delete_limit(name)
    screen.show({"limit": name, "deleted": True}, f"limit {name} is deleted")


async def remove(client: "Jackalope", screen: "Screen", tag: Tag) -> None:
    """Remove the limit of a tag.

    Examples:
        jackalope limits remove gpu
    """
    await client.limit_tag(tag, None)
    screen.show({"tag": tag, "limit": None}, f"the limit of tag {tag} is removed")
