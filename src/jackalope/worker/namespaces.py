"""A worker of several namespaces: one process for each, which have their slots together.

Owns these processes: starts them, passes signals on to them, and starts one that crashed again.
Knows nothing of tasks. All of them join with the same share, so the broker gives them no more tasks
than one worker has slots, and lets the namespaces take turns by their weights. Tasks of one
namespace never run in the process of another.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from types import FrameType

import structlog

from jackalope.parent_process import die_with_parent
from jackalope.transport.connector import Backoff
from jackalope.worker.runtime import UNTOLD, run_worker
from jackalope.worker.settings import WorkerSettings

log = structlog.get_logger(component="worker")

#: How often is looked whether one has ended.
_LOOK_S = 0.2
#: Who has worked for so long is started again at once.
_STEADY_S = 60.0
_BACKOFF_S = (0.5, 30.0)

_SECRET_BYTES = 24


class _Part:
    """The process of one namespace."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings = settings
        self.pid = 0  # 0 while there is none
        self.starts_at = 0.0  # when it is started, by the monotonic clock
        self.code: int | None = None  # its exit code, once it is not started again
        low, high = _BACKOFF_S
        self._backoff = Backoff(low, cap_s=high)

    def start(self) -> None:
        self.starts_at, parent = time.monotonic(), os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            _work(self.settings, parent)

    def look(self, *, is_stopped: bool) -> None:
        """Take note of its end, and start it if it is time."""
        if self.pid:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                self._ended(os.waitstatus_to_exitcode(status), is_stopped=is_stopped)
        elif self.code is None and is_stopped:
            self.code = 0
        elif self.code is None and time.monotonic() >= self.starts_at:
            self.start()

    def _ended(self, code: int, *, is_stopped: bool) -> None:
        if is_stopped or code not in (UNTOLD, *range(-signal.NSIG, 0)):
            self.code = code if code >= 0 else UNTOLD
            if code and not is_stopped:
                log.error("serves a namespace no more", namespace=self._where(), code=code)
            return
        if time.monotonic() - self.starts_at > _STEADY_S:
            self._backoff.reset()
        wait_s = self._backoff.next_s()
        self.starts_at = time.monotonic() + wait_s
        log.warning(
            "the process of a namespace crashed; starting it again",
            namespace=self._where(),
            code=code,
            in_s=round(wait_s, 1),
        )

    def _where(self) -> str:
        return self.settings.namespace


def _work(settings: WorkerSettings, parent: int) -> None:
    """Be the process of a namespace, to the end."""
    code = UNTOLD
    try:
        os.setsid()  # A terminal interrupts the parent alone, which passes it on.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        die_with_parent(parent)
        code = run_worker(settings)
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:
        log.exception("the process of a namespace failed", namespace=settings.namespace)
    finally:
        os._exit(code)


def run_in_namespaces(settings: WorkerSettings, namespaces: Sequence[str]) -> int:
    """Run a worker in several namespaces until it is asked to stop, and return its exit code.

    That is the worst of its processes' own, see `run_worker`. One that the broker does not want,
    or that has run its tasks, is not started again, and the others go on.
    """
    share = secrets.token_urlsafe(_SECRET_BYTES)
    parts = [_Part(replace(settings, namespace=namespace, share=share)) for namespace in namespaces]
    signals: list[int] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        signals.append(number)
        for part in parts:
            if part.pid:
                os.kill(part.pid, number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    while any(part.code is None for part in parts):
        for part in parts:
            part.look(is_stopped=bool(signals))
        time.sleep(_LOOK_S)
    return max(part.code or 0 for part in parts)
