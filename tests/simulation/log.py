"""A shared log that loses, delays and doubles what is put, as an engine over a network does.

A put travels to the log, is judged there, and its answer travels back. Either way may be lost, and
a put may arrive long after it was given up: so a message can be stored without a node knowing it,
and be refused after all. While the log elects a leader it does not answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from jackalope.core.durations import MILLISECOND, SECOND
from jackalope.storage import OutOfReach
from jackalope.storage.shared.log import Put
from jackalope.storage.shared.memory import MemoryEngine, MemoryLog
from tests.simulation.network import LOG, Network
from tests.simulation.world import World


@dataclass(frozen=True)
class LogFaults:
    """Chances, each for one put."""

    request_lost: float = 0.05
    request_late: float = 0.05
    request_doubled: float = 0.05
    answer_lost: float = 0.05
    counted_only: float = 0.03  # refused because of a message that is never stored
    stall: float = 0.005


NO_FAULTS = LogFaults(0, 0, 0, 0, 0, 0)


class SimLog(MemoryLog):
    """The log itself, in a world with a network."""

    def __init__(self, world: World, network: Network) -> None:
        super().__init__()
        self.world = world
        self.network = network
        self.faults = LogFaults()
        self.stalled_until_us = 0

    def is_stalled(self) -> bool:
        return self.world.now_us < self.stalled_until_us

    def stall(self) -> None:
        """Elect a leader: that takes seconds, in which nothing is answered."""
        self.stalled_until_us = self.world.now_us + self.world.rng.randrange(4 * SECOND, 9 * SECOND)
        self.world.say(LOG, "elects a leader")


class SimEngine(MemoryEngine):
    """The log as one node sees it."""

    def __init__(self, log: SimLog, node: str) -> None:
        super().__init__(log)
        self.sim = log
        self.node = node

    def put(self, position: int, message: bytes, timeout_s: float) -> Put:
        """Send a message on its way, and return what comes back, if anything does."""
        world, faults = self.sim.world, self.sim.faults
        if not self.sim.is_stalled() and world.chance(faults.stall):
            self.sim.stall()
        is_lost = self.sim.is_stalled() or world.chance(faults.request_lost)
        if is_lost or not self.sim.network.reaches(self.node, LOG):
            return Put.UNKNOWN
        if world.chance(faults.request_late):
            self._later(position, message)
            return Put.UNKNOWN
        if world.chance(faults.counted_only):
            return Put.TAKEN
        if world.chance(faults.request_doubled):
            self._later(position, message)
        outcome = super().put(position, message, timeout_s)
        is_heard = self.sim.network.reaches(LOG, self.node)
        return Put.UNKNOWN if not is_heard or world.chance(faults.answer_lost) else outcome

    def _later(self, position: int, message: bytes) -> None:
        delay_us = self.sim.world.rng.randrange(10 * MILLISECOND, 10 * SECOND)
        self.sim.world.after(delay_us, lambda: self._arrive(position, message))

    def _arrive(self, position: int, message: bytes) -> None:
        super().put(position, message, 0)

    def get(self, position: int) -> bytes | None:
        self._ask()
        return super().get(position)

    def read(self, after: int, count_max: int) -> list[tuple[int, bytes]]:
        self._ask()
        return super().read(after, count_max)

    def end(self) -> int:
        self._ask()
        return super().end()

    def wait(self, after: int, timeout_s: float) -> bool:
        del timeout_s
        return self.end() > after

    def _ask(self) -> None:
        ways = ((self.node, LOG), (LOG, self.node))
        if self.sim.is_stalled() or not all(self.sim.network.reaches(*way) for way in ways):
            raise OutOfReach("the log does not answer")
