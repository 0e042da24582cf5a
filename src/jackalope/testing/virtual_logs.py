"""Task logs of a virtual broker: what attempts have printed and logged, in memory.

Owns the lines. They are captured, stored and read by the code of a real worker and broker; times
are those of the virtual clock. Called under the lock of the broker, but for the sinks themselves.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from jackalope.broker.config.task_logs import TaskLogsConfig
from jackalope.broker.logs.reading import page_of
from jackalope.core.effects import Assignment
from jackalope.core.lifecycle import ENDED
from jackalope.core.shapes.task_log import LogPage
from jackalope.core.task import Task
from jackalope.storage.sqlite.task_logs import LogStore, Slice, Wanted
from jackalope.worker.logs.limits import WAITING_BYTES_MAX, WAITING_LINES_MAX
from jackalope.worker.logs.lines import AttemptLines

if TYPE_CHECKING:
    from jackalope.testing.virtual_broker import VirtualBroker

_SETTINGS = TaskLogsConfig()


class VirtualLogs:
    """The lines of all attempts of a virtual broker."""

    def __init__(self, broker: VirtualBroker) -> None:
        self._broker = broker
        self._live: dict[int, tuple[Assignment, AttemptLines]] = {}

    def sink_of(self, given: Assignment) -> AttemptLines:
        """Return where the output of an attempt goes."""
        lines = AttemptLines(lambda: None)
        self._live[given.fence] = (given, lines)
        return lines

    def end(self, given: Assignment) -> None:
        """Store the last lines of an attempt, which takes no more."""
        live = self._live.pop(given.fence, None)
        if live is not None:
            live[1].finish()
            self._store(*live)

    def page(self, task: Task, wanted: Wanted) -> LogPage:
        """Return lines of a task, those of attempts that run included."""
        for given, lines in list(self._live.values()):
            self._store(given, lines)
        store = self._lines
        attempts, found = store.attempts(task.id), store.read(task.id, wanted)
        return page_of(task.id, wanted, attempts, found, is_ended=task.state in ENDED)

    def _store(self, given: Assignment, lines: AttemptLines) -> None:
        at_us = self._broker.now_us
        taken = [
            msgspec.structs.replace(line, at_us=at_us)
            for line in lines.take(WAITING_LINES_MAX, WAITING_BYTES_MAX)
        ]
        if taken or lines.last:
            piece = Slice(given.task, given.fence, given.attempt, "", taken, lines.last, at_us)
            sizes = (_SETTINGS.attempt_bytes_max, _SETTINGS.bytes_max)
            self._lines.write([piece], attempt_bytes_max=sizes[0], bytes_max=sizes[1])

    @cached_property
    def _lines(self) -> LogStore:
        return LogStore(None)
