"""A shared log that loses, delays and doubles what is put, as an engine over a network does.

A put travels to the log, is judged there, and its answer travels back. Either way may be lost, and
a put may arrive long after it was given up: so a message can be stored without a node knowing it,
and be refused after all. While the log elects a leader it does not answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jackalope.core.durations import MILLISECOND, SECOND
from jackalope.storage import OutOfReach
from jackalope.storage.shared.chunks import place_of
from jackalope.storage.shared.log import LogState, Put
from jackalope.storage.shared.memory import MemoryEngine, MemoryLog
from tests.simulation.network import LOG, Network
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.cluster.process import Process

#: How long a message takes between a node and the log, one way.
_LEG_US = (150, 2 * MILLISECOND)


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
        self.on_stored: Callable[[int, bytes], None] = lambda _position, _message: None
        self.on_cut: Callable[[str, int], None] = lambda _node, _size: None
        self.full_until_us = 0
        self.waiting: list[Callable[[], None]] = []  # who wants to hear of the next message
        self.slowness_us: dict[str, int] = {}  # how much later nodes hear and are heard

    def begins(self) -> int:
        """Return the batch with which the log begins; 0 if nothing was cut off."""
        first = self.start()
        place = place_of(self.messages[first]) if first > 1 else None
        return 0 if place is None else place.sequence

    def is_stalled(self) -> bool:
        return self.world.now_us < self.stalled_until_us

    def stall(self) -> None:
        """Elect a leader: that takes seconds, in which nothing is answered."""
        self.stalled_until_us = self.world.now_us + self.world.rng.randrange(4 * SECOND, 9 * SECOND)
        self.world.say(LOG, "elects a leader")

    def lose(self, count: int) -> list[bytes]:
        """Forget the last messages, although they were acknowledged, and return them."""
        positions = range(self.end, self.end - count, -1)
        self.end -= count
        return [self.messages.pop(position) for position in positions]


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
        if world.now_us < self.sim.full_until_us:
            return Put.FULL
        if world.chance(faults.request_doubled):
            self._later(position, message)
        outcome = self._judge(position, message)
        is_heard = self.sim.network.reaches(LOG, self.node)
        return Put.UNKNOWN if not is_heard or world.chance(faults.answer_lost) else outcome

    def _later(self, position: int, message: bytes) -> None:
        delay_us = self.sim.world.rng.randrange(10 * MILLISECOND, 10 * SECOND)
        self.sim.world.after(delay_us, lambda: self._arrive(position, message))

    def _arrive(self, position: int, message: bytes) -> None:
        self._judge(position, message)

    def _judge(self, position: int, message: bytes) -> Put:
        outcome = super().put(position, message, 0)
        if outcome is Put.STORED:
            self.sim.on_stored(position, message)
            waiting, self.sim.waiting = self.sim.waiting, []
            for hear in waiting:
                hear()
        return outcome

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

    def start(self) -> int:
        self._ask()
        return super().start()

    def cut(self, through: int) -> None:
        self._ask()
        size = super().state().size
        super().cut(through)
        self.sim.on_cut(self.node, size)

    def state(self) -> LogState:
        self._ask()
        return super().state()

    def _ask(self) -> None:
        ways = ((self.node, LOG), (LOG, self.node))
        if self.sim.is_stalled() or not all(self.sim.network.reaches(*way) for way in ways):
            raise OutOfReach("the log does not answer")


class SlowEngine(SimEngine):
    """The log as a process sees it: every call takes time, in which the process may end."""

    def __init__(self, log: SimLog, process: Process, message_bytes_max: int) -> None:
        super().__init__(log, process.name)
        self.message_bytes_max = message_bytes_max
        self._process = process

    def put(self, position: int, message: bytes, timeout_s: float) -> Put:
        """Put a message; what is on its way is judged even if its sender has ended or stopped."""
        world, put = self.sim.world, super().put

        def send(answer: Callable[[Put], None]) -> None:
            def judge() -> None:
                outcome = put(position, message, timeout_s)
                is_lost = outcome is Put.UNKNOWN
                wait_us = int(timeout_s * SECOND) if is_lost else self._leg_us()
                world.after(wait_us, lambda: answer(outcome))

            world.after(self._leg_us(), judge)

        outcome: Put = self._process.block(send)
        return outcome

    def _ask(self) -> None:
        world = self.sim.world
        self._process.pause(2 * self._leg_us() / SECOND)
        try:
            super()._ask()
        except OutOfReach:
            self._process.pause(world.rng.choice((0.05, 0.5, 2.0)))
            raise

    def read(self, after: int, count_max: int) -> list[tuple[int, bytes]]:
        """Return what is there; who asks too early waits by `wait`, and the answer is the same."""
        return [] if self.sim.end <= after and self._hears() else super().read(after, count_max)

    def _hears(self) -> bool:
        return self.sim.network.reaches(LOG, self.node) and not self.sim.is_stalled()

    def wait(self, after: int, timeout_s: float) -> bool:
        """Return when the log has something, or the time is over."""
        world, sim = self.sim.world, self.sim
        if sim.end > after and self._hears():
            return True

        def begin(resume: Callable[[bool], None]) -> None:
            is_waiting = True

            def end(*, has_more: bool) -> None:
                nonlocal is_waiting
                if is_waiting:
                    is_waiting = False
                    resume(has_more)

            def hear() -> None:
                if sim.network.reaches(LOG, self.node):
                    world.after(self._leg_us(), lambda: end(has_more=True))
                else:
                    sim.waiting.append(hear)

            sim.waiting.append(hear)
            world.after(int(timeout_s * SECOND), lambda: end(has_more=False))

        found: bool = self._process.block(begin)
        return found

    def _leg_us(self) -> int:
        return self.sim.world.rng.randrange(*_LEG_US) + self.sim.slowness_us.get(self.node, 0)
