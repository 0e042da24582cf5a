"""The command that measures a broker."""

from typing import TYPE_CHECKING, Annotated

import typer

from jackalope.cli.base import connected

if TYPE_CHECKING:
    from jackalope.cli.broker_client import Backend
    from jackalope.cli.output import Screen


def register(app: typer.Typer, panel: str) -> None:
    """Add this command."""
    app.command("bench", rich_help_panel=panel)(connected(bench))


async def bench(
    backend: "Backend",
    screen: "Screen",
    *,
    tasks: Annotated[
        int, typer.Option("--tasks", "-t", min=1, max=10_000_000, help="How many tasks.")
    ] = 20_000,
    payload_bytes: Annotated[
        int, typer.Option("--payload-bytes", min=0, max=65_536, help="How large each one is.")
    ] = 100,
    slots: Annotated[
        int, typer.Option("--slots", min=1, max=100_000, help="How many the worker holds at once.")
    ] = 1_000,
    trips: Annotated[
        int, typer.Option("--trips", min=2, max=100_000, help="How many round trips are timed.")
    ] = 300,
) -> None:
    """Measure a broker: submit tasks that do nothing, run them, and print rates and latencies.

    It works in a queue of its own, which it removes.

    Examples:
        jackalope bench
        jackalope bench --tasks 200000 --payload-bytes 1000 --format json
    """
    from jackalope.cli.benchmark import draw, measure

    total = 2 * trips + 2 * tasks
    with screen.progress("measuring", total) as progress:
        measured = await measure(
            backend,
            tasks=tasks,
            payload_bytes=payload_bytes,
            slots=slots,
            trips=trips,
            advance=lambda count: progress.advance(progress.task_ids[0], count),
        )
    screen.show(measured, lambda: draw(measured))
