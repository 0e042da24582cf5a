"""The report of a long run, as a table in a page of the documentation."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from jackalope import __version__
from jackalope.storage.shared.nats_server import find_binary
from tests.chaos import checks
from tests.chaos.evidence import Evidence
from tests.chaos.faults import Fault
from tests.chaos.history import NEVER
from tests.chaos.run import is_acknowledged, longest_gap_s

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "chaos.md"
BEGIN, END = "<!-- written by make chaos -->", "<!-- end of the report -->"


@dataclass
class Injection:
    """One fault, from its beginning until the cluster was whole again."""

    fault: Fault
    begin: int
    end: int
    failure: str = ""


@dataclass
class Loads:
    """How busy the machine was."""

    before: tuple[float, float, float]
    after: tuple[float, float, float]


def render(
    evidence: Evidence, injections: list[Injection], seed: int, seconds: float, loads: Loads
) -> str:
    """Return the whole report."""
    problems = checks.problems(evidence)
    return "\n".join(
        [
            *_facts(evidence, injections, seed, seconds, loads),
            "",
            "| fault | times | acknowledged | lost | doubled | silent, median | silent, worst |",
            "|---|---|---|---|---|---|---|",
            *_rows(evidence, injections),
            "",
            "Every check held." if not problems else "**These checks failed:**",
            *([""] if problems else []),
            *(f"- {problem}" for problem in problems),
            *(f"- {each.fault.name}: {each.failure}" for each in injections if each.failure),
        ]
    )


def _facts(
    evidence: Evidence, injections: list[Injection], seed: int, seconds: float, loads: Loads
) -> Iterator[str]:
    nats = subprocess.run([find_binary(), "--version"], capture_output=True, text=True, check=True)
    minutes = (injections[-1].end - injections[0].begin) / 60e9
    load = " / ".join(f"{each[0]:.1f}" for each in (loads.before, loads.after))
    yield f"- {datetime.now(UTC):%Y-%m-%d}, {minutes:.0f} minutes under load"
    yield f"- each of these faults once, then {seconds:.0f} s of random choice, seed {seed}"
    yield (
        f"- {len(evidence.nodes)} machines, which are network namespaces of one with "
        f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release().split('-')[0]}; "
        f"its load average of one minute before and after: {load}"
    )
    server = nats.stdout.strip().removeprefix("nats-server: ")
    yield f"- Jackalope {__version__}, Python {platform.python_version()}, nats-server {server}"
    batches = max(node.sequence for node in evidence.nodes)
    lost, doubled = len(checks.lost_ops(evidence)), len(checks.doubles(evidence))
    yield (
        f"- {checks.acknowledged(evidence):,} operations acknowledged, {batches:,} batches, "
        f"{len(evidence.led)} epochs; {lost} lost, {doubled} doubled"
    )


def _rows(evidence: Evidence, injections: list[Injection]) -> Iterator[str]:
    times = sorted(op.back for op in evidence.ops if is_acknowledged(op))
    lost, doubled = checks.lost_ops(evidence), checks.doubles(evidence)
    for fault in dict.fromkeys(each.fault for each in injections):
        mine = [each for each in injections if each.fault is fault]
        answered = [op for op in evidence.ops if op.process[:1] in "crp" and _is_in(op.back, mine)]
        gaps = [longest_gap_s(times, each.begin, each.end) for each in mine]
        cells = (
            fault.name,
            len(mine),
            f"{len(answered):,}",
            sum(_is_in(op.back, mine) for op in lost),
            len(doubled & {op.value if op.kind == "publish" else op.task for op in answered}),
            f"{median(gaps):.1f} s",
            f"{max(gaps):.1f} s",
        )
        yield f"| {' | '.join(map(str, cells))} |"


def _is_in(at: int, injections: Iterable[Injection]) -> bool:
    return at != NEVER and any(each.begin <= at <= each.end for each in injections)


def write(report: str) -> None:
    """Put the report into its page."""
    page = PAGE.read_text()
    head, _, rest = page.partition(BEGIN)
    tail = rest.partition(END)[2]
    PAGE.write_text(f"{head}{BEGIN}\n\n{report}\n\n{END}{tail}")
