"""The thread executor: runs blocking functions in threads.

Owns a pool of daemon threads, started as they are needed: a function that never returns must not
keep the worker from exiting.

A thread cannot be stopped from outside. What can be done is done in this order: the context sets
`is_cancelled`; then `Cancelled` is raised in the thread, which works while it runs Python code;
then it is reported that the thread still runs.
"""

from __future__ import annotations

import ctypes
import threading
from contextvars import Context, copy_context
from queue import SimpleQueue

from jackalope.tasks.context import running
from jackalope.worker.attempt import Attempt, Outcome
from jackalope.worker.context import Cancelled, SoftTimeout, TaskContext
from jackalope.worker.executors.run_coroutine import run_coroutine


class ThreadExecutor:
    """Runs attempts whose functions block. How many at once is its caller's matter."""

    begins_at_once = True

    def __init__(self) -> None:
        self.threads = 0  # how many threads there are
        self._idle = threading.Semaphore(0)
        self._waiting: SimpleQueue[Attempt | None] = SimpleQueue()
        self._context: Context = copy_context()

    def run(self, attempts: list[Attempt]) -> None:
        """Begin attempts, in order, each in a thread of its own."""
        for attempt in attempts:
            if not self._idle.acquire(blocking=False):
                self.threads += 1
                name = f"jackalope-thread-{self.threads}"
                threading.Thread(target=self._live, name=name, daemon=True).start()
            self._waiting.put(attempt)

    def stop(self, attempt: Attempt, level: int) -> str:
        if level == 0:
            return ""  # The cause stands in the attempt, where its context shows it.
        if level == 1:
            if isinstance(attempt.handle, Gate):
                attempt.handle.throw(Cancelled)
            return ""
        return "a thread cannot be stopped from outside; use isolation='process'"

    def time_out_softly(self, attempt: Attempt) -> None:
        if attempt.cause is None and isinstance(attempt.handle, Gate):
            attempt.handle.throw(SoftTimeout)

    def close(self) -> None:
        """Let idle threads end."""
        for _ in range(self.threads):
            self._waiting.put(None)

    # In the threads.

    def _live(self) -> None:
        while (attempt := self._waiting.get()) is not None:
            outcome = self._run(attempt)
            self._idle.release()
            attempt.listener.ended(attempt, outcome)

    def _run(self, attempt: Attempt) -> Outcome:
        attempt.handle = gate = Gate()
        try:
            try:
                return self._context.copy().run(_call, attempt)
            finally:
                gate.close()
        except BaseException as error:  # noqa: BLE001  raised from outside, between the two
            gate.close()
            return attempt.raised(error)


class Gate:
    """Lets exceptions into a thread while it runs one attempt, and never after."""

    __slots__ = ("_is_open", "_is_thrown", "_lock", "_thread")

    def __init__(self) -> None:
        self._thread = ctypes.c_ulong(threading.get_ident())
        self._lock = threading.Lock()
        self._is_open = True
        self._is_thrown = False

    def throw(self, error: type[BaseException]) -> None:
        """Raise an exception in the thread, when it next runs Python code."""
        with self._lock:
            if self._is_open:
                self._is_thrown = True
                _set_async_exception(self._thread, ctypes.py_object(error))

    def close(self) -> None:
        """Let nothing more in, and let what is on its way arrive here; for the thread itself.

        Taking it back instead would leave the interpreter looking for it at every turn, for ever:
        slower, and deadly under a tracer (CPython 3.11 looks again before it traces the first
        line of a function, and never gets past).
        """
        try:
            with self._lock:
                self._is_open = False
            if self._is_thrown:
                for _ in range(_TURNS):
                    pass
        except BaseException:  # noqa: BLE001  whatever it is, nothing waits for it any more
            self._is_open = False


#: How often a thread runs by where an exception can arrive; the first time is enough.
_TURNS = 10

_set_async_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc


def _call(attempt: Attempt) -> Outcome:
    if attempt.cause is not None:
        return attempt.raised(Cancelled())
    running.set(TaskContext(attempt))
    try:
        value = attempt.call()
        if attempt.definition.is_async:
            value = run_coroutine(value)
    except BaseException as error:  # noqa: BLE001  whatever it is, it is this attempt's
        return attempt.raised(error)
    return attempt.succeeded(value)
