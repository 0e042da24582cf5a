"""The network of a cluster: who reaches whom, one way at a time."""

from __future__ import annotations

LOG = "log"


class Network:
    """Cuts between nodes, and between nodes and the log. What is not cut works."""

    def __init__(self, *names: str) -> None:
        self.names = (*names, LOG)
        self._cut: set[tuple[str, str]] = set()

    def reaches(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) not in self._cut

    def cut(self, sender: str, receiver: str) -> None:
        """Let nothing pass from one to the other; the way back may still work."""
        self._cut.add((sender, receiver))

    def isolate(self, name: str, *, hears: bool = False, is_heard: bool = False) -> None:
        """Cut one off from all others: both ways, or one."""
        for other in self.names:
            if not is_heard:
                self.cut(name, other)
            if not hears:
                self.cut(other, name)

    def heal(self) -> None:
        self._cut.clear()
