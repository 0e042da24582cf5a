"""Commands about queues: their policies, batches and depth."""

from typing import TYPE_CHECKING, Annotated

from jackalope.cli import completion
from jackalope.cli.base import Failure, arg, opt
from jackalope.cli.formatting import ago, brief, number, tally
from jackalope.cli.options import Every, Watch, Yes, confirm, every_s, read_changes

if TYPE_CHECKING:
    from rich.console import RenderableType

    from jackalope.cli.output import Screen
    from jackalope.client.app import Jackalope
    from jackalope.core.policy import Policy
    from jackalope.wire.views import BatchView, QueueView

Queue = Annotated[str, arg("QUEUE", "The name of a queue.", complete=completion.queues)]

#: The columns of counts, and what each adds up.
_COUNTED = {
    "ready": ("ready",),
    "running": ("assigned", "running"),
    "later": ("scheduled", "waiting"),
    "stopped": ("held", "paused"),
}

#: How many shares of a queue are drawn, those with the most tasks first.
_SHARES_DRAWN = 20


# Queues.


async def list_queues(
    client: "Jackalope", screen: "Screen", watch: Watch = False, every: Every = "2s"
) -> None:
    """List queues and their tasks by state, and change them.

    Examples:
        jackalope queues
        jackalope queues --watch
        jackalope queues set images --preset gridlike retries=5 retry_base=10s
        jackalope queues pause images
    """
    await screen.watch(client.queues, _draw_queues, every_s(watch, every))


def _draw_queues(views: "list[QueueView]") -> "RenderableType":
    from rich.text import Text

    from jackalope.cli.output import dim, table

    if not views:
        return dim("no queues; the first task of a queue creates it")
    drawn = table(
        "~queue", ">depth", *(f">{name}" for name in _COUNTED), ">workers", ">oldest", "~"
    )
    for view in views:
        counts = [tally(view.counts, *states) for states in _COUNTED.values()]
        note = Text(f"paused by {brief(view.paused_by, 30)}", "yellow") if view.paused_by else ""
        if not note and view.depth and not view.workers:
            note = Text("no worker", "red")
        drawn.add_row(
            brief(view.queue, 28),
            number(view.depth) if view.depth else dim("0"),
            *(number(count) if count else dim("0") for count in counts),
            str(view.workers) if view.workers else dim("0"),
            ago(view.oldest_ready_us).removesuffix(" ago"),
            note,
        )
    return drawn


async def show(client: "Jackalope", screen: "Screen", queue: Queue) -> None:
    """Show one queue and its policy; values that differ from the default are highlighted.

    Examples:
        jackalope queues show images
    """
    from rich.console import Group

    views = await client.queues(queue)
    if not views:
        raise Failure(f"no queue {queue!r}", "`jackalope queues` lists them")
    view = views[0]
    screen.show(
        view, lambda: Group(_draw_queues([view]), *_draw_shares(view), _draw_policy(view.policy))
    )


def _draw_shares(view: "QueueView") -> "list[RenderableType]":
    from jackalope.cli.output import dim, table

    if not view.share_count:
        return []
    drawn = table(f"~{view.policy.fair_by}", ">ready", ">weight")
    for each in view.shares[:_SHARES_DRAWN]:
        drawn.add_row(brief(each.share, 40) or dim("none"), number(each.ready), str(each.weight))
    more = view.share_count - min(len(view.shares), _SHARES_DRAWN)
    return [drawn, dim(f"and {number(more)} shares more")] if more else [drawn]


def _draw_policy(policy: "Policy") -> "RenderableType":
    from jackalope.cli.output import changes
    from jackalope.core.policy import DEFAULT_POLICY
    from jackalope.core.settings import shown

    return changes("policy", shown(policy), shown(DEFAULT_POLICY))


async def set_(
    client: "Jackalope",
    screen: "Screen",
    queue: Queue,
    changes: Annotated[
        list[str] | None,
        arg("KEY=VALUE", "Fields of the policy, such as retries=5 or retention=1d."),
    ] = None,
    preset: Annotated[str, opt("--preset PRESET", "Start from this preset.")] = "",
) -> None:
    """Create a queue, or change its policy. Takes effect at once.

    A preset replaces the whole policy before the given fields change it. Presets and fields are the
    same as in the configuration file.

    Examples:
        jackalope queues set images retries=5 retry_base=10s
        jackalope queues set answers --preset rpc time_to_live=30s
        jackalope queues set archive retention=forever
        jackalope queues set images fair_by=tenant fair_weights=acme=5,zenith=2
    """
    from rich.console import Group

    from jackalope.core.policy import Policy

    wanted = read_changes(Policy, changes, "a policy")
    policy = await client.declare_queue(queue, preset=preset, changes=wanted)
    screen.show(policy, lambda: Group(f"queue {queue} is set", _draw_policy(policy)))


async def pause(client: "Jackalope", screen: "Screen", queue: Queue) -> None:
    """Pause a queue: assign none of its tasks until it is resumed. Running tasks continue.

    Examples:
        jackalope queues pause images
    """
    await client.pause_queue(queue)
    screen.show(
        {"queue": queue, "paused": True}, f"queue {queue} is paused; running tasks continue"
    )


async def resume(client: "Jackalope", screen: "Screen", queue: Queue) -> None:
    """Resume a queue: assign its tasks again.

    Examples:
        jackalope queues resume images
    """
    await client.resume_queue(queue)
    screen.show({"queue": queue, "paused": False}, f"queue {queue} is resumed")


async def delete(client: "Jackalope", screen: "Screen", queue: Queue, yes: Yes = False) -> None:
    """Delete a queue that has no unfinished tasks.

    Examples:
        jackalope queues delete images
    """
    confirm(screen, f"delete queue {queue}?", is_sure=yes)
    await client.delete_queue(queue)
    screen.show({"queue": queue, "deleted": True}, f"queue {queue} is deleted")


# Batches.


async def batches(
    client: "Jackalope",
    screen: "Screen",
    queue: Queue,
    limit: Annotated[
        int, opt("--limit -l", "The maximum number of batches.", min=1, max=1_000)
    ] = 20,
    before: Annotated[
        int, opt("--before NUMBER", "Only batches before this number.", default=False)
    ] = 0,
) -> None:
    """List the batches of a queue, the latest first.

    Tasks are put into batches in the order of their arrival; a full batch never changes.

    Examples:
        jackalope batches images
        jackalope list --queue images --batch 7
    """
    views = await client.batches(queue, limit=limit, before=before)
    screen.show(views, lambda: _draw_batches(views))


def _draw_batches(views: "list[BatchView]") -> "RenderableType":
    from jackalope.cli.output import dim, table

    if not views:
        return dim("no batches")
    ends = ("succeeded", "dead", "killed")
    drawn = table(">batch", ">tasks", ">open", *(f">{name}" for name in ends), "")
    for view in views:
        tasks = sum(view.counts.values())
        ended = [tally(view.counts, name) for name in ends]
        drawn.add_row(
            str(view.number),
            number(tasks),
            *(number(n) if n else dim("0") for n in (tasks - sum(ended), *ended)),
            dim("full") if view.is_full else "filling",
        )
    return drawn
