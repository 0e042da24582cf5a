"""`make demo`: a broker, three workers, a picture, and a murder.

Starts everything on this machine, in a folder of its own, kills one worker on the way, and shows
that the picture is complete all the same. Ends by itself with DEMO_EXIT=1.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.mandelbrot.picture import Picture
from jackalope import Handle, Jackalope, as_completed

WIDTH, HEIGHT = 1600, 1200
WORKERS = 3
SLOTS = 2
MURDER_AT = 0.3

console = Console()
Worker = subprocess.Popen[bytes]


def main() -> int:
    """Run the demo, and return its exit code."""
    folder = Path(tempfile.mkdtemp(prefix="jackalope-demo-"))
    broker, address, page = start_broker(folder)
    # The tasks' module reads the address when it is imported, here and in every worker.
    os.environ["JACKALOPE_BROKER"] = address
    workers = [start_worker(f"painter-{number}") for number in range(1, WORKERS + 1)]
    say("broker", f"{address}, every task on disk before it is acknowledged")
    say("page", f"{page} shows all of it live, in a browser")
    say("workers", f"{WORKERS} processes with {SLOTS} slots each")
    try:
        picture = asyncio.run(render(workers))
        path = Path("demo.png").resolve()
        picture.save(path)
        say("picture", f"{WIDTH} x {HEIGHT} pixels, saved as {path}")
        if not os.environ.get("DEMO_EXIT"):
            stay(address, page)
    finally:
        stop([*workers, broker])
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def start_broker(folder: Path) -> tuple[Worker, str, str]:
    """Start a broker on free ports, and return it with its address and that of the dashboard."""
    command = [sys.executable, "-m", "jackalope", "serve", "--data", str(folder)]
    command += ["--port", "0", "--http-port", "0"]
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    address, page = (said_by(broker, scheme) for scheme in ("jackalope://", "http://"))
    return broker, address, page


def said_by(broker: Worker, scheme: str) -> str:
    """Return the address that the next line of the broker names."""
    line = broker.stdout.readline().decode() if broker.stdout else ""
    address = next((word for word in line.split() if word.startswith(scheme)), "")
    if not address:
        raise SystemExit(f"the broker did not start: {line!r}")
    return address.rstrip(",;")


def start_worker(name: str) -> Worker:
    """Start a worker."""
    command = [sys.executable, "-m", "jackalope", "worker", "examples.mandelbrot.tasks:app"]
    command += ["--queues", "tiles", "--concurrency", str(SLOTS), "--name", name]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


async def render(workers: list[Worker]) -> Picture:
    """Submit every tile, kill a worker on the way, and put the picture together."""
    from examples.mandelbrot.tasks import app, tile  # noqa: PLC0415  it reads the address

    picture = Picture(WIDTH, HEIGHT)
    corners = picture.corners()
    async with app:
        begin = time.monotonic()
        handles = await tile.submit_many((left, top, WIDTH, HEIGHT) for left, top in corners)
        say("tasks", f"{len(handles)} tiles, all durable after {time.monotonic() - begin:.3f} s")
        places = dict(zip(handles, corners, strict=True))
        seconds = await collect(picture, places, workers)
        await summarise(app, len(handles), seconds)
    return picture


async def collect(
    picture: Picture, places: dict[Handle[bytes], tuple[int, int]], workers: list[Worker]
) -> float:
    """Paste each tile as it comes, and return how long that took."""
    begin = time.monotonic()
    victim = workers[0]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        bar = progress.add_task("[bold]render [/]", total=len(places))
        done = 0
        async for handle in as_completed(places):
            left, top = places[handle]
            picture.paste(left, top, await handle.result())
            done += 1
            progress.update(bar, completed=done)
            if victim.poll() is None and done >= MURDER_AT * len(places):
                os.kill(victim.pid, signal.SIGKILL)
                victim.wait()
                progress.console.print("[bold]murder[/]   painter-1 killed with SIGKILL")
    return time.monotonic() - begin


async def summarise(app: Jackalope, tiles: int, seconds: float) -> None:
    """Say what happened, from the broker's own account."""
    latencies, retried = [], 0
    async for view in app.tasks(queue="tiles"):
        latencies.append((view.ended_us - view.created_us) / 1_000_000)
        retried += view.attempts > 1
    latencies.sort()
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_row("tiles", f"{len(latencies)} of {tiles} succeeded")
    table.add_row("rate", f"{tiles / seconds:.1f} a second")
    table.add_row("taken over", f"{retried} from the worker that was killed")
    table.add_row(
        "waited", f"{latencies[len(latencies) // 2]:.2f} s (half), {latencies[-1]:.2f} s (longest)"
    )
    console.print(table)


def stay(address: str, page: str) -> None:
    """Keep the broker up until Ctrl-C."""
    say("page", page)
    say("look", f"jackalope --broker {address} list   (also: stats, workers, history, tail)")
    say("stop", "Ctrl-C")
    try:
        signal.pause()
    except KeyboardInterrupt:
        console.print()


def stop(processes: list[Worker]) -> None:
    """Ask every process to end, and see to it."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()


def say(what: str, text: str) -> None:
    """Print one line of the demo."""
    console.print(f"[bold]{what:<8}[/] {text}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
