"""The loop executor: runs coroutines on an event loop in a thread of its own.

Owns that thread. User code that blocks it blocks other coroutines, but neither the connection nor
the heartbeats, which live elsewhere.

Theory of operation: attempts wait in a deque. A runner (an asyncio task) takes one after the other
and drives each until it ends or waits. One that ends costs no task of its own. One that waits keeps
the runner for itself, and a new runner takes over the deque. A runner that has begun many in a row
lets the loop breathe first.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Coroutine
from contextvars import Context, copy_context
from typing import Any, TypeVar

import structlog

from jackalope.tasks.context import running
from jackalope.transport.connection import new_event_loop
from jackalope.worker.attempt import Attempt, Outcome
from jackalope.worker.context import TaskContext
from jackalope.worker.executors.run_coroutine import CoroutineRun, drive

T = TypeVar("T")

log = structlog.get_logger(component="worker")

#: How many attempts a runner begins before it lets others on the loop run.
_BEGINS_IN_A_ROW_MAX = 100


class LoopExecutor:
    """Runs attempts whose functions are coroutines."""

    begins_at_once = True

    def __init__(self) -> None:
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._live, name="jackalope-loop", daemon=True)
        self._waiting: deque[Attempt] = deque()
        self._is_woken = False
        self._is_closed = False
        self._runners: set[asyncio.Task[None]] = set()
        self._context: Context = copy_context()
        self._asked_at: float | None = None

    def start(self) -> None:
        self._thread.start()

    # From the thread of the connection.

    def run(self, attempts: list[Attempt]) -> None:
        """Begin attempts, in order, as soon as the loop is free."""
        self._waiting.extend(attempts)
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._take_over)

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine that belongs to no attempt, and return what it returns."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def stop(self, attempt: Attempt, level: int) -> str:
        """Cancel an attempt; return why it may go on if that was tried before.

        A coroutine can catch its cancellation, so the second try is the same as the first.
        """
        if level < 2:
            self._loop.call_soon_threadsafe(self._cancel, attempt)
            return ""
        if self.blocked_s() > 1:
            return "the loop that runs it is blocked; blocking code needs isolation='process'"
        return "the coroutine is still running after two cancellations"

    def time_out_softly(self, attempt: Attempt) -> None:
        self._loop.call_soon_threadsafe(self._time_out_softly, attempt)

    def blocked_s(self) -> float:
        """Return for how long the loop has not answered, and ask it again."""
        if self._asked_at is None:
            self._asked_at = time.monotonic()
            self._loop.call_soon_threadsafe(self._answer)
            return 0.0
        return time.monotonic() - self._asked_at

    def stack(self) -> str:
        """Return where the loop's thread is, for people who wonder what blocks it."""
        frame = sys._current_frames().get(self._thread.ident or 0)  # noqa: SLF001  as documented
        return "".join(traceback.format_stack(frame)) if frame is not None else ""

    def close(self) -> None:
        """Stop the loop, and cancel what is left on it, without any further report."""
        self._is_closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)

    def join(self, within_s: float) -> None:
        """Wait for the end of the loop's thread."""
        self._thread.join(within_s)

    # In the loop's thread.

    def _live(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._is_closed:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                # Raised by something that a task has started: asyncio lets these two through.
                log.warning("ignored a task's attempt to exit the worker", error=repr(error))
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    def _take_over(self) -> None:
        """Start a runner for what waits."""
        runner = self._loop.create_task(self._run_all())
        self._runners.add(runner)
        runner.add_done_callback(self._runners.discard)

    async def _run_all(self) -> None:
        begun = 0
        while self._waiting:
            attempt = self._waiting.popleft()
            attempt.handle = under_way = CoroutineRun()
            outcome = await self._run(attempt, under_way)
            attempt.listener.ended(attempt, outcome)
            if under_way.task is not None:
                return  # It waited, so this runner was its own, and another one took over.
            begun += 1
            if begun % _BEGINS_IN_A_ROW_MAX == 0:
                await asyncio.sleep(0)
        self._rest()

    async def _run(self, attempt: Attempt, under_way: CoroutineRun) -> Outcome:
        if attempt.cause is not None:
            return attempt.raised(asyncio.CancelledError())
        context = self._context.copy()
        try:
            coroutine = context.run(_call, attempt)
            value = await drive(coroutine, context, under_way, self._rest)
        except BaseException as error:  # noqa: BLE001  whatever it is, it is this attempt's
            return attempt.raised(error)
        return attempt.succeeded(value)

    def _rest(self) -> None:
        """End as the runner of the deque: what is in it, or comes later, is for a new one."""
        self._is_woken = False
        if self._waiting:  # Perhaps put in while the flag was still up.
            self._is_woken = True
            self._take_over()

    def _cancel(self, attempt: Attempt) -> None:
        under_way = attempt.handle
        if under_way is None:
            attempt.acknowledge()  # Not begun: `_run` will see the cause.
        elif under_way.task is not None and not under_way.task.done():
            attempt.acknowledge()
            under_way.cancel()

    def _time_out_softly(self, attempt: Attempt) -> None:
        under_way = attempt.handle
        if under_way is not None and attempt.cause is None:
            under_way.time_out_softly()

    def _answer(self) -> None:
        self._asked_at = None


def _call(attempt: Attempt) -> Any:
    running.set(TaskContext(attempt))
    return attempt.call()
