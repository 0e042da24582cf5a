"""The command that measures a broker."""

from typing import TYPE_CHECKING, Annotated

from jackalope.cli.base import opt

if TYPE_CHECKING:
    from jackalope.cli.output import Screen
    from jackalope.client.app import Jackalope


async def bench(
    client: "Jackalope",
    screen: "Screen",
    *,
    tasks: Annotated[int, opt("--tasks -t", "How many tasks.", min=1, max=10_000_000)] = 20_000,
    payload_bytes: Annotated[
        int, opt("--payload-bytes", "The size of each payload.", min=0, max=65_536)
    ] = 100,
    slots: Annotated[
        int, opt("--slots", "How many tasks the worker holds at once.", min=1, max=100_000)
    ] = 1_000,
    trips: Annotated[
        int, opt("--trips", "How many round trips are timed.", min=2, max=100_000)
    ] = 300,
) -> None:
    """Measure a broker: submit tasks that do nothing, run them, and print rates and latencies.

    It uses a queue of its own, and removes it.

    Examples:
        jackalope bench
        jackalope bench --tasks 200000 --payload-bytes 1000 --format json
    """
    from jackalope.cli.benchmark import draw, measure

    total = 2 * trips + 2 * tasks
    with screen.progress("measuring", total) as progress:
        measured = await measure(
            client,
            tasks=tasks,
            payload_bytes=payload_bytes,
            slots=slots,
            trips=trips,
            advance=lambda count: progress.advance(progress.task_ids[0], count),
        )
    screen.show(measured, lambda: draw(measured))
