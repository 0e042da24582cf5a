"""How long the first answer for a cold key takes, beside what the worker's own start takes.

The difference is what the pool adds: noticing the task, ordering the launch, starting the process,
joining, and giving out the task.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from jackalope import Jackalope
from jackalope.broker.config.schema import NativeConfig
from jackalope.broker.service import Broker
from jackalope.doors.native import NativeDoor
from jackalope.pools.launcher import Reach
from jackalope.pools.launchers import make_launcher
from jackalope.pools.reconciler import PoolService
from jackalope.storage import Level, Storage

APPLICATION = """
from jackalope import Jackalope
app = Jackalope()
@app.task(queue="core", name="echo")
async def echo(number: int) -> int:
    return number
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--keys", type=int, default=10, help="how many cold keys, one by one")


def run(options: argparse.Namespace) -> int:
    """Measure, and print."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cold.py").write_text(APPLICATION)
        starts = [own_start(folder) for _ in range(options.keys)]
        answers, warm = asyncio.run(first_answers(folder, options.keys))
    start, answer = statistics.median(starts), statistics.median(answers)
    print(f"the worker's own start, to its first line of work   {start * 1e3:8.0f} ms")
    print(f"first answer for a cold key                          {answer * 1e3:8.0f} ms")
    print(f"  the pool adds                                      {(answer - start) * 1e3:8.0f} ms")
    print(f"answer for a warm key                                {warm * 1e3:8.1f} ms")
    return 0


def own_start(folder: Path) -> float:
    """Return how long a worker's process takes until it would connect: everything is loaded."""
    code = (
        "import jackalope.cli.app, jackalope.cli.commands.worker, jackalope.worker.runtime\n"
        "from jackalope.worker.attempt import load_application\n"
        "load_application('cold:app')\n"
    )
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
    return time.perf_counter() - begin


async def first_answers(folder: Path, keys: int) -> tuple[list[float], float]:
    """Return how long the first call for each of some keys took, and a later one."""
    broker = Broker(Storage.open(folder / "data", Level.FSYNC))
    await broker.start()
    command = [sys.executable, "-m", "jackalope", "worker", "cold:app", "--log-level", "error"]
    settings = {"type": "subprocess", "command": command, "folder": str(folder)}
    launcher = make_launcher(settings, folder / "launcher", "bench")
    pools = PoolService(broker, {"local": launcher})
    await pools.start()
    door = NativeDoor(broker, NativeConfig(port=0))
    await door.start()
    address = f"jackalope://127.0.0.1:{door.port}"
    pools.begin(Reach(address))
    took = []
    async with Jackalope(address) as app:
        await app.declare_pool("core", {"launcher": "local"})
        for number in range(keys):
            begin = time.perf_counter()
            await app.call("core", str(number), number)
            took.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        await app.call("core", "0", 0)
        warm = time.perf_counter() - begin
        await app.delete_pool("core")
        while await launcher.list():  # noqa: ASYNC110  what ends tells nobody here
            await asyncio.sleep(0.05)
    await pools.stop()
    await door.stop()
    await broker.stop()
    return took, warm


if __name__ == "__main__":
    sys.exit("python -m bench pools")
