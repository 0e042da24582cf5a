"""Views of workers: who is there, who has left, and who holds which tasks.

Owns the conversion of the roster and of leases to what is shown. Changes nothing.
"""

from __future__ import annotations

from jackalope.core import Core
from jackalope.core.commands import Held
from jackalope.core.state.changes import Tally
from jackalope.core.state.queue import NO_TALLY, Namespace
from jackalope.core.state.roster import Departure, Fanout, Worker
from jackalope.core.task import lease_of
from jackalope.wire.views import WorkerView


def worker_state(worker: Worker) -> str:
    """Return `active`, `idle`, `draining` or `away`."""
    if not worker.session:
        return "away"
    if worker.is_draining:
        return "draining"
    return "active" if worker.held or worker.helps > 0 else "idle"


def gone_view(left: Departure, tally: Tally) -> WorkerView:
    return WorkerView(
        left.worker,
        "gone",
        gone_us=left.at_us,
        why_gone=left.why,
        succeeded=tally.succeeded,
        failed=tally.failed,
    )


def worker_view(worker: Worker, helped: Fanout | None) -> WorkerView:
    """Show a worker that is there, or that is waited for."""
    tally = worker.namespace.tallies.get(worker.id, NO_TALLY)
    return WorkerView(
        worker=worker.id,
        state=worker_state(worker),
        queues=worker.queues,
        keys=worker.keys,
        slots=worker.slots,
        load=len(worker.held),
        labels=worker.labels,
        stats=worker.stats,
        joined_us=worker.joined_us,
        heard_us=worker.heard_us,
        succeeded=tally.succeeded,
        failed=tally.failed,
        helps="" if helped is None else helped.task.id.hex(),
    )


class Leases:
    """Who holds which tasks of a namespace: for one look between two turns."""

    def __init__(self, core: Core, namespace: str) -> None:
        self._core = core
        self._namespace = core.book.namespaces.get(namespace) or Namespace(namespace)

    def is_connected(self, worker: str) -> bool:
        """Return whether a worker of this name is there."""
        known = self._core.roster.workers.get((self._namespace.name, worker))
        return known is not None and known.session != 0

    def of(self, worker: str) -> tuple[list[Held], set[str]]:
        """Return what a worker holds, and the queues of that."""
        tasks = self._namespace.leases.get(worker, {}).values()
        held = [Held(task.id, lease_of(task).fence) for task in tasks]
        return held, {task.queue.name for task in tasks}

    def holder(self, held: Held) -> tuple[str, str]:
        """Return which worker holds a task by this fence, and the task's queue; empty for none."""
        task = self._core.book.tasks.get(held.task)
        if task is None or task.attempt is None or task.queue.namespace is not self._namespace:
            return "", ""
        is_same = task.attempt.fence == held.fence
        return (task.attempt.worker, task.queue.name) if is_same else ("", "")

    def tally(self, worker: str) -> Tally | None:
        """Return what a worker has done."""
        return self._namespace.tallies.get(worker)
