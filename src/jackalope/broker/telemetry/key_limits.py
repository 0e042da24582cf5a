"""What happens at limits by key, and what they hold at this moment.

Owns under which name a limit is counted: its own, as long as there is room, and never a value of
its keys. Counters begin at zero with the process.
"""

from __future__ import annotations

import msgspec

from jackalope.core.ids import TaskId
from jackalope.core.records import SignalRequested, TaskMoved
from jackalope.core.records.limits import GatesClosed
from jackalope.core.shapes.limit import BY_LIMIT
from jackalope.core.state.gates import gate_name
from jackalope.core.state.queue import Namespace
from jackalope.core.task import Task

#: Limits beyond this many are counted together, because everything has a limit.
LIMITS_MAX = 100

#: The name of all that are counted together, which no namespace has.
OTHERS = ("", "other")

LimitName = tuple[str, str]


class LimitReading(msgspec.Struct):
    """The use of a limit by key, and what it did since the start of the process."""

    in_flight: int = 0  # tasks that hold a slot
    waiting: int = 0  # ready tasks that it counts
    throttled: int = 0  # attempts of which workers reported that they came too soon
    cancelled: int = 0  # tasks that were cancelled because it was full


class LimitMeter:
    """Counts what happens at limits by key."""

    def __init__(self) -> None:
        self._readings: dict[LimitName, LimitReading] = {}

    def count_closed(self, record: GatesClosed) -> None:
        """Count an attempt that was throttled, at each limit that it closed."""
        for name in {gate_name(text)[0] for text in record.gates}:
            self._reading(record.namespace, name).throttled += 1

    def count_cancelled(
        self, record: TaskMoved | SignalRequested, tasks: dict[TaskId, Task]
    ) -> None:
        """Count a task that a limit cancelled: one that waited, or runs and is asked to stop."""
        task = tasks.get(record.task) if record.by.startswith(BY_LIMIT) else None
        if task is not None:
            name = record.by.removeprefix(BY_LIMIT)
            self._reading(task.queue.namespace.name, name).cancelled += 1

    def take(self, namespaces: dict[str, Namespace]) -> dict[LimitName, LimitReading]:
        """Return the limits that there are, with what they hold now."""
        there = {(each.name, name) for each in namespaces.values() for name in each.gates.limits}
        for gone in self._readings.keys() - there - {OTHERS}:
            del self._readings[gone]
        for reading in self._readings.values():
            reading.in_flight = reading.waiting = 0
        for name in sorted(there):
            self._reading(*name)
        for namespace in namespaces.values():
            for gate in namespace.gates.gates.values() if namespace.gates.limits else ():
                if gate.name[0]:
                    reading = self._reading(namespace.name, gate.name[0])
                    reading.in_flight += gate.use
                    reading.waiting += gate.queued()
        return {name: msgspec.structs.replace(each) for name, each in self._readings.items()}

    def _reading(self, namespace: str, name: str) -> LimitReading:
        found = self._readings.get((namespace, name))
        if found is None:
            own = len(self._readings) < LIMITS_MAX
            found = self._readings.setdefault((namespace, name) if own else OTHERS, LimitReading())
        return found
