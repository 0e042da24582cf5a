"""Tasks that print and log in every way."""

import asyncio
import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import structlog

from jackalope.tasks.context import current
from tests.worker.application import app, mark

__all__ = ["app"]

MEBIBYTE = 1024 * 1024

_logger = logging.getLogger("shop.orders")

#: A handler of the application's own, which writes to the stream that tasks print to.
_own = logging.StreamHandler()
_own.setFormatter(logging.Formatter("OWN HANDLER %(message)s"))
_logger.addHandler(_own)
_logger.setLevel(logging.DEBUG)


def _speak() -> str:
    print("to stdout")
    print("to", end=" ")
    print("stderr", file=sys.stderr)
    print("both")
    sys.stdout.buffer.write(b"bytes\n")
    sys.stdout.flush()
    _logger.warning("warned of %s", "this")
    _logger.debug("two\nlines")
    try:
        raise ValueError("broken")  # noqa: TRY301
    except ValueError:
        _logger.exception("it failed")
    structlog.get_logger().info("said by structlog", number=3)
    current().log.error("said by the context", reason="a b")
    return "spoken"


@app.task()
async def speak_async() -> str:
    return _speak()


@app.task()
def speak_in_thread() -> str:
    return _speak()


@app.task(isolation="process")
def speak_in_process() -> str:
    said = _speak()
    subprocess.run(["sh", "-c", "echo from a child; echo its error >&2"], check=True)
    os.write(1, b"from below\n")
    ctypes.CDLL(None).puts(b"from C")
    ctypes.CDLL(None).fflush(None)
    return said


@app.task()
async def count_async(name: str, times: int) -> None:
    for number in range(times):
        print(f"{name} {number}")
        await asyncio.sleep(0)


@app.task()
def count_in_thread(name: str, times: int) -> None:
    for number in range(times):
        print(f"{name} {number}")
        time.sleep(0)


@app.task()
async def count_with_help(name: str, times: int) -> None:
    """Print from a thread that has the context of the task."""

    def count() -> None:
        for number in range(times):
            print(f"{name} {number}")

    await asyncio.to_thread(count)


@app.task()
def silent() -> str:
    return "nothing"


@app.task(isolation="process")
def silent_in_process() -> str:
    return "nothing"


@app.task()
def print_much(megabytes: int) -> str:
    line = "x" * 1023
    for number in range(megabytes * 1024):
        print(number, line)
    print("the end")
    return "printed"


@app.task(isolation="process")
def print_much_in_process(megabytes: int) -> str:
    line = "x" * 1023
    for number in range(megabytes * 1024):
        print(number, line)
    print("the end")
    return "printed"


@app.task()
def print_one_line(chars: int) -> None:
    print("y" * chars)


@app.task()
def flood(kind: str, megabytes: int) -> float:
    """Print much of a kind, and return how long that took."""
    return _flood(kind, megabytes)


@app.task(isolation="process")
def flood_in_process(kind: str, megabytes: int) -> float:
    return _flood(kind, megabytes)


def _flood(kind: str, megabytes: int) -> float:
    begin_s = time.perf_counter()
    if kind == "lines":
        for _ in range(megabytes * 1024):
            print("\n".join(["a line of a log"] * 64))
    elif kind == "endless":
        for _ in range(megabytes * 16):
            sys.stdout.write("y" * 64 * 1024)
    elif kind == "garbage":
        for _ in range(megabytes * 16):
            sys.stdout.buffer.write(os.urandom(64 * 1024))
    else:
        # The shell writes beside Python, where only a process of its own has it kept.
        script = f"yes 'of a child process' | head -c {megabytes * MEBIBYTE}"
        subprocess.run(["sh", "-c", script], check=True)
    print("\nthe end")
    return time.perf_counter() - begin_s


@app.task()
def print_and_wait(path: str, begun: str) -> str:
    print("before")
    mark(begun)
    while not Path(path).exists():
        time.sleep(0.01)
    print("after")
    return "done"


@app.task(isolation="process")
def crash() -> None:
    print("last words")
    os.kill(os.getpid(), signal.SIGSEGV)


@app.task()
def fail_twice(path: str) -> str:
    mark(path)
    number = len(Path(path).read_text().splitlines())
    print(f"attempt {number}")
    if number < 3:
        raise RuntimeError("again")
    return "well"


@app.task()
async def progress_bar() -> None:
    for percent in (0, 50, 100):
        sys.stderr.write(f"\rdone {percent} %")
    sys.stderr.write("\n")
    sys.stdout.write("no end of line")


@app.task()
def odd_text() -> None:
    print("\x1b[31mred\x1b[0m <script>alert(1)</script> \udcff ünïcödé")


@app.task()
def print_in_own_thread() -> None:
    thread = threading.Thread(target=print, args=("from a plain thread",))
    thread.start()
    thread.join()
    print("from the task")
