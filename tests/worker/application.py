"""An application with tasks of every kind, for workers under test."""

import asyncio
import ctypes
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from jackalope.tasks.context import current, running
from jackalope.tasks.definition import TaskDefinition
from jackalope.tasks.serialization import Stream
from jackalope.transport.address import Address
from jackalope.worker.attempt import Reject, RetryLater
from jackalope.worker.context import Cancelled, SoftTimeout, TaskContext


class Application:
    """What a worker needs of an application, and no more."""

    def __init__(self) -> None:
        self.functions: dict[str, TaskDefinition] = {}
        self.address = Address("127.0.0.1")

    def task(self, **settings: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def define(function: Callable[..., Any]) -> Callable[..., Any]:
            name = function.__name__
            self.functions[name] = TaskDefinition(function, name=name, **settings)
            return function

        return define


app = Application()


def context() -> TaskContext:
    found = running.get()
    assert isinstance(found, TaskContext)
    return found


def mark(path: str) -> None:
    """Tell a test that this point is reached."""
    with Path(path).open("a") as file:
        file.write(f"{os.getpid()}\n")


def is_marked(path: str) -> bool:
    return Path(path).exists()


# Large bodies.


def _copied(film: Stream) -> Iterator[bytes]:
    yield from film


@app.task(content="bytes", isolation="thread")
def copy_in_thread(film: Stream) -> Iterator[bytes]:
    return _copied(film)


@app.task(content="bytes", isolation="process")
def copy_in_process(film: Stream) -> Iterator[bytes]:
    return _copied(film)


@app.task(content="bytes", isolation="process")
async def copy_async_in_process(film: Stream) -> AsyncIterator[bytes]:
    async def copied() -> AsyncIterator[bytes]:
        for chunk in film:
            yield chunk

    return copied()


# Coroutines.


@app.task()
async def add(left: int, right: int) -> int:
    return left + right


@app.task()
async def add_later(left: int, right: int) -> int:
    async with asyncio.timeout(60):
        await asyncio.sleep(0)
    return left + right


@app.task()
async def fail(message: str) -> None:
    raise ValueError(message)


@app.task()
async def retry_later(after_s: float) -> None:
    raise RetryLater("not now", after=after_s)


@app.task()
async def reject() -> None:
    raise Reject("never")


@app.task()
async def return_nothing() -> None:
    pass


@app.task()
async def return_object() -> object:
    return object()


@app.task()
async def return_bytes(size: int) -> bytes:
    return bytes(size)


_met: list[asyncio.Future[None]] = []


@app.task()
async def meet(number: int) -> None:
    """Wait until so many of these run at once."""
    mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    _met.append(mine)
    if len(_met) == number:
        for waiting in _met:
            waiting.set_result(None)
    await mine


@app.task()
async def who() -> list[Any]:
    await asyncio.sleep(0)
    me = context()
    return [me.id, me.attempt, me.fence, me.name, me.queue, me.is_cancelled]


@app.task()
async def wait_for_ever(begun: str = "") -> None:
    if begun:
        mark(begun)
    await asyncio.Event().wait()


@app.task()
async def wait_for_file(path: str, begun: str = "") -> str:
    if begun:
        mark(begun)
    while not is_marked(path):  # noqa: ASYNC110  another process makes the mark
        await asyncio.sleep(0.01)
    return "seen"


@app.task()
async def stubborn(release: str) -> str:
    while not is_marked(release):
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue
    return "at last"


@app.task(soft_timeout_us=50_000)
async def soft() -> str:
    try:
        await asyncio.Event().wait()
    except SoftTimeout:
        return "cleaned up"
    return "never"


@app.task()
async def report(percents: list[float]) -> None:
    for percent in percents:
        context().progress(percent, f"at {percent:g}")
    await asyncio.Event().wait()


@app.task()
async def hold_interpreter(seconds: float, begun: str = "") -> str:
    """Hold the interpreter: no thread of this process runs Python meanwhile."""
    if begun:
        mark(begun)
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))
    return "held"


@app.task()
async def block_loop(release: str, begun: str = "") -> str:
    if begun:
        mark(begun)
    while not is_marked(release):
        time.sleep(0.01)  # noqa: ASYNC251  blocking is the point
    return "free"


@app.task()
async def end_worker() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# Threads.


@app.task()
def multiply(left: int, right: int) -> int:
    return left * right


@app.task()
def hold_interpreter_in_thread(seconds: float) -> int:
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))
    return 1


@app.task(isolation="thread")
async def add_in_thread(left: int, right: int) -> int:
    await asyncio.sleep(0)
    return left + right


@app.task()
def heed(begun: str = "") -> None:
    if begun:
        mark(begun)
    while True:
        context().raise_if_cancelled()
        time.sleep(0.005)


@app.task()
def loop_in_python() -> None:
    while True:
        sum(range(100))


@app.task()
def sleep_in_c(release: str, begun: str = "") -> str:
    """Ignore everything, as code outside Python does."""
    is_done = False
    while not is_done:
        try:
            if begun:
                mark(begun)
            while not is_marked(release):
                time.sleep(0.01)
            is_done = True
        except Cancelled:
            continue
    return "done"


@app.task(soft_timeout_us=50_000)
def soft_in_thread() -> str:
    try:
        while True:
            time.sleep(0.005)
    except SoftTimeout:
        return "cleaned up"


# Processes.


@app.task(isolation="process")
def pid() -> int:
    return os.getpid()


@app.task(isolation="process")
async def isolated_add(left: int, right: int) -> int:
    await asyncio.sleep(0)
    return left + right


@app.task(isolation="process")
def isolated_fail(message: str) -> None:
    raise KeyError(message)


@app.task(isolation="process")
def compute_in_c(begun: str = "") -> int:
    """Compute for hours in one call, which does not even look at signals."""
    if begun:
        mark(begun)
    return sum(range(10**12))


@app.task(isolation="process")
def isolated_nap(duration_s: float) -> None:
    time.sleep(duration_s)


@app.task(isolation="process")
def isolated_wait(begun: str = "", cleaned: str = "") -> None:
    try:
        if begun:
            mark(begun)
        time.sleep(1000)
    finally:
        if cleaned:
            mark(cleaned)


@app.task(isolation="process")
async def isolated_wait_async(begun: str = "") -> None:
    if begun:
        mark(begun)
    await asyncio.Event().wait()


@app.task(isolation="process", soft_timeout_us=50_000)
def isolated_soft() -> str:
    try:
        time.sleep(1000)
    except SoftTimeout:
        return "cleaned up"
    return "never"


@app.task(isolation="process", memory_bytes_max=256 * 1024 * 1024)
def eat(size: int) -> int:
    return len(bytearray(size))


@app.task(isolation="process")
def end_by_signal(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(1000)


@app.task(isolation="process")
def end_by_exit(code: int) -> None:
    os._exit(code)


@app.task(isolation="process")
def keep(size: int) -> int:
    _kept.append(bytearray(size))
    return os.getpid()


_kept: list[bytearray] = []


@app.task(isolation="process")
def isolated_report() -> None:
    for percent in range(51):
        context().progress(percent, f"at {percent}")
    time.sleep(1000)


@app.task(isolation="process")
def start_another() -> int:
    """Start a process that outlives this one unless somebody ends it too."""
    child = os.fork()
    if child == 0:
        time.sleep(1000)
        os._exit(0)
    Path(f"/proc/{child}").exists()
    mark(os.environ.get("JACKALOPE_TEST_MARK", os.devnull))
    time.sleep(1000)
    return child


@app.task(isolation="process")
def write_and_abort(word: str) -> None:
    print("out", word)
    os.abort()


@app.task(isolation="process")
def isolated_log(end: bool) -> None:
    """Log in every way, and come to a sudden end."""
    logging.getLogger("shop").warning("few %s left", "cats")
    logging.getLogger("shop").debug("not of interest")
    context().log.info("painted", tiles=3)
    context().log.debug("not of interest")
    if end:
        os.kill(os.getpid(), signal.SIGKILL)


@app.task(isolation="process")
def isolated_modules() -> list[str]:
    """Return what of the log's own modules this process has loaded."""
    return [name for name in ("structlog", "jackalope.log_setup") if name in sys.modules]


@app.task(isolation="process")
def isolated_rest(begun: str, release: str) -> str:
    """Wait for somebody who needs this task's slot."""
    mark(begun)
    with context().rest():
        while not is_marked(release):
            time.sleep(0.01)
    return "rested"


@app.task()
async def touch(path: str) -> str:
    mark(path)
    return "touched"


@app.task(isolation="process")
def isolated_progress() -> str:
    context().progress(1, "first")
    context().progress(50, "middle")
    context().progress(100, "last")
    return "done"


def _write(path: str, word: str) -> str:
    with Path(path).open("a") as file:
        file.write(f"{word}\n")
    return word.upper()


@app.task()
async def order(path: str, release: str, sleep_s: float = 0.2) -> list[object]:
    """Charge, sleep, wait for an approval, and ship; each writes a line where it is done."""
    steps = context()
    paid = await steps.step("charge", _write, path, "charge")
    await steps.sleep(sleep_s)
    packed = await steps.step("pack", _pack, path, release)
    approved = await steps.wait_for("approved", timeout=60, returns=dict[str, str])
    shipped = await steps.step("ship", _write, path, "ship")
    return [paid, packed, approved["by"], shipped, steps.attempt]


async def _pack(path: str, release: str) -> str:
    while not is_marked(release):  # noqa: ASYNC110  another process marks it
        await asyncio.sleep(0.01)
    return _write(path, "pack")


@app.task()
def blocking_order(path: str) -> list[object]:
    """The same in a thread."""
    steps = context().blocking
    paid = steps.step("charge", _write, path, "charge")
    steps.sleep(0.2)
    try:
        steps.wait_for("approved", timeout=0.2)
    except TimeoutError as error:
        return [paid, str(error), context().attempt]
    return []


@app.task(isolation="process")
def isolated_order(path: str, release: str, sleep_s: float = 0.2) -> list[object]:
    """The same in a process of its own, which says where it is."""
    steps = context().blocking
    paid = steps.step("charge", _write, path, "charge")
    steps.sleep(sleep_s)
    mark(f"{path}.pids")
    while not is_marked(release):
        time.sleep(0.01)
    approved = steps.wait_for("approved", timeout=60, returns=dict[str, str])
    shipped = steps.step("ship", _write, path, "ship")
    return [paid, approved["by"], shipped, context().attempt]


@app.task(isolation="process")
async def isolated_waits(path: str) -> list[object]:
    """Await steps in a process of its own."""
    steps = context()
    paid = await steps.step("charge", _write, path, "charge")
    try:
        await steps.wait_for("approved", timeout=0.1)
    except TimeoutError as error:
        return [paid, str(error), steps.attempt]
    return []


@app.task(isolation="process")
def isolated_names(path: str) -> str:
    """Come to a step of another name in every attempt, as if the code had changed."""
    steps = context().blocking
    steps.step(f"charge {context().attempt}", _write, path, "charge")
    steps.sleep(0.05)
    return "done"


@app.task(isolation="process")
def isolated_steps(count: int, size: int) -> int:
    """Do so many steps with results of a size, all at once after another."""
    steps = context().blocking
    return sum(len(steps.step(f"{number}", bytes, size)) for number in range(count))


@app.task(isolation="process", soft_timeout_us=300_000)
def isolated_impatient() -> str:
    """Lose patience while the broker is asked."""
    try:
        context().blocking.step("charge", str, "paid")
    except SoftTimeout:
        return "too late"
    return "in time"


@app.task()
def number(value: int, size: int = 0) -> dict[str, object]:
    return {"value": value, "ballast": "x" * size}


@app.task(isolation="process")
def add_in_process(results: list[dict[str, Any]]) -> list[object]:
    return [sum(each["value"] for each in results), sorted(current().inputs)]


@app.task(isolation="process")
async def add_async_in_process(results: list[dict[str, Any]], more: int = 0) -> list[object]:
    return [sum(each["value"] for each in results) + more, sorted(current().inputs)]
