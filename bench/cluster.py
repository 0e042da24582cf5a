"""Three nodes beside one, beside three of RabbitMQ, and beside the log that they stand on.

- The table: rates and round trips of `bench peers`, the systems by turns, medians and spread.
- The pace: 7,000 submits a second, each a call of its own, for some seconds; how long each took
  from the moment at which it was due.
- The gap: submits one after the other while the leader is killed with SIGKILL; the longest time
  between two acknowledgements. RabbitMQ's client connects again as soon as it has lost its node.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.peers import install, registry, runs, servers
from bench.peers.base import Figures
from bench.peers.place import Place
from bench.peers.processes import ROOT, stop_tree

_SYSTEMS = ["jackalope", *registry.THREE]
_US = "jackalope_three"
_PACE_PER_S = 7_000
_PACE_S = 5.0
_PACE_MS_MAX = 50.0
_GAP_S_MAX = 2.0
_BEFORE_S, _AFTER_S = 2.0, 15.0

_ABOUT = (
    "Measured by `python -m bench cluster` on {}, Python {}. All nodes, the client and the worker "
    "share the machine's cores and its disk. Medians [spread] (how many times better three nodes "
    "of Jackalope are)."
)
_ROWS = (
    ("submit_one_per_s", "submit one /s", True),
    ("submit_bulk_per_s", "submit bulk /s", True),
    ("end_to_end_per_s", "end to end /s", True),
    ("round_trip_p50_ms", "round trip p50 ms", False),
    ("round_trip_p99_ms", "round trip p99 ms", False),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("--quick", action="store_true", help="coarse: one round, one kill each")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="3 rounds")
    parser.add_argument("--kills", type=int, default=5, metavar="N", help="5 leaders are killed")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the page")
    parser.add_argument("--part", choices=["pace", "gap", "gap-rabbitmq"], help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Set up what is missing, measure, and show."""
    if not install.is_ready() or servers.missing():
        install.install()
    install.enter(install.VENV)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if args.part is not None:
        print(json.dumps(_measure_part(args.part)))
        return 0
    kills = 1 if args.quick else args.kills
    settings = runs.Settings(
        names=_SYSTEMS,
        is_quick=args.quick,
        repeats=1 if args.quick else args.repeats,
        redis_fsync="everysec",
        queue_type="quorum",
        has_memory=False,
        starts=5,
    )
    figures = runs.run(settings)
    paces = [_part("pace") for _ in range(1 if args.quick else 3)]
    gaps = {"jackalope_three": [], "rabbitmq_three": []}  # type: dict[str, list[float]]
    for _ in range(kills):
        gaps["jackalope_three"] += _part("gap")
        gaps["rabbitmq_three"] += _part("gap-rabbitmq")
    page = _page(figures, paces, gaps)
    print(page)
    if args.save is not None:
        args.save.write_text(page)
    return 0


def _part(name: str) -> list[float]:
    """Measure in a process of its own: clients leave threads and loops behind."""
    child = subprocess.Popen(
        [sys.executable, "-m", "bench", "cluster", "--part", name], cwd=ROOT, stdout=subprocess.PIPE
    )
    try:
        output, _ = child.communicate(timeout=300)
        print(f"{name}: {output.decode().strip()}", file=sys.stderr)
        return list(json.loads(output))
    finally:
        stop_tree(child, signal.SIGKILL)


def _measure_part(name: str) -> list[float]:
    folder = Path(tempfile.mkdtemp(prefix="jackalope-cluster-"))
    place = Place.new("cluster", folder, "everysec", "quorum")
    place.export()
    measure = {"pace": _pace, "gap": _gap, "gap-rabbitmq": _gap_rabbitmq}[name]
    try:
        with asyncio.Runner(loop_factory=import_module("uvloop").new_event_loop) as runner:
            return runner.run(measure(place))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _pace(place: Place) -> list[float]:
    """Return p50, p99 and the greatest time of a submit in milliseconds, and the rate held."""
    peer = import_module("bench.peers.three").JackalopeThree(place)
    times_ms: list[float] = []
    try:
        await peer.open()

        async def submit(due: float) -> None:
            await peer.submit_one()
            times_ms.append((time.perf_counter() - due) * 1_000)

        for _ in range(200):
            await peer.submit_one()
        pending: set[asyncio.Task[None]] = set()
        begin, sent = time.perf_counter(), 0
        while (passed_s := time.perf_counter() - begin) < _PACE_S:
            while sent < passed_s * _PACE_PER_S:
                task = asyncio.create_task(submit(begin + sent / _PACE_PER_S))
                pending.add(task)
                task.add_done_callback(pending.discard)
                sent += 1
            await asyncio.sleep(0.001)
        await asyncio.gather(*pending)
        rate = sent / (time.perf_counter() - begin)
    finally:
        await peer.stop()
    times_ms.sort()
    p99 = times_ms[math.ceil(len(times_ms) * 0.99) - 1]
    return [statistics.median(times_ms), p99, times_ms[-1], rate]


async def _gap(place: Place) -> list[float]:
    """Kill the leader, and return the longest time without an acknowledgement in seconds."""
    three = import_module("bench.peers.three")
    peer = three.JackalopeThree(place)
    try:
        await peer.open()
        leader = await three.leader_of(peer.brokers)
        acks: list[float] = []

        async def submit() -> None:
            while True:
                await peer.submit_one()
                acks.append(time.monotonic())

        submitting = asyncio.create_task(submit())
        await asyncio.sleep(_BEFORE_S)
        leader.kill()
        await _goes_on(acks)
        submitting.cancel()
        await asyncio.gather(submitting, return_exceptions=True)
        return [_longest(acks)]
    finally:
        await peer.stop()


async def _gap_rabbitmq(place: Place) -> list[float]:
    """The same with a quorum queue, whose leader is on the node that made it: the first."""
    three = import_module("bench.peers.three")
    pika = import_module("bench.peers.pika")
    peer = three.RabbitmqThree(place)
    await peer.open()
    try:
        ports = peer.ports
        urls = [place.amqp_url.replace(f":{ports[0]}/", f":{port}/") for port in ports]
        acks: list[float] = []
        channel = pika.Channel(urls[0])
        first = time.monotonic()
        is_killed, at = False, 0
        while time.monotonic() < first + _BEFORE_S + _AFTER_S:
            try:
                channel.publish(1)
                acks.append(time.monotonic())
            except Exception:  # noqa: BLE001 - whatever pika makes of a node that is gone
                at = (at + 1) % len(urls)
                channel = _connect_again(pika, urls[at]) or channel
            if not is_killed and time.monotonic() > first + _BEFORE_S:
                peer.servers[0].kill()
                is_killed = True
            elif is_killed and acks[-1] > first + _BEFORE_S + _GAP_S_MAX:
                break
        return [_longest(acks)]
    finally:
        await peer.stop()


def _connect_again(pika: Any, url: str) -> Any:
    try:
        return pika.Channel(url)
    except Exception:  # noqa: BLE001 - this one is not ready either
        time.sleep(0.02)
        return None


async def _goes_on(acks: Sequence[float]) -> None:
    """Return when submits are acknowledged again for a while, or after the longest time."""
    killed = time.monotonic()
    while time.monotonic() < killed + _AFTER_S:
        await asyncio.sleep(0.1)
        if acks and acks[-1] > killed + _GAP_S_MAX:
            return


def _longest(acks: Sequence[float]) -> float:
    return max(after - before for before, after in itertools.pairwise(acks))


def _page(
    figures: dict[str, Figures], paces: Sequence[Sequence[float]], gaps: dict[str, list[float]]
) -> str:
    """Return everything as Markdown."""
    names = [name for name in figures if "error" not in figures[name]]
    lines = [
        "# Three nodes on one machine",
        "",
        _ABOUT.format(f"{platform.system()} {platform.release()}", platform.python_version()),
        "",
        "| | " + " | ".join(names) + " |",
        "|---|" + "---:|" * len(names),
    ]
    ours = figures[_US]
    for figure, title, is_more_better in _ROWS:
        cells = [_cell(figures[name], ours, figure, is_more_better) for name in names]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    lines += [f"- {name}: {figures[name]['error']}" for name in figures if name not in names]
    p50, p99, longest, rate = (statistics.median(column) for column in zip(*paces, strict=True))
    lines += [
        "",
        (
            f"At {_PACE_PER_S:,} submits a second for {_PACE_S:.0f} s ({rate:,.0f}/s held): p50 "
            f"{p50:.1f} ms, p99 {p99:.1f} ms (aim {_PACE_MS_MAX:.0f}), longest {longest:.0f} ms; "
            f"medians of {len(paces)} runs."
        ),
        "",
        "| leader killed: longest time without an acknowledgement | median s | worst s | kills |",
        "|---|---:|---:|---:|",
    ]
    for name, found in gaps.items():
        middle, worst = statistics.median(found), max(found)
        lines.append(f"| {name} | {middle:.2f} | {worst:.2f} | {len(found)} |")
    return "\n".join([*lines, ""])


def _cell(of: Figures, ours: Figures, figure: str, is_more_better: bool) -> str:
    value, our = of[figure], ours.get(figure)
    if value is None:
        return "-"
    least, most = of["spread"][figure]
    text = f"{_short(value)} [{_short(least)}-{_short(most)}]"
    if of is ours or our is None:
        return text
    return f"{text} ({our / value if is_more_better else value / our:.2g}x)"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"
