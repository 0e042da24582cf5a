"""The aims: what each row promises, what was found, and the table of both.

Owns the promises and the sentences about those that are missed. Knows nothing of how they are
measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

BEGIN, END = "<!-- aims: begin -->", "<!-- aims: end -->"

_COLUMNS = ("row", "what", "aim", "measured", "ours / theirs", "met")


@dataclass(frozen=True)
class Row:
    """A promise. A figure meets it if it is at most the aim, or at least it."""

    name: str
    part: str  # what measures it
    what: str
    aim: float
    unit: str = "x"
    is_most: bool = False
    why: str = ""  # what the profile shows if it is missed, and what would be needed

    def is_met(self, figure: float) -> bool:
        return figure <= self.aim if self.is_most else figure >= self.aim


@dataclass
class Found:
    """What a row measured: a figure for each round, and both sides of the last ratio."""

    figures: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    def add(
        self, ours: float, theirs: float | None = None, *, is_less_better: bool = False
    ) -> None:
        """Add a round: the figure itself, or how many times better ours is than theirs."""
        self.ours.append(ours)
        if theirs is None:
            self.figures.append(ours)
        else:
            self.theirs.append(theirs)
            self.figures.append(theirs / ours if is_less_better else ours / theirs)


_SUBMIT = (
    "A third is the sync, a third the wire and the wake-ups of two processes, and the rest Python: "
    "some 220 calls in the broker and 100 in the client, flat. Less takes compiled doors."
)
_TRIP = (
    "A round trip has two syncs, for the task and for its result, and two hand-overs between the "
    "worker's threads; RabbitMQ keeps no result. Half of the rest is waking three processes."
)
_END_TO_END = (
    "With client, broker, writer of history and worker on two cores, the rate is what two cores do "
    "over the CPU of a task; see the rows about CPU."
)
_CPU = (
    "The profile is flat: loops over the tasks of a command in the core, MessagePack in the doors, "
    "values that are bound for history. Less takes compiled loops."
)
_AMQP = (
    "A call is one read and one write for the request and for the reply, with nothing to spare; "
    "each is a turn of at most 370 calls, flat. Less takes compiled frames."
)
_HTTP = (
    "Requests wait for the loop of the broker, which tasks keep busy, and a list for a thread that "
    "reads history while its writer and the broker want the same two cores."
)

ROWS = (
    Row(
        "submit-bare",
        "turns",
        "one submit, p50, of a bare echo with fdatasync",
        1.8,
        is_most=True,
        why=_SUBMIT,
    ),
    Row(
        "submit-rabbitmq",
        "turns",
        "submits a second, one at a time, of RabbitMQ's confirms",
        2.0,
        why=_SUBMIT,
    ),
    Row(
        "submit-beanstalkd",
        "turns",
        "the same of beanstalkd with `-f0`",
        0.75,
        why="beanstalkd is a program in C that decides nothing. " + _SUBMIT,
    ),
    Row(
        "submit-huey",
        "turns",
        "the same of huey on SQLite",
        0.7,
        why="huey writes to its file in the client's own process: there is nothing to wake. "
        + _SUBMIT,
    ),
    Row("trip-pika-p50", "turns", "round trip, p50, of pika's RPC", 1.2, why=_TRIP),
    Row("trip-pika-p99", "turns", "round trip, p99, of pika's RPC", 1.2, why=_TRIP),
    Row("trip-dramatiq-p50", "turns", "round trip, p50, of dramatiq", 1.2, why=_TRIP),
    Row("trip-dramatiq-p99", "turns", "round trip, p99, of dramatiq", 1.2, why=_TRIP),
    Row(
        "bulk-cpu",
        "turns",
        "bulk submit, CPU of the broker for a task",
        13,
        "us",
        is_most=True,
        why=_CPU,
    ),
    Row(
        "sustained",
        "turns",
        "end to end for 60 s, history written, of pika's drain",
        2.5,
        why=_END_TO_END,
    ),
    Row(
        "cpu-all",
        "turns",
        "end to end, CPU of all processes for a task",
        50,
        "us",
        is_most=True,
        why=_CPU,
    ),
    Row("cpu-broker", "turns", "the broker's part of that", 20, "us", is_most=True, why=_CPU),
    Row(
        "cpu-history",
        "turns",
        "the part of the writer of history",
        10,
        "us",
        is_most=True,
        why=_CPU,
    ),
    Row("cpu-worker", "turns", "the worker's part", 13, "us", is_most=True, why=_CPU),
    Row("cpu-client", "turns", "the client's part", 7, "us", is_most=True, why=_CPU),
    Row(
        "memory",
        "memory",
        "broker and writer of history with 100,000 tasks pending",
        140,
        "MB",
        is_most=True,
        why="Half is the interpreters and modules of two processes, the rest the tasks.",
    ),
    *(
        Row(
            f"{client}-{what}",
            "amqp",
            f"AMQP, {client}: {label} a second, of RabbitMQ",
            1.2 if what == "calls" and client != "aio-pika" else 1.5,
            why=_AMQP,
        )
        for client in ("aio-pika", "kombu", "pika")
        for what, label in (
            ("confirmed", "confirmed publishes"),
            ("drained", "drained with acks"),
            ("calls", "calls"),
        )
    ),
    Row(
        "http-look",
        "http",
        "a look at a task over HTTP, p50, at half speed",
        5,
        "ms",
        is_most=True,
        why=_HTTP,
    ),
    Row(
        "http-list",
        "http",
        "a list of twenty over HTTP, p50, at half speed",
        100,
        "ms",
        is_most=True,
        why=_HTTP,
    ),
    Row(
        "start-help",
        "start",
        "`jackalope --help`",
        0.25,
        "s",
        is_most=True,
        why="click and rich, which the help is made of, are most of it.",
    ),
    Row(
        "start-serve",
        "start",
        "`jackalope serve` until it accepts",
        0.4,
        "s",
        is_most=True,
        why="Most is the modules of the broker, the rest the folder and the writer of history.",
    ),
)


def markdown(rows: Sequence[Row], found: Mapping[str, Found], notes: Sequence[str]) -> str:
    """Lay out what was found beside the aims, and say what the missed ones need."""
    lines = ["| " + " | ".join(_COLUMNS) + " |", "|" + "---|" * len(_COLUMNS)]
    missed: dict[str, list[str]] = {}
    for row in rows:
        of = found.get(row.name)
        if of is None or not of.figures:
            cells = [row.name, row.what, _aim(row), "-", "-", "not measured"]
        else:
            is_met = row.is_met(statistics.median(of.figures))
            sides = f"{_number(of.ours)} / {_number(of.theirs)}" if of.theirs else "-"
            met = "yes" if is_met else "no"
            cells = [row.name, row.what, _aim(row), f"{_spread(of.figures)} {row.unit}", sides, met]
            if not is_met:
                missed.setdefault(row.why, []).append(f"`{row.name}`")
        lines.append("| " + " | ".join(cells) + " |")
    parts = ["\n".join(lines), "\n".join(notes)]
    if missed:
        reasons = [f"- {', '.join(names)}: {why}" for why, names in missed.items()]
        parts.append("What the profiles show of those that are missed:\n\n" + "\n".join(reasons))
    return "\n\n".join(part for part in parts if part)


def write(page: Path, text: str) -> None:
    """Put the table between the markers of a page.

    Raises:
        ValueError: the page has no markers.
    """
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page} has no place for the table: {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


def _aim(row: Row) -> str:
    return f"{'at most' if row.is_most else 'at least'} {row.aim:g} {row.unit}"


def _spread(values: Sequence[float]) -> str:
    if len(values) < 3:
        return _number(values)
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{_number(values)} [{_number([low])}-{_number([high])}]"


def _number(values: Sequence[float]) -> str:
    value = statistics.median(values)
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
