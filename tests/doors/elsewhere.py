"""A cluster as the doors of one of its nodes see it."""

from collections.abc import Callable

from jackalope.broker.cluster.standing import Standing
from jackalope.wire.peer import StandbyHealth

SECRET = "of the tests"  # noqa: S105


class Elsewhere:
    """A cluster as a node sees it: who leads is what the test says."""

    epoch = 7
    answers_reads = False

    def __init__(self, address: str | None) -> None:
        self.address = address
        self.changed: list[Callable[[], None]] = []

    def standing(self) -> Standing:
        role = "leading" if self.address is None else "following"
        # No node is all of that; a page shows the numbers of each.
        standby = StandbyHealth("", "", is_connected=True, last=0, heard_us=0, lag=0, lag_us=0)
        return Standing(
            role,
            self.epoch,
            "b",
            3,
            is_ready=self.address != "",
            wrong_copies={"c": 2},
            divergences=1,
            standby=standby,
        )

    def elsewhere(self, _: str) -> str | None:
        return self.address

    def may_read(self) -> bool:
        return True

    async def confirm(self) -> None:
        pass

    def move(self, address: str | None) -> None:
        self.address = address
        for changed in self.changed:
            changed()
