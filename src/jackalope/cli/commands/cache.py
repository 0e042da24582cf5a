"""Commands about answers that are kept: looking at them, pinning and purging them."""

from typing import TYPE_CHECKING, Annotated, Any

from jackalope.cli import completion
from jackalope.cli.base import Exit, Failure, arg, opt
from jackalope.cli.formatting import ago, brief, now_us, plural, size, span
from jackalope.cli.options import Yes, confirm, duration_us, reading

if TYPE_CHECKING:
    from rich.console import RenderableType

    from jackalope.cli.output import Screen
    from jackalope.client.app import Jackalope
    from jackalope.client.requests import AnswerActionName
    from jackalope.wire.views import AnswerView

Identities = Annotated[
    list[str], arg("IDENTITY", "Identities of requests, as `cache list` shows them.")
]
Queue = Annotated[str, opt("--queue -q QUEUE", "Only of this queue.", complete=completion.queues)]
Name = Annotated[
    str, opt("--name NAME", "Only of tasks with this name.", complete=completion.task_names)
]
Version = Annotated[str, opt("--version TEXT", "Only of this version.")]


async def list_(
    client: "Jackalope",
    screen: "Screen",
    *,
    queue: Queue = "",
    name: Name = "",
    version: Version = "",
    limit: Annotated[int, opt("--limit", "The maximum number of answers.", min=1, max=1_000)] = 100,
) -> None:
    """List cached answers: who made them, how often they were used, and when they expire.

    Examples:
        jackalope cache list
        jackalope cache list --queue sums --version 2 --format json
    """
    views = await client.answers(queue=queue, name=name, version=version, limit=limit)
    screen.show(views, lambda: _draw(views))


async def show(
    client: "Jackalope",
    screen: "Screen",
    identity: Annotated[str, arg("IDENTITY", "The identity of a request.")],
) -> None:
    """Show one request: the task that has its answer, or that is running.

    Examples:
        jackalope cache show ec0859e2b31bd6d3197d9d6f71b4fb11df31581c8ee360977fd0a73ce1452aec
    """
    from jackalope.cli.formatting import to_plain
    from jackalope.cli.output import facts

    plain = to_plain(await client.find_answer(identity))
    screen.show(plain, lambda: facts((key, str(value)) for key, value in plain.items()))


async def pin(client: "Jackalope", screen: "Screen", identities: Identities) -> None:
    """Pin answers: they neither expire nor are evicted.

    Examples:
        jackalope cache pin ec0859e2b31bd6d3197d9d6f71b4fb11df31581c8ee360977fd0a73ce1452aec
    """
    await _act(client, screen, "pin", identities=identities)


async def unpin(client: "Jackalope", screen: "Screen", identities: Identities) -> None:
    """Unpin answers: they can expire and be evicted again.

    Examples:
        jackalope cache unpin ec0859e2b31bd6d3197d9d6f71b4fb11df31581c8ee360977fd0a73ce1452aec
    """
    await _act(client, screen, "unpin", identities=identities)


async def purge(
    client: "Jackalope",
    screen: "Screen",
    *,
    identities: Annotated[list[str] | None, arg("IDENTITY", "Identities of requests.")] = None,
    queue: Queue = "",
    name: Name = "",
    version: Version = "",
    older_than: Annotated[
        str, opt("--older-than DURATION", "Only answers made longer ago than this.")
    ] = "",
    yes: Yes = False,
) -> None:
    """Remove cached answers, by identity or by condition. The next request runs again.

    Examples:
        jackalope cache purge --name app.resize --version 1
        jackalope cache purge --older-than 1d --yes
    """
    matching: dict[str, Any] = {"queue": queue, "name": name, "version": version}
    if older_than:
        matching["older_than_us"] = now_us() - reading(duration_us, older_than)
    if identities and any(matching.values()):
        raise Failure("name requests or give conditions, not both", code=Exit.USAGE)
    is_all = not identities and not any(matching.values())
    if is_all:
        confirm(screen, "purge all answers of the namespace?", is_sure=yes)
    await _act(client, screen, "purge", identities=identities or [], **matching)


async def _act(
    client: "Jackalope",
    screen: "Screen",
    action: "AnswerActionName",
    *,
    identities: list[str],
    **matching: Any,
) -> None:
    """Act, repeatedly while more match than one command changes."""
    acted = await client.act_on_answers(action, identities, **matching)
    changed = acted.changed
    while acted.more:
        acted = await client.act_on_answers(action, identities, **matching)
        changed += acted.changed
    refused = acted.refused
    for refusal in refused.values():
        screen.warn(refusal.message)
    screen.show({"changed": changed, "unknown": len(refused)}, f"{action}: {changed} answers")
    if refused:
        raise Failure(f"{len(refused)} of {len(identities)} requests are unknown")


def answer_text(view: "AnswerView") -> str:
    """Describe in a line who uses a task's answer."""
    from jackalope.core.durations import NEVER

    if not view.made_us:
        return f"awaited by {plural(view.uses + 1, 'request')}"
    parts = [f"used {plural(view.uses, 'time')}"]
    if view.used_us:
        parts.append(f"last {ago(view.used_us)}" + (f" by {view.used_by}" if view.used_by else ""))
    if view.pinned_by:
        parts.append(f"pinned by {view.pinned_by}")
    elif view.until_us < NEVER:
        parts.append(f"good for {span(max(0, view.until_us - now_us()))}")
    return ", ".join(parts)


def _draw(views: "list[AnswerView]") -> "RenderableType":
    """Show each answer on two lines: identities are long, and other commands need all of them."""
    from rich.console import Group
    from rich.text import Text

    from jackalope.cli.output import dim, state

    if not views:
        return dim("no cached answers; a queue with same=cached keeps them")
    lines: list[Text] = []
    for view in views:
        version = f" version {brief(view.version, 16)}" if view.version else ""
        about = [
            f"{brief(view.name, 30)}{version} in {brief(view.queue, 20)}",
            size(view.size),
            f"made {ago(view.made_us)}" if view.made_us else "",
            f"used {view.uses}",
            f"pinned by {brief(view.pinned_by, 20)}" if view.pinned_by else "",
        ]
        lines.append(Text(view.identity.hex(), overflow="fold"))
        lines.append(Text.assemble("  ", state(view.state), "  ", ", ".join(filter(None, about))))
    return Group(*lines)
