"""An application whose tasks write down when they hold what, for workers with resources."""

import os
import time

from jackalope import Jackalope, current


def hold(log: str, number: int, gpu: int, mem: int, seconds: float) -> int:
    """Take some of the worker's resources for a while."""
    _write(log, f"begin {os.getpid()} {number} {gpu} {mem}\n")
    time.sleep(seconds)
    _write(log, f"end {os.getpid()} {number} {gpu} {mem}\n")
    return number


def _write(log: str, line: str) -> None:
    """Append a line in one piece, so that the file has the order in which things were."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


app = Jackalope("jackalope://127.0.0.1:7420")
held = app.task(name="hold", queue="jobs")(hold)


async def relay(log: str, number: int) -> bytes:
    """Submit another task, as a child of this one."""
    return (await current().spawn(held, log, number, 0, 0, 0.01)).id


app.task(name="relay", queue="jobs")(relay)
