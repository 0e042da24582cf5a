"""Commands that show the broker in numbers: stats, queue-depth, cluster-status."""

from typing import TYPE_CHECKING, Any

from jackalope.cli.formatting import ago, brief, number, span, tally
from jackalope.cli.options import Every, Watch, every_s

if TYPE_CHECKING:
    from rich.console import RenderableType

    from jackalope.cli.output import Screen
    from jackalope.client.app import Jackalope
    from jackalope.wire.views import QueueView, StatsView

_TIER_COLOURS = {"high": "red", "normal": "cyan", "low": "bright_black"}
_BAR_COLUMNS = 40


# Everything at a glance.


async def stats(
    client: "Jackalope", screen: "Screen", watch: Watch = False, every: Every = "2s"
) -> None:
    """Show an overview: tasks by state, workers, rates.

    Examples:
        jackalope stats
        jackalope stats --watch --every 500ms
        jackalope stats --format json | jq .counts.ready
    """
    before: list[StatsView] = []

    async def fetch() -> "tuple[StatsView, StatsView | None]":
        view = await client.stats()
        last = before[-1] if before else None
        before[:] = [view]
        return view, last

    await screen.watch(
        fetch, lambda pair: _draw_stats(*pair), every_s(watch, every), lambda pair: pair[0]
    )


def _draw_stats(view: "StatsView", last: "StatsView | None") -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    from jackalope.cli.output import STATE_COLOURS, bar, dim, facts, state, table

    head = facts(
        [
            ("broker", f"jackalope {view.version}, up {span(view.now_us - view.started_us)}"),
            ("durability", view.durability),
            ("workers", number(view.workers)),
            ("sessions", number(view.sessions)),
            ("journal", f"batch {number(view.sequence)}"),
        ]
    )
    most = max(view.counts.values(), default=0)
    drawn = table("unfinished", ">tasks", "")
    for each, count in view.counts.items():
        drawn.add_row(state(each), number(count), bar(count, most, 40, STATE_COLOURS[each]))
    if not view.counts:
        drawn.add_row(dim("none"), "0", "")
    ended = table("ended since the start", ">tasks", ">a second")
    for name in ("succeeded", "dead", "killed"):
        count = tally(view.ended, name)
        rate = _rate(view, last, name)
        ended.add_row(state(name), number(count), "" if rate is None else number(rate))
    tiers = Text("\nwaiting by priority  ", style="bold")
    for name, count in view.depth_by_tier.items():
        tiers.append(f" {name} ", style="not bold bright_black")
        tiers.append(number(count), style=f"not bold {_TIER_COLOURS.get(name, '')}")
    return Group(head, "", drawn, "", ended, tiers)


def _rate(view: "StatsView", last: "StatsView | None", name: Any) -> float | None:
    if last is None or view.now_us <= last.now_us:
        return None
    return (view.ended.get(name, 0) - last.ended.get(name, 0)) * 1e6 / (view.now_us - last.now_us)


# Depth.


async def queue_depth(
    client: "Jackalope", screen: "Screen", watch: Watch = False, every: Every = "1s"
) -> None:
    """Draw how many tasks wait, by queue and by priority.

    Examples:
        jackalope queue-depth --watch
        jackalope queue-depth --format json
    """

    async def fetch() -> "tuple[list[QueueView], StatsView]":
        return await client.queues(), await client.stats()

    def plain(answer: "tuple[list[QueueView], StatsView]") -> Any:
        views, numbers = answer
        return {
            "queues": {view.queue: view.depth for view in views},
            "depth_by_tier": dict(numbers.depth_by_tier),
            "total": sum(view.depth for view in views),
        }

    await screen.watch(fetch, _draw_depth, every_s(watch, every), plain)


def _draw_depth(answer: "tuple[list[QueueView], StatsView]") -> "RenderableType":
    from rich.console import Group

    from jackalope.cli.output import bar, dim, table

    views, numbers = answer
    most = max((view.depth for view in views), default=0)
    queues = table("~queue", ">depth", "", ">oldest")
    for view in sorted(views, key=lambda view: -view.depth):
        limit = view.policy.depth_limit
        is_filling = limit and view.depth >= 0.8 * limit
        style = "yellow" if view.paused_by else "red" if is_filling else "cyan"
        queues.add_row(
            brief(view.queue, 32),
            number(view.depth),
            bar(view.depth, most, _BAR_COLUMNS, style),
            dim(ago(view.oldest_ready_us).removesuffix(" ago")),
        )
    if not views:
        return dim("no queues")
    tiers = table("priority", ">ready", "")
    most = max(numbers.depth_by_tier.values(), default=0)
    for name, count in numbers.depth_by_tier.items():
        tiers.add_row(
            name, number(count), bar(count, most, _BAR_COLUMNS, _TIER_COLOURS.get(name, "cyan"))
        )
    return Group(queues, "", tiers)


# The cluster.


async def cluster_status(client: "Jackalope", screen: "Screen") -> None:
    """Show the broker that answers. `cluster status` shows all nodes of a cluster.

    Examples:
        jackalope cluster-status
    """
    view = await client.stats()
    connection = await client.session().connected()
    address = f"{connection.address.host}:{connection.address.port}"
    is_replicated = connection.welcome.epoch > 0
    role = "leader" if is_replicated else "single"
    node = {
        "node": address,
        "role": role,
        "version": view.version,
        "durability": view.durability,
        "sequence": view.sequence,
        "started_us": view.started_us,
    }
    data = {"is_replicated": is_replicated, "nodes": [node]}
    screen.show(data, lambda: _draw_cluster(address, role, view))


def _draw_cluster(address: str, role: str, view: "StatsView") -> "RenderableType":
    from rich.console import Group

    from jackalope.cli.output import dim, table

    drawn = table("node", "role", "version", "durability", ">batch", ">up")
    drawn.add_row(
        address,
        role,
        view.version,
        view.durability,
        number(view.sequence),
        span(view.now_us - view.started_us),
    )
    return Group(drawn, dim("The node that answers; `jackalope cluster status` shows a cluster."))
