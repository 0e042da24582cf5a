"""What the live view shows: one look at the broker, and what the user has chosen.

Owns the panels, their rows and the selection. Knows neither the terminal nor how rows are drawn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from jackalope.cli.formatting import tally
from jackalope.core.lifecycle import State

if TYPE_CHECKING:
    from jackalope.client.app import Jackalope
    from jackalope.wire.views import QueueView, StatsView, TaskView, WorkerView

#: How many tasks are looked at for those that run longest, and for those that fail.
RUNNING_MAX = 200
FAILING_MAX = 100


class Panel(StrEnum):
    """The parts of the view."""

    QUEUES = "queues"
    WORKERS = "workers"
    SLOWEST = "slowest"
    FAILING = "failing"


PANELS = tuple(Panel)


@dataclass(frozen=True)
class Look:
    """The broker at one moment."""

    stats: StatsView
    queues: Sequence[QueueView] = ()
    workers: Sequence[WorkerView] = ()
    running: Sequence[TaskView] = ()  # those that were submitted first
    failing: Sequence[TaskView] = ()  # those that died last, and those that will be tried again


async def look(client: Jackalope) -> Look:
    """Ask the broker for everything that is shown, at once."""
    leased = (State.ASSIGNED, State.RUNNING)
    stats, queues, workers, running, dead, later = await asyncio.gather(
        client.stats(),
        client.queues(),
        client.workers(),
        client.page(RUNNING_MAX, sort="created", states=leased),
        client.page(FAILING_MAX, sort="-ended", states=(State.DEAD,)),
        client.page(FAILING_MAX, states=(State.SCHEDULED,)),
    )
    here = [worker for worker in workers if worker.state != "gone"]
    retried = [task for task in later.tasks if task.failures or task.crashes]
    return Look(stats, queues, here, running.tasks, [*retried, *dead.tasks])


@dataclass
class Model:
    """What is known and what is chosen."""

    where: str
    look: Look | None = None
    before: Look | None = None  # the look before, for rates
    seen_us: int = 0  # when the last look was, by this machine's clock
    panel: Panel = Panel.QUEUES
    at: dict[Panel, int] = field(default_factory=lambda: dict.fromkeys(PANELS, 0))
    filter: str = ""
    is_typing: bool = False  # keys go to the filter
    asking: str = ""  # a question that waits for y or n
    message: str = ""  # what came of the last action
    trouble: str = ""  # why there is no newer look
    overlay: tuple[str, str] = ("", "")  # a title and a text over the panels

    def update(self, look: Look, seen_us: int) -> None:
        self.before, self.look = self.look, look
        self.seen_us, self.trouble = seen_us, ""
        for panel in PANELS:
            self._keep_within(panel)

    # Rows.

    def rows(self, panel: Panel) -> list[Any]:
        """Return what a panel lists, in its order, as far as the filter lets it through."""
        look = self.look
        if look is None:
            return []
        found: list[Any]
        match panel:
            case Panel.QUEUES:
                found = sorted(look.queues, key=lambda each: (-_load(each), each.queue))
            case Panel.WORKERS:
                found = sorted(look.workers, key=lambda each: (-each.load, each.worker))
            case Panel.SLOWEST:
                found = sorted(look.running, key=lambda each: each.started_us or each.created_us)
            case Panel.FAILING:
                found = sorted(look.failing, key=failed_us, reverse=True)
        wanted = self.filter.lower()
        return [each for each in found if wanted in _text_of(panel, each)] if wanted else found

    def selected(self) -> Any:
        rows = self.rows(self.panel)
        return rows[min(self.at[self.panel], len(rows) - 1)] if rows else None

    def move(self, by: int) -> None:
        self.at[self.panel] += by
        self._keep_within(self.panel)

    def turn(self, by: int) -> None:
        """Go to the next panel, or the one before."""
        self.panel = PANELS[(PANELS.index(self.panel) + by) % len(PANELS)]

    def narrow(self, text: str) -> None:
        self.filter = text
        for panel in PANELS:
            self._keep_within(panel)

    def _keep_within(self, panel: Panel) -> None:
        self.at[panel] = max(0, min(self.at[panel], len(self.rows(panel)) - 1))

    # Rates.

    def rate(self, state: State) -> float | None:
        """Return how many tasks came to an end in a second; None while that is not known."""
        if self.look is None or self.before is None:
            return None
        now, then = self.look.stats, self.before.stats
        if now.now_us <= then.now_us or now.started_us != then.started_us:
            return None
        count = now.ended.get(state, 0) - then.ended.get(state, 0)
        return max(0, count) * 1e6 / (now.now_us - then.now_us)


def failed_us(task: TaskView) -> int:
    """Return when a task failed last."""
    return task.ended_us or task.tried_us or task.created_us


def _load(queue: QueueView) -> int:
    return queue.depth + tally(queue.counts, "assigned", "running")


def _text_of(panel: Panel, row: Any) -> str:
    if panel is Panel.QUEUES:
        return str(row.queue).lower()
    if panel is Panel.WORKERS:
        return " ".join((row.worker, *row.queues, *row.keys)).lower()
    return f"{row.name} {row.queue} {row.alias} {row.worker} {row.id.hex()}".lower()
