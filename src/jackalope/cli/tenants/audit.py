"""The command about the audit log."""

import asyncio
import csv
import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from jackalope.cli.base import Exit, Failure, Options, opt
from jackalope.cli.formatting import brief, clock

if TYPE_CHECKING:
    from rich.console import RenderableType

    from jackalope.cli.output import Screen
    from jackalope.client.app import Jackalope
    from jackalope.wire.views import ActView

_FOLLOW_EVERY_S = 1.0


@dataclass
class Which(Options):
    """Which acts are shown."""

    text: Annotated[str, opt("--text TEXT", "Only with this text in any field.")] = ""
    limit: Annotated[int, opt("--limit N", "At most so many.")] = 100


async def audit(
    client: "Jackalope",
    screen: "Screen",
    which: Which,
    follow: Annotated[bool, opt("--follow", "Go on with what comes, until interrupted.")] = False,
    export: Annotated[
        str, opt("--export [jsonl|csv]", "Print lines for other programs, the oldest first.")
    ] = "",
) -> None:
    """Show what administrators did, or tried to: who, what, when and from where.

    Examples:
        jackalope audit
        jackalope audit --text create_api_key
        jackalope audit --limit 100000 --export csv
    """
    if export not in ("", "jsonl", "csv"):
        raise Failure(f"unknown format {export!r}; use jsonl or csv", code=Exit.USAGE)
    acts = [act async for act in client.audit(which.limit, text=which.text)]
    if not export and not follow:
        screen.show(acts, lambda: _draw(acts))
        return
    seen = 0
    while True:
        for act in reversed(acts):
            if act.number > seen:
                seen = act.number
                print(_line(act, export or "jsonl"), flush=True)
        if not follow:
            return
        await asyncio.sleep(_FOLLOW_EVERY_S)
        acts = [act async for act in client.audit(which.limit, text=which.text)]


def _line(act: "ActView", form: str) -> str:
    import msgspec

    fields = msgspec.to_builtins(act)
    if form == "jsonl":
        return json.dumps(fields)
    written = io.StringIO()
    csv.writer(written, lineterminator="").writerow(fields.values())
    return written.getvalue()


def _draw(acts: "list[ActView]") -> "RenderableType":
    from jackalope.cli.output import dim, table

    if not acts:
        return dim("no administrative acts")
    drawn = table("at", "by", "what", "namespace", "~about", "from", "outcome")
    for act in acts:
        drawn.add_row(
            clock(act.at_us),
            brief(act.by, 24),
            act.what,
            act.namespace or dim("-"),
            brief(act.about, 60),
            act.origin or dim("-"),
            act.outcome if act.outcome == "done" else f"[red]{act.outcome}[/red]",
        )
    return drawn
