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

#: What the types of nodes begin with that wait for others.
_WORKFLOW = "process.workflow."


class Lookup:
    """Looks up processes of the profile that is loaded."""

    def __init__(self) -> None:
        self._depths: dict[int, int] = {}

    def __call__(self, pid: int) -> Traits:
        """Say what is known about a process.

        Its pk is its alias, its label its name; a calculation is tagged with its computer; and the
        deeper inside other processes it is, the earlier it comes.
        """
        kind, label, computer = _about(pid)
        tag = f"{COMPUTER_TAG}{computer}"[:TAG_CHARS_MAX] if computer else ""
        return Traits(
            alias=str(pid),
            name=(label or kind.rstrip(".").rpartition(".")[2])[:NAME_CHARS_MAX],
            priority=PRIORITY_DEFAULT + min(self._depth(pid), _DEPTH_MAX),
            tags=(tag,) if tag else (),
            is_parent=kind.startswith(_WORKFLOW),
        )

    def _depth(self, pid: int) -> int:
        """Count the processes that one is inside of. That never changes."""
        caller = _caller(pid)
        if caller is None:
            return 0
        if caller not in self._depths:
            self._depths[caller] = self._depth(caller)
        return self._depths[caller] + 1


def _about(pid: int) -> Any:
    """Return the type of a process, its label and its computer. A query is cheaper than a node.

    Raises:
        LookupError: there is no such process.
    """
    from aiida import orm  # noqa: PLC0415  slow, and whoever sends a process has loaded it

    query = orm.QueryBuilder()
    about = ["node_type", "attributes.process_label"]
    query.append(orm.ProcessNode, filters={"id": pid}, tag="process", project=about)
    query.append(orm.Computer, with_node="process", outerjoin=True, project="label")
    row = query.first()
    if row is None:
        raise LookupError(f"no process {pid}")
    return row


def _caller(pid: int) -> int | None:
    """Return the process that called another, if one did."""
    from aiida import orm  # noqa: PLC0415

    query = orm.QueryBuilder()
    query.append(orm.ProcessNode, filters={"id": pid}, tag="process")
    query.append(orm.ProcessNode, with_outgoing="process", project="id")
    caller: int | None = query.first(flat=True)
    return caller
