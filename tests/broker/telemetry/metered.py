"""A core driven by hand, and a meter that hears of all it does."""

from jackalope.broker.engine import Turn
from jackalope.broker.telemetry.meter import Meter, QueueName, Reading
from jackalope.core.commands import AnyCommand
from jackalope.core.effects import Answered
from tests.core.driving import Driver

Q: QueueName = ("default", "q")


class Metered(Driver):
    """A driver whose turns are metered.

    Attributes:
        is_gathering: whether commands gather into one turn, which `settle` ends.
    """

    def __init__(self) -> None:
        super().__init__()
        self.meter = Meter()
        self.is_gathering = False
        self._turn = Turn([], [], [])

    def send(self, command: AnyCommand) -> Answered | None:
        if not self.is_gathering and self.meter.must_settle([command], self.core):
            self.meter.settle()
        answer = super().send(command)
        self._turn.commands.append(command)
        self._turn.records += self.records
        self._turn.effects += self.effects
        if not self.is_gathering:
            self.settle()
        return answer

    def settle(self) -> None:
        """End the turn."""
        turn, self._turn = self._turn, Turn([], [], [])
        turn.body = b"x" if turn.records else b""
        self.meter.count_turn(turn, 1_000, self.core)

    def reading(self, name: QueueName = Q) -> Reading:
        return self.meter.totals().get(name, Reading())
