"""The log of a process for isolated tasks: it looks like the worker's.

Owns when it begins. Most isolated tasks log nothing, and what lines are made of is slow to import,
so nothing is set up before something is logged.
"""

from __future__ import annotations

import logging
import sys

from jackalope.worker.context import name_task


class InheritedLog(logging.Handler):
    """Stands where the standard library's logging writes to, until there is something to write."""

    def __init__(self, look: str) -> None:
        """Take how the worker's log looks: its level and form; empty for as it happens to be."""
        super().__init__()
        self._look = look

    def prepare(self) -> None:
        """Catch what is logged through the standard library from now on."""
        if self._look:
            logging.getLogger().handlers = [self]
            # Whatever the look, libraries say nothing of use below this.
            logging.getLogger().setLevel(logging.INFO)
            logging.captureWarnings(capture=True)

    def begin_if_wanted(self) -> None:
        """Begin if the application is about to log by itself, and has not chosen its own way."""
        structlog = sys.modules.get("structlog")
        if structlog is not None and not structlog.is_configured():
            self.begin()

    def begin(self) -> None:
        """Set the log up, unless that is done."""
        if self._look:
            look, self._look = self._look.split(), ""
            from jackalope.logs import set_up  # noqa: PLC0415  slow, and mostly not needed

            set_up(*look, about=name_task, is_patient=False)

    def emit(self, record: logging.LogRecord) -> None:
        """Begin, and pass the line on."""
        self.begin()
        root = logging.getLogger()
        if record.levelno >= root.level:
            for handler in root.handlers:
                handler.handle(record)
