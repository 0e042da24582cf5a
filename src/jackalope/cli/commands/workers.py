"""Commands about workers: who is there, and letting one finish."""

from typing import TYPE_CHECKING, Annotated

from jackalope.cli import completion
from jackalope.cli.base import arg, opt
from jackalope.cli.formatting import age, ago, amount_text, brief, needs_text, size
from jackalope.cli.options import Every, Watch, Wide, every_s

if TYPE_CHECKING:
    from rich.console import RenderableType

    from jackalope.cli.output import Screen
    from jackalope.client.app import Jackalope
    from jackalope.wire.views import WorkerView

_LOOK_EVERY_S = 0.3


async def workers(
    client: "Jackalope",
    screen: "Screen",
    *,
    all_: Annotated[bool, opt("--all -a", "Include workers that are gone, and why.")] = False,
    watch: Watch = False,
    every: Every = "2s",
    wide: Wide = False,
) -> None:
    """List workers: what they serve, and how busy they are.

    Examples:
        jackalope workers
        jackalope workers --watch
        jackalope workers --all --format json
    """

    async def fetch() -> "list[WorkerView]":
        return [view for view in await client.workers() if all_ or view.state != "gone"]

    if wide:
        screen.widen()
    draw = _draw_workers if screen.is_wide else _draw_narrow
    await screen.watch(fetch, draw, every_s(watch, every))


def _draw_workers(views: "list[WorkerView]") -> "RenderableType":
    from jackalope.cli.output import bar, dim, state, table

    if not views:
        return dim("no workers; start one with `jackalope worker module:app`")
    has_resources = any(view.resources for view in views)
    has_labels = any(view.labels for view in views)
    more = ("~resources",) * has_resources + ("~labels",) * has_labels
    drawn = table("~worker", "state", ">load", "", "~queues", "~keys", ">heard", ">up", "~", *more)
    for view in views:
        drawn.add_row(
            brief(view.worker, 40),
            state(view.state),
            f"{view.load}/{view.slots}" if view.slots else "",
            bar(view.load, view.slots, 6, "blue"),
            brief(",".join(view.queues), 40),
            brief(",".join(view.keys), 20),
            ago(view.heard_us).removesuffix(" ago"),
            ago(view.joined_us).removesuffix(" ago"),
            f"{ago(view.gone_us)}: {view.why_gone}" if view.gone_us else _doing(view),
            *(brief(_resources(view), 60) for _ in range(has_resources)),
            *(brief(needs_text(view.labels), 60) for _ in range(has_labels)),
        )
    return drawn


def _resources(view: "WorkerView") -> str:
    """Return how much of each resource is taken, and how much there is."""
    return ", ".join(
        f"{name}={amount_text(view.used.get(name, 0))}/{amount_text(amount)}"
        for name, amount in view.resources.items()
    )


def _draw_narrow(views: "list[WorkerView]") -> "RenderableType":
    """Draw workers so that they fit a terminal of 80 columns."""
    from jackalope.cli.output import bar, cell, dim, state, table

    if not views:
        return dim("no workers; start one with `jackalope worker module:app`")
    has_keys = any(view.keys for view in views)
    keys = ("~keys",) if has_keys else ()
    drawn = table("~worker", "state", ">load", "", "~queues", *keys, ">heard", ">up", "~", gap=1)
    for view in views:
        gone = f"{age(view.gone_us)}: {view.why_gone}" if view.gone_us else ""
        drawn.add_row(
            cell(view.worker),
            state(view.state),
            f"{view.load}/{view.slots}" if view.slots else "",
            bar(view.load, view.slots, 6, "blue"),
            cell(",".join(view.queues)),
            *(cell(",".join(view.keys)) for _ in keys),
            age(view.heard_us),
            age(view.joined_us),
            cell(gone or _doing(view)),
        )
    return drawn


def _doing(view: "WorkerView") -> str:
    rss = view.stats.get("rss_bytes")
    helps = f"helps {view.helps[:8]}" if view.helps else ""
    return " ".join(filter(None, (helps, f"{size(int(rss))}" if rss else "")))


async def drain(
    client: "Jackalope",
    screen: "Screen",
    worker: Annotated[str, arg("WORKER", "The name of a worker.", complete=completion.workers)],
    wait: Annotated[bool, opt("--wait", "Wait until the worker is gone.")] = False,
) -> None:
    """Drain a worker: it gets no more tasks, finishes those it has, and leaves.

    Examples:
        jackalope drain laptop-1 --wait
    """
    import asyncio

    await client.drain_worker(worker)
    if wait:
        screen.note(f"worker {worker} drains; waiting until it is gone")
        while await _is_here(client, worker):  # noqa: ASYNC110  the broker tells no one of it
            await asyncio.sleep(_LOOK_EVERY_S)
    what = "is gone" if wait else "drains: it gets no more tasks, finishes what it has, and leaves"
    screen.show({"worker": worker, "state": "gone" if wait else "draining"}, f"{worker} {what}")


async def _is_here(client: "Jackalope", worker: str) -> bool:
    return any(view.worker == worker and view.state != "gone" for view in await client.workers())
