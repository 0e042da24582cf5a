"""The communicator of AiiDA's processes: tasks that the broker can name, order and limit.

Owns the meaning of plumpy's messages about processes: which one a task continues, and when one
waits. Knows nothing of AiiDA's database; its caller supplies what a process is.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from jackalope.core.limits import NAME_CHARS_MAX, TAG_CHARS_MAX
from jackalope.core.task import PRIORITY_DEFAULT
from jackalope.kiwipy.communicator import JackalopeCommunicator
from jackalope.kiwipy.queue import PLAIN, TaskTraits
from jackalope.kiwipy.threads import levels_of

log = logging.getLogger("jackalope.aiida")

#: The queue of processes for the daemons to run.
QUEUE = "processes"

#: For how long the broker bears the silence of a worker. One that is cut off for almost as long
#: is killed, and its processes continue from their checkpoints.
LEASE_S = 30.0

#: What plumpy's broadcasts about states begin with, and what they end with while a process waits.
_STATE_CHANGED = "state_changed."
_WAITING = ".waiting"

#: What a process takes as the wish to end it.
_KILL = {"intent": "kill", "message": "Its task was killed", "force_kill": False}

LookUp = Callable[[int], TaskTraits]


class ProcessCommunicator(JackalopeCommunicator):
    """A communicator whose tasks are processes.

    A process has at most one unfinished task, so that no two workers run it. A parent that waits
    for its children takes no place in its worker. A worker that the broker loses sight of is killed
    before its processes are given to another, and ends itself if that has happened all the same: a
    daemon starts a new one.
    """

    def __init__(
        self,
        connection_params: Mapping[str, Any],
        look_up: LookUp,
        *,
        lease: float = LEASE_S,
        **settings: Any,
    ) -> None:
        super().__init__(
            connection_params,
            lease=lease,
            task_queue=QUEUE,
            describe=lambda task: traits_of(task, look_up),
            is_plain=True,
            **settings,
        )
        self._default.on_dropped = _on_dropped
        self._default.on_kill = self._kill

    def broadcast_send(
        self, body: Any, sender: Any = None, subject: Any = None, correlation_id: Any = None
    ) -> bool:
        """Send a broadcast to all current subscribers; see the parent's."""
        if isinstance(subject, str) and subject.startswith(_STATE_CHANGED):
            self._thread.post(self._note_state, str(sender), subject.endswith(_WAITING))
        return super().broadcast_send(body, sender, subject, correlation_id)

    def _kill(self, pid: str) -> bool:
        """Ask a process of this worker to end because its task was killed."""
        subscriber = self._rpc_subscribers.get(pid)
        if subscriber is None:
            return False
        self._run(self._ask_to_end(pid, subscriber))
        return True

    async def _ask_to_end(self, pid: str, subscriber: Callable[..., Any]) -> None:
        try:
            async with aclosing(levels_of(subscriber(self, dict(_KILL)))) as levels:
                async for _ in levels:
                    pass
        except Exception:
            log.exception("process %s was asked to end, and did not", pid)

    def _note_state(self, pid: str, is_waiting: bool) -> None:
        self._default.note_waiting(pid, is_waiting=is_waiting)


def pid_of(task: Any) -> int | None:
    """Return the process that a task continues, if it is one that does."""
    if not isinstance(task, Mapping) or task.get("task") != "continue":
        return None
    args = task.get("args")
    pid = args.get("pid") if isinstance(args, Mapping) else None
    return pid if isinstance(pid, int) else None


def traits_of(task: Any, look_up: LookUp) -> TaskTraits:
    """Return what is known about a task."""
    pid = pid_of(task)
    if pid is None:
        return PLAIN
    try:
        return look_up(pid)
    except Exception:
        # What it is called and when it runs is not worth a process.
        log.exception("process %s cannot be looked up: its task has no more than its pk", pid)
        return TaskTraits(alias=str(pid))


def _on_dropped(alias: str) -> None:
    log.error(
        "process %s was given to another worker, because the broker lost sight of this one; "
        "it ends, so that the process does not run twice",
        alias,
    )
    os.kill(os.getpid(), signal.SIGTERM)


# The lookup: what AiiDA's database has about a process, in the broker's terms.

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

    def __call__(self, pid: int) -> TaskTraits:
        """Return what is known about a process.

        Its pk is its alias, its label its name; a calculation is tagged with its computer; and the
        deeper inside other processes it is, the earlier it comes.
        """
        kind, label, computer = _about(pid)
        tag = f"{COMPUTER_TAG}{computer}"[:TAG_CHARS_MAX] if computer else ""
        return TaskTraits(
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
    """Return the type of a process, its label and its computer. A query is cheaper than a node."""
    from aiida import orm  # noqa: PLC0415  slow, and a sender of processes has loaded it

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
