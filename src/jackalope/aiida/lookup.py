"""The lookup: what AiiDA's database says about a process, in the broker's words."""

from __future__ import annotations

from typing import Any

from jackalope.aiida.traits import Traits
from jackalope.core.limits import NAME_CHARS_MAX, TAG_CHARS_MAX
from jackalope.core.task import PRIORITY_DEFAULT

#: The tag of all calculations on one computer begins with this.
COMPUTER_TAG = "computer:"

#: How many steps inner processes come before outer ones, at most: they all stay of normal priority.
_DEPTH_MAX = 49


class Lookup:
    """Looks up processes of the profile that is loaded."""

    def __init__(self) -> None:
        self._depths: dict[int, int] = {}

    def __call__(self, pid: int) -> Traits:
        """Say what is known about a process.

        Its pk is its alias, its label its name; a calculation is tagged with its computer; and the
        deeper inside other processes it is, the earlier it comes.
        """
        from aiida import orm  # noqa: PLC0415  slow, and whoever sends a process has loaded it

        node = orm.load_node(pid)
        computer = node.computer if isinstance(node, orm.CalcJobNode) else None
        tag = f"{COMPUTER_TAG}{computer.label}"[:TAG_CHARS_MAX] if computer is not None else ""
        return Traits(
            alias=str(pid),
            name=(node.process_label or type(node).__name__)[:NAME_CHARS_MAX],
            priority=PRIORITY_DEFAULT + min(self._depth(node), _DEPTH_MAX),
            tags=(tag,) if tag else (),
            is_parent=isinstance(node, orm.WorkflowNode),
        )

    def _depth(self, node: Any) -> int:
        """Count the processes that this one is inside of. That never changes."""
        caller = node.caller
        if caller is None:
            return 0
        if caller.pk not in self._depths:
            self._depths[caller.pk] = self._depth(caller)
        return self._depths[caller.pk] + 1
