"""Options that several commands share, and how their texts are read.

Owns names, help and parsing.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from jackalope.cli import completion
from jackalope.cli.base import Exit, Failure, Options, arg, opt

if TYPE_CHECKING:
    from msgspec import Struct

    from jackalope.cli.output import Screen
    from jackalope.client.app import Jackalope
    from jackalope.core.filter import Filter
    from jackalope.core.ids import TaskId

T = TypeVar("T")

_PANEL = "Which tasks"
_CANDIDATES_SHOWN = 5
_PREFIX_CHARS_MIN = 4

STATES = (
    "held",
    "waiting",
    "scheduled",
    "ready",
    "assigned",
    "running",
    "paused",
    "succeeded",
    "dead",
    "killed",
)

#: Names of sets of states, beside the states themselves.
STATE_SETS = {
    "unfinished": STATES[:7],
    "pending": ("held", "waiting", "scheduled", "ready", "paused"),
    "ended": STATES[7:],
}

SORTS = ("created", "-created", "ended", "-ended", "priority", "-priority")

Task = Annotated[str, arg("TASK", "A task: its UUID, a prefix of it, or its alias.")]
Tasks = Annotated[list[str], arg("TASK", "Tasks: UUIDs, prefixes of them, or aliases.")]
SomeTasks = Annotated[
    list[str] | None,
    arg("TASK", "Tasks: UUIDs, prefixes of them, or aliases. Or use the options below."),
]
Watch = Annotated[bool, opt("--watch -w", "Refresh until Ctrl-C.")]
Every = Annotated[str, opt("--every DURATION", "The refresh interval with --watch.")]
Wide = Annotated[
    bool,
    opt("--wide", "Show everything, whatever the width of the terminal: whole ids, more columns."),
]
Yes = Annotated[bool, opt("--yes -y", "Do not ask for confirmation.")]
DryRun = Annotated[bool, opt("--dry-run", "Show what would be done, and change nothing.")]


def seconds(text: str) -> float:
    """Read a duration such as 30s, 5m or 7d as seconds."""
    return duration_us(text) / 1_000_000


def every_s(watch: bool, every: str) -> float | None:
    """Return how often to show something again; None for once."""
    return max(seconds(every), 0.05) if watch else None


def duration_us(text: str) -> int:
    """Read a duration such as 30s, 5m or 7d as microseconds."""
    from jackalope.core.durations import parse_duration

    return reading(parse_duration, text)


def moment_us(text: str) -> int:
    """Read a time, or a duration from now, as microseconds since the epoch."""
    from jackalope.cli.formatting import now_us, parse_time

    if ":" in text or text.count("-") == 2:
        return reading(parse_time, text)
    return now_us() + duration_us(text)


def reading(read: Callable[[str], T], text: str) -> T:
    """Read a text, and fail as usage does if it cannot be read."""
    try:
        return read(text)
    except ValueError as error:
        raise Failure(str(error), code=Exit.USAGE) from None


def read_changes(shape: "type[Struct]", texts: Iterable[str] | None, owner: str) -> dict[str, Any]:
    """Read changes of a struct that are written as key=value, all problems at once."""
    from jackalope.core.settings import as_data, find_field, read

    changes: dict[str, Any] = {}
    problems = []
    for text in texts or ():
        key, equals, value = text.partition("=")
        try:
            if not equals:
                raise ValueError("write it as key=value")  # noqa: TRY301  one way for all
            field = find_field(shape, key, owner)
            changes[field.name] = as_data(read(field, value, is_text=True))
        except ValueError as error:
            problems.append(f"{key}: {error}")
    if problems:
        raise Failure("; ".join(problems), code=Exit.USAGE)
    return changes


def confirm(screen: "Screen", question: str, *, is_sure: bool) -> None:
    """Ask whether to go on, unless an option has confirmed it."""
    if not screen.confirm(question, is_sure=is_sure):
        raise Failure("nothing was changed", "confirm with --yes")


def _complete_states() -> Iterable[str]:
    return [*STATES, *STATE_SETS]


def states_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return the states that names of states and of sets of them stand for."""
    found: list[str] = []
    for name in names:
        if name not in STATES and name not in STATE_SETS:
            known = ", ".join(_complete_states())
            raise Failure(f"unknown state {name!r}; use {known}", code=Exit.USAGE)
        found += STATE_SETS.get(name, (name,))
    return tuple(dict.fromkeys(found))


@dataclass
class Which(Options):
    """Which tasks are meant, by what they are."""

    state: Annotated[
        list[str] | None,
        opt(
            "--state -s STATE",
            "In this state, or `unfinished`, `pending`, `ended`. Repeatable.",
            _PANEL,
            complete=(*STATES, *STATE_SETS),
        ),
    ] = None
    queue: Annotated[
        str, opt("--queue -q QUEUE", "In this queue.", _PANEL, complete=completion.queues)
    ] = ""
    name: Annotated[
        str, opt("--name NAME", "With this name.", _PANEL, complete=completion.task_names)
    ] = ""
    key: Annotated[str, opt("--key KEY", "With this key.", _PANEL)] = ""
    tag: Annotated[str, opt("--tag TAG", "With this tag.", _PANEL)] = ""
    batch: Annotated[
        int, opt("--batch NUMBER", "In this batch of --queue.", _PANEL, default=False)
    ] = 0
    parent: Annotated[str, opt("--parent TASK", "Submitted by this task.", _PANEL)] = ""
    text: Annotated[
        str,
        opt(
            "--text TEXT",
            "With this text in the name, key or alias, or as a prefix of the id.",
            _PANEL,
        ),
    ] = ""
    older_than: Annotated[
        str, opt("--older-than DURATION", "Submitted longer ago than this, such as 7d.", _PANEL)
    ] = ""
    newer_than: Annotated[
        str, opt("--newer-than DURATION", "Submitted within this time, such as 1h.", _PANEL)
    ] = ""
    contains: Annotated[
        str, opt("--contains TEXT", "With this text in the error or the payload.", _PANEL)
    ] = ""

    def is_empty(self) -> bool:
        return not any(vars(self).values())

    def states(self) -> tuple[str, ...]:
        return states_of(self.state or ())

    async def filter(self, client: "Jackalope") -> "Filter":
        """Return these options as the broker takes them."""
        from jackalope.cli.formatting import now_us
        from jackalope.core.filter import Filter
        from jackalope.core.ids import NO_TASK
        from jackalope.core.lifecycle import State

        if self.batch and not self.queue:
            raise Failure("--batch needs --queue: batches are numbered by queue", code=Exit.USAGE)
        return Filter(
            states=tuple(State(name) for name in self.states()),
            queue=self.queue,
            name=self.name,
            key=self.key,
            tag=self.tag,
            parent=await find(client, self.parent) if self.parent else NO_TASK,
            batch=self.batch,
            text=self.text.replace("-", "") if _looks_like_id(self.text) else self.text,
            older_than_us=now_us() - duration_us(self.older_than) if self.older_than else 0,
            newer_than_us=now_us() - duration_us(self.newer_than) if self.newer_than else 0,
            contains=self.contains,
        )


def _looks_like_id(text: str, chars_min: int = 8) -> bool:
    digits = text.replace("-", "").lower()
    return len(digits) >= chars_min and not digits.strip("0123456789abcdef")


async def find(client: "Jackalope", text: str) -> "TaskId":
    """Find the task of a text: a UUID, hex digits, the beginning of them, or an alias."""
    from jackalope.cli.formatting import id_text, parse_id
    from jackalope.core.ids import TaskId
    from jackalope.errors import Rejected

    whole = parse_id(text)
    if whole is not None:
        return TaskId(whole)
    try:
        return (await client.find(alias=text)).id
    except Rejected as rejected:
        if rejected.code != "unknown_task":
            raise
    if not _looks_like_id(text, _PREFIX_CHARS_MIN):
        raise Failure(f"no task has the alias {text!r}; `jackalope list` shows tasks")
    digits = text.replace("-", "").lower()
    page = await client.page(text=digits)
    found = [view.id for view in page.tasks if view.id.hex().startswith(digits)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise Failure(f"no task has the alias {text!r}, and no task id begins with it")
    some = ", ".join(id_text(each) for each in found[:_CANDIDATES_SHOWN])
    raise Failure(f"{text!r} is a prefix of several task ids: {some}…; give more characters")


async def find_all(client: "Jackalope", texts: Iterable[str]) -> "list[TaskId]":
    """Find the tasks that texts mean, each once."""
    return list(dict.fromkeys([await find(client, text) for text in texts]))
