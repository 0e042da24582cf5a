"""Processes on virtual time: code that awaits, blocks and reads clocks runs as it is.

A process is an event loop and threads, which stop together when it is killed or frozen. Threads are
greenlets: one that blocks lets the world go on. The names by which the code knows time, pauses and
syncs are replaced while a world runs.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context
from functools import cache, partial
from textwrap import wrap
from typing import Any

import structlog
from greenlet import GreenletExit, getcurrent, greenlet  # type: ignore[import-untyped]

from jackalope.broker.cluster import doubt, trimming
from jackalope.core.durations import SECOND
from jackalope.storage import disk
from jackalope.storage.segments import journal as segments
from tests.simulation.cluster.peers import ask_members
from tests.simulation.world import BEGIN_US, World

_set_running_loop = asyncio._set_running_loop

#: How wide a column of the trace is.
_COLUMN = 56

#: How long one round of an event loop takes, so that time passes for who asks again and again.
_ROUND_US = 40

Job = tuple[Callable[..., object], tuple[object, ...], "asyncio.Future[Any]"]


class ClusterWorld(World):
    """A world in which one process runs at a time. It is over sooner than others."""

    half_open_us = 15 * SECOND
    frozen_us = 12 * SECOND

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        super().__init__(seed, trace=trace)
        self.current: Process | None = None
        self.failure: BaseException | None = None  # something that must not happen, and did
        self.columns: list[str] = []  # who has a column of the trace; the others share the first

    def say(self, who: str, what: object) -> None:
        if not self._trace:
            return
        column = self.columns.index(who) + 1 if who in self.columns else 0
        text = str(what) if column else f"{who}: {what}"
        time_s = f"{(self.now_us - BEGIN_US) / SECOND:10.6f}"
        for line in wrap(text, _COLUMN, max_lines=3):
            print(f"{time_s:10}{' ' * (column * (_COLUMN + 2))}  {line}")
            time_s = ""

    def run(self, until_us: int, stop: Callable[[], bool]) -> None:
        super().run(until_us, lambda: self.failure is not None or stop())
        if self.failure is not None:
            raise self.failure


class Clock:
    """What a machine's clocks show: they begin at their own time, and run at their own pace."""

    def __init__(self, world: World, offset_us: int = 0, rate: float = 1.0) -> None:
        self._world = world
        self.offset_us = offset_us
        self.rate = rate

    def steady_us(self) -> int:
        return int((self._world.now_us - BEGIN_US) * self.rate) + SECOND

    def wall_us(self) -> int:
        return BEGIN_US + self.offset_us + self.steady_us()


class Process(asyncio.AbstractEventLoop):
    """One life of a program."""

    def __init__(self, world: ClusterWorld, name: str, clock: Clock) -> None:
        self.world = world
        self.name = name
        self.clock = clock
        self.is_dead = False
        self.thaws_us = 0
        self._ready: deque[asyncio.Handle] = deque()
        self._is_due = False
        self._lines: dict[object, deque[Job]] = {}
        self._threads: set[Any] = set()
        self._tasks: list[asyncio.Task[Any]] = []

    # What happens to it.

    def freeze(self, for_us: int) -> None:
        """Stop for a while; what arrives meanwhile is met afterwards, in its order."""
        self.thaws_us = max(self.thaws_us, self.world.now_us + for_us)

    def is_frozen(self) -> bool:
        return self.world.now_us < self.thaws_us

    def bury(self) -> None:
        """Let go of everything that a dead process was about to do."""
        self.is_dead = True
        with self.context():
            for thread in list(self._threads):
                thread.throw()
            for task in self._tasks:
                coroutine: Any = task.get_coro()
                for _ in range(10):  # What it does at its end may wait as well.
                    with suppress(RuntimeError):
                        coroutine.close()
                        break
        self._threads.clear()
        self._tasks.clear()
        self._ready.clear()
        self._lines.clear()

    @contextmanager
    def context(self) -> Iterator[None]:
        """Be the process that runs."""
        before, self.world.current = self.world.current, self
        loop_before = asyncio._get_running_loop()
        _set_running_loop(self)
        try:
            yield
        finally:
            self.world.current = before
            _set_running_loop(loop_before)

    def later(self, delay_us: int, action: Callable[..., object], *args: object) -> None:
        """Do something in this process later, if it lives then, and once it is not frozen."""
        self.world.after(delay_us, partial(self._enter, action, *args))

    def _enter(self, action: Callable[..., object], *args: object) -> None:
        world = self.world
        if self.is_dead:
            return
        if world.now_us < self.thaws_us:
            world.after(self.thaws_us - world.now_us, partial(self._enter, action, *args))
            return
        world.current = self
        _set_running_loop(self)
        try:
            action(*args)
        finally:
            world.current = None
            _set_running_loop(None)

    # Its threads.

    def run_in_executor(
        self, executor: object, func: Callable[..., object], *args: object
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        line = self._lines.setdefault(executor, deque())
        line.append((func, args, future))
        if len(line) == 1:
            self._begin(line)
        return future

    def _begin(self, line: deque[Job]) -> None:
        self.later(self.world.rng.randrange(20, 200), self._spawn, line)

    def _spawn(self, line: deque[Job]) -> None:
        thread = greenlet(lambda: self._work(line))
        self._threads.add(thread)
        thread.switch()

    def _work(self, line: deque[Job]) -> None:
        func, args, future = line[0]
        result, error = None, None
        try:
            result = func(*args)
        except GreenletExit:
            raise
        except Exception as raised:  # noqa: BLE001  it is raised at the caller
            error = raised
        self._threads.discard(getcurrent())
        line.popleft()
        if line:
            self._begin(line)
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def block(self, begin: Callable[[Callable[[Any], None]], None]) -> Any:
        """Let the calling thread wait until `begin`'s callback is called; return its value."""
        thread = getcurrent()
        begin(lambda value: self.later(0, thread.switch, value))
        return thread.parent.switch()

    def wait_for(self, coroutine: Any) -> Any:
        """Let the calling thread wait for what a coroutine of the loop returns."""
        task = self.create_task(coroutine)
        self.block(task.add_done_callback)
        return task.result()

    def pause(self, seconds: float) -> None:
        """Let the calling thread sleep."""
        delay_us = int(seconds * SECOND / self.clock.rate)
        self.later(delay_us, getcurrent().switch)
        getcurrent().parent.switch()

    # The event loop.

    def _run_ready(self) -> None:
        self._is_due = False
        for _ in range(len(self._ready)):
            if self.is_dead or self.is_frozen():
                break
            handle: Any = self._ready.popleft()
            if not handle._cancelled:
                handle._context.run(handle._callback, *handle._args)
        if self._ready:
            self._wake()

    def _wake(self) -> None:
        if not self._is_due:
            self._is_due = True
            self.later(_ROUND_US, self._run_ready)

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        self._wake()
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object, context: Any = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)
        delay_us = -int(-delay * SECOND / self.clock.rate) + 1
        self.later(delay_us, self._ring, timer)
        return timer

    def _ring(self, timer: asyncio.TimerHandle) -> None:
        if not timer.cancelled():
            self._ready.append(timer)
            self._wake()

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_later(when - self.time(), callback, *args, context=context)

    def _timer_handle_cancelled(self, _: asyncio.TimerHandle) -> None:
        """Nothing: a timer that is cancelled does nothing."""

    def time(self) -> float:
        return self.clock.steady_us() / SECOND

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: object = None, context: Any = None
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=str(name), context=context)
        self._tasks = [each for each in self._tasks if not each.done()]
        self._tasks.append(task)
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Nothing: what ends a process is noticed by its machine."""


# What the code knows by other names while a world runs.


class _Syncer:
    """Syncs nothing: what is written stays, until a world takes it."""

    def __init__(self, *_: object) -> None:
        self.is_due = False

    def stop(self) -> None:
        """Nothing is to be stopped."""


class _Log:
    """Says what is logged, as the process that logs it."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world

    def __getattr__(self, level: str) -> Callable[..., None]:
        return lambda what, **more: self._say(level, what, more)

    def _say(self, level: str, what: str, more: dict[str, object]) -> None:
        current = self._world.current
        self._world.say(current.name if current else "", f"{level}: {what} {more or ''}")


def _module_names(count: int) -> Iterator[tuple[Any, str, Any]]:
    del count
    for name, module in list(sys.modules.items()):
        if name.startswith("jackalope."):
            for key, value in list(vars(module).items()):
                yield module, key, value


@cache
def _places(count: int) -> list[tuple[Any, str, Any]]:
    """Return where modules have names of what is replaced; `count` tells how many modules are."""
    clocks = (time.monotonic_ns, time.time_ns, time.monotonic, time.sleep)
    wanted = (*clocks, disk.sync_file, disk.sync_folder, doubt.ask_members)
    proxy = type(structlog.get_logger())
    return [
        (module, key, value)
        for module, key, value in _module_names(count)
        if value is segments.Syncer
        or isinstance(value, proxy)
        or any(value is each for each in wanted)
        or (module.__name__, key) in _QUICKER
    ]


#: What is often, small or soon in a world that lasts a minute.
_QUICKER: dict[tuple[str, str], object] = {
    (segments.__name__, "SEGMENT_BYTES_MIN"): 64 * 1024,
    (trimming.__name__, "_TRIM_S"): 1.0,
    (trimming.__name__, "_SYNC_S"): 1.5,
}


@contextmanager
def virtual(world: ClusterWorld) -> Iterator[None]:
    """Replace clocks, pauses, syncs and logs by those of the world."""

    def clock() -> Clock:
        return world.current.clock if world.current is not None else Clock(world)

    def sleep(seconds: float) -> None:
        assert world.current is not None
        world.current.pause(seconds)

    stand_ins: dict[object, object] = {
        time.monotonic_ns: lambda: clock().steady_us() * 1_000,
        time.time_ns: lambda: clock().wall_us() * 1_000,
        time.monotonic: lambda: clock().steady_us() / SECOND,
        time.sleep: sleep,
        disk.sync_file: lambda _: None,
        disk.sync_folder: lambda _: None,
        doubt.ask_members: ask_members,
        segments.Syncer: _Syncer,
    }
    places, logger = _places(len(sys.modules)), _Log(world)
    for module, key, value in places:
        try:
            stand_in = _QUICKER.get((module.__name__, key)) or stand_ins[value]
        except (KeyError, TypeError):
            stand_in = logger
        setattr(module, key, stand_in)
    try:
        yield
    finally:
        for module, key, value in places:
            setattr(module, key, value)
