"""Commands about pools: workers that are started for a key when there is work for it."""

from typing import TYPE_CHECKING, Annotated

from jackalope.cli.base import Failure, arg
from jackalope.cli.options import Every, Watch, Yes, every_s, read_changes

if TYPE_CHECKING:
    from rich.console import RenderableType

    from jackalope.cli.output import Screen
    from jackalope.client.admin import GroupActionName
    from jackalope.client.app import Jackalope
    from jackalope.core.shapes.pool import PoolSettings
    from jackalope.wire.views import GroupView, PoolView

Queue = Annotated[str, arg("QUEUE", "The queue that the pool is for.")]
Key = Annotated[str, arg("KEY", "A key; '' for tasks without.")]

_STYLES = {"active": "green", "unbound": "yellow", "waiting": "yellow", "inactive": "dim"}


async def list_pools(
    client: "Jackalope", screen: "Screen", watch: Watch = False, every: Every = "2s"
) -> None:
    """List pools: workers that are started when work for their key arrives; and change them.

    Examples:
        jackalope pools
        jackalope pools show models
        jackalope pools set models launcher=local workers_max=4
        jackalope pools pin models paris
    """
    from jackalope.cli.plain_data import to_plain

    await screen.watch(client.pools, to_plain, _draw_pools, every_s(watch, every))


def _draw_pools(views: "list[PoolView]") -> "RenderableType":
    from jackalope.cli.formatting import brief, number
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
    """Show one pool: its groups, their workers, and what keeps any from being started.

    Examples:
        jackalope pools show models
        jackalope pools show models --watch
    """
    from jackalope.cli.plain_data import to_plain

    async def ask() -> "PoolView":
        views = await client.pools(queue)
        if not views:
            raise Failure(f"queue {queue!r} has no pool", "`jackalope pools` lists them")
        return views[0]

    await screen.watch(ask, to_plain, _draw_pool, every_s(watch, every))


def _draw_pool(view: "PoolView") -> "RenderableType":
    from rich.console import Group

    from jackalope.cli.output import dim

    groups = _draw_groups(view.groups) if view.groups else dim("no groups; a task makes one")
    return Group(_draw_pools([view]), groups, _draw_settings(view.settings))


def _draw_groups(groups: "tuple[GroupView, ...]") -> "RenderableType":
    from rich.text import Text

    from jackalope.cli.formatting import brief, number
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
    """Have workers started for a queue, or change how; it takes effect at once.

    The launcher is one of the broker's configuration. Another `version` replaces every worker, each
    when its substitute is ready.

    Examples:
        jackalope pools set models launcher=local workers_max=4 tasks_per_worker=5
        jackalope pools set models version=2024-06-01
        jackalope pools set models unbind_delay=1m stop_delay=1m
    """
    from jackalope.cli.plain_data import to_plain
    from jackalope.core.shapes.pool import PoolSettings

    settings = await client.declare_pool(queue, read_changes(PoolSettings, changes, "a pool"))
    screen.show(to_plain(settings), lambda: _draw_settings(settings))


async def _act(
    client: "Jackalope", screen: "Screen", queue: str, key: str, action: "GroupActionName"
) -> None:
    await client.act_on_group(queue, key, action)
    done = {"start": "is started", "stop": "stops", "pin": "stays up", "unpin": "stops when idle"}
    about = {"queue": queue, "key": key, "action": action}
    screen.show(about, f"the group of key {key!r} of {queue} {done[action]}")


async def start(client: "Jackalope", screen: "Screen", queue: Queue, key: Key) -> None:
    """Start the workers of a key before there is work for them.

    Examples:
        jackalope pools start models paris
    """
    await _act(client, screen, queue, key, "start")


async def stop(client: "Jackalope", screen: "Screen", queue: Queue, key: Key) -> None:
    """Stop the workers of a key that has no tasks, without waiting for the delays.

    Examples:
        jackalope pools stop models paris
    """
    await _act(client, screen, queue, key, "stop")


async def pin(client: "Jackalope", screen: "Screen", queue: Queue, key: Key) -> None:
    """Let the workers of a key stay up, also without tasks and over restarts of the broker.

    Examples:
        jackalope pools pin models paris
    """
    await _act(client, screen, queue, key, "pin")


async def unpin(client: "Jackalope", screen: "Screen", queue: Queue, key: Key) -> None:
    """Let the workers of a key stop again when they have nothing to do.

    Examples:
        jackalope pools unpin models paris
    """
    await _act(client, screen, queue, key, "unpin")


async def delete(client: "Jackalope", screen: "Screen", queue: Queue, yes: Yes = False) -> None:
    """Have no more workers started for a queue. Those there are go when they are idle.

    Examples:
        jackalope pools delete models
    """
    if not screen.confirm(f"delete the pool of {queue}?", is_sure=yes):
        raise Failure("nothing was changed", "say --yes to do it without being asked")
    await client.delete_pool(queue)
    screen.show({"queue": queue, "deleted": True}, f"the pool of {queue} is deleted")
