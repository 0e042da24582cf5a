"""Commands about pools: workers that are started for a key when there is work for it."""

from typing import TYPE_CHECKING, Annotated

from jackalope.cli.base import Async, Failure, arg
from jackalope.cli.formatting import brief, number
from jackalope.cli.options import Every, Watch, Yes, confirm, every_s, read_changes

if TYPE_CHECKING:
    from rich.console import RenderableType

    from jackalope.cli.output import Screen
    from jackalope.client.admin import GroupActionName
    from jackalope.client.app import Jackalope
    from jackalope.core.shapes.pool import PoolSettings
    from jackalope.wire.views import GroupView, PoolView

Queue = Annotated[str, arg("QUEUE", "The queue that the pool is for.")]
Key = Annotated[str, arg("KEY", "A key; '' for tasks without a key.")]

_STYLES = {"active": "green", "unbound": "yellow", "waiting": "yellow", "inactive": "dim"}


async def list_pools(
    client: "Jackalope", screen: "Screen", watch: Watch = False, every: Every = "2s"
) -> None:
    """List pools, which start workers on demand by key, and change them.

    Examples:
        jackalope pools
        jackalope pools show models
        jackalope pools set models launcher=local workers_max=4
        jackalope pools pin models paris
    """
    await screen.watch(client.pools, _draw_pools, every_s(watch, every))


def _draw_pools(views: "list[PoolView]") -> "RenderableType":
    from jackalope.cli.output import dim, table

    if not views:
        return dim("no pools; make one with `jackalope pools set QUEUE launcher=NAME`")
    drawn = table("~pool", "launcher", ">groups up", ">waiting", ">workers", ">launched", ">failed")
    for view in views:
        workers = sum(len(group.workers) for group in view.groups)
        drawn.add_row(
            brief(view.queue, 28),
            view.settings.launcher,
            f"{number(view.up)} of {number(view.settings.groups_max)}",
            *(number(n) if n else dim("0") for n in (view.waiting, workers)),
            *(number(n) if n else dim("0") for n in (view.launched, view.failed)),
        )
    return drawn


async def show(
    client: "Jackalope", screen: "Screen", queue: Queue, watch: Watch = False, every: Every = "2s"
) -> None:
    """Show one pool: its groups, their workers, and why any cannot be started.

    Examples:
        jackalope pools show models
        jackalope pools show models --watch
    """

    async def ask() -> "PoolView":
        views = await client.pools(queue)
        if not views:
            raise Failure(f"queue {queue!r} has no pool", "`jackalope pools` lists them")
        return views[0]

    await screen.watch(ask, _draw_pool, every_s(watch, every))


def _draw_pool(view: "PoolView") -> "RenderableType":
    from rich.console import Group

    from jackalope.cli.output import dim

    groups = (
        _draw_groups(view.groups)
        if view.groups
        else dim("no groups; the first task of a key creates one")
    )
    return Group(_draw_pools([view]), groups, _draw_settings(view.settings))


def _draw_groups(groups: "tuple[GroupView, ...]") -> "RenderableType":
    from rich.text import Text

    from jackalope.cli.output import dim, table

    drawn = table("~key", "state", ">ready", ">running", ">workers", ">rate", "~")
    for group in groups:
        states = [launch.state for launch in group.launches]
        coming = ", ".join(
            f"{states.count(state)} {state}" for state in dict.fromkeys(states) if state != "ready"
        )
        note = Text(group.trouble, "red") if group.trouble else dim(coming)
        state = Text(group.state, _STYLES.get(group.state, ""))
        drawn.add_row(
            brief(group.key, 40) if group.key else dim("(none)"),
            state.append(" pinned", "cyan") if group.is_pinned else state,
            *(number(n) if n else dim("0") for n in (group.ready, group.leased)),
            f"{len(group.workers)} of {group.wanted}",
            f"{group.rate:g}/s" if group.rate else dim("-"),
            note,
        )
    return drawn


def _draw_settings(settings: "PoolSettings") -> "RenderableType":
    from jackalope.cli.output import changes
    from jackalope.core.settings import shown
    from jackalope.core.shapes.pool import DEFAULT_POOL

    return changes("setting", shown(settings), shown(DEFAULT_POOL))


async def set_(
    client: "Jackalope",
    screen: "Screen",
    queue: Queue,
    changes: Annotated[
        list[str] | None, arg("KEY=VALUE", "Settings, such as workers_max=4 or stop_delay=1m.")
    ] = None,
) -> None:
    """Create the pool of a queue, or change its settings. Takes effect at once.

    The launcher must be in the broker's configuration. A new `version` replaces every worker, each
    when its replacement is ready.

    Examples:
        jackalope pools set models launcher=local workers_max=4 tasks_per_worker=5
        jackalope pools set models version=2024-06-01
        jackalope pools set models unbind_delay=1m stop_delay=1m
    """
    from jackalope.core.shapes.pool import PoolSettings

    settings = await client.declare_pool(queue, read_changes(PoolSettings, changes, "a pool"))
    screen.show(settings, lambda: _draw_settings(settings))


#: For each action on the workers of a key: what it does, and what is so afterwards.
_ACTIONS: "dict[GroupActionName, tuple[str, str]]" = {
    "start": ("Start the workers of a key before there is work for them.", "is started"),
    "stop": ("Stop the workers of a key that has no tasks, without the usual delays.", "stops"),
    "pin": (
        "Keep the workers of a key running, even without tasks and across restarts of the broker.",
        "stays up",
    ),
    "unpin": ("Let the workers of a key stop again when they are idle.", "stops when idle"),
}


def _command(action: "GroupActionName") -> Async:
    about, done = _ACTIONS[action]

    async def command(client: "Jackalope", screen: "Screen", queue: Queue, key: Key) -> None:
        await client.act_on_group(queue, key, action)
        data = {"queue": queue, "key": key, "action": action}
        screen.show(data, f"the group of key {key!r} of {queue} {done}")

    command.__name__ = action
    command.__doc__ = f"{about}\n\nExamples:\n    jackalope pools {action} models paris"
    return command


start, stop, pin, unpin = map(_command, _ACTIONS)


async def delete(client: "Jackalope", screen: "Screen", queue: Queue, yes: Yes = False) -> None:
    """Delete the pool of a queue. Its workers stop when they are idle.

    Examples:
        jackalope pools delete models
    """
    confirm(screen, f"delete the pool of {queue}?", is_sure=yes)
    await client.delete_pool(queue)
    screen.show({"queue": queue, "deleted": True}, f"the pool of {queue} is deleted")
